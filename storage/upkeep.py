"""Keeps the tables of a lakehouse small and quick: few files, and none that nothing reads."""

from __future__ import annotations

from dataclasses import dataclass

from delta.exceptions import DeltaConcurrentModificationException
from delta.tables import DeltaTable

from schemas.errors import LakehouseError
from schemas.tables import TableSpec
from storage.lakehouse import Lakehouse
from storage.tables import sql_text

_MIB = 2**20
# Runs add to a file of this size or more no longer, so that no byte is rewritten over and over.
_SMALL = 64 * _MIB
_LARGE = 128 * _MIB
# Fewer files cost a reader nothing.
_FEW = 4
# Looking for old files takes as long as all else, and few become old so soon after the last time.
_SOON_MS = 12 * 3_600_000
_OPEN = "is_settled"
_EXPIRES = "delta.setTransactionRetentionDuration"
_CONF = {
    "spark.databricks.delta.optimize.minFileSize": str(_SMALL),
    "spark.databricks.delta.optimize.maxFileSize": str(_LARGE),
    # Whether hours are few is checked where options are.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Two commits for each table, to say that it was done.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
}


@dataclass(frozen=True)
class Stored:
    """What a table takes."""

    files: int  # files that its newest version has
    bytes: int  # bytes of those
    created_ms: int  # when the table was made, in epoch milliseconds
    modified_ms: int  # time of its newest version

    @property
    def is_crowded(self) -> bool:
        """Whether it has so many files that small ones may be worth putting together."""
        return self.files > _FEW

    def may_vacuum(self, before_ms: int, last_before_ms: int | None) -> bool:
        """Return whether to look for files that no version has had since then.

        `last_before_ms` is that time of the last `vacuum`.
        """
        if last_before_ms is None:
            return self.created_ms < before_ms
        return self.modified_ms > last_before_ms and before_ms - last_before_ms >= _SOON_MS


def prepare(lakehouse: Lakehouse) -> None:
    """Set what files are to be like, for the session."""
    for key, value in _CONF.items():
        lakehouse.spark.conf.set(key, value)


def stored(lakehouse: Lakehouse, spec: TableSpec) -> Stored:
    """Measure a table."""
    detail = _table(lakehouse, spec).detail()
    times = (f"unix_millis({name})" for name in ("createdAt", "lastModified"))
    row = detail.selectExpr("properties", "numFiles", "sizeInBytes", *times).collect()[0]
    if _EXPIRES in row[0]:
        raise LakehouseError(
            f"{lakehouse.path(spec)} has the property {_EXPIRES}, with which a repeated run would "
            "write its rows twice: remove it (ALTER TABLE, UNSET TBLPROPERTIES)"
        )
    return Stored(*row[1:])


def compact(lakehouse: Lakehouse, spec: TableSpec) -> bool:
    """Put the small files of a table together; False if another write got in the way."""
    optimize = _table(lakehouse, spec).optimize()
    if _OPEN in spec.partitions:
        # Each run writes the open rows again.
        optimize = optimize.where(f"{_OPEN} = true")
    try:
        optimize.executeCompaction()
    except DeltaConcurrentModificationException:
        return False
    return True


def vacuum(lakehouse: Lakehouse, spec: TableSpec, hours: int) -> None:
    """Delete files that no version of the last hours has."""
    _table(lakehouse, spec).vacuum(float(hours))


def removable(lakehouse: Lakehouse, spec: TableSpec, hours: int) -> int:
    """Count the files that `vacuum` would delete."""
    sql = f"VACUUM {_name(lakehouse, spec)} RETAIN {hours} HOURS DRY RUN"
    return len(lakehouse.spark.sql(sql).collect())


def forget(lakehouse: Lakehouse, spec: TableSpec, condition: str) -> int:
    """Delete this cluster's rows that meet a condition; give their number."""
    of_cluster = f"cluster = {sql_text(lakehouse.cluster)} AND ({condition})"
    sql = f"DELETE FROM {_name(lakehouse, spec)} WHERE {of_cluster}"  # noqa: S608
    return int(lakehouse.spark.sql(sql).collect()[0]["num_affected_rows"])


def _table(lakehouse: Lakehouse, spec: TableSpec) -> DeltaTable:
    return DeltaTable.forPath(lakehouse.spark, lakehouse.path(spec))


def _name(lakehouse: Lakehouse, spec: TableSpec) -> str:
    return f"delta.`{lakehouse.path(spec).replace('`', '``')}`"
