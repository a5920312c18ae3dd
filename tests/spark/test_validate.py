"""Each expectation finds the rows that break it, and nothing else; a clean lakehouse passes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.generate import SCHEMA
from dq import due
from dq.declared import ROWS, Check, Suite, broken_keys, counted, suites
from dq.validation import EvaluationError, evaluate
from schemas.columns import ArrayOf, StructOf, arrow_schema
from schemas.ledger import RunId
from schemas.placement import JAVA_HASH, java_hash, partition_for
from schemas.tables import RESULTS, RUNS, TableSpec, all_tables
from storage.lakehouse import Lakehouse
from storage.local import _AS_SPARK, in_duckdb, quickest
from storage.queries import by_spark, on_views
from storage.runs import StageRun
from storage.tables import spark_schema
from tests.conftest import RECORDINGS
from tests.factories import assignment, group_metadata, member, offset_commit, subscription
from tests.support.jobs import held, noted, run, succeed, table


class Broken(NamedTuple):
    """One row of a table, broken in one way."""

    table: str  # the table that holds it
    # Columns and DuckDB's SQL of their new values; None takes the row away.
    change: dict[str, str] | None
    where: str = "true"  # which row; the first of those
    copies: int = 0  # how many broken copies there are beside the row; 0 breaks the row itself
    found: int = 1  # how many rows break the expectation then
    keys: int | None = None  # how many keys these have; None for one each
    # The row that breaks it is another one, which the broken one makes wrong.
    is_other: bool = False


def states(change: dict[str, str] | None, where: str = "sequence = 1", found: int = 1) -> Broken:
    return Broken("gold.group_states", change, where, found=found)


def static(members: str) -> str:
    """Return DuckDB's SQL of members that share an instance id."""
    (declared,) = (
        c.type for c in all_tables()["silver.group_metadata"].columns if c.name == "members"
    )
    assert isinstance(declared, ArrayOf)
    assert isinstance(declared.element, StructOf)
    fields = {c.name: f"m.{c.name}" for c in declared.element.columns}
    fields["group_instance_id"] = "'static'"
    pairs = ", ".join(f"'{name}': {value}" for name, value in fields.items())
    return f"[{{{pairs}}} FOR m IN {members}]"


