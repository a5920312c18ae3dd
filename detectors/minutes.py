"""What is wrong with how often a group commits: too often, or not at all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import groupby

from detectors import unread
from detectors.memberships import Membership, Memberships
from detectors.model import (
    HOUR_MS,
    MINUTE_MS,
    SKEW_MS,
    Hit,
    Position,
    Row,
    Track,
    partition_name,
    remember,
)
from schemas.gold import CRITICAL, INFO, WARNING

_REMEMBERED_PAUSES = 20
# The last long pauses are remembered for longer: those of a job that runs once a day.
_REMEMBERED_ABSENCES = 5
# A group that has committed in fewer minutes before has no rhythm.
_LEAST_PAUSES = 5
# A job that ended so often before it committed what waited may do so again.
_LEAST_STARTS = 3
# Samples of the lag that a later run may still need.
_REMEMBERED_SAMPLES = 20

MINUTE_COLUMNS = (
    *("minute", "commits", "partitions", "keys", "first_at", "last_at"),
    *("record_partition", "first_offset", "last_offset"),
)
"""What is asked of the commits of a minute, see `take_minute`."""


def take_minute(track: Track, part: Row, memberships: Memberships) -> None:
    """Take the commits of one minute, or of a part of it that a run cut off, by `MINUTE_COLUMNS`.

    The next minute shows whether a minute's clock was right: the last one waits for it beside the
    one before.
    """
    memory = track.memory
    for known in (memory.get("next"), memory.get("minute")):
        if known is not None and _minute_of(known) == _minute_of(part):
            known["commits"] += part["commits"]
            known["keys"] = sorted({*known.get("keys", ()), *part["keys"]})
            known["partitions"] = max(known["partitions"], len(known["keys"]))
            known["first_at"] = min(known["first_at"], part["first_at"])
            known["last_at"] = max(known["last_at"], part["last_at"])
            known["last_offset"] = max(known["last_offset"], part["last_offset"])
            return
    take_next(track, memberships, part["first_at"])
    memory["next"] = {n: part[n] for n in MINUTE_COLUMNS}


def _minute_of(part: Row) -> tuple[int, int]:
    return part["record_partition"], part["minute"]


def take_next(track: Track, memberships: Memberships, then: int) -> None:
    """Take the minute that has waited for the time of what follows it, in epoch milliseconds."""
    memory = track.memory
    last, following = memory.get("minute"), memory.pop("next", None)
    if following is None:
        return
    at = following["first_at"]
    if last is not None:
        earliest = last["first_at"] - SKEW_MS
        if then >= earliest and not earliest <= at <= then + SKEW_MS:
            return  # a clock far ahead or behind, whose time says nothing
    clock = min(at, then)
    memory["clock"] = max(clock, memory.get("clock", clock))
    if last is not None:
        _commit_storm(track, memberships)
        if last["record_partition"] == following["record_partition"]:
            first = following["first_offset"]
            is_over = _commit_stall(track, memberships, at, first)
            if _nobody_reads(track, memberships, at, first) or is_over:
                track.findings.end_others({"commit_stall": (), unread.KIND: ()})
            pause = at - last["last_at"]
            remember(memory, "pauses", pause, _REMEMBERED_PAUSES)
            if pause > track.limits[unread.KIND]["pause_ms"]:
                remember(memory, "absences", pause, _REMEMBERED_ABSENCES)
    memory["minute"] = following


def take_wait(memory: Row, wait: Row) -> None:
    """Take what others show beyond the group's commits, by `unread.WAIT_COLUMNS`, in this run."""
    if unread.is_shown(wait):
        waiting = wait["other_offset"] - wait["committed_offset"]
        shown = [wait["first_at"], waiting, wait["others"], wait["until"]]
        memory.setdefault("shown", []).append(shown)


