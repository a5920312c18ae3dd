"""SQL files cut into statements; views and functions that name what exists."""

from __future__ import annotations

import io

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row
from rich.console import Console
from rich.table import Table

from reporting.rows import _cell, _show
from schemas.tables import all_tables
from storage.catalog import _named, _wanted, description, function_texts, view_texts
from storage.statements import first_line, only_reads, split
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
        ("/* one; two */ SELECT 1; SELECT 2", ["/* one; two */ SELECT 1", " SELECT 2"]),
        ("SELECT 1 /* it's */; SELECT 2", ["SELECT 1 /* it's */", " SELECT 2"]),
        ("SELECT 1 -- it's\n; SELECT 2", ["SELECT 1 -- it's\n", " SELECT 2"]),
        ("/* a /* b; */ c; */ SELECT 1", ["/* a /* b; */ c; */ SELECT 1"]),
        ("SELECT 1; /* the end; */ -- so\n", ["SELECT 1"]),
        ("/* only; a comment */", []),
        ("SELECT 1; /* open", ["SELECT 1", " /* open"]),
        ("SELECT '/*'; SELECT '*/'", ["SELECT '/*'", " SELECT '*/'"]),
        ("SELECT `a\\`; SELECT 2", ["SELECT `a\\`", " SELECT 2"]),
        ("SELECT r'\\'; SELECT R\"\\\"", ["SELECT r'\\'", ' SELECT R"\\"']),
    ],
)
def test_statements_end_at_semicolons_that_are_no_text(text: str, statements: list[str]) -> None:
    assert split(text) == statements


@pytest.mark.parametrize("text", [*view_texts().values(), *function_texts().values()])
def test_views_are_described_and_read_tables_that_exist(text: str) -> None:
    assert description(text).endswith(".")
    # A function's SQL names the function itself.
    assert _named(text) <= {*all_tables(), *function_texts()}


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT 1", set()),
        ("SELECT count(*) FROM gold.lag", {"gold.lag"}),
        ("SELECT * FROM `bronze`.`Records`", {"bronze.records"}),
        ("USE silver; SELECT * FROM quarantine", {"silver.quarantine"}),
        ("SELECT * FROM timeline JOIN owners_at(now())", {"gold.timeline", "gold.owners_at"}),
    ],
)
def test_what_a_query_names_is_registered(query: str, wanted: set[str]) -> None:
    assert _wanted(query, [*all_tables(), *view_texts(), *function_texts()]) == wanted


@pytest.mark.parametrize("query", [None, "SHOW TABLES IN silver"])
def test_everything_is_registered_for_those_who_look_around(query: str | None) -> None:
    assert _wanted(query, all_tables()) == all_tables().keys()


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("select 1", True),
        ("-- DROP TABLE x\n (SELECT 'DELETE FROM x')", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a", True),
        ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", True),
        ("DESCRIBE HISTORY gold.timeline", True),
        ("WITH a AS (SELECT 1) INSERT INTO gold.x SELECT * FROM a", False),
        ("FROM a INSERT OVERWRITE gold.x SELECT *", False),
        ("/* SELECT */ DELETE FROM gold.x", False),
        ("EXPLAIN UPDATE gold.x AS y SET a = 1", False),
        ("MERGE INTO x USING y ON a = b WHEN MATCHED THEN DELETE", False),
        ("VACUUM gold.x", False),
        ("WITH s AS (SELECT 1 x) UPDATE `lag` SET lag = 0", False),
        ("WITH s AS (SELECT 1) MERGE WITH SCHEMA EVOLUTION INTO gold.lag USING s", False),
        ("FROM gold.lag --\rINSERT INTO gold.x SELECT *", False),
        ("-- \\\nSELECT '\nDELETE FROM gold.lag --'", False),
        ("CREATE VIEW v AS SELECT 1", False),
        ("SELECTED", False),
    ],
)
def test_what_changes_tables_is_seen(text: str, *, reads: bool) -> None:
    assert only_reads(text) is reads


def test_text_of_others_stays_text_in_sql() -> None:
    assert sql_literal("it's \\ here") == "'it\\'s \\\\ here'"
    assert "'" not in sql_text("x' OR '1'='1").replace("decode(unhex('", "").replace(
        "'), 'UTF-8')", ""
    )
    assert sql_text("") == "''"


def test_a_piped_row_is_one_line() -> None:
    table = Table("name", "")
    table.add_row("x" * 500, "")
    piped = io.StringIO()
    _show(Console(file=piped, width=80), table)
    lines = piped.getvalue().splitlines()
    assert any("x" * 500 in line for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_a_long_name_is_cut_in_a_table() -> None:
    assert _cell("x" * 500) == "x" * 500
    assert _cell([Row(x=1, y="z", z=None)]) == '[{"x": 1, "y": "z", "z": null}]'
    assert _cell("x" * 1_000) == "x" * 499 + "…"


def test_a_mistyped_table_is_answered_by_the_one_that_is_near() -> None:
    def said(name: str) -> str:
        what = {"relationName": name}
        error = AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] no such table")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(error, "getMessageParameters", lambda: what)
            return first_line(error).partition("table")[2]

    assert said("`gold`.`anomlies`") == " Did you mean gold.anomalies?"
    assert said("`gold`.`timelin`") == " Did you mean gold.timeline?"
    assert said("`x`") == ""
