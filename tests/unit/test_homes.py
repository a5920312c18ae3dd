"""Where the records of groups belong, in a topic that may have grown."""

from __future__ import annotations

import pytest

from schemas.placement import (
    KAFKA,
    REDPANDA,
    Placement,
    inferred,
    partition_for,
    partitions_of,
    xxhash64,
)
from timeline.homes import Found, name_of_second, sorted_out, with_second

GROUPS = [f"group-{n}" for n in range(40)]
MOVED = [g for g in GROUPS if partition_for(g, 25) != partition_for(g, 50)]


def found(group: str, partition: int, *, first: int = 1_000, last: int = 2_000) -> Found:
    return Found(group, partition, 2, first, last)


def at_home(partitions: int) -> list[Found]:
    return [found(g, partition_for(g, partitions)) for g in GROUPS]


def test_groups_tell_how_many_partitions_there_are() -> None:
    assert partitions_of((row.group, row.partition) for row in at_home(12)) == 12


def test_a_record_in_a_wrong_partition_is_reported() -> None:
    wrong = found("astray", (partition_for("astray", 12) + 1) % 12)
    assert sorted_out(at_home(12), {}, [12]) == ([12], [], [], KAFKA, [])
    locations = sorted_out([*at_home(12), wrong], {}, [12])
    assert locations.elsewhere == [("astray", wrong.partition, None)]
    (row,) = locations.misplaced
    assert (row["expected_partition"], row["partitions"]) == (partition_for("astray", 12), 12)


def test_what_is_behind_the_groups_first_record_at_home_does_not_count() -> None:
    home, other = partition_for("g", 50), (partition_for("g", 50) + 1) % 50
    locations = sorted_out([found("g", other), found("g", home, first=1_500)], {}, [50])
    assert locations.elsewhere == [("g", other, 1_500)]
    # The history has come there before: nothing of it counts.
    assert sorted_out([found("g", other)], {"g": home}, [50]).elsewhere == [("g", other, 0)]


@pytest.mark.parametrize("counts", [[25, 50], [50]], ids=["known", "shown by the groups"])
def test_a_topic_that_grew_has_no_misplaced_records(counts: list[int]) -> None:
    old = [found(g, partition_for(g, 25)) for g in MOVED]
    locations = sorted_out([*at_home(50), *old], {}, counts)
    assert locations.counts == [25, 50]
    assert {group for group, _, _ in locations.elsewhere} == set(MOVED)
    assert not locations.misplaced


BOTH = (KAFKA, REDPANDA)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0xEF46DB3751D8E999),
        ("a", 0xD24EC4F1A98C6E5B),
        ("abc", 0x44BC2CF5AD770999),
        ("Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_xxhash64_is_that_of_its_specification(text: str, number: int) -> None:
    assert xxhash64(text.encode()) == number


@pytest.mark.parametrize("by", BOTH)
@pytest.mark.parametrize("partitions", [3, 16, 50])
def test_groups_tell_who_has_placed_them(by: str, partitions: int) -> None:
    placement = Placement(partitions, by)
    assert inferred([(g, placement.of(g)) for g in GROUPS], BOTH) == placement


def test_groups_that_nobody_has_placed_tell_nothing() -> None:
    assert inferred([(g, n * n % 11) for n, g in enumerate(GROUPS)], BOTH) is None


def test_a_group_of_redpanda_that_is_astray_is_reported() -> None:
    now = Placement(16, REDPANDA)
    rows = [found(g, now.of(g)) for g in GROUPS]
    assert sorted_out(rows, {}, [16], REDPANDA) == ([16], [], [], REDPANDA, [])
    wrong = found("astray", (now.of("astray") + 1) % 16)
    (row,) = sorted_out([*rows, wrong], {}, [16], REDPANDA).misplaced
    assert (row["expected_partition"], row["partitions"]) == (now.of("astray"), 16)


def test_a_topic_of_redpanda_that_grew_has_no_misplaced_records() -> None:
    old, now = Placement(16, REDPANDA), Placement(24, REDPANDA)
    moved = [g for g in GROUPS if old.of(g) != now.of(g)]
    rows = [found(g, now.of(g)) for g in GROUPS] + [found(g, old.of(g)) for g in moved]
    locations = sorted_out(rows, {}, [16, 24], REDPANDA)
    assert {group for group, _, _ in locations.elsewhere} == {*moved} != set()
    assert not locations.misplaced


def test_a_group_that_is_coordinated_in_both_partitions_is_told() -> None:
    since, late = 1_800_000, 9_000_000
    old = [Found(g, partition_for(g, 25), 2, 1_000, late, since - 1) for g in MOVED]
    split = old[0]._replace(last_commit=late)
    home = [found(g, partition_for(g, 50), first=since) for g in GROUPS]
    # Offsets that expire in the old partition, and its last commits, are no second coordinator.
    assert not sorted_out([*home, *old], {}, [25, 50], KAFKA).misplaced
    (row,) = sorted_out([*home, split, *old[1:]], {}, [25, 50], KAFKA).misplaced
    assert (row["group_id"], row["label"]) == (split.group, "two_coordinators")
    assert (row["record_partition"], row["at"]) == (split.partition, late)


def test_what_a_second_coordinator_writes_is_a_history_of_its_own() -> None:
    since, late = 1_800_000, 9_000_000
    group, *_ = MOVED
    old, home = partition_for(group, 25), partition_for(group, 50)
    before = [row for row in at_home(50) if row.group != group]
    split = Found(group, old, 2, 1_000, late, late)
    first = sorted_out([*before, found(group, home, first=since), split], {}, [25, 50])
    assert first.second == [(group, old, since)]
    # A later run goes on with it, also when its own rows alone would not show it.
    soon = split._replace(first=late, last=late + 1, last_commit=late + 1)
    then = sorted_out(
        [soon, found(group, home, first=late)], {group: home}, [25, 50], second=first.second
    )
    assert then.second == first.second
    assert then.elsewhere == [(group, old, since)]
    assert [(row["label"], row["since"]) for row in then.misplaced] == [("two_coordinators", since)]
    # Nor is what expires there later a coordinator that serves members.
    expired = soon._replace(last_commit=None)
    assert not sorted_out([expired], {group: home}, [25, 50], second=first.second).misplaced
    # Whose broker was restarted has one history.
    over = split._replace(last=since + 1, last_commit=since + 1)
    assert not sorted_out([*before, found(group, home, first=since), over], {}, [25, 50]).second


def test_both_histories_of_a_group_are_rebuilt_together() -> None:
    second = [("g", 3, 1_000)]
    both = ["g", name_of_second("g", 3)]
    assert with_second(["g"], second) == with_second([both[1]], second) == both
    assert with_second(["other"], second) == ["other"]
