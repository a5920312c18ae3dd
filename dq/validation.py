"""Has great-expectations evaluate the declared suites on Spark, and gives what it found."""

from __future__ import annotations

import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dq.pages import without_network

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from dq.declared import Check, Suite

_SITE = "groupledger"
_SAMPLES = 3
# Where rows are few, most of the time is Spark's planning.
_AT_ONCE = 3


class Given(NamedTuple):
    """A suite with the values of a run: its rows, and the conditions of its checks."""

    suite: Suite
    rows: DataFrame
    conditions: list[str]


class Found(NamedTuple):
    """What was found of one expectation; `sample` has keys of rows that break it, as JSON."""

    suite: Suite
    check: Check
    success: bool
    rows_checked: int
    rows_unexpected: int
    sample: list[str]


class EvaluationError(Exception):
    """An expectation could not be evaluated; the message is what was raised then."""


def great_expectations() -> Any:  # noqa: ANN401 - it has no types of its own
    """Import it: that takes seconds, in which another thread may have Spark work."""
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    import great_expectations as gx  # noqa: PLC0415

    import dq.expectations  # noqa: F401, PLC0415 - makes it known

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return gx


def evaluate(given: Sequence[Given], docs: str | None = None) -> list[Found]:
    """Evaluate suites, each in one pass over its rows.

    Args:
        given: the suites.
        docs: a folder to write Data Docs to, the pages of great-expectations; None for none.

    Raises:
        EvaluationError: the rows could not be read, or a condition names what they do not have.
    """
    gx = great_expectations()
    from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: PLC0415

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    if docs is not None:
        _add_site(context, docs)
    titles = [each.suite.title for each in given]
    # Given one by one, great-expectations would write its configuration each time.
    batches = [{"name": t, "type": "dataframe", "batch_definitions": [{"name": t}]} for t in titles]
    # It would keep the rows with all their columns otherwise.
    source = context.data_sources.add_spark(_SITE, persist=False, assets=batches)
    definitions = [_defined(gx, context, source, each) for each in given]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(_found, given, definitions))
    if docs is not None:
        context.build_data_docs(site_names=[_SITE])
        told = {
            title: f"{sum(f.success for f in of_suite)} of {len(of_suite)} expectations hold"
            for title, of_suite in zip(titles, found, strict=True)
        }
        without_network(Path(docs), told)
    return [f for of_suite in found for f in of_suite]


def _defined(gx: Any, context: Any, source: Any, given: Given) -> Any:  # noqa: ANN401
    """Make the suite known to great-expectations."""
    from great_expectations.expectations.metadata_types import FailureSeverity  # noqa: PLC0415

    from dq.expectations import ExpectConditionToHold  # noqa: PLC0415

    title = given.suite.title
    expectations = [
        ExpectConditionToHold(
            name=check.name,
            condition=condition,
            mostly=check.mostly,
            severity=FailureSeverity(check.severity),
            notes=check.meaning,
        )
        for check, condition in zip(given.suite.checks, given.conditions, strict=True)
    ]
    batch = source.get_asset(title).get_batch_definition(title)
    suite = context.suites.add(gx.ExpectationSuite(title, expectations=expectations))
    definition = gx.ValidationDefinition(name=title, data=batch, suite=suite)
    return context.validation_definitions.add(definition)


def _found(given: Given, definition: Any) -> list[Found]:  # noqa: ANN401
    validated = definition.run(batch_parameters={"dataframe": given.rows}, result_format="BASIC")
    by_name = {result.expectation_config.kwargs["name"]: result for result in validated.results}
    found = []
    for check, condition in zip(given.suite.checks, given.conditions, strict=True):
        of_check = by_name[check.name]
        if not of_check.result:  # great-expectations raises nothing
            raise EvaluationError(f"{given.suite.title} {check.name}: {of_check.exception_info}")
        rows, broken = (int(of_check.result[of]) for of in ("element_count", "unexpected_count"))
        sample = _sample(given, condition) if broken else []
        found.append(Found(given.suite, check, bool(of_check.success), rows, broken, sample))
    return found


def _sample(given: Given, condition: str) -> list[str]:
    broken = given.rows.where(f"NOT ({condition})").select(*given.suite.key).limit(_SAMPLES)
    return [json.dumps(row.asDict(), default=str, ensure_ascii=False) for row in broken.collect()]


def _add_site(context: Any, folder: str) -> None:  # noqa: ANN401
    context.add_data_docs_site(
        _SITE,
        {
            "class_name": "SiteBuilder",
            "store_backend": {
                "class_name": "TupleFilesystemStoreBackend",
                "base_directory": os.path.abspath(folder),  # noqa: PTH100 - it may be new
            },
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        },
    )
