"""`./spark-submit.sh demo`: the pipeline on a recording of a real broker's topic."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from jobs.pipeline import pipeline
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job

CHECKOUT = Path(os.environ.get("GROUPLEDGER_HOME", Path(__file__).resolve().parents[1]))
"""The checkout; the launcher names it, since the code may run from a zip, without `examples/`."""
RECORDING = "examples/recordings/4.3.1-storm.parquet"


def demo(run: Run) -> None:
    """Run the pipeline on the bundled recording."""
    run.options = dataclasses.replace(run.options, records=str(CHECKOUT / RECORDING))
    pipeline(run)


if __name__ == "__main__":
    sys.exit(run_job(demo, ["demo", *sys.argv[1:]]))
