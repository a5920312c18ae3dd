"""What a terminal shows: how the groups are, what is wrong, what one group did."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from reporting.model import DAY_MS, SUMMED_UP_GROUPS, Facts, Quality, Row
from reporting.story import MARKS, UNKNOWN, Event, Owned, Story, axis, band, committed, owned
from reporting.text import (
    consumer_time,
    duration,
    moment,
    one_line,
    printable,
    records_behind,
    short_name,
    to_second,
)
from schemas.gold import INFO, SEVERITIES
from schemas.tables import ANOMALIES, COVERAGE, LOST
from schemas.words import count

COLOURS = {"ok": "green", "info": "cyan", "warning": "yellow", "critical": "bold red"}
_SHOWN_ANOMALIES = 8
_SHOWN_ERRORS = 3
_MINUTE_MS = 60_000
_WIDEST = 100_000


def titled(title: str, *columns: str, numbers: Sequence[str] = ()) -> Table:
    """Return a table as jobs show it, without rows; the columns of numbers are the last."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def show_groups(out: Console, facts: Facts, kinds: Sequence[str]) -> None:
    """Print how the groups are, the worst first, and what is wrong, by the importance of kinds."""
    if not facts.group_count:
        return
    groups = facts.groups.slice(0, SUMMED_UP_GROUPS).to_pylist()
    _show_health(out, groups, facts.group_count)
    place = {row["group_id"]: number for number, row in enumerate(groups)}
    incidents, single = told_as_one(facts, groups[0]["as_of"])
    late = sorted(single, key=lambda row: place.get(row["group_id"], len(place)))
    for row, more in [*((row, 0) for row in incidents), *worst_by_group(late, kinds)]:
        line = anomaly_line(row, to_second(row["started_at"]), groups[0]["as_of"])
        line += f" (+{more} more)" if more else ""
        out.print(line, soft_wrap=True, highlight=False)
    counts = facts.late_counts
    shown = ", ".join(f"{counts[s]:,} {s}" for s in reversed(SEVERITIES) if s in counts)
    _print(out, f"Anomalies of these 24 hours: {shown or 'none'}; {ANOMALIES.name} has them all")


def told_as_one(facts: Facts, as_of: int) -> tuple[list[Row], list[Row]]:
    """Return the incidents of late, but for those that only inform, and the other anomalies."""
    every = [
        {**row, "kind": "incident"}
        for row in facts.incidents
        if row["severity"] != INFO and (row["is_open"] or row["ended_at"] >= as_of - DAY_MS)
    ]
    told = {name for row in every for name in row["anomaly_ids"]}
    of_groups = Counter(row["group_id"] for row in facts.late if row.get("anomaly_id") in told)
    single = [
        row
        if row.get("group_late") is None
        # What an incident tells is no more of it.
        else {**row, "group_late": row["group_late"] - of_groups[row["group_id"]]}
        for row in facts.late
        if row.get("anomaly_id") not in told
    ]
    return every[:_SHOWN_ANOMALIES], single


def worst_by_group(rows: Sequence[Row], kinds: Sequence[str]) -> list[tuple[Row, int]]:
    """Return what is worst with each of some groups, and how much more there is."""
    by_group: dict[str | None, list[Row]] = {}
    for row in rows:
        by_group.setdefault(row["group_id"], []).append(row)

    def importance(row: Row) -> tuple[bool, int, int]:
        rank = -SEVERITIES.index(row["severity"]), kinds.index(row["kind"])
        return (not row.get("is_open"), *rank)

    found = [min(rows, key=importance) for rows in by_group.values()][:_SHOWN_ANOMALIES]
    return [(row, row.get("group_late", len(by_group[row["group_id"]])) - 1) for row in found]


