"""One rebalance as its detectors see it, and what several of them ask of it."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from detectors.members import SlotChanges, host_of
from detectors.model import MINUTE_MS, Position, Row
from detectors.thresholds import Values
from schemas.gold import INFO, WARNING

ASSIGNED = "assigned_partitions"
CHANGES = ("joined", "left", "replaced")
AT_LEAST_TWO = 2
TEN_MINUTES_MS = 10 * MINUTE_MS
# Who makes a storm has its part in more of it than this.
_PART = 0.5
# Members of a share group that stay for so long have read their share, and nobody waits for them.
_SHARED_WORK_MS = 5 * MINUTE_MS
_FEW_CLIENTS = 5
_NAMES = 10_000  # of clients that are remembered
_NAMELESS = ("@*", "None@*")  # clients that give themselves no id have none in common


class Rebalance(NamedTuple):
    """A rebalance as the detectors see it."""

    generation: Row  # the row of the generation that it led to
    changes: SlotChanges  # what it did to the slots of the group
    memory: Row  # what is kept of those before; changed
    limits: Values  # the thresholds of the group
    span: tuple[int, int, Position]  # when it began, when it ended, and the record that shows it


def is_whole(generation: Row) -> bool:
    """Return whether no record is missing that would tell what was before a generation."""
    return generation.get("aborted_evidence") == "complete"


def joined_for(generation: Row, told_at: int | None = None) -> int:
    """Return for how long the members joined at least: what is only estimated shows nothing."""
    since, until = generation.get("join_started_at_max"), generation.get("join_completed_at_min")
    known = [t for t in (since, told_at) if t is not None]
    return max(0, until - min(known)) if known and until is not None else 0


def time_taken(generation: Row) -> int | None:
    """Return how long a rebalance lasted at least; None if it did not get to its end."""
    if generation["group_type"] != "classic":
        return generation.get("rebalance_ms")
    if generation.get("stable_at") is None:
        return None
    return joined_for(generation) + (generation.get("sync_ms") or 0)


def aborted_for_certain(generation: Row) -> int:
    """Return how many attempts were given up before it, if no record that would tell is missing."""
    return (generation.get("aborted_generations") or 0) if is_whole(generation) else 0


def come_and_gone(generation: Row) -> list[str]:
    """Name the clients that came, went or restarted with a generation; of many none stands out."""
    clients = {host_of(m) for what in CHANGES for m in generation.get(f"members_{what}") or ()}
    return sorted(clients) if len(clients) <= _FEW_CLIENTS else []


def by_whom(clients: Iterable[Iterable[str]], there: Iterable[str]) -> list[str]:
    """Return who had a part in most of some rebalances, by who came and went in each.

    Where no client stands out, a machine may, or a client id that moves from one to the next,
    unless it is that of all, of those that are `there`, too.
    """
    every = [{*of_one} for of_one in clients]
    least = max(2, int(_PART * len(every)) + 1)
    for part in (str, _machine_of, _id_of):
        counted = Counter(chain.from_iterable({*map(part, of_one)} for of_one in every))
        named = sorted(c for c, n in counted.items() if n >= least and c not in _NAMELESS)
        if named and (part is str or len(named) < len({*counted, *map(part, there)})):
            return named
    return []


@lru_cache(_NAMES)
def _machine_of(client: str) -> str:
    return f"*@{client.rpartition('@')[2]}"


@lru_cache(_NAMES)
def _id_of(client: str) -> str:
    return f"{client.rpartition('@')[0]}@*"


def of_shared(seen: Rebalance, severity: str) -> str:
    """Return how bad it is that members come and go: in a share group nobody waits for them."""
    # Each reads what it is given, and what was given to one that is gone goes to others
    # (ShareGroupPartitionAssignor; SharePartition.releaseAcquiredRecords).
    if seen.generation["group_type"] != "share":
        return severity
    lasted = [ms for _, ms, _ in seen.memory["sessions"] if ms is not None]
    works = bool(lasted) and statistics.median(lasted) >= _SHARED_WORK_MS
    return INFO if works else WARNING
