"""`./spark-submit.sh demo`: the pipeline on a recording of a real broker's topic."""

from __future__ import annotations

import dataclasses
import sys

from jobs.pipeline import pipeline
from jobs.runtime.paths import CHECKOUT
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job

RECORDING = "examples/recordings/4.3.1-storm.parquet"


def demo(run: Run) -> None:
    """Run the pipeline on the bundled recording."""
    run.options = dataclasses.replace(run.options, records=str(CHECKOUT / RECORDING))
    pipeline(run)


if __name__ == "__main__":
    sys.exit(run_job(demo, ["demo", *sys.argv[1:]]))
