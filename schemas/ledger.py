"""What the ledger (`bronze.runs`) calls the stages, and what they note of their runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PLANNED, DONE = "planned", "done"


class Stage:
    """The stages whose runs have numbers, as the ledger names them."""

    INGEST = "ingest"
    DECODE = "decode"
    HISTORY = "history"
    LAG = "lag"
    ANOMALIES = "anomalies"
    VALIDATE = "validate"
    NOTIFY = "notify"
    MAINTAIN = "maintain"


class RunId(NamedTuple):
    """A run of a stage; the numbers of a stage's runs rise by one."""

    stage: str
    number: int


class Detail:
    """What a run notes for later ones, by the key that it has in the row's details."""

    # The versions that tables had behind the run, by name (`Tables.versions`).
    VERSIONS = "versions"
    TYPES = "records_by_type"  # of an ingest, the number of its records by record type, "" for none
    STATE = "state"  # of an ingest, how far the lakehouse has got (`sources.plan.State`)
    # Of a decode, that the times of its records are those of a copy, and are not taken.
    COPIED = "copied"
    DECODER = "decoder"  # of a decode, who decoded
    # Of a decode, the fingerprint of the key of clients' hashes; None if they are plain.
    CLIENTS = "clients"
    RETRIED = "retried"  # of a decode, the records that were in quarantine, and are tried again
    QUARANTINED = "quarantined"  # of a decode, the records that it refused
    IN_QUARANTINE = "in_quarantine"  # of a decode, all that are in quarantine behind it
    FIRST_HOUR = "first_hour"  # of the history, the first hour with commits, in epoch milliseconds
    # Of the history, who has placed the groups in the topic (`schemas.placement`).
    PLACED_BY = "placed_by"
    PARTITIONS = "partitions"  # of the history, the numbers of partitions that the topic has had
    MISPLACED = "misplaced"  # of the history, the records that are not where their group belongs
    HAS_MOVED = "has_moved"  # of the history, whether there are any, for whatever reason
    SECOND = "second"  # of the history, the second coordinators that were found up to it
    # Of the history, when the first state or ownership of its own records began, in epoch
    # milliseconds; None if none has begun. With late records, the first of all.
    BEGUN_SINCE = "begun_since"
    # Of the history, how many moves to where a group had been before it found.
    WENT_BACK = "went_back"
    # Of the history, how many groups were rebuilt from their first record.
    REPLAYED = "groups_replayed"
    POSITIONS = "positions"  # of the history and the lag, by partition, how far it has come
    LAST_HOLES = "last_holes"  # of the history, by partition, the last missing offset
    # Of the history, by partition, the time of the log when it was read last.
    READ_UNTIL = "read_until"
    WRITTEN = "written"  # of the history, by table, the last run that wrote to it
    REVISION = "revision"  # of the history, the number of the rules that it was made by
    AS_OF = "as_of"  # of the detection and the posts, the time of the log, in epoch milliseconds
    THRESHOLDS = "thresholds"  # of the detection, the fingerprint of its thresholds
    LAG_RUN = "lag_run"  # of the detection, the newest run of the lag that it knew; -1 for none
    KNOWN = "anomalies"  # of the detection, how many anomalies there are, by kind
    INCIDENTS = "incidents"  # of the detection, what the next one compares its anomalies with
    REACH = "reach"  # of the validation, the last run of each stage that it looked at
    FAILING = "failing"  # of the validation, the expectations that do not hold
    # Of the maintenance, when each table was cleaned last, in epoch milliseconds.
    VACUUMED = "vacuumed"


@dataclass(frozen=True)
class LedgerRow:
    """A row of the ledger."""

    stage: str
    run: int
    state: str = DONE  # planned or done
    at: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.timezone.utc))
    # Exclusive lower bound of the runs of the upstream stage that the run processed.
    after_run: int = -1
    to_run: int = -1  # inclusive upper bound of them
    # A full refresh: it read everything, and replaced what earlier runs wrote.
    is_refresh: bool = False
    seconds: float | None = None
    rows: dict[str, int] = field(default_factory=dict)  # rows it wrote, by the name of the table
    details: dict[str, Any] = field(default_factory=dict)  # what the stage itself notes

    @property
    def versions(self) -> dict[str, int | None]:
        """The versions that tables had behind the run, as far as it has noted them."""
        noted: dict[str, int | None] = self.details.get(Detail.VERSIONS, {})
        return noted


def taken(rows: Sequence[LedgerRow]) -> tuple[int, int]:
    """Return the range of the runs that some runs of the next stage took."""
    after, to = (row.after_run for row in rows), (row.to_run for row in rows)
    return min(after, default=-1), max(to, default=-1)


def is_beyond(positions: Mapping[int, int], table: str = "") -> str:
    """Return the condition of records from positions on, which are offsets by partition, in SQL.

    All are in partitions without one. The columns record_partition and record_offset are of a
    struct `table`, if one is named.
    """
    if not positions:
        return "true"
    of_table = f"{table}." if table else ""
    first = ", ".join(f"{partition}, {offset}" for partition, offset in positions.items())
    reached = f"coalesce(map({first})[{of_table}record_partition], 0)"
    return f"{of_table}record_offset >= {reached}"
