"""Runs the commands of docs/post-mortem.md, and writes what they print into the page.

They are asked of the bundled recording: PYTHONPATH=. .venv-dev/bin/python docs/post_mortem.py
"""

from __future__ import annotations

import re
import shlex
import tempfile

from pyspark.sql import SparkSession

from benchmarks.ingest_decode import spark_session
from docs import cookbook

PAGE = cookbook.ROOT / "docs" / "post-mortem.md"
LAKEHOUSE = "./demo-lakehouse"
"""Where the commands of the pages find the demo's tables."""
COMMAND = re.compile(
    r"(```sh\n(\./spark-submit\.sh (?:sql|explain) [^`]+)```\n\n```\n)[^`]*(?=```)"
)
"""A command on a page, and what it prints."""


def page(spark: SparkSession, root: str, cluster: str = "default") -> str:
    """Return the text of the page, with what its commands print of a cluster's tables at `root`."""

    def run(match: re.Match[str]) -> str:
        words = [
            root if word == LAKEHOUSE else word
            for word in shlex.split(match[2].replace("\\\n", " "))
        ]
        job, argv = words[1], words[2:]
        if job == "explain":
            argv += ["--cluster", cluster]
        lines = "\n".join(cookbook.ask(spark, argv, job)).splitlines()
        return match[1] + "".join(f"{line.rstrip()}\n" for line in lines)

    return COMMAND.sub(run, PAGE.read_text("utf-8"))


def main() -> None:
    """Make the lakehouse of the demo, run the commands, and write the page."""
    with tempfile.TemporaryDirectory() as folder, spark_session("local[2]") as spark:
        cookbook.build(spark, folder, cookbook.DEMO)
        PAGE.write_text(page(spark, folder), encoding="utf-8")


if __name__ == "__main__":
    main()
