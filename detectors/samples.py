"""What samples of the log's ends show of a group's offsets: outside of it, or standing still."""

from __future__ import annotations

from collections.abc import Sequence

from detectors.model import DAY_MS, Hit, Position, Row, Track, partition_name
from detectors.thresholds import Values
from detectors.unread import KIND, LEAST_RECORDS, MANY_RECORDS
from schemas.gold import INFO, WARNING

BEFORE_START, BEYOND_END, STALLED = "before_start", "beyond_end", "stalled"
_WEEK_MS = 7 * DAY_MS


def take_sample(track: Track, sample: Row) -> None:
    """Take a sample of a group's lag: `at`, `committed_at`, its newest commit, and `lagging`.

    Of the partitions, which lag or are beyond the end, it has `committed_offset`,
    `log_start_offset`, `log_end_offset`, `lag`, and `committed_at`, each one's own.
    """
    memory, limits, findings = track
    at, partitions = sample["at"], sample.get("lagging") or ()
    if at < memory.get("clock", 0):
        return
    memory["clock"] = at
    lost = [p for p in partitions if _is_before(p["committed_offset"], p["log_start_offset"])]
    ahead = [p for p in partitions if _is_before(p["log_end_offset"], p["committed_offset"])]
    # Who has not committed for a day may never come back.
    newest = sample.get("committed_at")
    severity = INFO if newest is None or at - newest > DAY_MS else WARNING
    subjects = []
    stalled = _stalled(memory, at, partitions, limits)
    for label, found in ((BEFORE_START, lost), (BEYOND_END, ahead), (STALLED, stalled)):
        if not found:
            continue
        named = [partition_name(p) for p in found]
        bound = "log_start_offset" if label == BEFORE_START else "log_end_offset"
        since = min(p["since"] for p in found) if label == STALLED else at
        subjects.append(named[0])
        findings.add(
            Hit(
                KIND,
                severity,
                *(since, at, Position(None, None, at), _WEEK_MS),
                subject=named[0],
                label=label,
                maxima={"partitions": len(named)},
                last_values={"records": sum(abs(p[bound] - p["committed_offset"]) for p in found)},
                lists={"unread": named},
            )
        )
    findings.end_others({KIND: subjects})


def _stalled(memory: Row, at: int, partitions: Sequence[Row], limits: Values) -> list[Row]:
    """Return what is committed again and again at one offset while the log goes on.

    Who pauses a partition, or fails at a record, goes on to commit where it is.
    """
    former: dict[str, Row] = memory.pop("still", {})
    still: dict[str, Row] = {}
    found = []
    for p in partitions:
        committed_at = p.get("committed_at")
        if committed_at is None or not p["lag"] or p["log_end_offset"] is None:
            continue
        name = partition_name(p)
        first = former.get(name)
        if first is None or first["offset"] != p["committed_offset"]:
            first = {"since": at, "offset": p["committed_offset"], "end": p["log_end_offset"]}
            first["committed_at"] = committed_at
        still[name] = first
        is_long = at - first["since"] >= limits["no_progress"]["least_ms"]
        goes_on = committed_at > first["committed_at"]
        goes_on &= at - committed_at <= limits[KIND]["pause_ms"]
        is_more = p["log_end_offset"] - first["end"] >= LEAST_RECORDS or p["lag"] >= MANY_RECORDS
        if is_long and goes_on and is_more and p["lag"] >= LEAST_RECORDS:
            found.append({**p, "since": first["since"]})
    if still:
        memory["still"] = still
    return found


def _is_before(offset: int | None, other: int | None) -> bool:
    return offset is not None and other is not None and offset < other
