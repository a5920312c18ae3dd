"""The lag job against a real broker: what it says is what the admin client says."""

from __future__ import annotations

import datetime as dt
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaProducer, TopicPartition
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from jobs import pipeline as pipeline_job
from jobs.lag import lag
from jobs.runtime.run import Run
from schemas.ledger import LedgerRow, RunId
from schemas.tables import COMMITTED_OFFSETS, COVERAGE, LAG, LOG_OFFSETS
from sources import kafka, log_offsets
from storage.lakehouse import Lakehouse
from tests.support import clients
from tests.support.broker import Broker
from tests.support.jobs import contents, run, succeed, table

OFFSETS = "__consumer_offsets"
NOW = dt.datetime.now(dt.timezone.utc)
# The broker has no such partition, so that nothing tells how much of it is known.
NO_PARTITION = 99
TO_LAG = ("--only", "ingest,decode,history,lag")


def known(spark: SparkSession, root: Path, commits: list[tuple[str, str, int, int]]) -> str:
    """Write what history has of commits (group, topic, partition, offset), a second apart."""
    recent: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for i, (group, topic, partition, offset) in enumerate(commits):
        at = NOW - dt.timedelta(seconds=len(commits) - i)
        recent[group, topic, partition].append({"committed_offset": offset, "committed_at": at})
    rows = [
        {
            **dict(zip(("group_id", "topic", "topic_partition"), of, strict=True)),
            **of_partition[-1],
            "record_partition": NO_PARTITION,
            "record_offset": number,
            "is_deleted": False,
            "recent_commits": of_partition[-10:],
        }
        for number, (of, of_partition) in enumerate(recent.items())
    ]
    lakehouse, run_id = Lakehouse(spark, str(root / "lakehouse"), "default"), RunId("history", 0)
    lakehouse.append(COMMITTED_OFFSETS, rows, run_id)
    lakehouse.runs.note(LedgerRow(*run_id, details={"positions": {NO_PARTITION: len(commits)}}))
    return lakehouse.root


def newest(spark: SparkSession, root: str) -> dict[tuple[str, TopicPartition], Row]:
    """Return the rows of the newest run by group and partition."""
    rows = table(spark, root, LAG.name).collect()
    last = max(r.lag_run for r in rows)
    return {
        (r.group_id, TopicPartition(r.topic, r.topic_partition)): r
        for r in rows
        if r.lag_run == last
    }


@pytest.fixture(scope="module")
def topics(broker: Broker) -> None:
    """Topics with records, without, with those of an open transaction, and with a cut-off start."""
    for topic in ("lag-plain", "lag-gone", "lag-cut"):
        clients.create_topic(broker.bootstrap, topic, partitions=2)
        for partition in range(2):
            clients.produce(broker.bootstrap, topic, 20, partition=partition)
    clients.delete_records(broker.bootstrap, "lag-cut", {0: 15})
    clients.create_topic(broker.bootstrap, "lag-empty")
    clients.create_topic(broker.bootstrap, "lag-tx")
    clients.create_topic(broker.bootstrap, "lag-busy")
    clients.produce(broker.bootstrap, "lag-busy", 20)


PLAIN, CUT = ([TopicPartition(t, p) for p in range(2)] for t in ("lag-plain", "lag-cut"))
EMPTY, TX, GONE, BUSY, HELD = (
    TopicPartition(t, 0) for t in ("lag-empty", "lag-tx", "lag-gone", "lag-busy", "lag-held")
)
# A group with a transaction that no group of these tests waits for: none is in its partition.
HOLDER = "lag-hidden"


@pytest.fixture(scope="module")
def open_transaction(broker: Broker, topics: None) -> Iterator[None]:  # noqa: ARG001
    """Groups that committed in several ways; and a producer within a transaction."""
    address = broker.bootstrap
    for offset in (3, 5):
        clients.commit(address, "lag-a", {PLAIN[0]: offset, PLAIN[1]: 20, GONE: 4})
    clients.commit(address, "lag-b", {PLAIN[0]: 20, EMPTY: 0, CUT[0]: 2, CUT[1]: 20})
    clients.commit(address, "lag-busy", {BUSY: 20})
    clients.Transaction(address, "lag-c", {TX: 1, PLAIN[0]: 7}).commit()
    clients.Transaction(address, "lag-c", {PLAIN[0]: 9}).abort()
    producer = KafkaProducer(
        bootstrap_servers=address,
        transactional_id="lag-records",
        transaction_timeout_ms=3_600_000,
    )
    with closing(producer):
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction, None):
            producer.begin_transaction()
            for _ in range(4):
                producer.send(TX.topic, b"x").get(timeout=30)
            if end:
                end()
        yield
        producer.abort_transaction()


