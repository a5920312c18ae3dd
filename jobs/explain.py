"""`./spark-submit.sh explain`: what one group did between two times, why, and who owned what."""

from __future__ import annotations

import sys

from jobs.runtime.explain import explain
from jobs.runtime.runner import run_job

if __name__ == "__main__":
    sys.exit(run_job(explain, ["explain", *sys.argv[1:]]))
