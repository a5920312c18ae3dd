"""What the fold reads, keeps and gives: records, the state of a group, rows of the gold tables.

Times are epoch milliseconds throughout, None where the log has none. The state is plain data, so
that it can be stored as JSON between two runs.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, TypedDict

import orjson

from schemas import gold
from schemas.columns import Column

Row: TypeAlias = dict[str, Any]

CHECKPOINTS = "group_checkpoints"
STATES = "group_states"
GENERATIONS = "group_generations"
SESSIONS = "member_sessions"
OWNERS = "partition_owners"
TABLES: dict[str, tuple[Column, ...]] = {
    STATES: gold.GROUP_STATES,
    GENERATIONS: gold.GROUP_GENERATIONS,
    SESSIONS: gold.MEMBER_SESSIONS,
    OWNERS: gold.PARTITION_OWNERS,
}
COST = "cost_member_ms", "cost_member_ms_min", "cost_member_ms_max"
"""Columns of what a generation cost."""
IS_SETTLED = "is_settled"
"""The column that a row gets when it is given away."""
_BLANK = {
    table: dict.fromkeys(c.name for c in columns if c.name != IS_SETTLED)
    for table, columns in TABLES.items()
}


class Record(NamedTuple):
    """One decoded record that is not an offset commit."""

    offset: int
    timestamp: int | None
    kind: str  # name of its silver table: ``group_metadata``
    member_id: str | None  # from the key, in the tables that have it there
    payload: Row | None  # that table's columns, as the events have them; None for a tombstone
    # The time of what follows it, if that lies far before its own: its clock was ahead.
    until: int | None = None


class Batch(NamedTuple):
    """Records that the coordinator wrote together."""

    records: list[Record]  # in the order of the log
    # Whether no offset is missing between the group's record before and the first.
    is_complete: bool
    # Whether the offset behind the last is missing, so that there may have been more.
    is_cut: bool = False
    # Whether as many offsets are missing right before the first as tombstones tell of a leave.
    may_lack_a_leave: bool = False
    # Whether it ends a group that had members as far as is known: if it is cut, the rest may have
    # converted the group, and the records of the next batch stand behind it.
    may_convert: bool = False


@dataclass
class Commits:
    """What the offset commits since the last group record tell about time."""

    last: int | None = None  # time of the last commit
    # Of each member whose partitions were committed, when they were last, at how many moments, and
    # the longest pause before one of these since the state began; then the shortest one, without
    # the first and the last, the last one, and the first one.
    by_member: dict[str, list[int]] = field(default_factory=dict)
    # Hashes of the partitions whose offset went though a member owned them.
    deleted: list[int] = field(default_factory=list)


class Output:
    """The rows that became known and never change again, by table."""

    def __init__(self) -> None:
        self.count = 0
        self.closed: dict[str, list[Row]] = {}
        self.take()

    def add(self, table: str, row: Row) -> None:
        """Take a row that is complete."""
        self.closed[table].append(row)
        self.count += 1

    def take(self) -> dict[str, list[Row]]:
        """Return the rows so far, and forget them."""
        taken = self.closed
        self.closed = {table: [] for table in TABLES}
        self.count = 0
        return taken


Tasks: TypeAlias = dict[str, list[int]]
"""Tasks of Connect by connector; -1 stands for the connector itself."""


class Worker(TypedDict):
    """What the record says of a worker of Connect; plain data as all of the state."""

    allocation: Tasks | None  # what it ran when it joined; None if that is not known
    is_unread: bool  # the worker did say what it ran, and that cannot be read
    revoked: Tasks  # what it is to give up
    config_offset: int | None  # how far it had read the config topic
    error: int  # of the assignment; 0 is none
    delay_ms: int  # how long the tasks of lost workers are to wait; 0 if none does


class Streams(TypedDict):
    """What the assignor of Kafka Streams says to a member of the classic protocol."""

    version: int  # of what it says
    standbys: int  # number of tasks that the member only keeps a copy of
    # When the member is to start the next rebalance by its own clock: 0 is at once; None if it is
    # not.
    rejoins_at: int | None


@dataclass(frozen=True)
class Member:
    """A member as the group knows it; one that changes is another object."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    rebalance_timeout_ms: int | None = None
    session_timeout_ms: int | None = None
    # What it subscribes to; None if its subscription cannot be read.
    topics: list[str] | None = None
    # Partitions by topic; None if its assignment cannot be read. The keys are topic ids in groups
    # of the new protocol, and connectors (their tasks as partitions) in Connect.
    assigned: dict[str, list[int]] | None = None
    regex: str | None = None  # the regular expression that it subscribes by, in the new protocols
    worker: Worker | None = None  # what else is known of a worker of Connect
    # What else is known of a member of Kafka Streams, in the classic protocol.
    streams: Streams | None = None
    profile: Row | None = None  # what else a member of a streams group tells of itself
    assignor: str | None = None  # the assignor of the coordinator that it asks for
    # Partitions by topic that it still owned when it joined; not written down. Members that differ
    # in it alone are the same.
    claimed: dict[str, list[int]] | None = field(default=None, compare=False)

    # What follows from these is worked out once: most members go from generation to generation.

    @cached_property
    def identity(self) -> str:
        """What does not change when a static member restarts."""
        if self.group_instance_id is None:
            return self.member_id
        return f"instance {self.group_instance_id}"

    @cached_property
    def partitions(self) -> list[str]:
        """The `partition_key` of each partition that it owns."""
        return partition_keys(self.assigned)

    @cached_property
    def owning(self) -> dict[str, str]:
        """Its identity by the `partition_key` of each partition that it owns."""
        return dict.fromkeys(self.partitions, self.identity)

    @cached_property
    def ownerships(self) -> dict[str, tuple[str, int]]:
        """Topic and number of each partition that it owns, by a key of both and the member."""
        return {
            # An assignor may give a partition to two members: both are listed.
            f"{partition_key(topic, partition)}/{self.member_id}": (topic, partition)
            for topic, partitions in (self.assigned or {}).items()
            for partition in partitions
        }

    @cached_property
    def committing(self) -> dict[int, str]:
        """Its id by the `partition_hash` of each partition that it owns."""
        return dict.fromkeys(map(partition_hash, self.partitions), self.member_id)

    @cached_property
    def assigned_topics(self) -> tuple[str, ...]:
        """The topics of which it owns a partition; some assignors name others, too."""
        return tuple(topic for topic, owned in (self.assigned or {}).items() if owned)

    @cached_property
    def subscription(self) -> tuple[str, ...] | None:
        """What it subscribes to, in order."""
        return None if self.topics is None else tuple(sorted(self.topics))

    def plain(self) -> Row:
        """Return what records say of it, without what follows from that."""
        return {name: getattr(self, name) for name in _OF_MEMBER}