BEFORE = "timestamp'2000-01-01'"
BROKEN = {
    "silver.*: every_record_is_read_once": Broken("bronze.records", {}, copies=1),
    "silver.*: every_record_is_decoded_once": Broken("silver.offset_commits", None),
    "silver.*: nothing_is_decoded_from_nowhere": Broken("bronze.records", None),
    "silver.*: key_is_whole": Broken("silver.offset_commits", {"cluster": "NULL"}, found=1),
    "silver.*: only_tombstones_lack_a_version": Broken(
        "silver.offset_commits", {"is_tombstone": "NOT is_tombstone"}
    ),
    "silver.*: group_is_named": Broken("silver.offset_commits", {"group_id": "NULL"}),
    "silver.* groups: records_are_where_their_group_belongs": Broken(
        "silver.group_metadata", {"record_partition": "(record_partition + 1) % 50"}
    ),
    "silver.* groups: every_group_has_a_history": Broken("gold.group_checkpoints", None),
    "bronze.records: offsets_are_whole": Broken("bronze.records", {"record_offset": "-1"}),
    "bronze.records: time_type_is_known": Broken("bronze.records", {"timestamp_type": "'Then'"}),
    "bronze.coverage: ranges_run_forwards": Broken(
        "bronze.coverage",
        {"next_offset": "from_offset - 1", "record_count": "-9", "holes": "[]"},
    ),
    "bronze.coverage: no_offset_is_left_out": Broken(
        "bronze.coverage",
        {"from_offset": "next_offset + 1", "next_offset": "next_offset + 99", "ingest_run": "1"},
        copies=1,
    ),
    "bronze.coverage: account_fits_its_range": Broken(
        "bronze.coverage", {"record_count": "next_offset - from_offset + 1"}
    ),
    "bronze.coverage: no_offset_was_lost": Broken(
        "bronze.coverage",
        {
            "ingest_run": "1",
            "holes": "[{'start_offset': 0, 'end_offset': 0, 'reason': 'truncated'}]",
        },
    ),
    "silver.quarantine by run: few_records_are_quarantined": Broken(
        "silver.quarantine", {"error": "'byte 7: no such text'"}, copies=11
    ),
    "silver.quarantine by run: few_records_are_of_unknown_types": Broken(
        "silver.quarantine", {}, copies=11
    ),
    "silver.offset_commits: partition_is_named": Broken("silver.offset_commits", {"topic": "NULL"}),
    "silver.offset_commits: partition_is_no_number_below_zero": Broken(
        "silver.offset_commits", {"topic_partition": "-1"}
    ),
    "silver.offset_commits: offset_is_no_number_below_zero": Broken(
        "silver.offset_commits", {"committed_offset": "-2"}
    ),
    "silver.offset_commits: commit_time_is_near_record_time": Broken(
        "silver.offset_commits", {"commit_timestamp": BEFORE}
    ),
    "silver.group_metadata: generation_does_not_fall": Broken(
        "silver.group_metadata", {"generation": "999"}, "generation = 1", is_other=True
    ),
    "silver.group_metadata: leader_is_a_member": Broken(
        "silver.group_metadata", {"leader": "'nobody'"}, "leader IS NOT NULL"
    ),
    "silver.group_metadata: members_are_there_once": Broken(
        "silver.group_metadata", {"members": "members || members"}, "size(members) > 0"
    ),
    "silver.group_metadata: instances_are_there_once": Broken(
        "silver.group_metadata", {"members": static("members || members")}, "size(members) > 0"
    ),
    "silver.group_metadata: state_is_no_younger_than_its_record": Broken(
        "silver.group_metadata", {"current_state_timestamp": "timestamp'2999-01-01'"}
    ),
    "silver.quarantine: reason_is_given": Broken("silver.quarantine", {"error": "''"}),
    "gold.group_states: no_interval_is_missing": states(None),
    "gold.group_states: intervals_follow_without_gap_or_overlap": states({"started_at": BEFORE}),
    # The step to it and the step from it.
    "gold.group_states: steps_are_legal": states({"state": "'Stable'"}, found=2),
    "gold.group_states: state_fits_the_protocol": states({"group_type": "'share'"}),
    "gold.group_states: intervals_run_forwards": states({"ended_at": BEFORE}),
    "gold.group_states: start_is_within_its_bounds": states(
        {"started_at_min": "started_at + INTERVAL 1 SECOND"}
    ),
    "gold.group_states: known_until_is_within_the_interval": states({"known_until": BEFORE}),
    "gold.group_states: evidence_says_what_the_bounds_say": states(
        {"evidence": "if(evidence = 'exact', 'bounded', 'exact')"}
    ),
    "gold.group_states: only_empty_and_dead_groups_lack_members": states({"member_count": "-1"}),
    "gold.group_generations: generation_rises": Broken(
        "gold.group_generations", {"previous_generation": "generation + 1"}
    ),
    "gold.group_generations: phases_follow_each_other": Broken(
        "gold.group_generations", {"stable_at": BEFORE}
    ),
    "gold.group_generations: durations_are_no_numbers_below_zero": Broken(
        "gold.group_generations", {"join_ms": "-1"}
    ),
    "gold.group_generations: times_are_within_their_bounds": Broken(
        "gold.group_generations", {"join_started_at_max": BEFORE}, "join_started_at IS NOT NULL"
    ),
    "gold.group_generations: cause_is_known": Broken("gold.group_generations", {"cause": "'why'"}),
    "gold.group_generations: counts_fit": Broken("gold.group_generations", {"member_count": "-1"}),
    "gold.member_sessions: stays_run_forwards": Broken("gold.member_sessions", {"left_at": BEFORE}),
    "gold.member_sessions: end_has_a_cause": Broken(
        "gold.member_sessions", {"left_at": "joined_at", "end_cause": "NULL"}
    ),
    "gold.member_sessions: known_until_is_within_the_stay": Broken(
        "gold.member_sessions", {"known_until": BEFORE}
    ),
    "gold.partition_owners: known_until_is_within_the_ownership": Broken(
        "gold.partition_owners", {"known_until": BEFORE}
    ),
    "gold.partition_owners: member_owns_a_partition_once": Broken(
        "gold.partition_owners", {"record_offset": "record_offset + 1"}, copies=1
    ),
    "gold.partition_owners: coordinator_gives_a_partition_once": Broken(
        "gold.partition_owners",
        {
            "group_type": "'consumer'",
            "member_id": "'another'",
            "valid_from": "valid_from - INTERVAL 1 SECOND",
        },
        copies=1,
    ),
    "gold.partition_owners: partition_is_no_number_below_zero": Broken(
        "gold.partition_owners", {"topic_partition": "-1"}
    ),
    "gold.partition_owners: partition_has_one_owner": Broken(
        "gold.partition_owners", {"member_id": "'another'"}, copies=1
    ),
    "gold.partition_owners: ownership_runs_forwards": Broken(
        "gold.partition_owners", {"duration_ms": "-1"}
    ),
    "gold.partition_owners: partition_is_named": Broken(
        "gold.partition_owners", {"topic": "NULL", "topic_id": "NULL"}
    ),
    "gold.offset_progress: counts_fit": Broken("gold.offset_progress", {"rewinds": "commits + 1"}),
    "gold.offset_progress: hour_is_that_of_its_commits": Broken(
        "gold.offset_progress", {"hour": "hour + INTERVAL 1 HOUR"}
    ),
    "gold.offset_moves: move_is_what_its_offsets_say": Broken(
        "gold.offset_moves", {"committed_offset": "previous_offset + 1"}
    ),
    "gold.committed_offsets: deleted_offsets_are_gone": Broken(
        "gold.committed_offsets", {"is_deleted": "true"}, "committed_offset IS NOT NULL"
    ),
    "gold.committed_offsets: last_commit_is_known": Broken("gold.committed_offsets", None),
    "gold.lag: lag_is_the_distance_to_the_end": Broken("gold.lag", {"lag": "lag + 1"}),
    "gold.lag: lag_is_within_its_bounds": Broken("gold.lag", {"lag_min": "lag + 1"}),
    "gold.lag: log_starts_before_it_ends": Broken("gold.lag", {"log_start_offset": "99999"}),
    "gold.lag: seconds_are_within_their_bounds": Broken("gold.lag", {"lag_seconds": "99.0"}),
    "gold.lag: status_is_burrows": Broken("gold.lag", {"status": "'FINE'"}),
    "gold.anomalies: severity_is_known": Broken("gold.anomalies", {"severity": "'bad'"}),
    "gold.anomalies: anomalies_run_forwards": Broken("gold.anomalies", {"ended_at": BEFORE}),
    "gold.anomalies: anomaly_can_be_read": Broken("gold.anomalies", {"evidence": "'{'"}),
    "gold.incidents: incidents_run_forwards": Broken("gold.incidents", {"ended_at": BEFORE}),
    "gold.incidents: groups_and_anomalies_are_counted": Broken(
        "gold.incidents", {"group_count": "2"}
    ),
    "gold.group_health: health_is_known": Broken("gold.group_health", {"health": "NULL"}),
    "gold.group_health: counts_fit": Broken("gold.group_health", {"rebalances_1h": "-1"}),
}
# Rows that the recording has none of, so far as expectations look at them.
MADE_UP: dict[str, dict[str, Any]] = {
    "gold.lag": {
        "lag_run": 0,
        "group_id": "g",
        "topic": "t",
        "topic_partition": 0,
        "committed_offset": 5,
        "log_start_offset": 0,
        "log_end_offset": 9,
        "lag": 4,
        "lag_min": 3,
        "lag_max": 4,
        "phantom_lag": 0,
        "lag_seconds": 3.0,
        "lag_seconds_min": 2.0,
        "lag_seconds_max": 4.0,
        "status": "OK",
        "group_status": "OK",
    },
    "gold.log_offsets": {"topic": "t", "topic_partition": 0, "lag_run": 0},
    "gold.incidents": {
        "incident_id": "i",
        "cause": "offsets_set",
        "severity": "warning",
        "started_at": dt.datetime(2026, 11, 21, tzinfo=dt.timezone.utc),
        "ended_at": dt.datetime(2026, 11, 21, tzinfo=dt.timezone.utc),
        "is_open": False,
        "groups": ["a", "b", "c"],
        "group_count": 3,
        "anomaly_ids": ["1", "2", "3"],
        "anomaly_count": 3,
        "summary": "Somebody set them.",
        "evidence": "{}",
        "anomalies_run": 0,
    },
    "gold.anomalies": {
        "anomaly_id": "a",
        "severity": "info",
        "summary": "It is so.",
        "evidence": "{}",
        "thresholds": "{}",
    },
    "gold.offset_moves": {
        "record_partition": 0,
        "record_offset": 0,
        "move": "rewind",
        "previous_offset": 5,
        "committed_offset": 4,
        "history_run": 0,
    },
}


