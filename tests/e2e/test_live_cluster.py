"""The pipeline against a real broker: what clients did is what the tables say."""

from __future__ import annotations

import shlex
import shutil
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from schemas.columns import LAST_MS
from schemas.tables import (
    COVERAGE,
    GROUP_GENERATIONS,
    GROUP_STATES,
    MEMBER_SESSIONS,
    RECORDS,
)
from sources import kafka
from tests.conftest import DESCRIBER, GROUPLESS
from tests.support import clients
from tests.support.broker import Broker, Credentials
from tests.support.jobs import contents, is_balanced, run, succeed, table

OFFSETS = "__consumer_offsets"
AWAY_S = 4


def source(broker: Broker, lakehouse_path: str) -> tuple[str, ...]:
    return ("--bootstrap-servers", broker.bootstrap, "--lakehouse", lakehouse_path)


def committed(spark: SparkSession, root: str, group: str) -> dict[TopicPartition, int]:
    """Return the last committed offset of each partition of a group, from silver."""
    rows = (
        table(spark, root, "silver.offset_commits")
        .where(F.col("group_id") == group)
        .groupBy("topic", "topic_partition")
        .agg(F.max_by(F.struct("is_tombstone", "committed_offset"), "record_offset").alias("last"))
        .collect()
    )
    return {
        TopicPartition(r.topic, r.topic_partition): r.last.committed_offset
        for r in rows
        if not r.last.is_tombstone
    }


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    clients.create_topic(broker.bootstrap, "orders", partitions=3)
    for partition in range(3):
        clients.produce(broker.bootstrap, "orders", 20, partition=partition)
    clients.commit(broker.bootstrap, "first", {TopicPartition("orders", 0): 1})
    return "orders"


Records = dict[tuple[int, int], tuple[bytes | None, bytes | None]]


def records_of(broker: Broker) -> Records:
    """Return what a consumer reads of the topic, by partition and offset."""
    found = clients.read_records(broker.bootstrap, isolation=clients.READ_COMMITTED)
    return {(r.partition, r.offset): (r.key, r.value) for r in found}


def held(spark: SparkSession, root: str) -> Records:
    """Return what bronze has of it, nothing twice."""
    rows = table(spark, root, RECORDS.name).collect()
    found = {
        (r.record_partition, r.record_offset): (
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
        )
        for r in rows
    }
    assert len(found) == len(rows)
    return found


class Read(NamedTuple):
    """What runs have read of a cluster, and told, into a lakehouse that is not to be written to."""

    root: str  # the lakehouse
    summary: dict[str, Any]  # that of what has read it
    generation: int
    member_ids: set[str | None]  # the members of a group that was there, of `generation`
    described: dict[str, Any]  # what the admin client said of that group
    # The offsets that the group had committed, by the admin client.
    listed: dict[TopicPartition, Any]
    # By isolation level, where the partitions of the topic ended before the run and after.
    ends: dict[str, tuple[dict[int, int], dict[int, int]]]
    records: Records  # what a consumer read of the topic then
    # What the admin client said of a group that is there still, and its generation.
    lasting: tuple[dict[str, Any], int]
    times: tuple[str, str]  # between what the groups `BACK` had committed, and behind it


GROUP, LASTING = "payments 💶/eu", "described"
COMMITS = {partition: 10 + partition for partition in range(3)}
BACK = ["back-a", "back, b"]
COMES_BACK, TOPICS = "comes-back", ("kept", "comes-and-goes")
GONE = {TopicPartition(TOPICS[1], 0), TopicPartition(TOPICS[1], 1)}