def take_lag(memory: Row, sample: Row) -> None:
    """Take how far the group was behind at a time: `at`, `lag` and `usual_step`, in all partitions.

    The last is how far its commits usually go on, in those that lag.
    """
    samples: list[list[int]] = memory.setdefault("samples", [])
    if sample["lag"] is not None and (not samples or sample["at"] > samples[-1][0]):
        samples.append([sample["at"], sample["lag"], sample.get("usual_step") or 0])
        lagging = [p for p in sample.get("lagging") or () if p["lag"]]
        memory["lagging"] = [partition_name(p) for p in lagging]


def kept(memory: Row, changes: Sequence[int]) -> Row:
    """Return what a later run needs, which may ask for what was between `changes` of members."""
    lasting = {name: known for name, known in memory.items() if name != "shown"}
    # The commit that ended a pause is in the minute that waits, and the pause is not given again.
    since = (memory.get("minute") or {}).get("last_at", 0)
    if ended := [s for s in memory.get("shown", []) if s[3] is not None and s[3] > since]:
        lasting["shown"] = ended
    if samples := [s for s in memory.get("samples", []) if s[0] > since]:
        # Three of those alike tell since when and until when records waited, and how many.
        end = (memory.get("next") or {}).get("first_at", 0)
        times, needed = sorted([*changes, end - MINUTE_MS, end]), samples[-_REMEMBERED_SAMPLES:]
        for _, of_time in groupby(samples, lambda s: (bisect_left(times, s[0]), s[1] > 0)):
            alike = [*of_time]
            needed += [alike[0], max(alike, key=lambda s: s[1]), alike[-1]]
        lasting["samples"] = [sample for sample, _ in groupby(sorted(needed))]
    return lasting


def take_move(track: Track, move: Row) -> None:
    """Take a commit that ends a pause of its partition: whether no record is missing in there."""
    since, at = move["previous_at"], move["at"]
    if since is None or at is None or at - since <= track.limits["commit_stall"]["pause_ms"]:
        return
    remember(track.memory, "ended", [since, at, bool(move["is_complete"])], _REMEMBERED_PAUSES)


def take_end(track: Track, memberships: Memberships, now: int, lost: Mapping[int, int]) -> None:
    """Look at the last minute, and at what follows it up to the time of the log.

    Behind the offset of its partition that was `lost` last, nobody knows what follows.
    """
    take_next(track, memberships, now)
    if (last := track.memory.get("minute")) is None:
        return
    _commit_storm(track, memberships)
    if last["last_offset"] >= lost.get(last["record_partition"], -1):
        _commit_stall(track, memberships, now)
        _nobody_reads(track, memberships, now)


def _commit_storm(track: Track, memberships: Memberships) -> None:
    """Find a client that commits for every record, or nearly so, in the last minute.

    Exactly-once commits ten times a second by default. No record tells that it is of a transaction,
    and each transaction ends with a marker, which has an offset and is no record: where there are
    no such offsets, there was none.
    """
    last = track.memory["minute"]
    group = memberships.at((last["record_partition"], last["last_offset"]))
    assigned = group.partitions if group is not None and group.members else None
    limit, partitions = track.limits["commit_storm"], max(assigned or 0, last["partitions"], 1)
    most = limit["critical_a_partition_and_minute"]
    is_of_all = last["commits"] / partitions > limit["a_partition_and_minute"]
    if not is_of_all:
        # A few partitions may be committed for each record, and the others hardly ever.
        partitions = max(last["partitions"], 1)
    a_minute = last["commits"] / partitions
    if not is_of_all and a_minute <= most:
        return
    others = last["last_offset"] - last["first_offset"] + 1 - last["commits"]
    is_open = others >= last["commits"] / last["partitions"] - 1
    is_open &= a_minute <= limit["transactions_a_partition_and_minute"]
    severity = CRITICAL if is_of_all and a_minute > most else WARNING
    track.findings.add(
        Hit(
            "commit_storm",
            INFO if is_open else severity,
            *(last["first_at"], last["last_at"]),
            Position(last["record_partition"], last["last_offset"], last["last_at"]),
            2 * MINUTE_MS,
            Position(last["record_partition"], last["first_offset"], last["first_at"]),
            label="perhaps_transactions" if is_open else None,
            sums={"commits": last["commits"]},
            maxima={"commits_a_partition_and_minute": round(a_minute), "partitions": partitions},
        )
    )


