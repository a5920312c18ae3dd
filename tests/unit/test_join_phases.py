"""How long the members of a classic group took to re-join, and what an alarm of it rests on."""

from __future__ import annotations

import itertools
from collections.abc import Container

import pytest

from tests.support.detection import detected_history
from tests.support.records import HOUR, MINUTE, SECOND, Records
from tests.unit.test_lives import Row, generations, whole_and_cut

EVERY = 5 * SECOND


def working(log: Records, ms: int, *partitions: int) -> Records:
    """Let some partitions be committed every five seconds."""
    for _ in range(ms // EVERY):
        log.wait(EVERY)
        for partition in partitions:
            log.commit(partition=partition)
    return log


def three() -> Records:
    """Let three members work for ten minutes, each on a partition."""
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "b": [1], "c": [2]})
    return working(log, 10 * MINUTE, 0, 1, 2)


def alarms(tables: dict[str, list[Row]], now: int) -> list[str]:
    """Return the kinds of what is told as a warning or worse."""
    return [r["kind"] for r in detected_history(tables, now) if r["severity"] != "info"]


def last_of(row: Row) -> list[str]:
    """Return who re-joined last, as far as is told."""
    return [member["member_id"] for member in row["waited_for"] or ()]


def test_who_is_waited_for_does_not_hide_the_wait() -> None:
    log = three()
    began = log.clock
    # `a` and `b` have re-joined; `c` commits once more before it does, after two minutes.
    log.wait(2 * MINUTE).commit(partition=2).classic(2, {"a": [0], "b": [1], "c": [2]})
    end = log.clock - 10
    working(log, MINUTE, 0, 1, 2)
    tables = whole_and_cut(log.log())
    row = generations(tables)[-1]
    assert row["join_started_at"] == began
    assert began <= row["join_started_at_max"] <= began + EVERY
    assert row["join_completed_at"] == end
    assert last_of(row) == ["c"]
    (alarm,) = detected_history(tables, log.clock)
    assert alarm["kind"] == "slow_rebalance"
    assert ", client-c@/h the last. Look at what it does between two polls." in alarm["summary"]


@pytest.mark.parametrize(("is_known", "comes_back"), [(True, True), (False, True), (True, False)])
def test_a_member_whose_beat_is_known_may_fall_silent_right_after_a_rebalance(
    is_known: bool,  # noqa: FBT001
    comes_back: bool,  # noqa: FBT001
) -> None:
    members = {"a": [0], "b": [1]}
    log = Records().created().wait(3 * SECOND).classic(1, members)
    working(log, 10 * MINUTE, *((0, 1) if is_known else (1,)))
    log.classic(2, members).wait(2 * SECOND).commit(partition=0)
    by = log.clock + EVERY
    # `a` has re-joined, and `b` does so when it is done, after two minutes.
    log.wait(2 * MINUTE).commit(partition=1).classic(3, {**members, "c": []})
    end = log.clock - 10
    tables = whole_and_cut(working(log, MINUTE, *((0, 1) if comes_back else (1,))).log())
    row = generations(tables)[-1]
    is_shown = is_known and comes_back
    assert row["join_started_at_max"] == (by if is_shown else end)
    assert last_of(row) == (["b"] if is_shown else [])
    assert alarms(tables, log.clock) == (["slow_rebalance"] if is_shown else [])


@pytest.mark.parametrize(
    ("second", "third", "until", "last"),
    [(60, 119, 120, ["c"]), (119, 60, 120, ["b"]), (60, 110, 120, [])],
    ids=["c", "b", "waited for one that is gone"],
)
def test_who_went_on_longest_re_joined_last(
    second: int, third: int, until: int, last: list[str]
) -> None:
    log = three()
    began = log.clock
    for at, partition in sorted([(second, 1), (third, 2)]):
        log.wait(began + at * SECOND - log.clock).commit(partition=partition)
    log.wait(began + until * SECOND - log.clock)
    log.classic(2, {"a": [0], "b": [1], "c": [2]})
    row = generations(whole_and_cut(working(log, MINUTE, 0, 1, 2).log()))[-1]
    assert last_of(row) == last


