"""Takes over a lakehouse of format 1, which kept the runs of each stage in a table of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from schemas.tables import ANOMALIES, COVERAGE, LAG, QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Row

    from lakehouse.tables import Lakehouse

# By stage: where its runs were, and the columns of their number and range.
_FORMER = {
    "decode": ("silver/decode_runs", "decode_run", "after_ingest_run", "to_ingest_run"),
    "history": ("gold/history_runs", "history_run", "after_decode_run", "to_decode_run"),
    "anomalies": ("gold/anomaly_runs", "anomalies_run", "after_history_run", "to_history_run"),
}


def former_runs(lakehouse: Lakehouse) -> list[dict[str, object]]:
    """Return the ledger's rows of the runs that a lakehouse of format 1 notes; none of another.

    Args:
        lakehouse: the tables, which has no ledger.
    """
    if not DeltaTable.isDeltaTable(lakehouse.spark, f"{lakehouse.root}/{_FORMER['decode'][0]}"):
        return []
    rows = [_row(stage, step) for stage in _FORMER for step in _steps(lakehouse, stage)]
    rows += _numbered(lakehouse)
    of_stage = {
        "decode": {"in_quarantine": lakehouse.read(QUARANTINE).count()},
        "anomalies": {"anomalies": _kinds(lakehouse)},
    }
    for row in rows:
        row["details"] |= of_stage.get(row["stage"], {})
    return [row | {"details": json.dumps(row["details"])} for row in rows]


def _kinds(lakehouse: Lakehouse) -> dict[str, int]:
    rows = lakehouse.read(ANOMALIES).groupBy("kind").count().orderBy("kind").collect()
    return {row["kind"]: row["count"] for row in rows}


def _steps(lakehouse: Lakehouse, stage: str) -> list[Row]:
    path = f"{lakehouse.root}/{_FORMER[stage][0]}"
    if not DeltaTable.isDeltaTable(lakehouse.spark, path):
        return []
    rows = lakehouse.spark.read.format("delta").load(path)
    return rows.where(F.col("cluster") == lakehouse.cluster).collect()


def _row(stage: str, step: Row) -> dict[str, Any]:
    _, run, after, to = _FORMER[stage]
    given = step.asDict(recursive=True)
    rows, details = _noted(stage, given)
    return {
        "stage": stage,
        "run": given[run],
        "state": given["step"],
        "at": given["at"],
        "after_run": given[after],
        "to_run": given[to],
        "is_refresh": given[run] > 0 and given[after] < 0,
        "rows": rows if given["step"] == "done" else None,
        "details": details,
    }


def _noted(stage: str, step: dict[str, Any]) -> tuple[list[dict[str, object]], dict[str, Any]]:
    """Return the rows by table, and the details, that a step of a run notes."""
    if stage == "decode":
        by_table = {p["table_name"]: p["records"] for p in step["decoded_by_table"] or ()}
        rows = {f"silver.{name}": count for name, count in by_table.items()}
        rows[QUARANTINE.name] = step["quarantined"] or 0
        kept = ("retried", "decoder", "clients", "quarantined")
        details = {name: step.get(name) for name in kept}
        return [{"table_name": n, "rows": c} for n, c in sorted(rows.items())], details
    if stage == "history":
        partitions = step["partitions"] or ()
        return [], {
            "positions": {str(p["record_partition"]): p["next_offset"] for p in partitions},
            "last_holes": {str(p["record_partition"]): p["last_hole"] for p in partitions},
        }
    as_of = step["as_of"]
    millis = None if as_of is None else round(as_of.timestamp() * 1000)
    return [], {"as_of": millis, "thresholds": step["thresholds"]}


def _numbered(lakehouse: Lakehouse) -> Iterator[dict[str, Any]]:
    """Return the last runs of the stages that have had none but the numbers in their rows."""
    for stage, spec, column in (("ingest", COVERAGE, "ingest_run"), ("lag", LAG, "lag_run")):
        last = lakehouse.read(spec).agg(F.max(column).alias("run"), F.current_timestamp()).first()
        if last is not None and last.run is not None:
            yield {"stage": stage, "run": last.run, "state": "done", "at": last[1], "details": {}}
