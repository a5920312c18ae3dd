"""What a run of the history has to process: new records, late ones, offsets that are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.ledger import Detail, LedgerRow
from schemas.silver import silver_tables
from schemas.tables import decoded_table
from timeline.commits import COMMITS
from timeline.holes import Holes, holes_in, holes_of, ranges, unread


@dataclass(frozen=True)
class Changes:
    """What a run has to process."""

    tables: list[str]  # silver tables that have new records; that of commits if all were refused
    # How many there are; None if groups may be rebuilt, which takes all of theirs.
    records: int | None
    # Some of them may lie before what earlier runs processed, since they were in quarantine, or
    # come from files of earlier times.
    is_late: bool
    holes: dict[int, Holes]  # offsets that were not read or not decoded, by partition
    positions: dict[int, int]  # by partition, the next offset to be processed after the run
    before: dict[int, int]  # the same, before the run
    late: set[int]  # partitions in which offsets below `before` were read
    # How many partitions the topic has had, the newest last, as far as a cluster or an earlier run
    # tells.
    counts: list[int]
    # By partition, the time of the newest record of all when it was read last, in epoch
    # milliseconds.
    read_until: dict[int, int]

    def noted(self) -> dict[str, Any]:
        """Return what the next run goes on from, for the ledger."""
        last = {partition: own.last for partition, own in self.holes.items() if own.last >= 0}
        of_partition = {
            Detail.POSITIONS: self.positions,
            Detail.READ_UNTIL: self.read_until,
            Detail.LAST_HOLES: last,
        }
        return {name: {str(p): n for p, n in own.items()} for name, own in of_partition.items()}


def late_partitions(former: Mapping[str, Any], covered: pa.Table) -> set[int]:
    """Return the partitions in which offsets were read that earlier runs had gone past."""
    known = _by_partition(former, Detail.POSITIONS)
    return {p for p, start, _ in ranges(covered) if start < known.get(p, 0)}


def changes(
    former: Mapping[str, Any],
    runs: Sequence[LedgerRow],
    covered: pa.Table,
    refused: pa.Table | None,
    newest: Mapping[int, int],
    *,
    late: set[int],
    is_late: bool,
) -> Changes:
    """Return what there is to process of some decode runs: of all so far, if records are late.

    `former` is what the last run noted; the rows of bronze.coverage are as `unread` takes them, and
    so are the times of the newest records; `refused` has what was not decoded, columns `HOLE`.
    """
    known = _by_partition(former, Detail.POSITIONS)
    # Groups that are rebuilt need all holes, not the last one alone.
    noted = {} if is_late else former
    before, read_until = (
        _by_partition(noted, name) for name in (Detail.LAST_HOLES, Detail.READ_UNTIL)
    )
    positions = known.copy()
    for partition, _, end in ranges(covered):
        positions[partition] = max(positions.get(partition, 0), end)
    missing = holes_in(covered)
    if refused is not None:
        # Columns of the quarantine are not nullable in its schema; those of `missing` are.
        missing = pa.concat_tables([missing, refused.cast(missing.schema)])
    partitions, starts, ends = (column.to_numpy() for column in missing.columns)
    holes = holes_of(partitions, starts, ends, before)
    for partition, unseen in unread(covered, newest, read_until).items():
        holes[partition] = holes[partition]._replace(unseen=unseen)
    listed = pc.unique(covered["partitions"]).drop_null()
    decoded = [t for t in silver_tables() if any(r.rows.get(decoded_table(t).name) for r in runs)]
    return Changes(
        decoded or [COMMITS],
        None if is_late else sum(sum(row.rows.values()) for row in runs),
        is_late,
        holes,
        positions,
        known,
        late,
        sorted({*former.get(Detail.PARTITIONS, ()), *listed.to_pylist()}),
        read_until,
    )


def _by_partition(details: Mapping[str, Any], name: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in details.get(name, {}).items()}
