"""What Kafka's own tools take: a script that deletes groups, offsets to go back to."""

from __future__ import annotations

import csv
import io
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from reporting.text import count, printable, to_second

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
