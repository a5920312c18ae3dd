"""A history run that was killed behind one of its writes is resumed, and each table is right."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import history as job
from launch.signals import INTERRUPTED
from schemas.ledger import PLANNED
from schemas.tables import (
    COMMITTED_OFFSETS,
    GROUP_CHECKPOINTS,
    GROUP_STATES,
    OFFSET_MOVES,
    TableSpec,
)
from storage.lakehouse import Lakehouse
from tests.conftest import RECORDINGS
from tests.support.jobs import contents, run, succeed
from tests.support.kills import killed_behind
from tests.support.parts import parts_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def half(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lakehouse with the history of the first of two parts, and the second one decoded."""
    assert spark is not None
    folder = tmp_path_factory.mktemp("half")
    root = folder / "lakehouse"
    for number, part in enumerate(parts_of(RECORDINGS / "4.3.1-modern.parquet", folder, 2)):
        succeed("silver", "--records", part, "--lakehouse", root)
        if number == 0:
            succeed("history", "--lakehouse", root)
    return root


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession, half: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """What the tables hold, and what the ledger says of the run, when nothing happens."""
    root = tmp_path_factory.mktemp("whole") / "lakehouse"
    shutil.copytree(half, root)
    succeed("history", "--lakehouse", root)
    return contents(spark, str(root)), noted(spark, root)


def noted(spark: SparkSession, root: Path) -> dict[str, int]:
    last = Lakehouse(spark, str(root), "default").runs.last("history")
    assert last is not None
    assert last.run == 1
    assert last.details["written"][OFFSET_MOVES.name.partition(".")[2]] == 1
    return last.rows


@pytest.mark.parametrize(
    "table",
    [GROUP_STATES, COMMITTED_OFFSETS, GROUP_CHECKPOINTS],
    ids=lambda spec: spec.name,
)
def test_it_goes_on(
    spark: SparkSession,
    half: Path,
    whole: tuple[dict[str, list[str]], dict[str, int]],
    tmp_path: Path,
    table: TableSpec,
) -> None:
    root = tmp_path / "lakehouse"
    shutil.copytree(half, root)
    with killed_behind(table):
        assert run("history", "--lakehouse", root).status == INTERRUPTED
    succeed("history", "--lakehouse", root)
    expected, rows = whole
    assert contents(spark, str(root)) == expected
    ours = noted(spark, root)
    assert {name: count for name, count in ours.items() if count} == rows
    assert succeed("history", "--lakehouse", root)["groups_changed"] == 0


def test_a_run_that_another_release_has_planned_is_followed_by_a_full_refresh(
    spark: SparkSession,
    half: Path,
    whole: tuple[dict[str, list[str]], dict[str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = tmp_path / "lakehouse"
    shutil.copytree(half, root)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(job, "_RULES", job._RULES - 1)
        succeed("history", "--lakehouse", root)  # a full refresh by the rules of that release
        shutil.rmtree(root / "gold" / "group_checkpoints")
        patch.setattr(job, "_update", killed)
        assert run("history", "--lakehouse", root).status == INTERRUPTED
        planned = Lakehouse(spark, str(root), "default").runs.last("history", PLANNED)
    succeed("history", "--lakehouse", root)
    assert contents(spark, str(root)) == whole[0]
    last = Lakehouse(spark, str(root), "default").runs.last("history")
    assert planned is not None
    assert last is not None
    assert last.run == planned.run + 1
    assert last.is_refresh
    assert succeed("history", "--lakehouse", root)["groups_changed"] == 0


def test_tables_that_were_taken_away_are_made_anew(
    spark: SparkSession,
    half: Path,
    whole: tuple[dict[str, list[str]], dict[str, int]],
    tmp_path: Path,
) -> None:
    root = tmp_path / "lakehouse"
    shutil.copytree(half, root)
    succeed("history", "--lakehouse", root)
    shutil.rmtree(root / "gold")
    succeed("history", "--lakehouse", root)
    assert contents(spark, str(root)) == whole[0]
    last = Lakehouse(spark, str(root), "default").runs.last("history")
    assert last is not None
    assert (last.run, last.is_refresh) == (2, True)


def test_a_table_that_an_old_copy_stands_for_is_made_anew(
    spark: SparkSession,
    half: Path,
    whole: tuple[dict[str, list[str]], dict[str, int]],
    tmp_path: Path,
) -> None:
    root = tmp_path / "lakehouse"
    shutil.copytree(half, root)
    old = tmp_path / "old"
    shutil.copytree(root / "gold" / "group_states", old)
    succeed("history", "--lakehouse", root)
    shutil.rmtree(root / "gold" / "group_states")
    shutil.copytree(old, root / "gold" / "group_states")
    # The tables are looked at when there is something new.
    lakehouse = Lakehouse(spark, str(root), "default")
    with lakehouse.runs.incremental("decode", to=1, force=True, plan={"retried": 0}) as stage:
        assert stage is not None
    lakehouse.runs.write()
    succeed("history", "--lakehouse", root)
    assert contents(spark, str(root)) == whole[0]
