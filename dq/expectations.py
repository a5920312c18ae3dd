"""An expectation of great-expectations that all of ours are: no row is bad, or few are.

It is held against rows that were counted before, a line for each expectation: no engine of
great-expectations counts for several expectations at once, as a query of ours does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

if TYPE_CHECKING:
    from great_expectations.execution_engine.execution_engine import ExecutionEngine

NAME, ROWS, BAD_ROWS = "name", "rows", "bad_rows"
"""Columns of what was counted: the expectation, the rows it is about, and those that break it."""

_COUNTED = "table.counted_rows"


class CountedRows(TableMetricProvider):
    """How many rows an expectation is about, and how many of them break it."""

    metric_name = _COUNTED
    value_keys = (NAME,)

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805 - it makes a class method of it
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],  # noqa: ARG002
        runtime_configuration: dict[str, Any],  # noqa: ARG002
    ) -> tuple[int, int]:
        counted, _, _ = execution_engine.get_compute_domain(
            metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE
        )
        (line,) = counted[counted[NAME] == metric_value_kwargs[NAME]].to_dict("records")
        return line[ROWS], line[BAD_ROWS]


class ExpectFewBadRows(BatchExpectation):
    """Expect that the rows that meet a condition are no more than a share of all rows."""

    name: str
    bad: str
    tolerance: float = 0.0

    metric_dependencies: ClassVar[tuple[str, ...]] = (_COUNTED,)
    success_keys: ClassVar[tuple[str, ...]] = (NAME, "bad", "tolerance")
    domain_keys: ClassVar[tuple[str, ...]] = ("batch_id", "row_condition", "condition_parser")

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002
        execution_engine: ExecutionEngine[Any] | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        rows, bad = metrics[_COUNTED]
        result = {"observed_value": bad, "element_count": rows}
        return {"success": bad <= self.tolerance * rows, "result": result}
