"""Which partition of ``__consumer_offsets`` holds a group's records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

HOME = "is_home"
"""Column that tells, where it is there, whether a record is where its group belongs."""
_MOST_PARTITIONS = 1_000
_DEFAULT_PARTITIONS = 50


def partition_for(group_id: str, partitions: int) -> int:
    """Return the partition that holds a group's records (GroupMetadataManager.partitionFor)."""
    return abs(java_hash(group_id)) % partitions


def placed(columns: Iterable[str]) -> list[str]:
    """Return `HOME` if it is among some columns."""
    return [name for name in columns if name == HOME]


def partitions_of(located: Iterable[tuple[str, int]]) -> int | None:
    """Infer the number of the topic's partitions; None if none explains where the groups are.

    Args:
        located: groups and the partitions that hold records of theirs.
    """
    known = [(abs(java_hash(group)), partition) for group, partition in located]
    if not known:
        return None
    hashes, found = np.array(known, np.int64).T.copy()  # each without the other between
    least = int(found.max()) + 1
    fits = {
        n: np.count_nonzero(hashes % n == found)
        for n in range(least, max(least, _MOST_PARTITIONS) + 1)
    }
    best = max(fits, key=lambda n: (fits[n], n == _DEFAULT_PARTITIONS, -n))
    return best if fits[best] * 2 >= len(known) else None


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``; its least value becomes 0, as in Kafka's ``Utils.abs``."""
    number = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (number * 31 + (high << 8 | low)) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return 0 if signed == -(1 << 31) else signed
