"""The check against a real broker: what it says is what the cluster allows, and nothing changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from pyspark.sql import SparkSession

from jobs.check import check
from jobs.runtime.runner import run_alone
from tests.conftest import DESCRIBER, GROUPLESS, RECORDINGS
from tests.support import clients
from tests.support.broker import Broker, Credentials
from tests.support.jobs import succeed

OFFSETS = "__consumer_offsets"
RECORDING = RECORDINGS / "2.2.2-default.parquet"


class Checked:
    """What the check said.

    Attributes:
        status: its exit status.
        found: its findings by name.
        printed: all that it printed.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str], *argv: object) -> None:
        self.status = run_alone(check, ["check", *map(str, argv), "--json"])
        out, err = capsys.readouterr()
        self.printed = out + err
        listed = json.loads(out.splitlines()[-1])["checks"]
        self.found: dict[str, dict[str, Any]] = {finding["name"]: finding for finding in listed}

    def states(self, state: str) -> set[str]:
        """Name what has a state."""
        return {name for name, finding in self.found.items() if finding["state"] == state}


@pytest.fixture
def look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Checked]]:
    """Runs the check for a lakehouse that is not there, and is not there afterwards."""
    root = tmp_path / "lakehouse"
    yield lambda *argv: Checked(capsys, "--lakehouse", root, *argv)
    assert not root.exists()


@pytest.fixture(scope="module", autouse=True)
def records(broker: Broker) -> None:
    clients.create_topic(broker.bootstrap, "checked")
    for offset in range(5):
        clients.commit(broker.bootstrap, "checked", {TopicPartition("checked", 0): offset})


def state_of(broker: Broker) -> tuple[object, ...]:
    """Return what a reader could leave behind: records, topics, groups."""
    with clients.admin_client(broker.bootstrap) as admin:
        groups = sorted(group["group_id"] for group in admin.list_groups())
        return clients.end_offsets(broker.bootstrap, OFFSETS), sorted(admin.list_topics()), groups


@pytest.fixture
def look_as(tmp_path: Path, look: Callable[..., Checked]) -> Callable[..., Checked]:
    """Runs the check of a cluster with client properties."""
    path = tmp_path / "client.properties"

    def check_cluster(properties: dict[str, str], address: str, *argv: object) -> Checked:
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return look("--bootstrap-servers", address, "--kafka-config", path, *argv)

    return check_cluster


def test_who_may_do_everything(broker: Broker, look: Callable[..., Checked]) -> None:
    before = state_of(broker)
    said = look("--bootstrap-servers", broker.bootstrap)
    assert state_of(broker) == before
    assert said.status == 0
    assert said.states("warn") == said.states("fail") == set(), said.printed
    found = {name: finding["text"] for name, finding in said.found.items()}
    with clients.admin_client(broker.bootstrap) as admin:
        cluster_id = admin.describe_cluster()["cluster_id"]
    assert found["brokers"] == (
        f"1 reachable, Kafka 4.3 by their API versions, cluster id {cluster_id}"
    )
    assert found["topic"] == f"{OFFSETS} has 4 partitions"
    assert found["log"].startswith("about ")
    assert "the oldest is of 20" in found["log"]
    ends = clients.end_offsets(broker.bootstrap, OFFSETS)
    starts = clients.begin_offsets(broker.bootstrap, OFFSETS)
    grown = sum(ends.values()) - sum(starts.values())
    assert f"{grown:,} came in the last 24 hours" in found["log"]
    assert found["settings"].startswith("cleanup.policy=compact, segment.bytes=104857600")
    assert found["schedule"].startswith("every 60 minutes or more often")


def test_whom_the_documentation_speaks_of(broker: Broker, look_as: Callable[..., Checked]) -> None:
    """The user has the ACLs of docs/operations.md, but for those on topics that groups consume."""
    said = look_as(broker.sasl_properties(), broker.sasl_bootstrap)
    assert said.status == 0, said.printed
    # Other tests of the session may let the user describe topics.
    assert said.states("warn") - {"lag"} == {"size", "settings"}
    command = "kafka-acls.sh --bootstrap-server"
    command += f" {broker.sasl_bootstrap} --command-config admin.properties"
    command += " --add --allow-principal User:ledger --operation"
    assert f". Do: {command} DescribeConfigs --topic {OFFSETS}\n" in said.printed
    assert f". Do: {command} Describe --cluster\n" in said.printed
    assert "A pipeline can run, with " in said.printed
    assert "canary" not in said.printed


def test_tls(broker: Broker, look_as: Callable[..., Checked]) -> None:
    said = look_as(broker.ssl_properties(), broker.ssl_bootstrap)
    assert (said.status, said.states("warn")) == (0, set()), said.printed
    assert said.found["login"]["text"] == "accepted as User:ANONYMOUS (SSL)"


