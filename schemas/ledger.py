"""What the ledger (`bronze.runs`) calls the stages, and what they note of their runs."""

from __future__ import annotations

from typing import NamedTuple


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
    """What a run notes for later ones, by the key that it has in the row's details.

    Attributes:
        VERSIONS: the versions that tables had behind the run, by name (`Tables.versions`).
        TYPES: of an ingest, the number of its records by record type, "" for none.
        STATE: of an ingest, how far the lakehouse has got (`sources.plan.State`).
        COPIED: of a decode, that the times of its records are those of a copy, and are not taken.
        DECODER: of a decode, who decoded.
        CLIENTS: of a decode, the fingerprint of the key of clients' hashes; None if they are plain.
        RETRIED: of a decode, the records that were in quarantine, and are tried again.
        QUARANTINED: of a decode, the records that it refused.
        IN_QUARANTINE: of a decode, all that are in quarantine behind it.
        FIRST_HOUR: of the history, the first hour with commits, in epoch milliseconds.
        PLACED_BY: of the history, who has placed the groups in the topic (`schemas.placement`).
        PARTITIONS: of the history, the numbers of partitions that the topic has had.
        MISPLACED: of the history, the records that are not where their group belongs.
        HAS_MOVED: of the history, whether there are any, for whatever reason.
        SECOND: of the history, the second coordinators that were found up to it.
        BEGUN_SINCE: of the history, when the first state or ownership of its own records began, in
            epoch milliseconds; None if none has begun. With late records, the first of all.
        WENT_BACK: of the history, how many moves to where a group had been before it found.
        REPLAYED: of the history, how many groups were rebuilt from their first record.
        POSITIONS: of the history and the lag, by partition, how far it has come.
        LAST_HOLES: of the history, by partition, the last missing offset.
        READ_UNTIL: of the history, by partition, the time of the log when it was read last.
        WRITTEN: of the history, by table, the last run that wrote to it.
        REVISION: of the history, the number of the rules that it was made by.
        AS_OF: of the detection and the posts, the time of the log, in epoch milliseconds.
        THRESHOLDS: of the detection, the fingerprint of its thresholds.
        LAG_RUN: of the detection, the newest run of the lag that it knew; -1 for none.
        KNOWN: of the detection, how many anomalies there are, by kind.
        INCIDENTS: of the detection, what the next one compares its anomalies with.
        REACH: of the validation, the last run of each stage that it looked at.
        FAILING: of the validation, the expectations that do not hold.
        VACUUMED: of the maintenance, when each table was cleaned last, in epoch milliseconds.
    """

    VERSIONS = "versions"
    TYPES = "records_by_type"
    STATE = "state"
    COPIED = "copied"
    DECODER = "decoder"
    CLIENTS = "clients"
    RETRIED = "retried"
    QUARANTINED = "quarantined"
    IN_QUARANTINE = "in_quarantine"
    FIRST_HOUR = "first_hour"
    PLACED_BY = "placed_by"
    PARTITIONS = "partitions"
    MISPLACED = "misplaced"
    HAS_MOVED = "has_moved"
    SECOND = "second"
    BEGUN_SINCE = "begun_since"
    WENT_BACK = "went_back"
    REPLAYED = "groups_replayed"
    POSITIONS = "positions"
    LAST_HOLES = "last_holes"
    READ_UNTIL = "read_until"
    WRITTEN = "written"
    REVISION = "revision"
    AS_OF = "as_of"
    THRESHOLDS = "thresholds"
    LAG_RUN = "lag_run"
    KNOWN = "anomalies"
    INCIDENTS = "incidents"
    REACH = "reach"
    FAILING = "failing"
    VACUUMED = "vacuumed"
