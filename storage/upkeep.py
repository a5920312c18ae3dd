"""Keeps the tables of a lakehouse small and quick: few files, and none that nothing reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from storage.errors import LakehouseError

if TYPE_CHECKING:
    from schemas.tables import TableSpec
    from storage.tables import Lakehouse

_MIB = 2**20
# Runs add to a file of this size or more no longer, so that no byte is rewritten over and over.
_SMALL = 64 * _MIB
_LARGE = 128 * _MIB
# Fewer small files cost a reader nothing.
_FEW = 4
_OPEN = "is_settled"
_EXPIRES = "delta.setTransactionRetentionDuration"
_CONFLICT = "DELTA_CONCURRENT"
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
    """What a table takes.

    Attributes:
        files: files that its newest version has.
        crowded: small files of it that lie beside more than a few others.
        stored_files: all that is in its folder, older versions and the log with it.
        stored_bytes: bytes of those.
    """

    files: int
    crowded: int
    stored_files: int
    stored_bytes: int


def prepare(lakehouse: Lakehouse) -> None:
    """Set what files are to be like, for the session."""
    for key, value in _CONF.items():
        lakehouse.spark.conf.set(key, value)


def stored(lakehouse: Lakehouse, spec: TableSpec) -> Stored:
    """Measure a table.

    Raises:
        LakehouseError: its transaction identifiers expire.
    """
    snapshot = lakehouse.snapshot(spec)
    if snapshot.metadata().configuration().contains(_EXPIRES):
        raise LakehouseError(
            f"{lakehouse.path(spec)} has the property {_EXPIRES}: Delta would forget which runs it "
            "has, and take one twice. Unset it (ALTER TABLE … UNSET TBLPROPERTIES)"
        )
    files = DataFrame(snapshot.allFiles().toDF(), lakehouse.spark)
    # The open rows are written anew by each run.
    is_small = (F.col("size") < _SMALL) & (
        F.coalesce(F.col("partitionValues")[_OPEN], F.lit("true")) == "true"
    )
    by_partition = files.groupBy(F.to_json("partitionValues").alias("partition")).agg(
        F.count("*").alias("files"), F.count(F.when(is_small, 1)).alias("small")
    )
    rows = by_partition.collect()
    path: Any = lakehouse.spark._jvm.org.apache.hadoop.fs.Path(lakehouse.path(spec))  # type: ignore[union-attr]  # noqa: SLF001
    conf = lakehouse.spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    folder = path.getFileSystem(conf).getContentSummary(path)
    return Stored(
        sum(row.files for row in rows),
        sum(row.small for row in rows if row.small > _FEW),
        folder.getFileCount(),
        folder.getLength(),
    )


def compact(lakehouse: Lakehouse, spec: TableSpec) -> bool:
    """Put the small files of a table together; False if another write got in the way."""
    optimize = DeltaTable.forPath(lakehouse.spark, lakehouse.path(spec)).optimize()
    if _OPEN in spec.partitions:
        optimize = optimize.where(f"{_OPEN} = true")
    try:
        optimize.executeCompaction()
    except Exception as error:
        if _CONFLICT in str(error):
            return False
        raise
    return True


def vacuum(lakehouse: Lakehouse, spec: TableSpec, hours: int) -> None:
    """Delete files that no version of the last hours has."""
    jvm: Any = lakehouse.spark._jvm  # noqa: SLF001
    # Delta prints a line for each table, on the stdout that has our summary.
    nowhere = jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream())
    console = getattr(getattr(jvm, "scala.Console$"), "MODULE$")
    shown = console.out()
    console.setOutDirect(nowhere)
    try:
        DeltaTable.forPath(lakehouse.spark, lakehouse.path(spec)).vacuum(float(hours))
    finally:
        console.setOutDirect(shown)


def removable(lakehouse: Lakehouse, spec: TableSpec, hours: int) -> int:
    """Count the files that `vacuum` would delete."""
    path = lakehouse.path(spec).replace("`", "``")
    return lakehouse.spark.sql(f"VACUUM delta.`{path}` RETAIN {hours} HOURS DRY RUN").count()


def forget(lakehouse: Lakehouse, spec: TableSpec, condition: str) -> int:
    """Delete this cluster's rows that meet a condition; give their number."""
    where = f"cluster = '{lakehouse.cluster}' AND ({condition})"
    count = lakehouse.read(spec).where(condition).count()
    if count:
        DeltaTable.forPath(lakehouse.spark, lakehouse.path(spec)).delete(where)
    return count
