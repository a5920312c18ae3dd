"""Finds jobs that are started again and again, long after their end, and never get to a commit.

With commits, or by the clock, that is a schedule; what comes back sooner is a storm of rebalances.
"""

from __future__ import annotations

from bisect import bisect_left

from detectors.members import BACKOFF_MS, is_on_schedule
from detectors.model import HOUR_MS, MINUTE_MS, Hit, Position, Row, Track
from schemas.gold import WARNING

KIND, LABEL = "rebalance_storm", "never_commits"
# A job that works for longer has done something, whatever it keeps of that elsewhere.
_SHORT_MS = 10 * MINUTE_MS
# So many starts that come to nothing are no coincidence.
_STARTS = 6


def settle(track: Track, generations: list[Row], commits: list[tuple[int, int]]) -> None:
    """Take the settled generations of a run, in order, and the positions of its commits.

    What is kept: `emptied`, when the group had no members any more; `start`, what is known of the
    members that came then; `vain`, the starts one after the other that came to nothing.
    """
    memory = track.memory
    commits.sort()
    for generation in generations:
        if generation.get("aborted_evidence") != "complete" or not _commits(generation):
            memory.clear()  # a commit may be missing
        at, record = generation.get("join_started_at"), Position.of(generation)
        if at is None:
            continue
        memory["clock"] = max(at, memory.get("clock", at))
        if generation.get("member_count"):
            if (emptied := memory.pop("emptied", None)) is not None:
                memory["start"] = {"at": at, "idle": at - emptied, "record": list(record)}
            continue
        memory["emptied"] = at
        if (start := memory.pop("start", None)) is not None:
            _take(track, start, at, record, commits)
    if (start := memory.get("start")) is not None:
        start["has_committed"] = _has_committed(start, commits)


def _commits(generation: Row) -> bool:
    """Return whether such a group commits here: share groups and workers of Connect do not."""
    is_reader = generation.get("protocol_type") in (None, "consumer", "streams")
    return is_reader and generation["group_type"] != "share"


def _take(
    track: Track, start: Row, ended: int, record: Position, commits: list[tuple[int, int]]
) -> None:
    """Take a start that has ended."""
    is_vain = (
        ended - start["at"] < _SHORT_MS
        and BACKOFF_MS < start["idle"] <= HOUR_MS
        and not _has_committed(start, commits, record)
    )
    vain: list[Row] = [*track.memory.get("vain", []), start] if is_vain else []
    track.memory["vain"] = vain = vain[-2 * _STARTS :]
    if len(vain) >= _STARTS and not is_on_schedule([(s["at"], s["idle"]) for s in vain]):
        hit = Hit(
            KIND,
            WARNING,
            *(vain[0]["at"], ended, record),
            first=Position(*vain[0]["record"]),
            subject="starts",
            label=LABEL,
            sums={"starts": 1},
            initial_sums={"starts": len(vain)},
        )
        track.findings.add(hit, track.memory["clock"])


def _has_committed(
    start: Row, commits: list[tuple[int, int]], until: Position | None = None
) -> bool:
    """Return whether the group has committed since a start, up to a record if one is given."""
    partition, offset, _ = start["record"]
    number = bisect_left(commits, (partition, offset))
    found = commits[number : number + 1]
    is_there = bool(found) and found[0][0] == partition
    is_there &= until is None or (bool(found) and found[0][1] <= (until.offset or 0))
    return is_there or bool(start.get("has_committed"))
