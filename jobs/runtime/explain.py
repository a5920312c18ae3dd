"""Gold to a screen: what one group did between two times, why, and who owned what."""

from __future__ import annotations

import datetime as dt
import difflib
import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from rich import box
from rich.table import Table
from rich.text import Text

from jobs.runtime.times import moment, zone
from lakehouse.errors import UsageError
from reporting.read import ask
from reporting.story import MARKS, band, events
from schemas.tables import (
    ANOMALIES,
    COVERAGE,
    GROUP_GENERATIONS,
    GROUP_HEALTH,
    GROUP_STATES,
    LAG,
    OFFSET_PROGRESS,
    PARTITION_OWNERS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from rich.console import Console

    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse
    from reporting.story import Event

    Row = dict[str, Any]

_HOUR_MS = 3_600_000
_NARROWEST = 40
_NEAR = 5
_COLOURS = {"critical": "bold red", "warning": "yellow", "info": "green"}


def explain(run: Run) -> None:
    """Print what a group did in a window of time, in its order, each with its record.

    Raises:
        UsageError: the lakehouse does not know the group, or nothing of the window.
    """
    chosen, lakehouse = run.options, run.lakehouse
    where = zone(chosen.timezone)
    with run.step("reading the history"):
        _look_for_group(lakehouse, chosen.group or "")
        since, until = _window(run, where)
        found = _read(lakehouse, chosen.group or "", chosen.partition, since, until)
        covered = _covered(lakehouse)
    if until <= covered[0] or since >= covered[1]:
        known = " to ".join(_time(at, where) for at in covered)
        raise UsageError(
            f"there is no data from {_time(since, where)} to {_time(until, where)}; the lakehouse "
            f"has {known} ({chosen.timezone})"
        )
    happened = events(found, since, until)
    if chosen.json:
        run.summary |= _as_json(chosen.group or "", since, until, happened, found)
        return
    _show(run, (since, until), happened, found)


def _look_for_group(lakehouse: Lakehouse, group: str) -> None:
    names = [r.group_id for r in lakehouse.read(GROUP_HEALTH).select("group_id").collect()]
    if group in names:
        return
    near = difflib.get_close_matches(group, names, _NEAR, 0.4) or sorted(names)[:_NEAR]
    known = f"; near are {', '.join(near)}" if near else ""
    raise UsageError(f"--group {group}: cluster {lakehouse.cluster} has no such group{known}")


def _window(run: Run, where: dt.tzinfo) -> tuple[int, int]:
    """Return start and end of the window in epoch milliseconds: the last hour of the log at least.

    Raises:
        UsageError: the end is not after the start.
    """
    chosen, now = run.options, dt.datetime.now(dt.timezone.utc)
    if chosen.until is None:
        last = run.lakehouse.read(GROUP_HEALTH).agg(F.unix_millis(F.max("as_of"))).collect()[0][0]
        until = int(last) + 1
    else:
        until = _millis(moment(chosen.until, now, where))
    since = until - _HOUR_MS
    if chosen.since is not None:
        since = _millis(moment(chosen.since, now, where))
    if since >= until:
        raise UsageError(
            f"--since {_time(since, where)} is not before --until {_time(until, where)}"
        )
    return since, until


def _millis(at: dt.datetime) -> int:
    return round(at.timestamp() * 1_000)


def _time(millis: int, where: dt.tzinfo) -> str:
    return f"{dt.datetime.fromtimestamp(millis / 1_000, where):%Y-%m-%d %H:%M:%S}"


def _covered(lakehouse: Lakehouse) -> tuple[int, int]:
    """Return the first and the last time of the history, in epoch milliseconds."""
    first = F.unix_millis(F.min("started_at"))
    bounds = lakehouse.read(GROUP_STATES).agg(first.alias("first")).collect()[0]
    last = lakehouse.read(COVERAGE).agg(F.unix_millis(F.max("observed_at"))).collect()[0][0]
    newest = lakehouse.read(GROUP_HEALTH).agg(F.unix_millis(F.max("as_of"))).collect()[0][0]
    return bounds["first"] or 0, max(last or 0, newest or 0)


# -- reading ---------------------------------------------------------------------------------------


def _read(
    lakehouse: Lakehouse, group: str, partition: str | None, since: int, until: int
) -> dict[str, list[Row]]:
    """Read the group's rows that touch the window, times in epoch milliseconds."""

    def touching(rows: DataFrame, start: str, end: str) -> DataFrame:
        goes_on = F.col(end).isNull() | (F.col(end) > _at(since))
        return rows.where((F.col(start) < _at(until)) & goes_on)

    def of(table: Any) -> DataFrame:  # noqa: ANN401 - a TableSpec
        return lakehouse.read(table).where(F.col("group_id") == group)

    owners, hours = of(PARTITION_OWNERS), of(OFFSET_PROGRESS)
    lag = of(LAG).where(F.col("sampled_at").between(_at(since), _at(until)))
    if partition is not None:
        owners, hours, lag = (_of_partition(rows, partition) for rows in (owners, hours, lag))
    begun = of(GROUP_GENERATIONS).withColumn("until", F.coalesce("stable_at", "record_timestamp"))
    members = [F.size(c).alias(c) for c in ("members_joined", "members_left")]
    answers = ask(
        {
            "states": touching(of(GROUP_STATES), "started_at", "ended_at"),
            "generations": touching(begun, "join_started_at", "until").select(
                *(c for c in begun.columns if not c.startswith("members_") and c != "until"),
                *members,
            ),
            "owners": touching(owners, "valid_from", "valid_to"),
            "offsets": hours.where(
                (F.col("first_commit_at") < _at(until)) & (F.col("last_commit_at") >= _at(since))
            ),
            "anomalies": touching(of(ANOMALIES), "started_at", "ended_at"),
            "lag": lag.groupBy("sampled_at", "group_status").agg(
                F.sum("lag").alias("lag"), F.count("lag").alias("partitions")
            ),
        }
    )
    return {name: rows.to_pylist() for name, rows in answers.items()}


def _at(millis: int) -> Column:
    return F.timestamp_millis(F.lit(millis))


def _of_partition(rows: DataFrame, partition: str) -> DataFrame:
    topic, _, number = partition.rpartition(":")
    return rows.where((F.col("topic") == topic) & (F.col("topic_partition") == int(number)))


# -- showing ---------------------------------------------------------------------------------------


def _show(
    run: Run, window: tuple[int, int], happened: list[Event], found: Mapping[str, list[Row]]
) -> None:
    (since, until), where, out = window, zone(run.options.timezone), run.out
    said = f"{run.options.group}: {_time(since, where)} to {_time(until, where)} {where}"
    out.print(said, markup=False, highlight=False, style="bold")
    width = max(_NARROWEST, out.width - 2)
    out.print(band(found["states"], since, until, width), markup=False, highlight=False)
    seen = dict.fromkeys(row["state"] for row in found["states"])
    legend = ", ".join(f"{MARKS.get(state, '?')} {state}" for state in seen)
    out.print(legend or "no state is known of this time", markup=False, style="dim")
    out.print()
    lines = Table.grid(padding=(0, 1))
    for event in happened:
        lines.add_row(_when(event, where), _sentence(event))
    out.print(lines)
    if not happened:
        out.print("Nothing happened: no rebalance, no anomaly.")
    out.print()
    _show_owners(out, found["owners"], window, where)
    _show_offsets(out, found["offsets"])


def _when(event: Event, where: dt.tzinfo) -> Text:
    at = dt.datetime.fromtimestamp(event.at / 1_000, where)
    return Text(f"{at:%H:%M:%S}.{at.microsecond // 1_000:03}{' ' if event.is_exact else '~'}")


def _sentence(event: Event) -> Text:
    line = Text()
    if event.kind in _COLOURS:
        line.append(f"[{event.kind}] ", style=_COLOURS[event.kind])
    line.append(event.text)
    if event.record is not None:
        line.append(f"  record {event.record[0]}/{event.record[1]}", style="dim")
    return line


def _show_owners(
    out: Console, owners: list[Row], window: tuple[int, int], where: dt.tzinfo
) -> None:
    if not owners:
        return
    since, until = window
    table = _table("Owners of partitions", "partition", "owner", "from", "until")
    order = ("topic", "topic_partition", "valid_from")
    for row in sorted(
        owners,
        key=lambda r: tuple(r[c] or 0 if c != "topic" else r[c] or r["topic_id"] for c in order),
    ):
        ends = row["valid_to"]
        table.add_row(
            Text(f"{row['topic'] or row['topic_id']}:{row['topic_partition']}"),
            Text(f"{row['client_id']} at {row['client_host']}"),
            _time(max(row["valid_from"], since), where)[11:],
            "" if ends is None or ends >= until else _time(ends, where)[11:],
        )
    out.print(table)


def _show_offsets(out: Console, hours: list[Row]) -> None:
    if not hours:
        return
    table = _table("Committed offsets, by hours", "partition", "first", "last", "commits")
    by_partition: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(hours, key=lambda r: r["first_commit_at"]):
        by_partition.setdefault((row["topic"], row["topic_partition"]), []).append(row)
    for (topic, partition), rows in sorted(by_partition.items()):
        last = rows[-1]["last_committed_offset"]
        table.add_row(
            Text(f"{topic}:{partition}"),
            f"{rows[0]['first_committed_offset']:,}",
            "deleted" if last is None else f"{last:,}",
            f"{sum(row['commits'] for row in rows):,}",
        )
    out.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name)
    return table


def _as_json(
    group: str, since: int, until: int, happened: list[Event], found: Mapping[str, list[Row]]
) -> dict[str, Any]:
    """Return the same as figures of the summary; times are epoch milliseconds."""
    kept = {name: found[name] for name in ("states", "owners", "offsets")}
    return {
        "group_id": group,
        "since": since,
        "until": until,
        "events": [
            {
                "at": e.at,
                "is_exact": e.is_exact,
                "kind": e.kind,
                "text": e.text,
                "record_partition": e.record[0] if e.record else None,
                "record_offset": e.record[1] if e.record else None,
            }
            for e in happened
        ],
        **json.loads(json.dumps(kept, default=str)),
    }
