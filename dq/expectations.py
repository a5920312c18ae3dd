"""An expectation of great-expectations that all of ours are: no row is bad, or few are.

Its number of bad rows is an aggregate, so that the Spark engine of great-expectations counts for
all expectations of a suite in one query. `UnexpectedRowsExpectation` takes two queries each.
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

_BAD_ROWS = "table.bad_rows"
_ROWS = "table.row_count"


class BadRows(TableMetricProvider):
    """How many rows meet a condition."""

    metric_name = _BAD_ROWS
    value_keys = ("bad",)

    @metric_partial(
        engine=SparkDFExecutionEngine,
        partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
        domain_type=MetricDomainTypes.TABLE,
    )
    def _spark(
        cls,  # noqa: N805 - it makes a class method of it
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],  # noqa: ARG002
        runtime_configuration: dict[str, Any],  # noqa: ARG002
    ) -> tuple[Column, dict[str, Any], dict[str, Any]]:
        _, compute, accessor = execution_engine.get_compute_domain(
            metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE
        )
        is_bad = F.expr(metric_value_kwargs["bad"])
        return F.count(F.when(is_bad, 1)), compute, accessor


class ExpectFewBadRows(BatchExpectation):
    """Expect that the rows that meet a condition are no more than a share of all rows."""

    bad: str
    tolerance: float = 0.0

    metric_dependencies: ClassVar[tuple[str, ...]] = (_BAD_ROWS, _ROWS)
    success_keys: ClassVar[tuple[str, ...]] = ("bad", "tolerance")
    domain_keys: ClassVar[tuple[str, ...]] = ("batch_id", "row_condition", "condition_parser")

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002
        execution_engine: ExecutionEngine[Any] | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        bad, rows = metrics[_BAD_ROWS], metrics[_ROWS]
        result = {"observed_value": bad, "element_count": rows}
        return {"success": bad <= self.tolerance * rows, "result": result}
