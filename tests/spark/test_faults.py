"""What may befall a lakehouse between two runs: tables lost, logs half-copied, a full disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from launch.signals import INTERRUPTED
from schemas.tables import (
    ANOMALIES,
    ANOMALY_CHECKPOINTS,
    COMMITTED_OFFSETS,
    COVERAGE,
    GROUP_CHECKPOINTS,
    GROUP_STATES,
    OFFSET_MOVES,
    OFFSET_PROGRESS,
    RECORDS,
    RESULTS,
    RUNS,
    TableSpec,
    decoded_table,
)
from storage.lakehouse import Lakehouse
from tests.conftest import RECORDINGS
from tests.support.jobs import contents, is_balanced, run, succeed, table
from tests.support.kills import killed_before_it_is_noted
from tests.support.parts import parts_of

JOBS = ("decode", "history", "anomalies")
OF_OFFSETS = [COMMITTED_OFFSETS, OFFSET_MOVES, OFFSET_PROGRESS]
STATE = (RUNS, GROUP_CHECKPOINTS, ANOMALY_CHECKPOINTS, COVERAGE)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return parts_of(RECORDINGS / "4.3.1-connect.parquet", tmp_path_factory.mktemp("parts"), 3)


def bring(root: Path, part: Path) -> None:
    """Take a part of the recording all the way to the anomalies."""
    succeed("ingest", "--records", part, "--lakehouse", root)
    for job in JOBS:
        succeed(job, "--lakehouse", root)


@pytest.fixture(scope="module")
def half(spark: SparkSession, parts: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lakehouse that has two of three parts, each decoded by a run of its own."""
    assert spark is not None
    root = tmp_path_factory.mktemp("half") / "lakehouse"
    succeed("silver", "--records", parts[0], "--lakehouse", root)
    bring(root, parts[1])
    return root


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession, half: Path, parts: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """What the tables hold when nothing happens."""
    root = tmp_path_factory.mktemp("whole") / "lakehouse"
    shutil.copytree(half, root)
    bring(root, parts[2])
    return rows_by_table(spark, root)


@pytest.fixture
def lakehouse(half: Path, tmp_path: Path) -> Path:
    root = tmp_path / "lakehouse"
    shutil.copytree(half, root)
    return root


def rows_by_table(spark: SparkSession, root: Path) -> dict[str, list[str]]:
    """Return the rows of all tables but those that are only kept to go on from."""
    found = contents(spark, str(root))
    return {name: rows for name, rows in found.items() if not name.endswith("_checkpoints")}


def folder(root: Path, spec: TableSpec) -> Path:
    return root / spec.name.replace(".", "/")


class TestLost:
    """Each table that only says how far things are is rebuilt from the others."""

    @pytest.mark.parametrize(
        "specs",
        [
            pytest.param(STATE, id="all of them"),
            *(pytest.param([s], id=s.name) for s in STATE),
        ],
    )
    def test_with_more_to_come(
        self,
        spark: SparkSession,
        lakehouse: Path,
        parts: list[Path],
        whole: dict[str, list[str]],
        specs: list[TableSpec],
    ) -> None:
        for spec in specs:
            shutil.rmtree(folder(lakehouse, spec))
        bring(lakehouse, parts[2])
        assert rows_by_table(spark, lakehouse) == whole
        assert is_balanced(lakehouse)
        again = [succeed(job, "--lakehouse", lakehouse) for job in JOBS]
        assert [summary.get("records_read", 0) for summary in again] == [0, 0, 0]
        assert again[2]["anomalies_run"] is False

    @pytest.mark.parametrize(
        "specs",
        [
            pytest.param([GROUP_STATES], id=GROUP_STATES.name),
            pytest.param([OFFSET_MOVES], id=OFFSET_MOVES.name),
            pytest.param(OF_OFFSETS, id="all of offsets"),
        ],
    )
    def test_a_table_of_the_history(
        self,
        spark: SparkSession,
        lakehouse: Path,
        parts: list[Path],
        whole: dict[str, list[str]],
        specs: list[TableSpec],
    ) -> None:
        for spec in specs:
            shutil.rmtree(folder(lakehouse, spec))
        bring(lakehouse, parts[2])
        assert rows_by_table(spark, lakehouse) == whole

    def test_records_are_missed(self, lakehouse: Path, parts: list[Path]) -> None:
        """Nothing else has the bytes: to go on would hide that they are gone."""
        shutil.rmtree(folder(lakehouse, RECORDS))
        outcome = run("ingest", "--records", parts[2], "--lakehouse", lakehouse)
        assert outcome.status == 1
        assert "lacks the ingest runs 0 to 1" in outcome.complaint
        assert "bring it back from a copy" in outcome.complaint


