"""What must hold of the tables, as it is declared in dq/suites: rows, and conditions of them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from schemas import toml
from schemas.gold import CRITICAL
from schemas.silver import silver_tables
from schemas.tables import RECORDS, TableSpec, all_tables, decoded_table

EVERY_DECODED = "silver.*"
"""The table of suites about all tables that records decode into."""

ROWS = "row_count"
"""The column of `counted` that says how many rows a suite has."""

_SAMPLES = 3
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# Columns that say which rows of a table are new; the placeholder for them is their plural.
_NEW = ("ingest_run", "decode_run", "history_run", "anomalies_run", "lag_run")
# Their rows say what was done, and nothing rests on one of a former run.
_BOOKKEEPING = {"bronze.runs", "gold.alerts", "dq.results"}


@dataclass(frozen=True)
class Check:
    """An expectation: a condition holds of each row."""

    name: str  # what is expected, in a few words
    meaning: str  # the same as a sentence
    condition: str  # the condition, in SQL; a row that it is null of does not break it
    severity: str = CRITICAL  # warning or critical
    mostly: float = 1.0  # the least share of the rows that it has to hold of
    # SQL for the rows that the condition is of, each for `copies` rows; None for the suite's own.
    rows: str | None = None


@dataclass(frozen=True)
class Suite:
    """What is expected of some rows."""

    table: str  # the table that the rows are of, or are about
    name: str | None  # None for the rows of the table itself
    row: str  # what one row is
    key: tuple[str, ...]  # columns that identify a row
    rows: str  # SQL that gives the rows
    checks: tuple[Check, ...]  # the expectations

    @property
    def title(self) -> str:
        """Name the suite among all."""
        return self.table if self.name is None else f"{self.table} {self.name}"

    @property
    def placeholders(self) -> set[str]:
        """Name the placeholders in the SQL that a run fills."""
        return set(_PLACEHOLDER.findall(" ".join([self.rows, *(c.condition for c in self.checks)])))


def filled(sql: str, values: Mapping[str, str]) -> str:
    """Put the values of a run into the placeholders of some SQL."""
    return _PLACEHOLDER.sub(lambda placeholder: values[placeholder.group(1)], sql)


def counted(suite: Suite, values: Mapping[str, str]) -> str:
    """Return the SQL that counts a suite's rows, as `ROWS`, and those that break each check."""
    columns = [f"count(*) AS {ROWS}"]
    for check in suite.checks:
        condition = f"NOT ({check.condition})"
        broken = f"count(*) FILTER (WHERE {condition})"
        if check.rows is not None:
            broken = f"(SELECT coalesce(sum(copies), 0) FROM ({check.rows}) WHERE {condition})"  # noqa: S608
        columns.append(f"{broken} AS {check.name}")
    return filled(f"SELECT {', '.join(columns)} FROM (\n{suite.rows}\n)", values)  # noqa: S608


def broken_keys(suite: Suite, check: Check, values: Mapping[str, str]) -> str:
    """Return the SQL that gives the keys of a few rows that break an expectation."""
    rows = f"SELECT {', '.join(suite.key)} FROM (\n{check.rows or suite.rows}\n)"  # noqa: S608
    return filled(f"{rows} WHERE NOT ({check.condition}) LIMIT {_SAMPLES}", values)


def broken_rows(suite: Suite, check: Check, cluster: str, values: Mapping[str, str]) -> str:
    """Return the SQL that shows the rows that break an expectation."""
    condition = filled(check.condition, values).strip()
    rows = filled(check.rows or suite.rows, values).strip()
    # Nothing here is other people's text: options.py says what a cluster's name is made of.
    return f"SELECT * FROM (\n{rows}\n)\nWHERE cluster = '{cluster}' AND NOT ({condition})"  # noqa: S608