_OF_MEMBER = tuple(f.name for f in fields(Member) if f.compare)


@dataclass
class Epochs:
    """What a group of the new protocol consists of, beside its members."""

    group: int | None = None  # the group epoch
    assignment: int | None = None  # the epoch of the target assignment
    # Epoch of each member's current assignment.
    member: dict[str, int] = field(default_factory=dict)
    # Whether a member's current assignment is in the state STABLE.
    is_stable: dict[str, bool] = field(default_factory=dict)
    # Partitions of each member's target assignment, by topic id or subtopology.
    target: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    topology: int | None = None  # topology epoch of a streams group, and the one that was validated
    validated: int | None = None
    sources: dict[str, list[str]] = field(default_factory=dict)  # source topics of each subtopology
    # Source topics of which it is not known that they have a partition for each task.
    uneven: list[str] = field(default_factory=list)
    # Of these, the largest number of a partition that was committed.
    shown: dict[str, int] = field(default_factory=dict)
    hash: int | None = None  # that of the topics' metadata
    settings: dict[str, str] | None = None  # those of the assignor of a streams group
    # The topics of each regular expression that was resolved.
    regexes: dict[str, list[str]] = field(default_factory=dict)
    # Members of a streams group whose target has tasks that they only keep a copy of.
    copies: list[str] = field(default_factory=list)
    # Members of one that warm up tasks, so that these can move to them.
    warming: list[str] = field(default_factory=list)
    is_initialized: bool = False  # whether partitions of a share group got ready in this epoch
    # What members own that no record has told of.
    owned: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    # Members of the next epoch: who subscribes by an expression that was not resolved yet, or came
    # with an epoch that is missing; what they were before, None if none.
    unresolved: dict[str, Row | None] = field(default_factory=dict)


@dataclass
class Gap:
    """What is known of records that are missing, and of what follows from them."""

    # Members that no record has named since records went missing, while the group's epoch moved on:
    # whether they are still there is not known.
    absent: dict[str, Member] = field(default_factory=dict)
    absent_since: int | None = None  # when that was known first
    # The group's epoch when records went missing; None if all are known to be of that epoch, or the
    # group has moved on.
    epoch: int | None = None
    at: int | None = None  # time of the last record before these
    unnamed: list[str] = field(default_factory=list)  # members that no record has named since then
    # Offset and time of the last record after which the state is not told, or is told as before,
    # since records that it follows from may be missing; and its earliest time.
    untold: list[int | None] | None = None
    # The same of the first such record behind which no member is known, if nothing was assigned for
    # the epoch.
    emptied: list[int | None] | None = None
    # The same, and the epoch, of the record with which the last known member left: nothing tells
    # whether others were there, or the group was Empty.
    vacant: list[int | None] | None = None
    is_partial: bool = False  # whether records that the state follows from may be missing
    is_gapped: bool = False  # whether records are missing since the open generation began
    has_doubts: bool = False  # whether an open ownership is not known beyond some time
    # Members that are gone, where the epoch which that began is missing.
    left: dict[str, Row] = field(default_factory=dict)
    is_over: bool = False  # whether the open generation is over, and the next one missing


