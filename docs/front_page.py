"""Writes what the commands print into README.md, and the demo's numbers into docs/quality.md.

They are those of the bundled recording: PYTHONPATH=. .venv-dev/bin/python docs/front_page.py
"""

from __future__ import annotations

import re
import shlex
import tempfile
import textwrap
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.ingest_decode import spark_session
from docs import cookbook
from docs.markdown import WIDTH
from docs.post_mortem import COMMAND, LAKEHOUSE
from schemas.tables import RESULTS
from storage.lakehouse import Lakehouse

README = cookbook.ROOT / "README.md"
QUALITY = cookbook.ROOT / "docs" / "quality.md"
# The group of which the page tells, and how wide a terminal it shows.
_STORM = "orders-storm"
_COLUMNS = 94
_SUMMARY = re.compile(r"(?<=```\n)24 hours to [^`]*(?=…\nThe report is )")
_LEFT_OUT = "…\n"


def pages(spark: SparkSession, root: str, cluster: str = "default") -> dict[Path, str]:
    """Return the text of the pages, with what the demo's tables at `root` say.

    Args:
        spark: the session.
        root: a lakehouse with the demo's recording, all of it validated.
        cluster: the cluster in it.
    """
    return {README: _readme(spark, root, cluster), QUALITY: _quality(spark, root, cluster)}


def _readme(spark: SparkSession, root: str, cluster: str) -> str:
    of_cluster = ["--lakehouse", root, "--cluster", cluster]
    table, *lines = cookbook.ask(spark, of_cluster, "demo")
    storm = next(line for line in lines if _STORM in line and "rebalance_storm" in line)
    told = textwrap.fill(storm, WIDTH - 2, subsequent_indent="  ", break_on_hyphens=False)
    shown = [*(line.rstrip() for line in table.splitlines()), "", _LEFT_OUT.strip(), told, ""]
    text = _SUMMARY.sub(lambda _: "\n".join(shown), README.read_text("utf-8"))
    text = COMMAND.sub(lambda match: match[1] + _explained(spark, match[2], of_cluster), text)
    # What is said of them in between.
    (in_health,) = re.findall(rf"{_STORM} +\w+ +\w+ +\d+ +(\d+)", table)
    (in_storm,) = re.findall(r"rebalanced (\d+) times", storm)
    text = re.sub(r"\d+ rebalances, not \d+", f"{in_storm} rebalances, not {in_health}", text)
    text = re.sub(r"three of the \d+", f"three of the {in_health}", text)
    return re.sub(r"report: \d+ rebalances", f"report: {in_health} rebalances", text)


def _explained(spark: SparkSession, command: str, of_cluster: list[str]) -> str:
    """Return the head of what a command prints, and its rebalances."""
    words = shlex.split(command.replace("\\\n", " "))
    argv = [word for word in words[2:] if word not in {"--lakehouse", LAKEHOUSE}]
    said, band, axis, legend, _, happened, *_ = cookbook.ask(
        spark, [*argv, *of_cluster], "explain", _COLUMNS
    )
    rebalances = [*re.findall(r"^\S+~ Rebalance .*(?:\n .*)*", happened, re.MULTILINE)]
    lines = "\n".join(rebalances).splitlines()
    shown = [said, band, axis, legend, _LEFT_OUT.strip(), *(line.rstrip() for line in lines)]
    return "\n".join(shown) + "\n" + _LEFT_OUT


def _quality(spark: SparkSession, root: str, cluster: str) -> str:
    results = Lakehouse(spark, root, cluster).read(RESULTS).where("validation_run = 0")
    checked = {row.expectation: row.rows_checked for row in results.collect()}
    count, rows = results.count(), checked["no_interval_is_missing"]
    # The page shows a lakehouse that lacks one row.
    text = QUALITY.read_text("utf-8")
    text = re.sub(r"1 of \d+ rows\. A group", f"1 of {rows - 1} rows. A group", text)
    return re.sub(r"1 failed, \d+ hold", f"1 failed, {count - 1} hold", text)


def main() -> None:
    """Make the lakehouse of the demo, run the commands, and write the pages."""
    with tempfile.TemporaryDirectory() as folder, spark_session("local[2]") as spark:
        cookbook.build(spark, folder, cookbook.DEMO)
        cookbook.ask(spark, ["--lakehouse", folder], "validate")
        for page, text in pages(spark, folder).items():
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
