"""A real Kafka broker of one node on loopback, for tests."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import secrets
import shutil
import socket
import struct
import subprocess
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from launch.jars import JarSet, fetch

if TYPE_CHECKING:
    from typing_extensions import Self

HOST = "127.0.0.1"
JARS = Path(__file__).with_name("broker-jars.xml")
JVM_FLAGS = (
    *("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC"),
    *("-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData"),
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
# Below the range that Linux takes for outgoing connections, so that nothing slips into a port
# while its broker is down between kill() and restart().
PORTS = range(20_000, 32_000)
LOG_TAIL_LINES = 40
WATCHDOG = 'read -r _ && exit; kill -9 "$0"'


class BrokerError(RuntimeError):
    """The broker did not do what was asked; the message ends with the tail of its log."""


@dataclass(frozen=True)
class Credentials:
    """A user of the SASL listener."""

    username: str
    password: str


@dataclass
class Broker:
    """One Kafka node (broker and controller) with a fresh log, bound to 127.0.0.1 alone.

    Use it as a context manager, or call `start` and `stop`. Whatever happens to the test
    process, even SIGKILL, the broker dies with it.
    """

    folder: Path
    """Where configuration, logs and data go; must be empty or new."""
    offsets_partitions: int = 50
    """Partitions of `__consumer_offsets`."""
    rebalance_delay_ms: int = 0
    """`group.initial.rebalance.delay.ms`."""
    abort_check_ms: int = 500
    """How often the broker looks for transactions that outlived their own time-out."""
    credentials: Credentials | None = None
    """With these, a SASL_PLAINTEXT listener is opened, where SCRAM-SHA-256 and PLAIN know them."""
    plain_users: Sequence[Credentials] = ()
    """Further users of that listener, which only PLAIN knows."""
    authorizer: bool = False
    """With this, users may do what ACLs allow them, and clients without a name everything."""
    tls: bool = False
    """With this, an SSL listener with a self-signed certificate is opened too."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Broker settings that are added last, and so win."""
    start_timeout_s: float = 90

    def __post_init__(self) -> None:
        """Choose ports, before anything runs."""
        names = ["PLAINTEXT", "CONTROLLER"]
        names += ["SASL"] if self.credentials else []
        names += ["SSL"] if self.tls else []
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.truststore_password = secrets.token_hex(8)  # keytool insists on one
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        """Start the broker."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop the broker."""
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The `host:port` of the listener without any security."""
        return self._address("PLAINTEXT")

    @property
    def sasl_bootstrap(self) -> str:
        """The `host:port` of the SASL_PLAINTEXT listener."""
        return self._address("SASL")

    @property
    def ssl_bootstrap(self) -> str:
        """The `host:port` of the SSL listener."""
        return self._address("SSL")

    @property
    def data(self) -> Path:
        """The folder with the partitions' segments."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The broker's own log, of every start, oldest first."""
        return self.folder / "broker.log"

    @property
    def truststore_pem(self) -> Path:
        """The SSL listener's certificate as PEM: a `ssl_cafile`, or a truststore of type PEM."""
        return self.folder / "tls" / "certificate.pem"

    @property
    def truststore_jks(self) -> Path:
        """The SSL listener's certificate in a JKS truststore that `truststore_password` opens."""
        return self.folder / "tls" / "truststore.jks"

    @property
    def pid(self) -> int | None:
        """The broker's process id while it runs."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and alive else None

    def sasl_properties(
        self,
        mechanism: str = "SCRAM-SHA-256",
        *,
        password: str | None = None,
        user: Credentials | None = None,
    ) -> dict[str, str]:
        """Say how Java clients (and Spark, behind `kafka.`) log in at the SASL listener.

        Args:
            mechanism: `SCRAM-SHA-256` or `PLAIN`.
            password: Another than the right one, to be turned away.
            user: Default: the one of `credentials`.
        """
        user = user or self._user()
        package = "scram.Scram" if mechanism.startswith("SCRAM") else "plain.Plain"
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": _jaas(
                package, username=user.username, password=password or user.password
            ),
        }

    def sasl_options(
        self, mechanism: str = "SCRAM-SHA-256", *, password: str | None = None
    ) -> dict[str, object]:
        """Say how kafka-python logs in at the SASL listener, see `sasl_properties`."""
        user = self._user()
        return {
            "bootstrap_servers": self.sasl_bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user.username,
            "sasl_plain_password": password or user.password,
        }

    def ssl_properties(self) -> dict[str, str]:
        """Say how Java clients (and Spark, behind `kafka.`) trust the SSL listener."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.truststore_pem),
        }

    def ssl_options(self) -> dict[str, object]:
        """Say how kafka-python trusts the SSL listener."""
        return {
            "bootstrap_servers": self.ssl_bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": str(self.truststore_pem),
        }

    def start(self) -> Self:
        """Start the node and return when it answers; its log is formatted the first time.

        Raises:
            BrokerError: It did not answer in time, or ended.
        """
        if self.pid is not None:
            return self
        if not self.data.exists():
            self._format()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._server_properties)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop the broker
            )
        self._end = weakref.finalize(self, _end, self._process, _watch(self._process.pid))
        try:
            self._await_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, timeout_s: float = 20) -> None:
        """End the node in an orderly way, or after `timeout_s` by force."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """End the node at once (SIGKILL), as a crash would: nothing is flushed or handed over."""
        if self._end is not None:
            self._end()
        self._process = None

    def restart(self) -> Self:
        """Stop the node and start it again on the same ports and the same log."""
        self.stop()
        return self.start()

    def cut(self, topic: str, *, partition: int, end: int) -> None:
        """Take the end from a log, as an unclean election does; the node has to be down.

        Args:
            topic: The topic.
            partition: Its partition, which has one segment.
            end: The offset behind the last one that is left, where a batch begins.
        """
        folder = self.data / f"{topic}-{partition}"
        segment = folder / f"{0:020}.log"
        content = segment.read_bytes()
        at = 0
        while at < len(content):
            offset, length = struct.unpack_from(">qi", content, at)
            if offset >= end:
                break
            at += struct.calcsize(">qi") + length
        segment.write_bytes(content[:at])
        for index in folder.glob("*.*index"):
            index.unlink()
        for checkpoint in self.data.glob("*-offset-checkpoint"):
            checkpoint.unlink()
        (self.data / ".kafka_cleanshutdown").unlink(missing_ok=True)

    def ask(self, tool: str, *arguments: str) -> str:
        """Run a class of Kafka's command line, which has to end well; give what it prints."""
        line = self._java(f"org.apache.kafka.tools.{tool}", *arguments)
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode or "Error" in done.stdout + done.stderr:
            raise BrokerError(f"{tool} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    @property
    def _server_properties(self) -> Path:
        return self.folder / "server.properties"

    def _address(self, listener: str) -> str:
        return f"{HOST}:{self._ports[listener]}"

    def _user(self) -> Credentials:
        if self.credentials is None:
            raise BrokerError("this broker has no SASL listener: give it credentials")
        return self.credentials

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        jars = fetch(JarSet.from_file(JARS, name="kafka-broker"))
        classpath = f"{jars[0].parent}/*"
        return [_tool("java"), *JVM_FLAGS, "-cp", classpath, main_class, *arguments]

    def _format(self) -> None:
        """Write the settings and an empty log with the features that every group type needs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.tls:
            _make_certificate(self.truststore_pem.parent, self.truststore_password)
        settings = self._settings() | dict(self.properties)
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        self._server_properties.write_text("".join(lines), encoding="utf-8")
        options = ["--feature", "share.version=1", "--feature", "streams.version=1"]
        if user := self.credentials:
            scram = f"SCRAM-SHA-256=[name={user.username},password={user.password}]"
            options += ["--add-scram", scram]
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            self._java(
                "kafka.tools.StorageTool",
                *("format", f"--cluster-id={cluster_id}"),
                *("--config", str(self._server_properties)),
                *options,
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.start_timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise BrokerError(
                f"the broker's log could not be formatted:\n{done.stdout}{done.stderr}"
            )

    def _settings(self) -> dict[str, str]:
        listeners = {name: f"{name}://{HOST}:{port}" for name, port in self._ports.items()}
        controller = listeners.pop("CONTROLLER")
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self._address('CONTROLLER')}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*listeners.values(), controller]),
            "advertised.listeners": ",".join(listeners.values()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SASL:SASL_PLAINTEXT,SSL:SSL",
            "log.dirs": str(self.data),
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": str(self.offsets_partitions),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # A producer may ask for hours: its transaction hangs until a test ends it.
            "transaction.max.timeout.ms": "86400000",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(self.abort_check_ms),
            "group.initial.rebalance.delay.ms": str(self.rebalance_delay_ms),
            "group.min.session.timeout.ms": "500",
            # Every ten minutes the broker would delete empty groups without offsets: tombstones in
            # the middle of a test that counts what it wrote itself.
            "offsets.retention.check.interval.ms": "86400000",
            "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
            # After kill() the controller takes the old registration for alive this long (9 s).
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "log.retention.check.interval.ms": "500",
            "log.initial.task.delay.ms": "500",
            "log.cleaner.backoff.ms": "500",
            # 128 MiB by default, of a heap of 512.
            "log.cleaner.dedupe.buffer.size": "16777216",
            "num.network.threads": "2",
            "num.io.threads": "4",
        }
        if self.credentials:
            settings |= _sasl_settings(self.credentials, self.plain_users)
        if self.authorizer:
            settings |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        if self.tls:
            settings |= _tls_settings(self.truststore_pem.parent, self.truststore_password)
        return settings

    def _await_ready(self) -> None:
        """Return when the node lists itself as a broker of its cluster."""
        process = self._process
        if process is None:
            raise BrokerError("the broker was not started")
        deadline = time.monotonic() + self.start_timeout_s
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=0.05)
                raise BrokerError(self._failure(f"ended with exit status {code}"))
            if _is_listening(self._ports["PLAINTEXT"]) and self._answers(left):
                return
        raise BrokerError(self._failure(f"did not answer within {self.start_timeout_s:g} s"))

    def _answers(self, timeout_s: float) -> bool:
        with contextlib.suppress(KafkaError):
            admin = KafkaAdminClient(
                bootstrap_servers=self.bootstrap,
                bootstrap_timeout_ms=int(min(timeout_s, 5) * 1000),
                request_timeout_ms=int(min(timeout_s, 5) * 1000),
            )
            with contextlib.closing(admin):
                return bool(admin.describe_cluster()["brokers"])
        return False

    def _failure(self, what: str) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        # A node that gives up shuts down at length after it said why.
        errors = [line for line in lines if " ERROR " in line][-5:]
        tail = "\n".join([*errors, "...", *lines[-LOG_TAIL_LINES:]])
        return f"the broker at {self.bootstrap} {what}; errors and end of {self.log}:\n{tail}"


def _tool(name: str) -> str:
    """Find a tool of the JDK, in JAVA_HOME first."""
    home = os.environ.get("JAVA_HOME")
    found = home and shutil.which(name, path=str(Path(home) / "bin"))
    found = found or shutil.which(name)
    if not found:
        raise BrokerError(f"{name} not found: install Java 17 or 21, or set JAVA_HOME")
    return found


def free_ports(count: int) -> list[int]:
    """Find ports that nothing listens on."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for port in random.sample(PORTS, k=1000):
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise BrokerError(f"no {count} free ports among {PORTS.start} to {PORTS.stop}")


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def _watch(pid: int) -> subprocess.Popen[bytes]:
    """Start a shell that kills the process `pid` when ours is gone, however that came about.

    Its standard input is a pipe from us, which the system closes at our end. Unlike a parent-death
    signal that needs no code between fork and exec, and does not fire when the thread that started
    the broker ends.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", WATCHDOG, str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end(broker: subprocess.Popen[bytes], watchdog: subprocess.Popen[bytes]) -> None:
    """End a broker and then its watchdog, and reap both."""
    broker.kill()
    broker.wait()
    watchdog.kill()
    watchdog.communicate()


def _jaas(module: str, **options: str) -> str:
    pairs = "".join(f' {key}="{value}"' for key, value in options.items())
    return f"org.apache.kafka.common.security.{module}LoginModule required{pairs};"


def _sasl_settings(user: Credentials, others: Sequence[Credentials]) -> dict[str, str]:
    known = {f"user_{u.username}": u.password for u in (user, *others)}
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": _jaas("scram.Scram"),
        "listener.name.sasl.plain.sasl.jaas.config": _jaas("plain.Plain", **known),
    }


def _tls_settings(folder: Path, password: str) -> dict[str, str]:
    return {
        "listener.name.ssl.ssl.keystore.type": "PKCS12",
        "listener.name.ssl.ssl.keystore.location": str(folder / "keystore.p12"),
        "listener.name.ssl.ssl.keystore.password": password,
        "listener.name.ssl.ssl.client.auth": "none",
    }


def _make_certificate(folder: Path, password: str) -> None:
    """Make a self-signed certificate for loopback, its keystore and its truststores."""
    folder.mkdir(parents=True, exist_ok=True)
    keystore, pem = str(folder / "keystore.p12"), str(folder / "certificate.pem")
    _keytool(
        *("-genkeypair", password),
        *("-keystore", keystore, "-storetype", "PKCS12"),
        *("-keyalg", "RSA", "-keysize", "2048", "-validity", "2"),
        *("-dname", f"CN={HOST}", "-ext", f"SAN=IP:{HOST},DNS:localhost"),
    )
    _keytool("-exportcert", password, "-rfc", "-keystore", keystore, "-file", pem)
    truststore = str(folder / "truststore.jks")
    _keytool(
        *("-importcert", password, "-noprompt", "-file", pem),
        *("-keystore", truststore, "-storetype", "JKS"),
    )


def _keytool(command: str, password: str, *options: str) -> None:
    arguments = [command, "-alias", "broker", "-storepass", password, *options]
    done = subprocess.run(
        [_tool("keytool"), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BrokerError(f"keytool {command} failed:\n{done.stdout}{done.stderr}")
