"""What is told of small recordings of what operators met, and of what looks like it in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.detection import detected

Row = dict[str, Any]
FIELD = Path(__file__).parents[1] / "field"


def alarms(recording: str, runs: int = 1) -> list[Row]:
    """Return the warnings and worse of a recording."""
    (path,) = FIELD.glob(f"{recording}*")
    return [row for row in detected(path, runs) if row["severity"] != "info"]


@pytest.mark.parametrize("runs", [1, 3])
def test_the_member_that_all_waited_for_is_named(runs: int) -> None:
    (row,) = alarms("20", runs)
    assert (row["kind"], row["group_id"]) == ("slow_rebalance", "f20-slow")
    assert "all waited up to 2 min 52 s for slow-4@/10.0.0.1 to give up" in row["summary"]


def test_a_client_that_goes_on_with_an_offset_of_its_own_is_named() -> None:
    fresh, memory = alarms("08")
    assert {row["kind"] for row in (fresh, memory)} == {"offset_rewind"}
    assert "had committed last as its owner before" not in fresh["summary"]
    assert "memory-c1@/10.4.0.11 had committed last as its owner before" in memory["summary"]


@pytest.mark.parametrize("runs", [1, 3])
def test_a_topic_that_is_made_again_is_told_and_nothing_went_back(runs: int) -> None:
    (row,) = alarms("31", runs)
    assert (row["kind"], row["label"]) == ("orphan_topic", "deleted")
    assert "made again, with id 2KrFQnXsDlKEAUO8RyxINw" in row["summary"]


@pytest.mark.parametrize("runs", [1, 2])
def test_offsets_that_expire_in_a_rebalance_are_no_deleted_topics(runs: int) -> None:
    told = [(row["kind"], row["label"], row["group_id"]) for row in alarms("09", runs)]
    assert ("offsets_expired", "group_in_use", "f09-three") in told
    deleted = [("orphan_topic", "deleted", f"f09-{of}") for of in ("lost-a", "lost-b")]
    deleted += [("orphan_topic", "deleted", f"f09-dust-{of}") for of in "abc"]
    assert sorted(told) == sorted([("offsets_expired", "group_in_use", "f09-three"), *deleted])