def show_anomalies(out: Console, rows: Sequence[Row], found: int, where: dt.tzinfo) -> None:
    """Print the newest anomalies, in the order of time, and how many were found."""
    for row in sorted(rows, key=lambda row: row["started_at"]):
        at = to_second(row["started_at"], where)
        out.print(anomaly_line(row, at, None), soft_wrap=True, highlight=False)
    rest = "" if found <= len(rows) else f", of which the newest {len(rows):,} are shown"
    text = f"{count(found, 'anomaly')}{rest}, times are {where}; {ANOMALIES.name} has them all"
    _print(out, text)


def anomaly_line(row: Row, at: str, as_of: int | None) -> str:
    """Return an anomaly as a line of rich's markup; one that may go on has when it was seen."""
    severity, summary = row["severity"], escape(one_line(row["summary"]))
    seen = row.get("ended_at") if row.get("is_open") else None
    if seen is not None and as_of is not None and as_of - seen >= _MINUTE_MS:
        summary += f" Last seen {duration(as_of - seen)} ago."
    return f"[{COLOURS[severity]}]{severity:<8}[/] {at} {row['kind']}  {summary}"


def missing(quality: Quality) -> Iterator[str]:
    """Say what is missing: offsets without a record, records without a meaning."""
    # Nobody can mend what compaction took, or transactions: markers and aborted commits.
    lost = sum(quality.holes.get(reason, 0) for reason in LOST)
    if lost:
        yield (
            f"{lost:,} of {quality.offsets:,} offsets were lost before they could be read;"
            f" {COVERAGE.name} says where"
        )
    for error, records in list(quality.quarantine.items())[:_SHOWN_ERRORS]:
        yield f"{count(records, 'record')} in quarantine: {error}"


