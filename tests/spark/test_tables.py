"""Tables are made, read and written by Delta alone, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from schemas.columns import ArrayOf, Column, ColumnType, StructOf
from schemas.ledger import RunId
from schemas.tables import (
    ANOMALIES,
    GROUP_CHECKPOINTS,
    GROUP_STATES,
    QUARANTINE,
    RECORDS,
    decoded_table,
)
from storage.lakehouse import Lakehouse
from storage.local import quickest
from storage.queries import rows_by
from storage.tables import OPEN_ROWS, among, spark_schema
from tests.conftest import RECORDINGS
from tests.support.balance import unbalanced
from tests.support.jobs import succeed

# What URLs, SQL and Hadoop take for something else.
ODD = ("a b#c?dé", "a%20b", 'it\'s "quoted"', "plus+and=equal,comma")


def checkpoint(group: str, state: str = "{}", run: int = 0) -> dict[str, object]:
    return {"group_id": group, "state": state, "history_run": run, "rebuilt_run": 0}


def groups(lakehouse: Lakehouse) -> list[str]:
    return sorted(row.group_id for row in lakehouse.read(GROUP_CHECKPOINTS).collect())


@pytest.fixture
def lakehouse(spark: SparkSession, lakehouse_path: str) -> Lakehouse:
    return Lakehouse(spark, lakehouse_path, "default")


def test_a_path_is_a_path_whatever_is_in_it(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path.joinpath(*ODD)
    for _ in range(2):
        succeed("silver", "--records", RECORDINGS / "4.3.1-connect.parquet", "--lakehouse", root)
    for name in ODD:
        assert [path.name for path in tmp_path.iterdir()] == [name]
        tmp_path /= name
    assert (root / "bronze" / "records" / "_delta_log").is_dir()
    # By Spark: to delta-rs a path is a URL.
    lakehouse = Lakehouse(spark, str(root), "default")
    specs = (*map(decoded_table, ("offset_commits", "group_metadata")), QUARANTINE)
    records, *decoded = (lakehouse.read(spec).toArrow() for spec in (RECORDS, *specs))
    assert records.num_rows
    assert not unbalanced(records, decoded)


@pytest.mark.parametrize("name", ["default", "eu-west.1_b", *ODD])
def test_a_cluster_without_a_folder_has_no_rows(
    spark: SparkSession, lakehouse_path: str, name: str
) -> None:
    """And one with rows may have some, however Spark calls its folder."""
    of_other, own = (Lakehouse(spark, lakehouse_path, c) for c in ("other", name))
    assert not own.may_hold(GROUP_CHECKPOINTS)  # the table is not there
    of_other.replace(GROUP_CHECKPOINTS, [checkpoint("g")])
    is_plain = name not in ODD
    assert own.may_hold(GROUP_CHECKPOINTS) is not is_plain
    own.replace(GROUP_CHECKPOINTS, [checkpoint("g")])
    assert own.may_hold(GROUP_CHECKPOINTS)
    folders = {path.name for path in Path(own.path(GROUP_CHECKPOINTS)).iterdir()}
    assert (f"cluster={name}" in folders) is is_plain


def test_a_table_says_what_it_holds(lakehouse: Lakehouse) -> None:
    lakehouse.create(ANOMALIES)
    details = DeltaTable.forPath(lakehouse.spark, lakehouse.path(ANOMALIES)).detail().collect()[0]
    assert tuple(details.partitionColumns) == ANOMALIES.partitions
    assert details.properties["delta.dataSkippingStatsColumns"] == ",".join(ANOMALIES.skipping)
    held = lakehouse.spark.read.format("delta").load(lakehouse.path(ANOMALIES)).schema
    comments = {c.name: c.comment for c in ANOMALIES.columns}
    assert {f.name: f.metadata["comment"] for f in held} == comments


def test_rows_are_of_the_cluster_that_wrote_them(lakehouse: Lakehouse) -> None:
    other = Lakehouse(lakehouse.spark, lakehouse.root, "007")  # which is no number
    lakehouse.append(GROUP_CHECKPOINTS, [checkpoint("a")])
    other.append(GROUP_CHECKPOINTS, [checkpoint("b")])
    assert (groups(lakehouse), groups(other)) == (["a"], ["b"])
    other.replace(GROUP_CHECKPOINTS, [checkpoint("c")])
    assert (groups(lakehouse), groups(other)) == (["a"], ["c"])


def test_the_rows_that_made_a_table_are_all_of_it_until_others_come(lakehouse: Lakehouse) -> None:
    for run, names in enumerate((["a", "b"], ["c"])):
        rows = [checkpoint(name, run=run) for name in names]
        lakehouse.append(GROUP_CHECKPOINTS, rows)
        lakehouse.keep(GROUP_CHECKPOINTS, rows, run)
        assert bool(lakehouse.read(GROUP_CHECKPOINTS).inputFiles()) is (run > 0)
    assert groups(lakehouse) == ["a", "b", "c"]


def test_a_write_of_a_run_is_done_once(lakehouse: Lakehouse) -> None:
    for number in (3, 3, 2):
        lakehouse.append(
            GROUP_CHECKPOINTS, [checkpoint(f"appended by {number}")], RunId("history", number)
        )
    lakehouse.append(GROUP_CHECKPOINTS, [checkpoint("of another stage")], RunId("other", 3))
    assert groups(lakehouse) == ["appended by 3", "of another stage"]
    for _ in range(2):
        lakehouse.replace(GROUP_CHECKPOINTS, [checkpoint("replaced")], RunId("history", 4))
        lakehouse.append(GROUP_CHECKPOINTS, [checkpoint("behind it")])
    assert groups(lakehouse) == ["behind it", "behind it", "replaced"]


@pytest.mark.parametrize("kind", ["list", "arrow", "spark"])
def test_rows_come_from_here_or_from_spark(lakehouse: Lakehouse, kind: str) -> None:
    rows = [checkpoint("a"), checkpoint("b", "é")]
    schema = spark_schema(GROUP_CHECKPOINTS.of_cluster)
    in_spark = lakehouse.with_cluster(GROUP_CHECKPOINTS, rows).drop("cluster")
    given = {"list": rows, "arrow": in_spark.toArrow(), "spark": in_spark}[kind]
    assert in_spark.schema.names == schema.names
    lakehouse.append(GROUP_CHECKPOINTS, given)  # type: ignore[arg-type]
    held = lakehouse.read(GROUP_CHECKPOINTS).orderBy("group_id").collect()
    assert [(row.group_id, row.state) for row in held] == [("a", "{}"), ("b", "é")]


@pytest.mark.parametrize("group", ["b", "it's", "x' OR '1'='1", 'a"\\b'])
def test_rows_that_meet_a_condition_are_replaced(lakehouse: Lakehouse, group: str) -> None:
    lakehouse.append(GROUP_CHECKPOINTS, [checkpoint("a"), checkpoint(group), checkpoint("c")])
    where = among("group_id", [group])
    lakehouse.replace(
        GROUP_CHECKPOINTS, [checkpoint("new"), checkpoint("d")], where=where
    )  # need not meet it
    assert groups(lakehouse) == ["a", "c", "d", "new"]


def test_open_rows_are_replaced_and_settled_ones_stay(lakehouse: Lakehouse) -> None:
    def row(sequence: int, *, is_settled: bool) -> dict[str, object]:
        known = {"group_id": "g", "group_type": "classic", "evidence": "exact", "history_run": 0}
        return {**known, "sequence": sequence, "is_settled": is_settled}

    lakehouse.append(GROUP_STATES, [row(0, is_settled=True), row(1, is_settled=False)])
    new = [row(1, is_settled=True), row(2, is_settled=False)]
    lakehouse.replace(GROUP_STATES, new, where=OPEN_ROWS)
    held = lakehouse.read(GROUP_STATES).orderBy("sequence").collect()
    assert [(r.sequence, r.is_settled) for r in held] == [(0, True), (1, True), (2, False)]


def test_rows_that_delta_marks_as_deleted_are_gone(lakehouse: Lakehouse) -> None:
    lakehouse.append(GROUP_CHECKPOINTS, [checkpoint("a"), checkpoint("b")])
    table = f"delta.`{lakehouse.path(GROUP_CHECKPOINTS)}`"
    sql = lakehouse.spark.sql
    sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
    sql(f"DELETE FROM {table} WHERE group_id = 'a'")
    assert groups(lakehouse) == ["b"]
    asked = {"groups": "SELECT count(*) AS rows FROM gold.group_checkpoints"}
    assert rows_by(quickest(lakehouse), asked) == {"groups": [{"rows": 1}]}


def test_a_table_of_an_older_release_lacks_a_column(lakehouse: Lakehouse) -> None:
    fewer = tuple(c for c in GROUP_CHECKPOINTS.columns if c.name != "rebuilt_run")
    lakehouse.append(replace(GROUP_CHECKPOINTS, columns=fewer), [checkpoint("old")])
    assert lakehouse.read(GROUP_CHECKPOINTS).where("rebuilt_run IS NULL").count() == 1
    lakehouse.append(GROUP_CHECKPOINTS, [checkpoint("new")])
    held = {row.group_id: row.rebuilt_run for row in lakehouse.read(GROUP_CHECKPOINTS).collect()}
    assert held == {"old": None, "new": 0}


def test_a_table_of_an_older_release_lacks_a_column_within_structs(lakehouse: Lakehouse) -> None:
    whole = decoded_table("group_metadata")
    former = replace(whole, columns=tuple(_without(c, "allocation") for c in whole.columns))
    worker = {"version": 2, "url": "http://w/", "config_offset": 7, "allocation_bytes": b"x"}
    row = dict.fromkeys(c.name for c in whole.of_cluster) | {
        "record_partition": 0,
        "record_offset": 0,
        "is_tombstone": False,
        "group_id": "g",
        "decode_run": 0,
        "members": [{"member_id": "m", "connect_subscription": worker}],
    }
    lakehouse.append(former, [row])
    [held] = lakehouse.read(whole).collect()
    [member] = held["members"]
    assert member["connect_subscription"]["allocation_bytes"] == b"x"
    assert member["connect_subscription"]["allocation"] is None
    given = worker | {"allocation": {"version": 2, "error": 0}}
    members = [{"member_id": "m", "connect_subscription": given}]
    lakehouse.append(whole, [row | {"record_offset": 1, "members": members}])
    found = {r["record_offset"]: r["members"][0] for r in lakehouse.read(whole).collect()}
    assert found[0]["connect_subscription"]["allocation"] is None
    assert found[1]["connect_subscription"]["allocation"]["version"] == 2
    assert found[1]["connect_subscription"]["allocation_bytes"] == b"x"


def _without(column: Column, name: str) -> Column:
    """Return a column without what is decoded of bytes in it."""

    def of(kind: ColumnType) -> ColumnType:
        if isinstance(kind, ArrayOf):
            return ArrayOf(of(kind.element))
        if not isinstance(kind, StructOf):
            return kind
        columns = [c for c in kind.columns if c.name not in (name, f"{name}_error")]
        return StructOf(tuple(replace(c, type=of(c.type)) for c in columns))

    return replace(column, type=of(column.type))


def test_runs_that_make_a_table_at_once_make_one(spark: SparkSession, lakehouse_path: str) -> None:
    def make(_: int) -> bool:
        lakehouse = Lakehouse(spark, lakehouse_path, "default")
        lakehouse.create(RECORDS)
        return lakehouse.exists(RECORDS)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(make, range(4))) == [True] * 4
    log = Path(lakehouse_path, "bronze", "records", "_delta_log").glob("*.json")
    assert sum('"metaData"' in commit.read_text() for commit in log) == 1


def test_arrow_batches_are_bounded_by_their_rows_alone(spark: SparkSession) -> None:
    """Only this value keeps Spark from asking for a batch's size after each row of it."""

    # Workers have no tests to import from: it is sent as code, which a function in a function is.
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": pa.array([batch.num_rows], pa.int64())})

    most = str(spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch"))
    assert most.rstrip("bB") == "2147483647"
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"
    wide = spark.range(0, 25_000, 1, 1).select(F.array_repeat(F.repeat(F.lit("x"), 500), 4))
    held = wide.mapInArrow(counted, "rows bigint").collect()
    assert [row.rows for row in held] == [10_000, 10_000, 5_000]
