"""`./spark-submit.sh sql`."""

from __future__ import annotations

import sys

from jobs.runtime.runner import run_job
from jobs.runtime.sql import sql

if __name__ == "__main__":
    sys.exit(run_job(sql, ["sql", *sys.argv[1:]]))