def test_a_wait_after_which_nothing_is_committed_is_no_alarm() -> None:
    log = three()
    log.wait(2 * MINUTE).commit(partition=2).classic(2, {"a": [0], "b": [1], "c": [2]})
    # The topics of `a` and `b` may have had no records: they have none now.
    working(log, 10 * MINUTE, 2)
    tables = whole_and_cut(log.log())
    row = generations(tables)[-1]
    assert row["join_started_at_max"] == row["join_completed_at"]
    assert last_of(row) == []
    assert alarms(tables, log.clock) == []


@pytest.mark.parametrize(
    ("silent", "after", "committed", "is_told"),
    [
        (20 * MINUTE, {"b": [1], "d": [3]}, (0, 2), False),
        (20 * MINUTE, {"b": [1], "d": [3]}, (0, 1, 2), False),
        (2 * MINUTE, {"b": [3], "d": [1]}, (0, 1, 2), False),
        (2 * MINUTE, {"b": [1], "d": [3]}, (0, 1, 2), True),
    ],
    ids=["hangs", "hung until it re-joined", "another goes on", "waited"],
)
def test_who_hangs_as_another_joins_was_not_waiting(
    silent: int, after: dict[str, list[int]], committed: tuple[int, ...], *, is_told: bool
) -> None:
    log = working(three(), silent, 0, 2)
    tables = whole_and_cut(
        working(log.classic(2, {"a": [0], "c": [2], **after}), MINUTE, *committed).log()
    )
    row = generations(tables)[-1]
    assert (row["join_started_at_max"] < row["join_completed_at"]) is is_told
    # What has lasted for longer than Kafka waits is none of the rebalance.
    assert (row["join_ms"] < MINUTE) is (silent > 5 * MINUTE)
    assert last_of(row) == (["a"] if is_told else [])
    assert alarms(tables, log.clock) == (["slow_rebalance"] if is_told else [])


@pytest.mark.parametrize("case", ["busy", "idle", "works", "late"])
def test_all_wait_for_a_busy_member_since_another_left(case: str) -> None:
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "c": [2]})
    log = working(working(log, 10 * MINUTE, 0, 2), MINUTE, *([0, 2] if case == "works" else [0]))
    left = log.clock
    # `a` leaves, and comes back as `d`; `c` re-joins when it is done, four minutes later.
    wait = (6 if case == "late" else 4) * MINUTE
    log = working(log, wait, 2) if case == "works" else log.wait(wait).commit(partition=2)
    log.classic(2, {"d": [0], "c": [2]})
    end = log.clock - 10
    tables = whole_and_cut(working(log, MINUTE, *([2] if case == "idle" else [0, 2])).log())
    row = generations(tables)[-1]
    is_seen = case in ("busy", "idle")
    # Nobody waits for one that works; what is longer than Kafka waits, `a` may have been busy for.
    assert row["join_started_at"] == left if is_seen else row["join_ms"] < 10 * SECOND
    assert row["join_started_at_max"] < end - 2 * MINUTE if case == "busy" else True
    assert last_of(row) == (["c"] if case == "busy" else [])
    assert alarms(tables, log.clock) == (["slow_rebalance"] if case == "busy" else [])


@pytest.mark.parametrize("case", ["two", "one", "anytime", "first", "anew", "apart", "hole"])
def test_members_that_commit_before_their_time_have_rejoined(case: str) -> None:
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "b": [1], "c": [2]})
    for number in range(9):
        is_short = (case == "anytime" and number % 2 == 0) or (case == "first" and number == 0)
        log.wait((40 if is_short else 60) * SECOND)
        for partition in range(3):
            log.commit(partition=partition)
    if case in ("first", "anew"):  # of a client that counts on from before the assignment, or not
        log.classic(2, {"a": [0], "b": [1], "c": [2]})
    early = log.wait(20 * SECOND, hole=case == "hole").commit(partition=0).clock
    by = log.wait((5 if case == "apart" else 1) * SECOND).clock
    if case != "one":
        log.commit(partition=1)
    # `c` is busy, and re-joins when it is done.
    number = 3 if case in ("first", "anew") else 2
    log.wait(50 * SECOND).commit(partition=2).classic(number, {"a": [0], "b": [1], "c": [2]})
    end = log.clock - 10
    tables = whole_and_cut(working(log, 2 * MINUTE, 0, 1, 2).log())
    row = generations(tables)[-1]
    is_shown = case == "two"
    if case in ("two", "one", "anew", "apart"):
        assert row["join_started_at"] == early
    else:
        assert row["join_ms"] < 10 * SECOND
    assert row["join_started_at_max"] == (by if is_shown else end)
    assert last_of(row) == (["c"] if is_shown else [])
    assert alarms(tables, log.clock) == (["slow_rebalance"] if is_shown else [])


