"""After maintenance the tables have fewer files and the same rows, and runs go on as before."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from launch.command_line import parse
from schemas.ledger import RunId
from schemas.tables import ANOMALY_CHECKPOINTS, GROUP_CHECKPOINTS, GROUP_STATES, LAG, RECORDS, RUNS
from storage.lakehouse import Lakehouse
from storage.tables import spark_schema
from storage.upkeep import Stored
from tests.spark.conftest import Thrice
from tests.support import golden
from tests.support.jobs import contents, noted, run, succeed

FILES = 6


def test_many_small_files_become_few_and_runs_go_on(
    spark: SparkSession, thrice: Thrice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "lakehouse")
    shutil.copytree(thrice.behind[1], root)
    some = {spec.name: spec for spec in (RECORDS, RUNS, GROUP_STATES, GROUP_CHECKPOINTS)}
    monkeypatch.setattr("jobs.maintain.all_tables", lambda: some)
    records = f"{root}/bronze/records"
    held = spark.read.format("delta").load(records).repartition(FILES)
    held.write.format("delta").mode("overwrite").save(records)  # as if of many runs
    before = contents(spark, root)
    orphan = Path(records, "cluster=default", "part-orphan.snappy.parquet")
    orphan.write_bytes(b"of a run that was killed")
    os.utime(orphan, (time.time() - 10 * 86_400,) * 2)
    # A table that is younger than what is kept has nothing to delete.
    later = time.time() + 10 * 86_400
    monkeypatch.setattr("jobs.maintain.time", SimpleNamespace(time=lambda: later))

    dry = run("maintain", "--lakehouse", root, "--dry-run")
    assert "1 old files to delete" in " ".join(dry.out.split())
    assert orphan.exists()
    assert contents(spark, root) == before

    result = succeed("maintain", "--lakehouse", root)
    assert result["files_after"] < result["files_before"]
    assert len(spark.read.format("delta").load(records).inputFiles()) == 1
    assert not orphan.exists()
    assert contents(spark, root) == before

    again = run("maintain", "--lakehouse", root)
    assert "nothing to do" in again.err
    assert again.summary["files_after"] == again.summary["files_before"]

    # Delta still knows which runs the tables have.
    succeed("ingest", "--records", thrice.parts[0], "--lakehouse", root)
    assert contents(spark, root) == before
    golden.add(thrice.parts[2], root)
    now, then = golden.told(Path(root)), golden.told(thrice.behind[2])
    # What detectors go on from has lists in the order in which rows were read.
    differing = {name for name in now.keys() | then.keys() if now.get(name) != then.get(name)}
    assert differing <= {ANOMALY_CHECKPOINTS.name}


@pytest.mark.parametrize(
    ("made", "written", "vacuumed", "is_looked_at"),
    [
        (-9, -9, None, True),
        (1, 1, None, False),
        (-9, 1, -1, True),
        (-9, 1, -0.1, False),
        (-9, -2, -1, False),
    ],
    ids=["old", "young", "a day later", "again at once", "nothing written since"],
)
def test_old_files_are_looked_for_where_there_may_be_some(
    made: float, written: float, vacuumed: float | None, *, is_looked_at: bool
) -> None:
    """Days before and after the time since which files are kept."""
    table = Stored(files=1, bytes=1, created_ms=_ms(made), modified_ms=_ms(written))
    last = None if vacuumed is None else _ms(vacuumed)
    assert table.may_vacuum(_ms(0), last) is is_looked_at


def _ms(day: float) -> int:
    return round((100 + day) * 86_400_000)


def test_old_samples_go_when_asked_but_for_the_newest(
    spark: SparkSession, lakehouse_path: str
) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    for number in range(3):
        values = {"lag_run": number, "group_id": "g", "topic": "t", "topic_partition": 0}
        rows = spark.createDataFrame(
            [tuple(values.get(c.name) for c in LAG.columns)], spark_schema(LAG.columns)
        ).selectExpr("* EXCEPT (sampled_at)", "timestamp'2001-01-01' AS sampled_at")
        lakehouse.append(LAG, rows, RunId("lag", number))
        noted(lakehouse, RunId("lag", number))
    assert succeed("maintain", "--lakehouse", lakehouse_path)["rows_deleted"] == 0
    result = succeed("maintain", "--lakehouse", lakehouse_path, "--retain-lag", 30)
    assert result["rows_deleted"] == 2
    assert [row.lag_run for row in lakehouse.read(LAG).collect()] == [2]


def test_transactions_that_expire_are_refused(spark: SparkSession, lakehouse_path: str) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    lakehouse.create(RECORDS)
    spark.sql(
        f"ALTER TABLE delta.`{lakehouse.path(RECORDS)}` "
        "SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 7 days')"
    )
    assert "would write its rows twice" in run("maintain", "--lakehouse", lakehouse_path).complaint


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--vacuum-hours", "1"], "--vacuum-hours: at least 24"),
        (["--retain-lag", "0"], "--retain-lag: give a number of days"),
        (["--retain-results", "many"], "unable to convert"),
    ],
)
def test_what_would_harm_is_wrong_usage(
    options: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse(["maintain", *options])
    assert refused.value.code == 2
    assert line in capsys.readouterr().err
