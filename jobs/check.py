"""`./spark-submit.sh check`: what a pipeline would lack, before the first one; writes nothing."""

from __future__ import annotations

import sys

from jobs.runtime.check import check
from jobs.runtime.runner import run_alone

if __name__ == "__main__":
    sys.exit(run_alone(check, ["check", *sys.argv[1:]]))
