"""Which partitions nobody reads although records wait in them, and which are read twice.

That records wait is told by others: commits of another group that are beyond the group's own, or
samples of the log's end. Both are compared with a pause in the commits of a partition, see
`detectors.transform.waits_of`; what the group itself did meanwhile is known here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from detectors.members import host_of
from detectors.memberships import Membership, Memberships
from detectors.model import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Hit,
    Position,
    Row,
    Track,
    partition_name,
    remember,
)
from schemas.gold import CRITICAL, INFO, WARNING

KIND = "unread_partition"
TWO_OWNERS, BROADCAST, NO_OWNER = "two_owners", "broadcast", "no_owner"
NO_MEMBERS = "no_members"
NEVER_OWNED = "never_owned"
WAIT_COLUMNS = (
    *("topic", "topic_partition", "since", "until", "usual_ms", "usual_step", "committed_offset"),
    *("first_at", "first_offset", "other_offset", "others", "is_complete"),
    *("record_partition", "record_offset", "until_offset", "owner", "now_owner", "is_owned"),
)
"""What is asked of a pause in which records came: the last commit before it, at `since`, and the
first behind it, at `until`, null as long as there is none; `usual_ms`, how far apart the commits
before were, and `usual_step`, how far each of them went on, null if that is not known; of the
offsets beyond the committed one that others show, the first and the greatest, and which groups show
them, none if only the log's end does; whether the pause has no hole; who owned the partition
`OWNED_MS` after it began, null if that is not known; who owns it now for certain, and whether
anybody does, null without a row of the partition."""
OWNED_MS = 5 * MINUTE_MS
"""Members commit once more as they give partitions up: a pause often begins with that, and the next
owner is who does not read. It has the partition by then; a pause that is told is twice as long."""

OWNERS_COLUMNS = ("topic", "topic_partition", "ownerships")
"""What is asked of a partition that had two owners at a time: its rows of partition_owners, those
that a run ends, and those that are open, in order of `valid_from`."""

NEVER_COLUMNS = ("topic", "owned_since", "never")
"""What is asked of a topic of which a group owns partitions, since `owned_since`: those that it has
never owned nor committed, though other groups commit them: `topic_partition`, the first and the
last commit that is known, `first_at` and `last_at`, `other_offset`, `others`, and `has_grown`,
whether who committed it first had committed others of the topic long before."""

# Those of clients in all languages, and of Kafka Streams. None gives a partition to two members on
# purpose.
_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky", "stream"})

LEAST_RECORDS, MANY_RECORDS = 2, 1_000
"""One transaction's marker is beyond the last record, too; a log that stands may have several."""
USUAL_STEPS = 3
"""Who commits by the number of records waits for one step, however long; it is a larger one if
fewer partitions share the number. More come in five usual pauses, the shortest that is unusual."""
_LISTED = 20
_INTERVALS = 100


def take_minute(track: Track, part: Row) -> None:
    """Take when a group committed: first and last time of a minute of commits."""
    going: list[list[int]] = track.memory.get("going", [])
    first, last = part["first_at"], part["last_at"]
    if going and first - going[-1][1] <= track.limits[KIND]["pause_ms"]:
        going[-1][1] = max(last, going[-1][1])
    else:
        remember(track.memory, "going", [first, last], _INTERVALS)


def settle_never(track: Track, new: Sequence[Row], now: Row | None) -> None:
    """Take which partitions of its topics nobody in the group has ever got, by `NEVER_COLUMNS`.

    `now` is the generation that is in force.
    """
    former: dict[str, int] = track.memory.pop("never", {})
    known: dict[str, int] = {}
    found: list[tuple[str, int, Row]] = []
    for row in new if now is not None and Membership.of(now).tells_owners else ():
        for never in row["never"]:
            name = partition_name({**row, **never})
            is_new = never["has_grown"] and never["first_at"] >= row["owned_since"]
            if name not in former and not is_new:
                continue  # it was there when the group got others, and may be left out on purpose
            # A run knows of commits that are new, and of the last ones of each group.
            known[name] = min(
                former.get(name, never["last_at"]), max(never["first_at"], row["owned_since"])
            )
            if never["last_at"] - known[name] >= track.limits[KIND]["pause_ms"]:
                found.append((name, known[name], never))
    if known:
        track.memory["never"] = known
    if found and now is not None:
        found.sort(key=lambda f: (f[1], f[0]))
        end = max(never["last_at"] for _, _, never in found)
        named = [name for name, _, _ in found]
        track.memory["clock"] = max(end, track.memory.get("clock", end))
        track.findings.add(
            Hit(
                KIND,
                WARNING,
                *(found[0][1], end, Position.of(now), DAY_MS),
                subject=named[0],
                label=NEVER_OWNED,
                maxima={"partitions": len(named), "member_count": now["member_count"]},
                last_values={
                    "by_partition": [
                        {
                            "partition": name,
                            "since": since,
                            "other_offset": never["other_offset"],
                            "shown_by": never["others"],
                        }
                        for name, since, never in found[:_LISTED]
                    ]
                },
                lists={
                    "unread": named,
                    "others": sorted({g for _, _, never in found for g in never["others"]}),
                },
            )
        )
    track.findings.end_others({KIND: [name for name, _, _ in found[:1]]})


