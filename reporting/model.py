"""What the page shows: rows that were read, and what was left out of them.

Times are epoch milliseconds, None where a table has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, TypeAlias

import pyarrow as pa

Row: TypeAlias = dict[str, Any]

DAY_MS = 86_400_000
WINDOW_MS = 7 * DAY_MS  # how far back the page looks, from the newest record of the log
SHOWN_GROUPS = 25  # groups that are shown in detail
LISTED_GROUPS = 5_000  # groups in the table of groups
LISTED_FINDINGS = 20  # expectations on the page that did not hold
LISTED_ANOMALIES = 5_000  # rows in the table of anomalies: a row is all of a kind that a group has
LISTED_INCIDENTS = 100  # incidents on the page and in a summary
GROUP_ANOMALIES = 100  # anomalies of a group that is shown in detail
OLDER_STEPS = 400  # parts of the time that is shown, by which rows that are left out are counted
DAY_PARTS = 48  # parts of the last day, of each of which the table of groups shows how a group was
SUMMED_UP_GROUPS = 12  # groups in a summary
# Anomalies of a severity, of those of late, that a summary looks at: the worst of groups first.
LATE_ANOMALIES = 2_000


class For(Flag):
    """What facts are read for."""

    PAGE = auto()
    SUMMARY = auto()
    HEALTH = auto()  # how groups are, without what the data cover
    METRICS = auto()
    PARTITIONS = auto()  # metrics of each partition's lag


@dataclass(frozen=True)
class Panel:
    """What one chart of a group is drawn from: columns, and so many of the newest rows.

    More would make the page large and the chart unreadable.
    """

    columns: tuple[str, ...]
    most: int


PANELS = {
    "states": Panel(
        (
            *("state", "generation", "started_at", "ended_at", "started_at_min", "started_at_max"),
            *("evidence", "known_until", "member_count"),
        ),
        1_500,
    ),
    "generations": Panel(
        (
            *("generation", "join_started_at", "join_completed_at", "stable_at", "rebalance_ms"),
            *("cause", "cause_detail", "aborted_generations", "member_count", "joined", "left"),
            *("replaced", "moved_partitions", "protocol", "leader_client_id"),
            *("cost_member_ms", "cost_member_ms_min"),
            *("record_partition", "record_offset"),
        ),
        500,
    ),
    "members": Panel(
        (
            *("member_id", "group_instance_id", "client_id", "client_host", "first_generation"),
            *("last_generation", "joined_at", "joined_at_min", "left_at", "left_at_min"),
            *("end_cause", "known_until"),
        ),
        700,
    ),
    "owners": Panel(
        (
            *("topic", "topic_partition", "client_id", "group_instance_id", "client_host"),
            *("generation", "valid_from", "valid_to", "known_until"),
        ),
        1_000,
    ),
    "offsets": Panel(
        (
            *("topic", "topic_partition", "hour", "first_commit_at", "last_commit_at"),
            *("first_committed_offset", "last_committed_offset", "commits", "progressed_offsets"),
            *("rewinds", "rewound_offsets", "jumps", "no_progress_commits", "tombstones"),
        ),
        700,
    ),
    "lag": Panel(("sampled_at", "lag", "is_bound", "partitions", "lag_seconds", "status"), 300),
}
"""The charts of a group, by name."""

NO_ROWS = pa.table({})


_AT_REST = {"Stable": "S", "Empty": "E", "Dead": "D", "NotReady": "N"}


def day_of(stays: Iterable[Row], since: int) -> str:
    """Return how a group was in each part of a day, in two letters for each.

    First the state that it was in for longest, of those in which nothing goes on: its initial, a
    blank if none is known. Then, behind all of these, which ninths of the part it rebalanced. The
    stays have `state`, `began`, `ended` and the `ms` in it; those that lie within one part may be
    one.
    """
    step = DAY_MS // DAY_PARTS
    spent: list[Counter[str]] = [Counter() for _ in range(DAY_PARTS)]
    for stay in stays:
        first, last = (stay["began"] - since) // step, (stay["ended"] - 1 - since) // step
        for part in range(max(0, first), min(last, DAY_PARTS - 1) + 1):
            start = since + part * step
            within = min(stay["ended"], start + step) - max(stay["began"], start)
            spent[part][stay["state"]] += stay["ms"] if first == last else within
    at_rest = [Counter({s: ms for s, ms in p.items() if s in _AT_REST}) for p in spent]
    states = [_AT_REST[p.most_common(1)[0][0]] if p else " " for p in at_rest]
    busy = [p.total() - rest.total() for p, rest in zip(spent, at_rest, strict=True)]
    return "".join(states) + "".join(str(min(9, -(-9 * ms // step))) for ms in busy)


@dataclass
class Group:
    """A group that is shown in detail."""

    group_id: str
    rows: dict[str, pa.Table] = field(default_factory=dict)  # of each panel, in the order of time
    # How many rows of each panel there are, and how many `anomalies`, those that are left out too.
    counts: dict[str, int] = field(default_factory=dict)
    # Of each panel, how many of the rows that are left out began when.
    older: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    # What would have prevented the rebalances of the panel `generations`, in sentences.
    remedies: list[str] = field(default_factory=list)


@dataclass
class Quality:
    """What the data cover."""

    records: int = 0
    offsets: int = 0  # how many ingest runs account for
    partitions: int = 0  # those of the log with records
    holes: dict[str, int] = field(default_factory=dict)  # offsets without a record, by reason
    quarantined: int = 0  # records that nobody could decode
    # How many of them, by error; the most frequent errors.
    quarantine: dict[str, int] = field(default_factory=dict)
    last_ingest_at: int | None = None  # start of the last ingest run that brought something
    # Start of the last run of validate that looked at something.
    last_validation_at: int | None = None
    # What did not hold, of the window's runs: each expectation as it failed last.
    findings: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Selection:
    """What a page or a list is narrowed to."""

    # A regular expression, as Java has them, of whole ids; None for all groups.
    groups: str | None = None
    since: int | None = None  # the time to begin at; None for `WINDOW_MS` before the end
    until: int | None = None  # the time to end at; None for the newest record
    group: str | None = None  # the one group, if that is what the expression means

    @property
    def pattern(self) -> str | None:
        """The regular expression of whole ids."""
        return None if self.groups is None else rf"(?s)\A(?:{self.groups})\z"


EVERYTHING = Selection()


def quoted(name: str) -> str:
    """Return a regular expression of Java that matches a name and nothing else."""
    return "\\Q" + name.replace("\\E", "\\E\\\\E\\Q") + "\\E"


@dataclass(frozen=True)
class Log:
    """The groups of a log that its history knows, and its times."""

    groups: list[str]
    first: int
    newest: int  # record or sample of the lag
    known_until: int  # so far nothing is missing


@dataclass
class Facts:
    """All that the page, a summary and metrics tell."""

    cluster: str
    lakehouse: str
    made_at: int
    chosen: Selection = EVERYTHING
    # Time of the newest record, that everything is as of; None without any.
    as_of: int | None = None
    # Rows of gold.group_health, the worst first; `day` is what `day_of` gives, if the page is made.
    groups: pa.Table = field(default_factory=lambda: NO_ROWS)
    group_count: int = 0  # how many there are, those that are left out too
    kinds: tuple[str, ...] = ()  # kinds of anomalies, the most important first
    # Rows of gold.anomalies, the worst first: of each group and kind the worst one, where
    # `kind_rank` is 1, with how many there are (`kind_count`) and go on (`kind_open`); and the
    # others of groups in detail.
    anomalies: pa.Table = field(default_factory=lambda: NO_ROWS)
    anomaly_count: int = 0  # how many the window has
    fold_count: int = 0  # how many groups and kinds have some
    # Rows of gold.anomalies that are open or ended in the last day, but for those that only inform:
    # by severity, the newest first.
    late: list[Row] = field(default_factory=list)
    # How many there are by severity, those that are left out too.
    late_counts: dict[str, int] = field(default_factory=dict)
    # How many anomalies have not ended, by kind and severity.
    open_counts: dict[tuple[str, str], int] = field(default_factory=dict)
    incidents: list[Row] = field(default_factory=list)  # rows of gold.incidents, the worst first
    # Rows of gold.group_health of all groups; none but for metrics.
    every_group: list[Row] = field(default_factory=list)
    # Rebalances by group and cause, those of the last day and all that are known with what they
    # cost; none but for metrics.
    causes: list[Row] = field(default_factory=list)
    # Age of what each group reads next, at its last sample; none but for metrics.
    lag_seconds: dict[str, float] = field(default_factory=dict)
    # Lag of each partition, at its last sample; none unless metrics ask for it.
    partition_lag: list[Row] = field(default_factory=list)
    step_ms: int = 3_600_000  # how long one bar of `rebalances` is
    # How many began when: group_id, at, rebalances.
    rebalances: pa.Table = field(default_factory=lambda: NO_ROWS)
    quality: Quality = field(default_factory=Quality)
    shown: list[Group] = field(default_factory=list)  # groups in detail, the worst first
