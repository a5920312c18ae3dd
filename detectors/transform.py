"""The only module of the detectors that uses Spark: rows of gold and silver in, anomalies out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from detectors import group, unread
from detectors.detection import CHECKPOINT, COLUMNS, SORT_RANKS, detected
from detectors.model import MINUTE_MS
from detectors.thresholds import Thresholds
from schemas.gold import RHYTHM_COMMITS
from schemas.memory import seldom_collect
from schemas.placement import HOME

_NEVER_MS = 253_402_300_799_000
_SHOWERS = 20
_LOG = ("topic", "topic_partition")
_PARTITION = ("group_id", *_LOG)
_SHOWN = ("other_topic", "other_partition", "other", "other_offset", "at")
_ORDER = ("sort_rank", HOME, "position", "second_position", "kind", "tie")


class Sources(NamedTuple):
    """The rows that the detectors read; None stands for a table without any."""

    # Rows of group_generations: the settled ones that are new, and all open ones.
    generations: DataFrame
    states: DataFrame  # the rows of group_states of the states that groups are in
    sessions: DataFrame  # rows of member_sessions: the settled ones that are new, and all open ones
    moves: DataFrame  # the rows of offset_moves that are new
    owners: DataFrame  # rows of partition_owners: the settled ones that are new, and all open ones
    former_owners: DataFrame | None  # all rows of partition_owners, if some groups went back
    committed: DataFrame  # the rows of committed_offsets
    commits: DataFrame | None  # the rows of offset_commits that are new
    # The rows of lag that are new, and all of those of groups read from their start.
    lag: DataFrame | None
    checkpoints: DataFrame | None  # rows of anomaly_checkpoints: those of groups
    # `group_id` and the partition that its records are in now, if some were in another.
    homes: DataFrame | None


def detect(
    sources: Sources,
    *,
    thresholds: Thresholds,
    cluster: str,
    now: int,
    known_until: Mapping[int, int],
    lost: Mapping[int, int],
    schema: T.StructType,
) -> DataFrame:
    """Detect the anomalies of each group, see `detectors.detection.detected`.

    `schema` is Spark's type of `detectors.detection.OUTPUT`.
    """
    # Several of the parts below ask these, which have fewer rows than the commits.
    sources = sources._replace(
        moves=sources.moves.localCheckpoint(eager=False),
        committed=sources.committed.localCheckpoint(eager=False),
    )
    ordered = (
        reduce(
            partial(DataFrame.unionByName, allowMissingColumns=True), _parts(sources, thresholds)
        )
        .repartition("group_id")
        .sortWithinPartitions("group_id", *_ORDER)
        .drop(*(name for name in _ORDER if name != "kind"))
    )

    def batches_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seldom_collect()
        return detected(batches, thresholds, cluster, now, known_until=known_until, lost=lost)

    return ordered.mapInArrow(batches_of, schema)


def _parts(sources: Sources, thresholds: Thresholds) -> Iterator[DataFrame]:
    """Bring all sources into one shape, in which columns of other kinds are null."""
    # In order of their lives, which may be in two partitions; the newest has not ended.
    last = F.coalesce("ended_at", F.timestamp_millis(F.lit(_NEVER_MS)))
    generations = sources.generations.withColumn("last", last)
    yield _part(generations, group.GENERATION, "last", "record_offset")
    # A static member that is there may have taken another's place. Those of others are most rows.
    is_asked_for = "group_instance_id IS NOT NULL AND (left_at IS NOT NULL OR NOT is_settled)"
    sessions = sources.sessions.where(is_asked_for)
    yield _part(sessions, group.SESSION, "left_at", "record_offset", "member_id")
    yield _part(sources.states, group.OPEN_STATE)
    moves = _with_kept(sources.moves, sources.committed)
    yield _part(_at_home(moves, sources.homes), group.MOVE, "record_offset")
    owned = _owned(sources.owners)
    ever = owned if sources.former_owners is None else _owned(sources.former_owners)
    waits = waits_of(sources, thresholds).localCheckpoint(eager=False)
    yield _part(_with_owner(waits, ever), group.WAIT, "since")
    # Few partitions went back to where they had been.
    back = sources.moves.where("last_there_at IS NOT NULL").select(*_PARTITION).distinct()
    owners = ever.join(F.broadcast(back), list(_PARTITION), "left_semi")
    yield _part(owners.selectExpr(*_PARTITION, "inline(ownerships)"), group.OWNER, "valid_from")
    yield _part(_owned_twice(owned), group.TWO_OWNERS)
    sums = None
    if sources.commits is not None:
        sums = _sums(sources.commits)
        minutes = _at_home(_minutes(sources.commits), sources.homes)
        yield _part(minutes, group.MINUTE, "first_offset")
        yield _part(_topics(sums), group.TOPIC)
    yield _part(_never_owned(sources.committed, sums, owned, thresholds), group.NEVER_OWNED)
    if sources.lag is not None:
        yield _part(_lags(sources.lag, sources.committed), group.LAG, "at")
    if sources.checkpoints is not None:
        yield _part(sources.checkpoints, CHECKPOINT)


def _with_kept(moves: DataFrame, committed: DataFrame) -> DataFrame:
    """Mark moves that delete an offset of a topic of which another group keeps one (`is_kept`).

    What goes at one moment goes for one reason: all that a group loses then is marked.
    """
    kept = committed.where("NOT is_deleted").select(
        F.col("topic").alias("kept_topic"),
        F.col("group_id").alias("keeper"),
        _when("committed_at").alias("kept_since"),
    )
    is_kept = F.expr("topic = kept_topic AND group_id <> keeper AND kept_since < at")
    moment = ("group_id", "at")
    gone = moves.where("move = 'deleted'").join(kept, is_kept, "left_semi").select(*moment)
    marked = gone.distinct().withColumn("is_kept", F.lit(True))  # noqa: FBT003
    return moves.join(F.broadcast(marked), list(moment), "left")


def _when(claimed: str) -> Column:
    """Return the time of a commit: its record's, or what it claims where the record has none."""
    return F.coalesce("record_timestamp", claimed)


