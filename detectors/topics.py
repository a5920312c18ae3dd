"""What is wrong with the topics of a group: those that it subscribes to, and those it commits.

Three conditions are of the kind orphan_topic. They begin and end by records of the group, its
generations and its tombstones, so that both are followed together, in the order of the log:

- no label: members subscribe to a topic of which nothing is assigned;
- deleted: the offsets of all partitions of a topic went at one moment while members subscribed to
  it. A coordinator does that when the topic is deleted (handleDeletedPartitions of
  GroupMetadataManager, onPartitionsDeleted of the new coordinator), and refuses to delete such
  offsets for an admin (GROUP_SUBSCRIBED_TO_TOPIC). In the new protocols the coordinator itself
  assigns every partition there is: a topic of which it assigns nothing any more is gone, too;
- abandoned: the group has offsets of a topic that no member subscribes to any more.

Whether a group that is made anew has lost offsets is known here, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from detectors.memberships import keeps_offsets
from detectors.model import MINUTE_MS, Hit, Position, Row, Track, in_force_until
from schemas.gold import INFO, WARNING

KIND = "orphan_topic"
DELETED, ABANDONED = "deleted", "abandoned"
_GAP_MS = 10 * MINUTE_MS
# The tombstones of a topic's partitions are one write; of a broker with ZooKeeper, some writes.
_AT_ONCE_MS = 10_000
# A member may see that a topic is gone, and join without it, before the coordinator does.
_SOONER_MS = 5_000
# Who subscribes by a pattern learns within this time that a topic is gone: every five minutes by
# `metadata.max.age.ms`, or every ten by `group.consumer.regex.refresh.interval.ms`.
_LEARNT_MS = 15 * MINUTE_MS
# Causes of generations whose members were those of the one before.
_OF_TOPICS = ("subscription_changed", "partitions_changed", "topic_deleted")
# The moves that mean something here, beside the first commit of a partition.
_EVENTS = ("deleted", "returned")
_EVENT_COLUMNS = (
    *("topic", "topic_partition", "move", "at", "previous_offset", "previous_at"),
    *("committed_offset", "topic_id", "previous_topic_id", "record_partition", "record_offset"),
    "is_kept",
)
# What is kept of a generation till the next one.
_LAST = (
    *("generation", "group_type", "member_count", "protocol_type"),
    *("record_partition", "join_started_at", "stable_at", "known_until"),
)


def events_of(move: Row) -> list[Row]:
    """Return what a row of offset_moves means here: one event, or none."""
    return [{n: move.get(n) for n in _EVENT_COLUMNS}] if move["move"] in _EVENTS else []


def first_commits(row: Row) -> Iterable[Row]:
    """Return the events of the partitions of a topic that were committed."""
    for first in row["firsts"]:
        yield {
            "topic": row["topic"],
            "topic_partition": first["topic_partition"],
            "move": "first",
            "record_partition": row["record_partition"],
            "record_offset": first["record_offset"],
        }


def _start(generation: Row) -> int:
    """Return since when a generation counts: if members did not get to it, since it began."""
    return _first_of(generation, "stable_at", "join_started_at") or 0


def _begins_again(generation: Row, last: Row) -> bool:
    """Return whether a generation is no later one of the group that had the last one.

    A group that is Empty goes over to another protocol with its offsets
    (GroupMetadataManager.maybeDeleteEmptyClassicGroup), and in another partition of the log another
    coordinator counts, from the start.
    """
    number, same = generation.get("generation"), ("group_type", "record_partition")
    is_same = all(last[name] == generation.get(name) for name in same)
    return is_same and number is not None and number <= (last["generation"] or 0)


def _first_of(generation: Row, *times: str) -> int | None:
    """Return the first of some times that is known."""
    return next((int(generation[t]) for t in times if generation.get(t) is not None), None)


@dataclass
class News:
    """What became known of the topics of a group."""

    # The settled rows of group_generations, in order.
    generations: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)  # what `events_of` and `first_commits` give
    # Samples of the lag, with `at`, and `topics`: of each topic its name and lag.
    lags: list[Row] = field(default_factory=list)


def settle(track: Track, news: News, changing: list[Row]) -> None:
    """Take what is new of a group, up to the generations that may still change, in their order."""
    memory, follower = track.memory, _Follower(track)
    follower.sample(news.lags)
    for generation in (*news.generations, *changing):
        follower.place(generation["record_partition"])
    waiting = sorted([*memory.pop("pending", []), *news.events], key=follower.position)
    followers = [*news.generations[1:], next(iter(changing), None)]
    for generation, following in zip(news.generations, followers, strict=False):
        waiting = follower.pass_by(waiting, generation)
        waiting = follower.take(generation, in_force_until(generation), waiting, following)
        memory["clock"] = max(generation["ended_at"] or 0, memory.get("clock", 0))
    waiting = follower.pass_by(waiting, next(iter(changing), None))
    if waiting:
        memory["pending"] = waiting
    follower.forget_samples(changing[-1] if changing else None)


def look_ahead(track: Track, changing: list[Row], now: int) -> None:
    """Take the generations that may still change, as of the log's time; call it after `settle`."""
    follower, waiting = _Follower(track), track.memory.pop("pending", [])
    for generation, following in zip_longest(changing, changing[1:]):
        until = in_force_until(generation)
        end = now if until is None else until
        waiting = follower.take(generation, end, waiting, following)


