"""What a log may lose between two runs, and what the lakehouse then says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import TopicPartition
from pyspark.sql import SparkSession

from jobs import ingest as ingest_job
from jobs import pipeline as pipeline_job
from jobs.lag import lag
from jobs.runtime.run import Run
from launch.signals import INTERRUPTED
from schemas.placement import partition_for
from schemas.tables import COVERAGE, RECORDS, RUNS
from sources import kafka as kafka_source
from sources import log_offsets
from storage.lakehouse import Lakehouse
from tests.support import clients
from tests.support.broker import Broker
from tests.support.jobs import everything, run, succeed, table

Hole = tuple[int, int, str]


class Log:
    """A topic of one partition and what a lakehouse has of it."""

    def __init__(self, spark: SparkSession, broker: Broker, name: str, root: str) -> None:
        self.spark, self.bootstrap, self.name, self.root = spark, broker.bootstrap, name, root
        self.options = (
            *("--bootstrap-servers", broker.bootstrap, "--topic", name),
            *("--lakehouse", root),
        )

    def create(self, **configs: str) -> None:
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        clients.create_topic(self.bootstrap, self.name, configs=dotted)

    def produce(self, count: int, text: str = "record", keys: int | None = None) -> None:
        clients.produce(self.bootstrap, self.name, count, text=text, keys=keys)

    def held(self, cluster: str = "default") -> list[int]:
        """Return the offsets that bronze has, each as often as it is there."""
        records = table(self.spark, self.root, RECORDS.name, cluster)
        return sorted(row.record_offset for row in records.select("record_offset").collect())

    def covered(self, cluster: str = "default") -> list[tuple[int, int, list[Hole]]]:
        """Return range and holes of every run."""
        coverage = table(self.spark, self.root, COVERAGE.name, cluster)
        rows = coverage.orderBy("ingest_run").collect()
        return [(r.from_offset, r.next_offset, [(h[0], h[1], h[2]) for h in r.holes]) for r in rows]


def killed(*_: object, **__: object) -> int:
    """Stand in for a function that the run was killed before."""
    raise KeyboardInterrupt


@pytest.fixture
def log(
    spark: SparkSession, broker: Broker, request: pytest.FixtureRequest, lakehouse_path: str
) -> Log:
    return Log(spark, broker, request.node.name.replace("_", "-"), lakehouse_path)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that may be killed; a test may find it dead."""
    with Broker(tmp_path_factory.mktemp("mortal"), offsets_partitions=1) as running:
        yield running


def test_records_deleted_before_they_were_read_are_truncated(log: Log) -> None:
    log.create()
    log.produce(5)
    succeed("ingest", *log.options)
    log.produce(5)
    clients.delete_records(log.bootstrap, log.name, {0: 8})
    outcome = run("ingest", *log.options)
    assert outcome.status == 0, outcome.err
    assert outcome.summary["records_ingested"] == 2
    assert outcome.summary["offsets_truncated"] == 3
    assert "3 offsets in 1 partitions were deleted" in outcome.err
    log.produce(2)
    clients.delete_records(log.bootstrap, log.name, {0: 12})  # all of them, down to the end
    assert succeed("ingest", *log.options)["records_ingested"] == 0
    nothing_new = run("ingest", *log.options)
    assert (nothing_new.status, nothing_new.summary["records_ingested"]) == (0, 0)
    assert "truncated" not in nothing_new.err  # said once
    log.produce(1)
    assert succeed("ingest", *log.options)["records_ingested"] == 1
    assert log.held() == [0, 1, 2, 3, 4, 8, 9, 12]
    assert log.covered() == [
        (0, 5, []),
        (5, 10, [(5, 7, "truncated")]),
        (10, 12, [(10, 11, "truncated")]),
        (12, 13, []),
    ]


def test_what_compaction_removed_is_compacted(log: Log) -> None:
    log.create(
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="200",
    )
    log.produce(6, keys=2)
    time.sleep(0.2)  # the next record begins another segment, and only former ones are compacted
    log.produce(1, keys=1)
    time.sleep(0.2)
    log.produce(1, keys=1)
    clients.wait_until(
        lambda: len(clients.read_records(log.bootstrap, log.name)) <= 3, what="compaction"
    )
    left = [r.offset for r in clients.read_records(log.bootstrap, log.name)]
    succeed("ingest", *log.options)
    assert log.held() == left
    [(start, end, holes)] = log.covered()
    assert (start, end) == (0, 8)
    assert {reason for _, _, reason in holes} == {"compacted"}
    missing = [offset for first, last, _ in holes for offset in range(first, last + 1)]
    assert sorted(missing + left) == list(range(8))


