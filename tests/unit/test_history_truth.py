"""The history of real recordings, compared with what their brokers logged."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.truth import score
from tests.support.history import TABLES, Log, Row, check_timeline, cut_anywhere, logs_of, rebuild
from tests.support.truth import Truth
from timeline.model import GENERATIONS, OWNERS, STATES

ROOT = Path(__file__).parents[2]
TRUTH = ROOT / "tests" / "truth"
RECORDINGS = {
    path.stem: path
    for folder in (ROOT / "examples" / "recordings", TRUTH)
    for path in sorted(folder.glob("*.parquet"))
}
EXACT_MS = 25
LOGGED_MS = 50
# Share of the time that the state is the broker's; what crude rules reach is in docs/states.md.
ACCURACY = {
    "0.11.0.3-default": 0.90,
    "2.2.2-default": 0.96,
    "3.9.2-zk-default": 0.96,
    "3.9.2-kraft-modern": 0.99,
    "4.3.1-classic": 0.98,
    "4.3.1-connect": 0.97,
    "4.3.1-storm": 0.92,
}
LEGAL = {
    "Empty": {"PreparingRebalance", "Dead"},
    "PreparingRebalance": {"CompletingRebalance", "Empty", "Dead"},
    "CompletingRebalance": {"Stable", "PreparingRebalance", "Dead"},
    "Stable": {"PreparingRebalance", "Dead"},
    "Dead": {"Empty"},
}


def histories(name: str) -> dict[str, dict[str, list[Row]]]:
    return {log.group_id: rebuild(log) for log in logs_of(RECORDINGS[name])}


def is_legal(before: Row, after: Row) -> bool:
    if before["group_type"] != "classic" or after["group_type"] != "classic":
        return True
    return after["state"] in LEGAL[before["state"]]


@pytest.mark.parametrize("name", [*ACCURACY, "4.3.1-modern"])
def test_each_stable_generation_has_its_times(name: str) -> None:
    ours = histories(name)
    truth = Truth(TRUTH / f"{name}.coordinator.jsonl")
    stable_errors, join_errors = [], []
    for group, generations in truth.stabilized.items():
        rows = [r for r in ours[group][GENERATIONS] if r["group_type"] == "classic"]
        for logged in generations:
            row = min(
                (r for r in rows if r["generation"] == logged.generation and r["stable_at"]),
                key=lambda r, at=logged.stable_at: abs(r["stable_at"] - at),
                default=None,
            )
            assert row is not None, (group, logged)
            stable_errors.append(abs(row["stable_at"] - logged.stable_at))
            if logged.join_completed is not None and not name.startswith("0."):
                join_errors.append(abs(row["join_completed_at"] - logged.join_completed))
            assert row["aborted_generations"] == logged.aborted, (group, logged)
            if logged.join_started is not None:
                earliest = row["join_started_at_min"] or 0
                latest = row["join_started_at_max"]
                assert earliest - LOGGED_MS <= logged.join_started <= latest + LOGGED_MS
    assert percentile(stable_errors) <= EXACT_MS
    assert percentile(join_errors) <= EXACT_MS


@pytest.mark.parametrize(("name", "least"), ACCURACY.items())
def test_the_state_is_the_brokers_most_of_the_time(name: str, least: float) -> None:
    right = score(name).right
    assert right is not None
    assert right >= least


@pytest.mark.parametrize("path", RECORDINGS.values(), ids=lambda p: p.stem)
def test_timelines_are_whole_and_no_partition_has_two_owners(path: Path) -> None:
    for log in logs_of(path):
        ours = rebuild(log)
        check_timeline(ours[STATES], is_legal)
        check_owners(ours[OWNERS])


@pytest.mark.parametrize("path", RECORDINGS.values(), ids=lambda p: p.stem)
@pytest.mark.parametrize("runs", [2, 10, 100])
def test_runs_tell_what_one_run_tells(path: Path, runs: int) -> None:
    chance = random.Random(f"{path.stem} {runs}")  # noqa: S311 - not for secrets
    for log in logs_of(path):
        cuts = [chance.randrange(len(log.events) + 1) for _ in range(runs - 1)]
        assert_same(rebuild(log, cuts), rebuild(log), log)


def test_every_cut_of_a_conversion_tells_the_same() -> None:
    logs = logs_of(RECORDINGS["4.3.1-modern"])
    (log,) = (log for log in logs if log.group_id == "upgrade-j")
    whole = rebuild(log)
    for cut in cut_anywhere(log):
        assert_same(cut, whole, log)


def test_what_a_group_reads_by_topology_or_expression_is_known() -> None:
    told = {
        group: {tuple(r["subscribed_topics"]) for r in h[GENERATIONS] if r["subscribed_topics"]}
        for group, h in histories("4.3.1-modern").items()
    }
    assert told["streams848"] == {("sin", "streams848-cnt-repartition")}
    logs = ("logs.app-a", "logs.app-b")
    assert {(*logs, "m3"), (*logs, "logs.new")} <= told["j848-regex"]


def test_a_compacted_log_tells_of_no_aborted_generation() -> None:
    rows = [r for h in histories("4.3.1-compacted").values() for r in h[GENERATIONS]]
    assert rows
    assert not any(r["aborted_generations"] for r in rows)
    assert {r["aborted_evidence"] for r in rows if r["group_type"] == "classic"} == {"unknown"}


def percentile(values: list[int]) -> int:
    return sorted(values)[int(0.95 * (len(values) - 1))] if values else 0


def check_owners(rows: list[Row]) -> None:
    """Hold that a partition has one owner at a time, but in share groups."""
    by_partition: dict[Any, list[Row]] = {}
    for row in rows:
        if row["group_type"] != "share":
            key = (row["topic"] or row["topic_id"], row["topic_partition"])
            by_partition.setdefault(key, []).append(row)
    for owned in by_partition.values():
        owned.sort(key=lambda r: (r["valid_from"], r["valid_to"] or float("inf")))
        for before, after in itertools.pairwise(owned):
            assert before["valid_to"] is not None
            assert before["valid_to"] <= after["valid_from"]


def assert_same(ours: dict[str, list[Row]], expected: dict[str, list[Row]], log: Log) -> None:
    for table in TABLES:
        assert as_text(ours[table]) == as_text(expected[table]), (log.group_id, table)


def as_text(rows: list[Row]) -> list[bytes]:
    return sorted(orjson.dumps(row, option=orjson.OPT_SORT_KEYS) for row in rows)
