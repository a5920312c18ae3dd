"""`./spark-submit.sh decode`."""

from __future__ import annotations

import sys

from jobs.runtime.decode import decode
from jobs.runtime.runner import run_job

if __name__ == "__main__":
    sys.exit(run_job(decode, ["decode", *sys.argv[1:]]))
