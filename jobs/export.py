"""`./spark-submit.sh export`: gold and its views for tools without Spark."""

from __future__ import annotations

import sys

from jobs.runtime.export import export
from jobs.runtime.runner import run_job

if __name__ == "__main__":
    sys.exit(run_job(export, ["export", *sys.argv[1:]]))
