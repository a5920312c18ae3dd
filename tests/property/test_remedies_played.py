"""What remedies count of lives is what Kafka's own coordinator does with their settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from reporting.remedies import COOPERATIVE
from tests.lives.otherwise import AT_ONCE, CASES, Outcome, outcome, rebalances, table

PAGE = Path(__file__).parents[2] / "docs" / "explain.md"
_MS = 0.5  # so much of what is saved may be told as less


@pytest.fixture(scope="module")
def played(java: str) -> dict[str, Outcome]:
    assert java
    return {case.title: outcome(case) for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_as_many_rebalances_are_not_there(played: dict[str, Outcome], case: object) -> None:
    done = played[case.title]  # type: ignore[attr-defined]
    if done.case.remedy is None:
        assert done.found.named == []
        assert len(done.found.remarks) == 1
        assert done.after[0] < done.before[0]  # static membership would hide it
        return
    assert done.counted is not None
    if done.case.remedy == COOPERATIVE:
        saved = done.before[1] - done.after[1]
        assert _MS * saved <= done.counted.saved_member_ms <= saved
        return
    gone = done.before[0] - done.after[0]
    assert 0 <= gone - done.counted.rebalances <= 2
    assert done.after[1] <= done.before[1] - done.counted.saved_member_ms


@pytest.mark.slow
def test_the_page_has_what_was_played(played: dict[str, Outcome]) -> None:
    assert table(played.values()) in PAGE.read_text("utf-8")


@pytest.mark.slow
def test_what_all_at_once_would_have_done_the_log_does_not_tell(
    played: dict[str, Outcome],
) -> None:
    rolling = played["rolling restarts, range"].before[0]
    new = played["rolling restarts, new protocol"].before[0]
    near, apart, of_new = map(rebalances, AT_ONCE)
    page = " ".join(PAGE.read_text("utf-8").split())
    assert f"five members have {rolling} rebalances when" in page
    assert f"all at once {near} to {apart}; with the new protocol {new} either way" in page
    assert of_new == new
