"""Runs the pipeline on a Spark standalone cluster of one worker, then of two.

Master and workers are processes of this machine, each worker with one core, as many executors as
workers. So this shows that the work divides; what a network costs it does not show. The driver's
own work has no core of its own where there are two workers on two cores.

Run it by ``benchmarks/run.sh scale_out --records 1000000 --work /data/scale-out``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import generate
from benchmarks.shapes import pipeline
from tests.support.cluster import FEW_TASKS, HOST, standalone

if TYPE_CHECKING:
    from benchmarks.shapes import Measured


def main(argv: list[str]) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    generate.add_options(parser)
    parser.add_argument("--work", type=Path, required=True, help="folder for data and lakehouse")
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
    for workers in (1, 2):
        with standalone(workers, work) as cluster:
            argv = ["--master", cluster.master, "--conf", FEW_TASKS]
            measured[workers] = pipeline(topic, work, argv)
    _print(options.records, measured[1], measured[2])


def _print(records: int, one: Measured, two: Measured) -> None:
    print(f"{records:,} records; one worker, two workers, of a core each")
    rows = [("the process as a whole", one.seconds, two.seconds)]
    second = two.summary["seconds"]
    rows += [(step, spent, second[step]) for step, spent in one.summary["seconds"].items()]
    for step, slow, fast in rows:
        print(f"{step:34}{slow:>8.1f}s{fast:>8.1f}s{slow / fast:>8.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