@pytest.mark.parametrize(("joins", "heartbeats"), [(True, 1 / 2), (False, 0)])
def test_who_rejoins_first_learnt_of_it_by_a_heartbeat_unless_it_began_it(
    joins: bool,  # noqa: FBT001
    heartbeats: float,
) -> None:
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "b": [1], "c": [2]})
    for _ in range(9):
        log.wait(MINUTE).commit(partition=0).commit(partition=1).commit(partition=2)
    early = log.wait(20 * SECOND).commit(partition=0).commit(partition=1).clock
    # `c` re-joins when it is done.
    log.wait(39 * SECOND).commit(partition=2)
    log.wait(SECOND).classic(2, {"a": [0], "b": [1], "c": [2]} | ({"d": []} if joins else {}))
    row = generations(whole_and_cut(working(log, 2 * MINUTE, 0, 1, 2).log()))[-1]
    assert row["join_started_at"] == early - round(heartbeats * 3 * SECOND)


@pytest.mark.parametrize("case", ["deployed", "behind a hole", "same members"])
def test_who_may_commit_more_often_than_those_before_has_not_rejoined(case: str) -> None:
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "b": [1]})
    for _ in range(9):
        log.wait(MINUTE).commit(partition=0).commit(partition=1)
    names = "ab" if case == "same members" else "de"
    members = {names[0]: [0], names[1]: [1]}
    log.classic(2, members)
    number = 3
    if case == "behind a hole":
        log.wait(HOUR, hole=True).classic(3, members)
        number = 4
    # They commit every five seconds; then there is nothing to commit, until somebody joins.
    working(log, 10 * SECOND, 0, 1)
    by = log.clock
    log.wait(50 * SECOND).classic(number, {**members, "f": [2]})
    end = log.clock - 10
    tables = whole_and_cut(working(log, 2 * MINUTE, 0, 1, 2).log())
    row = generations(tables)[-1]
    is_shown = case == "same members"
    assert row["join_started_at_max"] == (by if is_shown else end)
    assert alarms(tables, log.clock) == (["slow_rebalance"] if is_shown else [])


def test_a_pause_without_records_is_no_join_phase() -> None:
    log = three().wait(4 * MINUTE + 40 * SECOND)
    log.classic(2, {"a": [0], "b": [1], "c": [2], "d": [3]}).wait(HOUR)
    tables = whole_and_cut(log.log())
    assert generations(tables)[-1]["join_ms"] < 3 * SECOND
    assert alarms(tables, log.clock) == []


def test_no_pause_is_evidence_beside_a_hole() -> None:
    log = three().wait(2 * MINUTE, hole=True).commit(partition=2)
    log.classic(2, {"a": [0], "b": [1], "c": [2]})
    tables = whole_and_cut(working(log, MINUTE, 0, 1, 2).log())
    assert generations(tables)[-1]["join_ms"] < 3 * SECOND
    assert alarms(tables, log.clock) == []


