"""Which partition of ``__consumer_offsets`` holds a group's records."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

HOME = "is_home"
"""Column that tells, where it is there, whether a record is where its group belongs."""
KAFKA, REDPANDA = "kafka", "redpanda"
"""Who has placed the groups: each hashes their ids in its own way."""
JAVA_HASH = """\
if({0} = '', 0, aggregate(transform(
  sequence(1, length(hex(encode({0}, 'UTF-16BE'))) - 3, 4),
  i -> CAST(conv(substring(hex(encode({0}, 'UTF-16BE')), i, 4), 16, 10) AS BIGINT)
), 0L, (h, unit) -> (h * 31 + unit) & 4294967295L))"""
"""Java's String.hashCode of a text, over UTF-16 in 32 bits without a sign, in Spark's SQL."""

_MOST_PARTITIONS = 1_000
# What a topic has unless somebody set it.
_DEFAULT_PARTITIONS = {KAFKA: 50, REDPANDA: 16}
_64_BITS = 2**64 - 1
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


class Placement(NamedTuple):
    """How groups are placed in a topic."""

    partitions: int  # how many it has
    by: str = KAFKA  # who places them, `KAFKA` or `REDPANDA`

    def of(self, group_id: str) -> int:
        """Return the partition that holds a group's records."""
        if self.by == REDPANDA:
            return _jumps(group_id, self.partitions)[-1]
        return partition_for(group_id, self.partitions)


def partition_for(group_id: str, partitions: int) -> int:
    """Return the partition that Kafka puts a group in (GroupMetadataManager.partitionFor)."""
    return abs(java_hash(group_id)) % partitions


def placed(columns: Iterable[str]) -> list[str]:
    """Return `HOME` if it is among some columns."""
    return [name for name in columns if name == HOME]


def partitions_of(located: Iterable[tuple[str, int]], by: str = KAFKA) -> int | None:
    """Infer the number of the topic's partitions; None if none explains where groups are."""
    known = list(located)
    if not known:
        return None
    least = max(partition for _, partition in known) + 1
    most = max(least, _MOST_PARTITIONS)
    fits = (_fits_of_redpanda if by == REDPANDA else _fits_of_kafka)(known, least, most)
    default = _DEFAULT_PARTITIONS[by]
    best = max(range(least, most + 1), key=lambda n: (fits[n - least], n == default, -n))
    return best if fits[best - least] * 2 >= len(known) else None


def inferred(located: Collection[tuple[str, int]], by: Sequence[str]) -> Placement | None:
    """Infer how many partitions there are and who has placed the groups; None if nothing fits.

    Of several that explain as many groups, it is the first.
    """
    best, most = None, 0
    for each in by:
        partitions = partitions_of(located, each)
        if partitions is not None:
            placement = Placement(partitions, each)
            fits = explained(located, placement)
            if fits > most:
                best, most = placement, fits
        if most == len(located):
            break
    return best


def explained(located: Iterable[tuple[str, int]], placement: Placement) -> int:
    """Count the groups that are where a placement has them."""
    return sum(placement.of(group) == partition for group, partition in located)


def _fits_of_kafka(known: list[tuple[str, int]], least: int, most: int) -> list[int]:
    """Count the groups that are where Kafka has them, by number of partitions."""
    rows = [(abs(java_hash(group)), partition) for group, partition in known]
    hashes, found = np.array(rows, np.int64).T.copy()  # each without the other between
    return [int(np.count_nonzero(hashes % n == found)) for n in range(least, most + 1)]


def _fits_of_redpanda(known: list[tuple[str, int]], least: int, most: int) -> list[int]:
    """Count the groups that are where Redpanda has them, by number of partitions."""
    changes = np.zeros(most + 2, np.int64)
    for group, partition in known:
        jumps = (*_jumps(group, most), most)
        # A group that jumps to a partition stays there until there are enough for its next jump.
        for at, behind in itertools.pairwise(jumps):
            if at == partition:
                changes[at + 1] += 1
                changes[behind + 1] -= 1
    fits: list[int] = np.cumsum(changes)[least : most + 1].tolist()
    return fits


@lru_cache(maxsize=100_000)
def _jumps(group_id: str, partitions: int) -> tuple[int, ...]:
    """Return the partitions that a group moves to while a topic grows, the last its own.

    Redpanda's coordinator_ntp_mapper: jump_consistent_hash (Lamping and Veach) of the id's XXH64.
    """
    key, jumps, after = xxhash64(group_id.encode("utf-8", "surrogatepass")), [0], 0
    while True:
        key = (key * 2_862_933_555_777_941_757 + 1) & _64_BITS
        after = int((jumps[-1] + 1) * (2**31 / ((key >> 33) + 1)))
        if after >= partitions:
            return tuple(jumps)
        jumps.append(after)


def xxhash64(octets: bytes) -> int:
    """Return XXH64 of some bytes, with the seed 0."""
    one, two, three, four, five = _PRIMES
    at, end = 0, len(octets)

    def word(width: int) -> int:
        return int.from_bytes(octets[at : at + width], "little")

    if end >= 32:  # noqa: PLR2004 - four words
        lanes = [(one + two) & _64_BITS, two, 0, -one & _64_BITS]
        while at + 32 <= end:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], word(8))
                at += 8
        number = sum(_rotated(n, by) for n, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            number = ((number ^ _round(0, lane)) * one + four) & _64_BITS
    else:
        number = five
    number += end
    while at + 8 <= end:
        number = (_rotated(number ^ _round(0, word(8)), 27) * one + four) & _64_BITS
        at += 8
    if at + 4 <= end:
        number = (_rotated(number ^ word(4) * one, 23) * two + three) & _64_BITS
        at += 4
    while at < end:
        number = _rotated(number ^ word(1) * five, 11) * one & _64_BITS
        at += 1
    number = (number ^ (number & _64_BITS) >> 33) * two & _64_BITS
    number = (number ^ number >> 29) * three & _64_BITS
    return number ^ number >> 32


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _PRIMES[1], 31) * _PRIMES[0] & _64_BITS


def _rotated(number: int, by: int) -> int:
    number &= _64_BITS
    return (number << by | number >> (64 - by)) & _64_BITS


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``; its least value becomes 0, as in Kafka's ``Utils.abs``."""
    number = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (number * 31 + (high << 8 | low)) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return 0 if signed == -(1 << 31) else signed