@dataclass
class GroupState:
    """All that the fold has to know of a group to go on."""

    group_id: str
    partition: int
    # Classic, consumer, share or streams; None while there is no group.
    group_type: str | None = None
    clock: int | None = None  # latest time seen; the timeline never runs back behind it
    record_offset: int | None = None  # offset of the last group record; None before the first
    sequence: int = 0
    interval: Row | None = None  # the open row of the timeline
    generation: Row | None = None  # the open row of the generations
    members: dict[str, Member] = field(default_factory=dict)
    epochs: Epochs = field(default_factory=Epochs)
    sessions: dict[str, Row] = field(default_factory=dict)  # the open row of each member
    # The open rows of partition owners, by `Member.ownerships`.
    owners: dict[str, Row] = field(default_factory=dict)
    # Who owned a partition that nobody owns now, by `partition_key`.
    last_owners: dict[str, str] = field(default_factory=dict)
    # Partitions that wait for another owner: who gave each up, which share of what it had that is,
    # and the moment; see `cost`.
    given_up: dict[str, list[Any]] = field(default_factory=dict)
    # Who had to give partitions up in the generation, by `Member.identity`.
    revoking: list[str] = field(default_factory=list)
    # Since when tasks of Connect wait for a delay to pass, by `partition_key`.
    waiting: dict[str, int] = field(default_factory=dict)
    # How many assignments of Connect have failed in a row; None if the last one did not.
    failed: int | None = None
    topic_names: dict[str, str] = field(default_factory=dict)
    commits: Commits = field(default_factory=Commits)
    # How long the last generations lasted till all had learnt that members changed.
    cycles: list[int] = field(default_factory=list)
    # Longest pause between two commits of one member, in the last generation that had a rhythm.
    usual_pause: int | None = None
    # The pause between two commits of each member, in the last generation in which it was always as
    # long: of those that are there, of those of the generation before, or else of the last known.
    beats: dict[str, int] = field(default_factory=dict)
    # Whether these begin anew with each assignment.
    begins_anew: bool = False
    # Of the last rebalances, whether a member had exceeded its time to poll: 2 if it had committed
    # in the background until then.
    overdue: list[int] = field(default_factory=list)
    # What would show that the last join phase had begun by a time: see `estimate.would_show`.
    quiet: Row | None = None
    # Time up to which no record is missing behind the group's last one; None if not known.
    seen_at: int | None = None
    gap: Gap = field(default_factory=Gap)  # what is known of records that are missing
    # Length of the group's own first join, where the log tells it.
    initial_delay_ms: int | None = None
    # Hashes of the partitions with an offset, of a group that has no record of its own.
    live: list[int] = field(default_factory=list)
    # Since when the classic group was stable, while it is of the new protocol.
    classic_since: int | None = None
    # Since when the group may be gone, since its end would have left nothing; None if a record has
    # shown it since.
    gone_since: int | None = None
    # The members that `owners` tells of; None if that is not known.
    owning: dict[str, Member] | None = None
    # The rows that are settled. Neither is written down.
    output: Output = field(default_factory=Output)

    def begin_row(self, table: str, record: Record, columns: Row) -> Row:
        """Begin a row of the group that a record tells of; null in all other columns."""
        own = {
            "group_id": self.group_id,
            "group_type": self.group_type,
            "record_partition": self.partition,
            "record_offset": record.offset,
            "record_timestamp": record.timestamp,
        }
        return _BLANK[table] | own | columns

    def to_json(self) -> str:
        """Write the state down."""
        names = (f.name for f in fields(self) if f.name not in ("owning", "output"))
        # dataclasses.asdict copies whatever is in them.
        given = {name: getattr(self, name) for name in names} | {
            "members": [m.plain() for m in self.members.values()],
            "epochs": vars(self.epochs),
            "commits": vars(self.commits),
            "gap": _kept(
                {**vars(self.gap), "absent": [m.plain() for m in self.gap.absent.values()]}
            ),
        }
        return orjson.dumps(_kept(given)).decode()

    @classmethod
    def of_plain(cls, given: Row) -> GroupState:
        """Read what `to_json` wrote, of which the JSON is parsed."""
        members, gap = given.pop("members", ()), given.pop("gap", {})
        epochs, commits = given.pop("epochs", {}), given.pop("commits", {})
        absent = gap.pop("absent", ())
        return cls(
            **given,
            members={m["member_id"]: Member(**m) for m in members},
            epochs=Epochs(**epochs),
            commits=Commits(**commits),
            gap=Gap(**gap, absent={m["member_id"]: Member(**m) for m in absent}),
        )


def _kept(given: Row) -> Row:
    """Leave out what is as it is by default."""
    return {k: v for k, v in given.items() if v not in (None, {}, []) and v is not False}


def partition_key(topic: str, partition: int) -> str:
    """Name a partition; what comes before the last slash is the topic."""
    return f"{topic}/{partition}"


def partition_keys(assigned: dict[str, list[int]] | None) -> list[str]:
    """Name the partitions of an assignment."""
    return [partition_key(topic, p) for topic, numbers in (assigned or {}).items() for p in numbers]


def partition_hash(key: str) -> int:
    """Return the number that a partition goes by among commits: Spark's ``crc32`` of its key."""
    return zlib.crc32(key.encode())


def partition_of(key: str) -> tuple[str, int]:
    """Undo `partition_key`."""
    topic, _, partition = key.rpartition("/")
    return topic, int(partition)
