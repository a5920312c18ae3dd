"""What samples of the log's ends show of a group's offsets: those that lie outside of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detectors.model import MINUTE_MS, Hit, Position, partition_name
from detectors.unread import KIND
from schemas.gold import INFO, WARNING

if TYPE_CHECKING:
    from detectors.model import Row, Track

BEFORE_START, BEYOND_END = "before_start", "beyond_end"
_DAY_MS = 24 * 60 * MINUTE_MS
_WEEK_MS = 7 * _DAY_MS


def take_sample(track: Track, sample: Row) -> None:
    """Take a sample of a group's lag: `at`, `committed_at`, its newest commit, and `lagging`.

    Of the partitions, which lag or are beyond the end, it has `committed_offset`,
    `log_start_offset`, and `log_end_offset`.
    """
    memory, _, findings = track
    at, partitions = sample["at"], sample.get("lagging") or ()
    if at < memory.get("clock", 0):
        return
    memory["clock"] = at
    lost = [p for p in partitions if _is_before(p["committed_offset"], p["log_start_offset"])]
    ahead = [p for p in partitions if _is_before(p["log_end_offset"], p["committed_offset"])]
    # Who has not committed for a day may never come back.
    newest = sample.get("committed_at")
    severity = INFO if newest is None or at - newest > _DAY_MS else WARNING
    subjects = []
    for label, found in ((BEFORE_START, lost), (BEYOND_END, ahead)):
        if not found:
            continue
        named = [partition_name(p) for p in found]
        bound = "log_start_offset" if label == BEFORE_START else "log_end_offset"
        subjects.append(named[0])
        findings.add(
            Hit(
                KIND,
                severity,
                *(at, at, Position(None, None, at), _WEEK_MS),
                subject=named[0],
                label=label,
                maxima={"partitions": len(named)},
                last_values={"records": sum(abs(p[bound] - p["committed_offset"]) for p in found)},
                lists={"unread": named},
            )
        )
    findings.end_others({KIND: subjects})


def _is_before(offset: int | None, other: int | None) -> bool:
    return offset is not None and other is not None and offset < other