class First(NamedTuple):
    """A first run, into a lakehouse that is not to be written to."""

    root: str  # the lakehouse
    summary: dict[str, Any]  # that of the run
    # How far groups were behind then, by the admin client.
    expected: dict[tuple[str, TopicPartition], int]


@pytest.fixture(scope="module")
def first(
    spark: SparkSession,  # noqa: ARG001
    broker: Broker,
    open_transaction: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> First:
    root = str(tmp_path_factory.mktemp("first") / "lakehouse")
    source = ("--bootstrap-servers", broker.bootstrap, "--lakehouse", root)
    before = clients.end_offsets(broker.bootstrap, OFFSETS)
    summary = succeed("pipeline", *source, *TO_LAG)
    assert clients.end_offsets(broker.bootstrap, OFFSETS) == before
    expected = {
        (group, tp): clients.end_offsets(broker.bootstrap, tp.topic)[tp.partition]
        - committed.offset
        for group in ("lag-a", "lag-b", "lag-c", "lag-busy")
        for tp, committed in clients.list_group_offsets(broker.bootstrap, group).items()
    }
    return First(root, summary, expected)


def test_lag_is_what_the_admin_client_says(
    spark: SparkSession, broker: Broker, first: First
) -> None:
    expected, summary = first.expected, first.summary
    every = newest(spark, first.root)
    rows = {key: r for key, r in every.items() if key in expected}
    assert {key: r.lag for key, r in rows.items()} == expected
    assert not [key for key in every if key[0].startswith("lag-") and key not in expected]

    # Three times four records, two markers; the records of the open transaction count.
    assert expected["lag-c", TX] == 14 - 1
    assert clients.end_offsets(broker.bootstrap, TX.topic, clients.READ_COMMITTED) == {0: 10}
    assert expected["lag-c", PLAIN[0]] == 13  # by the commit that was not aborted
    assert rows["lag-b", EMPTY].lag_seconds == 0
    assert (rows["lag-b", CUT[0]].log_start_offset, rows["lag-b", CUT[0]].phantom_lag) == (15, 13)
    assert rows["lag-b", PLAIN[0]].status == "OK"
    # The offsets topic holds nothing that was not ingested.
    assert {r.commits_known_until for r in rows.values()} == {r.sampled_at for r in rows.values()}
    assert {r.lag_is_bound for r in rows.values()} == {False}
    assert summary["lag_partitions"] == len(every)
    assert summary["total_lag"] == sum(r.lag or 0 for r in every.values())
    assert summary["lag_by_status"] == Counter(r.status or "no log" for r in every.values())


def test_the_log_is_known_until_a_time_before_its_ends_were_asked(
    spark: SparkSession, broker: Broker, lakehouse_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dt.datetime] = []
    describe = kafka.describe

    def noted(*arguments: Any) -> kafka.Topic:  # noqa: ANN401
        asked.append(dt.datetime.now(dt.timezone.utc))
        return describe(*arguments)

    monkeypatch.setattr(kafka, "describe", noted)
    clients.create_topic(broker.bootstrap, "lag-known")
    clients.commit(broker.bootstrap, "lag-known", {TopicPartition("lag-known", 0): 0})
    succeed("ingest", "--bootstrap-servers", broker.bootstrap, "--lakehouse", lakehouse_path)
    coverage = table(spark, lakehouse_path, COVERAGE.name)
    assert coverage.where(F.col("observed_at") > asked[0]).isEmpty()
    assert not coverage.isEmpty()


class Later(NamedTuple):
    """Runs behind the first one, and what each has said by group and partition."""

    before: dict[tuple[str, TopicPartition], Row]  # the rows of the first run
    grown: dict[tuple[str, TopicPartition], Row]  # those of a run behind records that came
    gone: dict[tuple[str, TopicPartition], Row]  # those of a run behind the end of a topic
    samples: dict[str, list[Any]]  # by topic, the samples of its first partition then
    # Those of a run in which records came, and before which a transaction began.
    last: dict[tuple[str, TopicPartition], Row]
    last_samples: dict[str, list[Any]]  # as above


@pytest.fixture(scope="module")
def later(
    spark: SparkSession, broker: Broker, first: First, tmp_path_factory: pytest.TempPathFactory
) -> Later:
    root = str(shutil.copytree(first.root, tmp_path_factory.mktemp("later") / "lakehouse"))
    source = ("--bootstrap-servers", broker.bootstrap, "--lakehouse", root)

    def sampled() -> dict[str, list[Any]]:
        rows = table(spark, root, LOG_OFFSETS.name).orderBy(F.desc("topic_partition")).collect()
        return {r.topic: r.end_samples for r in rows}

    before = newest(spark, root)
    clients.produce(broker.bootstrap, "lag-plain", 10, partition=1)
    succeed("lag", *source)
    grown = newest(spark, root)
    clients.delete_topic(broker.bootstrap, "lag-gone")
    succeed("lag", *source)
    gone, samples = newest(spark, root), sampled()

    def lag_behind_records(work: Run) -> None:
        clients.produce(broker.bootstrap, "lag-busy", 1_000)
        clients.commit(broker.bootstrap, "lag-busy", {BUSY: 1_020})
        lag(work)

    clients.commit(broker.bootstrap, "lag-busy", {BUSY: 20})
    clients.create_topic(broker.bootstrap, HELD.topic)
    clients.produce(broker.bootstrap, HELD.topic, 20)
    clients.commit(broker.bootstrap, HOLDER, {HELD: 1})
    transaction = clients.Transaction(broker.bootstrap, HOLDER, {HELD: 2}, timeout_ms=600_000)
    try:
        clients.commit(broker.bootstrap, HOLDER, {HELD: 3})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline_job, "lag", lag_behind_records)
            succeed("pipeline", *source, *TO_LAG)
    finally:
        transaction.abort()
    return Later(before, grown, gone, samples, newest(spark, root), sampled())