def _commit_stall(
    track: Track, memberships: Memberships, until: int, offset: int | None = None
) -> bool:
    """Find a pause longer than is usual, as long as members are there; return whether there is one.

    Samples of the lag, or commits of other groups, in the meantime tell whether there was anything
    to commit. The commit that ends it does not, however far it goes on: all may have come at the
    end, from a producer that had been away.
    """
    last = track.memory["minute"]
    position = last["record_partition"], last["last_offset"]
    group = memberships.at(position)
    if group is None:
        return False
    since = Position(*position, last["last_at"])
    before = None if offset is None else offset - 1
    # Offsets may have been set while it was empty.
    absences = memberships.absences(position, before)
    if not absences or (emptied := absences[0][0]).timestamp is None:
        return _stalls(track, group, since, (until, offset))
    starts = [back.timestamp or 0 for _, back in absences[:-1] if back is not None]
    if starts and _stalls(track, group, since, (until, offset), starts=starts):
        return True
    ended = emptied.timestamp, emptied.offset
    is_found = bool(group.members) and _stalls(track, group, since, ended, is_commit=False)
    # Since they are there again, nobody has committed either.
    _, back = absences[-1]
    if back is not None and back.timestamp is not None:
        since = Position(*back.position, back.timestamp)
        is_found |= _stalls(track, back, since, (until, offset))
    return is_found


def _stalls(
    track: Track,
    group: Membership,
    since: Position,
    end: tuple[int, int | None],
    *,
    is_commit: bool = True,
    starts: Sequence[int] = (),
) -> bool:
    """Find a pause of a group since a record of its own, until a time and an offset.

    If it has `starts`, those of a job that has ended each time, enough of them have to be in vain:
    others, or samples of the lag, had shown before that records wait.
    """
    memory, limits, findings = track
    last, began, (until, offset) = memory["minute"], int(since.timestamp or 0), end
    pause, longest = until - began, max(memory.get("pauses", []), default=0)
    limit = limits["commit_stall"]
    least = group.longest_work(limit["pause_ms"])
    if pause <= max(least, limit["times_the_usual"] * longest):
        return False
    if offset is not None and _has_hole(memory, until):
        return False
    # What a commit follows within a minute was read in time.
    seen_until = until - MINUTE_MS if offset is not None and is_commit else until
    samples = [s for s in memory.get("samples", []) if began < s[0] <= seen_until]
    # Another group may be the first to commit what a producer brings that had been away.
    shown = [s for s in memory.get("shown", []) if last["last_at"] < s[0] < until - least]
    lags = [lag for _, lag, _ in samples]
    partitions = max(group.partitions or 0, last["partitions"])
    label = _label(samples, until, round(least), partitions)
    if shown and not any(_is_more(*s) for s in samples):
        label, lags = "records_wait", [sum(waiting for _, waiting, *_ in shown)]
    in_vain: Row = {}
    if starts:
        nothing = max((at for at, lag, _ in samples if not lag), default=began)
        waiting_since = min([at for at, *_ in (*shown, *samples) if at > nothing], default=until)
        in_vain = {"starts": sum(at >= waiting_since for at in starts)}
        if label != "records_wait" or in_vain["starts"] < _LEAST_STARTS:
            return False
        label = "starts_in_vain"
    findings.add(
        Hit(
            "commit_stall",
            WARNING if label in ("records_wait", "starts_in_vain") else INFO,
            *(began, until),
            since if offset is None else Position(last["record_partition"], offset, until),
            0,
            since,
            label=label,
            maxima={
                "pause_ms": pause,
                "lag": max(lags, default=0),
                "longest_usual_pause_ms": longest,
                **in_vain,
            },
            lists={"others": sorted({name for s in shown for name in s[2]})} if shown else {},
        )
    )
    return True


