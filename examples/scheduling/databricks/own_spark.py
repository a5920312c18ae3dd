"""Runs a job by groupledger's own Spark where another Spark is set up, as on Databricks.

python own_spark.py JOB [options]. The jobs use classes of Delta Lake that other Sparks lack.
"""

from __future__ import annotations

import os
import subprocess
import sys


def main(argv: list[str]) -> int:
    """Run ./spark-submit.sh, and hand on how it ends."""
    home = os.environ.get("GROUPLEDGER_HOME", "/opt/groupledger")
    others = ("SPARK", "PYSPARK", "PYTHONPATH", "PYTHONHOME", "CLASSPATH", "MASTER")
    env = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return subprocess.run([f"{home}/spark-submit.sh", *argv], check=False, env=env).returncode


if __name__ == "__main__":
    # Where a script is run inside a notebook's Python, any SystemExit looks like a failure.
    if status := main(sys.argv[1:]):
        sys.exit(status)
