"""One Spark session and one broker for the whole run, made when the first test asks for them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from launch import jars, shipping, submit
from tests.support.broker import Broker, Credentials
from tests.support.clients import OFFSETS_TOPIC, allow, create_offsets_topic
from tests.support.cluster import FEW_TASKS, standalone
from tests.support.kafka_classes import KafkaClasses, NoJdkError, jdk
from tests.support.kills import QUICK

if TYPE_CHECKING:
    from tests.support.jobs import Outcome

RECORDINGS = Path(__file__).parents[1] / "examples" / "recordings"
FIELD = Path(__file__).parent / "field"
# For an hour Delta keeps the state of each table that it has seen: of all tests' tables that is
# more than the heap holds.
FEW_LOGS = {"spark.databricks.delta.delta.log.cacheSize": "200"}
# Users of the broker that lack an ACL: on the topic, on groups.
DESCRIBER = Credentials("describer", "canary-77be01")
GROUPLESS = Credentials("groupless", "canary-0c93d4")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let any test that runs jobs in the session run them on a cluster, too."""
    parser.addoption(
        "--workers", type=int, default=0, help="run on a standalone cluster of so many workers"
    )
    # The JVM compiles what is used often a second time: by half an hour that has paid.
    parser.addoption(
        "--long", action="store_true", help="let the session get faster, for half an hour and more"
    )


@pytest.fixture(scope="session")
def master(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where the session of the tests runs: this process, or a cluster."""
    workers = request.config.getoption("--workers")
    if not workers:
        yield "local[2]"
        return
    with standalone(workers, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.master


@pytest.fixture(scope="session")
def spark(master: str, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session that ./spark-submit.sh would make, with its JARs, properties and code."""
    target = submit.choose_target(master, {})
    conf, archive = FEW_LOGS, None
    if not request.config.getoption("--long"):
        conf = conf | {"spark.driver.extraJavaOptions": QUICK}
    if not target.is_this_machine:
        conf = conf | dict([FEW_TASKS.split("=")])
        archive = shipping.build_archive(jars.cache_folder())
    found = jars.fetch(jars.spark_jars())
    arguments = submit.spark_arguments(target, conf, found, archive)
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
    session = SparkSession.builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def storm(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001
    """A lakehouse with the demo's recording, ingested in one run; not to be written to."""
    from tests.support.jobs import succeed  # noqa: PLC0415 - no unit test needs it

    root = str(tmp_path_factory.mktemp("storm") / "lakehouse")
    recording = RECORDINGS / "4.3.1-storm.parquet"
    succeed("pipeline", "--records", recording, "--lakehouse", root, "--cluster", "one")
    return root


@pytest.fixture(scope="session")
def demo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:  # noqa: ARG001
    """What the demo said, into a lakehouse that its summary names; as above."""
    from tests.support.jobs import run  # noqa: PLC0415 - no unit test needs it

    root = tmp_path_factory.mktemp("demo") / "lakehouse"
    outcome = run("demo", "--lakehouse", root)
    assert outcome.status == 0, outcome.err
    assert outcome.summary["report"] == str(root / "report.html")
    return outcome


@pytest.fixture(scope="session")
def gap(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001
    """A lakehouse with groups whose members changed in an hour that nobody read; as above."""
    from tests.support.jobs import succeed  # noqa: PLC0415 - no unit test needs it
    from tests.support.topic import with_a_gap  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("gap")
    records, root = with_a_gap().write(folder / "records.parquet"), str(folder / "lakehouse")
    line = ("--records", records, "--lakehouse", root, "--strict", "--skip", "report")
    succeed("pipeline", *line)
    return root


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker with a listener for plain clients, one for SASL and one for TLS.

    Plain and TLS clients may do everything. The user of `credentials` has the ACLs that
    docs/operations.md names and no other, so that whatever is read as this user holds the page to
    its word.
    """
    running = Broker(
        tmp_path_factory.mktemp("broker"),
        offsets_partitions=4,  # each is a task and a file of its own, in every run that reads it
        credentials=Credentials("ledger", "canary-5f1c2a"),
        plain_users=[DESCRIBER, GROUPLESS],
        tls=True,
        authorizer=True,
    )
    groups = "spark-kafka-relation"
    with running:
        create_offsets_topic(running.bootstrap)
        allow(running.bootstrap, "ledger", read_topic=OFFSETS_TOPIC, describe_groups=groups)
        allow(
            running.bootstrap,
            DESCRIBER.username,
            describe_topic=OFFSETS_TOPIC,
            describe_groups=groups,
        )
        allow(running.bootstrap, GROUPLESS.username, read_topic=OFFSETS_TOPIC)
        yield running


@pytest.fixture(scope="session")
def java() -> str:
    """Find a Java that runs a program from its source."""
    try:
        return jdk()
    except NoJdkError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka_classes(java: str) -> Iterator[KafkaClasses]:
    with KafkaClasses(java) as classes:
        yield classes


@pytest.fixture
def lakehouse_path(tmp_path: Path) -> str:
    return str(tmp_path / "lakehouse")
