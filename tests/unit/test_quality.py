"""The declared expectations name tables, columns and placeholders that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dq.declared import EVERY_DECODED, Suite, broken_rows, decoded_rows, filled, suites
from schemas.tables import all_tables
from storage.queries import tables_of

PAGE = Path(__file__).parents[2] / "docs" / "quality.md"
PLACEHOLDERS = {
    "ingest_runs",
    "decode_runs",
    "history_runs",
    "anomalies_runs",
    "lag_runs",
    "begun_since",
    "first_hour",
    "history_decode_runs",
    "history_until",
    "balanced_ingest_runs",
    "decoded",
    "homes",
    "java_hash",
}


@pytest.mark.parametrize("suite", suites(), ids=lambda suite: suite.title)
def test_suites_name_what_exists(suite: Suite) -> None:
    assert suite.table in all_tables() or suite.table == EVERY_DECODED
    assert suite.placeholders <= PLACEHOLDERS
    assert set(re.findall(r"\b(?:bronze|silver|gold|dq)\.\w+", suite.rows)) <= all_tables().keys()
    assert len({check.name for check in suite.checks}) == len(suite.checks)
    for check in suite.checks:
        assert check.meaning.endswith(".")
        assert check.severity in {"warning", "critical"}
        assert 0 < check.mostly <= 1


def test_suites_have_names_of_their_own() -> None:
    titles = [suite.title for suite in suites()]
    assert len(titles) == len(set(titles))


def test_text_in_quotes_is_no_table() -> None:
    text = "SELECT 'bronze.records' AS table_name FROM silver.quarantine AS q"
    assert tables_of(text) == {"silver.quarantine"}


def test_the_query_of_an_expectation_has_the_values_of_the_run() -> None:
    (suite,) = (s for s in suites() if s.title == "bronze.records")
    check = suite.checks[-1]
    text = broken_rows(suite, check, "east", {"ingest_runs": "ingest_run BETWEEN 3 AND 4"})
    assert "ingest_run BETWEEN 3 AND 4" in text
    assert f"WHERE cluster = 'east' AND NOT ({check.condition})" in text
    assert filled("a IN ({homes})", {"homes": "b % 50"}) == "a IN (b % 50)"


def test_decoded_rows_have_the_same_columns_of_every_table() -> None:
    text = decoded_rows(["silver.offset_commits", "silver.quarantine"], "true")
    first, second = text.split("UNION ALL")
    assert "is_tombstone AS is_tombstone, value_version, group_id AS group_id" in first
    assert "value IS NULL AS is_tombstone, value_version, CAST(NULL AS STRING) AS" in second


def test_the_page_has_the_numbers() -> None:
    checks = sum(len(suite.checks) for suite in suites())
    assert f"{checks} expectations in {len(suites())} suites" in PAGE.read_text("utf-8")