def _print(out: Console, text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def _show_health(out: Console, rows: list[Row], groups: int) -> None:
    """Print the groups as a table, or where it has no room, each as a line below its id."""
    as_of = moment(rows[0]["as_of"])
    title = f"24 hours to {as_of:%Y-%m-%d %H:%M} UTC ({len(rows)} of {groups:,} groups)"
    table = _health(rows, title)
    if Measurement.get(out, out.options.update(width=_WIDEST), table).maximum <= out.width:
        out.print(table)
        return
    out.print(title, style="italic", highlight=False)
    for row in rows:
        _print(out, printable(row["group_id"]))
        took = f" took {duration(row['rebalancing_24h_ms'])}" if row["rebalances_24h"] else ""
        said = [
            f"[{COLOURS[row['health']]}]{row['health']}[/]",
            row["state"],
            *([] if row["members"] is None else [count(row["members"], "member")]),
            f"{count(row['rebalances_24h'], 'rebalance')}{took}",
            *([f"lag {_lag(row)}"] if _lag(row) else []),
        ]
        out.print(f"  {', '.join(said)}", highlight=False, soft_wrap=True)


def _health(rows: list[Row], title: str) -> Table:
    table = titled(title)
    for name in ("group", "health", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("members", "rebalances", "took"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("lag", justify="right", no_wrap=True)
    for row in rows:
        health, ms = row["health"], row["rebalancing_24h_ms"]
        table.add_row(
            short_name(row["group_id"]),
            f"[{COLOURS[health]}]{health}[/]",
            row["state"],
            "" if row["members"] is None else f"{row['members']:,}",
            f"{row['rebalances_24h']:,}",
            duration(ms) if row["rebalances_24h"] else "",
            _lag(row),
        )
    return table


def _lag(row: Row) -> str:
    """Return how far a group is behind, and with a partition in trouble, its status."""
    if row["total_lag"] is None:
        return ""
    lag = records_behind(row["total_lag"], is_bound=row["total_lag_is_bound"])
    return lag if row["worst_lag_status"] in (None, "OK") else f"{lag} {row['worst_lag_status']}"


# -- one group -------------------------------------------------------------------------------------

_NARROWEST = 40
_MOST_OWNERS = 20
_DATE = len("2026-11-21")


def show_story(out: Console, story: Story, where: dt.tzinfo, partition: str | None) -> None:
    """Print what a group did; of a single partition, all of its owners."""
    since, until = (to_second(t, where) for t in (story.since, story.until))
    said = f"{printable(story.group)}: {since} to {until} {where}"
    out.print(said, markup=False, highlight=False, style="bold")
    states = story.found["states"]
    begin = max(story.since, story.first)
    drawn = band(states, begin, story.until, max(_NARROWEST, out.width - 2))
    out.print(drawn, markup=False, highlight=False)
    out.print(axis(begin, story.until, len(drawn), where), highlight=False, style="dim")
    seen = dict.fromkeys(row["state"] for row in states)
    marks = [f"{MARKS[state]} {state}" for state in seen if state in MARKS]
    marks += ["? unknown"] if UNKNOWN in drawn else []
    legend = ", ".join(marks) or "no state is known of this time"
    out.print(legend, markup=False, style="dim")
    out.print()
    lines = Table.grid(padding=(0, 1))
    for event in story.events:
        lines.add_row(_when(event, where, story.since), _sentence(event))
    out.print(lines)
    if not story.events:
        out.print("Nothing happened: no rebalance, no anomaly.")
    if story.cost[0]:
        out.print(f"Rebalances cost {consumer_time(*story.cost)}.", highlight=False)
    if sentences := story.remedies.sentences:
        out.print("What would have prevented them, each counted by itself:")
        counted = Table.grid(padding=(0, 1))
        for sentence in sentences:
            counted.add_row("-", Text(printable(sentence)))
        out.print(counted)
    out.print()
    owners, offsets = owned(story), committed(story)
    shown = owners if partition is not None else owners[:_MOST_OWNERS]
    if shown:
        out.print(_owners(shown, since, until, where))
    if offsets:
        out.print(_offsets(offsets))
    if partition is not None and not owners and not offsets:
        text = f"{printable(partition)}: no owner and no commit is known of this time"
        out.print(text, markup=False, highlight=False)
    if len(owners) > len(shown):
        more = len(owners) - len(shown)
        text = (
            f"{more:,} more rows of owners; --partition TOPIC:NUMBER shows those of one partition"
        )
        out.print(text, markup=False, highlight=False)


def _when(event: Event, where: dt.tzinfo, since: int) -> Text:
    at = moment(event.at, where)
    date = "" if at.date() == moment(since, where).date() else f"{at:%Y-%m-%d} "
    mark = " " if event.is_exact else "~"
    return Text(f"{date}{at:%H:%M:%S}.{at.microsecond // 1_000:03}{mark}")


def _sentence(event: Event) -> Text:
    line = Text()
    if event.kind in COLOURS:
        line.append(f"[{event.kind}] ", style=COLOURS[event.kind])
    line.append(printable(event.text))
    if event.record is not None:
        line.append(f"  record {event.record[0]}/{event.record[1]}", style="dim")
    return line


def _owners(owners: Sequence[Owned], since: str, until: str, where: dt.tzinfo) -> Table:
    table = titled("Owners of partitions", "partition", "owner", "from", "until")
    day = since[:_DATE] if since[:_DATE] == until[:_DATE] else None

    def clock(at: int) -> str:
        text = to_second(at, where)
        return text[_DATE + 1 :] if text[:_DATE] == day else text

    for row in owners:
        last = "" if row.until is None else clock(row.until)
        table.add_row(
            Text(printable(row.partition)),
            Text(printable(row.owner or "not known")),
            clock(row.since),
            f"not known from {last} (records are missing)" if row.is_doubted else last,
        )
    return table


def _offsets(offsets: Sequence[tuple[str, int | None, int | None, int]]) -> Table:
    table = titled("Committed offsets, by hours", "partition", "first", "last", "commits")
    for partition, first, last, commits in offsets:
        table.add_row(
            Text(printable(partition)),
            "" if first is None else f"{first:,}",
            "deleted" if last is None else f"{last:,}",
            f"{commits:,}",
        )
    return table