def _owned(owners: DataFrame) -> DataFrame:
    """Return who owned each partition, in the order of `valid_from`: most rows by far become few.

    Columns group_id, topic (its id where nothing names it), topic_partition, `is_shared` and
    `ownerships`. Members of a share group read partitions together, and two parts of a streams
    group's topology may read one topic.
    """
    times = (F.unix_millis(name).alias(name) for name in ("valid_from", "valid_to", "known_until"))
    of_owner = ("client_id", "client_host", "record_partition", "record_offset")
    every = owners.where("valid_from IS NOT NULL").select(
        "group_id",
        F.coalesce("topic", "topic_id").alias("topic"),
        "topic_partition",
        F.col("group_type").isin("share", "streams").alias("is_shared"),
        F.struct(*times, *of_owner).alias("ownership"),
    )
    ownerships = F.sort_array(F.collect_list("ownership")).alias("ownerships")
    return every.groupBy(*_PARTITION, "is_shared").agg(ownerships).localCheckpoint(eager=False)


def _owned_twice(owned: DataFrame) -> DataFrame:
    """Return the partitions that have two owners at a time, by `OWNERS_COLUMNS`."""
    return owned.where(
        "NOT is_shared AND size(ownerships) > 1 AND exists(sequence(1, size(ownerships) - 1), n ->"
        " ownerships[n].valid_from < coalesce(ownerships[n - 1].known_until,"
        f" ownerships[n - 1].valid_to, {_NEVER_MS}))"
    )


