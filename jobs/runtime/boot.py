"""Runs a job: `python boot.py JOB [options]`.

Python 3.10 looks for imports in the script's folder first, whatever PYTHONSAFEPATH says. There,
jobs/history.py would stand in for the package history: so no job is run as a script itself, and
this one forgets its folder.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    own = Path(__file__).resolve().parent
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != own]
    runpy.run_module(f"jobs.{sys.argv[1]}", run_name="__main__")
