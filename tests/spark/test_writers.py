"""Two runs at once are told of where Delta cannot tell; how files of other stores are written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.runtime import writers
from storage import files
from tests.support.jobs import run_of


@pytest.fixture
def _unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a folder of this machine stand for a bucket."""
    monkeypatch.setattr(writers, "_UNSAFE", ("/",))


@pytest.mark.usefixtures("_unsafe")
def test_of_two_runs_at_once_the_second_says_so(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "a b"
    first, second = (run_of(spark, str(root), "decode") for _ in range(2))
    with writers.announced(first):
        assert capsys.readouterr().err == ""
        with writers.announced(run_of(spark, str(root), "sql", "--query", "SELECT 1")):
            assert capsys.readouterr().err == ""
        with writers.announced(second):
            said = capsys.readouterr().err
        assert said.startswith("another run may be writing to this lakehouse: decode of default on")
    assert list((root / "writers").iterdir()) == []


@pytest.mark.usefixtures("_unsafe")
def test_a_run_that_was_killed_long_ago_is_none(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write(spark, f"{tmp_path}/writers/killed", "decode")
    for hours, is_told in ((11, True), (13, False)):
        at = time.time() - hours * 3_600
        os.utime(tmp_path / "writers" / "killed", (at, at))
        with writers.announced(run_of(spark, str(tmp_path), "decode")):
            assert bool(capsys.readouterr().err) is is_told


def test_elsewhere_nothing_is_left(spark: SparkSession, tmp_path: Path) -> None:
    with writers.announced(run_of(spark, str(tmp_path), "decode")):
        assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    file = f"file:{tmp_path}/é b/page.html"
    assert files.head(spark, file, 5) == ""
    assert files.is_empty(spark, f"file:{tmp_path}/é b")
    for text in ("ä long text", "shört"):
        files.write(spark, file, text)
        assert (tmp_path / "é b" / "page.html").read_text("utf-8") == text
        assert files.head(spark, file, 3) == text[:3]
    assert not files.is_empty(spark, f"file:{tmp_path}/é b")
    files.delete(spark, file)
    assert files.head(spark, file, 3) == ""
