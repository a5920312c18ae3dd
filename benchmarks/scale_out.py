"""Runs the pipeline on a Spark standalone cluster of one worker, then of two, and without one.

Master and workers are processes of this machine, each worker with one core, as many executors as
workers. So this shows that the work divides; what a network costs it does not show. The driver's
own work has no core of its own where there are two workers on two cores. A worker of one core runs
one task at a time, but its JVM compiles and collects garbage on all cores, and its Python runs
beside it; with ``--pinned``, all of that has the worker's core alone, as on a machine of one core.
Beside them, `local[1]` and `local[2]` show what the processes of a cluster cost. The table ends
with where the time goes, by Spark's event log: seconds without any task, in which the driver plans
and commits, and those of all tasks together. A line behind it says what more cores would take at
best.

Run it by ``benchmarks/run.sh scale_out --records 1000000 --work /data/scale-out``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks import generate
from benchmarks.shapes import Measured, pipeline
from tests.support.cluster import FEW_TASKS, HOST, standalone


def main(argv: list[str]) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    generate.add_options(parser)
    parser.add_argument("--work", type=Path, required=True, help="folder for data and lakehouse")
    parser.add_argument("--pinned", action="store_true", help="each worker to a core of its own")
    options = parser.parse_args(argv)
    work: Path = options.work
    topic = work / "topic"
    if not topic.exists():
        generate.generate(generate.shape_of(options), topic)
    # The driver takes its Python along, which executors on this machine have, too.
    os.environ["PYSPARK_PYTHON"] = str(Path(__file__).parents[1] / ".venv" / "bin" / "python")
    os.environ["SPARK_LOCAL_IP"] = HOST
    # Ended by a signal, Python would leave master and workers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    measured = {}
    for cores in (1, 2):
        measured[f"local[{cores}]"] = pipeline(topic, work, ["--master", f"local[{cores}]"])
        with standalone(cores, work, pinned=options.pinned) as cluster:
            argv = ["--master", cluster.master, "--conf", FEW_TASKS]
            measured[f"{cores} worker{'s' if cores > 1 else ''}"] = pipeline(topic, work, argv)
        print(f"measured: {', '.join(measured)}", file=sys.stderr, flush=True)
    print("\n".join(_table(options.records, measured)))
    print(f"\nIf tasks divide evenly, and all else stays as with local[2]: {_at_best(measured)}")


def _table(records: int, measured: Mapping[str, Measured]) -> list[str]:
    every = list(measured.values())
    rows = {"the process as a whole": [one.seconds for one in every]}
    for step in every[0].summary["seconds"]:
        rows[step] = [one.summary["seconds"][step] for one in every]
    rows["no task runs"] = [one.idle_seconds for one in every]
    rows["all tasks together"] = [one.task_seconds for one in every]
    return [
        f"{records:,} records, seconds by",
        f"{'':34}{''.join(f'{name:>12}' for name in measured)}",
        *(f"{n:34}{''.join(f'{value:>12.1f}' for value in row)}" for n, row in rows.items()),
    ]


def _at_best(measured: Mapping[str, Measured]) -> str:
    """Say what a run would take on more cores, whose tasks alone become shorter by them."""
    two = measured["local[2]"]
    rest = two.seconds - two.task_seconds / 2
    return ", ".join(f"{rest + two.task_seconds / n:.0f} s on {n}" for n in (4, 8, 16, 32))


if __name__ == "__main__":
    main(sys.argv[1:])
