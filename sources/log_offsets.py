"""Where the logs of a cluster's partitions start and end, asked of all of them at once.

Asked through kafka-python: some requests per broker, however many partitions there are. No group is
joined and nothing written, so the cluster keeps no trace.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka import KafkaAdminClient, TopicPartition, errors
from kafka.admin import OffsetSpec
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from schemas.errors import SourceError
from sources.kafka import ADVICE, Cluster
from sources.listeners import refuse_closed_ports

NO_LOG = "the cluster has no such topic or partition"
NOT_AUTHORIZED = "the user may not describe the topic"

_TIMEOUTS = {
    "request_timeout_ms": 10_000,
    "bootstrap_timeout_ms": 20_000,
    # A broker that refuses the credentials says so and hangs up, and kafka-python often sees only
    # the latter. It has to try again soon, not after a second and more, to hear what was said.
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 200,
}
# A broker that goes down hangs up once or twice.
_HUNG_UP = 10
# Partitions may move, or topics go, between two requests.
_TRIES = 3
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")
# Errors of kafka-python, and the error of Kafka's own client that they mean.
_MEANS = (
    (errors.SaslAuthenticationFailedError, "SaslAuthenticationException"),
    (errors.UnsupportedSaslMechanismError, "UnsupportedSaslMechanismException"),
    (errors.ClusterAuthorizationFailedError, "ClusterAuthorizationException"),
    (errors.UnsupportedVersionError, "UnsupportedVersionException"),
    (errors.UnrecognizedBrokerVersion, "UnsupportedVersionException"),
    (ssl.SSLError, "SslAuthenticationException"),
    (errors.RetriableError, "TimeoutException"),
    (errors.KafkaConnectionError, "TimeoutException"),
)


# What brokers answer that do not let a client in.
_REFUSALS = {
    "SaslAuthenticationException",
    "UnsupportedSaslMechanismException",
    "SslAuthenticationException",
}


class UnsupportedError(SourceError):
    """Kafka's own client can do what --kafka-config asks for, kafka-python cannot."""


class RefusedError(SourceError):
    """A broker is there, but does not let the client in."""


@dataclass(frozen=True)
class LogOffsets:
    """One partition's log: `start` up to `end` - 1; or why they are not known."""

    topic: str
    partition: int
    start: int | None = None
    end: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Sample:
    """What the cluster said at a moment."""

    at: dt.datetime
    logs: list[LogOffsets]


def sample(cluster: Cluster, partitions: Iterable[tuple[str, int]]) -> Sample:
    """Ask for the first offset and the end (high watermark) of each partition's log.

    Raises:
        UnsupportedError: kafka-python cannot do what the properties ask for.
        SourceError: no broker answers, it refuses, or no topic may be described.
    """
    wanted = [TopicPartition(topic, number) for topic, number in sorted(set(partitions))]
    with admin_client(cluster) as admin:
        return ask(admin, wanted)