def rejoining() -> Records:
    """Let three members commit before their time as they re-join, after they worked."""
    return three().wait(EVERY // 2).commit(partition=0).commit(partition=1).commit(partition=2)


@pytest.mark.parametrize("had_work", [True, False])
def test_attempts_that_were_given_up_while_members_wait_are_one_wait(
    had_work: bool,  # noqa: FBT001
) -> None:
    """Who writes is stopped for a release, and readers are deployed at once: nobody waits."""
    log = rejoining() if had_work else three()
    log.wait(7 * MINUTE).classic(5, {"d": [0], "e": [1], "f": [2]})
    tables = whole_and_cut(working(log, MINUTE, 0, 1, 2).log())
    row = generations(tables)[-1]
    assert (row["aborted_generations"], row["aborted_evidence"]) == (3, "complete")
    if had_work:
        assert row["join_ms"] == 7 * MINUTE - 10
        assert "stuck_rebalance" in alarms(tables, log.clock)
    else:
        assert row["join_ms"] <= 3 * MINUTE
        assert alarms(tables, log.clock) == []


@pytest.mark.parametrize(("attempts", "waits"), [(1, 5), (3, 15), (3, 13), (4, 15)])
def test_attempts_that_end_when_a_leader_had_to_poll_took_all_the_time(
    attempts: int, waits: int
) -> None:
    log = three().wait(waits * MINUTE + EVERY).classic(2 + attempts, {"d": [0], "e": [1]})
    row = generations(whole_and_cut(working(log, MINUTE, 0, 1).log()))[-1]
    is_filled = waits == attempts * 5
    assert (row["join_ms"] >= waits * MINUTE) == is_filled


@pytest.mark.parametrize(("generation", "waits"), [(9, True), (2, False)])
def test_a_group_that_gives_up_one_attempt_after_the_other_waits_till_it_is_empty(
    generation: int,
    waits: bool,  # noqa: FBT001
) -> None:
    # A leader that never assigns is dropped, and comes back; with none given up all just died.
    log = (rejoining() if waits else three()).wait(7 * MINUTE).classic(generation)
    row = generations(whole_and_cut(log.log()))[-1]
    assert row["member_count"] == 0
    assert (row["join_ms"] > 6 * MINUTE) == waits


def test_static_members_read_what_they_came_back_with() -> None:
    log = Records().created().classic(1, {"a": [0]}, instance="i", topics=("t", "old"))
    log.wait(HOUR).classic(1, {"b": [0]}, instance="i")
    row = generations(whole_and_cut(log.log()))[-1]
    assert [m["member_id"] for m in row["members_replaced"]] == ["b"]
    assert row["subscribed_topics"] == ["t"]


def test_an_attempt_that_was_given_up_in_an_idle_group_is_no_wait() -> None:
    log = three().wait(7 * MINUTE).classic(3, {"a": [0], "b": [1], "c": [2], "d": [3]})
    tables = whole_and_cut(log.wait(HOUR).log())
    assert "stuck_rebalance" not in alarms(tables, log.clock)


def test_while_the_leader_is_to_assign_nobody_commits() -> None:
    # A session that ends gives an attempt up; but there were commits until now.
    log = three().classic(3, {"a": [0, 1, 2]})
    assert generations(whole_and_cut(log.log()))[-1]["join_ms"] < 10 * SECOND


@pytest.mark.parametrize("missing", [False, True])
def test_a_static_member_that_returned_is_no_sync_phase(missing: bool) -> None:  # noqa: FBT001
    log = Records().wait(SECOND, hole=True)
    if missing:
        log.classic(1, {"a": [0]}, instance="i").wait(HOUR, hole=True)
    log.wait(HOUR).classic(7, {"b": [0]}, instance="i", took=50 * MINUTE)
    tables = whole_and_cut(log.log())
    row = generations(tables)[-1]
    assert row["stable_at"] == log.clock - 50 * MINUTE
    assert row["sync_ms"] is None
    assert alarms(tables, log.clock) == []


@pytest.mark.parametrize("commits", [False, True])
def test_what_may_be_a_static_member_that_returned_is_no_alarm(commits: bool) -> None:  # noqa: FBT001
    log = Records().classic(1, {"a": [0]}, instance="i").wait(HOUR, hole=True)
    if commits:
        log.commit()
    log.wait(2 * MINUTE).classic(2, {"b": [0]}, instance="i", took=3 * MINUTE)
    tables = whole_and_cut(log.log())
    row = generations(tables)[-1]
    assert row["sync_ms"] is None
    # Nobody commits while the leader is to assign.
    assert row["stable_at"] == log.clock - (3 * MINUTE if commits else 0)
    assert alarms(tables, log.clock) == []


def test_a_leader_that_takes_long_is_told() -> None:
    log = three().wait(SECOND).classic(2, {"a": [0], "b": [1], "c": [2]}, took=20 * SECOND)
    tables = whole_and_cut(log.log())
    assert generations(tables)[-1]["sync_ms"] == 20 * SECOND
    assert alarms(tables, log.clock) == ["slow_rebalance"]


@pytest.mark.parametrize(
    ("last", "ms", "told"),
    [
        ({"a": [0], "b": [1]}, 50 * SECOND, True),
        ({"a": [0], "b": [1]}, 20 * SECOND, False),
        ({"a": [0, 1], "b": []}, 50 * SECOND, False),
    ],
    ids=["late", "soon", "nobody waited for it"],
)
def test_what_a_member_gave_up_and_another_gets_late_is_told(
    last: dict[str, list[int]],
    ms: int,
    told: bool,  # noqa: FBT001
) -> None:
    step = {"protocol": "cooperative-sticky"}
    log = working(Records().created().classic(1, {"a": [0, 1]}, **step), 10 * MINUTE, 0, 1)
    log.classic(2, {"a": [0], "b": []}, **step)
    # Nobody commits: whether `a` or `b` took so long is not known, that both did is.
    log.wait(ms).classic(3, last, **step)
    tables = whole_and_cut(working(log, MINUTE, 0, 1).log())
    assert ("slow_rebalance" in alarms(tables, log.clock)) == told
    if told:
        # It begins when `a` was told to, which is not when the members were to join.
        (alarm,) = detected_history(tables, log.clock)
        assert alarm["ended_at"] - alarm["started_at"] == pytest.approx(ms, abs=SECOND)
        assert "partitions took 50.0 s at least from one member to another." in alarm["summary"]


@pytest.mark.parametrize(
    ("is_next", "minutes", "is_seen"),
    [(True, 2, True), (False, 2, False), (True, 5, True), (True, 11, False)],
    ids=["next", "not the next", "as long as Kafka waits", "longer than Kafka waits"],
)
def test_who_had_to_give_up_partitions_re_joins_at_once(
    is_next: bool,  # noqa: FBT001
    minutes: int,
    is_seen: bool,  # noqa: FBT001
) -> None:
    """Also if Kafka then waits for the new member, and drops it."""
    step = {"protocol": "cooperative-sticky"}
    log = Records().created().classic(1, {"a": [0, 1], "b": [2]}, **step).wait(10 * MINUTE)
    log.classic(2, {"a": [0], "b": [2], "c": []}, **step).wait(4 * SECOND)
    log.commit(partition=0).commit(partition=2)
    began = log.clock
    if not is_next:
        log.classic(3, {"a": [0], "b": [2], "c": []}, **step)
    log.wait(minutes * MINUTE).classic(4 - is_next, {"a": [0, 1], "b": [2]}, **step)
    row = generations(whole_and_cut(log.log()))[-1]
    assert row["join_started_at"] == began if is_seen else row["join_ms"] < 10 * SECOND


def test_members_that_are_too_slow_to_poll_join_one_by_one() -> None:
    log = Records().created().wait(3 * SECOND).classic(1, {"m0": [0], "n0": [1]})
    for number in range(1, 10):
        # Each time one of the two has exceeded its time to poll, and is back as another.
        gone, stays = ("m", "n") if number % 2 else ("n", "m")
        members = {f"{gone}{number}": [0], f"{stays}{max(0, number - 1 - number % 2)}": [1]}
        log.wait(6 * MINUTE).classic(number + 1, members)
    joined = [row["join_ms"] for row in generations(whole_and_cut(log.log()))[2:]]
    assert max(joined[:3]) < MINUTE < min(joined[-2:])


def slow() -> Records:
    """Let two members exceed their time to poll again and again, and one of them be back now."""
    log = Records().created().wait(3 * SECOND).classic(1, {"a-0": [0], "b-0": [1]})
    for number in range(1, 5):
        log.wait(6 * MINUTE).classic(number + 1, {f"a-{number}": [0], f"b-{number}": [1]})
    return log


@pytest.mark.parametrize(
    ("commits", "is_back", "began"),
    [
        (range(5, 300, 5), True, 300),
        (range(5, 300, 5), False, 75),
        ([30], True, 330),
        ([], True, 300),
        ([], False, 75),
    ],
    ids=["clock", "clock, another", "as it polls", "never", "never, another"],
)
def test_who_exceeds_its_time_to_poll_begins_the_rebalance_unless_another_came_before(
    commits: Container[int],
    is_back: bool,  # noqa: FBT001
    began: int,
) -> None:
    """It leaves five minutes after it polled, and the other one is waited for until it is done."""
    log = slow()
    since = log.clock
    for at in range(5, 365, 5):
        log.wait(EVERY)
        if at in commits:
            log.commit(partition=0)
        if at >= 300:
            log.commit(partition=1)
    end = log.clock
    log.classic(6, {"a-5" if is_back else "c-0": [0], "b-4": [1]}, took=0)
    row = generations(whole_and_cut(log.log()))[-1]
    assert row["join_completed_at"] == end
    assert row["join_started_at"] == since + began * SECOND


def test_who_commits_before_its_time_and_leaves_began_the_rebalance_however_long_ago() -> None:
    """The others take seven seconds to give up their partitions."""
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "b": [1], "c": [2]})
    for _ in range(9):
        log.wait(MINUTE).commit(partition=0).commit(partition=1).commit(partition=2)
    left = log.wait(20 * SECOND).commit(partition=2).clock
    log.wait(3 * SECOND).commit(partition=0).commit(partition=1).wait(7 * SECOND)
    log.classic(2, {"a": [0], "b": [1, 2]})
    assert generations(whole_and_cut(log.log()))[-1]["join_started_at"] == left


