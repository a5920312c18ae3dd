"""`./spark-submit.sh history`."""

from __future__ import annotations

import sys

from jobs.runtime.history import history
from jobs.runtime.runner import run_job

if __name__ == "__main__":
    sys.exit(run_job(history, ["history", *sys.argv[1:]]))
