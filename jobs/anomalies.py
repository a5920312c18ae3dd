"""`./spark-submit.sh anomalies`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jobs.runtime.anomalies import anomalies
from jobs.runtime.notify import notify
from jobs.runtime.runner import run_job
from jobs.runtime.summary import show_anomalies

if TYPE_CHECKING:
    from jobs.runtime.run import Run


def detect(run: Run) -> None:
    """Find the anomalies, print them, and post those that are new."""
    anomalies(run)
    notify(run)
    show_anomalies(run)


if __name__ == "__main__":
    sys.exit(run_job(detect, ["anomalies", *sys.argv[1:]]))
