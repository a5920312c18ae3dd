"""What a group did in a window, as sentences and as a band."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from reporting.model import Log
from reporting.story import UNKNOWN, Story, axis, band, committed, events, near, owned, window
from reporting.text import consumer_time, duration

NONE: dict[str, list[dict[str, Any]]] = {
    "states": [],
    "generations": [],
    "anomalies": [],
    "lag": [],
    "members": [],
    "owners": [],
}
GENERATION = {
    "group_type": "classic",
    "generation": 3,
    "join_started_at": 1_000,
    "join_started_at_min": 900,
    "join_started_at_max": 1_100,
    "cause": "new_member",
    "cause_detail": "a joined",
    "join_ms": 5_900,
    "sync_ms": 5,
    "member_count": 1,
    "leader_client_id": "a",
    "moved_partitions": 2,
    "aborted_generations": 1,
    "aborted_evidence": "complete",
    "record_partition": 7,
    "record_offset": 42,
}


def state(name: str, start: int | None, end: int | None) -> dict[str, Any]:
    return {
        "state": name,
        "started_at": start,
        "ended_at": end,
        "duration_ms": None if start is None or end is None else end - start,
        "evidence": "exact",
        "known_until": None,
        "record_partition": 7,
        "record_offset": 1,
    }


def test_a_rebalance_is_a_sentence_with_its_record() -> None:
    (event,) = events(NONE | {"generations": [GENERATION]}, 0, 2_000)
    assert event.text == (
        "Rebalance to generation 3: a joined. 1 attempt before it had been aborted. "
        "Join 5.9 s, assignment 5 ms, 1 member, leader a, 2 partitions moved."
    )
    assert (event.at, event.record, event.is_exact) == (1_000, (7, 42), False)


def test_events_are_in_the_order_of_time_and_within_the_window() -> None:
    anomaly = {
        "started_at": 500,  # it began before the window, and goes on in it
        "severity": "critical",
        "kind": "rebalance_storm",
        "summary": "g rebalanced.",
        "first_record_partition": 7,
        "first_record_offset": 3,
    }
    lag = {"sampled_at": 1_500, "lag": 12, "partitions": 2, "group_status": "OK"}
    states = [state("Empty", 1_900, None), state("Stable", 0, 1_900), state("Dead", 9_000, None)]
    found = NONE | {
        # What the caller gives touches the window: this one began before it.
        "generations": [GENERATION, GENERATION | {"join_started_at": 100}],
        "anomalies": [anomaly],
        "lag": [lag],
        "states": states,
    }
    assert [(e.at, e.kind) for e in events(found, 900, 2_000)] == [
        (100, "rebalance"),
        (500, "critical"),
        (1_000, "rebalance"),
        (1_500, "lag"),
        (1_900, "state"),
    ]


def test_an_incident_that_the_group_is_part_of_is_told() -> None:
    row = {"started_at": 500, "severity": "warning", "group_count": 30, "summary": "All at once."}
    (event,) = events(NONE | {"incidents": [row]}, 900, 2_000)
    assert (event.at, event.kind) == (500, "warning")
    assert event.text == "Part of an incident of 30 groups: All at once."


def test_names_keep_their_letters_and_unsure_attempts_are_not_counted() -> None:
    row = GENERATION | {"leader_client_id": "MyApp", "aborted_evidence": "unknown"}
    row |= {"join_ms": None, "sync_ms": None, "moved_partitions": 1}
    (event,) = events(NONE | {"generations": [row]}, 0, 2_000)
    assert event.text == (
        "Rebalance to generation 3: a joined. 1 member, leader MyApp, 1 partition moved."
    )


def test_a_lag_without_a_log_is_said() -> None:
    lag = {"sampled_at": 1_500, "lag": None, "partitions": 0, "group_status": None}
    (event,) = events(NONE | {"lag": [lag]}, 0, 2_000)
    assert event.text == "None of the partitions that the group commits has a log and an offset."


def test_a_lag_that_is_a_bound_is_said_to_be_one() -> None:
    lag = {"sampled_at": 1_500, "lag": 926, "partitions": 2, "group_status": "OK"}
    found = (NONE | {"lag": [lag | {"is_bound": is_bound}]} for is_bound in (True, False, None))
    bound, *others = (events(rows, 0, 2_000)[0].text for rows in found)
    assert bound == "Lag at most 926 records in 2 partitions, status OK."
    assert others == ["Lag 926 records in 2 partitions, status OK."] * 2


def doubted(name: str, known_until: int | None, end: int | None) -> dict[str, Any]:
    return {
        "group_instance_id": None,
        "client_id": name,
        "member_id": f"{name}-1",
        "topic": "t",
        "topic_id": None,
        "topic_partition": len(name),
        "known_until": known_until,
        "left_at": end,
        "valid_to": end,
    }


def test_from_when_on_members_and_owners_are_not_known_is_said_once() -> None:
    members = [doubted(name, 60_000, 180_000) for name in ("b", "a", "a")]
    members += [doubted("known", None, 180_000), doubted("later", 120_000, None)]
    found = NONE | {"members": members, "owners": [doubted("a", 60_000, 240_000)]}
    first, second = events(found, 100_000, 200_000)
    assert (first.at, first.kind, first.record) == (60_000, "unknown", None)
    assert first.text == (
        "Not known from here on, for up to 3 min (records are missing): whether 3 members (a, b)"
        " stayed, and who owned 1 partition."
    )
    assert second.at == 120_000
    assert second.text == (
        "Not known from here on, and so still (records are missing): whether 1 member (later)"
        " stayed."
    )


@pytest.mark.parametrize(("since", "until"), [(0, 60_000), (180_000, 200_000)])
def test_what_is_known_of_a_window_is_not_doubted(since: int, until: int) -> None:
    found = NONE | {"members": [doubted("a", 60_000, 180_000), doubted("b", 30_000, 30_000)]}
    assert events(found, since, until) == []


def test_a_band_has_a_character_for_each_part_of_the_window() -> None:
    states = [
        state("Stable", 0, 400),
        state("PreparingRebalance", 400, 600),
        state("CompletingRebalance", 600, 601),
        state("Stable", 601, None),
    ]
    assert band(states, 0, 1_000, 10) == "████▒▒░███"
    assert band(states, 200, 1_000, 8) == "██▒▒░███"
    assert band([], 0, 1_000, 4) == "????"
    assert band([state("Empty", None, 500), state("Dead", 500, None)], 0, 1_000, 4) == "??  "


def test_a_short_rebalance_is_seen_in_a_long_window() -> None:
    states = [
        state("Stable", 0, 500_000),
        state("PreparingRebalance", 500_000, 500_100),
        state("Stable", 500_100, None),
    ]
    assert band(states, 0, 1_000_000, 10) == "█████▒████"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (5_917, "5.9 s"),
        (90_000, "1.5 min"),
        (7_200_000, "2 h"),
        (172_800_000, "2 d"),
    ],
)
def test_durations_have_the_unit_that_fits(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("ms", "least", "text"),
    [
        (0, 0, "0 consumer-seconds"),
        (119_900, 119_900, "119.9 consumer-seconds"),
        (840_000, 720_000, "14 consumer-minutes (at least 12)"),
        (9_000_000, 0, "2.5 consumer-hours (at least 0)"),
    ],
)
def test_time_of_consumers_has_its_bound_in_the_same_unit(ms: int, least: int, text: str) -> None:
    assert consumer_time(ms, least) == text


def test_a_story_has_what_its_rebalances_cost() -> None:
    costs = [(5, 3), (None, None), (7, None)]
    rows = [{"cost_member_ms": ms, "cost_member_ms_min": least} for ms, least in costs]
    told = Story("g", 0, 30, [], NONE | {"offsets": [], "generations": rows})
    assert told.cost == (12, 3)
    figures = told.figures()
    assert (figures["cost_member_ms"], figures["cost_member_ms_min"]) == (12, 3)


def test_a_window_is_the_last_hour_unless_something_else_is_said() -> None:
    log = Log([], first=0, newest=7_200_000, known_until=9_000_000)
    assert window(log, None, None) == (3_600_001, 7_200_001)
    assert window(log, None, 5_000_000) == (1_400_000, 5_000_000)
    assert window(log, 5, None) == (5, 7_200_001)


def test_near_a_name_that_is_none_are_those_like_it_or_some() -> None:
    log = Log(["orders", "crash-loop", "billing"], 0, 0, 0)
    assert near(log, "crash-lop") == ["crash-loop"]
    assert near(log, "xyzzy") == ["billing", "crash-loop", "orders"]


def owner(number: int, since: int, until: int | None, known: int | None = None) -> dict[str, Any]:
    return {
        "topic": "orders",
        "topic_id": None,
        "topic_partition": number,
        "client_host": None,
        "client_id": "a",
        "member_id": "a-1",
        "valid_from": since,
        "valid_to": until,
        "known_until": known,
    }


def test_owners_are_told_as_far_as_they_are_known() -> None:
    rows = [
        owner(1, 50, None),
        owner(0, 150, 300) | {"client_id": None, "client_host": "/h"},
        owner(0, 50, 150),
        owner(2, 50, None, known=120),
        owner(3, 50, None, known=60),
    ]
    story = Story("g", 100, 200, [], {"owners": rows})
    told = [(o.partition, o.owner, o.since, o.until, o.is_doubted) for o in owned(story)]
    assert told == [
        ("orders:0", "a", 100, 150, False),
        ("orders:0", "a-1 at /h", 150, None, False),
        ("orders:1", "a", 100, None, False),
        ("orders:2", "a", 100, 120, True),
        ("orders:3", None, 100, 60, True),
    ]


def test_committed_offsets_are_summed_by_partition() -> None:
    hours = [
        {"topic": "t", "topic_partition": 0, "record_timestamp": at, "first_commit_at": None}
        | {"first_committed_offset": first, "last_committed_offset": last, "commits": commits}
        for at, first, last, commits in [(20, 8, None, 1), (10, None, 7, 0), (15, 3, 8, 4)]
    ]
    story = Story("g", 0, 30, [], {"offsets": hours})
    assert committed(story) == [("t:0", 3, None, 5)]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (3_000, "╵00:00:00.000                 ╵00:00:01.000                 ╵00:00:02.000"),
        (30_000, "╵00:00:00                     ╵00:00:10                     ╵00:00:20"),
        (10_800_000, "╵00:00                        ╵01:00                        ╵02:00"),
        (259_200_000, "╵01-01 00:00                  ╵01-02 00:00                  ╵01-03 00:00"),
    ],
)
def test_a_band_has_an_axis_of_time(length: int, text: str) -> None:
    assert axis(0, length, 90, dt.timezone.utc) == text


@pytest.mark.parametrize(("known", "lasted"), [(5_000, ""), (65_000, ", for 1 min at least")])
def test_how_long_a_group_was_empty_is_said_as_far_as_it_is_known(known: int, lasted: str) -> None:
    doubts = state("Empty", 5_000, 7_205_000) | {"known_until": known}
    found = NONE | {"states": [doubts, state("Stable", 7_205_000, None)]}
    told = {event.kind: event for event in events(found, 0, 9_000_000)}
    assert told["state"].text == f"The group has no members{lasted}."
    assert told["unknown"].at == known
    assert told["unknown"].text == (
        "Not known from here on, for up to 2 h (records are missing): what state the group was in."
    )
    whole = NONE | {"states": [doubts | {"known_until": 7_205_000}]}
    assert [e.text for e in events(whole, 0, 9_000_000)] == ["The group has no members, for 2 h."]
    assert band(found["states"], 0, 9_000_000, 10) == "·???????██"
    assert band(found["states"], 100_000, 5_000_000, 10) == UNKNOWN * 10


def test_a_state_of_no_length_is_not_told() -> None:
    for lasted, told in ((0, 0), (1, 1), (None, 1)):
        row = state("Empty", 5, None) | {"duration_ms": lasted}
        found = {**NONE, "states": [row]}
        assert len(events(found, 0, 10)) == told
