"""`./spark-submit.sh validate`."""

from __future__ import annotations

import sys

from jobs.runtime.runner import run_job
from jobs.runtime.validate import validate

if __name__ == "__main__":
    sys.exit(run_job(validate, ["validate", *sys.argv[1:]]))
