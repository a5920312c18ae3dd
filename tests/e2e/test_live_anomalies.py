"""Each kind of anomaly that no recording has, made to happen on a real broker, and its look-alike.

The thresholds are those of seconds rather than hours: a test cannot wait. Members of the new
protocol are among them, whose history is what they say.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from schemas.placement import java_hash
from schemas.tables import ANOMALIES, GROUP_STATES, MEMBER_SESSIONS, PARTITION_OWNERS
from tests.factories import group_metadata, member, offset_commit, subscription
from tests.support import clients
from tests.support.broker import Broker
from tests.support.clients import GroupMember, wait_stable
from tests.support.jobs import succeed, table

THRESHOLDS = """
idle_members = {least_ms = 1000}
orphan_topic = {least_ms = 1000}
assignment_skew = {least_ms = 1000}
mixed_subscriptions = {least_ms = 1000}
slow_rebalance = {sync_ms = 2000}
leader_rejoin_loop = {rejoins_an_hour = 2}
commit_stall = {pause_ms = 4000}
commit_storm = {a_partition_and_minute = 100, least_ms = 0}
no_progress = {least_ms = 1, least_commits = 10}
hot_partition = {least_records = 100, share = 0.4}
stale_group = {idle_ms = 5000}
offsets_expired = {least_idle_ms = 600000}
"""


# A group of the new protocol, and its topic.
NEW, OF_NEW = "new", "of-new-members"


class Found(NamedTuple):
    """What is compared of an anomaly."""

    kind: str
    group: str | None
    subject: str | None


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One of its own: the runs of other tests need not make the tables of new members.

    A run that reads of such members makes a table for each type of their records.
    """
    with Broker(tmp_path_factory.mktemp("broker"), offsets_partitions=4) as running:
        clients.create_offsets_topic(running.bootstrap)
        yield running


class Told(NamedTuple):
    """What a run has told of it all, into a lakehouse."""

    source: tuple[str, ...]  # the options of its runs
    root: str  # the lakehouse
    rows: list[Row]  # the anomalies
    members: dict[str, list[int]]  # the partitions of the new members, as they said then
    reported: tuple[str, dict[str, list[int]]]  # what was told of these


@pytest.fixture(scope="module")
def told(
    spark: SparkSession, broker: Broker, java: str, tmp_path_factory: pytest.TempPathFactory
) -> Told:
    """Let it all happen, and tell it."""
    at = broker.bootstrap
    topics = {"one": 1, "two": 2, OF_NEW: 3, **dict.fromkeys((f"skewed-{n}" for n in range(6)), 1)}
    for topic, partitions in topics.items():
        clients.create_topic(at, topic, partitions=partitions)
    one, other = TopicPartition("two", 0), TopicPartition("two", 1)
    clients.commit(at, "stale", {one: 5})
    _conditions(at)
    _offsets(at, one, other)
    _groups(at)
    _topics(at, java)
    folder = tmp_path_factory.mktemp("anomalies")
    own = folder / "own.toml"
    own.write_text(THRESHOLDS)
    root = str(folder / "lakehouse")
    source = ("--bootstrap-servers", at, "--lakehouse", root)
    with (
        clients.NewProtocolMember(java, at, NEW, OF_NEW) as first,
        clients.NewProtocolMember(java, at, NEW, OF_NEW) as second,
    ):
        both = (first, second)

        def is_settled() -> bool:
            counts = sorted(len(m.partitions) for m in both)
            return counts == [1, 2] and clients.group_state(at, NEW) == "Stable"

        clients.wait_until(is_settled, timeout_s=90, what="both members share the partitions")
        members = {m.member_id: m.partitions for m in both}
        only = ("--only", "ingest,decode,history,lag,anomalies")
        succeed("pipeline", *source, "--thresholds", own, *only)
    rows = table(spark, root, ANOMALIES.name).collect()
    return Told(source, root, rows, members, _reported(spark, root))


