"""What a reader sees first is what the commands print."""

from __future__ import annotations

import difflib

from pyspark.sql import SparkSession

from docs import front_page


def test_the_pages_show_what_the_demo_prints(spark: SparkSession, storm: str) -> None:
    differences = []
    for page, text in front_page.pages(spark, storm, "one").items():
        lines = (page.read_text("utf-8").splitlines(), text.splitlines())
        differences += difflib.unified_diff(*lines, page.name, f"{page.name}, as printed", n=0)
    assert not differences, "\n".join(["run: docs/front_page.py", *differences])