def of_table(suite: Suite) -> dict[str, Broken]:
    """Break what is expected of every table by its key."""
    if suite.table not in all_tables():
        return {}
    spec = all_tables()[suite.table]
    broken = {
        "key_is_unique": Broken(spec.name, {}, copies=1, found=2, keys=1),
        "key_is_whole": Broken(spec.name, {spec.required[-1]: "NULL"}),
    }
    declared = {check.name for check in suite.checks}
    return {f"{suite.title}: {name}": each for name, each in broken.items() if name in declared}


EVERY = {name: each for suite in suites() for name, each in of_table(suite).items()} | BROKEN


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generations and some commits of a storm, and a record that no decoder knows."""
    recorded = pq.read_table(RECORDINGS / "4.3.1-storm.parquet")
    of_type = [key[1] for key in recorded["key"].to_pylist()]
    some = pa.concat_tables(
        recorded.filter(pa.array([number in types for number in of_type])).slice(0, count)
        for types, count in (((0, 1), 60), ((2,), 60))
    )
    unknown = [some.slice(0, 1).to_pylist()[0] | {"offset": 1_000_000, "key": b"\0\x63"}]
    path = tmp_path_factory.mktemp("records") / "some.parquet"
    pq.write_table(pa.concat_tables([some, pa.Table.from_pylist(unknown, some.schema)]), path)
    return path


@pytest.fixture(scope="module")
def clean(records: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    root = str(tmp_path_factory.mktemp("clean") / "lakehouse")
    line = ("--records", records, "--lakehouse", root, "--strict", "--skip", "report")
    return root, succeed("pipeline", *line)


class World:
    """The tables of a lakehouse in memory, to break one row of at a time."""

    def __init__(self, lakehouse: Lakehouse, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        reach = dict.fromkeys(("decode", "history", "anomalies", "lag"), 0)
        stage = StageRun(
            RunId("validate", 9),
            after=-1,
            to=0,
            is_refresh=True,
            is_resumed=False,
            plan={"reach": reach},
            former={},
        )
        self.values = due.changes(lakehouse, stage).values | {"ingest_runs": "true"}
        self.asked = self.values | {"java_hash": "java_hash(group_id)"}
        for name, spec in all_tables().items():
            rows = held(lakehouse.root, spec).select([c.name for c in spec.columns])
            if not rows.num_rows and name in MADE_UP:
                made = [{"cluster": "default", **MADE_UP[name]}]
                rows = pa.Table.from_pylist(made, arrow_schema(spec.columns))
            connection.register(view_of(name), rows.cast(arrow_schema(spec.columns)))

    def ask(self, text: str) -> pa.Table:
        return self.connection.execute(text).to_arrow_table()

    def ask_of(self, view: Callable[[str], str], text: str) -> pa.Table:
        """Ask tables, each of the view that is given for it."""
        return self.ask(on_views(in_duckdb(text), view))

    def broken(self, broken: Broken) -> pa.Table:
        """Return a table with the row that is broken."""
        spec, whole = all_tables()[broken.table], view_of(broken.table)
        is_it = f"{key_of(spec)} = {first(broken)}"
        text = f"FROM {whole}" + ("" if broken.copies else f" WHERE NOT {is_it}")
        if broken.change is not None:
            new = ", ".join(f"{sql} AS {column}" for column, sql in broken.change.items())
            columns = f"* REPLACE ({new})" if new else "*"
            row = f"SELECT {columns} FROM {whole} WHERE {is_it}"
            text += f" UNION ALL SELECT * FROM ({row})" * max(1, broken.copies)
        return self.ask(text).cast(arrow_schema(spec.columns))


def view_of(name: str) -> str:
    return f"world_{name.replace('.', '_')}"


def first(broken: Broken) -> str:
    key = key_of(all_tables()[broken.table])
    return f"(SELECT min({key}) FROM {view_of(broken.table)} WHERE {broken.where})"


def key_of(spec: TableSpec) -> str:
    """Return a row's key as DuckDB's struct."""
    return "{" + ", ".join(f"'{name}': {name}" for name in spec.key) + "}"


@pytest.fixture(scope="module")
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """Have Spark neither compile nor adapt queries: that is most of a query of a few rows."""
    settings = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
    }
    former = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield spark
    for key, known in former.items():
        spark.conf.set(key, known or "")


class Case(NamedTuple):
    """An expectation, and rows of which one is broken."""

    suite: Suite  # a suite that expects that alone
    broken: pa.Table  # the table with the row that is broken
    counts: tuple[int, int]  # what DuckDB counts: all rows, and those that break it
    unexpected: list[str]  # the keys of those, as JSON
    key: str  # that of the broken row, if its table has the suite's


@pytest.fixture(scope="module")
def world(spark: SparkSession, clean: tuple[str, dict[str, Any]]) -> Iterator[World]:
    with duckdb.connect() as connection:
        connection.execute(_AS_SPARK)
        yield World(Lakehouse(spark, clean[0], "default"), connection)


@pytest.fixture(scope="module")
def cases(world: World) -> dict[str, Case]:
    """Break each expectation, by its name."""
    return {
        f"{suite.title}: {check.name}": case_of(world, suite, check)
        for suite in suites()
        for check in suite.checks
    }


def case_of(world: World, suite: Suite, check: Check) -> Case:
    broken, alone = (
        EVERY[f"{suite.title}: {check.name}"],
        dataclasses.replace(suite, checks=(check,)),
    )
    table = world.broken(broken)
    world.connection.register("broken", table)

    def view(name: str) -> str:
        return "broken" if name == broken.table else view_of(name)

    rows, unexpected = world.ask_of(view, counted(alone, world.asked)).to_pylist()[0].values()
    keys = broken_keys(alone, check, world.asked).replace("LIMIT 3", "")
    found = [json.dumps(key, default=str) for key in world.ask_of(view, keys).to_pylist()]
    own = ""
    if {*suite.key} <= {*all_tables()[broken.table].key}:
        of_row = world.ask(f"SELECT {first(broken)} AS key")["key"][0].as_py()
        own = json.dumps({name: of_row[name] for name in suite.key}, default=str)
    return Case(alone, table, (rows, unexpected), found, own)


def united(parts: list[DataFrame]) -> DataFrame:
    """Unite parts in pairs: one after the other, Spark would look at the first ones every time."""
    while len(parts) > 1:
        pairs = [one.union(other) for one, other in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def is_found_again(broken: Broken, suite: Suite) -> bool:
    """Return whether the key of the broken row is that of a row of the suite."""
    if suite.table != broken.table or broken.is_other or broken.change is None:
        return False
    key = {*all_tables()[broken.table].key}
    return {*suite.key} <= key and not key & {*broken.change}


def test_each_expectation_has_a_case() -> None:
    names = {f"{suite.title}: {check.name}" for suite in suites() for check in suite.checks}
    assert names == EVERY.keys()


@pytest.mark.parametrize("name", EVERY)
def test_each_expectation_finds_what_breaks_it(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    broken = EVERY[name]
    assert case.counts[1] == broken.found
    assert len(case.unexpected) == (broken.found if broken.keys is None else broken.keys)
    if is_found_again(broken, case.suite):
        assert case.key in case.unexpected


def test_spark_counts_the_same(quick: SparkSession, world: World, cases: dict[str, Case]) -> None:
    for name, spec in all_tables().items():
        rows = world.ask(f"FROM {view_of(name)}").cast(arrow_schema(spec.columns))
        frame(quick, rows, spec).createOrReplaceTempView(view_of(name))
    counts = []
    for number, (name, case) in enumerate(cases.items()):
        broken = EVERY[name].table
        frame(quick, case.broken, all_tables()[broken]).createOrReplaceTempView(f"broken_{number}")
        text = on_views(
            counted(case.suite, world.values),
            lambda table, b=broken, n=number: f"broken_{n}" if table == b else view_of(table),
        )
        counts.append(quick.sql(text).select(F.lit(name), "*").toDF("name", "rows", "broken"))
    found = {name: tuple(numbers) for name, *numbers in united(counts).collect()}
    assert found == {name: case.counts for name, case in cases.items()}


def frame(spark: SparkSession, rows: pa.Table, spec: TableSpec) -> DataFrame:
    # Spark takes no column without a chunk.
    given = rows if rows.num_rows else arrow_schema(spec.columns).empty_table()
    return spark.createDataFrame(given, spark_schema(spec.columns)).coalesce(1)


def test_great_expectations_finds_what_is_counted(world: World, cases: dict[str, Case]) -> None:
    of_all = "gold.group_states: steps_are_legal"  # two rows break it
    of_most = "silver.offset_commits: commit_time_is_near_record_time"
    copies = "silver.quarantine by run: few_records_are_of_unknown_types"
    for name in (of_all, of_most, copies):
        case, broken = cases[name], EVERY[name].table
        world.connection.register("broken", case.broken)

        def ask(queries: Mapping[str, str], _: object, broken: str = broken) -> dict[str, pa.Table]:
            view = {broken: "broken"}
            return {
                name: world.ask_of(lambda table: view.get(table, view_of(table)), text)
                for name, text in queries.items()
            }

        (found,) = evaluate([case.suite], world.asked, ask)
        assert (found.rows_checked, found.rows_unexpected) == case.counts
        assert len(found.sample) == min(3, found.rows_unexpected)
        assert {*found.sample} <= {*case.unexpected}
        holds_of = found.rows_checked - found.rows_unexpected
        assert found.success == (holds_of >= found.check.mostly * found.rows_checked)
    assert cases[of_most].suite.checks[0].mostly < 1


def test_spark_finds_the_same(
    spark: SparkSession, world: World, clean: tuple[str, dict[str, Any]]
) -> None:
    lakehouse = Lakehouse(spark, clean[0], "default")
    every = [s for s in suites() if s.placeholders <= world.asked.keys()]
    found = evaluate(every, world.asked, by_spark(lakehouse))
    assert found == evaluate(every, world.asked, quickest(lakehouse))
    assert sum(each.rows_checked for each in found) > len(every)


def test_what_cannot_be_evaluated_is_an_error(
    spark: SparkSession, clean: tuple[str, dict[str, Any]]
) -> None:
    check = dataclasses.replace(suites()[0].checks[0], condition="no_such_column = 1")
    suite = dataclasses.replace(suites()[0], rows="SELECT * FROM bronze.records", checks=(check,))
    lakehouse = Lakehouse(spark, clean[0], "default")
    with pytest.raises(duckdb.BinderException, match="no_such_column"):
        evaluate([suite], {}, quickest(lakehouse))
    with pytest.raises(AnalysisException, match="no_such_column"):
        evaluate([suite], {}, by_spark(lakehouse))


def test_what_great_expectations_cannot_evaluate_is_an_error() -> None:
    """It raises nothing itself, and would say that the expectation is not met."""
    (suite,) = (s for s in suites() if s.title == "gold.group_checkpoints")
    odd = {name: ["no number"] for name in (ROWS, *(check.name for check in suite.checks))}
    with pytest.raises(EvaluationError, match=suite.table):
        evaluate([suite], {}, lambda asked, _: dict.fromkeys(asked, pa.table(odd)))


def test_ids_of_any_length_hash_as_in_kafka(quick: SparkSession, world: World) -> None:
    ids = ["", "a", "grüße", "\U0001f600" * 3, *("g" * n + "-\u00e9" for n in range(60))]
    wanted = [java_hash(name) & 0xFFFFFFFF for name in ids]
    rows = pa.table({"group_id": ids})
    world.connection.register("ids", rows)
    assert world.ask("SELECT java_hash(group_id) AS hash FROM ids")["hash"].to_pylist() == wanted
    hashed = quick.createDataFrame(rows).select(F.expr(JAVA_HASH.format("group_id")))
    assert [row[0] for row in hashed.collect()] == wanted


def test_a_clean_recording_passes_and_is_looked_at_once(
    spark: SparkSession, clean: tuple[str, dict[str, Any]]
) -> None:
    root, summary = clean
    assert summary["expectations"] > 50
    assert summary["expectations_failed"] == 0
    rows = table(spark, root, RESULTS.name).collect()
    assert len(rows) == summary["expectations"]
    assert all(row.success and not row.sample for row in rows)
    assert succeed("validate", "--lakehouse", root)["expectations"] == 0
    of_stage = table(spark, root, RUNS.name).where("stage = 'validate' AND state = 'done'")
    assert of_stage.count() == 1


def test_a_failing_expectation_is_printed_with_its_query(
    spark: SparkSession, clean: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    root = str(tmp_path / "lakehouse")
    shutil.copytree(clean[0], root)
    lakehouse = Lakehouse(spark, root, "default")
    spec = all_tables()["gold.group_states"]
    spark.sql(f"DELETE FROM delta.`{lakehouse.path(spec)}` WHERE sequence = 1")
    outcome = run("validate", "--lakehouse", root, "--full", "--docs", tmp_path / "docs")
    assert outcome.status == 3
    failed = [r for r in table(spark, root, RESULTS.name).collect() if not r.success]
    assert [r.expectation for r in failed] == ["no_interval_is_missing"]
    assert outcome.summary["expectations_failed"] == 1
    (row,) = failed
    assert row.query in outcome.out
    again = run("validate", "--lakehouse", root)
    assert (again.status, again.summary["expectations"]) == (3, 0)
    assert "earlier run: gold.group_states no_interval_is_missing; " in again.err
    index = (tmp_path / "docs" / "index.html").read_text("utf-8")
    assert all((tmp_path / "docs" / page).is_file() for page in re.findall('href="(.*?)"', index))
    seen = on_views(row.query, lambda name: f"delta.`{lakehouse.path(all_tables()[name])}`")
    assert spark.sql(seen).count() == row.rows_unexpected
    assert {json.loads(key)["sequence"] for key in row.sample} == {2}


@pytest.mark.parametrize("name", ["silver.group_metadata", "gold.member_sessions"])
def test_a_table_that_is_gone_is_named(
    spark: SparkSession, clean: tuple[str, dict[str, Any]], tmp_path: Path, name: str
) -> None:
    root = str(shutil.copytree(clean[0], tmp_path / "lakehouse"))
    shutil.rmtree(Lakehouse(spark, root, "default").path(all_tables()[name]))
    outcome = run("validate", "--lakehouse", root, "--full")
    assert outcome.status == 1
    assert f"{name} is gone, to which " in outcome.complaint
    assert "bring all of the lakehouse back from one copy" in outcome.complaint


def test_an_odd_log_is_a_warning_and_makes_no_table_wrong(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What clients commit and what assignors give, Kafka's coordinator takes as it is."""
    root, path = str(tmp_path / "lakehouse"), tmp_path / "odd.parquet"
    given = assignment(AssignedPartitions=[{"Topic": "orders", "Partitions": [0, 0, -1]}])
    both = [member(memberId=m, subscription=subscription(), assignment=given) for m in ("a", "b")]
    of_a = {"group": "billing", "partition": 0}
    records = [
        group_metadata(*both, protocol="broadcast", generation=1),
        *(offset_commit(key=of_a, offset=n) for n in (7, -1, -(2**63), 8)),
        offset_commit(key={**of_a, "partition": 1}, offset=-1),
        offset_commit(key={**of_a, "partition": -1}, offset=5),
        # Another assignor is as generous, and those that it leaves alone go on.
        group_metadata(*both, member(memberId="c", assignment=given), generation=2),
    ]
    at = 1_700_000_000_000
    rows = [
        ("__consumer_offsets", partition_for("billing", 50), n, at + n, "CreateTime", *pair)
        for n, pair in enumerate(records)
    ]
    values = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    pq.write_table(pa.Table.from_pylist(values, SCHEMA), path)
    line = ("--records", path, "--lakehouse", root, "--strict", "--skip", "report")
    outcome = run("pipeline", *line)
    assert outcome.status == 0, outcome.out
    failed = {
        (r.table_name, r.expectation): (r.severity, r.rows_unexpected)
        for r in table(spark, root, RESULTS.name).where("NOT success").collect()
    }
    assert failed == {
        ("silver.offset_commits", "partition_is_no_number_below_zero"): ("warning", 1),
        ("silver.offset_commits", "offset_is_no_number_below_zero"): ("warning", 3),
        ("gold.partition_owners", "partition_has_one_owner"): ("warning", 4),
        ("gold.partition_owners", "partition_is_no_number_below_zero"): ("warning", 3),
    }
    assert outcome.summary["expectations_failed"] == len(failed)
    assert outcome.summary["expectations_still_failing"] == 0
    assert "warning gold.partition_owners partition_has_one_owner: 4 of 6 rows." in outcome.out
    # The log remains what it is, and nobody can repair it.
    again = run("validate", "--lakehouse", root)
    assert (again.status, again.summary["expectations_still_failing"]) == (0, 0)
    assert table(spark, root, "gold.offset_moves").count() == 0
    owners = table(spark, root, "gold.partition_owners").where("topic_partition = 0").collect()
    assert {row.member_id for row in owners} == {"a", "b", "c"}
    last = table(spark, root, "gold.committed_offsets").orderBy("topic_partition").collect()
    assert [row.committed_offset for row in last] == [5, 8, None]


