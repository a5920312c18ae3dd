"""A row that a declaration does not allow is refused, in one line, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from schemas.errors import LakehouseError
from schemas.ledger import RunId
from schemas.tables import ANOMALIES, RECORDS, TableSpec, all_tables
from storage.lakehouse import Lakehouse
from storage.tables import spark_schema


def rows_of(spark: SparkSession, spec: TableSpec, **values: object) -> DataFrame:
    made = {"topic": "t", "record_partition": 0, "record_offset": 0, "anomaly_id": "a"} | values
    rows = [tuple(made.get(c.name) for c in spec.columns)]
    return spark.createDataFrame(rows, spark_schema(spec.columns))


@pytest.mark.parametrize(
    ("spec", "values", "line"),
    [
        (RECORDS, {"topic": None}, "bronze.records: a row lacks topic;"),
        (RECORDS, {"record_offset": -1}, "bronze.records: a row breaks the constraint position: "),
        (ANOMALIES, {"severity": "bad"}, "gold.anomalies: a row breaks the constraint severity: "),
    ],
)
def test_a_row_that_is_not_allowed_is_refused(
    spark: SparkSession, lakehouse_path: str, spec: TableSpec, values: dict[str, object], line: str
) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    with pytest.raises(LakehouseError) as refused:
        lakehouse.append(spec, rows_of(spark, spec, **values), RunId("test", 0))
    assert str(refused.value).startswith(line)
    with pytest.raises(LakehouseError) as refused:
        lakehouse.replace(spec, rows_of(spark, spec, **values))
    assert str(refused.value).startswith(line)
    assert lakehouse.read(spec).count() == 0


def test_no_table_is_made_among_other_files(spark: SparkSession, lakehouse_path: str) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    folder = Path(lakehouse.path(RECORDS))
    spark.range(1).write.parquet(str(folder))
    before = sorted(folder.iterdir())
    with pytest.raises(LakehouseError, match="holds files that are no Delta table"):
        lakehouse.append(RECORDS, rows_of(spark, RECORDS))
    assert sorted(folder.iterdir()) == before


def test_other_readers_take_a_table_with_constraints(
    spark: SparkSession, lakehouse_path: str
) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    lakehouse.append(RECORDS, rows_of(spark, RECORDS))
    assert len(DeltaTable(lakehouse.path(RECORDS)).history()) == 1
    assert DeltaTable(lakehouse.path(RECORDS)).to_pyarrow_table().num_rows == 1


def test_constraints_name_columns_of_their_table() -> None:
    for spec in all_tables().values():
        names = {c.name for c in spec.columns}
        assert set(spec.required) <= names
        for _, condition in spec.constraints:
            assert any(name in condition for name in names)