def decoded_rows(tables: Iterable[str], condition: str) -> str:
    """Return SQL for what all decoded tables have in common, and the quarantine with them."""
    parts = []
    for name in tables:
        columns = {c.name for c in all_tables()[name].columns}
        tombstone = "is_tombstone" if "is_tombstone" in columns else "value IS NULL"
        group = "group_id" if "group_id" in columns else "CAST(NULL AS STRING)"
        parts.append(
            f"SELECT '{name}' AS table_name, cluster, record_partition, record_offset,"  # noqa: S608
            f" {tombstone} AS is_tombstone, value_version, {group} AS group_id, decode_run"
            f" FROM {name} WHERE {condition}"
        )
    return "\n  UNION ALL ".join(parts)


@cache
def suites() -> tuple[Suite, ...]:
    """Return every suite, in the order of the data's way."""
    own: dict[str, dict[str, Any]] = {}
    about: dict[str, list[dict[str, Any]]] = {}
    for declared in _declarations():
        if "rows" in declared:
            about.setdefault(declared["table"], []).append(declared)
        else:
            own[declared["table"]] = declared
    decoded = {decoded_table(name).name for name in silver_tables()}
    found = [_about_table(declared) for declared in about.pop(EVERY_DECODED)]
    for name, spec in all_tables().items():
        if name in own or name not in _BOOKKEEPING | decoded:
            found.append(_of_table(spec, own.pop(name, {}), decoded))
        found += [_about_table(declared) for declared in about.pop(name, ())]
    if own or about:
        raise ValueError(f"dq/suites names tables that are not ours: {sorted({*own, *about})}")
    return tuple(found)


def _by_key(spec: TableSpec, source: str, decoded: Container[str]) -> tuple[Check, ...]:
    """Return what is expected of a table's key, but what is held of all decoded tables together."""
    if spec.name in decoded:
        return ()
    no_null = " AND ".join(f"{column} IS NOT NULL" for column in spec.required)
    whole = Check("key_is_whole", f"No row lacks {', '.join(spec.required)}.", no_null)
    if spec.name == RECORDS.name:  # that bronze has a record once is part of it
        return (whole,)
    key = ", ".join(spec.key)
    # A window over the rows would sort them with all columns that are looked at.
    copies = f"SELECT {key}, count(*) AS copies FROM (\n{source}\n) GROUP BY {key}"  # noqa: S608
    unique = Check("key_is_unique", f"No two rows share {key}.", "copies = 1", rows=copies)
    return unique, whole


def _of_table(spec: TableSpec, declared: dict[str, Any], decoded: Container[str]) -> Suite:
    """Return the suite of a table's own rows: what its declaration says, and its suite."""
    new = next((f"{{{c.name}s}}" for c in spec.columns if c.name in _NEW), "true")
    every = f"SELECT * FROM {spec.name} WHERE {new}"  # noqa: S608 - the names are ours
    source = declared.get("source", every).strip()
    rows = _rows(source, declared.get("facts", ()))
    own = (_of_own_rows(source, check) for check in declared.get("check", ()))
    checks = (*_by_key(spec, source, decoded), *own)
    own_key = tuple(column for column in spec.key if column != "cluster")
    return Suite(spec.name, None, "row of the table", own_key, rows, checks)


def _of_own_rows(source: str, declared: dict[str, Any]) -> Check:
    """Return a check of a suite's rows, or of its own with the facts that it needs."""
    facts = declared.pop("facts", None)
    rows = None if facts is None else _rows(source, ("1 AS copies", *facts))
    return Check(**declared, rows=rows)


def _rows(source: str, facts: Iterable[str]) -> str:
    return f"SELECT {f',{chr(10)}  '.join(['*', *facts])}\nFROM (\n{source}\n)"


def _about_table(declared: dict[str, Any]) -> Suite:
    return Suite(
        declared["table"],
        declared.get("name"),
        declared["row"],
        tuple(declared["key"]),
        declared["rows"].strip(),
        tuple(Check(**check) for check in declared["check"]),
    )


def _declarations() -> Iterator[dict[str, Any]]:
    folder = resources.files("dq") / "suites"
    for layer in ("bronze", "silver", "gold"):
        text = (folder / f"{layer}.toml").read_text("utf-8")
        yield from toml.loads(text)["suite"]
