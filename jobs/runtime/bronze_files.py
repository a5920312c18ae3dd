"""Bronze straight from Parquet files: each task copies its share, as Arrow reads and writes it.

It takes a disk that driver and tasks share; elsewhere Spark reads and writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.columns import arrow_schema
from schemas.tables import RECORDS
from sources import parquet
from storage.files import FileWriter, in_tasks_of_files, read

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import SparkSession

    from storage.files import DataFile, RowGroups


@dataclass(frozen=True)
class Target:
    """Where records go, and what their rows say of the run.

    Attributes:
        root: folder of the lakehouse.
        cluster: the cluster whose records they are.
        ingested_at: start of the run.
        ingest_run: its number.
    """

    root: str
    cluster: str
    ingested_at: dt.datetime
    ingest_run: int


def write(spark: SparkSession, paths: list[str], topic: str, target: Target) -> list[DataFile]:
    """Write files with the records of a topic, to be added to bronze.records.

    Args:
        spark: the session.
        paths: the Parquet files that hold them; see `sources.parquet`.
        topic: the topic's name.
        target: where to.
    """
    parts = in_tasks_of_files(spark, paths, partial(_copy, topic, target))
    return [file for part in parts for file in part]


def _copy(topic: str, target: Target, share: list[RowGroups]) -> list[DataFile]:
    schema = arrow_schema(RECORDS.in_files)
    writer = FileWriter(target.root, target.cluster)
    for batch in read(share, list(parquet.COLUMNS)):
        records = parquet.of_topic(batch, topic)
        if not records.num_rows:
            continue
        of_run = {"ingested_at": target.ingested_at, "ingest_run": target.ingest_run}
        columns = [
            pa.repeat(pa.scalar(of_run[f.name], f.type), records.num_rows)
            if f.name in of_run
            else records.column(f.name)
            for f in schema
        ]
        writer.add(RECORDS, pa.RecordBatch.from_arrays(columns, schema=schema))
    return [file for _, file in writer.close()]
