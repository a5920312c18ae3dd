"""SQL files cut into statements; views and functions that name what exists."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from jobs.runtime.sql import _show, split
from schemas.tables import all_tables
from storage.catalog import _named, description, function_texts, view_texts
from storage.tables import sql_literal, sql_text


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;", ["SELECT 1", " SELECT 2"]),
        ("SELECT ';'; SELECT \"a;b\"", ["SELECT ';'", ' SELECT "a;b"']),
        ("SELECT 'it\\'s; so'", ["SELECT 'it\\'s; so'"]),
        ("SELECT `a;b`", ["SELECT `a;b`"]),
        ("-- one; two\nSELECT 1", ["-- one; two\nSELECT 1"]),
        ("SELECT 1; -- the end", ["SELECT 1"]),
        ("SELECT 'open; quote", ["SELECT 'open; quote"]),
        (" ;; \n", []),
    ],
)
def test_statements_end_at_semicolons_that_are_no_text(text: str, statements: list[str]) -> None:
    assert split(text) == statements


@pytest.mark.parametrize("text", [*view_texts().values(), *function_texts().values()])
def test_views_are_described_and_read_tables_that_exist(text: str) -> None:
    assert description(text).endswith(".")
    known = {*all_tables(), *view_texts(), *function_texts()}
    assert _named(text) <= known


def test_text_of_others_stays_text_in_sql() -> None:
    assert sql_literal("it's \\ here") == "'it\\'s \\\\ here'"
    assert "'" not in sql_text("x' OR '1'='1").replace("decode(unhex('", "").replace(
        "'), 'UTF-8')", ""
    )
    assert sql_text("") == "''"


def test_what_is_piped_is_whole() -> None:
    table = Table("name", "")
    table.add_row("x" * 500, "")
    piped = io.StringIO()
    _show(Console(file=piped, width=80), table)
    lines = piped.getvalue().splitlines()
    assert any("x" * 500 in line for line in lines)
    assert all(line == line.rstrip() for line in lines)