class TestHalfCopied:
    """A table whose log has a gap, or ends in the middle of a commit, is named in a line."""

    @pytest.mark.parametrize(
        "spec",
        [RUNS, RECORDS, GROUP_STATES],
        ids=["bronze.runs", "bronze.records", "gold.group_states"],
    )
    @pytest.mark.parametrize(
        "damage", ["first commit missing", "a commit missing", "commit cut off", "empty commit"]
    )
    def test_log(
        self,
        spark: SparkSession,
        lakehouse: Path,
        parts: list[Path],
        *,
        whole: dict[str, list[str]],
        spec: TableSpec,
        damage: str,
    ) -> None:
        commits = sorted((folder(lakehouse, spec) / "_delta_log").glob("*.json"))
        if damage == "first commit missing":
            commits[0].unlink()
        elif damage == "a commit missing":
            commits[1].unlink()
        else:
            content = commits[-1].read_bytes() if damage == "commit cut off" else b""
            commits[-1].write_bytes(content[: len(content) // 2])
        for checksum in commits[0].parent.glob(".*.crc"):
            checksum.unlink()
        job = "history" if spec is GROUP_STATES else "ingest"
        if job == "history":
            succeed("silver", "--records", parts[2], "--lakehouse", lakehouse)
        source = ("--records", parts[2]) if job == "ingest" else ()
        outcome = run(job, "--lakehouse", lakehouse, *source)
        if outcome.status == 0:  # a table that follows from others is rebuilt
            assert job == "history"
            succeed("anomalies", "--lakehouse", lakehouse)
            assert rows_by_table(spark, lakehouse) == whole
        else:
            assert "bring it back from a copy" in outcome.complaint
            assert spec.name.replace(".", "/") in outcome.complaint

    def test_data_file(self, lakehouse: Path, parts: list[Path]) -> None:
        spec = decoded_table("offset_commits")
        next(folder(lakehouse, spec).glob("cluster=default/*.parquet")).unlink()
        shutil.rmtree(folder(lakehouse, GROUP_CHECKPOINTS))  # has the history read all of silver
        succeed("silver", "--records", parts[2], "--lakehouse", lakehouse)
        outcome = run("history", "--lakehouse", lakehouse)
        assert outcome.status == 1
        assert "bring it back from a copy" in outcome.complaint
        assert "silver/offset_commits" in outcome.complaint


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of few megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)  # noqa: S607


def leave(disk: Path, free: int) -> Path:
    """Fill a disk but for some bytes; give the file that does."""
    filler = disk / "filler"
    usage = shutil.disk_usage(disk)
    filler.write_bytes(b"\0" * (usage.free - free))
    return filler


def test_a_disk_that_is_full_loses_nothing(
    spark: SparkSession,
    half: Path,
    small_disk: Path,
    parts: list[Path],
    whole: dict[str, list[str]],
) -> None:
    lakehouse = small_disk / "lakehouse"
    shutil.copytree(half, lakehouse)
    before = contents(spark, str(lakehouse))
    failed = 0
    for job in ("ingest", *JOBS):
        source = ("--records", parts[2]) if job == "ingest" else ()
        # The first write fails, or one of the later ones.
        for free in (0, 2**15, 2**17):
            filler = leave(small_disk, free)
            outcome = run(job, "--lakehouse", lakehouse, *source)
            filler.unlink()
            if outcome.status:
                failed += 1
                assert "the disk is full" in outcome.complaint
        if job == "ingest" and failed:
            held = table(spark, str(lakehouse), RECORDS.name).count()
            assert held in {len(before[RECORDS.name]), len(whole[RECORDS.name])}
        succeed(job, "--lakehouse", lakehouse, *source)
    assert failed >= len(JOBS) + 1
    assert rows_by_table(spark, lakehouse) == whole
    assert is_balanced(lakehouse)


def test_a_validation_killed_before_it_was_noted_is_done_again(
    spark: SparkSession, lakehouse: Path
) -> None:
    with killed_before_it_is_noted():
        assert run("validate", "--lakehouse", lakehouse).status == INTERRUPTED
    once = table(spark, str(lakehouse), RESULTS.name).count()
    assert once > 0
    assert succeed("validate", "--lakehouse", lakehouse)["expectations"] == once
    assert table(spark, str(lakehouse), RESULTS.name).count() == once


class TestUpgrade:
    """A lakehouse of an older release opens in a newer one, and the other way round."""

    def test_an_older_release_lacked_columns(
        self,
        spark: SparkSession,
        parts: list[Path],
        whole: dict[str, list[str]],
        lakehouse_path: str,
    ) -> None:
        opened = Lakehouse(spark, lakehouse_path, "default")
        for spec, name in ((COVERAGE, "kafka_cluster_id"), (RUNS, "seconds")):
            columns = tuple(c for c in spec.columns if c.name != name)
            skipping = tuple(c for c in spec.skipping if c != name)
            opened.create(replace(spec, columns=columns, skipping=skipping))
            assert name not in spark.read.format("delta").load(opened.path(spec)).columns
        for part in parts:
            bring(Path(lakehouse_path), part)
        assert rows_by_table(spark, Path(lakehouse_path)) == whole
        for spec, name in ((COVERAGE, "kafka_cluster_id"), (RUNS, "seconds")):
            assert name in spark.read.format("delta").load(opened.path(spec)).columns

    def test_a_newer_release_has_more_columns(
        self, spark: SparkSession, lakehouse: Path, parts: list[Path], whole: dict[str, list[str]]
    ) -> None:
        widened = (RECORDS, COVERAGE, RUNS, GROUP_CHECKPOINTS, GROUP_STATES, ANOMALIES)
        for spec in (*widened, decoded_table("group_metadata")):
            path = folder(lakehouse, spec)
            spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (remark STRING)")
        bring(lakehouse, parts[2])
        assert rows_by_table(spark, lakehouse) == whole