def test_tables_that_were_made_anew_are_looked_at_whole(
    spark: SparkSession, clean: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    root = str(tmp_path / "lakehouse")
    shutil.copytree(clean[0], root)
    held = Lakehouse(spark, root, "default")
    reach = dict.fromkeys(("decode", "history", "anomalies", "lag"), 7)
    noted(held, RunId("validate", 1), details={"reach": reach, "failing": ["gold.lag key"]})
    assert succeed("validate", "--lakehouse", root)["expectations"] > 50
    again = run("validate", "--lakehouse", root)
    assert (again.status, again.summary["expectations"]) == (0, 0)
    assert "nothing new" in again.err
    assert "earlier run" not in again.err


def test_tables_that_were_removed_and_made_again_are_looked_at_whole(
    spark: SparkSession, clean: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    """As when client ids are to be hashed from now on."""
    root = str(tmp_path / "lakehouse")
    shutil.copytree(clean[0], root)
    for layer in ("silver", "gold"):
        shutil.rmtree(Path(root, layer))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    for stage in ("decode", "history", "anomalies"):
        succeed(stage, "--lakehouse", root)
    outcome = run("validate", "--lakehouse", root)
    assert outcome.summary["expectations"] == clean[1]["expectations"]
    assert " 0 expectations" not in outcome.err
    rows = table(spark, root, RESULTS.name).where("table_name = 'gold.group_states'").collect()
    first, second = ({r.rows_checked for r in rows if r.validation_run == n} for n in (0, 1))
    assert first == second != {0}


def test_a_run_that_wrote_nothing_is_nothing_new(
    spark: SparkSession, clean: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    root = str(tmp_path / "lakehouse")
    shutil.copytree(clean[0], root)
    written = ("anomalies", "incidents", "group_health", "anomaly_checkpoints")
    nothing = {f"gold.{name}": 0 for name in written}
    noted(Lakehouse(spark, root, "default"), RunId("anomalies", 1), rows=nothing)
    outcome = run("validate", "--lakehouse", root)
    assert outcome.status == 0
    assert "nothing new" in outcome.err
    assert "expectations hold" not in outcome.err


def test_the_number_of_a_lost_ledger_is_not_given_again(
    spark: SparkSession, clean: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    """Delta would pass over results of a run whose number the table has already.

    So has one that was killed behind its results. What says the same is there once.
    """
    root = str(tmp_path / "lakehouse")
    shutil.copytree(clean[0], root)
    lakehouse = Lakehouse(spark, root, "default")
    known = table(spark, root, RESULTS.name).count()
    lose = f"DELETE FROM delta.`{lakehouse.path(RUNS)}` WHERE stage = 'validate'"
    spark.sql(lose)
    assert succeed("validate", "--lakehouse", root)["expectations"] == known
    assert table(spark, root, RESULTS.name).count() == known
    spark.sql(lose)
    states = lakehouse.path(all_tables()["gold.group_states"])
    spark.sql(f"DELETE FROM delta.`{states}` WHERE sequence = 1")
    assert run("validate", "--lakehouse", root).status == 3
    results = table(spark, root, RESULTS.name)
    assert (results.count(), results.where("NOT success").count()) == (2 * known, 1)
    of_stage = table(spark, root, RUNS.name).where("stage = 'validate' AND state = 'done'")
    assert [row.run for row in of_stage.collect()] == [1]
