"""Decode runs that meet each other or an upgrade: the tables are those of an undisturbed run."""

from __future__ import annotations

import io
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from jobs import decode as decode_job
from jobs.runtime.run import Run
from launch import command_line
from launch.signals import INTERRUPTED
from schemas.ledger import PLANNED, LedgerRow
from schemas.tables import QUARANTINE, RUNS, TableSpec, decoded_table
from storage import runs as ledger
from storage.lakehouse import Lakehouse
from tests.conftest import RECORDINGS
from tests.spark.conftest import Thrice
from tests.support.jobs import contents, is_balanced, run, run_of, succeed, table
from tests.support.parts import parts_of

OLDER = "0-older"
# It has rows of consumer_group_metadata in each of three parts.
MODERN = RECORDINGS / "4.3.1-modern.parquet"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few commits and generations, and a record that no decoder knows."""
    recorded = pq.read_table(RECORDINGS / "4.3.1-storm.parquet")
    of_type = [key[1] for key in recorded["key"].to_pylist()]
    some = pa.concat_tables(
        recorded.filter(pa.array([number in types for number in of_type])).slice(0, 12)
        for types in ((0, 1), (2,))
    )
    unknown = [some.slice(0, 1).to_pylist()[0] | {"offset": 1_000_000, "key": b"\0\x63"}]
    path = tmp_path_factory.mktemp("records") / "some.parquet"
    pq.write_table(pa.concat_tables([some, pa.Table.from_pylist(unknown, some.schema)]), path)
    return path


@pytest.fixture(scope="module")
def ingested(
    spark: SparkSession,  # noqa: ARG001
    records: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A lakehouse that has them in bronze, not to be written to."""
    root = tmp_path_factory.mktemp("ingested") / "lakehouse"
    succeed("ingest", "--records", records, "--lakehouse", root)
    return root


