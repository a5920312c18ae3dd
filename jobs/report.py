"""`./spark-submit.sh report`: one HTML file of how the groups are and what they did."""

from __future__ import annotations

import sys

from jobs.runtime.report import report
from jobs.runtime.runner import run_job

if __name__ == "__main__":
    sys.exit(run_job(report, ["report", *sys.argv[1:]]))
