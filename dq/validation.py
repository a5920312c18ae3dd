"""Has great-expectations evaluate the declared suites, and gives what it found."""

from __future__ import annotations

import logging
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from dq.declared import Check, Suite

# Each asks Spark for one row, and most of its time is the asking.
_AT_ONCE = 3
_SITE = "groupledger"


class Given(NamedTuple):
    """A suite, its rows, and its conditions with the values of the run."""

    suite: Suite
    rows: DataFrame
    conditions: list[str]


class Found(NamedTuple):
    """What was found of one expectation."""

    suite: Suite
    check: Check
    success: bool
    rows_checked: int
    rows_unexpected: int


class ExpectationError(Exception):
    """An expectation could not be evaluated."""


def evaluate(given: Iterable[Given], docs: str | None = None) -> list[Found]:
    """Evaluate suites; with `docs`, write Data Docs, the pages of great-expectations, there."""
    gx = _great_expectations()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = gx.data_context.types.base.ProgressBarsConfig(globally=False)
    if docs is not None:
        _add_site(context, docs)
    # What is shared is made by one thread, and only then used by many.
    runs = [_prepared(gx, context, each) for each in given]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [f for each in pool.map(lambda run: run(), runs) for f in each]
    if docs is not None:
        context.build_data_docs(site_names=[_SITE])
    return found


def _great_expectations() -> Any:  # noqa: ANN401 - it has no types of its own
    """Import it when it is needed: it takes seconds, and would report its use."""
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations as gx  # noqa: PLC0415
        import great_expectations.data_context.types.base  # noqa: PLC0415

        import dq.expectations  # noqa: F401, PLC0415 - makes it known
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return gx


def _prepared(gx: Any, context: Any, given: Given) -> Callable[[], list[Found]]:  # noqa: ANN401
    from great_expectations.expectations.metadata_types import FailureSeverity  # noqa: PLC0415

    from dq.expectations import ExpectFewBadRows  # noqa: PLC0415

    suite = given.suite
    expectations = [
        ExpectFewBadRows(
            bad=bad,
            tolerance=check.tolerance,
            severity=FailureSeverity(check.severity),
            notes=check.meaning,
            meta={"check": check.name},
        )
        for check, bad in zip(suite.checks, given.conditions, strict=True)
    ]
    # A data source of its own, since its engine knows one set of rows at a time.
    source = context.data_sources.add_spark(suite.title, persist=False)
    rows = source.add_dataframe_asset(suite.title).add_batch_definition_whole_dataframe(suite.title)
    declared = context.suites.add(gx.ExpectationSuite(suite.title, expectations=expectations))
    definition = gx.ValidationDefinition(name=suite.title, data=rows, suite=declared)
    context.validation_definitions.add(definition)

    def run() -> list[Found]:
        result = definition.run(batch_parameters={"dataframe": given.rows}, result_format="BASIC")
        by_name = {r.expectation_config.meta["check"]: r for r in result.results}
        return [_found(suite, check, by_name[check.name]) for check in suite.checks]

    return run


def _found(suite: Suite, check: Check, result: Any) -> Found:  # noqa: ANN401
    if "observed_value" not in result.result:
        reasons = [
            reason
            for info in (result.exception_info, *result.exception_info.values())
            if isinstance(info, dict) and (reason := info.get("exception_message"))
        ]
        text = " ".join(str(reasons[0] if reasons else "no reason given").split())
        raise ExpectationError(f"{suite.title}: {check.name} cannot be evaluated: {text}")
    return Found(
        suite,
        check,
        bool(result.success),
        int(result.result["element_count"]),
        int(result.result["observed_value"]),
    )


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
