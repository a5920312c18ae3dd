"""Folds the records of one group, in the order of the log, into the rows of its history."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Sequence

import orjson

from timeline import classic, commits, epoch_rows, lives, modern
from timeline.commits import NO_TIME, CommitChunk
from timeline.holes import Unseen
from timeline.lives import is_dead
from timeline.members import is_of_partition, name_topics
from timeline.model import (
    GENERATIONS,
    OWNERS,
    SESSIONS,
    STATES,
    Batch,
    GroupState,
    Member,
    Record,
    Row,
)

GROUP_METADATA = "group_metadata"
# Clocks of brokers that differ by more are wrong.
_SKEW_MS = 60_000
# A leave is so many tombstones: of the member, its target and its current assignment.
_LEAVE = 3


class Fold:
    """The history of one group while its records pass by.

    Records that the coordinator wrote together are judged together, and only the next event, or a
    later run, shows that a batch is complete, and that its time is not ahead of the others'. So
    the last batch is kept beside the state, and what follows from it is open.

    Args:
        state: the group as the last run left it, or a new one.
        pending: the last batch of that run; None if there is none.
        has_hole: tells whether an offset between two others is missing from what was read.
    """

    def __init__(
        self,
        state: GroupState,
        pending: Batch | None = None,
        *,
        has_hole: Callable[[int, int], bool],
    ) -> None:
        self.state = state
        self.pending = pending
        self._has_hole = has_hole

    def record(self, record: Record) -> None:
        """Take the next record of the group."""
        pending = self.pending
        if pending is not None and _is_same_batch(pending.records[-1], record):
            pending.records.append(record)
            if not _is_whole(pending.records):
                return
        elif pending is not None and self._waits():
            behind = self._batch(record)
            records, is_complete = [*pending.records, record], pending.is_complete
            self.pending = behind._replace(records=records, is_complete=is_complete)
            return
        else:
            self._settle(record.timestamp)
            pending = self._batch(record)
        may_convert = modern.ends_members(self.state, pending.records)
        self.pending = pending._replace(may_convert=may_convert)

    def _waits(self) -> bool:
        """Return whether only the next record of the group shows what the last batch did to it."""
        # If nothing follows, the group is gone: of a group that is there, the cleaner leaves the
        # last record of each key.
        pending = self.pending
        return pending is not None and pending.may_convert and self._with_cut(pending).is_cut

    def _batch(self, record: Record) -> Batch:
        # Later runs may find other holes, but none of them lies before this record.
        after = -1 if self.state.record_offset is None else self.state.record_offset
        is_complete = not self._has_hole(after, record.offset)
        gap = range(record.offset - _LEAVE, record.offset)
        lacks = not is_complete and all(self._has_hole(o - 1, o + 1) for o in gap)
        return Batch([record], is_complete, may_lack_a_leave=lacks)

    def commits(self, chunk: CommitChunk) -> None:
        """Take offset commits of the group, as they follow each other in the log."""
        if not self._waits():
            self._settle(commits.first_time(chunk))
        noted, count = 0, len(chunk.offsets)
        for i, record in commits.steps(self.state, chunk) if commits.is_simple(self.state) else ():
            self._note(commits.part(chunk, noted, i + 1))
            self.pending, noted = self._batch(record), i + 1
            if noted < count:
                self._settle(commits.first_time(commits.part(chunk, noted, count)))
        self._note(commits.part(chunk, noted, count))

    def _note(self, chunk: CommitChunk) -> None:
        """Note what commits show, and up to when none of the group's records is missing."""
        commits.note(self.state, chunk)
        known = self.state.record_offset
        if known is None:
            return
        offsets = chunk.offsets
        whole = bisect_left(
            range(len(offsets)), x=True, key=lambda i: self._has_hole(known, int(offsets[i]))
        )
        seen = int(chunk.times[:whole].max(initial=NO_TIME))
        if seen != NO_TIME:
            self.state.seen_at = max(seen, self.state.seen_at or seen)

    def name_topic(self, topic_id: str, name: str) -> None:
        """Take the name of a topic that the log had an id of."""
        if self.state.topic_names.get(topic_id) != name:
            self.state.topic_names[topic_id] = name
            epoch_rows.fill_unassigned(self.state)

    def move(self, partition: int, record: Record, *, has_hole: Callable[[int, int], bool]) -> None:
        """Let the group's records be in another partition from here on.

        A topic that grew has another partition for half of its groups, and the coordinator there
        knows nothing of them: their members join a new group. The record is the first one there.
        """
        self._settle(record.timestamp)
        self.state.partition, self.state.record_offset = partition, None
        self._has_hole = has_hole
        lives.end_without_tombstone(self.state, record)

    def _settle(self, next_at: int | None) -> None:
        if self.pending is not None:
            apply_batch(self.state, _bounded(self._with_cut(self.pending), next_at))
            self.pending = None

    def _with_cut(self, batch: Batch) -> Batch:
        """Note whether a batch is cut, as far as is known now."""
        last = batch.records[-1].offset
        # No offset lies in between: True only means that an earlier run found a hole further on,
        # and that run has already determined whether the batch is cut.
        is_hole = self._has_hole(last, last + 1)
        is_cut = batch.is_cut or (not is_hole and self._has_hole(last, last + 2))
        return batch._replace(is_cut=is_cut)

    def finish(
        self, unseen: Sequence[Unseen] = ()
    ) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Return the rows that are settled, and those that a later record may change.

        What is unseen behind the group's last record may hide its end.
        """
        state, settled = self.state, self.state.output.take()
        if self.pending is not None or state.gap.untold is not None or unseen:
            state = GroupState.of_plain(orjson.loads(state.to_json()))
            if self.pending is not None:
                apply_batch(state, self._with_cut(self.pending))
            modern.tell_the_rest(state)
            self.state.gone_since = lives.end_what_is_known(state, unseen)
        name_topics(state)
        still_open = state.output.take()
        if state.interval is not None:
            still_open[STATES].append(state.interval)
        if (newest := epoch_rows.newest(state)) is not None:
            still_open[GENERATIONS].append(newest)
        still_open[SESSIONS].extend(state.sessions.values())
        owned = state.owners.values()
        still_open[OWNERS].extend(row for row in owned if is_of_partition(state, row))
        return settled, still_open

    def to_json(self) -> str:
        """Serialize what a later run needs to resume; `resumed` reads it."""
        # The state is JSON already.
        checkpoint: Row = {"state": orjson.Fragment(self.state.to_json())}
        if self.pending is not None:
            records, *known = self._with_cut(self.pending)
            checkpoint["pending"] = [[list(record) for record in records], *known]
        # By default orjson would also write the cached properties of a member.
        option = orjson.OPT_PASSTHROUGH_DATACLASS
        return orjson.dumps(checkpoint, default=Member.plain, option=option).decode()


def resumed(checkpoint: str) -> tuple[GroupState, Batch | None]:
    """Return the state of a group, and the last batch, from what `Fold.to_json` wrote."""
    given = orjson.loads(checkpoint)
    state = GroupState.of_plain(given["state"])
    if "pending" not in given:
        return state, None
    records, *known = given["pending"]
    return state, Batch([Record(*record) for record in records], *known)


def apply_batch(state: GroupState, batch: Batch) -> None:
    """Take a complete batch of records, see `_apply`."""
    _apply(state, batch)
    state.seen_at = None


def _apply(state: GroupState, batch: Batch) -> None:
    """Take records that were written together: each means what those beside it make of it."""
    if not _is_whole(batch.records):
        _apply_apart(state, batch)
        return
    # A conversion is what the batch itself proves. A group that is empty is not converted: the
    # coordinator deletes it and makes another in one write (maybeDeleteEmptyClassicGroup).
    own = [r for r in batch.records if r.kind == GROUP_METADATA]
    new = [r for r in batch.records if modern.family(r.kind) is not None]
    is_complete = batch.is_complete
    if modern.is_upgrade(state, new, own, is_complete=is_complete):
        if state.group_type != "classic":
            lives.end_without_tombstone(state, new[0])  # the classic group came after it
        modern.read(state, batch._replace(records=new), is_upgrade=True)
        return
    if modern.is_downgrade(state, new, own, is_complete=is_complete):
        # Unless another of its members has replaced the one that spoke the new protocol.
        rebalances = not modern.is_of_member(new)
        is_whole = is_complete or not rebalances
        back = next(
            i for i, r in enumerate(batch.records) if r.kind == GROUP_METADATA and r.payload
        )
        classic.downgrade(state, batch.records[back], rebalances=rebalances, is_whole=is_whole)
        later = batch.records[back + 1 :]  # what else happened in the same millisecond
        if later:
            _apply(state, batch._replace(records=later, is_complete=True))
        return
    # The records that end a group come before those that begin another of its id.
    for kind, part in itertools.groupby(batch.records, key=lambda r: modern.family(r.kind)):
        if kind is not None:
            records = list(part)
            # What ends in the same batch leaves nothing that may be missing.
            is_known = is_complete or (records[0] is not batch.records[0] and is_dead(state))
            part_of = batch._replace(records=records, is_complete=is_known)
            modern.read(state, part_of, is_upgrade=False)
            continue
        for record in part:
            if record.kind == commits.COMMITS:
                commits.read(state, record, is_complete=is_complete)
                continue
            is_cut = batch.is_cut and record is batch.records[-1]
            classic.read(state, record, is_complete=is_complete, is_cut=is_cut)


def _apply_apart(state: GroupState, batch: Batch) -> None:
    """Take a batch that ends a group with members, of which the rest is missing, and the next one.

    Kafka deletes no group that has members: it was converted, or had become empty unseen.
    """
    pairs = itertools.pairwise(batch.records)
    ends = next(i for i, pair in enumerate(pairs, 1) if not _is_same_batch(*pair))
    ended, behind = batch.records[:ends], batch.records[ends:]
    if ended[-1].kind == GROUP_METADATA:
        new = [r for r in behind if modern.family(r.kind) is not None]
        is_end = not modern.is_upgrade(state, new, [], is_complete=False)
    elif not (is_end := not modern.goes_back(state, behind[0])):
        number = (behind[0].payload or {}).get("generation", 0)
        is_whole = number - (state.epochs.group or 0) == 1  # else it is over, of whatever kind
        rebalances = not modern.is_of_member(ended)
        back = modern.lost_return(state, ended[-1])
        classic.downgrade(state, back, rebalances=rebalances, is_whole=is_whole)
    if is_end:
        _apply(state, batch._replace(records=ended, is_cut=True))
    _apply(state, batch._replace(records=behind, is_complete=False))


def _is_whole(records: list[Record]) -> bool:
    """Return whether records are of one batch; see `_is_same_batch`."""
    first, last = records[0], records[-1]
    is_one_time = first.timestamp == last.timestamp
    return is_one_time and last.offset - first.offset == len(records) - 1


def _is_same_batch(last: Record, record: Record) -> bool:
    """Return whether the coordinator wrote two records in one batch: at one time, side by side."""
    return record.offset == last.offset + 1 and record.timestamp == last.timestamp


def _bounded(batch: Batch, next_at: int | None) -> Batch:
    """Bound the time of records by that of what follows them, if it lies far behind."""
    at = batch.records[-1].timestamp
    if at is None or next_at is None or at - next_at <= _SKEW_MS:
        return batch
    return batch._replace(records=[r._replace(until=next_at) for r in batch.records])
