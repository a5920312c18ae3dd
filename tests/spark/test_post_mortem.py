"""The page of the post-mortem shows what its commands print, and the alarm as it is posted."""

from __future__ import annotations

from pyspark.sql import SparkSession

from docs import post_mortem
from tests.support.jobs import query


def test_the_post_mortem_shows_what_its_commands_print(spark: SparkSession, storm: str) -> None:
    text = post_mortem.PAGE.read_text("utf-8")
    assert text.count("./spark-submit.sh sql ") == 7
    assert text.count("./spark-submit.sh explain ") == 2
    assert text == post_mortem.page(spark, storm, "one"), "run: docs/post_mortem.py"
    alarms = query(
        storm,
        "SELECT concat('[', severity, '] ', kind, ' ', summary) AS line FROM gold.anomalies"
        " WHERE group_id = 'crash-loop' AND kind = 'rebalance_storm'",
    )
    assert alarms[0]["line"] in " ".join(text.split())
