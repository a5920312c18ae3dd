"""The expectation of great-expectations that all of ours are: a condition holds of each row.

Its batch is what was counted of a suite, in one row: see `dq.declared.counted`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.execution_engine import ExecutionEngine
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from dq.declared import ROWS

_COUNTED = "table.rows_that_break"


class RowsThatBreak(TableMetricProvider):
    """How many rows there are, and how many a condition is false of."""

    metric_name = _COUNTED
    value_keys = ("name",)

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805 - it makes a class method of it
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        **_: object,
    ) -> tuple[int, int]:
        counts = execution_engine.get_compute_domain(
            metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE
        )[0].iloc[0]
        return int(counts[ROWS]), int(counts[metric_value_kwargs["name"]])


class ExpectConditionToHold(BatchExpectation):
    """Expect that a condition, in SQL, holds of all rows, or of the share `mostly` of them.

    A row that the condition is null of does not break it.
    """

    name: str
    condition: str
    mostly: float = 1.0

    metric_dependencies: ClassVar[tuple[str, ...]] = (_COUNTED,)
    success_keys: ClassVar[tuple[str, ...]] = ("name", "condition", "mostly")
    domain_keys: ClassVar[tuple[str, ...]] = ("batch_id", "row_condition", "condition_parser")

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002
        execution_engine: ExecutionEngine[Any] | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        rows, broken = metrics[_COUNTED]
        result = {"observed_value": broken, "element_count": rows, "unexpected_count": broken}
        return {"success": rows - broken >= self.mostly * rows, "result": result}
