"""Counts the rows that break the declared suites, and has great-expectations evaluate that."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from dq.declared import Check, Suite, broken_keys, broken_rows, counted, filled
from dq.pages import without_network
from storage.queries import Ask

_SITE = "groupledger"


class Found(NamedTuple):
    """What was found of one expectation; `sample` has keys of rows that break it, as JSON."""

    suite: Suite
    check: Check
    success: bool
    rows_checked: int
    rows_unexpected: int
    sample: list[str]

    @property
    def title(self) -> str:
        """Name the expectation among all."""
        return f"{self.suite.table} {self.check.name}"


class EvaluationError(Exception):
    """An expectation could not be evaluated; the message is what was raised then."""


def results(
    found: Sequence[Found], cluster: str, values: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the columns of dq.results, without the run."""
    at = dt.datetime.now(dt.timezone.utc)
    return [
        {
            "table_name": f.suite.table,
            "expectation": f.check.name,
            "meaning": f.check.meaning,
            "severity": f.check.severity,
            "success": f.success,
            "rows_checked": f.rows_checked,
            "rows_unexpected": f.rows_unexpected,
            "threshold": round(1 - f.check.mostly, 9),
            "query": broken_rows(f.suite, f.check, cluster, values),
            "sample": f.sample,
            "at": at,
        }
        for f in found
    ]


def said(row: Any) -> tuple[object, ...]:  # noqa: ANN401 - of Spark, or of `results`
    """Return what a result says, whenever and by whichever run it was found."""
    columns = ("table_name", "expectation", "query", "rows_checked", "rows_unexpected")
    return tuple(row[column] for column in columns)


def great_expectations() -> Any:  # noqa: ANN401 - it has no types of its own
    """Import it: that takes seconds, in which another thread may have the rows counted."""
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    import great_expectations as gx  # noqa: PLC0415

    import dq.expectations  # noqa: F401, PLC0415 - makes it known

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return gx


def evaluate(
    suites: Sequence[Suite], values: Mapping[str, str], ask: Ask, docs: str | None = None
) -> list[Found]:
    """Evaluate suites, each by one query; write great-expectations' Data Docs to a folder, if any.

    Raises:
        EvaluationError: great-expectations could not evaluate an expectation.
    """
    counts = _answers(ask, [counted(suite, values) for suite in suites])
    found = _found(suites, values, counts, docs)
    broken = [each for each in found if each.rows_unexpected]
    samples = _answers(ask, [broken_keys(each.suite, each.check, values) for each in broken])
    for each, keys in zip(broken, samples, strict=True):
        each.sample.extend(json.dumps(key, ensure_ascii=False) for key in keys.to_pylist())
    return found


def _answers(ask: Ask, queries: Sequence[str]) -> list[pa.Table]:
    asked = {f"query_{number}": query for number, query in enumerate(queries)}
    answers = ask(asked, {}) if asked else {}
    return [answers[name] for name in asked]


def _found(
    suites: Sequence[Suite], values: Mapping[str, str], counts: Sequence[pa.Table], docs: str | None
) -> list[Found]:
    """Have great-expectations say which expectations hold by the counts; there are no samples."""
    gx = great_expectations()
    from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: PLC0415

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    if docs is not None:
        _add_site(context, docs)
    titles = [suite.title for suite in suites]
    # Given one by one, great-expectations would write its configuration each time.
    batches = [{"name": t, "type": "dataframe", "batch_definitions": [{"name": t}]} for t in titles]
    source = context.data_sources.add_pandas(_SITE, assets=batches)
    found, told = [], {}
    for suite, of_suite in zip(suites, counts, strict=True):
        given = {"dataframe": of_suite.to_pandas()}
        validated = _defined(gx, context, source, suite, values).run(batch_parameters=given)
        by_name = {result.expectation_config.kwargs["name"]: result for result in validated.results}
        for check in suite.checks:
            of_check = by_name[check.name]
            if not of_check.result:  # great-expectations raises nothing
                raise EvaluationError(f"{suite.title} {check.name}: {of_check.exception_info}")
            rows, broken = (of_check.result[of] for of in ("element_count", "unexpected_count"))
            found.append(Found(suite, check, bool(of_check.success), rows, broken, []))
        holding = sum(bool(result.success) for result in validated.results)
        told[suite.title] = f"{holding} of {len(suite.checks)} expectations hold"
    if docs is not None:
        context.build_data_docs(site_names=[_SITE])
        without_network(Path(docs), told)
    return found


def _defined(
    gx: Any,  # noqa: ANN401
    context: Any,  # noqa: ANN401
    source: Any,  # noqa: ANN401
    suite: Suite,
    values: Mapping[str, str],
) -> Any:  # noqa: ANN401
    """Make the suite known to great-expectations."""
    from great_expectations.expectations.metadata_types import FailureSeverity  # noqa: PLC0415

    from dq.expectations import ExpectConditionToHold  # noqa: PLC0415

    expectations = [
        ExpectConditionToHold(
            name=check.name,
            condition=filled(check.condition, values),
            mostly=check.mostly,
            severity=FailureSeverity(check.severity),
            notes=check.meaning,
        )
        for check in suite.checks
    ]
    batch = source.get_asset(suite.title).get_batch_definition(suite.title)
    own = context.suites.add(gx.ExpectationSuite(suite.title, expectations=expectations))
    definition = gx.ValidationDefinition(name=suite.title, data=batch, suite=own)
    return context.validation_definitions.add(definition)


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