def settle_owners(track: Track, new: Sequence[Row], generations: Iterable[Row]) -> None:
    """Take which partitions have, or had, two owners at a time.

    The rows, of `OWNERS_COLUMNS`, are all that go on, and those that this run ends. What begins and
    what is over is told in the order of time, so that all that an assignor does within an hour is
    one episode.
    """
    memory = track.memory
    former = {key(twice): twice for twice in memory.pop("twice", [])}
    # A run may know the end of an ownership before it is settled, and the next gets it once more.
    told = memory.get("told", [None, -1])
    # The last of what began at one time has all owners.
    found = {key(t): t for row in new for t in _owned_twice(row)}
    known = {k: twice for k, twice in former.items() if twice["until"] is not None}
    known |= {k: t for k, t in found.items() if k in former or not _is_told(t, told)}
    by_record = {(g["record_partition"], g["record_offset"]): g for g in generations}
    # When what begins or ends, and whether the other kind ends then: where none of it goes on.
    events: list[tuple[int, bool, bool, list[Row]]] = []
    now: list[Row] = []
    for cause in _at_once(known.values()):
        since = cause[0]["since"]
        generation = by_record.get(tuple(cause[0]["record"]))
        now = [t for t in now if t["until"] is None or t["until"] > since] + cause
        for twice in cause:
            was = former.get(key(twice), {}).get("is_meant", False)
            twice["is_meant"] = was if generation is None else _is_meant(now, generation)
        if key(cause[0]) not in former:
            is_of_one = len({twice["is_meant"] for twice in now}) == 1
            events.append((since, True, is_of_one, cause))
            memory["told"] = cause[0]["record"]
        if all(twice["until"] is not None for twice in cause):
            events.append((max(twice["until"] for twice in cause), False, False, cause))
            for twice in cause:
                del known[key(twice)]
    for at, _, ends_others, cause in sorted(events, key=lambda event: event[:2]):
        if ends_others:
            for episode in track.findings.current.values():
                episode.is_over |= episode.label != _label(cause)
        _tell_owners(track, cause, at)
        memory["clock"] = max(at, memory.get("clock", at))
    if known:
        memory["twice"] = [*known.values()]


def _is_told(twice: Row, told: Sequence[int | None]) -> bool:
    """Return whether an earlier run told of what began with a record, or with one behind it."""
    partition, offset = twice["record"]
    return bool(partition == told[0] and offset <= (told[1] or 0))


def _label(cause: Sequence[Row]) -> str:
    return BROADCAST if cause[0]["is_meant"] else TWO_OWNERS


def look_ahead_owners(track: Track, now: int) -> None:
    """Tell the partitions that have two owners now; call it after `settle_owners`."""
    for cause in _at_once(track.memory.get("twice", [])):
        _tell_owners(track, cause, now)


def _owned_twice(row: Row) -> Iterator[Row]:
    """Return when a partition had two owners or more at a time, and which."""
    at_once: list[Row] = []
    for owner in row["ownerships"]:
        at_once = [other for other in at_once if _end(other) > owner["valid_from"]] + [owner]
        if len(at_once) > 1:
            *_, until, _ = sorted(map(_end, at_once))
            yield {
                **{name: row[name] for name in ("topic", "topic_partition")},
                "since": owner["valid_from"],
                "until": None if until == math.inf else until,
                "owners": [*map(host_of, at_once)],
                "record": [owner["record_partition"], owner["record_offset"]],
            }


def _is_meant(now: Sequence[Row], generation: Row) -> bool:
    """Return whether an assignor of the user's own gives every partition to every member.

    `now` is all that has several owners then: of a topic that grows, only what is new begins.
    """
    members = generation["member_count"]
    of_all = {(t["topic"], t["topic_partition"]) for t in now if len(t["owners"]) >= members}
    is_own = generation["protocol_type"] == "consumer" and generation["protocol"] not in _ASSIGNORS
    return (
        is_own
        and generation["group_type"] == "classic"
        and len(of_all) == generation["assigned_partitions"]
    )