@pytest.fixture(scope="module")
def read(
    spark: SparkSession,  # noqa: ARG001
    broker: Broker,
    topic: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Read:
    """Let groups do what the tests are about; then read it all once."""
    at, root = broker.bootstrap, str(tmp_path_factory.mktemp("read") / "lakehouse")
    first_partition = TopicPartition(topic, 0)
    with clients.GroupMember(at, "doomed", [topic]) as member:
        clients.wait_stable(member)
        member.commit({first_partition: 3})
    clients.wait_until(lambda: clients.group_state(at, "doomed") == "Empty", what="group is empty")
    clients.delete_group(at, "doomed")
    clients.Transaction(at, "committed-tx", {first_partition: 11}).commit()
    clients.Transaction(at, "aborted-tx", {first_partition: 12}).abort()
    times = _commit_twice(at, topic)
    _let_a_topic_come_back(at)
    isolations = (clients.READ_COMMITTED, clients.READ_UNCOMMITTED)
    with (
        clients.GroupMember(at, LASTING, [topic]) as lasting,
        clients.GroupMember(at, GROUP, [topic]) as first,
        clients.GroupMember(at, GROUP, [topic]) as second,
    ):
        of_lasting = clients.wait_stable(lasting)
        generation = clients.wait_stable(first, second)
        for member in (first, second):
            own = {p: COMMITS[p.partition] for p in member.assignment}
            member.commit(own, metadata="né")
        before = {each: clients.end_offsets(at, OFFSETS, isolation=each) for each in isolations}
        summary = succeed("silver", *source(broker, root))
        ends = {
            each: (before[each], clients.end_offsets(at, OFFSETS, isolation=each))
            for each in isolations
        }
        described, also = (clients.describe_group(at, group) for group in (GROUP, LASTING))
        listed = clients.list_group_offsets(at, GROUP)
        member_ids = {first.member_id, second.member_id}
        records = records_of(broker)
    succeed("history", "--lakehouse", root)
    of_group = (generation, member_ids, described, listed)
    return Read(root, summary, *of_group, ends, records, (also, of_lasting), times)


def _commit_twice(at: str, topic: str) -> tuple[str, str]:
    """Let groups commit, and some time later again; give a time between, and one behind."""
    parts = [TopicPartition(topic, p) for p in range(3)]
    for group in BACK:
        clients.commit(at, group, {p: 3 + p.partition for p in parts})
    time.sleep(1.1)
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    time.sleep(1.1)
    for group in BACK:
        clients.commit(at, group, dict.fromkeys(parts, 17))
    time.sleep(1.1)
    return then, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _let_a_topic_come_back(at: str) -> None:
    """Delete one of the topics of a group that is there, and create it again."""
    for name in TOPICS:
        clients.create_topic(at, name, partitions=2)
    options: dict[str, Any] = {
        "partition_assignment_strategy": [CooperativeStickyAssignor],
        "metadata_max_age_ms": 1_000,
    }
    with clients.GroupMember(at, COMES_BACK, TOPICS, **options) as member:

        def owns(*, all_of_them: bool) -> bool:
            owned = member.assignment & GONE
            return member.is_stable and (owned == GONE if all_of_them else not owned)

        clients.wait_until(lambda: owns(all_of_them=True), what="all partitions are assigned")
        member.commit(dict.fromkeys(member.assignment, 0))
        clients.delete_topic(at, TOPICS[1])
        clients.wait_until(lambda: owns(all_of_them=False), what="the topic is gone")
        time.sleep(AWAY_S)
        clients.create_topic(at, TOPICS[1], partitions=2)
        clients.wait_until(lambda: owns(all_of_them=True), what="the topic is back")


class Later(NamedTuple):
    """What runs have read that came behind `Read`, and told, into a copy of its lakehouse."""

    root: str  # the copy
    summary: dict[str, Any]  # that of what has read it
    records: Records  # what a consumer read of the topic then


@pytest.fixture(scope="module")
def later(
    broker: Broker, read: Read, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> Later:
    at, root = broker.bootstrap, str(tmp_path_factory.mktemp("later") / "lakehouse")
    shutil.copytree(read.root, root)
    for offset in range(5):
        clients.commit(at, "late", {TopicPartition(topic, 0): offset})
    clients.wait_until(lambda: clients.group_state(at, LASTING) == "Empty")
    clients.delete_group(at, LASTING)
    assert clients.group_state(at, LASTING) == "Dead"
    summary = succeed("silver", *source(broker, root))
    records = records_of(broker)
    succeed("history", "--lakehouse", root)
    return Later(root, summary, records)


def test_what_members_did_is_in_the_tables(spark: SparkSession, read: Read, topic: str) -> None:
    partitions = {TopicPartition(topic, p): offset for p, offset in COMMITS.items()}
    assert committed(spark, read.root, GROUP) == partitions
    assert {p: o.offset for p, o in read.listed.items()} == partitions
    latest = (
        table(spark, read.root, "silver.group_metadata")
        .where(F.col("group_id") == GROUP)
        .orderBy(F.desc("record_offset"))
        .first()
    )
    assert latest is not None
    assert latest.generation == read.generation
    assert {m.member_id for m in latest.members} == read.member_ids
    assert {m["member_id"] for m in read.described["members"]} == read.member_ids
    owned = [
        TopicPartition(part.topic, p)
        for member in latest.members
        for part in member.assignment.partitions
        for p in part.partitions
    ]
    assert sorted(owned) == sorted(partitions)


def test_the_history_says_what_the_admin_client_says(
    spark: SparkSession, read: Read, later: Later
) -> None:
    def reported(root: str) -> list[Row]:
        states = table(spark, root, GROUP_STATES.name)
        rows = states.where(F.col("group_id") == LASTING).orderBy("sequence").collect()
        assert rows[-1].ended_at is None
        return rows

    described, generation = read.lasting
    last = reported(read.root)[-1]
    assert (last.state, last.generation) == (described["group_state"], generation)
    sessions = table(spark, read.root, MEMBER_SESSIONS.name)
    present = sessions.where((F.col("group_id") == LASTING) & F.col("left_at").isNull())
    assert {r.member_id for r in present.collect()} == {
        m["member_id"] for m in described["members"]
    }
    assert [row.state for row in reported(later.root)[-2:]] == ["Empty", "Dead"]


def test_a_topic_that_is_deleted_and_comes_back_is_reported_as_that(
    spark: SparkSession, read: Read
) -> None:
    is_of_group = F.col("group_id") == COMES_BACK
    rows = table(spark, read.root, GROUP_GENERATIONS.name).where(is_of_group)
    reported = [r for r in rows.orderBy("record_offset").collect() if r.member_count]
    commits = table(spark, read.root, "silver.offset_commits").where(
        is_of_group & (F.col("topic") == TOPICS[1]) & F.col("is_tombstone")
    )
    (went,) = commits.agg(
        F.count("*").alias("offsets"), F.max("record_offset").alias("at")
    ).collect()
    assert went.offsets == len(GONE)
    dropped = next(r for r in reported if r.assigned_partitions == len(GONE))
    # The member may look at its topics before the coordinator has deleted their offsets.
    is_earlier = went.at < dropped.record_offset
    assert dropped.cause == ("topic_deleted" if is_earlier else "partitions_changed")
    more = [b for a, b in pairwise(reported) if a.assigned_partitions < b.assigned_partitions]
    assert {row.cause for row in more} == {"partitions_changed"}
    # The client re-joins once more where its metadata change while it joins.
    same = [b for a, b in pairwise(reported) if a.assigned_partitions == b.assigned_partitions]
    assert {row.cause for row in same} <= {"leader_rejoined"}
    assert reported[-1].assigned_partitions == reported[0].assigned_partitions
    # Its only member waited for nobody, though the partitions had no owner for longer.
    assert all(row.join_ms < AWAY_S * 1_000 for row in more)


def test_a_run_adds_exactly_what_came_since_the_last(
    spark: SparkSession, broker: Broker, read: Read, later: Later
) -> None:
    assert read.summary["records_ingested"] == read.summary["decoded"] > 0
    new = table(spark, later.root, "silver.offset_commits").where(F.col("group_id") == "late")
    assert [r.committed_offset for r in new.orderBy("record_offset").collect()] == [0, 1, 2, 3, 4]
    assert held(spark, later.root) == later.records
    more = len(later.records) - len(read.records)
    assert later.summary["records_ingested"] == more >= 5
    before = contents(spark, later.root)
    again = succeed("silver", *source(broker, later.root))
    assert again["records_ingested"] == again["records_read"] == 0
    assert contents(spark, later.root) == before
    assert is_balanced(later.root)


def test_everything_the_cluster_says_is_there_was_read(spark: SparkSession, read: Read) -> None:
    """Spark shows no row of an internal topic, and no error, unless it is configured otherwise."""
    assert held(spark, read.root) == read.records != {}
    covered = table(spark, read.root, COVERAGE.name).collect()
    ends, _ = read.ends[clients.READ_COMMITTED]
    assert {r.record_partition: r.next_offset for r in covered} == {
        p: end for p, end in ends.items() if end > 0
    }
    assert len({r.topic_id for r in covered}) == 1


def test_reading_leaves_no_trace(read: Read) -> None:
    before, after = read.ends[clients.READ_UNCOMMITTED]
    assert after == before


def test_aborted_commits_are_not_read(
    spark: SparkSession, broker: Broker, read: Read, lakehouse_path: str
) -> None:
    succeed(
        "silver", *source(broker, lakehouse_path), "--isolation-level", clients.READ_UNCOMMITTED
    )
    groups = {}
    for isolation, root in (
        (clients.READ_COMMITTED, read.root),
        (clients.READ_UNCOMMITTED, lakehouse_path),
    ):
        rows = table(spark, root, "silver.offset_commits").select("group_id").distinct()
        groups[isolation] = {r.group_id for r in rows.collect()} & {"committed-tx", "aborted-tx"}
    assert groups == {
        "read_committed": {"committed-tx"},
        "read_uncommitted": {"committed-tx", "aborted-tx"},
    }


def test_offsets_of_a_time_are_taken_back_by_the_broker(
    broker: Broker, read: Read, topic: str, tmp_path: Path
) -> None:
    then, since = read.times
    parts = [TopicPartition(topic, p) for p in range(3)]
    file = tmp_path / "back.csv"
    for pattern in (BACK[0], "back.*"):
        outcome = run(
            *("export", "--lakehouse", read.root, "--offsets-at", then),
            *("--group", pattern, "--offsets", file),
        )
        assert outcome.status == 0, outcome.err
        (line,) = (text for text in outcome.out.splitlines() if "--reset-offsets" in text)
        words = shlex.split(line.replace("HOST:PORT", broker.bootstrap))[1:]
        for mode in ("--dry-run", "--execute"):
            broker.ask("consumer.group.ConsumerGroupCommand", *words[:-1], mode)
            first = clients.list_group_offsets(broker.bootstrap, BACK[0])
            expected = 17 if mode == "--dry-run" and pattern == BACK[0] else 3
            assert first[parts[0]].offset == expected
    for group in BACK:
        found = clients.list_group_offsets(broker.bootstrap, group)
        assert {p: o.offset for p, o in found.items()} == {p: 3 + p.partition for p in parts}
    # Nobody uses them: they are deleted by the script, and no other group of the broker.
    script = tmp_path / "clean-up.sh"
    given = ("--unused-since", since, "--group", "back.*", "--script", script)
    outcome = run("export", "--lakehouse", read.root, *given)
    assert outcome.status == 0, outcome.err
    assert outcome.summary["groups"] == len(BACK)
    (line,) = (text for text in script.read_text().splitlines() if "--delete" in text)
    words = shlex.split(line.replace("$BOOTSTRAP_SERVERS", broker.bootstrap))[1:]
    assert words[3::2] == ["--group"] * len(BACK), line
    broker.ask("consumer.group.ConsumerGroupCommand", *words)
    for group in BACK:
        assert not clients.list_group_offsets(broker.bootstrap, group)


def test_a_deleted_group_leaves_tombstones(spark: SparkSession, read: Read) -> None:
    for name in ("silver.offset_commits", "silver.group_metadata"):
        last = (
            table(spark, read.root, name)
            .where(F.col("group_id") == "doomed")
            .orderBy(F.desc("record_offset"))
            .first()
        )
        assert last is not None
        assert last.is_tombstone, name


class TestSecurity:
    """SASL and TLS properties pass through, and no secret shows."""

    def options(
        self, path: Path, address: str, properties: dict[str, str], root: str
    ) -> tuple[str, ...]:
        path.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        return ("--bootstrap-servers", address, "--kafka-config", str(path), "--lakehouse", root)

    @pytest.mark.usefixtures("topic")
    @pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
    def test_sasl(
        self, spark: SparkSession, broker: Broker, tmp_path: Path, mechanism: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        properties = broker.sasl_properties(mechanism)
        assert broker.credentials is not None
        password = broker.credentials.password
        monkeypatch.setenv("LEDGER_PASSWORD", password)
        properties = {
            k: v.replace(password, "${env:LEDGER_PASSWORD}") for k, v in properties.items()
        }
        root = str(tmp_path / "lakehouse")
        outcome = run(
            "ingest", *self.options(tmp_path / "c", broker.sasl_bootstrap, properties, root)
        )
        assert outcome.status == 0, outcome.err
        assert not table(spark, root, RECORDS.name).isEmpty()
        assert password not in outcome.out + outcome.err
        for file in (tmp_path / "lakehouse").rglob("*"):
            assert file.is_dir() or password.encode() not in file.read_bytes()

    @pytest.mark.usefixtures("topic", "spark")
    @pytest.mark.parametrize(
        ("user", "line"),
        [
            (DESCRIBER, "not authorized: the user needs the ACL READ on the topic"),
            (GROUPLESS, "not authorized: Spark's reader needs the ACL DESCRIBE on groups"),
            (Credentials("ledger", "canary-5f1c2a"), "not authorized: the user needs the ACL READ"),
        ],
        ids=["may not read the topic", "may not describe groups", "may not see the topic"],
    )
    def test_missing_acl(
        self, broker: Broker, tmp_path: Path, user: Credentials, line: str
    ) -> None:
        properties = broker.sasl_properties("PLAIN", user=user)
        root = tmp_path / "l"
        options = self.options(tmp_path / "c", broker.sasl_bootstrap, properties, str(root))
        wanted = ("--topic", "orders") if user not in {DESCRIBER, GROUPLESS} else ()
        outcome = run("ingest", *options, *wanted)
        assert outcome.status == 1
        assert line in outcome.complaint
        assert not list(root.glob("bronze/*/cluster=*"))

    @pytest.mark.usefixtures("spark")
    def test_wrong_password(self, broker: Broker, tmp_path: Path) -> None:
        properties = broker.sasl_properties(password="wrong-canary")  # noqa: S106
        options = self.options(
            tmp_path / "c", broker.sasl_bootstrap, properties, str(tmp_path / "l")
        )
        outcome = run("ingest", *options)
        assert outcome.status == 1
        assert "refused the credentials" in outcome.complaint
        assert "wrong-canary" not in outcome.out + outcome.err

    @pytest.mark.usefixtures("spark")
    @pytest.mark.parametrize(
        ("changed", "line"),
        [
            ({"sasl.mechanism": "SCRAM-SHA-512"}, "do not take the sasl.mechanism"),
            ({"security.protocol": "canary"}, "the value of security.protocol in --kafka-config"),
            ({"sasl.mechanisms": "canary"}, "know no property sasl.mechanisms of --kafka-config"),
        ],
        ids=["mechanism", "value", "name"],
    )
    def test_wrong_property(
        self, broker: Broker, tmp_path: Path, changed: dict[str, str], line: str
    ) -> None:
        properties = broker.sasl_properties(password="wrong-canary") | changed  # noqa: S106
        options = self.options(
            tmp_path / "c", broker.sasl_bootstrap, properties, str(tmp_path / "l")
        )
        outcome = run("ingest", *options)
        assert outcome.status == 1
        assert line in outcome.complaint
        assert "canary" not in outcome.out + outcome.err

    def test_kafka_itself_tells_of_no_refusal(self, spark: SparkSession) -> None:
        """It would be a second line, of another form."""
        jvm: Any = spark._jvm
        name = "org.apache.kafka.clients.NetworkClient"
        assert not jvm.org.apache.logging.log4j.LogManager.getLogger(name).isErrorEnabled()

    @pytest.mark.usefixtures("topic")
    def test_tls(self, spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
        root = str(tmp_path / "l")
        options = self.options(tmp_path / "c", broker.ssl_bootstrap, broker.ssl_properties(), root)
        assert succeed("ingest", *options)["records_ingested"] > 0
        assert not table(spark, root, RECORDS.name).isEmpty()

    @pytest.mark.usefixtures("spark")
    def test_untrusted_certificate(self, broker: Broker, tmp_path: Path) -> None:
        properties = {"security.protocol": "SSL"}
        options = self.options(
            tmp_path / "c", broker.ssl_bootstrap, properties, str(tmp_path / "l")
        )
        outcome = run("ingest", *options)
        assert outcome.status == 1
        assert "TLS handshake failed" in outcome.complaint

    @pytest.mark.usefixtures("spark")
    def test_variable_that_is_not_set(self, broker: Broker, tmp_path: Path) -> None:
        properties = {"sasl.jaas.config": "${env:LEDGER_NOT_SET}"}
        options = self.options(tmp_path / "c", broker.bootstrap, properties, str(tmp_path / "l"))
        assert "LEDGER_NOT_SET, which is not set" in run("ingest", *options).complaint


@pytest.mark.usefixtures("spark")
class TestNoCluster:
    def test_no_broker(self, lakehouse_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert kafka._TIMEOUTS["default.api.timeout.ms"] == "20000"
        for name in kafka._TIMEOUTS:
            monkeypatch.setitem(kafka._TIMEOUTS, name, "1000")
        options = ("--bootstrap-servers", "127.0.0.1:9", "--lakehouse", lakehouse_path)
        assert "no broker answered" in run("ingest", *options).complaint

    def test_unknown_host(self, lakehouse_path: str) -> None:
        options = (
            "--bootstrap-servers",
            "no-such-host.invalid:9092",
            "--lakehouse",
            lakehouse_path,
        )
        outcome = run("ingest", *options)
        assert outcome.status == 1
        assert "no-such-host.invalid:9092" in outcome.complaint
        assert "none of the hosts in --bootstrap-servers has an address" in outcome.complaint

    def test_no_such_topic(self, broker: Broker, lakehouse_path: str) -> None:
        outcome = run("ingest", *source(broker, lakehouse_path), "--topic", "nowhere")
        assert outcome.status == 1
        assert "there is no such topic" in outcome.complaint

    def test_empty_topic(self, broker: Broker, lakehouse_path: str) -> None:
        clients.create_topic(broker.bootstrap, "empty-topic", partitions=2)
        options = (*source(broker, lakehouse_path), "--topic", "empty-topic")
        assert succeed("silver", *options)["records_ingested"] == 0


def test_a_time_that_few_tools_know_is_null(
    spark: SparkSession, broker: Broker, lakehouse_path: str
) -> None:
    any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    clients.create_topic(broker.bootstrap, "times", configs=any_time)
    for milliseconds in (LAST_MS, LAST_MS + 1, 2**53):
        clients.produce(broker.bootstrap, "times", 1, timestamp_ms=milliseconds)
    argv = (*source(broker, lakehouse_path), "--topic", "times")
    assert succeed("ingest", *argv)["records_ingested"] == 3
    kept = table(spark, lakehouse_path, RECORDS.name).orderBy("record_offset")
    times = kept.select(F.unix_millis("record_timestamp")).collect()
    assert [row[0] for row in times] == [LAST_MS, None, None]
