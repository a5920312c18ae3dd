"""Offsets that groups had committed by a time, and groups that nobody has used since one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql import functions as F

from jobs.runtime.run import Run
from lakehouse.catalog import register
from lakehouse.lakehouse import Lakehouse
from lakehouse.local import quickest
from lakehouse.queries import Ask
from launch.options import EVERY_CLUSTER, EVERY_TOPIC
from launch.times import zone
from reporting.model import Log, Selection, quoted
from reporting.one_group import log_of
from reporting.read import time_at
from reporting.story import near_names
from reporting.text import printable, to_second
from schemas.columns import in_millis
from schemas.errors import UsageError
from schemas.tables import COMMITTED_OFFSETS, COVERAGE, decoded_table


def known_offsets(run: Run, at: int) -> list[dict[str, Any]]:
    """Return the rows of `gold.offsets_at` of the groups that were asked for, and say what lacks.

    Raises:
        UsageError: there is no such group, or no offset to go back to.
    """
    chosen, where = run.options, zone(run.options.timezone)
    lakehouse, log, until = _of_one_cluster(run)
    group = chosen.group or ""
    time = f"{to_second(at, where)} ({chosen.timezone})"
    if at > until:
        raise UsageError(
            f"--offsets-at {time}: the lakehouse knows offsets until {to_second(until, where)}"
        )
    with run.step("reading the offsets"):
        rows = _rows(lakehouse, at, _named(group, log), chosen.topic)
    if not rows:
        topic = "" if chosen.topic == EVERY_TOPIC else f" with offsets of {chosen.topic}"
        raise UsageError(
            f"--group {printable(group)}: there is no such group{topic}{near_names(log, group)}"
        )
    missing = Counter(row["missing"] for row in rows if row["missing"] is not None)
    reasons = ", ".join(f"{number:,} ({reason})" for reason, number in missing.items())
    if missing.total() == len(rows):
        raise UsageError(
            f"--offsets-at {time}: no offset is known of {reasons}; nothing is written"
        )
    if missing:
        run.say(f"partitions without a known offset at {time}, which are left out: {reasons}")
    run.summary["offsets_missing"] = dict(missing)
    return [row for row in rows if row["missing"] is None]


def unused_groups(run: Run, since: int) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of `gold.unused_groups` since a time, and until when the log is known.

    Raises:
        UsageError: the log is not known until then, or there is no such group.
    """
    lakehouse, log, until = _of_one_cluster(run)
    time = f"{to_second(since)} UTC"
    if since > until:
        raise UsageError(
            f"--unused-since {time}: the lakehouse knows groups until {to_second(until)} UTC"
        )
    register(lakehouse, "unused_groups", clusters=[lakehouse.cluster])
    found = run.spark.table("gold.unused_groups").where(f"unused_since <= {time_at(since)}")
    if run.options.group is not None:
        found = found.where(F.col("group_id").rlike(_named(run.options.group, log)))
    with run.step("looking for groups that nobody uses"):
        rows = in_millis(found.orderBy("group_id").toArrow()).to_pylist()
    if not rows:
        raise UsageError(f"--unused-since {time}: each group was in use since; nothing is written")
    return rows, until


def _of_one_cluster(run: Run) -> tuple[Lakehouse, Log, int]:
    """Return the tables of the one cluster that was named, or that there is, and what it knows.

    That is which groups it has, and until when commits are known, in epoch milliseconds.

    Raises:
        UsageError: there are several clusters, or it has no group.
    """
    name = run.options.cluster
    if name == EVERY_CLUSTER:
        held = run.lakehouse.clusters(COVERAGE)
        if len(held) > 1:
            raise UsageError(f"--cluster: name one of the clusters {', '.join(held)}")
        (name,) = held
    lakehouse = Lakehouse(run.spark, run.lakehouse.root, name)
    log = known_log(lakehouse)
    # Nobody knows what came after the newest record of files.
    newest = F.unix_millis(F.max(F.coalesce("record_timestamp", "committed_at")))
    ((last,),) = lakehouse.read(COMMITTED_OFFSETS).agg(newest).collect()
    return lakehouse, log, max(log.known_until, last or 0)


def known_log(lakehouse: Lakehouse, ask: Ask | None = None) -> Log:
    """Return which groups the log has, and of which time.

    Raises:
        UsageError: it has none.
    """
    log = log_of(ask or quickest(lakehouse))
    if not log.groups:
        raise UsageError(f"cluster {lakehouse.cluster} has no group yet; run the pipeline")
    return log


def _named(group: str, log: Log) -> str:
    """Return the pattern of the group of an id, or of those whose whole ids match it."""
    return Selection(quoted(group) if group in log.groups else group).pattern or ""


def _rows(lakehouse: Lakehouse, at: int, groups: str, topic: str) -> list[dict[str, Any]]:
    """Return the rows of groups whose ids match a pattern, in their order."""
    if not lakehouse.exists(decoded_table("offset_commits")):
        return []
    register(lakehouse, "offsets_at", clusters=[lakehouse.cluster])
    found = lakehouse.spark.sql(f"SELECT * FROM offsets_at(timestamp_millis({at}))")  # noqa: S608
    found = found.where(F.col("group_id").rlike(groups))
    if topic != EVERY_TOPIC:
        found = found.where(F.col("topic") == topic)
    rows = found.orderBy("group_id", "topic", "topic_partition").toArrow()
    return list(rows.to_pylist())
