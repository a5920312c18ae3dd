"""SQL over the tables of a lakehouse on this machine, without Spark, which takes long to start."""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from schemas.columns import ArrayOf, ColumnType, StructOf, arrow_schema, in_millis
from schemas.errors import GroupledgerError
from schemas.tables import TableSpec, all_tables
from storage import files
from storage.queries import Ask, bound, by_spark, on_views, tables_of, view_of
from storage.tables import Tables, refuse_log

# The version of Delta's protocol for readers that knows data files alone: no deletion vectors, and
# no other names of columns.
_READER_VERSION = 1
# What needs more goes to a folder for temporary files.
_MOST_MEMORY = "500MB"
# What regular expressions of Java mean, and RE2, which DuckDB has, takes for something else: flags,
# sets within sets, and what Java has other letters and spaces for. What else RE2 lacks it refuses.
_OF_JAVA_ALONE = re.compile(r"&&|\[[^\]]*\[|\(\?(?!:|s\))|\\[bBsS]|[^\x00-\x7f]")
_ESCAPED = re.compile("%[0-9A-Fa-f]{2}")
_QUOTED = re.compile(r"\\Q.*?\\E", re.DOTALL)


class NeedsSparkError(GroupledgerError):
    """The tables cannot be read without Spark, which also says what is wrong with them."""


# Settings and functions by which DuckDB knows what Spark's SQL says. Its hash is another number
# than Spark's `xxhash64`: where it answers and Spark did before, all seems to be another.
_AS_SPARK = """
SET TimeZone = 'UTC';
SET default_null_order = 'nulls_first_on_asc_last_on_desc';
CREATE MACRO array_compact(list) AS list_filter(list, lambda each: each IS NOT NULL);
CREATE MACRO collect_set(value) AS coalesce(
  list(DISTINCT value) FILTER (WHERE value IS NOT NULL), []);
CREATE MACRO count_if(condition) AS count(CASE WHEN condition THEN 1 END);
CREATE MACRO explode(list) AS unnest(list);
CREATE MACRO java_hash(text) AS list_reduce(
  list_prepend(0::BIGINT, flatten([
    CASE WHEN point < 65536 THEN [point]
      ELSE [55296 + (point - 65536) // 1024, 56320 + (point - 65536) % 1024] END
    FOR point IN [unicode(substring(text, i, 1))::BIGINT FOR i IN range(1, length(text) + 1)]
  ])), lambda hash, unit: (hash * 31 + unit) & 4294967295);
CREATE MACRO max_by(value, number) AS arg_max_null(value, number);
CREATE MACRO min_by(value, number) AS arg_min_null(value, number);
CREATE MACRO regexp_like(string, pattern) AS regexp_matches(string, pattern);
CREATE MACRO size(list) AS len(list);
CREATE MACRO slice(list, start, count) AS array_slice(list, start, start + count - 1);
CREATE MACRO sort_array(list) AS list_sort(list);
CREATE MACRO startswith(text, beginning) AS starts_with(text, beginning);
CREATE MACRO timestamp_millis(millis) AS make_timestamptz(millis::BIGINT * 1000);
CREATE MACRO try_parse_json(text) AS try_cast(text AS JSON);
CREATE MACRO unix_millis(moment) AS epoch_ms(moment);
CREATE MACRO xxhash64(one, other, third) AS (hash(one, other, third) >> 1)::BIGINT;
"""


def asked_here(root: Path, cluster: str) -> Ask:
    """Return what has DuckDB answer queries over a cluster's rows in a lakehouse of this machine.

    The answers raise a `NeedsSparkError` if a table has a feature that is not known here, as
    deletion vectors, or is damaged, or if the value `pattern`, a regular expression, is one that
    Java alone knows.
    """

    def answers(queries: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, pa.Table]:
        # Where the default file system is another one, paths without a scheme are there.
        if not (root / "bronze").is_dir():
            raise NeedsSparkError(str(root))
        pattern = values.get("pattern") or ""
        if _OF_JAVA_ALONE.search(_QUOTED.sub("", pattern)):
            raise NeedsSparkError(pattern)
        # Two processes would write to the same files of one folder; DuckDB removes it at the end.
        spilled = Path(tempfile.gettempdir(), f"groupledger-{uuid.uuid4().hex}")
        try:
            with duckdb.connect() as connection:
                connection.execute(f"SET memory_limit = '{_MOST_MEMORY}'")
                connection.execute("SET temp_directory = ?", [str(spilled)])
                connection.execute(_AS_SPARK)
                for name in tables_of(*queries.values()):
                    _show(connection, root, cluster, all_tables()[name])
                asked = {
                    name: bound(on_views(in_duckdb(sql), view_of), values)
                    for name, sql in queries.items()
                }
                return {
                    name: _told(connection.execute(*query).to_arrow_table())
                    for name, query in asked.items()
                }
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
            raise  # the query is wrong
        except (DeltaError, duckdb.Error, pa.ArrowException, OSError) as error:
            raise NeedsSparkError(str(error)) from error
        except RuntimeError as error:  # DuckDB's word for Ctrl-C, and for texts that are none
            if "interrupted" in str(error):
                raise KeyboardInterrupt from error
            raise NeedsSparkError(str(error)) from error

    return answers


