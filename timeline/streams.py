"""Members of Kafka Streams in the classic protocol: what the assignor says to them in user data.

Its layout is AssignmentInfo's, versions 1 to 11: an assignment lists the partitions of active tasks
alone, while standby tasks, among them those that warm up before they move, are in the user data; so
is when a member is to start the next rebalance (StreamsPartitionAssignor.addClientAssignments).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from timeline.model import Member, Streams

PROTOCOL = "stream"
_VERSIONS = range(1, 12)
# Versions from which on there are: the version that all support, a task's named topology, the time
# of the next rebalance. Kafka 2.4 brought version 5, and cooperative rebalances.
_SUPPORTED, _NAMED, _NEXT, _COOPERATIVE = 3, 10, 7, 5
_NEVER = 2**63 - 1
_INT, _LONG, _LENGTH = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">H")


def read(user_data: bytes | None) -> Streams | None:
    """Return what an assignment's user data say; None if they are no AssignmentInfo."""
    if not user_data:
        return None
    try:
        return _read(user_data)
    except struct.error:
        return None  # the bytes end too soon


def _read(data: bytes) -> Streams | None:
    (version,) = _INT.unpack_from(data)
    if version not in _VERSIONS:
        return None
    at = 2 * _INT.size if version >= _SUPPORTED else _INT.size
    (active,) = _INT.unpack_from(data, at)
    at += _INT.size
    for _ in range(active):
        at = _behind_task(data, at, version)
    (standbys,) = _INT.unpack_from(data, at)
    at += _INT.size
    for _ in range(standbys):
        at = _behind_partitions(data, _behind_task(data, at, version))
    next_at = None
    if version >= _NEXT:
        (next_at,) = _LONG.unpack_from(data, max(at, len(data) - _LONG.size))
    return Streams(
        version=version, standbys=standbys, rejoins_at=None if next_at == _NEVER else next_at
    )


def _behind_task(data: bytes, at: int, version: int) -> int:
    # Another assignor's bytes may give any number of tasks: the first one behind the end is one too
    # many.
    at = _further(data, at, 2 * _INT.size)
    if version < _NAMED:
        return at
    (characters,) = _INT.unpack_from(data, at)
    return _further(data, at + _INT.size, 2 * int(characters))


def _behind_partitions(data: bytes, at: int) -> int:
    (count,) = _INT.unpack_from(data, at)
    at += _INT.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, at)
        at = _further(data, at + _LENGTH.size, length + _INT.size)
    return at


def _further(data: bytes, at: int, size: int) -> int:
    if size < 0 or at + size > len(data):
        raise struct.error
    return at + size


def has_no_copies(member: Member) -> bool:
    """Return whether it is known that a member keeps no copy of a task, which is work as well."""
    return member.streams is not None and not member.streams["standbys"]


def is_eager(members: Iterable[Member]) -> bool:
    """Return whether the assignor speaks for members older than cooperative rebalances."""
    return any(m.streams is not None and m.streams["version"] < _COOPERATIVE for m in members)


def delay_ms(members: Iterable[Member], at: int | None) -> int | None:
    """Return how long tasks are warmed up from a time on before they move; None if none is."""
    due = rejoins_at(members)
    return None if not due or at is None else max(0, due - at)


def rejoins_at(members: Iterable[Member]) -> int | None:
    """Return when the first member starts the next rebalance by itself: 0 is at once."""
    times = (m.streams["rejoins_at"] for m in members if m.streams is not None)
    return min((t for t in times if t is not None), default=None)
