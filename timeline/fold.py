"""Folds the records of one group, in the order of the log, into the rows of its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from timeline import classic, commits, modern
from timeline.members import name_topics
from timeline.model import (
    GENERATIONS,
    OWNERS,
    SESSIONS,
    STATES,
    GroupState,
    Member,
    Output,
    Record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from timeline.commits import CommitChunk
    from timeline.model import Row

GROUP_METADATA = "group_metadata"


class Fold:
    """The history of one group while its records pass by.

    Records that the coordinator wrote together are judged together, and only the next record, or a
    later run, shows that a batch is complete. So the last batch is kept beside the state, and what
    follows from it is told as open.

    Args:
        state: the group as the last run left it, or a new one.
        pending: the last batch of that run.
        has_hole: tells whether an offset between two others is missing from what was read.
    """

    def __init__(
        self,
        state: GroupState,
        pending: Sequence[Record] = (),
        *,
        has_hole: Callable[[int, int], bool],
    ) -> None:
        self.state = state
        self.pending = list(pending)
        self.output = Output()
        self._has_hole = has_hole

    def record(self, record: Record) -> None:
        """Take the next record of the group."""
        if self.pending and not _together(self.pending[-1], record):
            self._settle()
        self.pending.append(record)

    def commits(self, chunk: CommitChunk) -> None:
        """Take offset commits of the group, as they follow each other in the log."""
        self._settle()
        if commits.is_simple(self.state):
            commits.follow_simple(self.state, self.output, chunk, has_hole=self._has_hole)
        commits.note(self.state, chunk)

    def name_topic(self, topic_id: str, name: str) -> None:
        """Take the name of a topic that the log had an id of."""
        self._settle()
        self.state.topic_names[topic_id] = name

    def _settle(self) -> None:
        if self.pending:
            judge(self.state, self.output, self.pending, has_hole=self._has_hole)
            self.pending = []

    def finish(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Give the rows that are settled, and those that a later record may change."""
        state, output = self.state, Output()
        if self.pending:
            state = GroupState.from_json(state.to_json())
            judge(state, output, self.pending, has_hole=self._has_hole)
        name_topics(state)
        still_open = output.take()
        if state.interval is not None:
            still_open[STATES].append(state.interval)
        if state.generation is not None:
            still_open[GENERATIONS].append(state.generation)
        still_open[SESSIONS].extend(state.sessions.values())
        still_open[OWNERS].extend(state.owners.values())
        return self.output.take(), still_open

    def to_json(self) -> str:
        """Write down what a later run needs to go on; `resumed` reads it."""
        head = {"state": self.state.to_json(), "pending": [list(r) for r in self.pending]}
        # Left alone, orjson writes down of a member what was worked out of it, too.
        option = orjson.OPT_PASSTHROUGH_DATACLASS
        return orjson.dumps(head, default=Member.plain, option=option).decode()


def resumed(head: str) -> tuple[GroupState, list[Record]]:
    """Give the state of a group, and the last batch, that `Fold.to_json` wrote down."""
    given = orjson.loads(head)
    pending = [Record(*fields) for fields in given["pending"]]
    return GroupState.from_json(given["state"]), pending


def judge(
    state: GroupState,
    output: Output,
    batch: list[Record],
    *,
    has_hole: Callable[[int, int], bool],
) -> None:
    """Take a complete batch: what its records mean depends on what stands beside them."""
    after = -1 if state.record_offset is None else state.record_offset
    is_complete = not has_hole(after, batch[0].offset)
    own = [r for r in batch if r.kind == GROUP_METADATA]
    new = [r for r in batch if modern.family(r.kind) is not None]
    epochs = [r for r in new if modern.is_metadata(r)]
    goes_over = any(r.payload is not None for r in epochs) and any(r.payload is None for r in own)
    comes_back = any(r.payload is None for r in epochs) and any(r.payload is not None for r in own)
    if comes_back:
        modern.convert_back(state)
        new = []
    elif goes_over:
        own = []
    for record in own:
        classic.read(state, output, record, is_complete=is_complete)
    if new:
        modern.read(state, output, new, is_complete=is_complete)


def _together(last: Record, record: Record) -> bool:
    """Tell whether the coordinator wrote two records in one batch: at one time, side by side."""
    return record.offset == last.offset + 1 and record.timestamp == last.timestamp
