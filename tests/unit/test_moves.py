"""What is told of offsets that go back or far ahead: from commits to anomalies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.detection import detected_history
from tests.support.history import Commit, Log, rebuild
from tests.support.members import record_of
from timeline.holes import holes_of
from timeline.model import Record, partition_hash, partition_key

Row = dict[str, Any]
START = 1_700_000_000_000
MINUTE, HOUR = 60, 3_600


class Life:
    """A group that commits partitions of one topic; times in seconds."""

    def __init__(self) -> None:
        self._next, self._generation, self._now = 0, 0, 0.0
        self._events: list[Record | Commit] = []
        self._commits: list[Row] = []
        self._missing: list[int] = []

    def members(self, at: float, *names: str) -> Life:
        """Let these be the group's members from then on."""
        time = self._at(at)
        members = [
            {
                "member_id": f"{name}-{self._generation}",
                "group_instance_id": None,
                "client_id": name,
                "client_host": "/10.0.0.1",
                "rebalance_timeout_ms": 300_000,
                "session_timeout_ms": 45_000,
                "subscription": {"topics": ["t"]},
                "assignment": {"partitions": [{"topic": "t", "partitions": [number]}]},
            }
            for number, name in enumerate(names)
        ]
        payload = {
            "protocol_type": "consumer",
            "generation": self._generation,
            "protocol": "range" if names else None,
            "leader": members[0]["member_id"] if members else None,
            "current_state_timestamp": time,
            "members": members,
        }
        self._events.append(record_of(self._next, time, "group_metadata", None, payload))
        self._generation, self._next = self._generation + 1, self._next + 1
        return self

    def commit(self, at: float, offset: int, *partitions: int) -> Life:
        """Commit an offset of some partitions, number 0 if none is given."""
        time = self._at(at)
        for partition in partitions or (0,):
            key = partition_hash(partition_key("t", partition))
            self._events.append(Commit(self._next, time, key, deletes=False))
            self._commits.append(
                {
                    "topic": "t",
                    "topic_partition": partition,
                    "record_partition": 0,
                    "record_offset": self._next,
                    "record_timestamp": time,
                    "at": time,
                    "committed_offset": offset,
                    "commit_timestamp": time,
                    "is_tombstone": False,
                }
            )
            self._next += 1
        return self

    def reads(self, since: float, until: float, *, every: float, rate: float) -> Life:
        """Commit in a rhythm what comes at a rate a second, from offset 0 at time 0 on."""
        at = since
        while at < until:
            self.commit(at, round(at * rate))
            at += every
        return self

    def lose(self, records: int = 1) -> Life:
        """Let records be missing."""
        self._missing += range(self._next, self._next + records)
        self._next += records
        return self

    def _at(self, at: float) -> int:
        self._now = max(self._now, at)
        return START + round(at * 1_000)

    def found(self) -> list[Row]:
        """Return what is told of offsets."""
        told = rebuild(Log("g", 0, self._events, tuple(self._missing)))
        missing = np.array(self._missing, np.int64)
        holes = holes_of(np.zeros(len(missing), np.int64), missing, missing, {})
        now = START + round(self._now * 1_000) + 1_000
        rows = detected_history(told, now, self._commits, holes)
        return [row for row in rows if row["kind"].startswith("offset_")]

    def kinds(self) -> list[tuple[str, str | None]]:
        return [(row["kind"], row["label"]) for row in self.found()]


def consumer(until: float, *, every: float = 5, rate: float = 10) -> Life:
    """Return the life of a member that commits by time."""
    return Life().members(0, "a").reads(every, until, every=every, rate=rate)


def job(until: float, *, every: float, rate: float = 10) -> Life:
    """Return the life of a consumer with assign(), which is no member."""
    return Life().reads(0, until, every=every, rate=rate)


def test_a_jump_right_after_a_rebalance_says_so() -> None:
    life = consumer(HOUR).members(HOUR, "b").commit(HOUR + 10, 10_000_000)
    (row,) = life.found()
    assert (row["kind"], row["label"]) == ("offset_jump", "after_rebalance")
    assert "right after a rebalance" in row["summary"]


# -- steps of members ------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [0.1, 5, 300])
def test_what_nobody_can_read_in_the_time_was_skipped(every: float) -> None:
    life = consumer(40 * every, every=every)
    skipped = round(400_000 * every) + 20_000
    life.commit(40 * every, round(39 * every * 10) + skipped)
    (row,) = life.found()
    assert (row["kind"], row["severity"]) == ("offset_jump", "warning")
    assert "look for a seek" in row["summary"]
    read = consumer(40 * every, every=every)
    assert not read.commit(40 * every, round(39 * every * 10 + 100_000 * every)).kinds()


@pytest.mark.parametrize("steps", [1, 4])
def test_a_consumer_that_was_down_catches_up(steps: int) -> None:
    life = consumer(2 * HOUR).members(2 * HOUR, *()).members(3 * HOUR, "b")
    for step in range(1, steps + 1):
        at = 3 * HOUR + 5 * step
        life.commit(at, 72_000 + round((at * 10 - 72_000) * step / steps))
    assert not life.reads(3 * HOUR + 30, 3 * HOUR + 200, every=5, rate=10).kinds()


@pytest.mark.parametrize("every", [5, 1_200])
def test_a_nightly_load_is_read_between_two_commits(every: float) -> None:
    life = consumer(20 * every, every=every, rate=1)
    load = 250_000
    for n in range(20, 30):
        life.commit(n * every, round(n * every) + load)
    assert not life.kinds()


