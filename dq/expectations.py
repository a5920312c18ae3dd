"""The expectation of great-expectations that all of ours are: a condition holds of each row.

How many rows break it is an aggregate, and great-expectations asks Spark for all aggregates of a
batch at once: for a suite that is one pass over its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricPartialFunctionTypes
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_partial
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from great_expectations.execution_engine.execution_engine import ExecutionEngine
    from pyspark.sql import Column

_ROWS, _BROKEN = "table.row_count", "table.rows_that_break"
_CONDITION = "condition"


class RowsThatBreak(TableMetricProvider):
    """How many rows a condition is false of."""

    metric_name = _BROKEN
    value_keys = (_CONDITION,)

    @metric_partial(
        engine=SparkDFExecutionEngine,
        partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
        domain_type=MetricDomainTypes.TABLE,
    )
    def _spark(
        cls,  # noqa: N805 - it makes a class method of it
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        **_: object,
    ) -> tuple[Column, dict[str, Any], dict[str, Any]]:
        holds = F.expr(metric_value_kwargs[_CONDITION])
        return F.count_if(~holds), metric_domain_kwargs, {}


class ExpectConditionToHold(BatchExpectation):
    """Expect that a condition, in SQL, holds of all rows, or of the share `mostly` of them.

    A row that the condition is null of does not break it.
    """

    name: str
    condition: str
    mostly: float = 1.0

    metric_dependencies: ClassVar[tuple[str, ...]] = (_ROWS, _BROKEN)
    success_keys: ClassVar[tuple[str, ...]] = ("name", _CONDITION, "mostly")
    domain_keys: ClassVar[tuple[str, ...]] = ("batch_id", "row_condition", "condition_parser")

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002
        execution_engine: ExecutionEngine[Any] | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        rows, broken = metrics[_ROWS], metrics[_BROKEN]
        result = {"observed_value": broken, "element_count": rows, "unexpected_count": broken}
        return {"success": rows - broken >= self.mostly * rows, "result": result}