def _has_hole(memory: Row, until: int) -> bool:
    """Return whether records are missing from the last minute on: a commit may be among them."""
    since = memory["minute"]["last_at"]
    around = [e for e in memory.get("ended", []) if e[0] <= since and until <= e[1]]
    return bool(around) and not any(is_complete for *_, is_complete in around)


def _label(samples: list[list[int]], until: int, least_ms: int, partitions: int) -> str | None:
    """Return what samples of the lag tell of a pause up to a time; None if it is not known."""
    if not samples:
        return None
    if not any(lag for _, lag, _ in samples):
        return "nothing_to_read"
    if max(lag for _, lag, _ in samples) <= partitions:
        # The marker that ends a transaction has an offset, and nobody commits behind it.
        return "perhaps_markers"
    if not any(_is_more(*s) for s in samples):
        return None
    nothing = max((at for at, lag, _ in samples if not lag), default=None)
    return "records_wait" if nothing is None or until - nothing > least_ms else None


def _is_more(_: int, lag: int, usual_step: int) -> bool:
    """Return whether a sample shows more records than may wait for the next commit."""
    return lag > unread.USUAL_STEPS * usual_step


def _nobody_reads(
    track: Track, memberships: Memberships, until: int, offset: int | None = None
) -> bool:
    """Find a group that nobody runs any more, though samples show that records wait.

    It begins with the last commit, or when the last member was gone; of a group that never had
    members, consumers with assign() alone, the commits show that somebody runs it.
    """
    last = track.memory["minute"]
    position = last["record_partition"], last["last_offset"]
    committed = Position(*position, last["last_at"])
    before = None if offset is None else offset - 1
    if memberships.last(*position[:1], before) is None:
        return _is_left(track, committed, until, offset, steps=unread.USUAL_STEPS)
    is_found, known = False, list[int]()
    for gone, back in memberships.absences(position, before):
        if gone.timestamp is None:
            continue
        since = max(committed, Position(*gone.position, gone.timestamp))
        end = until if back is None else back.timestamp or until
        if back is None or offset is not None:  # else they are there
            is_found |= _is_left(track, since, end, offset, known)
        known.append(end - int(since.timestamp or 0))
    return is_found


def _is_left(
    track: Track,
    record: Position,
    until: int,
    offset: int | None,
    known: Sequence[int] = (),
    *,
    steps: int = 0,
) -> bool:
    """Find whether records waited since a record, behind which nobody ran the group.

    `known` is for how long nobody did each time before, since the last commit. If it may be run all
    the same, it waits for no more than so many `steps`.
    """
    memory, limits, findings = track
    pauses, since = memory.get("pauses", []), int(record.timestamp or 0)
    # At the end of the log the newest sample is a little younger: it was taken of what was read.
    samples = [
        [min(at, until) if offset is None else at, *n] for at, *n in memory.get("samples", [])
    ]
    lags = [s for s in samples if since < s[0] <= until]
    limit = limits[unread.KIND]
    usual = max([*pauses, *memory.get("absences", []), *known], default=0)
    if len(pauses) < _LEAST_PAUSES or not lags or lags[-1][1] <= steps * lags[-1][2]:
        return False
    if lags[-1][0] - since <= max(limit["pause_ms"], limit["times_the_usual"] * usual):
        return False
    findings.add(
        Hit(
            unread.KIND,
            WARNING,
            *(since, lags[-1][0], record),
            gap_ms=2 * HOUR_MS,  # samples come with runs, an hour apart or less
            label=unread.NO_MEMBERS,
            maxima={"waiting": lags[-1][1], "partitions": len(memory.get("lagging", []))},
            last_values={"ms_idle": lags[-1][0] - since},
            lists={"unread": memory.get("lagging", [])},
        )
    )
    return True
