"""The columns of the dq tables: what was expected of the other tables, and whether it held."""

from __future__ import annotations

from schemas.columns import ArrayOf, Column, Primitive, column

_RUN = column("validation_run", "bigint", "Number of the validation run.")

RESULTS = (
    _RUN,
    column("table_name", "string", "Table that the expectation is about."),
    column("expectation", "string", "What is expected, by its name in dq/suites."),
    column("meaning", "string", "The same as a sentence."),
    column("severity", "string", "How bad it is if it fails: warning or critical."),
    column("success", "boolean", "It held."),
    column("rows_checked", "bigint", "Rows that were looked at."),
    column("rows_unexpected", "bigint", "Rows that break it."),
    column("threshold", "double", "Share of the rows that may break it."),
    column("query", "string", "SQL that shows the rows that break it, for the job sql."),
    Column(
        "sample",
        ArrayOf(Primitive("string")),
        "Keys of up to three of them, as JSON; times as milliseconds since 1970.",
    ),
    column("at", "timestamp", "When the run began."),
)
