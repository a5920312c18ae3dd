"""The sources of dbt in examples/dbt name tables and columns that exist, and test what holds."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from docs import dbt
from dq.declared import suites
from schemas.tables import all_tables

SOURCES: list[dict[str, Any]] = yaml.safe_load(dbt.PAGE.read_text("utf-8"))["sources"]
TABLES = {f"{s['name']}.{table['name']}": table for s in SOURCES for table in s["tables"]}


def test_the_file_is_what_the_declarations_say() -> None:
    assert dbt.PAGE.read_text("utf-8") == dbt.page()


def test_all_tables_of_gold_are_there() -> None:
    gold = {name for name in all_tables() if name.startswith(("gold.", "dq."))}
    assert TABLES.keys() == gold


@pytest.mark.parametrize("name", TABLES)
def test_columns_and_keys_exist(name: str) -> None:
    spec, table = all_tables()[name], TABLES[name]
    columns = {column["name"]: column for column in table["columns"]}
    assert list(columns) == [column.name for column in spec.columns]
    whole = {name for name, column in columns.items() if "not_null" in column.get("data_tests", ())}
    assert whole == set(spec.required)
    first, *_ = table["data_tests"]
    key = first["dbt_utils.unique_combination_of_columns"]["arguments"]["combination_of_columns"]
    assert tuple(key) == spec.key


def test_tests_are_what_suites_expect_of_a_row_by_itself() -> None:
    checks = {
        f"{suite.table.replace('.', '_')}_{check.name}": check
        for suite in suites()
        for check in suite.checks
    }
    tests = [
        test["dbt_utils.expression_is_true"]
        for table in TABLES.values()
        for test in table["data_tests"]
        if "dbt_utils.expression_is_true" in test
    ]
    assert len(tests) > len(TABLES)
    assert len({test["name"] for test in tests}) == len(tests)
    for test in tests:
        check = checks[test["name"]]
        assert test["arguments"]["expression"].split() == check.condition.split()
        assert (
            test["config"]["severity"] == {"critical": "error", "warning": "warn"}[check.severity]
        )
    # What other rows decide, or a run, is not of a row by itself.
    named = {test["name"] for test in tests}
    assert "gold_group_states_start_is_within_its_bounds" in named
    assert "gold_group_states_no_interval_is_missing" not in named
    assert "gold_group_states_steps_are_legal" not in named
