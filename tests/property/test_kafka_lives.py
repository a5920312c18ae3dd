"""Lives of groups that Kafka's own coordinator plays are told as they were."""

from __future__ import annotations

import random
from collections import Counter
from copy import copy

import pytest

from tests.lives import scripts
from tests.lives.judge import Reading, judge
from tests.lives.player import Played, play

LIVES = {life.name: life for life in scripts.brief()}
SEED = 1
# So much of a life may be told as another state: what the estimate of a join phase is off by.
STATE_WRONG = 0.02


@pytest.fixture(scope="module")
def played(java: str) -> dict[str, Played]:
    return {one.life.name: one for one in play(list(LIVES.values()), SEED, java)}


@pytest.mark.parametrize("name", LIVES)
def test_a_life_is_told_as_it_was(played: dict[str, Played], name: str) -> None:
    verdict = judge(played[name], Reading(moments=2))
    assert [f"{w.what}: {w.detail}" for w in verdict.wrong if w.what != "state"] == []
    figures = verdict.figures
    assert figures["state_wrong_ms"] <= STATE_WRONG * figures["state_ms"], verdict.wrong


def test_lives_are_ordinary_and_in_trouble_by_all_protocols() -> None:
    count = Counter((life.kind.protocol, life.is_ordinary) for life in LIVES.values())
    assert {protocol for protocol, _ in count} >= {*scripts.ALL, scripts.ASSIGN, scripts.MIGRATION}
    assert sum(n for (_, is_ordinary), n in count.items() if is_ordinary) > len(LIVES) // 2


def test_a_seed_gives_the_same_life_and_a_setting_changes_nothing_else() -> None:
    for number in range(len(scripts.KINDS)):
        life, again = (scripts.of_seed(7, number) for _ in range(2))
        assert life.line(7) == again.line(7)
        other = scripts.of_seed(7, number, {"session_ms": 30_000})
        for step, same in zip(life.steps, other.steps, strict=True):
            assert (step["at"], step["do"]) == (same["at"], same["do"])
            if step["do"] == "start":
                assert step["settings"] | {"session_ms": 30_000} == same["settings"]


def test_what_is_told_wrong_is_seen(played: dict[str, Played]) -> None:
    """The judge itself: without some of its records, a life is told wrong."""
    life = played["classic-steady"]
    kept = random.Random(SEED).sample(life.records, len(life.records) // 2)  # noqa: S311
    verdict = judge(life._replace(records=sorted(kept)))
    assert verdict.wrong


def test_an_alarm_that_is_false_for_a_while_is_seen(played: dict[str, Played]) -> None:
    """The judge itself: in a life that is taken for an ordinary one, each alarm is false."""
    trouble = next(life for name, life in played.items() if name.endswith("-thrash"))
    life = copy(trouble.life)
    life.kind = life.kind._replace(label=scripts.ORDINARY, fits=())
    verdict = judge(trouble._replace(life=life), Reading(moments=9))
    assert verdict.figures["meanwhile"] > 0
    assert any(w.what == "alarm" and w.detail.startswith("as of ") for w in verdict.wrong)


def test_what_the_cleaner_took_is_told_neither_right_nor_wrong(played: dict[str, Played]) -> None:
    verdict = judge(played["classic-steady"], Reading(compacts=True))
    assert [w for w in verdict.wrong if w.what != "state"] == []
