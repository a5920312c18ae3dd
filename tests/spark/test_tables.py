"""Tables on this disk, read and written past Spark, are what Spark takes them for."""

from __future__ import annotations

import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from schemas.tables import (
    COMMITTED_OFFSETS,
    GROUP_HEADS,
    GROUP_STATES,
    HISTORY_RUNS,
    RECORDS,
    all_tables,
)
from storage import tables
from storage.conditions import EVERY_ROW, OPEN_ROWS
from storage.errors import LakehouseError
from storage.queries import DuckDBQueries, SparkQueries, create_view, queries_of
from storage.tables import Lakehouse
from storage.upkeep import stored
from tests.conftest import RECORDINGS
from tests.support.jobs import succeed, unasked

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from schemas.tables import TableSpec
    from storage.conditions import Where

# What URLs take for something else; of the second, delta-rs would take another path.
ODD, MISTAKEN = "a b#c?dé", "a%20b"
# Which is no number.
OTHER = "007"
# While the recording of the tests was made.
WITHIN = dt.datetime(2026, 11, 21, 7, 6, tzinfo=dt.timezone.utc)


@pytest.fixture(scope="module")
def lakehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    root = tmp_path_factory.mktemp("tables") / ODD
    for cluster in ("default", OTHER):
        argv = ("--records", RECORDINGS / "4.3.1-modern.parquet", "--cluster", cluster)
        succeed("pipeline", *argv, "--lakehouse", root)
    return Lakehouse(spark, str(root), OTHER)


def by_delta(lakehouse: Lakehouse, spec: TableSpec) -> DataFrame:
    """Read a table as anybody does."""
    rows = lakehouse.spark.read.format("delta").load(lakehouse.path(spec))
    return rows.where(F.col("cluster") == lakehouse.cluster)


def described(rows: DataFrame) -> list[str]:
    return sorted(row.j for row in rows.select(F.to_json(F.struct("*")).alias("j")).collect())


@pytest.mark.parametrize("are_small", [True, False])
def test_a_table_is_what_delta_says(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch, *, are_small: bool
) -> None:
    if not are_small:
        monkeypatch.setattr(tables, "_SMALL_BYTES", 0)
    made = [spec for spec in all_tables().values() if lakehouse.exists(spec)]
    assert len(made) > 20
    anew = Lakehouse(lakehouse.spark, lakehouse.root, lakehouse.cluster)
    for spec in made:
        read, found = anew.read(spec), by_delta(lakehouse, spec)
        assert [(f.name, f.dataType) for f in read.schema] == [
            (f.name, f.dataType) for f in found.schema
        ]
        assert described(read) == described(found), spec.name


def test_a_table_is_made_as_delta_makes_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for way in ("here", "by_delta"):
        if way == "by_delta":
            monkeypatch.setattr(Lakehouse, "local_root", None)
        lakehouse = Lakehouse(spark, str(tmp_path / way), "default")
        lakehouse.ensure(RECORDS)
        lakehouse.ensure(COMMITTED_OFFSETS)
        made.append([_made(tmp_path / way, spec) for spec in (RECORDS, COMMITTED_OFFSETS)])
    assert made[0] == made[1]


def _made(root: Path, spec: TableSpec) -> dict[str, object]:
    (log,) = root.joinpath(*spec.name.split("."), "_delta_log").glob("*.json")
    actions: dict[str, dict[str, object]] = {}
    for line in log.read_text().splitlines():
        actions |= json.loads(line)
    metadata = actions["metaData"]
    schema = json.loads(str(metadata["schemaString"]))
    properties = {**metadata["configuration"]}  # type: ignore[dict-item]
    properties.pop("delta.minWriterVersion", None)
    told = {name: metadata[name] for name in ("description", "format", "partitionColumns")}
    return {**told, **actions["protocol"], "schema": schema, "properties": properties}


def test_sql_is_answered_alike_by_duckdb_and_spark(lakehouse: Lakehouse) -> None:
    made = [spec for spec in all_tables().values() if lakehouse.exists(spec)]
    asked = [f"SELECT * FROM {spec.name}" for spec in made]
    with queries_of(lakehouse, made) as here:
        assert isinstance(here, DuckDBQueries)
        by_duckdb = here.answers(asked)
    by_spark = SparkQueries(lakehouse, made).answers(asked)
    for spec, given, wanted in zip(made, by_duckdb, by_spark, strict=True):
        assert sorted(map(repr, given)) == sorted(map(repr, wanted)), spec.name


