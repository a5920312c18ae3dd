"""Has great-expectations evaluate the declared suites, and gives what it found."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dq.declared import Check, Suite
    from storage.queries import Queries

_SITE = "groupledger"


class Given(NamedTuple):
    """A suite, and its SQL with the values of the run: its rows, and what makes one bad."""

    suite: Suite
    rows: str
    conditions: list[str]


class Found(NamedTuple):
    """What was found of one expectation."""

    suite: Suite
    check: Check
    success: bool
    rows_checked: int
    rows_unexpected: int


def evaluate(given: Sequence[Given], queries: Queries, docs: str | None = None) -> list[Found]:
    """Evaluate suites; with `docs`, write Data Docs, the pages of great-expectations, there.

    Args:
        given: the suites.
        queries: answers their SQL.
        docs: a folder.

    Raises:
        LakehouseError: a file of a table cannot be read.
    """
    # To import it takes Python seconds, in which DuckDB or Spark counts.
    with ThreadPoolExecutor(1) as pool:
        imported = pool.submit(_great_expectations)
        counted = queries.answers([_count(each) for each in given])
    gx = imported.result()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = gx.data_context.types.base.ProgressBarsConfig(globally=False)
    if docs is not None:
        _add_site(context, docs)
    source = context.data_sources.add_pandas(_SITE)
    found = [
        f
        for each, (counts,) in zip(given, counted, strict=True)
        for f in _found(gx, context, source, each, counts)
    ]
    if docs is not None:
        context.build_data_docs(site_names=[_SITE])
    return found


def _count(given: Given) -> str:
    """Give SQL that counts the rows of a suite, and those that break each expectation, at once."""
    bad = [
        f"count(CASE WHEN {bad} THEN 1 END) AS bad_{n}" for n, bad in enumerate(given.conditions)
    ]
    return f"SELECT {', '.join(['count(*) AS all_rows', *bad])} FROM (\n{given.rows}\n)"  # noqa: S608


def _great_expectations() -> Any:  # noqa: ANN401 - it has no types of its own
    """Import it when it is needed: it takes seconds, and would report its use."""
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Half of the time is this, for three expectations that none of ours is.
        _load_when_used("scipy", "stats")
        import great_expectations as gx  # noqa: PLC0415
        import great_expectations.data_context.types.base  # noqa: PLC0415

        import dq.expectations  # noqa: F401, PLC0415 - makes it known
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return gx


def _load_when_used(package: str, name: str) -> None:
    """Let ``from package import name`` load a module no sooner than it is asked for something.

    One thread at a time may ask: Python's own loader holds no lock before 3.12.2.
    """
    path = f"{package}.{name}"
    spec = None if path in sys.modules else importlib.util.find_spec(path)
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path] = module
    spec.loader.exec_module(module)
    # The import statement finds it here, and asks nothing of it.
    setattr(importlib.import_module(package), name, module)


def _found(
    gx: Any,  # noqa: ANN401
    context: Any,  # noqa: ANN401
    source: Any,  # noqa: ANN401
    given: Given,
    counts: dict[str, int],
) -> Iterator[Found]:
    from great_expectations.expectations.metadata_types import FailureSeverity  # noqa: PLC0415

    from dq.expectations import BAD_ROWS, NAME, ROWS, ExpectFewBadRows  # noqa: PLC0415

    suite, rows = given.suite, counts["all_rows"]
    counted = [
        {NAME: check.name, ROWS: rows, BAD_ROWS: counts[f"bad_{n}"]}
        for n, check in enumerate(suite.checks)
    ]
    expectations = [
        ExpectFewBadRows(
            name=check.name,
            bad=bad,
            tolerance=check.tolerance,
            severity=FailureSeverity(check.severity),
            notes=check.meaning,
        )
        for check, bad in zip(suite.checks, given.conditions, strict=True)
    ]
    asset = source.add_dataframe_asset(suite.title)
    batch = asset.add_batch_definition_whole_dataframe(suite.title)
    declared = context.suites.add(gx.ExpectationSuite(suite.title, expectations=expectations))
    definition = gx.ValidationDefinition(name=suite.title, data=batch, suite=declared)
    context.validation_definitions.add(definition)
    frame = pa.Table.from_pylist(counted).to_pandas()
    result = definition.run(batch_parameters={"dataframe": frame}, result_format="BASIC")
    by_name = {r.expectation_config.kwargs["name"]: r for r in result.results}
    for check in suite.checks:
        told = by_name[check.name]
        bad = int(told.result["observed_value"])
        yield Found(suite, check, bool(told.success), rows, bad)


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
