"""What is new in the tables, and which suites have to look at it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from dq.declared import Suite, decoded_rows, filled, suites
from schemas.columns import LAST_MS
from schemas.errors import LakehouseError
from schemas.gold import CRITICAL
from schemas.ledger import Detail, LedgerRow, Stage, taken
from schemas.placement import JAVA_HASH, KAFKA
from schemas.tables import (
    ANOMALIES,
    ANOMALY_CHECKPOINTS,
    GROUP_HEALTH,
    INCIDENTS,
    LAG,
    LOG_OFFSETS,
    QUARANTINE,
    RUNS,
    all_tables,
    silver_specs,
)
from storage.lakehouse import Lakehouse
from storage.queries import tables_of
from storage.runs import StageRun
from storage.tables import EVERY_ROW, between

# No time is earlier, in SQL.
_EVER = "timestamp'0001-01-01'"
NOTHING = dict.fromkeys((Stage.DECODE, Stage.HISTORY, Stage.ANOMALIES, Stage.LAG), -1)
"""The stages whose tables are looked at, and how far each has got before its first run."""
# The other tables of gold are the history's, bronze and silver decode's, behind which ingest is.
_STAGES = {
    **dict.fromkeys((ANOMALIES.name, INCIDENTS.name, GROUP_HEALTH.name), Stage.ANOMALIES),
    ANOMALY_CHECKPOINTS.name: Stage.ANOMALIES,
    **dict.fromkeys((LAG.name, LOG_OFFSETS.name), Stage.LAG),
}


@dataclass(frozen=True)
class Changes:
    """What is new to look at."""

    tables: set[str]  # tables with new rows
    records: int  # how many records have been decoded
    values: dict[str, str]  # SQL for the placeholders in the suites


def changes(lakehouse: Lakehouse, stage: StageRun) -> Changes:
    """Return what a run of the validation has to look at.

    Raises:
        LakehouseError: a table that has rows is gone, so that no expectation would fail of it.
    """
    before = NOTHING if stage.is_refresh else stage.former.get(Detail.REACH, NOTHING)
    reach = stage.plan[Detail.REACH]
    done = {name: lakehouse.runs.done(name, before[name], reach[name]) for name in NOTHING}
    _refuse_lost(lakehouse, done)
    tables = {name for name in all_tables() if stage.is_refresh or _is_written(name, done)}
    tables.discard(RUNS.name)
    decoded = silver_specs()
    values = {
        "ingest_runs": between("ingest_run", *taken(done[Stage.DECODE])),
        "balanced_ingest_runs": between("ingest_run", *taken(done[Stage.DECODE])),
        "decode_runs": between("decode_run", before[Stage.DECODE], reach[Stage.DECODE]),
        "history_decode_runs": between("decode_run", *taken(done[Stage.HISTORY])),
        "history_until": str(taken(done[Stage.HISTORY])[1]),
        "history_runs": between("history_run", before[Stage.HISTORY], reach[Stage.HISTORY]),
        "begun_since": _earliest(stage, done[Stage.HISTORY], Detail.BEGUN_SINCE),
        "first_hour": _earliest(stage, done[Stage.HISTORY], Detail.FIRST_HOUR),
        "anomalies_runs": between("anomalies_run", before[Stage.ANOMALIES], reach[Stage.ANOMALIES]),
        "lag_runs": between("lag_run", before[Stage.LAG], reach[Stage.LAG]),
        "java_hash": JAVA_HASH.format("group_id"),
    }
    if done[Stage.DECODE]:
        details = lakehouse.runs.last_details(Stage.HISTORY)
        is_kafka = details.get(Detail.PLACED_BY, KAFKA) == KAFKA  # SQL knows no other vendor's hash
        counts = details.get(Detail.PARTITIONS, []) if is_kafka else []
        # The topic may have grown; what was written before is where it belonged then.
        values["homes"] = ", ".join(f"hash % {count}" for count in counts)
    is_new, counted = values["decode_runs"], tables & decoded.keys()
    if any(run.details.get(Detail.RETRIED) for run in done[Stage.DECODE]):
        # What was in quarantine has come from any run.
        tables.add(QUARANTINE.name)
        values["balanced_ingest_runs"] = is_new = EVERY_ROW
        counted = set(decoded)
    made = [name for name, spec in decoded.items() if name in counted and lakehouse.exists(spec)]
    values["decoded"] = decoded_rows(made, is_new)
    records = sum(sum(run.rows.values()) for run in done[Stage.DECODE])
    return Changes(tables, records, {name: value for name, value in values.items() if value})


def _refuse_lost(lakehouse: Lakehouse, done: dict[str, list[LedgerRow]]) -> None:
    specs = all_tables()
    for run in itertools.chain.from_iterable(done.values()):
        for name, rows in run.rows.items():
            if rows and name in specs and not lakehouse.exists(specs[name]):
                raise LakehouseError(
                    f"{name} is gone, to which {run.stage} run {run.run} wrote {rows:,} rows:"
                    " bring all of the lakehouse back from one copy, or delete the folders silver"
                    " and gold, which are then rebuilt from bronze"
                )


def _is_written(table: str, done: dict[str, list[LedgerRow]]) -> bool:
    """Return whether some runs wrote rows of a table, by what the ledger says of it."""
    # It names each table of silver that got rows, and may say nothing of others.
    unnamed = 0 if table.startswith("silver.") else 1
    stage = _STAGES.get(table, Stage.HISTORY if table.startswith("gold.") else Stage.DECODE)
    return any(run.rows.get(table, unnamed) for run in done[stage])


def _earliest(stage: StageRun, runs: list[LedgerRow], what: str) -> str:
    """Return the earliest of the times that some runs of the history noted, in SQL."""
    # A run that was resumed, or of an older release, may say nothing; None is that it has none.
    if stage.is_refresh or not all(what in run.details for run in runs):
        return _EVER
    known = [run.details[what] for run in runs if run.details[what] is not None]
    return f"timestamp_millis({min(known, default=LAST_MS)})"


def due(lakehouse: Lakehouse, new: Changes) -> list[Suite]:
    """Return the suites with something new to check, as far as their tables have been made."""
    chosen = [suite for suite in suites() if suite.placeholders <= new.values.keys()]
    named = {suite: tables_of(filled(suite.rows, new.values)) for suite in chosen}
    made = {n for names in named.values() for n in names if lakehouse.exists(all_tables()[n])}
    return [suite for suite in chosen if named[suite] <= made and named[suite] & new.tables]


def warnings() -> set[str]:
    """Name the expectations that tell of an odd log, which nobody can repair."""
    every = ((suite, check) for suite in suites() for check in suite.checks)
    return {f"{suite.table} {check.name}" for suite, check in every if check.severity != CRITICAL}