def _holds_structs(kind: ColumnType) -> bool:
    return isinstance(kind, ArrayOf) and isinstance(kind.element, StructOf)


def in_duckdb(sql: str) -> str:
    """Return some SQL with what Spark takes of each struct in a list as DuckDB does: `m.name`."""
    columns = [c for name in tables_of(sql) for c in all_tables()[name].columns]
    lists = {c.name for c in columns if _holds_structs(c.type)}
    of_each = rf"\b({'|'.join(sorted(lists)) or '(?!)'})\.(\w+)"
    return re.sub(of_each, r"list_transform(\1, lambda each: each.\2)", sql)


def quickest(tables: Tables) -> Ask:
    """Return what answers queries without Spark where that can be, and by it where it cannot."""
    spark = by_spark(tables)
    if (root := files.folder_here(tables.spark, tables.root)) is None:
        return spark
    here, refusals = asked_here(root, tables.cluster), list[NeedsSparkError]()

    def answers(queries: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, pa.Table]:
        if not refusals:  # what is asked behind one would be refused, too
            try:
                return here(queries, values)
            except NeedsSparkError as error:
                refusals.append(error)
        return spark(queries, values)

    return answers


def _told(rows: pa.Table) -> pa.Table:
    """Return an answer with Spark's types."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type):  # a sum of whole numbers
            rows = rows.set_column(at, field.name, rows[field.name].cast(pa.int64()))
    return in_millis(rows)


def _show(connection: duckdb.DuckDBPyConnection, root: Path, cluster: str, spec: TableSpec) -> None:
    """Make a view of a cluster's rows; a column that an older release did not write is null."""
    name, folder = view_of(spec.name), str(root / spec.name.replace(".", "/"))
    connection.register("declared", arrow_schema(spec.columns).empty_table())
    # A table of DuckDB's own: it cannot push what joins find out into one of Arrow's.
    connection.execute(f"CREATE TABLE {name}_declared AS FROM declared")
    rows = f"FROM {name}_declared"
    # What looks like an escape in a path delta-rs takes for one, and reads another folder's log.
    if _ESCAPED.search(folder):
        raise NeedsSparkError(folder)
    if DeltaTable.is_deltatable(folder):
        table = DeltaTable(folder)
        # With a checksum beside it, a commit that is cut off at its start is one of no files, to
        # Delta, too.
        if any(f.stat().st_size == 0 for f in Path(folder, "_delta_log").glob("*.json")):
            refuse_log(folder)
        if table.protocol().min_reader_version > _READER_VERSION:
            raise NeedsSparkError(folder)
        # Arrow would read far ahead of what a question has come to, and take the memory.
        uris = table.file_uris(file_pruning_predicate=[("cluster", "=", cluster)])
        of_folders = table.metadata().partition_columns
        # The path of the table is a URI's in them, that below it as it is.
        paths = [str(Path(folder, *Path(uri).parts[-len(of_folders) - 1 :])) for uri in uris]
        kinds = (f"{c.name}: {c.type.sql()}" for c in spec.columns if c.name in of_folders)
        if paths:
            rows += (
                f" UNION ALL BY NAME FROM read_parquet([{', '.join(map(in_quotes, paths))}],"
                f" union_by_name = true, hive_types = {{{', '.join(kinds)}}})"
            )
    try:
        connection.execute(f"CREATE VIEW {name} AS {rows}")
    except duckdb.Error as error:  # of types that do not go together
        raise NeedsSparkError(str(error)) from error


def in_quotes(text: str) -> str:
    """Return any text in DuckDB's SQL."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
