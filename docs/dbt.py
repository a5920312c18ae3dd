"""Writes examples/dbt/sources.yml: gold as sources of dbt, with tests made of our suites.

What a suite expects of each row by itself becomes a test of `dbt_utils`; what it compares with
other rows, or with a run, stays with `validate`. PYTHONPATH=. .venv-dev/bin/python docs/dbt.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dq.declared import Check, Suite, suites
from schemas.gold import CRITICAL
from schemas.tables import TableSpec, all_tables

PAGE = Path(__file__).parents[1] / "examples" / "dbt" / "sources.yml"
_HEAD = """\
# groupledger's gold tables as sources of dbt (1.11 or later), with tests made of dq/suites.
# Written by docs/dbt.py. Put it into models/, and dbt_utils into packages.yml:
#   packages: [{package: dbt-labs/dbt_utils, version: [">=1.3.0", "<2.0.0"]}]
# The SQL is Spark's: dbt-spark or dbt-databricks.
version: 2

sources:"""
_LAYERS = ("gold", "dq")
_ALIAS = re.compile(r"\bAS (\w+)")


def page() -> str:
    """Return the text of the file; strings are JSON's, which are YAML's, too."""
    own = {suite.table: suite for suite in suites() if suite.name is None}
    lines = [_HEAD]
    for layer in _LAYERS:
        lines += [f"  - name: {layer}", f"    schema: {layer}", "    tables:"]
        for spec in all_tables().values():
            if spec.name.partition(".")[0] == layer:
                lines += _table(spec, own.get(spec.name))
    return "\n".join([*lines, ""])


def _table(spec: TableSpec, suite: Suite | None) -> Iterator[str]:
    yield f"      - name: {spec.name.partition('.')[2]}"
    yield f"        description: {json.dumps(spec.grain)}"
    yield "        data_tests:"
    yield "          - dbt_utils.unique_combination_of_columns:"
    yield "              arguments:"
    yield f"                combination_of_columns: {json.dumps(spec.key)}"
    if suite is not None:
        for check in filter(partial(_is_of_one_row, suite), suite.checks):
            severity = "error" if check.severity == CRITICAL else "warn"
            yield "          - dbt_utils.expression_is_true:"
            yield f"              name: {spec.name.replace('.', '_')}_{check.name}"
            yield f"              description: {json.dumps(check.meaning)}"
            yield "              arguments:"
            yield f"                expression: {json.dumps(' '.join(check.condition.split()))}"
            yield f"              config: {{severity: {severity}}}"
    yield "        columns:"
    for column in spec.columns:
        yield f"          - name: {column.name}"
        yield f"            description: {json.dumps(column.comment)}"
        yield f"            data_type: {json.dumps(column.type.sql())}"
        if column.name in spec.required:
            yield "            data_tests: [not_null]"


def _is_of_one_row(suite: Suite, check: Check) -> bool:
    """Return whether an expectation is of the table's columns alone."""
    made = set(_ALIAS.findall(suite.rows))
    words = set(re.findall(r"\w+", check.condition))
    is_by_itself = "{" not in check.condition and "SELECT" not in check.condition
    is_key = check.name.startswith("key_is_")  # those stand for themselves
    return is_by_itself and check.mostly == 1 and not is_key and not made & words


def main() -> None:
    """Write the file."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
