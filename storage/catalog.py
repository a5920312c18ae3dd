"""Gives the tables of a lakehouse the names that SQL knows them by, and the views on them."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING

from schemas.tables import all_tables
from storage.tables import sql_literal

if TYPE_CHECKING:
    from storage.tables import Lakehouse

LAYERS = ("bronze", "silver", "gold", "dq")
_NAME = re.compile(rf"\b({'|'.join(LAYERS)})\s*\.\s*`?(\w+)", re.IGNORECASE)
_LAYER_OF_VIEWS = "gold"
_REGISTERED = "groupledger.registered"


def view_texts() -> dict[str, str]:
    """Give the SQL of each view by its name, the comment that describes it first."""
    return _texts("views")


def function_texts() -> dict[str, str]:
    """Give the SQL that makes each table function, by its name."""
    return _texts("functions")


def description(text: str) -> str:
    """Give the comment that a view's or function's SQL begins with."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return " ".join(lines)


def register(lakehouse: Lakehouse, query: str) -> None:
    """Let SQL of the session find what a query names, in all clusters of the lakehouse.

    A query that names none of ours, such as SHOW TABLES, gets all of them.

    Raises:
        LakehouseError: a table was made by a release whose layout this one does not know.
    """
    sql = lakehouse.spark.sql
    for layer in LAYERS:
        location = sql_literal(f"{lakehouse.root}/{layer}")
        sql(f"CREATE DATABASE IF NOT EXISTS {layer} LOCATION {location}")
    views, functions, tables = view_texts(), function_texts(), all_tables()
    _forget_others(lakehouse)
    # SQL calls a table function by its bare name.
    called = {f for f in functions if re.search(rf"\b{f.partition('.')[2]}\s*\(", query)}
    wanted = _named(query) | called
    if not wanted & (tables.keys() | views.keys() | functions.keys()):
        wanted = {*tables, *views, *functions}
    texts = {**views, **functions}
    found: set[str] = set()
    while wanted - found:
        name = (wanted - found).pop()
        found.add(name)
        wanted |= _named(texts.get(name, ""))
    for name in sorted(found & tables.keys()):
        spec = tables[name]
        if lakehouse.exists(spec):
            location = sql_literal(lakehouse.path(spec))
            sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION {location}")
    made = {name for name in tables if lakehouse.spark.catalog.tableExists(name)}
    for name, text in texts.items():
        if name not in found or not _named(text) & tables.keys() <= made:
            continue
        if name in views:
            comment = sql_literal(description(text))
            sql(f"CREATE OR REPLACE VIEW {name} COMMENT {comment} AS {text}")
        else:
            sql(text)


def _forget_others(lakehouse: Lakehouse) -> None:
    """Let the session forget the tables of another lakehouse, which deletes nothing of them."""
    spark = lakehouse.spark
    if spark.conf.get(_REGISTERED, lakehouse.root) != lakehouse.root:
        for name in all_tables():
            if spark.catalog.tableExists(name):
                spark.sql(f"DROP TABLE {name}")
    spark.conf.set(_REGISTERED, lakehouse.root)


def _texts(folder: str) -> dict[str, str]:
    files = (resources.files("schemas") / folder).iterdir()
    return {
        f"{_LAYER_OF_VIEWS}.{file.name.removesuffix('.sql')}": file.read_text("utf-8")
        for file in sorted(files, key=lambda f: f.name)
        if file.name.endswith(".sql")
    }


def _named(text: str) -> set[str]:
    return {f"{layer}.{name}".lower() for layer, name in _NAME.findall(text)}