def test_two_commits_that_a_broker_took_at_once_skipped_nothing() -> None:
    life = consumer(HOUR, rate=1_000)
    life.commit(HOUR + 30, (HOUR + 5) * 1_000).commit(HOUR + 30.001, HOUR * 1_000 + 800_000)
    assert not life.kinds()


def test_a_step_over_records_that_are_missing_is_not_known() -> None:
    assert consumer(HOUR).commit(HOUR, 10_000_000).kinds() == [("offset_jump", None)]
    assert not consumer(HOUR).lose().commit(HOUR, 10_000_000).kinds()
    # What is missing elsewhere tells nothing.
    elsewhere = consumer(HOUR / 2).lose().reads(HOUR / 2, HOUR, every=5, rate=10)
    assert elsewhere.commit(HOUR, 10_000_000).kinds() == [("offset_jump", None)]


def test_going_on_where_the_group_had_been_skips_nothing() -> None:
    life = consumer(HOUR, every=0.1, rate=100).members(HOUR, "b")
    life.commit(HOUR + 1, 7_000).commit(HOUR + 1.1, HOUR * 100 + 90)
    (row,) = life.found()
    assert (row["kind"], row["label"]) == ("offset_rewind", "after_rebalance")
    # Beyond that, it counts from there.
    life.commit(HOUR + 1.2, 7_000).commit(HOUR + 1.3, 10_000_000)
    (jump,) = (row for row in life.found() if row["kind"] == "offset_jump")
    assert f"skipped {10_000_000 - HOUR * 100 - 90:,} offsets" in jump["summary"]


@pytest.mark.parametrize(
    ("last", "now", "is_told"),
    [
        (7_200, "a", True),
        (7_100, "a", False),  # it went on from there
        (7_200, "c", False),  # another client was told where the first one had been
    ],
)
def test_a_client_that_goes_on_where_it_had_been_itself(
    last: int,
    now: str,
    is_told: bool,  # noqa: FBT001
) -> None:
    life = consumer(725).members(730, "b", "a").reads(735, HOUR, every=5, rate=10)
    (row,) = life.members(HOUR, now, "b").commit(HOUR + 5, last).found()
    assert (row["kind"], row["label"]) == ("offset_rewind", "after_rebalance")
    own = "what a@/10.0.0.1 had committed last as its owner before"
    assert (own in row["summary"]) == is_told


# -- steps without members -------------------------------------------------------------------------


@pytest.mark.parametrize("every", [10, MINUTE, 5 * MINUTE, 15 * MINUTE, 6 * HOUR])
def test_a_job_has_a_rhythm_of_its_own(every: float) -> None:
    def batches(last: int) -> Life:
        life = Life()
        for n in range(20):
            life.commit(n * every, 50_000 + 200 * n, 0, 1)
        return life.commit(20 * every, last, 0, 1).commit(21 * every, last + 200, 0, 1)

    # A batch 60 times as large, or larger; a restart from an older savepoint.
    assert not batches(66_000).kinds()
    assert not batches(250_000).kinds()
    (row,) = batches(40_000).found()
    assert (row["kind"], row["label"], row["severity"]) == (
        "offset_rewind",
        "no_members",
        "warning",
    )
    assert "of 2 partitions in all" in row["summary"]


def test_a_step_back_of_many_partitions_is_one_finding() -> None:
    life = Life()
    for n in range(12):
        life.commit(900 * n, 50_000 + 220 * n, *range(24))
    (row,) = life.commit(900 * 12, 39_000, *range(24)).found()
    assert "24 partitions" in row["summary"]
    assert "and 21 more" in row["summary"]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_second_commit_ever_is_no_reset(is_compacted: bool) -> None:  # noqa: FBT001
    life = Life()
    if is_compacted:  # of each partition, the cleaner left the last commit
        life.lose(1_000).commit(0, 9_000_000, 0).lose().commit(0, 9_000_001, 1)
    for n in range(1, 30):
        life.commit(MINUTE * n, 9_000_000 + 2_000 * n, 0, 1)
    assert not life.kinds()


@pytest.mark.parametrize("every", [MINUTE, 15 * MINUTE])
def test_a_job_that_was_stopped_goes_on_with_what_came_meanwhile(every: float) -> None:
    life = job(20 * every, every=every)
    assert not life.commit(60 * every, round(60 * every * 10)).kinds()
    batch = job(20 * every, every=every)
    assert not batch.commit(60 * every, round(60 * every * 10 * 5)).kinds()
    was_set = job(20 * every, every=every)
    assert was_set.commit(30 * every, round(every * 10 * 500)).kinds() == [
        ("offset_reset", "forward")
    ]


def test_offsets_that_are_set_while_the_members_are_away() -> None:
    def set_to(offset: int, pause: float = 2 * MINUTE) -> Life:
        life = consumer(HOUR).members(HOUR, *())
        return life.commit(HOUR + pause, offset)

    assert set_to(100_000).kinds() == [("offset_reset", "forward")]
    # Also if they had been away for days: nobody read.
    assert set_to(100_000, pause=2 * 24 * HOUR).kinds() == [("offset_reset", "forward")]
    assert set_to(5).kinds() == [("offset_reset", "backward")]
    # Where records are missing, members may have been there meanwhile.
    back = consumer(HOUR).members(HOUR, *()).lose().commit(HOUR + MINUTE, 5)
    assert back.kinds() == [("offset_rewind", "no_members")]
    assert not consumer(HOUR).members(HOUR, *()).lose().commit(HOUR + MINUTE, 100_000).kinds()


def test_who_sets_offsets_twice_is_told_twice() -> None:
    life = Life().commit(0, 100, 0, 1).commit(1, 10, 0, 1).commit(2, 5_000, 0, 1)
    assert life.kinds() == [("offset_reset", "backward"), ("offset_reset", "forward")]
