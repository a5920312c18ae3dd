"""What shows that a topic is another log than the one that was read."""

from __future__ import annotations

import pytest

from sources.kafka import Log, Topic, another_log, shorter

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
