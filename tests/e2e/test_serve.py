"""BI tools ask by JDBC: Spark's own client reads the tables and views of a served lakehouse."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from launch import command_line, jars, submit
from tests.support.jobs import Outcome, query, run
from tests.support.kills import BRIEF


@pytest.fixture(scope="module")
def root(demo: Outcome) -> str:
    return str(Path(demo.summary["report"]).parent)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "stderr"


@pytest.fixture(scope="module")
def served(root: str, terminal: Path) -> Iterator[int]:
    """Serve the lakehouse, and give the port."""
    with terminal.open("w") as said, serving(root, stderr=said) as port:
        yield port


@contextmanager
def serving(root: str, *options: str, stderr: IO[str] | None = None) -> Iterator[int]:
    """Serve a lakehouse with more options, and give the port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    argv = ("sql", "--serve", "--port", str(port), "--lakehouse", root, *BRIEF, *options)
    chosen = command_line.parse(list(argv))
    command, env = submit.job_process(submit.choose_target(None, {}), argv, chosen)
    pipes = {"stdout": subprocess.PIPE, "stderr": stderr}
    with subprocess.Popen(command, env=env, text=True, **pipes) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith(f"jdbc:hive2://127.0.0.1:{port}/gold")
            yield port
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def ask(port: int, text: str, more: str = "") -> list[str]:
    beeline = jars.pyspark_home() / "bin" / "beeline"
    address = f"jdbc:hive2://127.0.0.1:{port}/gold{more}"
    options = ("-u", address, "--silent=true", "--outputformat=csv2", "--showHeader=false")
    env = {**os.environ, "SPARK_HOME": str(jars.pyspark_home())}
    env |= dict.fromkeys(("SPARK_LAUNCHER_OPTS", "SPARK_BEELINE_OPTS"), "-XX:TieredStopAtLevel=1")
    done = subprocess.run(
        [beeline, *options, "-e", text], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = (re.sub(r"^0: jdbc:\S+> ", "", line) for line in done.stdout.splitlines())
    return [line for line in lines if line.strip()]


def test_clients_see_what_sql_prints_one_after_another(served: int, root: str) -> None:
    name = "concat(group_id, ' ', decode(X'E88081', 'UTF-8'))"
    text = f"SELECT {name} AS name, count(*) AS n FROM gold.timeline GROUP BY ALL ORDER BY name"
    expected = [f"{row['name']},{row['n']}" for row in query(root, text)]
    assert ask(served, text) == expected
    assert expected[0].startswith("crash-loop 老,")
    # The first one has left. A path makes Spark load classes of Delta that the tables of the
    # catalog do not need.
    text = f"SELECT count(*) > 0 FROM delta.`{root}/gold/group_generations`"
    assert ask(served, text) == ["true"]


def test_nothing_is_changed_by_the_name_of_a_table(served: int) -> None:
    for text in ("DELETE FROM gold.group_states", "INSERT INTO gold.group_states SELECT 1"):
        with pytest.raises(AssertionError, match=r"(?i)view"):
            ask(served, text)


def test_what_clients_do_wrong_is_told_to_them_alone(served: int, terminal: Path) -> None:
    with pytest.raises(AssertionError, match="TABLE_OR_VIEW_NOT_FOUND"):
        ask(served, "SELECT * FROM gold.nothing")
    (step,) = terminal.read_text("utf-8").splitlines()
    assert step.startswith("finding the tables: ")


def test_it_listens_on_this_machine_alone(served: int) -> None:
    own = socket.gethostbyname(socket.gethostname())
    if own.startswith("127."):
        pytest.skip("this machine has no other address by name")
    with socket.socket() as probe:
        assert probe.connect_ex((own, served)) != 0


def test_a_port_that_is_taken_is_refused(root: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run("sql", "--serve", "--port", port, "--lakehouse", root)
    assert outcome.status == 1
    assert "cannot listen: Address already in use" in outcome.complaint


@pytest.mark.slow
def test_by_tls_alone(root: str, tmp_path: Path) -> None:
    store, password = tmp_path / "server.p12", "of-a-test"
    keytool = Path(os.environ["JAVA_HOME"], "bin", "keytool")
    command = [keytool, "-genkeypair", "-alias", "server", "-keyalg", "RSA", "-dname"]
    command += ["CN=localhost", "-ext", "san=ip:127.0.0.1", "-storetype", "PKCS12"]
    command += ["-keystore", store, "-storepass", password]
    subprocess.run(command, check=True, capture_output=True)
    settings = {"use.SSL": "true", "keystore.path": store, "keystore.type": "PKCS12"}
    settings["keystore.password"] = password
    options = []
    for name, value in settings.items():
        options += ["--conf", f"spark.hadoop.hive.server2.{name}={value}"]
    with serving(root, *options) as port:
        tls = f";ssl=true;sslTrustStore={store};trustStorePassword={password}"
        assert ask(port, "SELECT 1", tls) == ["1"]
        with pytest.raises(AssertionError, match="Could not open client transport"):
            ask(port, "SELECT 1")
