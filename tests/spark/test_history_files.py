"""The history that tasks read and write by Arrow is the one that Spark tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from benchmarks import generate
from jobs.runtime import gold_files, history
from jobs.runtime.shares import shared_out
from schemas.tables import OFFSET_PROGRESS
from storage.tables import Lakehouse
from tests.conftest import RECORDINGS
from tests.support.jobs import contents, succeed
from tests.support.parts import parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

    from jobs.runtime.shares import Share

_RUNS = 2


def test_tables_that_spark_writes_are_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [str(tmp_path / folder) for folder in ("files", "by_spark")]
    for file in parts_of(RECORDINGS / "4.3.1-modern.parquet", tmp_path / "parts", _RUNS):
        for root in folders:
            succeed("silver", "--records", file, "--lakehouse", root)
        with monkeypatch.context() as patch:
            patch.setattr(gold_files, "shared_out", _by_group)
            patch.setattr(gold_files, "_HERE", -1)  # which would be one share
            # As of many; that few are joined here alike, the splits into runs show.
            patch.setattr(history, "_HOURS_HERE", 1)
            succeed("history", "--lakehouse", folders[0])
        with monkeypatch.context() as patch:
            # As where the lakehouse is no folder of this machine.
            patch.setattr(Lakehouse, "local_root", None)
            succeed("history", "--lakehouse", folders[1])
    by_files, by_spark = (contents(spark, root) for root in folders)
    assert by_files["gold.offset_progress"]
    for table in by_files:
        # The state to go on from may be written down in another order.
        if table != "gold.group_heads":
            assert by_files[table] == by_spark[table], table


def test_hours_that_are_over_are_not_written_anew(spark: SparkSession, tmp_path: Path) -> None:
    day = generate.records(generate.Shape(), 20_000)
    cut = day.num_rows * 47 // 48
    root, files = str(tmp_path / "lakehouse"), []
    for number, part in enumerate((day.slice(0, cut), day.slice(cut))):
        pq.write_table(part, tmp_path / f"{number}.parquet")
        succeed("silver", "--records", str(tmp_path / f"{number}.parquet"), "--lakehouse", root)
        succeed("history", "--lakehouse", root)
        logged = Lakehouse(spark, root, "default").logged_files(OFFSET_PROGRESS)
        files.append({file["path"] for file in logged or ()})
    assert len(files[0]) == 2
    assert len(files[0] & files[1]) == 1


def _by_group(weights: Mapping[tuple[str, int], float], _: float) -> list[Share]:
    """Share out so that a partition is cut behind each group."""
    shares = shared_out(weights, min(weights.values()))
    assert any(share.to is not None for share in shares)
    return shares
