"""Gives the tables of a lakehouse the names that SQL knows them by, and the views on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from itertools import takewhile

from pyspark.sql import SparkSession

from schemas.tables import TableSpec, all_tables
from storage.lakehouse import Lakehouse
from storage.tables import error_classes, null_column, spark_schema, sql_literal

_NAME = re.compile(r"\b(bronze|silver|gold|dq)\.(\w+)")
_LAYER_OF_VIEWS = "gold"
_TABLE, _VIEW = "TABLE", "VIEW"
_NO_COLUMN = "UNRESOLVED_COLUMN.WITH_SUGGESTION"
# How the comment begins of the databases that `register` makes.
_OURS = "groupledger:"


def view_texts() -> dict[str, str]:
    """Return the SQL of each view by its name, the comment that describes it first."""
    return _texts("views")


def function_texts() -> dict[str, str]:
    """Return the SQL that makes each table function, by its name."""
    return _texts("functions")


def duckdb_texts() -> dict[str, str]:
    """Return the SQL that makes each view or macro of an export to DuckDB, by its name."""
    return _texts("duckdb")


def layers() -> list[str]:
    """Return the names of the layers, which are databases where SQL has the tables."""
    return sorted({name.partition(".")[0] for name in all_tables()})


def description(text: str) -> str:
    """Return the comment that a view's or function's SQL begins with."""
    comment = takewhile(lambda line: line.startswith("--"), text.splitlines())
    return " ".join(line.removeprefix("--").strip() for line in comment)


def register(
    lakehouse: Lakehouse,
    query: str | None = None,
    clusters: Sequence[str] | None = None,
    *,
    is_writable: bool = True,
) -> None:
    """Let SQL of the session find tables that runs have written, and all views and functions.

    Those are registered that a query names by their last word, and all of them for a SHOW statement
    or without a query, with the rows of these clusters, or of all. Statements may change what is
    writable.
    """
    sql, tables = lakehouse.spark.sql, all_tables()
    views, functions = view_texts(), function_texts()
    texts = {**views, **functions}
    wanted = _wanted(query, [*tables, *texts])
    for text in [texts[name] for name in texts if name in wanted]:
        wanted |= _named(text)
    are_tables = clusters is None and is_writable
    kind = _TABLE if are_tables else _VIEW
    mine = f"{_OURS} {kind} {','.join(clusters or ())} {lakehouse.root}"
    for layer in sorted({name.partition(".")[0] for name in wanted}):
        # A database takes its folder with it when it is dropped, which only who may write does.
        folder = sql_literal(f"{lakehouse.root}/{layer}")
        location = f" LOCATION {folder}" if are_tables else ""
        sql(f"CREATE DATABASE IF NOT EXISTS {layer} COMMENT {sql_literal(mine)}{location}")
    _forget_others(lakehouse.spark, mine)
    made = {name for name in wanted & tables.keys() if lakehouse.exists(tables[name])}
    for name in sorted(made):
        path, comment = lakehouse.path(tables[name]), sql_literal(tables[name].grain)
        if are_tables:
            made_of = f"USING delta COMMENT {comment} LOCATION {sql_literal(path)}"
            sql(f"CREATE TABLE IF NOT EXISTS {name} {made_of}")
        else:
            named = ", ".join(map(sql_literal, clusters or ()))
            chosen = f" WHERE cluster IN ({named})" if clusters is not None else ""
            rows = f"SELECT * FROM delta.`{path}`{chosen}"  # noqa: S608
            sql(f"CREATE VIEW IF NOT EXISTS {name} COMMENT {comment} AS {rows}")
    nothing = {name: _no_rows(tables[name]) for name in wanted & tables.keys() - made}
    for name, text in texts.items():
        if name not in wanted:
            continue
        head = f"CREATE OR REPLACE VIEW {name} COMMENT {sql_literal(description(text))} AS "
        rows = _NAME.sub(lambda found: nothing.get(found[0], found[0]), text)
        try:
            sql(head + rows if name in views else rows)
        except Exception as error:
            # An older release made the table, and the next run that writes to it adds the column.
            if _NO_COLUMN not in error_classes(error):
                raise
    if any(name.startswith(f"{_LAYER_OF_VIEWS}.") for name in wanted):
        lakehouse.spark.catalog.setCurrentDatabase(_LAYER_OF_VIEWS)


def _no_rows(spec: TableSpec) -> str:
    """Return a query that gives the columns of a table, and no row."""
    columns = ", ".join(map(null_column, spark_schema(spec.columns)))
    return f"(SELECT {columns} WHERE false)"


def foreign_layers(spark: SparkSession) -> list[str]:
    """Name the layers of whose name the session's catalogue has a database that is not ours."""
    return [name for name, comment in _databases(spark) if not comment.startswith(_OURS)]


def _databases(spark: SparkSession) -> list[tuple[str, str]]:
    """Return the layers that are databases of the catalogue, each with its comment."""
    catalog = spark.catalog
    found = [layer for layer in layers() if catalog.databaseExists(layer)]
    return [(layer, catalog.getDatabase(layer).description or "") for layer in found]


def _wanted(query: str | None, names: Iterable[str]) -> set[str]:
    words = None if query is None else set(re.findall(r"\w+", query.lower()))
    is_all = words is None or "show" in words
    return {name for name in names if is_all or name.partition(".")[2] in (words or ())}


def _forget_others(spark: SparkSession, mine: str) -> None:
    """Let the catalogue forget tables and views of another lakehouse, which deletes no rows."""
    for layer, former in _databases(spark):
        if former == mine or not former.startswith(_OURS):
            continue
        kind = former.split()[1]
        kinds = dict.fromkeys(view_texts(), _VIEW) | dict.fromkeys(all_tables(), kind)
        for name, of_name in kinds.items():
            if name.startswith(f"{layer}.") and spark.catalog.tableExists(name):
                spark.sql(f"DROP {of_name} {name}")
        for name in function_texts():
            if name.startswith(f"{layer}."):
                spark.sql(f"DROP FUNCTION IF EXISTS {name}")
        spark.sql(f"COMMENT ON DATABASE {layer} IS {sql_literal(mine)}")


def _texts(folder: str) -> dict[str, str]:
    files = (resources.files("schemas") / folder).iterdir()
    return {
        f"{_LAYER_OF_VIEWS}.{file.name.removesuffix('.sql')}": file.read_text("utf-8")
        for file in sorted(files, key=lambda f: f.name)
        if file.name.endswith(".sql")
    }


def _named(text: str) -> set[str]:
    return {".".join(name) for name in _NAME.findall(text)}