@pytest.mark.parametrize(
    ("user", "topic", "lacks"),
    [
        (DESCRIBER, OFFSETS, ("read", f"Read --topic {OFFSETS}")),
        (
            GROUPLESS,
            OFFSETS,
            (
                "group",
                "Describe --group spark-kafka-relation --resource-pattern-type prefixed",
            ),
        ),
        (DESCRIBER, "checked", ("topic", "Read --topic checked")),
    ],
    ids=["may not read the topic", "may not describe groups", "may not see the topic"],
)
def test_a_right_that_is_missing_comes_with_its_command(
    broker: Broker,
    look_as: Callable[..., Checked],
    user: Credentials,
    topic: str,
    lacks: tuple[str, str],
) -> None:
    (name, right), address = lacks, broker.sasl_bootstrap
    said = look_as(broker.sasl_properties("PLAIN", user=user), address, "--topic", topic)
    assert (said.status, said.states("fail")) == (1, {name}), said.printed
    assert said.found[name]["advice"] == (
        f"kafka-acls.sh --bootstrap-server {address} --command-config admin.properties --add"
        f" --allow-principal User:{user.username} --operation {right}"
    )
    assert f"groupledger: check: a pipeline would fail, see {name}" in said.printed
    assert said.found["lakehouse"]["state"] == "ok"
    assert "canary" not in said.printed


def test_a_password_that_is_wrong(broker: Broker, look_as: Callable[..., Checked]) -> None:
    properties = broker.sasl_properties(password="wrong-canary")  # noqa: S106
    said = look_as(properties, broker.sasl_bootstrap)
    assert (said.status, said.states("fail")) == (1, {"login"})
    assert "the brokers refused the credentials" in said.found["login"]["text"]
    assert "canary" not in said.printed


def test_a_topic_that_is_not_there(broker: Broker, look: Callable[..., Checked]) -> None:
    before = state_of(broker)
    said = look("--bootstrap-servers", broker.bootstrap, "--topic", "nowhere")
    assert state_of(broker) == before
    assert (said.status, said.states("fail")) == (1, {"topic"})
    assert "there is no such topic" in said.found["topic"]["text"]


def test_a_topic_without_records(broker: Broker, look: Callable[..., Checked]) -> None:
    clients.create_topic(broker.bootstrap, "check-empty", partitions=2)
    said = look("--bootstrap-servers", broker.bootstrap, "--topic", "check-empty")
    assert said.status == 0
    assert said.found["log"]["text"] == "about 0 records in 0.0 kB; 0 came in the last 24 hours"
    assert said.found["read"]["state"] == "ok"


def test_the_topic_is_not_made_by_asking(tmp_path: Path, look: Callable[..., Checked]) -> None:
    """A broker makes __consumer_offsets when it is first asked for the coordinator of a group."""
    with Broker(tmp_path / "broker") as fresh:
        said = look("--bootstrap-servers", fresh.bootstrap)
        with clients.admin_client(fresh.bootstrap) as admin:
            assert admin.list_topics() == []
    assert (said.status, said.states("fail")) == (1, {"topic"})
    assert "would make __consumer_offsets to answer" in said.found["group"]["text"]


@pytest.mark.usefixtures("spark")
def test_what_kafka_python_cannot_read_is_asked_by_kafkas_client(
    broker: Broker, look_as: Callable[..., Checked]
) -> None:
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "JKS",
        "ssl.truststore.location": str(broker.truststore_jks),
        "ssl.truststore.password": broker.truststore_password,
    }
    said = look_as(properties, broker.ssl_bootstrap)
    assert (said.status, said.states("warn")) == (0, {"login"}), said.printed
    assert said.found["topic"]["text"] == f"{OFFSETS} has 4 partitions"
    assert {"brokers", "log", "read"} <= said.states("ok")
    assert broker.truststore_password not in said.printed


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001
    root = str(tmp_path_factory.mktemp("checked") / "lakehouse")
    succeed("ingest", "--records", RECORDING, "--lakehouse", root, "--cluster", "one")
    return root


def test_tables_that_are_there(tables: str, look: Callable[..., Checked]) -> None:
    before = files_below(tables)
    said = look("--lakehouse", tables, "--cluster", "one", "--records", RECORDING)
    assert (said.status, said.states("warn")) == (0, set()), said.printed
    assert said.found["tables"]["text"] == "format 2; clusters one"
    assert f"records of {OFFSETS}" in said.found["records"]["text"]
    assert files_below(tables) == before


def files_below(folder: str) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in Path(folder).rglob("*"))


def test_tables_of_a_newer_release(
    tables: str, look: Callable[..., Checked], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.check.FORMAT_VERSION", 1)
    said = look("--lakehouse", tables)
    assert (said.status, said.states("fail")) == (1, {"tables"})
    assert "this release knows format 1" in said.found["tables"]["text"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--records", "/no/such"), "no such file or folder"),
        (
            ("--records", RECORDING, "--topic", "other"),
            f"has no record of topic other, but some of {OFFSETS}",
        ),
    ],
    ids=["nothing there", "another topic"],
)
def test_files_that_ingest_would_refuse(
    look: Callable[..., Checked], argv: tuple[object, ...], words: str
) -> None:
    said = look(*argv)
    assert (said.status, said.states("fail")) == (1, {"records"}), said.printed
    assert words in said.found["records"]["text"]


@pytest.mark.usefixtures("spark")
def test_a_store_that_spark_does_not_know(look: Callable[..., Checked]) -> None:
    said = look("--lakehouse", "nowhere://bucket/groups")
    assert (said.status, said.states("fail")) == (1, {"lakehouse"}), said.printed
    assert "Spark has no file system for this scheme" in said.found["lakehouse"]["text"]