class _Orphan(NamedTuple):
    """Why a topic is an orphan in a generation, since when, by which record, and for how many."""

    label: str | None
    since: int
    record: Position
    members: int


class _Follower:
    """Follows the topics of a group from generation to generation.

    What is kept: `topics` by name, with the partitions that have an offset (`held`), those whose
    offset is gone (`gone`), its `id` when it was deleted, the tombstones of those that went last,
    whether members ever subscribed to it (`was_subscribed`), and the first and last lag since
    nobody does (`lag`); `missing`, the topics that were deleted; `assigned` and `subscribed`, the
    topics of the generation before; `last`, what `_LAST` names of it; `lost`, what a group that was
    made anew had offsets of, until it has members, and `known_until`, how long the former one is
    known to have been there; `partitions` of the log, in the order of the group's records;
    `is_partial`, whether generations before the first one are not known; `samples` of the lag that
    belong to the newest generation. While a generation is taken, `_orphans` are the topics that are
    it by then.
    """

    def __init__(self, track: Track) -> None:
        memory, self._limits, self._findings = track
        self._memory = memory
        self._topics: dict[str, Row] = memory.setdefault("topics", {})
        self._missing: list[str] = memory.setdefault("missing", [])
        self._samples: dict[str, list[list[int]]] = memory.setdefault("samples", {})
        self._partitions: list[int] = memory.setdefault("partitions", [])
        self._orphans: dict[str, _Orphan] = {}

    # -- order -------------------------------------------------------------------------------------

    def place(self, partition: int) -> None:
        """Note that the group's records are in a partition of the log from now on."""
        if partition not in self._partitions:
            self._partitions.append(partition)

    def position(self, row: Row) -> tuple[int, int]:
        """Return where a record is in the group's history."""
        partition, known = row["record_partition"], self._partitions
        return known.index(partition) if partition in known else -1, row["record_offset"]

    def _split(self, events: list[Row], until: Row | None) -> tuple[list[Row], list[Row]]:
        """Return the events before a generation, and the others."""
        if until is None:
            return events, []
        behind = bisect_left(events, self.position(until), key=self.position)
        return events[:behind], events[behind:]

    def pass_by(self, events: list[Row], until: Row | None) -> list[Row]:
        """Take the events before a generation that belong to none; return the others."""
        before, rest = self._split(events, until)
        for event in before:
            self._note(event)
        return rest

    # -- lag ---------------------------------------------------------------------------------------

    def sample(self, lags: Iterable[Row]) -> None:
        """Take samples of the lag, which come in their order."""
        for row in lags:
            for of_topic in row.get("topics") or ():
                if of_topic["lag"] is not None:
                    seen = self._samples.setdefault(of_topic["topic"], [])
                    seen.append([row["at"], of_topic["lag"]])

    def _samples_until(self, end: int) -> None:
        """Hand the samples up to a time to the topics that are abandoned, and forget them."""
        for topic, samples in list(self._samples.items()):
            if self._label(topic) == ABANDONED:
                taken = [s for s in samples if s[0] <= end]
                self._topics[topic]["lag"][1:] = taken[-1:] if self._topics[topic]["lag"] else taken
            self._samples[topic] = [s for s in samples if s[0] > end]

    def forget_samples(self, newest: Row | None) -> None:
        """Keep the first and the last sample of topics that nobody subscribes to now."""
        subscribed = None if newest is None else newest.get("subscribed_topics")
        for topic, samples in list(self._samples.items()):
            if subscribed is None or topic in subscribed or topic not in self._topics:
                del self._samples[topic]
            else:
                del samples[1:-1]

    # -- a generation ------------------------------------------------------------------------------

    def take(
        self, generation: Row, end: int | None, events: list[Row], following: Row | None
    ) -> list[Row]:
        """Take a generation and the events while it is in force; return those behind it."""
        memory, named = self._memory, generation.get("subscribed_topics")
        before, is_own = memory.get("named"), generation["cause"] in _OF_TOPICS
        changes = is_own and before and named not in (None, before)
        # Who has taken in what was made, or dropped what is gone, without a restart, has a pattern:
        # what this one dropped shows it for those that go later.
        if changes and not set(named or ()) <= set(before or ()):
            memory["has_pattern"] = True
        rest = self._take(generation, end, events, following)
        if changes:
            memory["has_pattern"] = True
        memory["named"] = named or before
        return rest

    def _take(
        self, generation: Row, end: int | None, events: list[Row], following: Row | None
    ) -> list[Row]:
        members, subscribed = generation.get("member_count"), generation.get("subscribed_topics")
        if (last := self._memory.get("last")) is not None:
            self._recreated(generation, last)
        self._made_anew(generation, last)
        self._memory["last"] = {name: generation.get(name) for name in _LAST}
        is_unsettled = bool(members) and generation.get("stable_at") is None
        is_doubted = generation.get("known_until") is not None  # members may be gone behind it
        if members and (end is None or (is_unsettled and subscribed is None)):
            return self.pass_by(events, following)  # not known yet: what is open stays open
        orphans = self._going_on if is_unsettled else self._begin
        self._orphans = orphans(generation, _start(generation)) if members else {}
        # What is assigned again is over: if the topic goes once more, that is another episode. Who
        # stops to start again has not found it meanwhile.
        if members:
            self._findings.end_others({KIND: self._orphans})
        during, rest = self._split(events, following)
        for event in during:
            tombstones, at = self._note(event), event.get("at")
            if members and at is not None and not (is_doubted and at > (end or 0)):
                self._take_event(event, generation, tombstones)
        if end is not None:
            self._samples_until(end)
            for topic, orphan in self._orphans.items():
                self._found(topic, orphan, max(orphan.since, end))
        if members:
            self._findings.end_others({KIND: self._orphans})
            self._missing[:] = [topic for topic in self._orphans if self._label(topic) == DELETED]
        else:
            self._missing[:] = self._missing_till(end)
        if is_unsettled:
            return rest
        subscribed, unassigned = subscribed or [], generation.get("unassigned_topics")
        self._memory["subscribed"] = subscribed
        self._memory["assigned"] = (
            [] if unassigned is None else [t for t in subscribed if t not in unassigned]
        )
        return rest

    def _missing_till(self, end: int | None) -> list[str]:
        """Return the topics that are missing for members that come back by a time, too.

        One that somebody has set offsets of meanwhile is there.
        """
        lacking = [topic for topic in self._missing if not self._topic(topic)["held"]]
        known = ((topic, self._findings.current.get((KIND, topic))) for topic in lacking)
        return [t for t, e in known if e is not None and end is not None and e.is_open(end)]

    def _recreated(self, generation: Row, last: Row) -> None:
        """Find a group that was deleted, or expired, and made again: its offsets are lost.

        What a share group has read is kept elsewhere, and lost, too; workers of Connect keep what
        they have in topics of their own.
        """
        if generation["cause"] != "group_created":
            return
        if last["generation"] == 0 and not last["member_count"]:
            return  # the coordinator's record of the empty new group, which the first join follows
        if last["record_partition"] != generation.get("record_partition"):
            return  # the log has grown, and another coordinator knows nothing of the group
        topics = [*self._topics.values()]
        holds = any(known["held"] for known in topics)
        had_offsets = holds or any(known["gone"] for known in topics)
        for known in topics:
            known["gone"].clear()  # what another life loses
        if last["protocol_type"] == "connect" or not (had_offsets or last["group_type"] == "share"):
            return
        if holds and last["group_type"] != generation["group_type"]:
            return  # one that is Empty goes over to another protocol with its offsets
        at = _first_of(generation, "join_started_at", "record_timestamp")
        if at is None:
            return
        ended = _first_of(generation, "stable_at", "join_completed_at")
        values = {"last_generation": last["generation"], "last_group_type": last["group_type"]}
        # Of others, what is told of their offsets says whether that matters.
        severity = WARNING if last["group_type"] == "share" else INFO
        self._findings.add(
            Hit(
                "group_recreated",
                severity,
                *(at, at if ended is None else ended, Position.of(generation)),
                sums={"times": 1},
                last_values={**values, "group_type": generation["group_type"]},
            ),
            self._memory.get("clock"),
        )

    def _made_anew(self, generation: Row, last: Row | None) -> None:
        """Find a group that lost its offsets, and came back, though no record tells of either.

        Only a group that was gone has a generation of before, or the same again, and it is gone
        only when its last offset is. The tombstones may have been cleaned before they could be
        read. What a group lost within a day did not expire, and may have gone with its topic.
        """
        memory = self._memory
        if last is not None and _begins_again(generation, last):
            lost: list[str] = memory.setdefault("lost", [])
            memory["known_until"] = last["known_until"] or _start(last)
            for topic, known in self._topics.items():
                lost += [f"{topic}/{partition}" for partition in known["held"]]
                known["held"].clear()
        at = generation.get("record_timestamp")
        if not generation.get("member_count") or not (lost := memory.pop("lost", [])) or at is None:
            return
        is_soon = at - memory["known_until"] < self._limits["offsets_expired"]["in_use_idle_ms"]
        self._findings.add(
            Hit(
                "offsets_expired",
                INFO if is_soon else WARNING,
                *(at, at, Position.of(generation), 0),
                label="still_needed",
                sums={"partitions": len(lost)},
                maxima={"perhaps_deleted": 1},
                lists={"began_again": lost},
            )
        )

    def _begin(self, generation: Row, start: int) -> dict[str, _Orphan]:
        """Return the topics that are orphans from the start of a generation on."""
        memory, subscribed = self._memory, generation.get("subscribed_topics")
        memory.setdefault("is_partial", generation["cause"] == "unknown")
        record, members = Position.of(generation), generation["member_count"]
        # There the coordinator itself assigns all partitions that there are.
        by_coordinator = generation["group_type"] in ("consumer", "share")
        before = memory.get("assigned", ()) if by_coordinator else ()
        orphans = {}
        for topic in generation.get("unassigned_topics") or ():
            label = DELETED if topic in self._missing or topic in before else None
            orphans[topic] = _Orphan(label, start, record, members)
        if subscribed is None:
            return orphans
        for topic in subscribed:
            self._topic(topic).update(was_subscribed=True, lag=[])
            if generation.get("unassigned_topics") is None and topic in self._missing:
                # What is assigned of it is not known, and it has no offset yet.
                orphans[topic] = _Orphan(DELETED, start, record, members)
        for topic, known in self._topics.items():
            is_former = known["was_subscribed"] or memory["is_partial"]
            if known["held"] and is_former and topic not in subscribed:
                orphans[topic] = _Orphan(ABANDONED, start, record, members)
        return orphans

    def _going_on(self, generation: Row, start: int) -> dict[str, _Orphan]:
        """Return the topics that stay orphans in a generation that its members did not get to.

        A streams group is NotReady, and assigns nothing, while a topic that it reads is missing.
        """
        record, members = Position.of(generation), generation["member_count"]
        subscribed: list[str] = generation["subscribed_topics"]
        unassigned = generation.get("unassigned_topics")
        lacking = subscribed if unassigned is None else unassigned
        current = self._findings.current.items()
        open_ones = {t: e.label for (kind, t), e in current if kind == KIND and e.is_open(start)}
        return {
            topic: _Orphan(label, start, record, members)
            for topic, label in (open_ones | dict.fromkeys(self._missing, DELETED)).items()
            if (topic not in subscribed if label == ABANDONED else topic in lacking)
        }

    def _label(self, topic: str) -> str | None:
        orphan = self._orphans.get(topic)
        return None if orphan is None else orphan.label

    def _take_event(self, event: Row, generation: Row, tombstones: list[Row]) -> None:
        """Take what happens to the offsets of a topic while members are there.

        `tombstones` are those that the topic's last offsets went with; none if it has offsets.
        """
        topic, at = event["topic"], event["at"]
        if event["move"] == "returned" and self._label(topic) == DELETED:
            self._over(topic, at, event)
        elif not tombstones:
            return
        elif self._is_read(event, generation, tombstones):
            self._deleted(topic, generation, tombstones)
        elif self._was_read_just_now(event, generation):
            self._orphans.pop(topic, None)
            self._deleted(topic, generation, tombstones)
            self._over(topic, at)
        elif self._label(topic) == ABANDONED:
            self._over(topic, at)

    def _is_read(self, event: Row, generation: Row, tombstones: list[Row]) -> bool:
        """Return whether members subscribe to a topic whose offsets did not expire."""
        if generation.get("ended_at") == event["at"]:
            return False  # the group went with them: it had no members any more
        if event["topic"] not in (generation.get("subscribed_topics") or ()):
            return False
        before, limit = event["previous_at"], self._limits["offsets_expired"]["in_use_idle_ms"]
        is_young = before is not None and event["at"] - before < limit
        # Brokers to 3.1 let offsets expire while a group rebalances (KAFKA-13636): others keep
        # theirs of the topic, as they do not when it is deleted.
        if keeps_offsets(generation):
            return is_young or not event.get("is_kept")
        # Offsets that expire go one after the other, long after their last commit.
        return is_young and len(tombstones) == len(self._topics[event["topic"]]["gone"])

    def _was_read_just_now(self, event: Row, generation: Row) -> bool:
        """Return whether members subscribed to a topic till this generation, which just began."""
        return (
            event["topic"] in self._memory.get("subscribed", ())
            and event["topic"] not in (generation.get("subscribed_topics") or (event["topic"],))
            and event["at"] - _start(generation) <= _SOONER_MS
        )

    def _deleted(self, topic: str, generation: Row, tombstones: list[Row]) -> None:
        """Tell from the tombstones of all partitions that a topic was deleted."""
        first, known = tombstones[0], self._orphans.get(topic)
        self._topic(topic)["id"] = first.get("previous_topic_id")
        if known is None or known.label != DELETED:
            if known is not None:
                self._found(topic, known, max(known.since, first["at"]))
            record = Position(first["record_partition"], first["record_offset"], first["at"])
            known = _Orphan(DELETED, first["at"], record, generation["member_count"])
            self._orphans[topic] = known
        offsets = [f"{topic}/{t['topic_partition']}: {t['previous_offset']}" for t in tombstones]
        self._found(topic, known, tombstones[-1]["at"], offsets)

    # -- offsets -----------------------------------------------------------------------------------

    def _topic(self, topic: str) -> Row:
        return self._topics.setdefault(
            topic, {"held": [], "gone": [], "tombstones": [], "was_subscribed": False, "lag": []}
        )

    def _note(self, event: Row) -> list[Row]:
        """Note which partitions have an offset; return the tombstones if all went at once."""
        known, partition = self._topic(event["topic"]), event["topic_partition"]
        held, gone, tombstones = known["held"], known["gone"], known["tombstones"]
        if event["move"] != "deleted":
            if partition not in held and (event["move"] == "returned" or partition not in gone):
                held.append(partition)
            if partition in held and partition in gone:
                gone.remove(partition)
            tombstones.clear()
            return []
        if partition in held:
            held.remove(partition)
        if partition not in gone:
            gone.append(partition)
        at = event.get("at")
        if at is None:
            return []
        if tombstones and at - tombstones[0]["at"] > _AT_ONCE_MS:
            tombstones.clear()
        tombstones.append(event)
        if held:
            return []
        known["tombstones"] = []
        return list(tombstones)

    # -- findings ----------------------------------------------------------------------------------

    def _over(self, topic: str, at: int, back: Row | None = None) -> None:
        """Let what is wrong with a topic end; `back` is the commit that shows it there again."""
        orphan = self._orphans.pop(topic)
        self._found(topic, orphan, max(orphan.since, at))
        if back is not None and back["topic_id"] not in (None, self._topic(topic).get("id")):
            evidence = self._findings.current[KIND, topic].evidence
            evidence["made_again"] = back["topic_id"]
        self._findings.current[KIND, topic].is_over = True

    def _found(
        self, topic: str, orphan: _Orphan, end: int, offsets: list[str] | None = None
    ) -> None:
        """Add a finding; `offsets`, those that went with a deletion."""
        current = self._findings.current.get((KIND, topic))
        is_abandoned = orphan.label == ABANDONED
        if current is not None and (current.label == ABANDONED) != is_abandoned:
            current.is_over = True
        is_to_come = self._memory.get("has_pattern") and end - orphan.since < _LEARNT_MS
        severity, last_values = INFO if is_to_come else WARNING, {}
        if is_abandoned:
            known = self._topics[topic]
            lags = [lag for _, lag in known["lag"]]
            severity = WARNING if lags and lags[-1] > lags[0] else INFO
            last_values = {"lag": lags[-1]} if lags else {}
            if known["held"]:
                last_values["partitions"] = len(known["held"])
        self._findings.add(
            Hit(
                KIND,
                severity,
                *(orphan.since, end, orphan.record, _GAP_MS),
                subject=topic,
                label=orphan.label,
                sums={"partitions": len(offsets)} if offsets else {},
                maxima={"member_count": orphan.members},
                last_values=last_values,
                lists={"offsets": offsets} if offsets else {},
            )
        )
