"""Brings topics of awkward shapes through the pipeline, and looks at memory and stragglers.

Each is one ``./spark-submit.sh pipeline`` in a process of its own, with the settings that a user
has on one machine. A straggler is a task that takes far longer than the median of its stage.

Run it by ``benchmarks/run.sh shapes --work /data/shapes``; ``--only usual --records 50000000`` is
the usual mix, as much of it as asked for.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from benchmarks import generate, growth, memory
from benchmarks.generate import Shape

Span: TypeAlias = tuple[int, int]
"""From when to when a task ran, in epoch milliseconds."""

SHAPES = {
    "usual": Shape(records=5_000_000),
    "one partition has half": Shape(records=2_000_000, is_crowded=True),
    "one group has half": Shape(records=2_000_000, skew=0.5),
    # Each commit in one task of its group, if any stage does so, and a gap behind every tenth.
    "one group, compacted": Shape(
        records=20_000_000, groups=1, skew=1, commits=0.998, group_metadata=0.001, gaps=0.1
    ),
    "2,000 members of 10,000 partitions": Shape(
        records=200_000,
        groups=1,
        skew=1,
        members=(2_000, 2_000),
        commits=0.95,
        group_metadata=0.002,
        topic_partitions=(10_000,),
    ),
    "100,000 groups": Shape(records=2_000_000, groups=100_000, members=(1, 3)),
    "group metadata of 1 MB": Shape(
        records=2_000, groups=20, members=(3_500, 3_500), commits=0.5, group_metadata=0.45
    ),
}


class Stage(NamedTuple):
    """The tasks of a stage: how many, and seconds of the median and of the longest."""

    name: str
    tasks: int
    median: float
    longest: float

    @property
    def ratio(self) -> float:
        """The longest task in medians."""
        return self.longest / self.median if self.median else 1.0


class Measured(NamedTuple):
    """What a run of the pipeline took, and said."""

    seconds: float
    peak_gib: float
    summary: dict[str, Any]
    stages: list[Stage]
    task_seconds: float  # of all of Spark's tasks together
    idle_seconds: float  # in which no task ran, from the first one to the last


def pipeline(records: Path, work: Path, spark: Sequence[str] = ()) -> Measured:
    """Bring records into a new lakehouse below `work`, and measure it.

    Args:
        records: The topic.
        work: Folder for the lakehouse and Spark's event log.
        spark: More options, such as the master.

    Raises:
        SystemExit: The pipeline failed.
    """
    lakehouse, events = work / "lakehouse", work / "events"
    shutil.rmtree(lakehouse, ignore_errors=True)
    shutil.rmtree(events, ignore_errors=True)
    events.mkdir(parents=True)
    more = list(spark)
    conf = {"enabled": "true", "dir": events.as_uri()}
    conf |= {"compress": "false", "rolling.enabled": "false"}  # one file of text
    for key, value in conf.items():
        more += ["--conf", f"spark.eventLog.{key}={value}"]
    with memory.measured() as peak:
        took, summary = growth.pipeline(records, lakehouse, *more)
    names, spans = tasks(next(events.iterdir()))
    return Measured(took, peak.gib, summary, stages(names, spans), *load(spans.values()))


def tasks(log: Path) -> tuple[dict[int, str], dict[int, list[Span]]]:
    """Read the names of an event log's stages, and from when to when each of their tasks ran."""
    names: dict[int, str] = {}
    spans: dict[int, list[Span]] = defaultdict(list)
    with log.open() as lines:
        for line in lines:
            event = json.loads(line)
            if event["Event"] == "SparkListenerStageSubmitted":
                info = event["Stage Info"]
                names[info["Stage ID"]] = info["Stage Name"]
            elif event["Event"] == "SparkListenerTaskEnd":
                info = event["Task Info"]
                spans[event["Stage ID"]].append((info["Launch Time"], info["Finish Time"]))
    return names, spans


def stages(names: dict[int, str], spans: dict[int, list[Span]]) -> list[Stage]:
    """Return the stages with several tasks."""
    seconds = {
        number: [(end - start) / 1000 for start, end in of_stage]
        for number, of_stage in sorted(spans.items())
    }
    return [
        Stage(names[number], len(taken), statistics.median(taken), max(taken))
        for number, taken in seconds.items()
        if len(taken) > 1
    ]


def load(spans: Iterable[list[Span]]) -> tuple[float, float]:
    """Return the seconds of all tasks together, and those between them in which none ran."""
    every = sorted(chain.from_iterable(spans))
    idle, until = 0, every[0][0]
    for start, end in every:
        idle, until = idle + max(0, start - until), max(until, end)
    return sum(end - start for start, end in every) / 1000, idle / 1000


def main(argv: list[str]) -> None:
    """Measure, and print a paragraph for each shape."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", choices=SHAPES, action="append", help="this shape, none else")
    parser.add_argument("--records", type=int, help="so many, whatever the shape has")
    parser.add_argument("--work", type=Path, required=True, help="folder for data and lakehouse")
    options = parser.parse_args(argv)
    for name in options.only or SHAPES:
        shape = SHAPES[name]
        if options.records:
            shape = replace(shape, records=options.records)
        work = options.work / name.replace(" ", "-").replace(",", "")
        topic = work / "topic"
        if not topic.exists():
            generate.generate(shape, topic)
        _print(name, shape, pipeline(topic, work))
        shutil.rmtree(work / "lakehouse")


def _print(name: str, shape: Shape, measured: Measured) -> None:
    whole = f"{measured.seconds:.0f} s, peak {measured.peak_gib:.1f} GiB"
    print(f"\n{name}: {shape.records:,} records, {whole}")
    for step, spent in measured.summary["seconds"].items():
        print(f"  {step:32}{spent:>8.1f}s")
    longest = sorted(measured.stages, key=lambda stage: stage.longest - stage.median, reverse=True)
    for stage in longest[:3]:
        took = f"median {stage.median:.1f} s, longest {stage.longest:.1f} s"
        print(f"  {stage.tasks} tasks, {took}, x {stage.ratio:.1f}: {stage.name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