@pytest.fixture(scope="module")
def undisturbed(
    spark: SparkSession, ingested: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    root = str(shutil.copytree(ingested, tmp_path_factory.mktemp("undisturbed") / "lakehouse"))
    summary = succeed("decode", "--lakehouse", root)
    assert (summary["decoded"], summary["quarantined"]) == (24, 1)
    return contents(spark, root)


def decode_twice_at_once(
    spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch
) -> list[Run]:
    """Have two runs plan at the same moment, and then decode at the same moment."""
    chosen = command_line.parse(["decode", "--lakehouse", root])
    sessions = [spark.newSession() for _ in range(2)]
    runs = [
        Run(
            spark=session,
            options=chosen,
            lakehouse=Lakehouse(session, root, "default"),
            out=Console(file=io.StringIO()),
            err=Console(file=io.StringIO(), width=200),
        )
        for session in sessions
    ]
    both = threading.Barrier(2, timeout=120)
    row_of, work = ledger._row_of, decode_job._decode

    def decode(each: Run) -> None:
        try:
            decode_job.decode(each)
            each.lakehouse.runs.write()
        except BaseException:
            both.abort()
            raise

    def plan_together(row: LedgerRow) -> dict[str, object]:
        if row.state == PLANNED:
            both.wait()
        return row_of(row)

    def work_together(*arguments: object) -> None:
        both.wait()
        work(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(ledger, "_row_of", plan_together)
        patch.setattr(decode_job, "_decode", work_together)
        failures = [pool.submit(decode, each).exception for each in runs]
        raised = [error for failure in failures if (error := failure()) is not None]
    # What broke the barrier says more than that it is broken.
    for error in sorted(raised, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
        raise error
    return runs


def steps(spark: SparkSession, root: str) -> list[tuple[int, str]]:
    rows = table(spark, root, RUNS.name).where("stage = 'decode'").collect()
    return sorted({(row.run, row.state) for row in rows})  # both may say that it is done


def lines(runs: list[Run]) -> list[str]:
    """Return what was said about the other run."""
    text = "".join(each.err.file.getvalue() for each in runs)  # type: ignore[attr-defined]
    return [line for line in text.splitlines() if "was planned and not done: this run" in line]


def test_two_runs_at_once_do_the_work_of_one(
    spark: SparkSession,
    ingested: Path,
    undisturbed: dict[str, list[str]],
    lakehouse_path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(ingested, lakehouse_path)
    runs = decode_twice_at_once(spark, lakehouse_path, monkeypatch)
    assert contents(spark, lakehouse_path) == undisturbed
    assert steps(spark, lakehouse_path) == [(0, "done"), (0, "planned")]
    assert len(lines(runs)) == 1
    assert succeed("decode", "--lakehouse", lakehouse_path)["records_read"] == 0


def test_a_damaged_file_is_named(ingested: Path, lakehouse_path: str) -> None:
    shutil.copytree(ingested, lakehouse_path)
    file = next(Path(lakehouse_path, "bronze", "records").glob("cluster=*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-8])
    outcome = run("decode", "--lakehouse", lakehouse_path)
    assert outcome.status == 1
    assert f"{file} is damaged, bring it back from a copy" in outcome.complaint


@pytest.mark.parametrize(
    ("table_name", "lost"),
    [
        ("offset_commits", "the folder"),
        pytest.param("consumer_group_metadata", "the last commit", marks=pytest.mark.slow),
    ],
)
def test_silver_that_is_lost_in_part_is_reported(
    spark: SparkSession, thrice: Thrice, tmp_path: Path, table_name: str, lost: str
) -> None:
    lakehouse_path = str(tmp_path / "lakehouse")
    if table_name == "offset_commits":  # which every part of the recording has
        shutil.copytree(thrice.behind[1], lakehouse_path)
        third = thrice.parts[2]
    else:
        first, second, third = parts_of(MODERN, tmp_path, 3)
        for part in (first, second):
            succeed("silver", "--records", part, "--lakehouse", lakehouse_path)
    folder = Path(lakehouse_path, "silver", table_name)
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole)
    if lost == "the folder":
        shutil.rmtree(folder)
    else:
        newest = max((folder / "_delta_log").glob("*.json"))
        for file in (newest, newest.with_suffix(".crc")):
            file.unlink()
            file.with_name(f".{file.name}.crc").unlink()
    # A process that begins knows nothing of what was there.
    forget_logs = spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache  # type: ignore[union-attr]
    forget_logs()
    succeed("ingest", "--records", third, "--lakehouse", lakehouse_path)
    for _ in range(2):
        outcome = run("decode", "--lakehouse", lakehouse_path)
        assert outcome.status == 1
        assert f"silver.{table_name} has no row of decode run 1, which wrote" in outcome.complaint
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    forget_logs()
    succeed("decode", "--lakehouse", lakehouse_path)


def test_a_table_of_an_earlier_release_gets_the_columns_it_lacks(
    spark: SparkSession, ingested: Path, undisturbed: dict[str, list[str]], lakehouse_path: str
) -> None:
    shutil.copytree(ingested, lakehouse_path)
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    spec = decoded_table("group_metadata")
    fewer = [c for c in spec.columns if c.name not in ("protocol", "members")]
    lakehouse.create(replace(spec, columns=tuple(fewer)))
    succeed("decode", "--lakehouse", lakehouse_path)
    written = table(spark, lakehouse_path, spec.name)
    assert not written.where("size(members) > 0 AND protocol IS NOT NULL").isEmpty()
    assert {c.name for c in spec.columns} == set(written.columns)
    assert (
        contents(spark, lakehouse_path)["silver.offset_commits"]
        == (undisturbed["silver.offset_commits"])
    )


def test_an_upgrade_in_the_middle_of_a_run(
    spark: SparkSession,
    ingested: Path,
    undisturbed: dict[str, list[str]],
    lakehouse_path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(ingested, lakehouse_path)
    decoded, append = decode_job.decoded_together, Lakehouse.append

    def decoded_in_part(rows: DataFrame, *arguments: object) -> DataFrame:
        return decoded(rows.where(F.col("record_offset") % 3 != 0), *arguments)  # type: ignore[arg-type]

    def killed_before_commits(self: Lakehouse, spec: TableSpec, *arguments: object) -> int | None:
        if spec.name == "silver.offset_commits":
            raise KeyboardInterrupt
        return append(self, spec, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as older:
        older.setattr(decode_job, "decoder_id", lambda: OLDER)
        older.setattr(decode_job, "decoded_together", decoded_in_part)
        older.setattr(Lakehouse, "append", killed_before_commits)
        assert run("decode", "--lakehouse", lakehouse_path).status == INTERRUPTED
    half = table(spark, lakehouse_path, "silver.group_metadata").count()
    assert 0 < half < 12

    # The next run first ends this one, and goes on with what the older one refused: here, later.
    ending = run_of(spark, lakehouse_path, "decode")
    assert decode_job._follow(ending)
    ending.lakehouse.runs.write()
    ended = ending.summary
    assert (ended["decoded"], ended["quarantined"]) == (12 + half, 1 + 12 - half)
    assert is_balanced(lakehouse_path)
    refused = table(spark, lakehouse_path, QUARANTINE.name).select("decoder").distinct()
    assert [row.decoder for row in refused.collect()] == [OLDER]

    # What the older one refused is tried again, here by two runs at once.
    runs = decode_twice_at_once(spark, lakehouse_path, monkeypatch)
    assert contents(spark, lakehouse_path) == undisturbed
    assert steps(spark, lakehouse_path) == [(n, s) for n in (0, 1) for s in ("done", "planned")]
    assert len(lines(runs)) == 1
    assert succeed("decode", "--lakehouse", lakehouse_path)["records_read"] == 0