def test_what_an_open_transaction_hides_is_read_when_it_ends(
    spark: SparkSession, broker: Broker, lakehouse_path: str
) -> None:
    clients.create_topic(broker.bootstrap, "hidden", partitions=1)
    tp = TopicPartition("hidden", 0)
    clients.commit(broker.bootstrap, "open", {tp: 1})
    transaction = clients.Transaction(broker.bootstrap, "open", {tp: 2})
    clients.commit(broker.bootstrap, "open", {tp: 3})
    options = ("--bootstrap-servers", broker.bootstrap, "--lakehouse", lakehouse_path)

    def positions() -> dict[int, int]:
        rows = table(spark, lakehouse_path, COVERAGE.name).collect()
        return {
            p: max(r.next_offset for r in rows if r.record_partition == p)
            for p in {r.record_partition for r in rows}
        }

    def ends(isolation: str) -> dict[int, int]:
        found = clients.end_offsets(broker.bootstrap, isolation=isolation)
        return {p: end for p, end in found.items() if end > 0}

    try:
        succeed("ingest", *options)
        assert positions() == ends(clients.READ_COMMITTED)
        assert sum(ends(clients.READ_UNCOMMITTED).values()) - sum(positions().values()) >= 2
        rows = table(spark, lakehouse_path, COVERAGE.name).collect()
        behind = {r.record_partition for r in rows if r.last_offset_available >= r.next_offset}
        partitions = len(clients.end_offsets(broker.bootstrap, isolation=clients.READ_COMMITTED))
        assert behind == {partition_for("open", partitions)}
        assert {r.partitions for r in rows} == {partitions}
    finally:
        transaction.abort()
    clients.wait_until(
        lambda: ends(clients.READ_COMMITTED) == ends(clients.READ_UNCOMMITTED), what="the abort"
    )
    succeed("ingest", *options)
    assert positions() == ends(clients.READ_COMMITTED)
    theirs = [
        (r.partition, r.offset)
        for r in clients.read_records(broker.bootstrap, isolation=clients.READ_COMMITTED)
    ]
    ours = table(spark, lakehouse_path, RECORDS.name).collect()
    assert sorted((r.record_partition, r.record_offset) for r in ours) == theirs