@pytest.mark.parametrize(
    ("every", "until", "end", "began"),
    [(100_000, 300, 520, 300), (5_000, 300, 360, 300), (5_000, 321, 360, 322.51)],
    ids=["two commits", "many", "polled again"],
)
def test_who_commits_by_a_clock_goes_on_until_it_exceeds_its_time_to_poll(
    every: int, until: int, end: int, began: float
) -> None:
    """It left before it would have committed again."""
    log = Records().created().wait(3 * SECOND).classic(1, {"a-0": [0], "b-0": [1]})
    for number in range(1, 6):
        since, is_last = log.clock, number == 5
        for at in range(every + 10, (until if is_last else 300) * SECOND, every):
            log.wait(since + at - log.clock).commit(partition=0)
        log.wait(since + (end if is_last else 360) * SECOND - log.clock)
        log.classic(number + 1, {f"a-{number}": [0], f"b-{number - is_last}": [1]}, took=0)
    row = generations(whole_and_cut(log.log()))[-1]
    assert row["join_started_at"] == since + round(began * SECOND)


@pytest.mark.parametrize(("first", "is_shown"), [(150, True), (130, False)], ids=["clock", "none"])
def test_who_leaves_before_it_has_committed_thrice_has_the_clock_of_those_before(
    first: int,
    is_shown: bool,  # noqa: FBT001
) -> None:
    """So it was due to poll when it left, and who came back before that began the rebalance."""
    log = Records().created().wait(3 * SECOND).classic(1, {"a-0": [0], "b-0": [1]})
    for number, commits in enumerate([[first, 300], *([[150]] * 4)], start=1):
        since = log.clock
        for at in commits:
            log.wait(since + at * SECOND + 10 - log.clock).commit(partition=0).commit(partition=1)
        log.wait(since + 305 * SECOND - log.clock)
        log.classic(number + 1, {f"a-{number}": [0], f"b-{number}": [1]}, took=0)
    since = log.clock
    log.wait(150 * SECOND).commit(partition=0).commit(partition=1)
    log.wait(50 * SECOND).commit(partition=1)
    log.wait(100 * SECOND).classic(7, {"c-0": [0], "b-5": [1]}, took=0)
    row = generations(whole_and_cut(log.log()))[-1]
    assert (row["join_started_at"] == since + 50 * SECOND) == is_shown


