"""What is wrong with single commits of a group: offsets that go back, or too far, or away."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from detectors.members import host_of
from detectors.memberships import Membership, Memberships
from detectors.model import DAY_MS, MINUTE_MS, Hit, Position, Row, Track, partition_name, remember
from detectors.thresholds import Values
from schemas.gold import INFO, RHYTHM_COMMITS, WARNING

# A reset writes all its partitions at once; the commits of one poll come at once, too.
_AT_ONCE_MS = 500
_SOON_MS = MINUTE_MS
_WEEK_MS = 7 * DAY_MS
_EPISODE_MS = 10 * MINUTE_MS
_SECOND_MS = 1_000
# From `rhythm_since` to the last commit before a move.
_INTERVALS = RHYTHM_COMMITS - 1
# So many rewinds that nothing explains are a habit.
_AGAIN, _REMEMBERED = 3, 50
# What is kept of offsets that went away, by the reason.
_GONE = ("deleted", "expired")
# Kinds of which an episode tells the number of partitions.
_MOVED = ("offset_rewind", "offset_jump", "offset_reset")


def take_move(
    track: Track, move: Row, memberships: Memberships, owners: Sequence[Row] = ()
) -> None:
    """Take one row of offset_moves: a commit that did not just go on.

    The owners are rows of partition_owners of the partition, by valid_from; none if nobody asked.
    """
    memory, _, findings = track
    at = move["at"]
    # What waited in a pause is told by `unread`.
    if at is None or move["move"] == "resumed" or _is_of_former_topic(memory, move):
        return
    hit = None
    if not _is_of_another_coordinator(memory, move, memberships):
        hit = _hit(track, move, memberships, owners)
    memory["clock"] = max(at, memory.get("clock", at))
    if hit is not None:
        findings.add(_counted(track, hit, move), memory["clock"])


def _hit(track: Track, move: Row, memberships: Memberships, owners: Sequence[Row]) -> Hit | None:
    """Return what a commit that did not just go on shows; None if nothing."""
    memory, limits, at = track.memory, track.limits, move["at"]
    group = memberships.at((move["record_partition"], move["record_offset"]))
    hit: Hit | None = None
    if move["move"] == "deleted":
        hit = _deleted(memory, limits, move, group)
    elif move["move"] == "returned":
        hit = _returned(memory, move)
    elif group is not None and group.members:
        is_after = group.timestamp is not None and at - group.timestamp <= _SOON_MS
        hit = _went(limits, move, "after_rebalance" if is_after else None)
        if hit is not None and (client := _remembered(move, owners)) is not None:
            hit = hit._replace(lists={**hit.lists, "remembered": [client]})
    elif _is_in_rhythm(move, group) or (move["step"] < 0 and not move["is_complete"]):
        # Nobody but a member, or a consumer that was assigned its partitions, commits like that.
        # Between records that are missing, there may have been members.
        hit = _went(limits, move, "no_members")
    elif move["step"] < 0 or _is_set(memory, limits, move, group):
        was_set = memory.setdefault("set", {})
        was_set.pop(partition_name(move), None)
        was_set[partition_name(move)] = at
        while at - was_set[oldest := next(iter(was_set))] > _EPISODE_MS:
            del was_set[oldest]
        hit = _reset(move)
    return hit


def _is_of_another_coordinator(memory: Row, move: Row, memberships: Memberships) -> bool:
    """Note where the group commits; return whether the commit before was in another partition.

    The log has grown since, and the coordinator of the new one knows no offset of the group, which
    starts over.
    """
    places: dict[str, int] = memory.setdefault("places", {})
    here, before = move["record_partition"], move["previous_at"]
    first = memberships.first(here)
    places.setdefault(str(here), move["at"] if first is None else first)
    # Commits that go on make no row: where the group had members tells of the other place, too.
    has_moved = len(places) > 1 or (first is not None and memberships.elsewhere(here))
    return has_moved and before is not None and before < places[str(here)]


def _is_of_former_topic(memory: Row, move: Row) -> bool:
    """Note offsets that went with their topic; return whether a step back leaves one of these.

    A commit on its way when a topic is made again ends up in the new one, whose id it gets. It goes
    on from the offset that the old one had; the next is the new one's first.
    """
    former: dict[str, Row] = memory.setdefault("former_topics", {})
    partition = partition_name(move)
    known = former.get(partition)
    if move["move"] == "deleted":
        if (old := move.get("previous_topic_id")) is not None:
            former[partition] = {"id": old, "offset": move["previous_offset"]}
        return False
    if move["move"] == "returned" and known is not None:
        is_other = move.get("topic_id") not in (None, known["id"])
        if is_other:  # the offsets went with their topic, so that the group has lost none by it
            for gone in _GONE:
                memory.get(gone, {}).pop(partition, None)
        goes_on = move["committed_offset"] is not None and (known["offset"] or 0) > 0
        if is_other and goes_on and move["committed_offset"] >= known["offset"]:
            known["foreign"] = move["committed_offset"]
            return False
    left = former.pop(partition, {}).get("foreign")
    ids = {move.get(name) for name in ("topic_id", "previous_topic_id")} - {None}
    is_other = len(ids) > 1 or (left is not None and left == move["previous_offset"])
    return is_other and (move["step"] or 0) < 0


def _counted(track: Track, hit: Hit, move: Row) -> Hit:
    """Count the partitions of an episode, each once, and what it reads again."""
    memory, limits, findings = track
    if hit.kind not in _MOVED:
        return hit
    told = findings.current.get((hit.kind, hit.subject))
    goes_on = told is not None and told.accepts(hit, memory["clock"])
    moved: dict[str, dict[str, int]] = memory.setdefault("moved", {})
    if not goes_on:
        moved[hit.kind] = {}
    moved[hit.kind][partition_name(move)] = 1
    # Commits that overtake each other go back by a step at most; who seeks goes back further, and
    # does so again and again.
    if hit.kind == "offset_rewind" and not goes_on:
        memory["far"] = []
    if hit.kind == "offset_rewind" and hit.label is None:
        if -move["step"] > (move["largest_step_before"] or 0):
            remember(memory, "far", -move["step"], _REMEMBERED)
        far: list[int] = memory.get("far", [])
        if len(far) >= _AGAIN and sum(far) >= limits["offset_rewind"]["warning_offsets"]:
            hit = hit._replace(severity=WARNING)
    return hit._replace(maxima={**hit.maxima, "partitions": len(moved[hit.kind])})


def _span(move: Row, gap_ms: int) -> tuple[int, int, Position, int]:
    return move["at"], move["at"], Position.of(move), gap_ms


def _from_to(move: Row, before: str = "previous_offset") -> list[str]:
    return [f"{partition_name(move)}: {move[before]} to {move['committed_offset']}"]


def _reset(move: Row) -> Hit:
    """Find offsets that somebody set, since nobody was there to read."""
    label = "backward" if move["step"] < 0 else "forward"
    return Hit(
        "offset_reset",
        WARNING,
        *_span(move, _AT_ONCE_MS),
        label=label,
        sums={f"{label}_offsets": abs(move["step"])},
        lists={"resets": _from_to(move)},
    )


def _usual_ms(move: Row) -> float | None:
    """Return how long the partition usually was not committed; None if that is not known."""
    before, since = move["previous_at"], move["rhythm_since"]
    return None if before is None or since is None else (before - since) / _INTERVALS


def _is_in_rhythm(move: Row, group: Membership | None) -> bool:
    """Return whether a commit without members is of a consumer that commits again and again.

    Kafka takes a commit without a generation from a consumer with assign() as from an admin; the
    one goes on from where it was, the other comes once, or a few times.
    """
    usual = _usual_ms(move)
    if usual is None or _is_of_members(move["rhythm_since"], group):
        return False
    return bool(move["at"] - move["previous_at"] <= usual * _INTERVALS)


def _is_of_members(at: int, group: Membership | None) -> bool:
    """Return whether a commit may have been a member's, of a group that has none any more."""
    if group is None:
        return False
    return bool(group.timestamp is None or at <= group.timestamp)