def _never_owned(
    committed: DataFrame, sums: DataFrame | None, owned: DataFrame, thresholds: Thresholds
) -> DataFrame:
    """Return topics with partitions that a group has never had, by `NEVER_COLUMNS`.

    Who commits a partition that a group neither owned nor committed is another group. Partitions
    of which only the first offset is committed may have no record.
    """
    least = thresholds.least(unread.KIND, "pause_ms")
    at = _when("committed_at")
    ever = committed.groupBy("group_id", "topic").agg(
        F.collect_set("topic_partition").alias("committed")
    )
    last = committed.where("NOT is_deleted AND committed_offset > 0")
    recent = F.coalesce(F.get("recent_commits", F.lit(0))["committed_at"], at)
    shown = last.select(
        *_LOG, F.col("group_id").alias("other"), "committed_offset", recent.alias("first"), at
    )
    if sums is not None:
        new = sums.where("committed_offset IS NOT NULL")
        shown = shown.union(new.select(*_LOG, "group_id", "committed_offset", "first", "last"))
    shown = shown.toDF(*_LOG, "other", "other_offset", "first", "last")
    # Who committed others of its partitions long before has seen the topic grow.
    begun = F.min("first").over(Window.partitionBy("topic", "other"))
    is_later = F.unix_millis("first") - F.unix_millis(begun) >= least
    shown = shown.withColumn("is_later", is_later)
    of_partition = shown.groupBy(*_LOG).agg(
        F.unix_millis(F.min("first")).alias("first_at"),
        F.unix_millis(F.max("last")).alias("last_at"),
        F.max("other_offset").alias("other_offset"),
        F.slice(F.sort_array(F.collect_set("other")), 1, _SHOWERS).alias("others"),
        F.min_by("is_later", "first").alias("has_grown"),
    )
    partition = ("topic_partition", "first_at", "last_at", "other_offset", "others", "has_grown")
    read = (
        of_partition.where("last_at > first_at")
        .groupBy("topic")
        .agg(F.sort_array(F.collect_list(F.struct(*partition))).alias("partitions"))
    )
    owned = (
        owned.groupBy("group_id", "topic")
        .agg(
            F.collect_set("topic_partition").alias("owned"),
            F.expr("min(ownerships[0].valid_from)").alias("owned_since"),
            F.expr("bool_or(exists(ownerships, o -> o.valid_to IS NULL))").alias("is_owned"),
        )
        .where("is_owned")
        .join(read, "topic")
        .join(ever, ["group_id", "topic"], "left")
    )
    had = F.concat("owned", F.coalesce("committed", F.array().cast("array<int>")))
    never = F.filter("partitions", lambda p: ~F.array_contains(had, p["topic_partition"]))
    every = owned.withColumn("never", never)
    return every.where(F.size("never") > 0).select("group_id", "topic", "owned_since", "never")


def waits_of(sources: Sources, thresholds: Thresholds) -> DataFrame:
    """Return pauses in the commits of partitions in which others show records, by `WAIT_COLUMNS`.

    A pause goes on behind the last commit, or was ended by a row of offset_moves. Others are the
    commits of other groups, new ones and the last of each, and samples of the log's end.
    """
    last = (
        sources.committed.where("NOT is_deleted AND committed_offset IS NOT NULL")
        .withColumn("since", _when("committed_at"))
        .where("since IS NOT NULL")
    )
    shown = last.select(*_LOG, F.col("group_id").alias("other"), "committed_offset", "since")
    if sources.lag is not None:
        end = (F.lit(None).cast("string"), "log_end_offset", "sampled_at")
        shown = shown.union(sources.lag.where("lag IS NOT NULL").select(*_LOG, *end).distinct())
    shown = shown.toDF(*_SHOWN)
    is_beyond = (
        F.expr("topic = other_topic AND topic_partition = other_partition")
        & F.expr("(other IS NULL OR other <> group_id) AND other_offset > committed_offset")
        & F.expr("at > since AND (until IS NULL OR at <= until)")
    )
    going_on = last.select(
        *_PARTITION,
        "since",
        F.lit(None).cast("timestamp").alias("until"),
        _mean(F.unix_millis("committed_at") - F.unix_millis(_fifth()["committed_at"]), "usual_ms"),
        _mean(F.col("committed_offset") - _fifth()["committed_offset"], "usual_step"),
        "committed_offset",
        F.lit(True).alias("is_complete"),  # noqa: FBT003
        *("record_partition", "record_offset"),
        F.lit(None).cast("bigint").alias("until_offset"),
    )
    # Nearly all partitions are committed till now, so that few are left to be compared with all.
    is_late = F.col("at") > F.col("since") + F.expr(f"INTERVAL {MINUTE_MS} MILLISECONDS")
    going_on = going_on.join(shown, is_beyond & is_late, "left_semi")
    ended = sources.moves.select(
        *_PARTITION,
        F.col("previous_at").alias("since"),
        F.col("at").alias("until"),
        _mean(F.unix_millis("previous_at") - F.unix_millis("rhythm_since"), "usual_ms"),
        _mean(F.col("previous_offset") - F.col("rhythm_offset"), "usual_step"),
        F.col("previous_offset").alias("committed_offset"),
        "is_complete",
        *("record_partition", F.col("previous_record_offset").alias("record_offset")),
        F.col("record_offset").alias("until_offset"),
    )
    # One that was no longer than what is allowed is none, whatever others show.
    least, times = (thresholds.least(unread.KIND, n) for n in ("pause_ms", "times_the_usual"))
    is_long = F.expr(
        f"unix_millis(until) - unix_millis(since) > greatest({least}, {times} * usual_ms)"
    )
    pauses = going_on.union(ended.where(is_long)).where("usual_ms IS NOT NULL")
    if sources.commits is not None:
        at = _when("commit_timestamp")
        commits = sources.commits.where("NOT is_tombstone")
        commits = commits.select(*_LOG, "group_id", "committed_offset", at)
        shown = shown.union(commits)
    beyond = shown.join(F.broadcast(pauses), is_beyond)
    first = F.min(F.struct("at", "other_offset")).alias("first")
    waits = beyond.groupBy(*pauses.columns).agg(
        first,
        F.max("other_offset").alias("other_offset"),
        F.sort_array(F.collect_set("other")).alias("others"),
    )
    return waits.select(
        "*", F.col("first.at").alias("first_at"), F.col("first.other_offset").alias("first_offset")
    )


