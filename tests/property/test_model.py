"""Groups of all types, whatever becomes of them and of their records, have the history they had."""

from __future__ import annotations

import random

import pytest

from tests.support.coordinator import Coordinator
from tests.support.detection import detected_history
from tests.support.lives import (
    Life,
    check,
    check_runs,
    failure,
    history_of,
    of_seed,
    quiet_life,
    random_life,
    shrunk,
)
from timeline.model import STATES

SEED, LIVES, PARTS = 20, 2_000, 8


@pytest.mark.parametrize("part", range(PARTS))
def test_lives_are_rebuilt_as_they_were(part: int) -> None:
    for number in range(part, LIVES, PARTS):
        life = of_seed(SEED, number)
        if failure(life) is not None:
            check(shrunk(life))
            check(life)


def test_what_happens_in_one_millisecond_is_the_same_in_many_runs() -> None:
    # Records of several writes count as one then, so that states in between are not in the history.
    chance = random.Random(SEED)  # noqa: S311 - no secret
    for number in range(500):
        life = of_seed(SEED, number)
        steps = [(0 if chance.random() < 0.5 else pause, *step) for pause, *step in life.steps]
        check_runs(Life(life.broker, steps))


def warnings(life: Life) -> set[str]:
    group, tables = history_of(life)
    found = detected_history(tables, group.clock + 3_600_000)
    return {row["kind"] for row in found if row["severity"] != "info"}


def test_lives_in_which_nothing_goes_wrong_have_no_anomaly() -> None:
    for number in range(100):
        life = quiet_life(random.Random(f"quiet {number}"))  # noqa: S311 - no secret
        assert warnings(life) == set(), life


def test_a_storm_is_an_anomaly() -> None:
    calm = quiet_life(random.Random("quiet"))  # noqa: S311 - no secret
    join, ends = ("join", (None, "classic")), [("all_rejoin", ()), ("sync", ())]
    episode = [(2_000, *step) for step in (join, *ends, ("leave", (0,)), *ends)]
    assert warnings(Life(calm.broker, episode * 200))


def test_lives_see_all_that_a_group_can_be_in() -> None:
    seen: set[tuple[str, str]] = set()
    for number in range(200):
        _, tables = history_of(of_seed(SEED, number))
        seen |= {(row["group_type"], row["state"]) for row in tables[STATES]}
    classic = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
    modern = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
    assert seen == {
        *(("classic", state) for state in classic),
        *(("consumer", state) for state in modern),
        *(("streams", state) for state in ("NotReady", *modern)),
        *(("share", state) for state in ("Empty", "Stable", "Dead")),
    }


def test_a_life_is_the_same_each_time() -> None:
    first, second = (random_life(random.Random("a")) for _ in range(2))  # noqa: S311 - no secret
    assert first == second


def test_what_breaks_is_shrunk_to_the_steps_that_break_it() -> None:
    def has_two_members(life: Life) -> None:
        group = Coordinator()
        for _, step, arguments in life.steps:
            getattr(group, step)(*arguments)
        assert len(group.members) < 2

    join, commit = ("join", (None, "classic")), ("commit", (0,))
    life = Life({}, [(9, *step) for step in (commit, join, commit, join, commit, commit)])
    assert shrunk(life, has_two_members).steps == [(1, *join), (1, *join)]