def test_members_that_join_at_once_are_not_waited_for_in_a_slow_group_either() -> None:
    log = working(slow(), 2 * MINUTE, 0, 1).classic(6, {"a-4": [0], "b-4": [1], "c-0": []})
    assert generations(whole_and_cut(log.log()))[-1]["join_ms"] < 10 * SECOND


def test_one_that_commits_until_the_end_was_not_waited_for_in_a_slow_group_either() -> None:
    """Two of three pods fail at a time, after some minutes, and others of other names come."""
    names = itertools.count()
    members = {f"a-{next(names)}": [0], f"b-{next(names)}": [1], f"c-{next(names)}": [2]}
    log = Records().created().wait(3 * SECOND).classic(1, members)
    for number in range(2, 12):
        working(log, 6 * MINUTE, *(p for (p,) in members.values())).wait(0)
        kept = list(members)[number % 3]
        working(log, 45 * SECOND, *members[kept])
        others = [[p] for p in range(3) if [p] != members[kept]]
        members = {kept: members[kept]} | {f"p{next(names)}": p for p in others}
        log.classic(number, members)
    assert all(row["join_ms"] <= 15 * SECOND for row in generations(whole_and_cut(log.log()))[1:])


def test_a_spare_that_is_stopped_in_a_slow_group_did_not_exceed_its_time_to_poll() -> None:
    log = slow().classic(6, {"a-4": [0], "b-4": [1], "s-0": []})
    working(log, 9 * MINUTE, 0, 1).classic(7, {"a-4": [0], "b-4": [1]})
    assert generations(whole_and_cut(log.log()))[-1]["join_ms"] < 10 * SECOND


