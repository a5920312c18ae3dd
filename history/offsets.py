"""How offsets went on: what each group committed hour by hour, and what it committed last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PARTITION = ("group_id", "topic", "topic_partition")
_RECORD = ("record_partition", "record_offset", "record_timestamp")
# A commit that goes on by so much more than any before has skipped records rather than read them.
JUMP_FACTOR = 10
JUMP_LEAST = 1_000
RECENT_COMMITS = 10
"""Commits of a partition that are kept to judge it by: as many as Burrow keeps."""

_SUMS = (
    "commits",
    "tombstones",
    "distinct_offsets",
    "rewinds",
    "jumps",
    "no_progress_commits",
    "rewound_offsets",
    "progressed_offsets",
    "log_bytes",
)


def steps(commits: DataFrame, last: DataFrame | None) -> DataFrame:
    """Tell of each commit how far it went on.

    Args:
        commits: rows of offset_commits.
        last: committed_offsets as of before them; None if there are none.

    Returns:
        A row per commit, with its `hour`, and `step`: offsets since the commit before, null for the
        first one and after a deletion; `largest_step` is the largest so far, this one included;
        `is_recent` marks the last records of a partition.
    """
    order = Window.partitionBy(*_PARTITION).orderBy("record_partition", "record_offset")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    joined = _with_former(commits, last).select(
        *(*_PARTITION, *_RECORD),
        *("committed_offset", "leader_epoch", "metadata", "topic_id", "is_tombstone"),
        *("commit_timestamp", "former_offset", "former_largest", "former_at", "former_is_deleted"),
        _log_bytes().alias("log_bytes"),
    )
    is_first = F.row_number().over(order) == 1
    previous = F.when(is_first, F.col("former_offset")).otherwise(
        F.lag("committed_offset").over(order)
    )
    at = F.coalesce("record_timestamp", "commit_timestamp")
    previous_at = F.when(is_first, F.col("former_at")).otherwise(F.lag(at).over(order))
    was_deleted = F.when(is_first, F.col("former_is_deleted")).otherwise(
        F.lag("is_tombstone").over(order)
    )
    stepped = joined.withColumns(
        {
            "at": at,
            "previous_offset": previous,
            "previous_at": previous_at,
            "was_deleted": F.coalesce(was_deleted, F.lit(False)),  # noqa: FBT003
            "step": F.col("committed_offset") - previous,
        }
    )
    goes_on = F.when(F.col("step") > 0, F.col("step"))
    before = F.greatest("former_largest", F.max(goes_on).over(earlier))
    return stepped.select(
        *_PARTITION,
        *_RECORD,
        *("committed_offset", "leader_epoch", "metadata", "topic_id", "is_tombstone"),
        *("commit_timestamp", "log_bytes", "at", "step"),
        *("previous_offset", "previous_at", "was_deleted"),
        F.date_trunc("hour", "at").alias("hour"),
        before.alias("largest_step_before"),
        F.greatest("former_largest", F.max(goes_on).over(so_far)).alias("largest_step"),
        (_leaps(before) & (F.col("step") > JUMP_LEAST)).alias("is_jump"),
        F.lead("record_offset", RECENT_COMMITS).over(order).isNull().alias("is_recent"),
    )


def _leaps(before: Column) -> Column:
    """Tell steps of more than so many times the largest before, which may be as large as can be."""
    return F.expr(f"(step - 1) div {JUMP_FACTOR}") >= before


def moves(stepped: DataFrame) -> DataFrame:
    """Pick the commits that did not just go on.

    Args:
        stepped: what `steps` gives.

    Returns:
        The columns of offset_moves, but the run's.
    """
    step, largest = F.col("step"), F.col("largest_step_before")
    leaps = (step > JUMP_LEAST) & (largest.isNull() | _leaps(largest))
    move = (
        F.when(F.col("is_tombstone"), F.when(~F.col("was_deleted"), "deleted"))
        .when(F.col("was_deleted"), "returned")
        .when(step < 0, "rewind")
        .when(leaps, "leap")
    )
    return (
        stepped.withColumn("move", move)
        .where(F.col("move").isNotNull())
        .select(
            *_PARTITION,
            *("move", "at", "previous_offset", "previous_at"),
            *("committed_offset", "step", "largest_step_before"),
            *_RECORD,
        )
    )


def hours(stepped: DataFrame) -> DataFrame:
    """Sum up the commits of each partition by the hour.

    Args:
        stepped: what `steps` gives.

    Returns:
        The columns of offset_progress.
    """
    is_commit, step = ~F.col("is_tombstone"), F.col("step")
    goes_on = F.when(step > 0, step)
    return stepped.groupBy(*_PARTITION, "hour").agg(
        F.min_by(
            F.when(is_commit, F.col("committed_offset")), F.when(is_commit, _position())
        ).alias("first_committed_offset"),
        F.max_by("committed_offset", _position()).alias("last_committed_offset"),
        F.min(F.when(is_commit, F.col("at"))).alias("first_commit_at"),
        F.max(F.when(is_commit, F.col("at"))).alias("last_commit_at"),
        F.count_if(is_commit).alias("commits"),
        F.count_if(F.col("is_tombstone")).alias("tombstones"),
        F.count_if(is_commit & (step.isNull() | (step != 0))).alias("distinct_offsets"),
        F.count_if(step < 0).alias("rewinds"),
        F.count_if("is_jump").alias("jumps"),
        F.count_if(step == 0).alias("no_progress_commits"),
        F.coalesce(F.sum(F.when(step < 0, -step)), F.lit(0)).alias("rewound_offsets"),
        F.coalesce(F.sum(goes_on), F.lit(0)).alias("progressed_offsets"),
        F.max(goes_on).alias("largest_step"),
        F.sum("log_bytes").alias("log_bytes"),
        *_last_record(),
    )


def joined_hours(earlier: DataFrame, later: DataFrame) -> DataFrame:
    """Make one row of the two that an hour cut by a run has.

    Args:
        earlier: rows of offset_progress.
        later: rows of `hours`, of the records behind them.
    """
    names = later.columns
    both = earlier.select(*names).unionByName(later)
    return (
        both.groupBy(*_PARTITION, "hour")
        .agg(
            F.min_by(
                "first_committed_offset",
                F.when(F.col("first_committed_offset").isNotNull(), _position()),
            ).alias("first_committed_offset"),
            F.max_by("last_committed_offset", _position()).alias("last_committed_offset"),
            F.min("first_commit_at").alias("first_commit_at"),
            F.max("last_commit_at").alias("last_commit_at"),
            F.max("largest_step").alias("largest_step"),
            *(F.sum(name).alias(name) for name in _SUMS),
            *_last_record(),
        )
        .select(*names)
    )


def last_commits(stepped: DataFrame, former: DataFrame) -> DataFrame:
    """Give the last commit of each partition, as committed_offsets has it.

    Args:
        stepped: what `steps` gives.
        former: committed_offsets as of before.
    """
    committed_at = F.coalesce("commit_timestamp", "record_timestamp").alias("committed_at")
    row = F.struct(
        *("committed_offset", "leader_epoch", "metadata", "topic_id"),
        committed_at,
        F.col("is_tombstone").alias("is_deleted"),
        *("largest_step", *_RECORD),
    )
    recent = F.struct(*_RECORD[:2], "is_tombstone", "committed_offset", committed_at)
    last = stepped.groupBy(*_PARTITION).agg(
        F.max_by(row, _position()).alias("last"),
        F.sort_array(F.collect_list(F.when(F.col("is_recent"), recent))).alias("recent"),
    )
    before = former.select(*_PARTITION, F.col("recent_commits").alias("before"))
    return last.join(before, list(_PARTITION), how="left").select(
        *_PARTITION, "last.*", _recent_commits().alias("recent_commits")
    )


def _recent_commits() -> Column:
    """Join the commits kept `before` to those of the `recent` records; a tombstone ends both."""
    deletion = F.array_position(F.reverse(F.transform("recent", lambda r: r["is_tombstone"])), True)  # noqa: FBT003
    size = F.size("recent")
    since = F.when(deletion > 0, deletion.cast("int") - 1).otherwise(size)
    commits = F.transform(
        F.slice("recent", size - since + 1, since),
        lambda r: F.struct(r["committed_offset"], r["committed_at"]),
    )
    every = F.when((deletion > 0) | F.col("before").isNull(), commits).otherwise(
        F.concat("before", commits)
    )
    return F.slice(every, F.greatest(F.size(every) - RECENT_COMMITS + 1, F.lit(1)), RECENT_COMMITS)


def _last_record() -> list[Column]:
    return [F.max_by(name, _position()).alias(name) for name in _RECORD]


def _with_former(commits: DataFrame, last: DataFrame | None) -> DataFrame:
    if last is None:
        none = F.lit(None)
        return commits.withColumns(
            {
                "former_offset": none.cast("bigint"),
                "former_largest": none.cast("bigint"),
                "former_at": none.cast("timestamp"),
                "former_is_deleted": none.cast("boolean"),
            }
        )
    former = last.select(
        *_PARTITION,
        F.col("committed_offset").alias("former_offset"),
        F.col("largest_step").alias("former_largest"),
        F.coalesce("record_timestamp", "committed_at").alias("former_at"),
        F.col("is_deleted").alias("former_is_deleted"),
    )
    return commits.join(former, list(_PARTITION), how="left")


def _position() -> Column:
    return F.struct("record_partition", "record_offset")


def _log_bytes() -> Column:
    """Give the size of a commit's key and value, from their layouts (OffsetCommitKey, -Value)."""

    def length(name: str) -> Column:
        return F.coalesce(F.octet_length(name), F.lit(0))

    key = F.lit(2 + 2 + 2 + 4) + length("group_id") + length("topic")
    version, metadata = F.col("value_version"), length("metadata")
    # Version, offset and commit time; the length of a short string takes two bytes, or a varint.
    plain = F.lit(2 + 8 + 8) + metadata
    size_of_length = F.when(metadata < 2**7 - 1, 1).when(metadata < 2**14 - 1, 2).otherwise(3)
    topic_id = F.when(F.col("topic_id").isNotNull(), 2 + 16).otherwise(0)
    value = (
        F.when(version == 1, plain + 2 + 8)
        .when(version == 3, plain + 2 + 4)  # noqa: PLR2004 - with a leader epoch
        .when(version >= 4, plain + size_of_length + 4 + 1 + topic_id)  # noqa: PLR2004 - flexible
        .otherwise(plain + 2)
    )
    return (key + F.when(F.col("is_tombstone"), 0).otherwise(value)).cast("bigint")