def _reported(spark: SparkSession, root: str) -> tuple[str, dict[str, list[int]]]:
    """Give the state of the group of new members, and the partitions of each."""
    is_now = (F.col("group_id") == NEW) & F.col("ended_at").isNull()
    (row,) = table(spark, root, GROUP_STATES.name).where(is_now).collect()
    is_now = (F.col("group_id") == NEW) & F.col("left_at").isNull()
    members = table(spark, root, MEMBER_SESSIONS.name).where(is_now).collect()
    is_now = (F.col("group_id") == NEW) & F.col("valid_to").isNull()
    owned: dict[str, list[int]] = {m.member_id: [] for m in members}
    for owner in table(spark, root, PARTITION_OWNERS.name).where(is_now).collect():
        owned[owner.member_id].append(owner.topic_partition)
    return row.state, {member: sorted(partitions) for member, partitions in owned.items()}


@pytest.fixture(scope="module")
def rows(told: Told) -> list[Row]:
    """Give what was found of it."""
    return told.rows


@pytest.fixture(scope="module")
def found(rows: list[Row]) -> set[Found]:
    """Give what is compared."""
    return {Found(r.kind, r.group_id, r.subject) for r in rows}


def _conditions(at: str) -> None:
    """Members without a partition, with too many, with a topic that is not there."""
    skewed = [f"skewed-{n}" for n in range(6)]
    members = [
        GroupMember(at, "idle", ["one"], client_id="i-1"),
        GroupMember(at, "idle", ["one"], client_id="i-2"),
        GroupMember(at, "orphan", ["one", "not-there"]),
        *(GroupMember(at, "skewed", skewed, client_id=f"s-{n}") for n in range(3)),
        GroupMember(at, "mixed", ["one"], client_id="m-1"),
        GroupMember(at, "mixed", ["two"], client_id="m-2"),
        GroupMember(at, "even", ["two"], client_id="e-1"),
        GroupMember(at, "even", ["two"], client_id="e-2"),
    ]
    for one in members:
        one.join()
    for group in ("idle", "orphan", "skewed", "mixed", "even"):
        wait_stable(*(m for m in members if m.group == group))
    time.sleep(2)
    for one in members:
        one.leave()


def _offsets(at: str, one: TopicPartition, other: TopicPartition) -> None:
    """Commits that go back, ahead, nowhere, too often, or not at all."""
    with (
        GroupMember(at, "steady", ["two"]) as steady,
        GroupMember(at, "stuck", ["two"]) as stuck,
        GroupMember(at, "silent", ["two"]) as silent,
    ):
        wait_stable(steady), wait_stable(stuck), wait_stable(silent)
        for consumer in (steady, silent):
            for offset in (10, 11, 12):
                consumer.commit({one: offset, other: offset})
        silenced = time.monotonic()
        for offset in range(13, 30):
            steady.commit({one: offset, other: offset})
            stuck.commit({one: 3, other: offset})
        steady.commit({one: 60_000})
        steady.commit({one: 30})
        # So many that half of them are a storm, too, where a minute ends among them.
        for offset in range(31, 631):
            steady.commit({one: offset})
        # The clock of the log is that of its records.
        time.sleep(max(0, 5 - (time.monotonic() - silenced)))
        steady.commit({one: 631})
    clients.wait_until(lambda: clients.group_state(at, "steady") == "Empty")
    clients.commit(at, "steady", {one: 100, other: 7})


def _groups(at: str) -> None:
    """Groups recreated, that change their assignor, whose leader re-joins, that wait for one."""
    for _ in range(2):
        with GroupMember(at, "recreated", ["one"]) as again:
            wait_stable(again)
            again.commit({TopicPartition("one", 0): 1})
        clients.wait_until(lambda: clients.group_state(at, "recreated") == "Empty")
        clients.delete_group(at, "recreated")
        with GroupMember(at, "restarted", ["one"]) as again:
            wait_stable(again)
    for assignor in (RangePartitionAssignor, RoundRobinPartitionAssignor):
        strategy = [assignor]
        with GroupMember(at, "changed", ["one"], partition_assignment_strategy=strategy) as changed:
            wait_stable(changed)
        clients.wait_until(lambda: clients.group_state(at, "changed") == "Empty")
    with GroupMember(at, "rejoins", ["one"]) as leader:
        generation = wait_stable(leader)
        for _ in range(3):
            leader.call(lambda consumer: consumer._coordinator.request_rejoin())
            generation = wait_stable(leader, after=generation)
    with GroupMember(at, "slow", ["two"], partition_assignment_strategy=[_Slow]) as slow:
        wait_stable(slow)


