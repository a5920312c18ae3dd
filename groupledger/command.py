"""The command `groupledger`: what `./spark-submit.sh` is in a checkout."""

from __future__ import annotations

import sys
from typing import NoReturn

from groupledger.application import put_on_path


def main() -> NoReturn:
    """Run a job, as `groupledger JOB [options]` says."""
    put_on_path()
    from launch.submit import main as launch  # noqa: PLC0415 - it is on the path now

    launch(sys.argv[1:], is_installed=True)
