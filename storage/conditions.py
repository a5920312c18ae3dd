"""Conditions that rows meet, said once for Arrow, for Spark, and for what a log knows of a file."""

from __future__ import annotations

import datetime as dt
from enum import Enum
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column

Test: TypeAlias = "tuple[str, Literal['==', '<', '<=', '>', '>=', 'in', 'is null'], Any]"
"""A column, an operator, and what it is compared with; a null meets `is null` only."""

Where: TypeAlias = "Sequence[Sequence[Test]]"
"""Rows meet all tests of one of the sequences at least; of none, each row does."""

EVERY_ROW: Where = ()

OPEN_ROWS: Where = [[("is_settled", "==", False)]]
"""The rows that a later run may replace."""


def in_range(column: str, after: int, to: int) -> list[Test]:
    """Give the tests for whole numbers behind one, up to another and with it."""
    return [(column, ">", after), (column, "<=", to)]


def open_rows_and_of(groups: Sequence[str]) -> Where:
    """Give the condition for rows that a later run may replace, and all of some groups."""
    return [*OPEN_ROWS, [("group_id", "in", groups)]] if groups else OPEN_ROWS


def narrowed(where: Where, tests: Sequence[Test]) -> Where:
    """Give the condition for the rows that meet some tests, too."""
    return [[*tests, *own] for own in where or [[]]] if tests else where


# Statistics tell times in milliseconds, cut off.
_CUT_OFF = dt.timedelta(milliseconds=1)
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": eq,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


class Met(Enum):
    """How many rows of a file meet a condition, as far as a table's log knows."""

    BY_NONE = 0
    BY_SOME = 1
    BY_ALL = 2


def in_file(file: Mapping[str, Any], where: Where) -> Met:
    """Tell how many rows of a file meet a condition.

    Args:
        file: see `storage.log.Log.files`.
        where: the condition.
    """
    if not where:
        return Met.BY_ALL
    found = [min((_in_file(file, t) for t in tests), key=lambda m: m.value) for tests in where]
    return max(found, key=lambda m: m.value)


def _in_file(file: Mapping[str, Any], test: Test) -> Met:
    name, operator, value = test
    if name in file["partition"]:
        own = file["partition"][name]
        return Met.BY_ALL if _compared(own, operator, value) else Met.BY_NONE
    if operator == "is null":
        return Met.BY_NONE if (file.get("null_count") or {}).get(name) == 0 else Met.BY_SOME
    least, most = ((file.get(of) or {}).get(name) for of in ("min", "max"))
    if least is None or most is None:
        return Met.BY_SOME
    if isinstance(most, dt.datetime):
        most += _CUT_OFF
    given = value if operator == "in" else [value]
    is_beyond = {
        "<": lambda x: least >= x,
        "<=": lambda x: least > x,
        ">": lambda x: most <= x,
        ">=": lambda x: most < x,
    }.get(operator, lambda x: not least <= x <= most)
    return Met.BY_NONE if all(map(is_beyond, given)) else Met.BY_SOME


def _compared(own: object, operator: str, value: Any) -> bool:  # noqa: ANN401 - of any column
    if operator == "is null" or own is None:
        return operator == "is null" and own is None
    return own in value if operator == "in" else bool(_OPERATORS[operator](own, value))


def for_arrow(where: Where) -> pc.Expression | None:
    """Give a condition as Arrow's datasets take it; None if each row meets it."""
    return _put_together(where, _arrow_test)


def that_meet(rows: pa.Table, tests: Sequence[Test]) -> pa.Table:
    """Give the rows that meet some tests."""
    return rows.filter(for_arrow([tests])) if tests else rows


def for_spark(where: Where) -> Column:
    """Give a condition as Spark takes it."""
    found: Column | None = _put_together(where, _spark_test)
    return F.lit(True) if found is None else found  # noqa: FBT003


def _put_together(where: Where, expression: Callable[[Test], Any]) -> Any:  # noqa: ANN401
    if not where:
        return None
    return reduce(or_, (reduce(and_, map(expression, tests)) for tests in where))


def _arrow_test(test: Test) -> pc.Expression:
    name, operator, value = test
    column = pc.field(name)
    if operator == "is null":
        return column.is_null()
    return column.isin(value) if operator == "in" else _OPERATORS[operator](column, value)


def _spark_test(test: Test) -> Column:
    name, operator, value = test
    column = F.col(name)
    if operator == "is null":
        return column.isNull()
    found: Column = column.isin(value) if operator == "in" else _OPERATORS[operator](column, value)
    return found
