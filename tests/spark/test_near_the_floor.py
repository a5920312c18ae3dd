"""Ingest and decode stay near the floor: Spark's copy of the raw records to Delta.

Both are measured in one session, so that the machine does not matter; of few records, starting
tasks is most of either. A function of one record takes 20 times the floor and more.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks import generate
from benchmarks.ingest_decode import copy_raw, run_product

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

RECORDS = 200_000
MOST = 8
TRIES = 2


def test_ingest_and_decode_take_a_few_times_the_floor(spark: SparkSession, tmp_path: Path) -> None:
    topic = str(tmp_path / "topic")
    generate.generate(generate.Shape(records=RECORDS), tmp_path / "topic")

    def ours(number: int) -> None:
        lakehouse = str(tmp_path / f"lakehouse-{number}")
        assert run_product(lakehouse, topic)["records_ingested"] == RECORDS
        assert run_product(lakehouse, None)["decoded"] == RECORDS

    floor = _least_seconds(lambda number: copy_raw(spark, topic, str(tmp_path / f"raw-{number}")))
    took = _least_seconds(ours)
    assert took / floor < MOST, f"{took:.1f} s, the floor {floor:.1f} s"


def _least_seconds(action: Callable[[int], None]) -> float:
    """Do it several times, since the first loads classes and starts workers."""
    found = []
    for number in range(1 + TRIES):
        began = time.monotonic()
        action(number)
        found.append(time.monotonic() - began)
    return min(found)