def _end(owner: Row) -> float:
    """Return until when a partition was owned for certain."""
    ends = [owner[name] for name in ("known_until", "valid_to") if owner[name] is not None]
    return min(ends, default=math.inf)


def _at_once(twice: Iterable[Row]) -> Iterator[list[Row]]:
    """Group what began at one time, as one assignment does."""
    ordered = sorted(twice, key=lambda t: (t["since"], t["topic"], t["topic_partition"]))
    for _, of_time in groupby(ordered, key=lambda t: int(t["since"])):
        yield list(of_time)


def _tell_owners(track: Track, cause: Sequence[Row], until: int) -> None:
    """Tell what began at one time, as far as it is known until a time.

    An assignor that gives a partition twice does so with one rebalance after the other, each time
    another one: the episode is named after the first.
    """
    first, current = cause[0], track.findings.current
    named = [partition_name(twice) for twice in cause]
    hit = Hit(
        KIND,
        INFO if first["is_meant"] else CRITICAL,
        *(first["since"], max(until, first["since"])),
        Position(first["record"][0], first["record"][1], first["since"]),
        subject=named[0],
        label=_label(cause),
        maxima={
            "partitions": len(cause),
            "at_once": max(len(twice["owners"]) for twice in cause),
        },
        last_values={
            "by_partition": [
                {
                    "partition": partition,
                    "since": twice["since"],
                    "until": twice["until"],
                    "owner": " and ".join(twice["owners"]),
                }
                for partition, twice in zip(named, cause[:_LISTED], strict=False)
            ]
        },
        lists={
            "unread": named,
            "owners": sorted({owner for twice in cause for owner in twice["owners"]}),
        },
    )
    open_ones = (e.subject for e in current.values() if e.accepts(hit, None))
    track.findings.add(hit._replace(subject=next(open_ones, hit.subject)))


def take_move(track: Track, move: Row) -> None:
    """Take a row of offset_moves: it may end a pause that an earlier run told of.

    A run is given a pause that is over only if others committed in its part of it.
    """
    for wait in track.memory.get("waits", ()):
        if key(wait) == (move["topic"], move["topic_partition"], move["previous_at"]):
            wait["until"], wait["until_offset"] = move["at"], move["record_offset"]
            wait["is_complete"] = bool(wait["is_complete"] and move["is_complete"])


def settle(track: Track, new: Sequence[Row], memberships: Memberships) -> None:
    """Take the pauses that go on or are over, of this run, and tell those that are long over.

    The rows, of `WAIT_COLUMNS`, are all that go on, and those that this run ends.
    """
    memory = track.memory
    former = {key(wait): wait for wait in memory.pop("waits", [])}
    waits = {key(wait): wait for wait in former.values() if wait["until"] is not None}
    for row in new:
        wait = {name: row[name] for name in WAIT_COLUMNS}
        for owner in ("owner", "now_owner"):
            wait[owner] = None if row[owner] is None else host_of(row[owner])
        if (known := former.get(key(row))) is not None:
            _join(wait, known)
        group = memberships.last(wait["record_partition"])
        can_tell = group is not None and group.tells_owners
        wait["is_free"] = can_tell and wait["owner"] is not None and not wait["is_owned"]
        waits[key(row)] = wait
    going = memory.get("going", [])
    clock = going[-1][1] if going else 0
    memory["clock"] = clock
    is_over = {k: w["until"] is not None and clock - w["until"] > HOUR_MS for k, w in waits.items()}
    for cause in _by_cause(track, [w for w in waits.values() if _is_unread(track, w, memberships)]):
        keys = [*map(key, cause)]
        if all(map(is_over.get, keys)):
            _tell(track, cause)
        else:
            is_over |= dict.fromkeys(keys, False)
    if kept := [wait for key, wait in sorted(waits.items()) if not is_over[key]]:
        memory["waits"] = kept


def first_shown(memory: Row) -> dict[tuple[str, int, int], Row]:
    """Return the first that others show, as far as earlier runs know, by `key` of a pause."""
    first = ("first_at", "first_offset")
    return {key(wait): {n: wait[n] for n in first} for wait in memory.get("waits", ())}


def look_ahead(track: Track, memberships: Memberships) -> None:
    """Tell the pauses that go on, or have just ended; call it after `settle`."""
    waits = track.memory.get("waits", [])
    for cause in _by_cause(track, [w for w in waits if _is_unread(track, w, memberships)]):
        _tell(track, cause)