def _is_set(memory: Row, limits: Values, move: Row, group: Membership | None) -> bool:
    """Return whether a step on was made by somebody who set the offset, not by a reader.

    Members cannot have read when there are none. A consumer with assign() that was stopped reads
    what came meanwhile, or a batch of any size: only what is beyond each measure was set.
    """
    if not move["is_complete"] or move["previous_at"] is None:
        return False
    at, before = move["at"], move["previous_at"]
    set_at = memory.get("set", {}).get(partition_name(move))
    if set_at is not None and at - set_at <= _EPISODE_MS:
        return True  # it has just been set, and is so again
    largest, usual = move["largest_step_before"], _usual_ms(move)
    if largest is None:
        return False
    if _is_of_members(before, group):
        return True
    if not usual:
        return False
    intervals = (at - before) / usual
    most = limits["offset_reset"]["times_the_pause"] * largest * intervals
    return bool(_skip(move) > most)


def _skip(move: Row) -> int:
    """Return how far a commit went beyond where the partition had been."""
    return int(move["committed_offset"] - move["farthest_before"])


def _went(limits: Values, move: Row, label: str | None) -> Hit | None:
    """Find commits of consumers that go back, so that records are read twice, or skip some."""
    if move["step"] >= 0:
        return _skipped(limits, move, label)
    step = -move["step"]
    return Hit(
        "offset_rewind",
        WARNING if step >= limits["offset_rewind"]["warning_offsets"] else INFO,
        *_span(move, _EPISODE_MS),
        label=label,
        sums={"rewinds": 1, "offsets": step},
        maxima={"largest": step},
        lists={"moves": _from_to(move)},
    )