def _with_owner(waits: DataFrame, owned: DataFrame) -> DataFrame:
    """Add who owned a partition soon after a pause in its commits began, and who owns it now."""
    begun, at = (*_PARTITION, "since"), f"unix_millis(since) + {unread.OWNED_MS}"
    owners = owned.join(F.broadcast(waits.select(*begun)), list(_PARTITION)).selectExpr(
        *begun,
        f"try_element_at(filter(ownerships, o -> o.valid_from <= {at}), -1) AS last",
        "try_element_at(filter(ownerships, o -> o.valid_to IS NULL), -1) AS now",
    )
    owner = "max_by(struct({0}.client_id, {0}.client_host), {0}.valid_from) FILTER (WHERE {1})"
    owners = owners.groupBy(*begun).agg(
        F.expr(owner.format("last", "last IS NOT NULL")).alias("owner"),
        F.expr(owner.format("now", "now.known_until IS NULL AND now IS NOT NULL")).alias(
            "now_owner"
        ),
        F.expr("bool_or(now IS NOT NULL)").alias("is_owned"),
    )
    return waits.join(owners, list(begun), "left")


def _fifth() -> Column:
    """Return the first of the last five commits of a partition."""
    return F.get("recent_commits", F.size("recent_commits") - RHYTHM_COMMITS)


def _mean(span: Column, name: str) -> Column:
    """Return how far the last five commits of a partition are apart in the mean."""
    return F.floor(span / (RHYTHM_COMMITS - 1)).alias(name)


def _part(
    rows: DataFrame,
    kind: str,
    position: str | None = None,
    second_position: str | None = None,
    tie: str | None = None,
) -> DataFrame:
    """Return rows in the common schema, those that are not settled as of the kind for them."""
    open_kind = group.OPEN_KINDS.get(kind)
    types = {f.name: f.dataType for f in rows.schema.fields}

    def column(name: str) -> Column:
        return F.unix_millis(name) if types[name] == T.TimestampType() else F.col(name)

    def order(name: str | None) -> Column:
        return F.lit(None) if name is None else column(name)

    def of_kind(value: Callable[[str], str | int]) -> Column:
        if open_kind is None:
            return F.lit(value(kind))
        return F.when(F.col("is_settled"), value(kind)).otherwise(value(open_kind))

    return rows.select(
        "group_id",
        of_kind(str).alias("kind"),
        of_kind(SORT_RANKS.__getitem__).alias("sort_rank"),
        (F.col(HOME) if HOME in types else F.lit(None)).cast("boolean").alias(HOME),
        order(position).cast("bigint").alias("position"),
        order(second_position).cast("bigint").alias("second_position"),
        order(tie).cast("string").alias("tie"),
        *(column(name).alias(name) for name in COLUMNS[kind]),
    )


def _at_home(rows: DataFrame, homes: DataFrame | None) -> DataFrame:
    """Mark which records are in the partition that their group belongs to now."""
    if homes is None:
        return rows
    home = homes.select("group_id", F.col("record_partition").alias("home"))
    is_home = F.coalesce(F.col("record_partition") == F.col("home"), F.lit(True))  # noqa: FBT003
    return rows.join(home, "group_id", "left").withColumn(HOME, is_home).drop("home")


