"""Who was in a group when its commits were made, by position in the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from detectors.model import HOUR_MS, MINUTE_MS, Row

LogPosition = tuple[int, int]
_MOST = 2**63 - 1
_USUAL_TIMEOUT_MS, _LONGEST_WORK_MS = 5 * MINUTE_MS, 6 * HOUR_MS


def keeps_offsets(generation: Row) -> bool:
    """Return whether the coordinator is one that lets no offset expire that members subscribe to.

    Brokers from 2.1 on do. They are those that write when a classic group began to wait for its
    leader, so that the end of the join phase is exact.
    """
    return generation["group_type"] != "classic" or (
        generation.get("join_completed_at") is not None
        and generation.get("join_completed_at") == generation.get("join_completed_at_min")
    )


class Membership(NamedTuple):
    """A group as of one of its own records."""

    offset: int  # offset of the record
    members: int  # members from there on
    partitions: int | None  # partitions that are assigned; None if that is not known
    timestamp: int | None  # time of the record
    record_partition: int = -1  # its partition
    # Those that members subscribe to; None if that is not known.
    topics: Sequence[str] | None = None
    keeps_offsets: bool = False  # whether no offset of those expires, see `keeps_offsets`
    is_classic: bool = True  # whether it is a classic group
    # Partitions that had an owner and have none, see group_generations.
    unowned: Sequence[str] | None = None
    # The largest rebalance timeout, which clients set to max.poll.interval.ms.
    timeout_ms: int | None = None

    @classmethod
    def of(cls, generation: Row) -> Membership:
        """Return the group as of a generation, a row of group_generations."""
        return cls(
            generation["record_offset"],
            generation.get("member_count") or 0,
            generation.get("assigned_partitions"),
            generation.get("record_timestamp"),
            generation["record_partition"],
            generation.get("subscribed_topics"),
            keeps_offsets(generation),
            generation["group_type"] == "classic",
            generation.get("unowned_partitions"),
            generation.get("rebalance_timeout_ms"),
        )

    def longest_work(self, usual_ms: float) -> float:
        """Return for how long members may commit nothing, which work on what they have read.

        Who takes longer than its max.poll.interval.ms has left the group: the usual time is for
        Kafka's default of that, and grows with it. One that has no end says nothing of the work.
        """
        longer = usual_ms * (self.timeout_ms or 0) / _USUAL_TIMEOUT_MS
        return max(usual_ms, min(longer, _LONGEST_WORK_MS))

    @property
    def tells_owners(self) -> bool:
        """Whether the log holds all that its members own: an assignment may be unreadable."""
        return bool(self.members) and (not self.is_classic or self.unowned is not None)

    @property
    def position(self) -> LogPosition:
        """Return partition and offset of the record."""
        return self.record_partition, self.offset


class Memberships:
    """The members of a group by position in the log: its records and commits share a partition.

    After the topic has grown, that may be another partition than before.
    """

    def __init__(self, known: list[Membership]) -> None:
        self._known = sorted(known, key=lambda p: p.position)
        self._positions = [p.position for p in self._known]

    def at(self, position: LogPosition) -> Membership | None:
        """Return the group as of a position; None before the first record of its own there."""
        behind = bisect_right(self._positions, position)
        found = self._known[behind - 1] if behind else None
        return found if found is not None and found.record_partition == position[0] else None

    def last(self, partition: int, until: int | None = None) -> Membership | None:
        """Return the group as of its last record in a partition, up to an offset if one is given.

        None before the first record of its own there.
        """
        return self.at((partition, _MOST if until is None else until))

    def first(self, partition: int) -> int | None:
        """Return when the group was first seen in a partition, as far as is known."""
        return self._first.get(partition)

    def elsewhere(self, partition: int) -> bool:
        """Return whether the group was seen in another partition, too."""
        return not self._first.keys() <= {partition}

    @cached_property
    def _first(self) -> dict[int, int | None]:
        """When the group was first seen, by partition: each move asks for it."""
        times: dict[int, list[int]] = {}
        for p in self._known:
            seen = times.setdefault(p.record_partition, [])
            if p.timestamp is not None:
                seen.append(p.timestamp)
        return {partition: min(known, default=None) for partition, known in times.items()}

    @property
    def times(self) -> list[int]:
        """The times of the records."""
        return [p.timestamp for p in self._known if p.timestamp is not None]

    def absences(
        self, first: LogPosition, last: int | None = None
    ) -> list[tuple[Membership, Membership | None]]:
        """Return since when the group had no members, and since when it has again; None if not.

        They are looked for from a position up to the offset `last`, or the last record of its own.
        """
        end = first[0], _MOST if last is None else last
        start = max(0, bisect_right(self._positions, first) - 1)
        found: list[tuple[Membership, Membership | None]] = []
        for known in self._known[start : bisect_right(self._positions, end)]:
            is_away = bool(found) and found[-1][1] is None
            if known.record_partition != first[0] or is_away == (not known.members):
                continue
            if is_away:
                found[-1] = found[-1][0], known
            else:
                found.append((known, None))
        return found

    def since(self, position: LogPosition) -> list[Membership]:
        """Return what is still needed for events from a position on."""
        now = self.at(position)
        return [
            p
            for p in self._known
            if p.record_partition != position[0] or p.position >= (now or p).position
        ]
