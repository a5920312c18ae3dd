"""The decoder's only module with Spark: record batches pass through ``mapInArrow`` as they are."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from functools import cache
from importlib import resources

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from decoders.clients import ClientKey, hash_clients
from decoders.records import decode
from schemas.silver import decoded_columns
from schemas.tagged import ddl, tagged, tagged_columns

INPUT = ("record_partition", "record_offset", "record_timestamp", "key", "value")
"""Columns of the records that are decoded."""

DECODER_RELEASE = 3
"""Counts up whenever the code, not a declaration, learns to read what it refused before."""


@cache
def decoder_id() -> str:
    """Name this decoder: another id may read what one refused, and gets to try."""
    folder = resources.files("schemas") / "kafka"
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        digest.update(file.read_bytes())
    return f"{DECODER_RELEASE}-{digest.hexdigest()[:12]}"


def is_of_type(numbers: Iterable[int]) -> SparkColumn:
    """Return whether a record has one of some types."""
    # Comparing the bytes that a key starts with costs a tenth of making a number of them.
    starts = F.substring(F.col("key"), 1, 2)
    return starts.isin([number.to_bytes(2, "big", signed=True) for number in numbers])


def decoded(
    records: DataFrame, table: str, schema: StructType, clients: ClientKey | None = None
) -> DataFrame:
    """Decode records into the rows of one silver table; what does not go there is left out.

    The records have the columns of `INPUT`, the rows those of `schemas.silver.decoded_columns`.
    With a key, hashes stand for clients.
    """

    def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return (rows for _, rows in _rows((table,), clients, batches))

    return records.select(*INPUT).mapInArrow(rows_of, schema)


def decoded_together(
    records: DataFrame, tables: Collection[str], clients: ClientKey | None = None
) -> DataFrame:
    """Decode records as `decoded` does, for several silver tables in one: see `schemas.tagged`."""
    names = tuple(tables)
    columns = tagged_columns({table: decoded_columns(table) for table in names})

    def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return tagged(_rows(names, clients, batches), columns)

    return records.select(*INPUT).mapInArrow(rows_of, ddl(columns))


def quarantined(records: DataFrame, schema: StructType) -> DataFrame:
    """Return the records that cannot be decoded, with the reasons, see `quarantine_columns`."""

    def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return (rows for batch in batches for rows in decode(batch).quarantined)

    return records.select(*INPUT).mapInArrow(rows_of, schema)


def _rows(
    tables: Collection[str], clients: ClientKey | None, batches: Iterable[pa.RecordBatch]
) -> Iterable[tuple[str, pa.RecordBatch]]:
    for batch in batches:
        of_batch = decode(batch).tables
        for table in tables:
            for rows in of_batch.get(table, ()):
                yield table, rows if clients is None else hash_clients(rows, clients)