def _minutes(commits: DataFrame) -> DataFrame:
    """Sum up commits by group, partition of the log and minute since the epoch."""
    at = F.unix_millis(_when("commit_timestamp"))
    timed = commits.where("NOT is_tombstone").withColumn("at", at).where("at IS NOT NULL")
    minute = F.floor(F.col("at") / MINUTE_MS).alias("minute")
    key = F.xxhash64("topic", "topic_partition")
    minutes = timed.groupBy("group_id", "record_partition", minute).agg(
        F.count("*").alias("commits"),
        F.collect_set(key).alias("keys"),
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
        F.min("record_offset").alias("first_offset"),
        F.max("record_offset").alias("last_offset"),
    )
    return minutes.withColumn("partitions", F.size("keys"))


def _sums(commits: DataFrame) -> DataFrame:
    """Sum up the commits of each partition, by group and partition of the log.

    `record_offset` is that of its first; the rest is of those that show records.
    """
    shows, at = F.col("committed_offset") > 0, _when("commit_timestamp")
    sums = commits.where("NOT is_tombstone").groupBy("group_id", "record_partition", *_LOG)
    return sums.agg(
        F.min("record_offset").alias("record_offset"),
        F.max(F.when(shows, F.col("committed_offset"))).alias("committed_offset"),
        F.min(F.when(shows, at)).alias("first"),
        F.max(F.when(shows, at)).alias("last"),
    ).localCheckpoint(eager=False)


def _topics(sums: DataFrame) -> DataFrame:
    """Give the first commit of each partition, by group, partition of the log and topic."""
    first = F.struct("topic_partition", "record_offset")
    firsts = F.sort_array(F.collect_list(first)).alias("firsts")
    return sums.groupBy("group_id", "record_partition", "topic").agg(firsts)


def _lags(lag: DataFrame, committed: DataFrame) -> DataFrame:
    """Sum up the lag of each run, by group, and by topic in it.

    What is only known to be at most a number may be none. Beside other lag it counts for nothing;
    without, nobody knows whether there is any; and a topic's sums are of all of it, to compare.
    `lagging` are the partitions that lag for certain, or whose offset is beyond the log's end;
    `usual_step` is how far the last commits of those that lag went on each time.
    """
    is_bound = F.coalesce("lag_is_bound", F.lit(False))  # noqa: FBT003
    step = _mean(F.col("committed_offset") - _fifth()["committed_offset"], "usual_step")
    lag = lag.join(committed.select(*_PARTITION, step), list(_PARTITION), "left")
    sums = (
        F.sum(F.when(~F.col("is_bound"), F.col("lag"))).alias("lag"),
        F.sum(
            F.when(F.expr("NOT is_bound AND lag > 0 AND usual_step > 0"), F.col("usual_step"))
        ).alias("usual_step"),
        F.bool_or("is_bound").alias("is_bound"),
        F.max("sampled_at").alias("sampled_at"),
    )
    own = F.unix_millis("committed_at").alias("committed_at")
    odd = F.struct(*_LOG, "committed_offset", "log_start_offset", "log_end_offset", "lag", own)
    is_odd = ~F.col("is_bound") & F.expr("lag > 0 OR committed_offset > log_end_offset")
    of_topics = lag.withColumn("is_bound", is_bound).groupBy("group_id", "lag_run", "topic")
    of_topic = F.struct("topic", F.when(~F.col("is_bound"), F.col("lag")).alias("lag"))
    of_groups = (
        of_topics.agg(
            *sums,
            F.max("committed_at").alias("committed_at"),
            F.collect_list(F.when(is_odd, odd)).alias("lagging"),
        )
        .withColumn("of_topic", of_topic)
        .groupBy("group_id", "lag_run")
        .agg(
            F.max("sampled_at").alias("at"),
            F.sum("lag").alias("lag"),
            F.sum("usual_step").alias("usual_step"),
            F.bool_or("is_bound").alias("is_bound"),
            F.sort_array(F.collect_list("of_topic")).alias("topics"),
            F.max("committed_at").alias("committed_at"),
            F.sort_array(F.flatten(F.collect_list("lagging"))).alias("lagging"),
        )
    )
    is_told = ~F.col("is_bound") | (F.col("lag") > 0)
    return of_groups.withColumn("lag", F.when(is_told, F.col("lag")))
