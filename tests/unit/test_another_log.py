"""What shows that a topic is another log than the one that was read."""

from __future__ import annotations

import pytest

from sources.kafka import Log, Record, Topic, another_log, other_bytes, shorter
from sources.plan import free_name

TOPIC = "__consumer_offsets"
POSITIONS = {(TOPIC, 0): 10, (TOPIC, 1): 4}


def topic(*ends: int, topic_id: str | None = "one") -> Topic:
    return Topic(TOPIC, topic_id, {p: Log(0, end, end) for p, end in enumerate(ends)})


@pytest.mark.parametrize(
    ("found", "topic_id"),
    [
        (topic(10, 4), "one"),
        (topic(12, 9), "one"),
        (topic(10, 4, 7), "one"),
        (topic(10, 4, topic_id=None), "one"),
        (topic(10, 4), None),
    ],
    ids=["nothing new", "longer", "a new partition", "no id any more", "no id yet"],
)
def test_the_same_log(found: Topic, topic_id: str | None) -> None:
    assert shorter(found, POSITIONS) == []
    assert another_log(found, POSITIONS, topic_id) == ""


@pytest.mark.parametrize(
    ("found", "topic_id", "words"),
    [
        (topic(2, 1), "two", "was recreated since the last run"),
        (topic(12, 9), "two", "was recreated since the last run"),
        (
            topic(10, 3),
            "one",
            "-1 ends at offset 3, before 4, up to which it was read: the log lost",
        ),
        (
            topic(9, 4),
            None,
            "-0 ends at offset 9, before 10, up to which it was read: the topic was",
        ),
    ],
    ids=["another id, shorter", "another id, longer", "shorter", "shorter, no id known"],
)
def test_another(found: Topic, topic_id: str | None, words: str) -> None:
    assert words in another_log(found, POSITIONS, topic_id)


@pytest.mark.parametrize(
    ("theirs", "is_other"),
    [
        ({}, False),
        ({(0, 9): (b"key", b"value")}, False),
        ({(1, 3): (b"key", b"value")}, False),
        ({(0, 9): (b"key", b"later")}, True),
        ({(0, 9): (b"key", None)}, True),
        ({(0, 9): (b"other", b"value")}, True),
    ],
    ids=["compacted", "the same", "never read", "another value", "a tombstone", "another key"],
)
def test_a_record_with_other_bytes(
    theirs: dict[tuple[int, int], Record], *, is_other: bool
) -> None:
    ours = {(0, 9): (b"key", b"value"), (1, 2): (b"a", b"b")}
    found = other_bytes(TOPIC, theirs, ours)
    assert bool(found) == is_other
    assert not is_other or found.startswith(f"{TOPIC}-0 at offset 9 has other bytes")


@pytest.mark.parametrize(
    ("cluster", "taken", "free"),
    [
        ("default", {"default"}, "default.2"),
        ("default", {"default", "default.2", "other"}, "default.3"),
        ("default.2", {"default", "default.2"}, "default.3"),
        ("default.3", {"default", "default.3"}, "default.4"),
        ("kafka-4.3", {"kafka-4.3"}, "kafka-4.3.2"),
        ("kafka-4.3.2", {"kafka-4.3", "kafka-4.3.2"}, "kafka-4.3.3"),
        ("a.b", {"a", "a.b"}, "a.b.2"),
    ],
)
def test_the_name_to_give(cluster: str, taken: set[str], free: str) -> None:
    assert free_name(cluster, taken) == free