def test_a_later_run_knows_since_when_and_what_is_gone(later: Later) -> None:
    before = later.before["lag-a", PLAIN[1]]
    row = later.grown["lag-a", PLAIN[1]]
    assert (row.lag, row.lag_run) == (10, before.lag_run + 1)
    between = (row.sampled_at - before.sampled_at).total_seconds()
    # The log went beyond the offset some time after the first sample.
    assert row.lag_seconds == row.lag_seconds_max == between
    assert row.lag_seconds_min == 0
    older = later.grown["lag-a", PLAIN[0]]
    assert older.lag_seconds == older.lag_seconds_min == between
    assert older.lag_seconds_max is None

    gone = later.gone["lag-a", GONE]
    assert (gone.lag, gone.log_end_offset, gone.lag_seconds, gone.status) == (None,) * 4
    assert gone.status_reason == "the cluster has no such topic or partition"
    assert GONE.topic not in later.samples
    assert len(later.samples["lag-plain"]) == 3

    # Kafka deletes the offsets of a topic that is deleted: when that is ingested, the row is gone.
    assert gone.commits_known_until < gone.sampled_at
    assert not [tp for _, tp in later.last if tp == GONE]


def test_what_is_produced_while_a_run_works_is_no_lag(later: Later) -> None:
    row = later.last["lag-busy", BUSY]
    *_, before, now = later.last_samples[BUSY.topic]
    assert (row.committed_offset, row.log_end_offset) == (20, 1_020)
    assert before.sampled_at < row.commits_known_until < now.sampled_at
    share = (row.commits_known_until - before.sampled_at) / (now.sampled_at - before.sampled_at)
    assert abs(row.lag - 1_000 * share) <= 1
    assert row.lag < 1_000
    assert (row.lag_min, row.lag_max) == (0, 1_000)


