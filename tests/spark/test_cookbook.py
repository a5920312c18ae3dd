"""The page of questions shows what its statements give."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from docs import cookbook


def test_the_cookbook_shows_what_is_answered(
    spark: SparkSession, storm: str, tmp_path: Path
) -> None:
    more = str(tmp_path / "lakehouse")
    cookbook.build(spark, more, cookbook.MORE)
    shown = {
        file: cookbook.answers(spark, root, file)
        for file, root in ((cookbook.DEMO, storm), (cookbook.MORE, more))
    }
    assert cookbook.PAGE.read_text("utf-8") == cookbook.page(shown), "run: docs/cookbook.py"
