"""What Kafka's own tools take: offsets to go back to, a script that deletes unused groups."""

from __future__ import annotations

import csv
import io
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import functions as F

from reporting.read import time_at
from reporting.text import printable, to_second
from schemas.columns import in_millis
from schemas.tables import COMMITTED_OFFSETS, decoded_table
from schemas.words import count
from storage.catalog import register
from storage.lakehouse import Lakehouse

Row = Mapping[str, Any]
"""A row of `gold.unused_groups`, times in epoch milliseconds, or of `gold.offsets_at`."""

_TOOLS = {"share": "kafka-share-groups.sh", "streams": "kafka-streams-groups.sh"}
_AT_ONCE = 100
_HEAD = """\
#!/bin/sh
# Deletes groups that nobody has used since {since} UTC; the log was read until {until} UTC.
# Kafka deletes no group that has members. Offsets go with their group, for good: read the list.
set -eu
: "${{BOOTSTRAP_SERVERS:?set it to HOST:PORT}}"
"""


def commits_known_until(lakehouse: Lakehouse, known_until: int) -> int:
    """Return until when commits are known, in epoch milliseconds, behind a time of the log.

    Nobody knows what came after the newest record of files.
    """
    newest = F.unix_millis(F.max(F.coalesce("record_timestamp", "committed_at")))
    ((last,),) = lakehouse.read(COMMITTED_OFFSETS).agg(newest).collect()
    return max(known_until, last or 0)


def offsets_at(lakehouse: Lakehouse, at: int, groups: str, topic: str | None) -> list[Row]:
    """Return the rows of `gold.offsets_at` of groups whose ids match a pattern, in their order."""
    if not lakehouse.exists(decoded_table("offset_commits")):
        return []
    register(lakehouse, "offsets_at", clusters=[lakehouse.cluster])
    found = lakehouse.spark.sql(f"SELECT * FROM offsets_at(timestamp_millis({at}))")  # noqa: S608
    found = found.where(F.col("group_id").rlike(groups))
    if topic is not None:
        found = found.where(F.col("topic") == topic)
    rows = found.orderBy("group_id", "topic", "topic_partition").toArrow()
    return list(rows.to_pylist())


def unused_groups(lakehouse: Lakehouse, since: int, groups: str | None) -> list[Row]:
    """Return the rows of `gold.unused_groups` since a time, of ids that match a pattern if any."""
    register(lakehouse, "unused_groups", clusters=[lakehouse.cluster])
    found = lakehouse.spark.table("gold.unused_groups")
    found = found.where(f"unused_since <= {time_at(since)}")
    if groups is not None:
        found = found.where(F.col("group_id").rlike(groups))
    return list(in_millis(found.orderBy("group_id").toArrow()).to_pylist())


def script(rows: Sequence[Row], since: int, until: int) -> str:
    """Return a shell script that lists groups, with what they hold, and deletes them.

    Each protocol has a tool of its own (`DeleteGroups` of ConsumerGroupCommand, ShareGroupCommand
    and StreamsGroupCommand of Kafka); one call takes many groups.
    """
    lines, of_tool = [], defaultdict(list)
    for row in rows:
        tool = _TOOLS.get(row["group_type"] or "", "kafka-consumer-groups.sh")
        of_tool[tool].append(row["group_id"])
        topics = ", ".join(map(printable, row["topics"])) or "nothing"
        last = to_second(row["unused_since"])
        lines.append(f"# {printable(row['group_id'])}: since {last}, {topics}")
    for tool, groups in of_tool.items():
        for n in range(0, len(groups), _AT_ONCE):
            named = " ".join(f"--group {shlex.quote(g)}" for g in groups[n : n + _AT_ONCE])
            lines.append(f'{tool} --bootstrap-server "$BOOTSTRAP_SERVERS" --delete {named}')
    head = _HEAD.format(since=to_second(since), until=to_second(until))
    return head + "".join(f"{line}\n" for line in lines)


def by_pattern(rows: Sequence[Row], pattern_of: Callable[[str], str]) -> Iterator[str]:
    """Say of groups whose ids look alike how many there are, since when, and what they hold."""
    alike: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        alike[pattern_of(row["group_id"])].append(row)
    for pattern, of_pattern in sorted(alike.items(), key=lambda item: (-len(item[1]), item[0])):
        name = pattern if len(of_pattern) > 1 else of_pattern[0]["group_id"]
        groups = f" ({count(len(of_pattern), 'group')})" if len(of_pattern) > 1 else ""
        last = to_second(max(row["unused_since"] for row in of_pattern))
        held = count(sum(row["offsets"] for row in of_pattern), "offset")
        topics = count(len({t for row in of_pattern for t in row["topics"]}), "topic")
        yield f"{printable(name)}{groups}: unused since {last} UTC, {held} of {topics}"


def plan(rows: Sequence[Row]) -> str:
    """Return the file for `--reset-offsets --from-file`.

    Its lines are topic, partition, offset; of several groups the group is in front of them
    (ConsumerGroupCommand's CsvUtils of Kafka).
    """
    names = ["topic", "topic_partition", "committed_offset"]
    names = ["group_id", *names] if len(groups_of(rows)) > 1 else names
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([row[name] for name in names] for row in rows)
    return out.getvalue()


def groups_of(rows: Sequence[Row]) -> list[str]:
    """Return the groups of rows, each once, in their order."""
    return list(dict.fromkeys(row["group_id"] for row in rows))


def command(groups: Sequence[str], file: str) -> str:
    """Return the command that shows what it would set; it sets it with --execute instead."""
    named = " ".join(f"--group {shlex.quote(group)}" for group in groups)
    return (
        f"kafka-consumer-groups.sh --bootstrap-server HOST:PORT {named} --reset-offsets"
        f" --from-file {shlex.quote(file)} --dry-run"
    )
