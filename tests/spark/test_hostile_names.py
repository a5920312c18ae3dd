"""Anyone who may use a group chooses its name: no name is ever SQL, a path, markup or a command."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from benchmarks.generate import SCHEMA
from schemas.tables import COMMITTED_OFFSETS, GROUP_STATES
from tests.factories import group_metadata, member, offset_commit
from tests.support.jobs import query, run, succeed, table

HOSTILE = (
    "x' OR '1'='1",
    "'); DROP TABLE gold.anomalies; --",
    '"`\\',
    "../../../../tmp/escaped",
    "cluster=other/group",
    "<script>alert(1)</script><!--",
    "[bold red]markup[/]",
    '=HYPERLINK("http://example.org")',
    "\x1b]0;title\x07\x1b[2J\x1b[31mred",
    "\u202egnp.exe",
    "${env:HOME} %(x)s {0}",
    '\n{"job": "forged"}\ngroupledger: forged',
    "\x00",
    "",
)


@pytest.mark.slow
def test_hostile_names_stay_names(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "lakehouse"
    for number in range(2):  # what the second brings goes behind what is known of the groups
        records = []
        for group in HOSTILE:
            who = member(memberId=f"{group}-m", clientId=group, clientHost=group)
            records += [
                group_metadata(who, group=group, generation=number + 1),
                offset_commit(key={"group": group, "topic": group or "t"}, metadata=group),
            ]
        first, time_ms = number * len(records), 1_700_000_000_000
        rows = [
            ("__consumer_offsets", 0, first + n, time_ms + n, "CreateTime", *pair)
            for n, pair in enumerate(records)
        ]
        path = tmp_path / f"{number}.parquet"
        values = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
        pq.write_table(pa.Table.from_pylist(values, SCHEMA), path)
        skipped = ("--skip", "validate,report") if number == 0 else ()
        outcome = run("pipeline", "--records", path, "--lakehouse", root, *skipped)
        assert outcome.status == 0, outcome.err
        shown = outcome.out + outcome.err
        assert not [c for c in shown if not c.isprintable() and c != "\n"]
        assert not [line for line in shown.splitlines() if line.startswith("groupledger:")]
        assert '"forged"}' not in shown
    for name in (GROUP_STATES.name, COMMITTED_OFFSETS.name, "silver.offset_commits"):
        found = table(spark, str(root), name).select("group_id").distinct().collect()
        assert {row.group_id for row in found} == set(HOSTILE), name
    assert {path.name for path in tmp_path.iterdir()} == {"lakehouse", "0.parquet", "1.parquet"}
    folders = {path.name for path in root.rglob("*") if path.is_dir()}
    assert not [
        name for name in folders if name.startswith("cluster=") and name != "cluster=default"
    ]
    assert "<script>alert(1)" not in (root / "report.html").read_text("utf-8")
    listed = query(str(root), "SELECT DISTINCT group_id FROM gold.group_states")
    assert {row["group_id"] for row in listed} == set(HOSTILE)
    text = run("sql", "--lakehouse", root, "--query", "SELECT group_id FROM gold.group_health").out
    assert "\x1b" not in text
    for group in HOSTILE:
        shown = run("explain", "--lakehouse", root, f"--group={group}").out
        assert not [c for c in shown if not c.isprintable() and c != "\n"]
    assert succeed("maintain", "--lakehouse", root)["rows_deleted"] == 0
