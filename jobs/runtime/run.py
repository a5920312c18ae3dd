"""What a job works with: its options, its tables, and what it tells."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.console import Console
from rich.status import Status

from launch.options import Options
from storage.lakehouse import Lakehouse

Figure: TypeAlias = "bool | int | float | str | dict[str, int] | dict[str, float] | list[str]"


_LOOK_S = 0.5


def complain(err: Console, text: str) -> None:
    """Print what has gone wrong on stderr."""
    line = f"groupledger: {text}"
    err.print(line, style="red", markup=False, highlight=False, soft_wrap=True)


@dataclass(kw_only=True)
class Told:
    """What a job works with that needs no Spark, and its summary."""

    options: Options
    out: Console
    err: Console
    # Figures for the JSON summary, by name.
    summary: dict[str, Figure] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # how long each step took
    status: int = 0  # the exit status, if nothing fails

    def add(self, **figures: int | dict[str, int]) -> None:
        """Add to figures of the summary, each a number or numbers by name."""
        for name, figure in figures.items():
            known: Any = self.summary.get(name)
            if known is None:
                self.summary[name] = figure
            elif isinstance(figure, dict):
                names = dict.fromkeys([*figure, *known])
                self.summary[name] = {n: known.get(n, 0) + figure.get(n, 0) for n in names}
            else:
                self.summary[name] = known + figure

    @contextmanager
    def step(self, name: str, counted: str | None = None) -> Iterator[None]:
        """Show progress on stderr, and note how long the step takes.

        The name of the figure that it fills in begins with what is counted: `records_read`.
        """
        started = time.monotonic()
        with self.err.status(f"{name} …") as status, self._watched(name, status):
            yield
        taken = time.monotonic() - started
        self.seconds[name] = round(self.seconds.get(name, 0.0) + taken, 3)
        count = self.summary.get(counted or "")
        line = f"{name}: {taken:.1f} s"
        if counted is not None and isinstance(count, int) and count:
            line += f", {count:,} {counted.partition('_')[0]}"
            line += f" ({count / taken:,.0f}/s)" if count > taken else ""
        self.say(line)

    def _watched(self, name: str, status: Status) -> AbstractContextManager[None]:  # noqa: ARG002
        """Show more of a step, while it lasts."""
        return nullcontext()

    def tell(self, text: str) -> None:
        """Print a line of the result on stdout."""
        self.out.print(text, markup=False, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line of progress on stderr."""
        self.err.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


@dataclass(kw_only=True)
class Run(Told):
    """What a job works with."""

    spark: SparkSession
    lakehouse: Lakehouse  # the tables, as the cluster sees them

    @contextmanager
    def _watched(self, name: str, status: Status) -> Iterator[None]:
        """Show on a terminal how many of Spark's tasks are done, of the stages that run."""
        if not self.err.is_terminal:
            yield
            return
        is_over = threading.Event()

        def look() -> None:
            tracker = self.spark.sparkContext.statusTracker()
            # A JVM that is gone is reported by those who need its answers.
            with suppress(Py4JError, OSError):
                while not is_over.wait(_LOOK_S):
                    found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                    stages = [stage for stage in found if stage is not None]
                    done = sum(stage.numCompletedTasks for stage in stages)
                    tasks = sum(stage.numTasks for stage in stages)
                    status.update(f"{name} … {done:,} of {tasks:,} tasks" if tasks else f"{name} …")

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
