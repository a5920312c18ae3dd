"""Conditions that rows meet, said so that both Arrow and Spark understand them."""

from __future__ import annotations

from functools import reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow.compute as pc
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column

Test: TypeAlias = "tuple[str, Literal['==', '<', '<=', '>', '>=', 'in', 'is null'], Any]"
"""A column, an operator, and what it is compared with; a null meets `is null` only."""

Where: TypeAlias = "Sequence[Sequence[Test]]"
"""Rows meet all tests of one of the sequences at least; of none, each row does."""

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": eq,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


def for_arrow(where: Where) -> pc.Expression | None:
    """Give a condition as Arrow's datasets take it; None if each row meets it."""
    return _put_together(where, _arrow_test)


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
