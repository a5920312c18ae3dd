"""Gold to a screen: what one group did between two times, why, and who owned what."""

from __future__ import annotations

import datetime as dt
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from rich.table import Table
from rich.text import Text

from jobs.runtime.report import print_page, write_page
from jobs.runtime.sql import printable
from jobs.runtime.summary import titled
from jobs.runtime.times import zone
from lakehouse.tables import OPEN_ROWS
from reporting.model import Selection, quoted
from reporting.read import ask, time_at
from reporting.story import MARKS, UNKNOWN, band, events, is_unknown
from schemas.errors import UsageError
from schemas.tables import (
    ANOMALIES,
    COVERAGE,
    GROUP_GENERATIONS,
    GROUP_HEALTH,
    GROUP_STATES,
    LAG,
    MEMBER_SESSIONS,
    OFFSET_PROGRESS,
    PARTITION_OWNERS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from rich.console import Console

    from jobs.runtime.run import Run
    from lakehouse.tables import Lakehouse
    from reporting.story import Event

    Row = dict[str, Any]

_IS_LIVE = "coalesce(source, 'kafka') != 'parquet'"
_HOUR_MS = 3_600_000
_MOST_OWNERS = 20
_NARROWEST = 40
_DATE = len("2026-11-21")
_NEAR = 5
_COLOURS = {"critical": "bold red", "warning": "yellow", "info": "green"}


@dataclass(frozen=True)
class _Log:
    """What the lakehouse has of one log; times are epoch milliseconds.

    Attributes:
        lakehouse: its tables.
        groups: the groups that its history knows.
        first: the first time of the history.
        newest: the time of the newest record or sample of the lag.
        known_until: the time until which nothing is missing.
    """

    lakehouse: Lakehouse
    groups: list[str]
    first: int
    newest: int
    known_until: int


def explain(run: Run) -> None:
    """Print what a group did in a window of time, in its order, each with its record.

    Raises:
        UsageError: the lakehouse does not know the group, or nothing of the window.
    """
    chosen, where = run.options, zone(run.options.timezone)
    with run.step("reading the history"):
        log = _log_of(run.lakehouse)
        since, until = _window(run, where, log)
        if until <= log.first or since >= log.known_until:
            known = f"{_time(log.first, where)} to {_time(log.known_until, where)}"
            raise UsageError(
                f"there is no data from {_time(since, where)} to {_time(until, where)}; the "
                f"lakehouse has {known} ({chosen.timezone})"
            )
        if until > log.known_until + 1:
            until = log.known_until + 1
            run.say(f"nothing is known after {_time(until, where)} ({chosen.timezone})")
        group = _look_for_group(log, chosen.group or "")
        found = _read(log.lakehouse, group, chosen.partition, since, until)
    happened = events(found, since, until)
    if chosen.json:
        run.summary |= _as_json(group, since, until, happened, found)
    else:
        _show(run, (since, until), where, happened, found)
    if chosen.html is not None:
        only = Selection(quoted(group), since, until, group)
        run.summary["report"] = path = str(Path(chosen.html).absolute())
        write_page(run, log.lakehouse, path, only)
        if not chosen.json:
            print_page(run)


def _log_of(lakehouse: Lakehouse) -> _Log:
    states = lakehouse.read(GROUP_STATES)
    found = ask(
        {
            "states": states.agg(F.min("started_at").alias("first"), F.max("record_timestamp")),
            "groups": states.where(OPEN_ROWS).select("group_id").distinct(),
            "health": lakehouse.read(GROUP_HEALTH).agg(F.max("as_of")),
            "lag": lakehouse.read(LAG).agg(F.max("sampled_at")),
            # Of files nobody knows what came after their newest record.
            "coverage": lakehouse.read(COVERAGE).where(_IS_LIVE).agg(F.max("observed_at")),
        }
    )
    groups = found.pop("groups")["group_id"].to_pylist()
    times = {name: list(rows.to_pylist()[0].values()) for name, rows in found.items()}
    newest = max(times["states"][1] or 0, times["health"][0] or 0, times["lag"][0] or 0)
    return _Log(
        lakehouse,
        groups,
        times["states"][0] or 0,
        newest,
        max(newest, times["coverage"][0] or 0),
    )


def _look_for_group(log: _Log, group: str) -> str:
    if group in log.groups:
        return group
    near = difflib.get_close_matches(group, log.groups, _NEAR, 0.4) or sorted(log.groups)[:_NEAR]
    known = f"; near are {', '.join(map(printable, near))}" if near else ""
    raise UsageError(
        f"--group {printable(group)}: cluster {log.lakehouse.cluster} has no such group{known}"
    )


def _window(run: Run, where: dt.tzinfo, log: _Log) -> tuple[int, int]:
    """Return start and end of the window: without an end, the newest record is the end.

    Raises:
        UsageError: the newest record is before the start.
    """
    since, until = run.options.span
    until = log.newest + 1 if until is None else until
    since = until - _HOUR_MS if since is None else since
    if since >= until:
        end = _time(until, where)
        raise UsageError(f"--since {_time(since, where)} is not before the newest record, {end}")
    return since, until


def _time(millis: int, where: dt.tzinfo) -> str:
    return f"{dt.datetime.fromtimestamp(millis / 1_000, where):%Y-%m-%d %H:%M:%S}"


# -- reading ---------------------------------------------------------------------------------------


def _read(
    lakehouse: Lakehouse, group: str, partition: str | None, since: int, until: int
) -> dict[str, list[Row]]:
    """Read the group's rows that touch the window, times in epoch milliseconds."""

    def touching(rows: DataFrame, start: str, end: str) -> DataFrame:
        goes_on = F.col(end).isNull() | (F.col(end) > time_at(since))
        return rows.where((F.col(start) < time_at(until)) & goes_on)

    def of(table: Any) -> DataFrame:  # noqa: ANN401 - a TableSpec
        return lakehouse.read(table).where(F.col("group_id") == group)

    owners, hours = of(PARTITION_OWNERS), of(OFFSET_PROGRESS)
    lag = of(LAG).where(F.col("sampled_at").between(time_at(since), time_at(until)))
    if partition is not None:
        owners, hours, lag = (_of_partition(rows, partition) for rows in (owners, hours, lag))
    doubted = of(MEMBER_SESSIONS).where("known_until IS NOT NULL")
    # A classic generation is recorded when it ends, another when it begins.
    ends = F.when(F.col("group_type") == "classic", F.coalesce("stable_at", "record_timestamp"))
    until_of = ends.otherwise(F.coalesce("stable_at", "ended_at"))
    begun = of(GROUP_GENERATIONS).withColumn("until", until_of)
    answers = ask(
        {
            "states": touching(of(GROUP_STATES), "started_at", "ended_at"),
            "generations": touching(begun, "join_started_at", "until").select(
                *(c for c in begun.columns if not c.startswith("members_") and c != "until")
            ),
            "owners": touching(owners, "valid_from", "valid_to"),
            "members": touching(doubted, "joined_at", "left_at"),
            # An hour may have nothing but deletions, which are no commits.
            "offsets": hours.where(
                (F.coalesce("first_commit_at", "record_timestamp") < time_at(until))
                & (F.greatest("last_commit_at", "record_timestamp") >= time_at(since))
            ),
            "anomalies": touching(of(ANOMALIES), "started_at", "ended_at"),
            "lag": lag.groupBy("sampled_at", "group_status").agg(
                F.sum("lag").alias("lag"),
                F.count("lag").alias("partitions"),
                F.bool_or("lag_is_bound").alias("is_bound"),
            ),
        }
    )
    found: dict[str, list[Row]] = {name: rows.to_pylist() for name, rows in answers.items()}
    found["states"].sort(key=lambda row: row["sequence"])
    return found


def _of_partition(rows: DataFrame, partition: str) -> DataFrame:
    topic, _, number = partition.rpartition(":")
    named = F.coalesce("topic", "topic_id") if "topic_id" in rows.columns else F.col("topic")
    return rows.where((named == topic) & (F.col("topic_partition") == int(number)))


# -- showing ---------------------------------------------------------------------------------------


def _show(
    run: Run,
    window: tuple[int, int],
    where: dt.tzinfo,
    happened: list[Event],
    found: Mapping[str, list[Row]],
) -> None:
    (since, until), out = window, run.out
    group = printable(run.options.group or "")
    said = f"{group}: {_time(since, where)} to {_time(until, where)} {where}"
    out.print(said, markup=False, highlight=False, style="bold")
    width = max(_NARROWEST, out.width - 2)
    drawn = band(found["states"], since, until, width)
    out.print(drawn, markup=False, highlight=False)
    seen = dict.fromkeys(row["state"] for row in found["states"])
    marks = [f"{MARKS[state]} {state}" for state in seen if state in MARKS]
    marks += ["? unknown"] if UNKNOWN in drawn else []
    legend = ", ".join(marks)
    out.print(legend or "no state is known of this time", markup=False, style="dim")
    out.print()
    lines = Table.grid(padding=(0, 1))
    for event in happened:
        lines.add_row(_when(event, where, since), _sentence(event))
    out.print(lines)
    if not happened:
        out.print("Nothing happened: no rebalance, no anomaly.")
    out.print()
    is_whole = run.options.partition is not None
    _show_owners(out, found["owners"], window, where, is_whole=is_whole)
    _show_offsets(out, found["offsets"])
    partition = run.options.partition
    if partition is not None:
        if not found["owners"] and not found["offsets"]:
            text = f"{printable(partition)}: no owner and no commit is known of this time"
            out.print(text, markup=False, highlight=False)
    elif len(found["owners"]) > _MOST_OWNERS:
        more = len(found["owners"]) - _MOST_OWNERS
        text = (
            f"{more:,} more rows of owners; --partition TOPIC:NUMBER shows those of one partition"
        )
        out.print(text, markup=False, highlight=False)


def _when(event: Event, where: dt.tzinfo, since: int) -> Text:
    at, first = (dt.datetime.fromtimestamp(t / 1_000, where) for t in (event.at, since))
    date = "" if at.date() == first.date() else f"{at:%Y-%m-%d} "
    return Text(
        date + f"{at:%H:%M:%S}.{at.microsecond // 1_000:03}{' ' if event.is_exact else '~'}"
    )


def _sentence(event: Event) -> Text:
    line = Text()
    if event.kind in _COLOURS:
        line.append(f"[{event.kind}] ", style=_COLOURS[event.kind])
    line.append(printable(event.text))
    if event.record is not None:
        line.append(f"  record {event.record[0]}/{event.record[1]}", style="dim")
    return line


def _show_owners(
    out: Console, owners: list[Row], window: tuple[int, int], where: dt.tzinfo, *, is_whole: bool
) -> None:
    if not owners:
        return
    since, until = window
    table = _table("Owners of partitions", "partition", "owner", "from", "until")
    day = _time(since, where)[:_DATE]
    is_one_day = day == _time(until, where)[:_DATE]

    def clock(at: int) -> str:
        text = _time(at, where)
        return text[_DATE + 1 :] if is_one_day and text.startswith(day) else text

    named = [(row["topic"] or row["topic_id"], row["topic_partition"], row) for row in owners]
    ordered = sorted(named, key=lambda n: (*n[:2], n[2]["valid_from"]))
    for topic, partition, row in ordered if is_whole else ordered[:_MOST_OWNERS]:
        begins = max(row["valid_from"], since)
        ends, known_until = row["valid_to"], row["known_until"]
        host = f" at {row['client_host']}" if row["client_host"] else ""
        owner = f"{row['client_id'] or row['member_id']}{host}"
        last = "" if ends is None or ends >= until else clock(ends)
        if is_unknown(row, "valid_to", since, until):
            last = f"not known from {clock(known_until)} (records are missing)"
            owner = owner if known_until >= begins else "not known"
        table.add_row(
            Text(printable(f"{topic}:{partition}")),
            Text(printable(owner)),
            clock(begins),
            last,
        )
    out.print(table)


def _show_offsets(out: Console, hours: list[Row]) -> None:
    if not hours:
        return
    table = _table("Committed offsets, by hours", "partition", "first", "last", "commits")
    by_partition: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(hours, key=lambda r: r["record_timestamp"] or r["first_commit_at"] or 0):
        by_partition.setdefault((row["topic"], row["topic_partition"]), []).append(row)
    for (topic, partition), rows in sorted(by_partition.items()):
        last = rows[-1]["last_committed_offset"]
        committed = (row["first_committed_offset"] for row in rows)
        first = next((offset for offset in committed if offset is not None), None)
        table.add_row(
            Text(printable(f"{topic}:{partition}")),
            "" if first is None else f"{first:,}",
            "deleted" if last is None else f"{last:,}",
            f"{sum(row['commits'] for row in rows):,}",
        )
    out.print(table)


def _table(title: str, *columns: str) -> Table:
    table = titled(title)
    for name in columns:
        table.add_column(name)
    return table


def _as_json(
    group: str, since: int, until: int, happened: list[Event], found: Mapping[str, list[Row]]
) -> dict[str, Any]:
    """Return the same as figures of the summary; times are epoch milliseconds."""
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
        **{name: found[name] for name in ("states", "owners", "offsets")},
    }