def test_members_that_commit_as_they_are_stopped_do_not_exceed_their_time_to_poll() -> None:
    """An autoscaler takes all away after ten minutes, and brings one and then another back."""
    log = Records().created()
    for number in range(1, 24, 4):
        first, second = {f"a-{number}": [0]}, {f"b-{number}": [1]}
        log.wait(3 * SECOND).classic(number, first)
        working(log, MINUTE, 0).classic(number + 1, first | second)
        working(log, 10 * MINUTE, 0, 1).wait(2 * SECOND).commit(partition=1).wait(SECOND)
        log.classic(number + 2, first).wait(MINUTE).classic(number + 3)
    rows = generations(whole_and_cut(log.log()))
    assert all(row["join_ms"] < 10 * SECOND for row in rows[1:] if row["member_count"] == 2)


def test_who_commits_all_the_time_is_not_waited_for_as_long_as_others_were_there() -> None:
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "b0": [1], "c0": [2]})
    for number in range(1, 9):
        working(log, 8 * MINUTE, 0)
        log.classic(number + 1, {"a": [0], f"b{number}": [1], f"c{number}": [2]}).wait(SECOND)
    rows = generations(whole_and_cut(log.log()))
    assert all(row["join_ms"] <= 10 * SECOND for row in rows[1:])


@pytest.mark.parametrize(
    ("since", "missing", "is_due"),
    [(301, False, True), (310, False, False), (200, False, False), (301, True, False)],
    ids=["due", "long due", "not due", "hole"],
)
def test_who_left_when_its_time_to_poll_was_over_began_the_rebalance_then(
    since: int,
    missing: bool,  # noqa: FBT001
    is_due: bool,  # noqa: FBT001
) -> None:
    log = three()
    polled = log.clock
    working(log, 195 * SECOND, 0, 1)
    if since > 300:
        working(log, 105 * SECOND, 0, 1)
    log.wait(polled + since * SECOND - log.clock, hole=missing)
    row = generations(whole_and_cut(log.classic(2, {"a": [0], "b": [1]}, took=0).log()))[-1]
    assert (row["join_started_at"] == polled + 5 * MINUTE) == is_due


def test_who_commits_at_equal_distances_learns_of_a_rebalance_between_two_commits() -> None:
    """`c` died, and Kafka waits for its session; the others learn of `d` by a heartbeat."""
    log = three()
    silent = log.clock
    log.wait(46 * SECOND).classic(2, {"a": [0], "b": [1], "d": [2]})
    row = generations(whole_and_cut(working(log, MINUTE, 0, 1, 2).log()))[-1]
    assert row["join_started_at"] == silent + (EVERY - 3 * SECOND) // 2


