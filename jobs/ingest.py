"""`./spark-submit.sh ingest`."""

from __future__ import annotations

import sys

from jobs.runtime.ingest import ingest
from jobs.runtime.runner import run_job

if __name__ == "__main__":
    sys.exit(run_job(ingest, ["ingest", *sys.argv[1:]]))
