"""`./spark-submit.sh maintain`."""

from __future__ import annotations

import sys

from jobs.runtime.maintain import maintain
from jobs.runtime.runner import run_job

if __name__ == "__main__":
    sys.exit(run_job(maintain, ["maintain", *sys.argv[1:]]))