class TestAnotherLog:
    """A topic recreated, or cut at its end, is never taken for the old one, and is refused."""

    def test_by_its_id(self, spark: SparkSession, log: Log) -> None:
        log.create()
        log.produce(5)
        succeed("ingest", *log.options)
        clients.delete_topic(log.bootstrap, log.name)
        log.create()
        log.produce(9, text="other")
        before = everything(spark, log.root)
        for job, *options in (("ingest",), ("pipeline", "--dry-run"), ("pipeline",)):
            outcome = run(job, *log.options, *options)
            assert outcome.status == 1
            assert outcome.complaint.endswith(
                f"topic {log.name} was recreated since the last run; keep it under a name of its "
                "own: --cluster default.2"
            )
        assert everything(spark, log.root) == before
        own = (*log.options, "--cluster", "default.2")
        assert succeed("ingest", *own)["records_ingested"] == 9
        assert (log.held(), log.held("default.2")) == ([0, 1, 2, 3, 4], list(range(9)))
        # What is free goes on behind the names that are there; what was read stays readable.
        assert run("ingest", *log.options).complaint.endswith("--cluster default.3")
        assert succeed("decode", "--lakehouse", log.root)["records_read"] == 5

    def test_by_its_records(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        """A log that lost its end and grew again keeps its id, as here one that is not noted.

        Nothing is left of what the first run knew, so that the address may as well be wrong: it was
        killed, and the log of the table was cleaned up, which had its ranges.
        """
        log.create()
        log.produce(5)
        with monkeypatch.context() as patch:
            patch.setattr(ingest_job, "account", killed)
            assert run("ingest", *log.options).status == INTERRUPTED
        clients.delete_topic(log.bootstrap, log.name)
        log.create()
        log.produce(9, text="other")
        monkeypatch.setattr(Lakehouse, "notes", lambda *_: [])
        outcome = run("ingest", *log.options)
        assert outcome.status == 1
        assert "at offset 4 has other bytes" in outcome.complaint
        assert "; check --bootstrap-servers, or keep it under a name" in outcome.complaint
        assert log.held() == [0, 1, 2, 3, 4]

    def test_what_a_transaction_hides_is_not_lost(
        self, broker: Broker, lakehouse_path: str
    ) -> None:
        """To a reader of committed records alone, the log ends before what others read."""
        clients.create_topic(broker.bootstrap, "half-hidden", partitions=1)
        tp = TopicPartition("half-hidden", 0)
        options = ("--bootstrap-servers", broker.bootstrap, "--lakehouse", lakehouse_path)
        transaction = clients.Transaction(broker.bootstrap, "half-hidden", {tp: 2})
        try:
            succeed("ingest", *options, "--isolation-level", "read_uncommitted")
            succeed("ingest", *options)
        finally:
            transaction.abort()

    @pytest.mark.timeout(300)
    def test_by_its_end(
        self, spark: SparkSession, broker: Broker, mortal: Broker, lakehouse_path: str
    ) -> None:
        other = Log(spark, broker, "cut", lakehouse_path)
        other.create()
        own = mortal.start()
        log = Log(spark, own, "cut", lakehouse_path)
        log.create()
        log.produce(4)
        log.produce(3)
        succeed("ingest", *log.options)
        own.kill()
        own.cut(log.name, partition=0, end=4)
        own.start()
        clients.wait_until(lambda: clients.end_offsets(log.bootstrap, log.name) == {0: 4})
        outcome = run("ingest", *log.options)
        assert outcome.status == 1
        assert (
            "cut-0 ends at offset 4, before 7, up to which it was read: the log lost its end "
            "(unclean leader election?); keep it under" in outcome.complaint
        )
        # The same topic of another Kafka cluster is most likely a wrong address.
        refused = run("ingest", *other.options)
        assert refused.status == 1
        assert f"{other.bootstrap} is Kafka cluster " in refused.complaint
        assert "check --bootstrap-servers, or keep it under a name" in refused.complaint
        assert (log.held(), log.covered()) == (list(range(7)), [(0, 7, [])])


@pytest.mark.timeout(300)
def test_a_broker_that_dies_ends_the_run_with_one_line(
    spark: SparkSession,
    mortal: Broker,
    tmp_path: Path,
    lakehouse_path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = mortal.start()
    log = Log(spark, broker, "mortal", lakehouse_path)
    log.create()
    log.produce(5)
    succeed("ingest", *log.options)
    log.produce(5)
    planned, write = kafka_source._planned_once, ingest_job._write

    def killed_before_planning(*arguments: object) -> object:
        broker.kill()
        return planned(*arguments)  # type: ignore[arg-type]

    def killed_before_reading(*arguments: object) -> object:
        broker.kill()
        return write(*arguments)  # type: ignore[arg-type]

    for module, name, killed, line in (
        (
            kafka_source,
            "_planned_once",
            killed_before_planning,
            "the brokers stopped answering",
        ),
        (ingest_job, "_write", killed_before_reading, "a broker stopped answering"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(kafka_source, "_PLANNING_TIMEOUT_S", 3.0)
            patch.setattr(kafka_source, "_POLL_TIMEOUT_MS", 3_000)
            patch.setitem(kafka_source._TIMEOUTS, "default.api.timeout.ms", "3000")
            patch.setitem(kafka_source._TIMEOUTS, "request.timeout.ms", "2000")
            patch.setattr(module, name, killed)
            started = time.monotonic()
            outcome = run("ingest", *log.options)
        assert outcome.status == 1
        assert line in outcome.complaint
        assert "run again" in outcome.complaint
        assert time.monotonic() - started < 60
        assert log.held() == [0, 1, 2, 3, 4]
        broker.start()
        clients.wait_until(lambda: clients.end_offsets(log.bootstrap, log.name)[0] == 10)
    assert succeed("ingest", *log.options)["records_ingested"] == 5
    assert log.held() == list(range(10))
    assert log.covered() == [(0, 5, []), (5, 10, [])]

    def killed_before_lag(work: Run) -> None:
        broker.kill()
        lag(work)

    clients.commit(log.bootstrap, "orders", {TopicPartition(log.name, 0): 3})
    root = tmp_path / "groups"
    with monkeypatch.context() as patch:
        patch.setitem(log_offsets._TIMEOUTS, "bootstrap_timeout_ms", 3_000)
        patch.setitem(log_offsets._TIMEOUTS, "request_timeout_ms", 2_000)
        patch.setattr(pipeline_job, "lag", killed_before_lag)
        source = ("--bootstrap-servers", log.bootstrap)
        outcome = run("pipeline", *source, "--lakehouse", root)
    assert outcome.status == 1
    # What is wrong is known from what was read.
    assert outcome.complaint.startswith(
        f"groupledger: lag was left out, all else was done. {log.bootstrap}"
    )
    done = table(spark, str(root), RUNS.name).where("state = 'done'").select("stage")
    stages = {row.stage for row in done.collect()}
    assert {"ingest", "anomalies", "validate"} <= stages
    assert "lag" not in stages
    assert (root / "report.html").is_file()
