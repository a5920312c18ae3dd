"""Conditions say the same of rows, and of what a log knows of the files that these are in."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.columns import arrow_schema, column
from schemas.tables import TableSpec
from storage.conditions import Met, in_file
from storage.files import FileWriter
from storage.log import opened

if TYPE_CHECKING:
    from storage.conditions import Where

SPEC = TableSpec(
    name="gold.rows",
    grain="rows",
    columns=(
        column("cluster", "string", "c"),
        column("text", "string", "t"),
        column("number", "bigint", "n"),
        column("at", "timestamp", "a"),
        column("unknown", "bigint", "u"),
        column("is_settled", "boolean", "s"),
    ),
    key=("cluster", "is_settled"),
    skipping=("text", "number", "at"),
    partitions=("cluster", "is_settled"),
)
START = dt.datetime(2026, 7, 1, tzinfo=dt.timezone.utc)
# Few values, so that bounds are met; texts longer than statistics keep; times within a millisecond.
VALUES = {
    "text": st.sampled_from(["", "a", "b", "x" * 40, "x" * 40 + "y"]),
    "number": st.integers(-2, 2),
    "at": st.integers(0, 2_500).map(lambda micros: START + dt.timedelta(microseconds=micros)),
    "unknown": st.integers(0, 1),
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {name: st.none() | values for name, values in VALUES.items()}
        | {"is_settled": st.booleans()}
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def a_test(draw: st.DrawFn) -> tuple[str, str, object]:
    name = draw(st.sampled_from([*VALUES, "is_settled"]))
    values = st.booleans() if name == "is_settled" else VALUES[name]
    operator = draw(st.sampled_from(["==", "<", "<=", ">", ">=", "in", "is null"]))
    if name == "is_settled" and operator not in {"in", "is null"}:
        operator = "=="  # Arrow does not order them
    if operator == "in":
        return name, operator, draw(st.lists(values, min_size=1, max_size=3))
    return name, operator, None if operator == "is null" else draw(values)


WHERE = st.lists(st.lists(a_test(), min_size=1, max_size=3), max_size=3)


@settings(deadline=None)
@given(rows=ROWS, where=WHERE)
def test_a_file_has_as_many_rows_as_its_log_lets_expect(
    rows: list[dict[str, object]], where: Where
) -> None:
    with TemporaryDirectory() as root:
        folder = Path(root, "gold", "rows")
        schema = arrow_schema(SPEC.columns)
        DeltaTable.create(folder, schema, partition_by=list(SPEC.partitions))
        writer = FileWriter(root, "blue")
        writer.add(SPEC, pa.RecordBatch.from_pylist(rows, arrow_schema(SPEC.of_cluster)))
        log = opened(folder)
        assert log is not None
        assert log.add([file for _, file in writer.close()], "test", 0)
        names = [name for name in schema.names if name != "cluster"]
        selected = pa.schema([schema.field(name) for name in names])
        met = log.selection(selected, where).read().to_pylist()
        for file in log.files({"cluster": "blue"}):
            place = file["partition"]["is_settled"]
            every = sum(row["is_settled"] == place for row in rows)
            found = sum(row["is_settled"] == place for row in met)
            how = in_file(file, where)
            assert how is not Met.BY_NONE or found == 0
            assert how is not Met.BY_ALL or found == every