def test_what_duckdb_has_too_little_memory_for_spark_answers(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.queries._MEMORY", "20MB")
    # A list has to be held as a whole.
    numbers = "SELECT explode(sequence(1, 3000000)) AS number"
    asked = f"SELECT size(collect_list(number)) AS numbers FROM ({numbers})"
    with queries_of(lakehouse, [RECORDS]) as here:
        assert isinstance(here, DuckDBQueries)
        assert here.answers([asked]) == [[{"numbers": 3_000_000}]]
    connection = duckdb.connect(config={"memory_limit": "20MB"})
    with connection, pytest.raises(AssertionError, match="too little memory"):
        DuckDBQueries(connection, unasked).answers([asked])


def _cut(content: bytes) -> bytes:
    return content[:-1]


def _with_a_page_of_noise(content: bytes) -> bytes:
    return content[:4] + b"\xff" * 60 + content[64:]


@pytest.mark.parametrize("damage", [_cut, _with_a_page_of_noise])
def test_a_file_that_duckdb_cannot_read_is_named(
    spark: SparkSession, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    lakehouse = Lakehouse(spark, str(tmp_path), "default")
    row = {"history_run": 0, "step": "done", "after_decode_run": 0, "to_decode_run": 1}
    for number in range(2):
        assert lakehouse.append_rows(HISTORY_RUNS, [row], "test", number)
    path, _ = lakehouse.local_files_of(HISTORY_RUNS) or []
    Path(path).write_bytes(damage(Path(path).read_bytes()))
    with pytest.raises(LakehouseError, match=path), queries_of(lakehouse, [HISTORY_RUNS]) as here:
        here.answers([f"SELECT * FROM {HISTORY_RUNS.name}"])


def test_sql_sees_null_where_an_older_release_wrote_no_column(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"step": ["done"], "cluster": ["of another name"]}), path)
    with duckdb.connect() as connection:
        create_view(
            connection, HISTORY_RUNS, [{"path": str(path), "partition": {"cluster": "it's"}}]
        )
        asked = ["SELECT cluster, step, at, partitions FROM gold.history_runs"]
        ((row,),) = DuckDBQueries(connection, unasked).answers(asked)
    assert row == {"cluster": "it's", "step": "done", "at": None, "partitions": None}


def test_rows_of_a_table_are_read_again_after_each_write(lakehouse: Lakehouse) -> None:
    row = {"history_run": 99, "step": "done", "after_decode_run": 0, "to_decode_run": 1}
    before = lakehouse.read(HISTORY_RUNS).count()
    assert lakehouse.append_rows(HISTORY_RUNS, [row], "test", 0)
    assert lakehouse.read(HISTORY_RUNS).count() == before + 1
    by_delta(lakehouse, HISTORY_RUNS).limit(0).write.format("delta").mode("append").save(
        lakehouse.path(HISTORY_RUNS)
    )
    assert lakehouse.read(HISTORY_RUNS).count() == before + 1
    assert not lakehouse.append_rows(HISTORY_RUNS, [row], "test", 0)


def test_a_path_that_would_be_mistaken(spark: SparkSession, tmp_path: Path) -> None:
    for folder in (tmp_path / MISTAKEN, tmp_path / "a b"):
        lakehouse = Lakehouse(spark, str(folder), "default")
        assert not lakehouse.exists(GROUP_HEADS)
        assert lakehouse.last_write(GROUP_HEADS, "test") == -1
        lakehouse.replace(GROUP_HEADS, lakehouse.read(GROUP_HEADS), EVERY_ROW, "test", 7)
        assert lakehouse.last_write(GROUP_HEADS, "test") == 7
        assert (lakehouse.local_root is None) == (folder.name == MISTAKEN)