def key(wait: Row) -> tuple[str, int, int]:
    """Return the partition of a pause, and when it began."""
    return wait["topic"], wait["topic_partition"], wait["since"]


def _join(wait: Row, former: Row) -> None:
    """Add what an earlier run knew of a pause."""
    wait["other_offset"] = max(wait["other_offset"], former["other_offset"])
    wait["others"] = sorted({*wait["others"], *former["others"]})[:_LISTED]
    wait["owner"] = wait["owner"] or former["owner"]  # it may have got its next owner since
    if wait["until"] is not None:  # this is the record of the commit that ended it
        wait["record_offset"] = former["record_offset"]


def is_shown(wait: Row) -> bool:
    """Return whether others show for certain that more records wait than are usual."""
    waiting = wait["other_offset"] - wait["committed_offset"]
    if waiting <= USUAL_STEPS * (wait["usual_step"] or 0):
        return False
    # One offset beyond may be a marker, or what somebody has set. Who reads on there shows more
    # than one; the log's end cannot be set, and a transaction has few markers.
    goes_on = waiting >= LEAST_RECORDS and wait["other_offset"] > wait["first_offset"]
    goes_on |= waiting >= MANY_RECORDS and not wait["others"]
    return goes_on and bool(wait["is_complete"])


def _is_unread(track: Track, wait: Row, memberships: Memberships) -> bool:
    """Return whether records waited in a partition for long while the group went on."""
    limit = track.limits[KIND]
    if not is_shown(wait):
        return False
    going = track.memory.get("going", [])
    until = wait["until"] or (going[-1][1] if going else 0)
    went_on = sum(max(0, min(e, until) - max(s, wait["first_at"])) for s, e in going)
    offset = wait["until_offset"] if wait["until"] is not None else None
    group = memberships.last(wait["record_partition"], offset)
    least = limit["pause_ms"] if group is None else group.longest_work(limit["pause_ms"])
    if went_on < max(least, limit["times_the_usual"] * wait["usual_ms"]):
        return False
    if group is None:
        return True
    # Its generation tells of what has no owner.
    is_owned = partition_name(wait) not in (group.unowned or ())
    return is_owned and (group.topics is None or wait["topic"] in group.topics)


def _by_cause(track: Track, waits: Sequence[Row]) -> Iterator[list[Row]]:
    """Group the pauses that began at about the same time, as those of one consumer do."""
    cause: list[Row] = []
    for wait in sorted(waits, key=lambda w: (w["since"], w["topic"], w["topic_partition"])):
        if cause and wait["since"] - cause[0]["since"] > track.limits[KIND]["pause_ms"]:
            yield cause
            cause = []
        cause.append(wait)
    if cause:
        yield cause


def _tell(track: Track, cause: Sequence[Row]) -> None:
    first, going = cause[0], track.memory.get("going", [])
    ends = [wait["until"] for wait in cause]
    is_over = all(end is not None for end in ends)
    until = max(end or going[-1][1] for end in ends)
    named = [partition_name(wait) for wait in cause]
    record = Position(first["record_partition"], first["record_offset"], first["since"])
    waiting = [w["other_offset"] - w["committed_offset"] for w in cause]
    going_on = [(name, w) for name, w in zip(named, cause, strict=True) if w["until"] is None]
    owners_now = {w["now_owner"] for _, w in going_on}
    # The sentence is about all of them.
    is_told = len(going_on) == len(cause) and None not in owners_now
    rows = [
        {
            "partition": partition,
            "committed_offset": wait["committed_offset"],
            "since": wait["since"],
            "until": wait["until"],
            "owner": wait["owner"],
            # Who owns it by the time of a run that looks back has nothing to do with it.
            "now_owner": wait["now_owner"] if wait["until"] is None else None,
            "waiting": number,
            "shown_by": wait["others"],
        }
        for partition, wait, number in zip(named, cause, waiting, strict=True)
    ]
    track.findings.add(
        Hit(
            KIND,
            WARNING,
            *(first["since"], max(until, first["since"]), record),
            gap_ms=int(track.limits[KIND]["pause_ms"]),
            subject=named[0],
            maxima={"partitions": len(cause), "waiting": sum(waiting)},
            last_values={
                "by_partition": rows[:_LISTED],
                "now_owners": sorted(owners_now) if is_told else [],
                "no_owner": [name for name, w in going_on if w["is_free"]][:_LISTED],
            },
            lists={
                "unread": named,
                "owners": sorted({w["owner"] for w in cause if w["owner"] is not None}),
                "others": sorted({group for w in cause for group in w["others"]}),
            },
        )
    )
    track.findings.current[KIND, named[0]].is_over = is_over
