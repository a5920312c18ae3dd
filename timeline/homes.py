"""Where the records of groups are, and where they belong.

A group's records are in the partition that its id hashes to (`schemas.placement`).
When the topic grows, half of the groups or more get another partition, where the coordinator
knows nothing of them: what is in the old one is an earlier life of the group, and what is written
there afterwards, such as the expiry of its offsets, is no part of its history. If a coordinator
goes on there, the group has two histories: that of the old partition is told under a name of its
own, `name_of_second`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from schemas.ledger import Detail
from schemas.placement import KAFKA, Placement, explained, partitions_of

# So many groups are not all in wrong partitions by chance.
_FEW = 3
_MOST_LISTED = 1_000
# Clocks of two brokers may differ so much.
_LATE_MS = 5 * 60_000


class Found(NamedTuple):
    """Records of a group in one partition."""

    group: str
    partition: int
    records: int  # how many of them are new
    first: int | None  # time of the first of all in epoch milliseconds; None if none has one
    last: int | None  # that of the last new one
    last_commit: int | None = None  # that of the last new one that commits an offset


Second: TypeAlias = tuple[str, int, int]
"""Group and partition of a second coordinator, and since when, in epoch milliseconds."""


class Locations(NamedTuple):
    """Where the records of some groups are."""

    # Numbers of partitions that the topic has had, the newest last; none if not known.
    counts: list[int]
    # Group and partition of records that are not where the group belongs, with the time in epoch
    # milliseconds from which on they do not count; None if all do.
    elsewhere: list[tuple[str, int, int | None]]
    # The same where no growth of the topic explains it, or where the coordinator there goes on
    # although another one does, too; as `detectors.log.misplaced` takes them.
    misplaced: list[dict[str, Any]]
    by: str = KAFKA  # who has placed the groups, as `schemas.placement` has it
    # Group and partition of those that two coordinators serve, with the time from which on what is
    # there is a history of its own.
    second: Sequence[Second] = ()

    @property
    def placement(self) -> Placement | None:
        """How groups are placed in the topic now; None if that is not known."""
        return Placement(self.counts[-1], self.by) if self.counts else None

    def noted(self) -> dict[str, Any]:
        """Return what later runs and the detection know of them, for the ledger."""
        return {
            Detail.PARTITIONS: self.counts,
            Detail.PLACED_BY: self.by,
            Detail.MISPLACED: self.misplaced,
            Detail.SECOND: self.second,
            Detail.HAS_MOVED: bool(self.elsewhere),
        }


def likeliest(located: Sequence[tuple[str, int]], partitions: int, by: Sequence[str]) -> Placement:
    """Return the placement that explains most groups; of several the first."""
    first, *others = (Placement(partitions, each) for each in by)
    if not others or explained(located, first) == len(located):
        return first
    return max((first, *others), key=lambda each: explained(located, each))


def sorted_out(
    found: Sequence[Found],
    known: Mapping[str, int],
    counts: Sequence[int],
    by: str = KAFKA,
    second: Sequence[Second] = (),
) -> Locations:
    """Return which records are not where their group belongs, and whether the topic grew.

    A group's history has come to the partition `known` before; the last of the counts of partitions
    is that of now; `second` are the second coordinators that earlier runs have found.
    """
    now = Placement(counts[-1], by)
    homes = {row.group: now.of(row.group) for row in found}
    strays = [row for row in found if row.partition != homes[row.group]]
    begun = {row.group: row.first for row in found if row.partition == homes[row.group]}
    before = (group for group, partition in known.items() if partition == homes.get(group))
    since = begun | dict.fromkeys(before, 0)
    counts = _with_former(strays, counts, by)
    is_explained = {row: _is_explained(row, counts, by) for row in strays}
    both = {(group, partition): at for group, partition, at in second}
    goes_on = {
        row
        for row in strays
        if is_explained[row]
        and ((row.group, row.partition) in both or _goes_on(row, begun.get(row.group)))
    }
    for row in goes_on:
        both.setdefault((row.group, row.partition), begun.get(row.group) or 0)
    # What earlier runs have found goes on from then, also where all is read again.
    elsewhere = [
        (row.group, row.partition, both.get((row.group, row.partition), since.get(row.group)))
        for row in strays
    ]
    misplaced = [
        {
            "group_id": row.group,
            "record_partition": row.partition,
            "records": row.records,
            "at": row.last,
            "expected_partition": homes[row.group],
            "partitions": counts[-1],
            "label": "two_coordinators" if is_explained[row] else None,
            "since": both.get((row.group, row.partition)),
            "second": name_of_second(row.group, row.partition) if is_explained[row] else None,
        }
        for row in strays
        if row.records
        and row.last is not None
        and (not is_explained[row] or (row in goes_on and row.last_commit is not None))
        and row.last >= (since.get(row.group) or 0)
    ]
    of_second = [(group, partition, at) for (group, partition), at in sorted(both.items())]
    return Locations(list(counts), elsewhere, misplaced[:_MOST_LISTED], by, of_second)


def _goes_on(row: Found, since: int | None) -> bool:
    """Return whether a group is coordinated where it was, long after it is where it belongs.

    A broker that has not seen the topic grow takes the group's requests for the old partition.
    """
    last = row.last_commit
    return since is not None and last is not None and last > since + _LATE_MS


def _with_former(strays: Sequence[Found], counts: Sequence[int], by: str) -> Sequence[int]:
    """Add the number of partitions before the topic grew, if many groups show it."""
    rest = [(r.group, r.partition) for r in strays if not _is_explained(r, counts, by)]
    if len(rest) < _FEW:
        return counts
    former = partitions_of(rest, by)
    if former is None or former >= counts[-1]:
        return counts
    fits = explained(rest, Placement(former, by)) == len(rest)
    return [former, *counts] if fits else counts


def _is_explained(row: Found, counts: Sequence[int], by: str) -> bool:
    return any(Placement(n, by).of(row.group) == row.partition for n in counts)


def second_of(details: Mapping[str, Any]) -> list[Second]:
    """Return the second coordinators that the details of a run of the history name."""
    return [(group, partition, at) for group, partition, at in details.get(Detail.SECOND, ())]


def name_of_second(group: str, partition: int) -> str:
    """Return the name under which the history is told that a second coordinator makes."""
    return f"{group} (partition {partition})"


def with_second(groups: Sequence[str], second: Sequence[Second]) -> list[str]:
    """Return some groups with the other history of those that have two."""
    names = {*groups}
    for group, partition, _ in second:
        both = {group, name_of_second(group, partition)}
        names |= both if both & names else set()
    return sorted(names)