def _topics(at: str, java: str) -> None:
    """A topic that is deleted under its groups, and one that a group has moved on from."""
    clients.create_topic(at, "gone", partitions=2)
    gone = [TopicPartition("gone", n) for n in range(2)]
    with GroupMember(at, "left", ["one", "gone"]) as left:
        wait_stable(left)
        left.commit(dict.fromkeys(gone, 1))
    with (
        GroupMember(at, "loses", ["one", "gone"], metadata_max_age_ms=500) as loses,
        clients.NewProtocolMember(java, at, "loses-all", "gone") as loses_all,
        GroupMember(at, "moves-on", ["one", "two"]) as moves_on,
    ):
        clients.wait_until(lambda: loses_all.partitions == [0, 1], what="the new member reads")
        wait_stable(loses)
        loses.commit(dict.fromkeys(gone, 1))
        generation = wait_stable(moves_on)
        moves_on.commit({TopicPartition("one", 0): 1, TopicPartition("two", 0): 1})
        moves_on.call(lambda consumer: consumer.subscribe(["two"]))
        wait_stable(moves_on, after=generation)
        clients.delete_topic(at, "gone")
        clients.wait_until(lambda: not loses_all.partitions, what="the new member reads nothing")
        kept = {TopicPartition("one", 0), TopicPartition("two", 0)}
        clients.wait_until(lambda: not clients.list_group_offsets(at, "loses").keys() - kept)
        time.sleep(2)


class _Slow(RangePartitionAssignor):
    """A leader that takes its time."""

    @classmethod
    def assign(cls, *args: object) -> object:
        time.sleep(3)
        return super().assign(*args)


@pytest.mark.parametrize(
    ("happened", "looks_like_it"),
    [
        (Found("idle_members", "idle", None), "even"),
        (Found("orphan_topic", "orphan", "not-there"), "even"),
        (Found("assignment_skew", "skewed", None), "even"),
        (Found("mixed_subscriptions", "mixed", None), "even"),
        (Found("offset_jump", "steady", None), "stuck"),
        (Found("offset_rewind", "steady", None), "stuck"),
        (Found("offset_reset", "steady", None), "stuck"),
        (Found("no_progress", "stuck", "two/0"), "silent"),
        (Found("commit_storm", "steady", None), "silent"),
        (Found("commit_stall", "silent", None), "steady"),
        (Found("group_recreated", "recreated", None), "restarted"),
        (Found("protocol_change", "changed", None), "restarted"),
        (Found("leader_rejoin_loop", "rejoins", "member"), "restarted"),
        (Found("slow_rebalance", "slow", None), "restarted"),
        (Found("stale_group", "stale", None), "slow"),
    ],
    ids=lambda value: value.kind if isinstance(value, Found) else "",
)
def test_what_happened_is_found_and_what_looks_like_it_is_not(
    found: set[Found], happened: Found, looks_like_it: str
) -> None:
    assert happened in found
    assert looks_like_it not in {f.group for f in found if f.kind == happened.kind}


def test_topics_that_are_gone_or_left_behind(rows: list[Row]) -> None:
    # Those of `mixed` may join a second apart on a slow machine, too.
    orphans = {
        (r.group_id, r.subject): (r.label, r.severity)
        for r in rows
        if r.kind == "orphan_topic" and r.group_id != "mixed"
    }
    assert orphans == {
        ("orphan", "not-there"): (None, "warning"),
        ("loses", "gone"): ("deleted", "warning"),
        ("loses-all", "gone"): ("deleted", "warning"),
        ("moves-on", "one"): ("abandoned", "info"),
    }
    of_gone = ("loses", "loses-all", "left")
    expired = [r for r in rows if r.kind == "offsets_expired" and r.group_id in of_gone]
    # Nobody was there who could have lost something.
    assert [(r.group_id, r.label, r.severity) for r in expired] == [("left", "deleted", "info")]


def test_no_group_of_these_is_a_storm(found: set[Found]) -> None:
    assert not {f for f in found if f.kind in {"rebalance_storm", "member_flapping"}}


