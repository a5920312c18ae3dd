"""Offsets as of a time: what a group may go back to, and what nobody knows any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.factories import TOPIC_ID, offset_commit
from tests.support.jobs import run, succeed
from tests.support.topic import MINUTE, Topic

TEN = 1_763_719_800_000  # 2025-11-21 10:10 UTC
PLACE, DELETED = 7, -1
OTHER_ID = f"B{TOPIC_ID[1:]}"


def commit(log: Topic, minute: int, topic: str, partition: int, offset: int, **more: str) -> None:
    """Let a group commit, or delete its offset."""
    key = {"group": more.pop("group", "orders"), "topic": topic, "partition": partition}
    version = 4 if "topicId" in more else 3
    key_bytes, value = offset_commit(version, key=key, offset=offset, **more)
    log.add(PLACE, TEN + minute * MINUTE, (key_bytes, None if offset == DELETED else value))


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001
    folder, log = tmp_path_factory.mktemp("offsets"), Topic()
    log.skip(PLACE)
    commit(log, 0, "clicks", 0, 100)
    commit(log, 0, "clicks", 1, 50)
    commit(log, 1, "clicks", 2, 70)
    commit(log, 1, "made-anew", 0, 9, topicId=TOPIC_ID)
    commit(log, 1, "clicks", 0, 100, group="others")
    log.skip(PLACE)  # compaction has taken them before they were read
    commit(log, 2, "clicks", 1, DELETED)
    commit(log, 3, "clicks", 0, 200)
    files = [log.write(folder / "first.parquet")]
    commit(log, 4, "clicks", 3, 1)
    commit(log, 4, "made-anew", 0, 2, topicId=OTHER_ID)
    log.skip(PLACE)  # and these between two readings
    commit(log, 9, "clicks", 0, 900)
    commit(log, 9, "clicks", 2, 99)
    files.append(log.write(folder / "second.parquet"))
    lakehouse = str(folder / "lakehouse")
    steps = ("--only", "ingest,decode,history", "--lakehouse", lakehouse)
    for file in files:
        succeed("pipeline", *steps, "--records", file)
    return lakehouse


def exported(root: str, folder: Path, at: str, *options: str) -> tuple[list[str], str]:
    file = folder / "back.csv"
    line = ("--lakehouse", root, "--offsets-at", f"2025-11-21 10:{at}", "--offsets", file)
    outcome = run("export", *line, *options)
    assert outcome.status == 0, outcome.err
    assert f"--reset-offsets --from-file {file} --dry-run" in outcome.out
    return file.read_text().splitlines(), outcome.err


def test_offsets_are_those_of_the_last_commit_by_then(root: str, tmp_path: Path) -> None:
    lines, said = exported(root, tmp_path, "11:30", "--group", "orders", "--topic", "clicks")
    assert lines == ["clicks,0,100", "clicks,1,50", "clicks,2,70"]
    assert "1 (not committed by then)" in said
    # A second later another commit is the last, and an offset was deleted.
    lines, said = exported(root, tmp_path, "13:00", "--group", "orders", "--topic", "clicks")
    assert lines == ["clicks,0,200", "clicks,2,70"]
    assert "1 (deleted by then)" in said


def test_what_records_are_missing_of_is_left_out(root: str, tmp_path: Path) -> None:
    # What was read with the hole behind it has no later commit there: the cleaner keeps the last.
    lines, said = exported(root, tmp_path, "15:00", "--group", "o.*")
    assert lines == ["clicks,3,1", "made-anew,0,2"]
    assert "4 (records are missing)" in said
    lines, _ = exported(root, tmp_path, "19:00", "--group", "orders", "--topic", "clicks")
    assert lines == ["clicks,0,900", "clicks,2,99", "clicks,3,1"]


def test_another_topic_of_the_name_is_left_alone(root: str, tmp_path: Path) -> None:
    lines, said = exported(root, tmp_path, "11:30", "--group", "orders")
    assert [line for line in lines if line.startswith("made-anew")] == []
    assert "1 (another topic has the name since)" in said


def test_several_groups_are_named_in_the_file(root: str, tmp_path: Path) -> None:
    lines, _ = exported(root, tmp_path, "11:30", "--group", "o.*", "--topic", "clicks")
    assert lines == [
        *("orders,clicks,0,100", "orders,clicks,1,50", "orders,clicks,2,70"),
        "others,clicks,0,100",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--offsets-at", "2025-11-21 10:11", "--group", "order"], "near are orders, others"),
        (["--offsets-at", "2025-11-22 10:11", "--group", "orders"], "knows offsets until"),
        (["--offsets-at", "2025-11-21 10:01", "--group", "orders"], "no offset is known of"),
        (["--offsets-at", "2025-11-21 10:11"], "name the group with --group ID"),
        (["--offsets-at", "soon", "--group", "orders"], "is no time: write"),
        (["--offsets", "back.csv", "--group", "orders"], "say of when with --offsets-at"),
        (["--offsets-at", "10:11", "--group", "o", "--duckdb", "x"], "give exactly one of"),
        (["--offsets-at", "2025-11-21 10:11", "--group", "("], "no regular expression"),
    ],
)
def test_what_cannot_be_told_is_one_line(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run("export", "--lakehouse", root, *options)
    assert outcome.status != 0
    assert said in outcome.err
    assert not list(tmp_path.iterdir())


def test_a_group_that_only_commits_is_in_use_until_its_last_commit(
    root: str, tmp_path: Path
) -> None:
    script = tmp_path / "clean-up.sh"
    line = ("--lakehouse", root, "--script", script, "--unused-since", "2025-11-21 10:15")
    outcome = run("export", *line)
    assert outcome.status == 0, outcome.err
    assert "others: unused since 2025-11-21 10:11:00 UTC, 1 offset of 1 topic" in outcome.out
    assert "--group others\n" in script.read_text()
    assert "orders" not in outcome.out + script.read_text()


def test_a_script_of_before_does_not_stay_where_each_group_is_in_use(
    root: str, tmp_path: Path
) -> None:
    script = tmp_path / "clean-up.sh"
    script.write_text("kafka-consumer-groups.sh --delete --group others\n")
    line = ("--lakehouse", root, "--script", script, "--unused-since", "2025-01-01")
    outcome = run("export", *line)
    assert outcome.status == 0, outcome.err
    assert "0 groups that nobody has used" in outcome.out
    assert "--delete" not in script.read_text()
