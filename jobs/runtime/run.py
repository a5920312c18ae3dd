"""What a job works with: its options, its tables, and what it tells."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from rich.console import Console

    from jobs.runtime.options import Options
    from lakehouse.tables import Lakehouse

Figure: TypeAlias = "bool | int | float | str | dict[str, int] | dict[str, float] | list[str]"


@dataclass
class Run:
    """What a job works with, and its summary.

    Attributes:
        lakehouse: the tables, as the last log of the cluster sees them.
        former: the same for its earlier logs, the first one first.
        label: what a step's name begins with.
        summary: figures for the JSON summary, by name.
        seconds: how long each step took.
        status: the exit status, if nothing fails.
    """

    spark: SparkSession
    options: Options
    lakehouse: Lakehouse
    out: Console
    err: Console
    former: list[Lakehouse] = field(default_factory=list)
    label: str = ""
    summary: dict[str, Figure] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    status: int = 0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show progress on stderr, and note how long the step takes."""
        name = self.label + name
        started = time.monotonic()
        with self.err.status(f"{name} …"):
            yield
        taken = time.monotonic() - started
        self.seconds[name] = round(self.seconds.get(name, 0.0) + taken, 3)
        self.say(f"{name}: {taken:.1f} s")

    def say(self, text: str) -> None:
        """Print a line of progress on stderr."""
        self.err.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)