def test_commits_behind_an_open_transaction_are_not_known(later: Later) -> None:
    row = later.last[HOLDER, HELD]
    assert row.committed_offset == 1
    assert row.commits_known_until == row.committed_at
    # No end is known of a time before that of the sample.
    assert (row.lag, row.lag_min, row.lag_is_bound) == (19, 0, True)


@pytest.mark.usefixtures("topics")
def test_groups_are_judged_by_their_last_commits(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    at_work = [("slow", "lag-plain", 0, n // 2) for n in range(12)]
    stuck = [("stuck", "lag-plain", 0, 4) for _ in range(12)]
    back = [("back", "lag-plain", 0, 9 - n // 4) for n in range(12)]
    together = [c for step in zip(at_work, stuck, back, strict=True) for c in step]
    done = [("dead", "lag-plain", 0, 1), ("dead", "lag-plain", 0, 2)]
    root = known(spark, tmp_path, [*done, *together])
    source = ("--bootstrap-servers", broker.bootstrap, "--lakehouse", root)
    outcome = run("lag", *source)
    assert outcome.status == 0, outcome.err
    rows = {group: r for (group, _), r in newest(spark, root).items()}
    assert {group: (r.status, r.group_status) for group, r in rows.items()} == {
        "slow": ("OK", "OK"),  # no sample tells of its lag before
        "stuck": ("STALL", "ERR"),
        "back": ("REWIND", "ERR"),
        "dead": ("STOP", "ERR"),
    }
    assert {r.window_commits for r in rows.values()} == {2, 10}
    assert outcome.summary["lag_by_status"] == {"OK": 1, "REWIND": 1, "STALL": 1, "STOP": 1}
    assert "4 partitions: 1 OK, 1 REWIND, 1 STALL, 1 STOP; groups with status ERR: " in outcome.out
    assert re.search(r"Lag of 4 groups: at most \d+, most dead: at most \d+\n", outcome.out)
    assert "; of 4 nothing but a bound is known yet: no earlier sample" in outcome.out
    assert outcome.summary["lag_bounds"] == 4


def test_many_groups_take_few_requests(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 groups of 50 partitions, of 4 topics: each log is asked for once, all in one batch."""
    for topic in range(4):
        clients.create_topic(broker.bootstrap, f"lag-many-{topic}", partitions=50)
    clients.produce(broker.bootstrap, "lag-many-1", 9, partition=7)
    commits = [(f"g{g}", f"lag-many-{g % 4}", p, 0) for g in range(200) for p in range(50)]
    root = known(spark, tmp_path, commits)
    asked: Counter[str] = Counter()
    send = log_offsets._Connections.send  # other clients of this process send, too

    def counted(self: log_offsets._Connections, request: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        asked[type(request).__name__] += 1
        return send(self, request, *args, **options)

    monkeypatch.setattr(log_offsets._Connections, "send", counted)
    source = ("--bootstrap-servers", broker.bootstrap, "--lakehouse", root)
    summary = succeed("lag", *source)
    assert asked.pop("ListOffsetsRequest") == 2  # starts, ends: one each for the one broker
    assert asked.pop("MetadataRequest") <= 4
    assert not asked
    assert (summary["lag_groups"], summary["lag_partitions"]) == (200, 10_000)
    assert summary["total_lag"] == 50 * 9
    assert table(spark, root, LAG.name).count() == 10_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, topics: None) -> str:  # noqa: ARG001
    """A lakehouse with a group that has committed offsets of two topics."""
    commits = [("g", "lag-plain", 0, 1), ("g", "lag-empty", 0, 0)]
    return known(spark, tmp_path_factory.mktemp("known"), commits)


class TestErrors:
    """One clear line, exit status 1, nothing written."""

    def refused(self, spark: SparkSession, root: str, *options: object) -> str:
        before = contents(spark, root)
        outcome = run("lag", "--lakehouse", root, *options)
        assert outcome.status == 1
        assert contents(spark, root) == before
        assert "canary" not in outcome.out + outcome.err
        assert len(outcome.err.strip().splitlines()) == 1
        return outcome.complaint

    def properties(self, path: Path, **properties: str) -> Path:
        path.write_text("".join(f"{k.replace('_', '.')}={v}\n" for k, v in properties.items()))
        return path

    @pytest.mark.parametrize(
        "address",
        ["127.0.0.1:9", pytest.param("no-such-host.invalid:9092", marks=pytest.mark.slow)],
    )
    def test_no_broker(
        self, spark: SparkSession, root: str, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert log_offsets._TIMEOUTS["bootstrap_timeout_ms"] == 20_000
        monkeypatch.setitem(log_offsets._TIMEOUTS, "bootstrap_timeout_ms", 1_000)
        line = self.refused(spark, root, "--bootstrap-servers", address)
        assert f"{address}: no broker answered" in line

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
    def test_wrong_password(
        self, spark: SparkSession, broker: Broker, root: str, tmp_path: Path, mechanism: str
    ) -> None:
        properties = broker.sasl_properties(mechanism, password="wrong-canary")  # noqa: S106
        config = self.properties(tmp_path / "c", **properties)
        server = ("--bootstrap-servers", broker.sasl_bootstrap)
        line = self.refused(spark, root, *server, "--kafka-config", config)
        assert "the brokers refused the credentials" in line

    def test_missing_acl(
        self, spark: SparkSession, broker: Broker, root: str, tmp_path: Path
    ) -> None:
        """The user may read the offsets topic, and describe none of the groups' topics."""
        config = self.properties(tmp_path / "c", **broker.sasl_properties())
        server = ("--bootstrap-servers", broker.sasl_bootstrap)
        line = self.refused(spark, root, *server, "--kafka-config", config)
        assert (
            "not authorized: the user needs the ACL DESCRIBE on topics, for instance on lag-"
            in line
        )

    def test_what_kafka_python_cannot_do(
        self, spark: SparkSession, broker: Broker, root: str, tmp_path: Path
    ) -> None:
        settings = {"security_protocol": "SSL", "ssl_truststore_location": "x.jks"}
        config = self.properties(tmp_path / "c", **settings)
        server = ("--bootstrap-servers", broker.ssl_bootstrap)
        line = self.refused(spark, root, *server, "--kafka-config", config)
        assert "lag cannot read a truststore of type JKS" in line

    def test_nothing_trusts_the_broker(
        self, spark: SparkSession, broker: Broker, root: str, tmp_path: Path
    ) -> None:
        config = self.properties(tmp_path / "c", security_protocol="SSL")
        server = ("--bootstrap-servers", broker.ssl_bootstrap)
        line = self.refused(spark, root, *server, "--kafka-config", config)
        assert "the TLS handshake failed" in line


@pytest.mark.parametrize("way", ["SCRAM-SHA-256", "PLAIN", "TLS"])
def test_logged_in_by_java_properties(
    spark: SparkSession, broker: Broker, root: str, tmp_path: Path, way: str
) -> None:
    """As a user who may describe one of the two topics: the other one's row says why it is null."""
    user = broker.credentials
    assert user is not None
    tls = way == "TLS"
    properties = broker.ssl_properties() if tls else broker.sasl_properties(way)
    if not tls:
        clients.allow(broker.bootstrap, user.username, describe_topic="lag-empty")
    config = tmp_path / "c"
    config.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
    server = broker.ssl_bootstrap if tls else broker.sasl_bootstrap
    outcome = run(
        *("lag", "--bootstrap-servers", server, "--kafka-config", config, "--lakehouse", root)
    )
    assert outcome.status == 0, outcome.err
    assert user.password not in outcome.out + outcome.err
    rows = {tp.topic: r for (_, tp), r in newest(spark, root).items()}
    assert rows["lag-empty"].lag == 0
    if tls:
        assert rows["lag-plain"].lag > 0
    else:
        assert rows["lag-plain"].lag is None
        assert rows["lag-plain"].status_reason == "the user may not describe the topic"
        assert "1 of 2 topics have no lag" in outcome.err


@pytest.mark.usefixtures("spark")
def test_without_a_cluster_it_says_so(tmp_path: Path) -> None:
    outcome = run("lag", "--lakehouse", tmp_path / "lakehouse")
    assert outcome.status == 0
    assert "there is no cluster to ask" in outcome.err
    assert outcome.summary["lag_partitions"] == 0
    assert not (tmp_path / "lakehouse" / "gold").exists()