def _remembered(move: Row, owners: Sequence[Row]) -> str | None:
    """Return whose last commit a rewind goes back to: that of its owner when it had it before.

    A client that is given a partition again may go on with a position of its own (librdkafka before
    1.9) instead of the group's.
    """
    at, until = move.get("last_there_at"), move.get("last_there_until")
    if at is None or until is None:
        return None
    before, behind, now = (
        bisect_right(owners, time, key=lambda o: o["valid_from"]) - 1
        for time in (at, until, move["at"])
    )
    if not 0 <= before < behind < now:
        return None
    clients = [host_of(owners[n]) for n in (before, behind, now)]
    return clients[0] if clients[0] == clients[2] != clients[1] else None


def _skipped(limits: Values, move: Row, label: str | None) -> Hit | None:
    """Find steps that nobody can have read in the time.

    A client that commits by time sees its position once after any number of polls, and what waits
    after a pause or a burst is read as fast as it can be: how far a step goes beyond those before
    tells nothing. The time is that since the commit before, or as long as usual where a broker
    that had stood still took two commits at once.
    """
    usual, skip, limit = _usual_ms(move), _skip(move), limits["offset_jump"]
    if usual is None or move["largest_step_before"] is None or not move["is_complete"]:
        return None
    time = max(move["at"] - move["previous_at"], usual)
    if skip < limit["offsets"] or skip * _SECOND_MS <= limit["records_a_second"] * time:
        return None
    return Hit(
        "offset_jump",
        WARNING,
        *_span(move, _EPISODE_MS),
        label=label,
        sums={"jumps": 1, "offsets": skip},
        maxima={"largest": skip},
        lists={"moves": _from_to(move, "farthest_before")},
    )


def _deleted(memory: Row, limits: Values, move: Row, group: Membership | None) -> Hit | None:
    """Find offsets that went away since they were old, or that somebody may have deleted."""
    limit, at = limits["offsets_expired"], move["at"]
    since = [move["previous_at"]]
    if group is not None and group.members:
        label, least = "group_in_use", limit["in_use_idle_ms"]
        if group.topics is not None and move["topic"] not in group.topics:
            label = "not_subscribed"
        elif group.topics is not None and group.keeps_offsets and not move.get("is_kept"):
            return None  # the topic was deleted; else brokers to 3.1 do so in a rebalance
        # If nobody reads the topic any more, its offsets expire; if somebody does, it was deleted.
        is_open = group.topics is None and group.keeps_offsets and not move.get("is_kept")
    else:
        label, least, is_open = "group_gone", limit["least_idle_ms"], False
        if group is not None and group.is_classic:
            # Offsets age from when the last member left (ClassicGroup.offsetExpirationCondition),
            # in the new protocols from their commit (ConsumerGroup.offsetExpirationCondition).
            since.append(group.timestamp)
    known = [t for t in since if t is not None]
    if not known:
        return None  # its last commit is missing, so that nothing says how old it was
    idle, name, offset = at - max(known), partition_name(move), move["previous_offset"]
    # By somebody, or with their topic, of which groups with members are told.
    is_deleted = idle < least
    if is_deleted and label != "group_gone":
        return None
    memory.setdefault("deleted" if is_deleted else "expired", {})[name] = offset
    is_open |= idle < limit["in_use_idle_ms"]
    hit = Hit(
        "offsets_expired",
        WARNING if label == "group_in_use" and not is_open else INFO,
        *_span(move, _WEEK_MS),
        label="perhaps_deleted" if is_open else label,
        sums={"partitions": 1},
        maxima={"idle_ms": idle},
        lists={"offsets": [f"{name}: {offset}"]},
    )
    if is_deleted:
        return hit._replace(gap_ms=_EPISODE_MS, subject="deleted", label="deleted")
    if is_open:
        return hit._replace(maxima={**hit.maxima, "perhaps_deleted": 1, "within_ms": idle})
    return hit


def _returned(memory: Row, move: Row) -> Hit | None:
    """Find groups that came back after their offsets had gone."""
    name = partition_name(move)
    gone = next((k for k in _GONE if name in memory.get(k, {})), None)
    if gone is None:
        return None
    text = f"{name}: {memory[gone].pop(name)}, then {move['committed_offset']}"
    return Hit(
        "offsets_expired",
        WARNING,
        *_span(move, _WEEK_MS),
        subject="deleted" if gone == "deleted" else "",
        label="made_again" if gone == "deleted" else "still_needed",
        sums={"came_back": 1},
        lists={"began_again": [text]},
    )
