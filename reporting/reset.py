"""Offsets to go back to, as Kafka's own tool takes them."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""A row of `gold.offsets_at`."""


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
