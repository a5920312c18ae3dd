"""Counts how often a run touches the tables of a lakehouse: scans by its event log, and commits.

``python -m benchmarks.touches EVENT_LOG`` prints the scans of a run by table, and Spark's jobs.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.engine import jobs_of

_TABLE = re.compile(r"(bronze|silver|gold|dq)/(\w+)")
_STARTED = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"


def scans(log: Path) -> Counter[str]:
    """Count the scans in the plans of a run, by table; those of a Delta log itself are left out."""
    found: Counter[str] = Counter()
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(f'{{"Event":"{_STARTED}"'):
                for node in _nodes(json.loads(line)["sparkPlanInfo"]):
                    found.update(_scanned(node))
    return found


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan["children"]:
        yield from _nodes(child)


def _scanned(node: dict[str, Any]) -> list[str]:
    location = node.get("metadata", {}).get("Location", "")
    table = _TABLE.search(location)
    is_of_table = node["nodeName"].startswith("Scan parquet") and "_delta_log" not in location
    return [f"{table[1]}.{table[2]}"] if is_of_table and table is not None else []


def commits(lakehouse: Path) -> Counter[str]:
    """Count the commits that the tables of a lakehouse have had."""
    logs = lakehouse.glob("*/*/_delta_log/*.json")
    return Counter(f"{log.parts[-4]}.{log.parts[-3]}" for log in logs)


def main(log: Path) -> None:
    """Print the scans of a run by table, and how many jobs it had."""
    found = scans(log)
    for table, count in found.most_common():
        print(f"{count:4} {table}")
    print(f"{found.total():4} scans, {jobs_of(log).total()} jobs")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
