"""The tables of a lakehouse in a Spark session of the user's own, such as a notebook's.

Nothing is written but names in the catalogue of the session.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from groupledger.application import put_on_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_NO_DELTA = {"DATA_SOURCE_NOT_FOUND", "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG"}
_NO_TABLE = {"PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"}
_OF_OWNER = ("member_id", "group_instance_id", "client_id", "client_host", "generation")


def lakehouse(spark: SparkSession, path: str, cluster: str | None = None) -> Ledger:
    """Let a session read a lakehouse: by SQL, and by the methods of what is returned.

    All tables are views of the session, `bronze.x` to `dq.x`; the views and table functions of gold
    are there, too. `spark.sql("SELECT * FROM gold.timeline")` is then asked as
    `./spark-submit.sh sql` would be.

    Args:
        spark: a session with Delta Lake.
        path: the lakehouse, as `--lakehouse` takes it.
        cluster: the Kafka cluster whose rows are shown; those of all without it.

    Raises:
        LakehouseError: the session has no Delta Lake, or there are no tables.
        UsageError: the lakehouse has no such cluster.
    """
    put_on_path()
    return Ledger(spark, path, cluster)


class Ledger:
    """The tables of a lakehouse, as DataFrames.

    Times may be texts, as `--since` takes them (`"2026-11-21 07:01"` in UTC, `"2h ago"`), or
    datetimes.
    """

    def __init__(self, spark: SparkSession, path: str, cluster: str | None = None) -> None:
        from schemas.errors import UsageError  # noqa: PLC0415
        from schemas.tables import RECORDS  # noqa: PLC0415
        from storage.catalog import register  # noqa: PLC0415 - on the path since `lakehouse`
        from storage.lakehouse import Lakehouse  # noqa: PLC0415

        self.spark = spark
        self._tables = tables = Lakehouse(spark, path, cluster or "")
        _refuse_what_cannot_be_read(spark, path, tables.path(RECORDS))
        clusters = None
        if cluster is not None:
            known = tables.clusters(RECORDS)
            if cluster not in known:
                raise UsageError(
                    f"there is no cluster {cluster!r} in {path}, only {', '.join(known)}"
                )
            clusters = [cluster]
        current = spark.catalog.currentDatabase()
        try:
            register(tables, clusters=clusters, is_writable=False)
        finally:
            spark.catalog.setCurrentDatabase(current)

    def table(self, name: str) -> DataFrame:
        """Return a table or a view: `gold.lag`; one that no run has made yet has no rows.

        Raises:
            UsageError: there is none of this name.
        """
        from schemas.errors import UsageError  # noqa: PLC0415
        from schemas.tables import all_tables  # noqa: PLC0415

        if self.spark.catalog.tableExists(name):
            return self.spark.table(name)
        if name not in all_tables():
            raise UsageError(f"there is no table {name!r}: docs/tables.md has their names")
        return self._tables.read(all_tables()[name])

    def timeline(
        self,
        group: str | None = None,
        since: str | dt.datetime | None = None,
        until: str | dt.datetime | None = None,
    ) -> DataFrame:
        """Return the states that groups were in, with the cause of each rebalance, in order."""
        rows = _within(self.table("gold.timeline"), group, since, until)
        return rows.orderBy("cluster", "group_id", "sequence")

    def generations(
        self,
        group: str | None = None,
        since: str | dt.datetime | None = None,
        until: str | dt.datetime | None = None,
    ) -> DataFrame:
        """Return the generations of groups: what each rebalance took, who joined, left, and why."""
        rows = self.table("gold.group_generations")
        rows = _within(rows, group, since, until, start="join_started_at")
        return rows.orderBy("cluster", "group_id", "join_completed_at", "generation")

    def anomalies(
        self,
        group: str | None = None,
        since: str | dt.datetime | None = None,
        until: str | dt.datetime | None = None,
    ) -> DataFrame:
        """Return what was wrong, each with a sentence and its evidence."""
        rows = _within(self.table("gold.anomalies"), group, since, until)
        return rows.orderBy("started_at", "kind", "group_id")

    def owners(self, at: str | dt.datetime, group: str | None = None) -> DataFrame:
        """Return who owned each partition at a time.

        The owner is null behind `known_until`, where records are missing that may tell of another.
        """
        from pyspark.sql import functions as F  # noqa: PLC0415

        rows, moment = _within(self.table("gold.partition_owners"), group), _moment(at)
        is_over = F.coalesce(F.col("valid_to") <= moment, F.lit(False))  # noqa: FBT003 - a literal
        rows = rows.where((F.col("valid_from") <= moment) & ~is_over)
        is_known = F.col("known_until").isNull() | (F.col("known_until") >= moment)
        rows = rows.withColumns({name: F.when(is_known, F.col(name)) for name in _OF_OWNER})
        return rows.orderBy("cluster", "group_id", "topic", "topic_partition")


def _refuse_what_cannot_be_read(spark: SparkSession, path: str, table: str) -> None:
    """Say in a line what the session or the lakehouse lacks."""
    from schemas.errors import LakehouseError  # noqa: PLC0415
    from storage.catalog import foreign_layers  # noqa: PLC0415 - on the path since `lakehouse`
    from storage.tables import error_classes  # noqa: PLC0415

    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise LakehouseError(
            "this is a session of Spark Connect: give one that runs Spark in its own process"
        )
    try:
        spark.read.format("delta").load(table)
    except Exception as error:
        classes = error_classes(error)
        if classes & _NO_DELTA:
            raise LakehouseError(
                "the session has no Delta Lake: make it with the package, the extension and the "
                "catalogue that docs/sql.md shows"
            ) from error
        if classes & _NO_TABLE:
            raise LakehouseError(f"there are no tables in {path}: name the right folder") from error
        raise
    foreign = foreign_layers(spark)
    if foreign:
        raise LakehouseError(
            f"the catalogue of this session has a database {foreign[0]} that is somebody else's: "
            "give a session with a catalogue of its own (spark.sql.catalogImplementation=in-memory)"
        )


def _within(
    rows: DataFrame,
    group: str | None,
    since: str | dt.datetime | None = None,
    until: str | dt.datetime | None = None,
    start: str = "started_at",
) -> DataFrame:
    """Pick what a group did at some time of a window; what has no end still goes on."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    if group is not None:
        rows = rows.where(F.col("group_id") == group)
    if since is not None:
        end = F.col("ended_at")
        rows = rows.where(end.isNull() | (end > _moment(since)))
    return rows if until is None else rows.where(F.col(start) < _moment(until))


def _moment(at: str | dt.datetime) -> Column:
    from pyspark.sql import functions as F  # noqa: PLC0415

    from launch import times  # noqa: PLC0415

    if isinstance(at, str):
        at = times.moment(at, dt.datetime.now(dt.timezone.utc), dt.timezone.utc)
    elif at.tzinfo is None:
        at = at.replace(tzinfo=dt.timezone.utc)
    return F.timestamp_millis(F.lit(times.millis(at)))