@pytest.mark.parametrize(
    ("pauses", "is_shown"), [((60, 60), True), ((54, 60), False)], ids=["a clock", "not as exact"]
)
def test_who_commits_a_little_before_its_time_has_rejoined_if_its_clock_is_exact(
    pauses: tuple[int, int],
    is_shown: bool,  # noqa: FBT001
) -> None:
    """`c` re-joins when it is done, two thirds of a minute later."""
    members = {"a": [0], "b": [1], "c": [2]}
    log = Records().created().wait(3 * SECOND).classic(1, members)
    for pause in pauses * 5:
        log.wait(pause * SECOND).commit(partition=0).commit(partition=1).commit(partition=2)
    early = log.wait(52 * SECOND).commit(partition=0).commit(partition=1).clock
    log.wait(40 * SECOND).commit(partition=2).classic(2, members)
    row = generations(whole_and_cut(working(log, 2 * MINUTE, 0, 1, 2).log()))[-1]
    assert row["join_started_at"] == early if is_shown else row["join_ms"] < 10 * SECOND


@pytest.mark.parametrize("session", [10, 50], ids=["over", "of an administrator"])
def test_a_static_member_that_stops_begins_a_rebalance_when_its_session_is_over(
    session: int,
) -> None:
    """Kafka takes it to be there until then, unless somebody removes it."""
    log = Records().created().wait(3 * SECOND)
    log.classic(1, {"a": [0], "b": [1]}, instance="i", session_timeout_ms=session * SECOND)
    for _ in range(9):
        log.wait(MINUTE).commit(partition=0).commit(partition=1)
    left = log.wait(20 * SECOND).commit(partition=0).clock
    log.wait(12 * SECOND).commit(partition=1).classic(2, {"b": [0, 1]}, took=0)
    row = generations(whole_and_cut(log.log()))[-1]
    over = left + session * SECOND
    assert row["join_started_at"] == over if session == 10 else row["join_ms"] < 3 * SECOND


def test_who_commits_before_its_time_shows_how_long_it_is_since_a_slow_member_left() -> None:
    """`a-4` polls for some seconds before it does no more, and its commit is not due yet."""
    log = Records().created().wait(3 * SECOND).classic(1, {"a-0": [0], "b": [1]})
    for number in range(1, 6):
        for pause in (250_010, 70_000 if number == 5 else 250_000):
            log.wait(pause).commit(partition=1)
        log.wait(2 * SECOND).classic(number + 1, {f"a-{number}": [0], "b": [1]}, took=0)
    assert generations(whole_and_cut(log.log()))[-1]["join_ms"] < 10 * SECOND


@pytest.mark.parametrize("pause", [20, 60], ids=["early", "in time"])
def test_who_is_new_has_rejoined_as_it_commits_for_the_first_time_if_clocks_begin_anew(
    pause: int,
) -> None:
    """`c` died, and `e` is there before its session is over; `b` was killed and is back as `d`."""
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0], "b": [1], "c": [2]})
    for _ in range(9):
        log.wait(MINUTE).commit(partition=0).commit(partition=1).commit(partition=2)
    log.classic(2, {"a": [0], "c": [2], "d": [1]})
    early = log.wait(pause * SECOND).commit(partition=1).wait(SECOND).clock
    log.wait(39 * SECOND).classic(3, {"a": [0], "d": [1], "e": [2]}, took=0)
    row = generations(whole_and_cut(working(log, 2 * MINUTE, 0, 1, 2).log()))[-1]
    began = early - SECOND - 3 * SECOND // 2
    assert row["join_started_at"] == began if pause == 20 else row["join_ms"] < 10 * SECOND
    # Another process may be configured otherwise.
    assert row["join_started_at_max"] == row["join_completed_at"]
    assert alarms(whole_and_cut(log.log()), log.clock) == []


@pytest.mark.parametrize("is_idle", [True, False])
def test_attempts_of_members_that_are_all_replaced_waited_for_no_session_each(
    is_idle: bool,  # noqa: FBT001
) -> None:
    """Two attempts are given up; an idle group may do so within seconds."""
    log = three() if is_idle else Records().created().classic(1, {"a": [0], "b": [1], "c": [2]})
    log.wait((10 * 60 if is_idle else 136) * SECOND).classic(4, {"d": [0], "e": [1], "f": [2]})
    row = generations(whole_and_cut(log.log()))[-1]
    assert row["aborted_generations"] == 2
    assert row["join_ms"] == (1 if is_idle else 3) * 45 * SECOND
