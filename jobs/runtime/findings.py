"""The lines of the check: what was looked at, how it is, and what to do."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial

from pyspark.sql import SparkSession

from jobs.runtime.session import session
from lakehouse.failures import line_of
from launch.options import Options

OK, WARN, FAIL = "ok", "warn", "fail"
_SHOWN = 3
_UNITS = {"GB": 1e9, "MB": 1e6}


@dataclass(frozen=True)
class Finding:
    """A line of the check."""

    name: str  # what was looked at
    state: str = field(kw_only=True)  # ok, warn or fail
    text: str  # what was found
    advice: str = ""  # what to do, a command where there is one; "" for nothing


ok = partial(Finding, state=OK)  # as it has to be
warn = partial(Finding, state=WARN)  # a pipeline does without
missing = partial(Finding, state=FAIL)  # a pipeline needs it


def some(names: list[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def size(number: float) -> str:
    """Return a number of bytes in the unit that fits."""
    unit, one = next((x for x in _UNITS.items() if number >= x[1]), ("kB", 1e3))
    return f"{number / one:,.1f} {unit}"


class SparkOnDemand:
    """A session that begins when it is first asked for; with it, a JVM.

    Attributes:
        lacks_jars: Spark has not all that it needs.
        is_verbose: an error is shown with where it is from.
    """

    def __init__(self, chosen: Options, stack: ExitStack) -> None:
        self._chosen, self._stack = chosen, stack
        self.lacks_jars = False
        self.is_verbose = chosen.verbose

    @cached_property
    def session(self) -> SparkSession:
        """The session, which ends with the stack."""
        return self._stack.enter_context(session(self._chosen))


def by_spark(
    name: str, spark: SparkOnDemand, look: Callable[[SparkSession], Iterable[Finding]]
) -> Iterator[Finding]:
    """Return what a look by Spark finds; an error is a line, too."""
    if spark.lacks_jars:
        yield warn(name, "not looked at: Spark lacks its JARs")
        return
    try:
        yield from look(spark.session)
    except Exception as error:  # noqa: BLE001 - those of Java and Hadoop are of any class
        if spark.is_verbose:
            traceback.print_exception(error)
        yield missing(name, line_of(error))