def test_a_leader_that_takes_its_time_is_slow_and_not_stuck(found: set[Found]) -> None:
    assert not {f for f in found if f.kind == "stuck_rebalance"}


def test_the_partition_of_the_busiest_group_is_hot(found: set[Found]) -> None:
    hot = {f for f in found if f.kind == "hot_partition"}
    assert hot == {Found("hot_partition", None, str(abs(java_hash("steady")) % 4))}


def test_the_coordinator_puts_groups_where_their_ids_belong(found: set[Found]) -> None:
    assert "misplaced_record" not in {f.kind for f in found}


def test_the_history_of_a_group_of_the_new_protocol_is_what_its_members_say(
    spark: SparkSession, broker: Broker, told: Told
) -> None:
    assert told.reported == ("Stable", told.members)
    clients.wait_until(lambda: clients.group_state(broker.bootstrap, NEW) == "Empty")
    succeed("silver", *told.source)
    succeed("history", "--lakehouse", told.root)
    assert _reported(spark, told.root) == ("Empty", {})


def test_the_log_as_such(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Records where they do not belong, that are lost, and that nobody can read."""
    at, topic = broker.bootstrap, "log"
    clients.create_topic(at, topic, partitions=4)
    _fill(at, topic)
    clients.delete_records(at, topic, {0: 3})
    own = tmp_path / "own.toml"
    own.write_text(
        "cleaner_stalled = {least_records = 50}\n"
        "oversized_record = {bytes = 5000}\n"
        "hot_partition = {least_records = 50}\n"
    )
    root = str(tmp_path / "lakehouse")
    options = ("--bootstrap-servers", at, "--lakehouse", root, "--topic", topic)
    only = ("--only", "ingest,decode,history,anomalies")
    succeed("pipeline", *options, "--thresholds", own, *only)
    rows = table(spark, root, ANOMALIES.name).collect()
    found = {Found(r.kind, r.group_id, r.subject) for r in rows}
    # Two partitions are busy, but neither takes more than half.
    assert "hot_partition" not in {f.kind for f in found}
    # What the log begins behind when it is first read, nobody could have read: no coverage_gap.
    of_log = ("coverage_gap", "undecodable_records", "misplaced_record", "cleaner_stalled")
    assert {f for f in found if f.kind in (*of_log, "oversized_record")} == {
        Found("cleaner_stalled", None, "1"),
        Found("misplaced_record", _group("astray", 0), "2"),
        Found("undecodable_records", None, "3"),
        Found("oversized_record", _group("large", 3), None),
    }


def _group(name: str, partition: int) -> str:
    """Make up a group that belongs into a partition of four."""
    return next(f"{name}-{n}" for n in range(100) if abs(java_hash(f"{name}-{n}")) % 4 == partition)


def _fill(at: str, topic: str) -> None:
    now = round(time.time() * 1000)
    days_ago = now - 3 * 24 * 3_600_000
    producer = KafkaProducer(bootstrap_servers=at)

    def write(partition: int, pair: tuple[bytes | None, bytes | None], when: int = now) -> None:
        key, value = pair
        sent = producer.send(topic, key=key, value=value, partition=partition, timestamp_ms=when)
        sent.get(timeout=30)

    def commit(group: str, offset: int, when: int = now, partition: int = 0) -> tuple[bytes, bytes]:
        key = {"group": group, "partition": partition}
        return offset_commit(key=key, offset=offset, commitTimestamp=when)

    with contextlib.closing(producer):
        for partition in range(4):
            for name in ("a", "b", "c"):
                for offset in range(3):
                    write(partition, commit(_group(name, partition), offset))
        for offset in range(100):
            write(1, commit(_group("a", 1), offset, days_ago), days_ago)
            write(2, commit(_group("a", 2), 0, days_ago, offset), days_ago)
        write(2, commit(_group("astray", 0), 1))
        write(3, (b"\x00\x01\x00", b"\x00"))
        large = member(subscription=subscription(UserData=b"x" * 6_000))
        write(3, group_metadata(large, group=_group("large", 3)))
        write(3, group_metadata(member(), group=_group("small", 3)))
