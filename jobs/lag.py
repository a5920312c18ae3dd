"""`./spark-submit.sh lag`."""

from __future__ import annotations

import sys

from jobs.runtime.lag import lag
from jobs.runtime.runner import run_job

if __name__ == "__main__":
    sys.exit(run_job(lag, ["lag", *sys.argv[1:]]))