def test_rows_that_delta_marks_as_deleted_stay_away(lakehouse: Lakehouse) -> None:
    table = f"delta.`{lakehouse.path(GROUP_HEADS)}`"
    sql = lakehouse.spark.sql
    sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
    group = lakehouse.read(GROUP_HEADS).orderBy("group_id").first()
    assert group is not None
    sql(f"DELETE FROM {table} WHERE cluster = '{OTHER}' AND group_id = '{group.group_id}'")
    assert lakehouse.read(GROUP_HEADS).where(F.col("group_id") == group.group_id).isEmpty()
    assert lakehouse.local_files_of(GROUP_HEADS) is None
    left = described(lakehouse.read(GROUP_HEADS))
    with queries_of(lakehouse, [GROUP_HEADS]) as queries:
        ((row,),) = queries.answers(["SELECT count(*) AS rows FROM gold.group_heads"])
    assert row["rows"] == len(left)
    lakehouse.replace(GROUP_HEADS, lakehouse.read(GROUP_HEADS), EVERY_ROW, "test", 0)
    assert described(by_delta(lakehouse, GROUP_HEADS)) == left
    assert lakehouse.last_write(GROUP_HEADS, "test") == 0


@pytest.mark.parametrize(
    "look",
    [
        lambda lakehouse: stored(lakehouse, HISTORY_RUNS).files,
        lambda lakehouse: by_delta(lakehouse, HISTORY_RUNS).count(),
    ],
)
def test_delta_is_asked_in_any_thread(
    spark: SparkSession, tmp_path: Path, look: Callable[[Lakehouse], int]
) -> None:
    """Threads that Python starts are none of the session's in the JVM, and checkpoints need it."""
    lakehouse = Lakehouse(spark, str(tmp_path), "default")
    row = {"history_run": 0, "step": "done", "after_decode_run": 0, "to_decode_run": 1}
    writes = 12
    for number in range(writes):
        assert lakehouse.append_rows(HISTORY_RUNS, [row | {"history_run": number}], "test", number)
    assert list(Path(lakehouse.path(HISTORY_RUNS)).glob("_delta_log/*.checkpoint*.parquet"))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(look, lakehouse).result() == writes


@pytest.mark.parametrize(
    "where",
    [
        [],
        [[("state", "==", "Stable")]],
        [[("ended_at", "is null", None)], [("duration_ms", "<", 1_000)]],
        [[("state", "in", ["Empty", "Stable"]), ("sequence", ">", 0), ("is_settled", "==", True)]],
        [[("started_at", ">=", WITHIN)], [("started_at", "<=", WITHIN), ("sequence", "<=", 1)]],
    ],
)
def test_rows_are_read_here_as_spark_reads_them(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch, where: Where
) -> None:
    names = [c.name for c in GROUP_STATES.columns]
    here = lakehouse.rows(GROUP_STATES, names, where)
    monkeypatch.setitem(lakehouse.__dict__, "local_root", None)
    by_spark = lakehouse.rows(GROUP_STATES, names, where)
    assert here.schema == by_spark.schema
    assert sorted(map(repr, here.to_pylist())) == sorted(map(repr, by_spark.to_pylist()))
    assert here.num_rows


@pytest.mark.parametrize(
    "where",
    [
        EVERY_ROW,
        OPEN_ROWS,
        [*OPEN_ROWS, [("group_id", "in", ["modern-1", "x' OR '1'='1"]), ("sequence", ">", 2)]],
        [[("ended_at", "is null", None)], [("started_at", ">=", WITHIN)]],
    ],
)
def test_rows_are_replaced_here_as_delta_replaces_them(
    spark: SparkSession, lakehouse: Lakehouse, tmp_path: Path, where: Where
) -> None:
    rows = lakehouse.read(GROUP_STATES).drop("cluster")
    held = []
    for number, is_here in enumerate((True, False)):
        other = Lakehouse(spark, str(tmp_path / str(number)), "default")
        if not is_here:
            other.__dict__["local_root"] = None
        for version, part in enumerate(rows.randomSplit([0.4, 0.3, 0.3], seed=7)):
            other.append(GROUP_STATES, part, "test", version)
        new = rows.where("sequence = 1").withColumn("history_run", F.lit(99).cast("bigint"))
        for _ in range(2):  # the second time it is done
            other.replace(GROUP_STATES, new, where, "test", 3)
        held.append(described(by_delta(other, GROUP_STATES)))
    assert held[0] == held[1]
    assert any('"history_run":99' in row for row in held[0])
    assert (len(held[0]) == rows.where("sequence = 1").count()) == (where == EVERY_ROW)
