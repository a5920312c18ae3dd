"""Measures what history costs the next run: the same hour, behind a short and a long history.

Makes a topic, cuts its last part off as "the hour", and brings the rest into two lakehouses: all of
it into one, its last part into the other. Then the hour is run on copies of both in turn, each
time as ``./spark-submit.sh pipeline`` in a process of its own, Spark's start included.

Run it by ``benchmarks/run.sh growth --history 20000000 --short 5000000 --work /data/growth``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import generate, memory

ROOT = Path(__file__).parents[1]
_SHORT = 100  # usually, the short history is this part of the long one


def main(argv: list[str]) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--history", type=int, default=5_000_000, help="records of history")
    parser.add_argument("--short", type=int, help="of the short one (default: a hundredth)")
    parser.add_argument("--hour", type=int, default=50_000, help="records of the hour")
    parser.add_argument("--groups", type=int, default=generate.Shape.groups)
    parser.add_argument("--runs", type=int, default=3, help="runs of the hour on each")
    parser.add_argument("--work", type=Path, required=True, help="folder for data and lakehouses")
    options = parser.parse_args(argv)
    work: Path = options.work
    options.short = options.short or options.history // _SHORT
    if not (work / "hour").exists():
        prepare(work, options.history, options.hour, options.groups, options.short)
    for name in ("short", "long"):
        if not lakehouse_of(work, name).exists():
            first = bring_in(work, name)
            took = f"{first.seconds:.1f} s, peak {first.peak_gib:.1f} GiB"
            print(f"{name} history brought in: {took}")
            for step, spent in first.steps.items():
                print(f"  {step:32}{spent:>8.1f}s", flush=True)
    if options.runs:
        _print(options, hours(work, options.runs))


class First(NamedTuple):
    """What the first run of a history took: seconds, also of each step, and memory."""

    seconds: float
    steps: dict[str, float]
    peak_gib: float


class Hours(NamedTuple):
    """Seconds of runs of the hour behind each history, and by step."""

    seconds: dict[str, list[float]]
    steps: dict[str, dict[str, list[float]]]


def prepare(
    work: Path,
    history: int,
    hour: int,
    groups: int = generate.Shape.groups,
    short: int | None = None,
) -> None:
    """Make the records: so many of history, the last of them, and so many that follow."""
    shape = generate.Shape(records=history + hour, groups=groups)
    generate.generate(shape, work / "topic")
    _cut(work, hour / shape.records, 1 / _SHORT if short is None else short / history)


def lakehouse_of(work: Path, name: str) -> Path:
    """Name the lakehouse of the short or the long history."""
    return work / f"lakehouse-{name}"


def bring_in(work: Path, name: str) -> First:
    """Bring the short or the long history into an empty lakehouse."""
    with memory.measured() as peak:
        took, measured = pipeline(work / name, lakehouse_of(work, name))
    return First(took, measured["seconds"], peak.gib)


def hours(work: Path, runs: int) -> Hours:
    """Run the hour behind copies of both histories in turn, so many times each."""
    measured = Hours({}, {})
    for _ in range(runs):
        for name in ("short", "long"):
            copy = work / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            # Delta never changes a file, so that links are as good as copies.
            shutil.copytree(lakehouse_of(work, name), copy, copy_function=os.link)
            took, summary = pipeline(work / "hour", copy)
            measured.seconds.setdefault(name, []).append(took)
            for step, spent in summary["seconds"].items():
                measured.steps.setdefault(step, {}).setdefault(name, []).append(spent)
    return measured


def _cut(work: Path, share: float, short: float) -> None:
    """Cut each partition: a share of it is the hour, a share of what is before that is short."""
    files = sorted((work / "topic").glob("*.parquet"))
    ends: dict[int, int] = {}
    for file in files:
        table = pq.read_table(file, columns=["partition", "offset"])
        last = table.group_by("partition").aggregate([("offset", "max")])
        for row in last.to_pylist():
            ends[row["partition"]] = max(ends.get(row["partition"], -1), row["offset_max"])
    for name in ("hour", "short", "long"):
        (work / name).mkdir()
    for file in files:
        table = pq.read_table(file)
        partitions = table["partition"].to_pylist()
        end = pa.array([ends[p] + 1 for p in partitions], pa.int64())
        from_hour = pc.ceil(pc.multiply(end.cast(pa.float64()), 1 - share))
        from_short = pc.multiply(from_hour, 1 - short)
        offset = table["offset"].combine_chunks().cast(pa.float64())
        in_hour = pc.greater_equal(offset, from_hour)
        in_short = pc.and_(pc.invert(in_hour), pc.greater_equal(offset, from_short))
        for name, chosen in (("hour", in_hour), ("short", in_short), ("long", pc.invert(in_hour))):
            part = table.filter(chosen)
            if part.num_rows:
                pq.write_table(part, work / name / file.name)
    shutil.rmtree(work / "topic")


def pipeline(
    records: Path, lakehouse: Path, *more: str, checkout: Path = ROOT
) -> tuple[float, dict[str, Any]]:
    """Run the pipeline in a process of its own, and give its seconds and its summary.

    Args:
        records: The topic.
        lakehouse: Where it goes.
        more: More options.
        checkout: Whose pipeline it is.

    Raises:
        SystemExit: it failed.
    """
    command = [checkout / "spark-submit.sh", "pipeline", "--records", records]
    command += ["--lakehouse", lakehouse, "--json", *more]
    started = time.monotonic()
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    took = time.monotonic() - started
    if done.returncode:
        sys.exit(f"pipeline of {records} failed: {done.stderr[-2000:]}")
    return took, json.loads(done.stdout.splitlines()[-1])


def medians(spent: dict[str, list[float]]) -> tuple[float, float]:
    """Return the medians of the hours behind the short and behind the long history."""
    return statistics.median(spent["short"]), statistics.median(spent["long"])


def _print(options: argparse.Namespace, measured: Hours) -> None:
    print(f"\nan hour of {options.hour:,} records, median of {options.runs} runs, in turn")
    print(f"{'':34}{'short':>10}{'long':>10}{'ratio':>8}")
    rows = [("the process as a whole", measured.seconds), *sorted(measured.steps.items())]
    for name, spent in rows:
        short, long = medians(spent)
        print(f"{name:34}{short:>9.1f}s{long:>9.1f}s{long / short if short else 0:>8.2f}")
    print(f"short: {options.short:,} records of history; long: {options.history:,}")


if __name__ == "__main__":
    main(sys.argv[1:])