@contextmanager
def admin_client(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    """Open an admin client of kafka-python; what it cannot do within becomes a line.

    Raises:
        UnsupportedError: kafka-python cannot do what the properties ask for.
        RefusedError: a broker does not let the client in.
        SourceError: no broker answers, or it answers with another error.
    """
    options = client_options(cluster.properties)
    refuse_closed_ports(cluster.bootstrap_servers)
    with speaking_of(cluster), _admin(cluster.bootstrap_servers, options) as admin:
        yield admin


@contextmanager
def speaking_of(cluster: Cluster) -> Iterator[None]:
    """Say of an error of kafka-python what a user can do about it.

    Raises:
        RefusedError: a broker does not let the client in.
        SourceError: any other error of Kafka.
    """
    try:
        yield
    except (errors.KafkaError, ssl.SSLError) as error:
        kind = RefusedError if _meaning(error) in _REFUSALS else SourceError
        raise kind(f"{cluster.bootstrap_servers}: {_reason(error)}") from None


def client_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """Translate Kafka client properties into kafka-python's options.

    Raises:
        UnsupportedError: one has no counterpart. The message holds no value but the name of a
            mechanism or type.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise SourceError(
            f"--kafka-config: security.protocol has to be one of {', '.join(_PROTOCOLS)}"
        )
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        options |= _sasl_options(properties)
    if protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(properties)
    return options


def _sasl_options(properties: Mapping[str, str]) -> dict[str, Any]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _SASL:
        raise UnsupportedError(
            f"--kafka-config: lag cannot log in by sasl.mechanism={mechanism}, only by "
            f"{', '.join(_SASL)}"
        )
    found = _jaas_options(properties)
    if not {"username", "password"} <= found.keys():
        raise SourceError("--kafka-config: sasl.jaas.config names no username and password")
    if found.get("tokenauth") == "true":
        raise UnsupportedError("--kafka-config: lag cannot log in by a delegation token")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": found["username"],
        "sasl_plain_password": found["password"],
    }


def principal(properties: Mapping[str, str]) -> str | None:
    """Name whom the brokers take the client for, as ACLs do; None if only they know.

    By default they take the name that a client logs in by (DefaultKafkaPrincipalBuilder), and
    User:ANONYMOUS for one without; that of a certificate is its subject.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if not protocol.startswith("SASL"):
        has_certificate = any(name.startswith("ssl.keystore.") for name in properties)
        return None if has_certificate and protocol == "SSL" else "User:ANONYMOUS"
    name = _jaas_options(properties).get("username")
    return None if name is None else f"User:{name}"


def _jaas_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a login, without the quotes and escapes of JAAS."""
    found = dict(_JAAS_OPTION.findall(properties.get("sasl.jaas.config", "")))
    for name, value in found.items():
        if value[0] in "\"'":
            found[name] = re.sub(r"\\(.)", r"\1", value[1:-1])
    return found


def _ssl_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Kafka's own client, too, compares no names if this is empty.
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https") != ""
    trusted, inline = _pem_file(properties, "truststore"), "ssl.truststore.certificates"
    try:
        if trusted or inline in properties:
            context.load_verify_locations(trusted, cadata=properties.get(inline))
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        raise SourceError("--kafka-config: the truststore cannot be read as PEM") from error
    if "ssl.keystore.key" in properties:
        raise UnsupportedError("--kafka-config: lag needs ssl.keystore.location, not a key inline")
    own = _pem_file(properties, "keystore")
    if own:
        try:
            context.load_cert_chain(own, password=properties.get("ssl.key.password", ""))
        except (OSError, ValueError) as error:
            raise SourceError(
                "--kafka-config: the keystore cannot be read as PEM with ssl.key.password"
            ) from error
    return context


def _pem_file(properties: Mapping[str, str], store: str) -> str | None:
    location = properties.get(f"ssl.{store}.location")
    kind = properties.get(f"ssl.{store}.type", "JKS").upper()
    if location is not None and kind != "PEM":
        raise UnsupportedError(
            f"--kafka-config: lag cannot read a {store} of type {kind}: give it as PEM with "
            f"ssl.{store}.type=PEM (keytool -exportcert -rfc, openssl pkcs12)"
        )
    return location


class _Connections(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """Connections that give up when a broker refuses the credentials or a certificate is wrong."""

    # kafka-python tries again until time is up, then tells of the time alone. A refusal, which a
    # broker sends as it hangs up, may pass unheard on a busy machine: the connection is closed
    # before what came is looked at. Then a broker that has sent its versions, and hangs up on each
    # attempt to log in, has refused.
    refusal: Exception | None = None
    hung_up = 0

    def get_connection(self, node_id: int, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        if self.refusal is not None:
            raise self.refusal
        connection = super().get_connection(node_id, *args, **options)
        connection.init_future.add_errback(partial(self._note, connection))
        return connection

    def _note(self, connection: KafkaConnection, error: Exception) -> None:
        if isinstance(
            error, errors.SaslAuthenticationFailedError | errors.UnsupportedSaslMechanismError
        ):
            self.refusal = error
        elif "certificate" in str(error).lower():
            self.refusal = ssl.SSLError()
        elif _is_hang_up(error) and connection.sasl_enabled and connection.broker_version:
            self.hung_up += 1
            if self.hung_up >= _HUNG_UP:
                self.refusal = errors.SaslAuthenticationFailedError()


def _is_hang_up(error: Exception) -> bool:
    return isinstance(error, errors.KafkaConnectionError) and "socket disconnected" in str(error)


@contextmanager
def _admin(servers: str, options: Mapping[str, Any]) -> Iterator[KafkaAdminClient]:
    """Open an admin client, and end its thread also if no broker answers."""
    # It logs every attempt; what comes of them is in the error.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    made: list[tuple[KafkaNetClient, _Connections]] = []

    def connect(**settings: Any) -> KafkaNetClient:  # noqa: ANN401 - all of kafka-python's settings
        net = NetworkSelector(**settings)
        connections = _Connections(net, **settings)
        client = KafkaNetClient(net, connections)
        made.append((client, connections))
        return client

    try:
        yield KafkaAdminClient(
            bootstrap_servers=[server.strip() for server in servers.split(",")],
            kafka_client=connect,
            **_TIMEOUTS,
            **options,
        )
    except errors.RetriableError as error:
        # Time was up before the refusal was met again.
        for _, connections in made:
            if connections.refusal is not None:
                raise connections.refusal from error
        raise
    finally:
        for client, _ in made:
            client.close()


def ask(admin: KafkaAdminClient, wanted: list[TopicPartition], tries: int = _TRIES) -> Sample:
    """Ask for the logs of partitions, see `sample`."""
    try:
        return _ask(admin, wanted)
    except errors.InvalidMetadataError:  # a topic went, or a leader changed, in between
        if tries == 1:
            raise
        return ask(admin, wanted, tries - 1)


def _ask(admin: KafkaAdminClient, wanted: list[TopicPartition]) -> Sample:
    problems = _problems(admin, wanted)
    known = [tp for tp in wanted if tp not in problems]
    start = admin.list_partition_offsets(dict.fromkeys(known, OffsetSpec.EARLIEST))
    at = dt.datetime.now(dt.timezone.utc)
    end = admin.list_partition_offsets(dict.fromkeys(known, OffsetSpec.LATEST))
    logs = [LogOffsets(tp.topic, tp.partition, start[tp].offset, end[tp].offset) for tp in known]
    logs += [LogOffsets(tp.topic, tp.partition, problem=why) for tp, why in problems.items()]
    return Sample(at, logs)


def _problems(admin: KafkaAdminClient, wanted: list[TopicPartition]) -> dict[TopicPartition, str]:
    """Return which partitions cannot be asked, and why."""
    topics = {t["name"]: t for t in admin.describe_topics(sorted({tp.topic for tp in wanted}))}
    leaders = {
        TopicPartition(name, partition["partition_index"]): partition["leader_id"]
        for name, topic in topics.items()
        for partition in topic["partitions"]
    }
    problems = {}
    for tp in wanted:
        error = errors.for_code(topics[tp.topic]["error_code"])
        if error is errors.TopicAuthorizationFailedError:
            problems[tp] = NOT_AUTHORIZED
        elif error is errors.LeaderNotAvailableError or leaders.get(tp) == -1:
            problems[tp] = "the partition has no leader"
        elif tp not in leaders:
            problems[tp] = NO_LOG
    return problems


def _meaning(error: Exception) -> str:
    return next((name for kind, name in _MEANS if isinstance(error, kind)), "")


def _reason(error: Exception) -> str:
    # The error's own text may quote an option's value, so it is not shown.
    return ADVICE.get(_meaning(error), f"kafka-python failed with {type(error).__name__}")
