"""History and anomalies: cut into runs, run twice, refreshed, and with records that come late."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import shutil
import tempfile
from bisect import bisect_right
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from detectors import transform
from detectors.model import anomaly_id
from launch.signals import INTERRUPTED
from schemas.placement import partition_for
from schemas.tables import (
    ANOMALIES,
    ANOMALY_CHECKPOINTS,
    COMMITTED_OFFSETS,
    GROUP_GENERATIONS,
    GROUP_HEALTH,
    GROUP_STATES,
    MEMBER_SESSIONS,
    OFFSET_PROGRESS,
    PARTITION_OWNERS,
    RECORDS,
    decoded_table,
)
from storage.lakehouse import Lakehouse
from tests.conftest import RECORDINGS
from tests.spark.conftest import Thrice
from tests.support import golden
from tests.support.jobs import Outcome, contents, query, run, sampled, succeed, table
from tests.support.kills import killed_behind
from tests.support.parts import halves_of
from tests.support.report import column_of, data_of
from tests.support.topic import GAP_GROUPS, GAP_SINCE, HOUR, PARTITIONS, with_a_gap

STORM = RECORDINGS / "4.3.1-storm.parquet"
OLD = RECORDINGS / "0.11.0.3-default.parquet"
RUNS = 3


@pytest.fixture(scope="module")
def root(storm: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lakehouse with the storm of one run, and room for other runs beside."""
    root = tmp_path_factory.mktemp("history") / "lakehouse"
    shutil.copytree(storm, root)
    return str(root)


def gold(spark: SparkSession, root: str, cluster: str) -> dict[str, list[str]]:
    """Return the gold tables' rows, but for what is kept to go on, and what names the cluster."""
    found = contents(spark, root, cluster)
    of_cluster = rf"'cluster': '{cluster}'|'anomaly_id': '\w+'"
    return {
        name: sorted(re.sub(of_cluster, "", row) for row in rows)
        for name, rows in found.items()
        if name.startswith("gold.") and not name.endswith("_checkpoints")
    }


def anomalies(spark: SparkSession, root: str, cluster: str) -> list[str]:
    """Return what was found, and how bad it is."""
    columns = ("kind", "severity", "group_id", "subject", "label", "started_at", "ended_at")
    found = table(spark, root, ANOMALIES.name, cluster).select(*columns)
    return sorted(map(repr, found.collect()))


def parts(recording: Path, runs: int) -> list[pa.Table]:
    """Cut each partition of a recording at random offsets."""
    records = pq.read_table(recording).sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    chance = random.Random(7)  # noqa: S311 - not for secrets
    partitions, offsets = records["partition"].to_pylist(), records["offset"].to_pylist()
    last = dict(zip(partitions, offsets, strict=True))
    cuts = {p: sorted(chance.randrange(o + 2) for _ in range(runs - 1)) for p, o in last.items()}
    run = [bisect_right(cuts[p], o) for p, o in zip(partitions, offsets, strict=True)]
    return [records.filter(pa.array([r == number for r in run])) for number in range(runs)]


@pytest.mark.slow
def test_three_runs_tell_what_one_run_tells(spark: SparkSession, root: str, tmp_path: Path) -> None:
    for number, part in enumerate(parts(STORM, RUNS)):
        pq.write_table(part, tmp_path / f"{number}.parquet")
        options = ("--records", tmp_path, "--lakehouse", root, "--cluster", "many")
        summary = succeed("silver", *options)
        summary = succeed("history", "--lakehouse", root, "--cluster", "many")
        assert summary["groups_changed"] > 0
        succeed("anomalies", "--lakehouse", root, "--cluster", "many")
    assert gold(spark, root, "many") == gold(spark, root, "one")


def test_a_run_without_new_records_changes_nothing(spark: SparkSession, root: str) -> None:
    before = contents(spark, root, "one")
    options = ("--lakehouse", root, "--cluster", "one")
    assert succeed("history", *options)["groups_changed"] == 0
    assert succeed("anomalies", *options)["anomalies_run"] is False
    assert contents(spark, root, "one") == before


def test_rebuilt_from_silver_it_is_the_same_and_other_thresholds_find_other_anomalies(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    rebuilt = tmp_path / "lakehouse"
    shutil.copytree(root, rebuilt)
    shutil.rmtree(rebuilt / "gold")
    own = tmp_path / "own.toml"
    own.write_text(
        "[[overrides]]\ngroups = 'orders-.*'\n"
        "rebalance_storm = {warning_an_hour = 1000, in_ten_minutes = 1000, share_of_time = 1}\n"
    )
    options = ("--lakehouse", rebuilt, "--cluster", "one")
    succeed("history", *options)
    found = succeed("anomalies", *options, "--thresholds", own)["anomalies"]
    assert found["rebalance_storm"] == 3
    assert succeed("anomalies", *options)["anomalies"]["rebalance_storm"] == 4
    assert gold(spark, str(rebuilt), "one") == gold(spark, root, "one")


def lagged(
    lakehouse: Lakehouse, number: int, lag: int, *others: dict[str, Any], group_id: str
) -> None:
    """Have a run of `lag` sample a partition of a group, and others."""
    row = {"group_id": group_id, "topic": "t", "topic_partition": 0, "status": "STOP", "lag": lag}
    at = dt.datetime(2027, 1, 1, number, tzinfo=dt.timezone.utc)
    sampled(lakehouse, number, at, row, *others)


def samples_kept(lakehouse: Lakehouse, group_id: str) -> list[int]:
    kept = lakehouse.read(ANOMALY_CHECKPOINTS).where(F.col("group_id") == group_id).first()
    assert kept is not None
    return [lag for _, lag, _ in json.loads(kept.state)["minutes"]["samples"]]


def test_groups_with_late_records_are_rebuilt(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    early, late = parts(STORM, 2)
    lakehouse = Lakehouse(spark, root, "late")
    for number, (part, lag_runs) in enumerate([(late, (0,)), (early, (1, 2))]):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(part, path)
        succeed("silver", "--records", path, "--lakehouse", root, "--cluster", "late")
        summary = succeed("history", "--lakehouse", root, "--cluster", "late")
        for lag_run in lag_runs:
            lagged(lakehouse, lag_run, 7 + lag_run, group_id="sampled alone")
        succeed("anomalies", "--lakehouse", root, "--cluster", "late")
    assert summary["groups_replayed"] == 5  # all of the recording
    # No sample is lost of a group that was not.
    assert samples_kept(lakehouse, "sampled alone") == [7, 8, 9]
    late_tables, whole = (gold(spark, root, cluster) for cluster in ("late", "one"))
    # What ran when is the only difference.
    for name in (GROUP_STATES.name, GROUP_GENERATIONS.name, PARTITION_OWNERS.name):
        assert late_tables[name] == whole[name], name
    assert late_tables[OFFSET_PROGRESS.name] == whole[OFFSET_PROGRESS.name]
    found = anomalies(spark, root, "late")
    assert found == anomalies(spark, root, "one")


def test_a_group_that_may_have_ended_unseen_is_known_until_the_log_was_read_before(
    spark: SparkSession, gap: str, tmp_path: Path
) -> None:
    root, topic = Path(shutil.copytree(gap, tmp_path / "lakehouse")), with_a_gap()
    topic.write(tmp_path / "read.parquet")
    by_place = {partition_for(f"other-{n}", PARTITIONS): f"other-{n}" for n in range(999)}
    beside = [by_place[partition_for(group, PARTITIONS)] for group in GAP_GROUPS]

    def read() -> dict[str, int | None]:
        """Read what is new, and return when the last state of each group ended."""
        path = topic.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet")
        succeed("silver", "--records", path, "--lakehouse", root)
        succeed("history", "--lakehouse", root)
        return ended()

    def ended() -> dict[str, int | None]:
        rows = table(spark, str(root), GROUP_STATES.name).where("NOT is_settled")
        at = F.unix_millis(F.max_by("ended_at", "sequence")).alias("at")
        return {row.group_id: row.at for row in rows.groupBy("group_id").agg(at).collect()}

    assert ended() == dict.fromkeys(GAP_GROUPS)
    later = GAP_SINCE + 72 * HOUR
    for group in beside:
        topic.skip(partition_for(group, PARTITIONS))
        topic.generation(group, later, 1, x=0)
    gone = dict.fromkeys(GAP_GROUPS, GAP_SINCE + 2 * HOUR)
    assert read() == gone | dict.fromkeys(beside)
    succeed("anomalies", "--lakehouse", root)
    health = {row.group_id: row for row in table(spark, str(root), GROUP_HEALTH.name).collect()}
    assert {group: row.state for group, row in health.items()} == (
        dict.fromkeys(GAP_GROUPS, "not known") | dict.fromkeys(beside, "Stable")
    )
    assert not any(row.open_anomalies for row in health.values())
    # One is there, and goes on; of the other, a second time without a reading changes nothing.
    topic.generation(GAP_GROUPS[0], later + 48 * HOUR, 7, b=0, c=1)
    topic.skip(partition_for(beside[1], PARTITIONS))
    topic.generation(beside[1], later + 48 * HOUR, 2, x=0)
    assert read() == gone | dict.fromkeys([GAP_GROUPS[0], *beside])
    told = gold(spark, str(root), "default")
    shutil.rmtree(root / "gold")
    succeed("history", "--lakehouse", root)
    rebuilt = gold(spark, str(root), "default")
    for spec in (GROUP_STATES, GROUP_GENERATIONS, MEMBER_SESSIONS, PARTITION_OWNERS):
        assert rebuilt[spec.name] == told[spec.name], spec.name


def test_the_storm_is_found_and_classified(spark: SparkSession, root: str) -> None:
    found = table(spark, root, ANOMALIES.name, "one")
    storms = found.where("kind = 'rebalance_storm'").select("group_id", "severity", "label")
    assert sorted(map(tuple, storms.collect())) == [
        ("crash-loop", "critical", "crash_loop"),
        ("orders-storm", "critical", "short_lived_members"),
        ("payments-jslow", "critical", "slow_members"),
        ("payments-slow", "critical", "slow_members"),
    ]
    assert found.where("group_id = 'healthy-ctl'").isEmpty()
    for row in found.collect():
        started = round(row.started_at.timestamp() * 1000)
        expected = anomaly_id("one", row.kind, row.group_id or "", row.subject or "", started)
        assert row.anomaly_id == expected


def test_the_front_page_has_each_group_once(spark: SparkSession, root: str) -> None:
    health = {row.group_id: row for row in table(spark, root, "gold.group_health", "one").collect()}
    states = table(spark, root, GROUP_STATES.name, "one").where("ended_at IS NULL")
    assert len(health) == states.count() == 5
    assert health["healthy-ctl"].health == "ok"
    storm = health["orders-storm"]
    assert (storm.health, storm.state, storm.members) == ("critical", "Empty", 0)
    generations = table(spark, root, GROUP_GENERATIONS.name, "one")
    of_storm = generations.where("group_id = 'orders-storm' AND join_started_at IS NOT NULL")
    assert storm.rebalances_1h == storm.rebalances_7d == of_storm.count()


class Lagging(NamedTuple):
    """A lakehouse with the storm and, behind it, a sample of the lag; and what a run said of it."""

    root: str
    told: Outcome


@pytest.fixture(scope="module")
def lagging(spark: SparkSession, root: str, tmp_path_factory: pytest.TempPathFactory) -> Lagging:
    """As of the first run: what came after the last commit that was read is taken for lag."""
    copy = str(shutil.copytree(root, tmp_path_factory.mktemp("lagging") / "lakehouse"))
    sample = {"topic": "t", "status": "OK", "group_status": "OK"}
    rows = [
        {**sample, "group_id": group, "topic_partition": p, "lag": lag, "lag_is_bound": is_bound}
        for group, p, lag, is_bound in (
            *(("healthy-ctl", 0, 0, False), ("healthy-ctl", 1, 926, True)),
            *(("orders-storm", 0, 5, False), ("orders-storm", 1, None, None)),
        )
    ]
    lagged(Lakehouse(spark, copy, "one"), 0, 7, *rows, group_id="payments-jslow")
    return Lagging(copy, run("anomalies", "--lakehouse", copy, "--cluster", "one"))


def test_the_front_page_has_the_newest_lag_and_no_sample_is_lost_between_two_runs(
    spark: SparkSession, root: str, lagging: Lagging, tmp_path: Path
) -> None:
    """Also when all consumers are away, so that there is no new history."""
    shutil.copytree(lagging.root, tmp_path / "lakehouse")
    lakehouse = Lakehouse(spark, str(tmp_path / "lakehouse"), "one")
    options = ("--lakehouse", lakehouse.root, "--cluster", "one")
    lags = (7, 8, 9, 5_100)
    told = lagging.told.summary
    for number, lag in enumerate(lags):
        if number > 0:
            lagged(lakehouse, number, lag, group_id="payments-jslow")
        if number == 3:
            told = succeed("anomalies", *options)
        if number in (0, 3):
            assert told["anomalies_run"] is True
            health = {r.group_id: r for r in lakehouse.read(GROUP_HEALTH).collect()}
            whole = health["payments-jslow"]
            assert (whole.total_lag, whole.worst_lag_status) == (lag, "STOP")
            assert succeed("anomalies", *options)["anomalies_run"] is False
    now, before = (contents(spark, at, "one") for at in (lakehouse.root, root))
    for name in (ANOMALIES.name, GROUP_STATES.name):
        assert now[name] == before[name]
    assert samples_kept(lakehouse, "payments-jslow") == [*lags]


def test_a_lag_that_is_a_bound_is_said_to_be_one_and_no_metric(
    spark: SparkSession, lagging: Lagging, tmp_path: Path
) -> None:
    lakehouse = Lakehouse(spark, lagging.root, "one")
    options = ("--lakehouse", lakehouse.root, "--cluster", "one")
    shown = lagging.told.out
    assert re.search(r"healthy-ctl\n[^\n]* at most 926", shown)
    assert re.search(r"orders-storm\n[^\n]* 5\b", shown)
    health = {r.group_id: r for r in lakehouse.read(GROUP_HEALTH).collect()}
    assert {g: (r.total_lag, r.total_lag_is_bound) for g, r in health.items() if r.total_lag} == {
        "healthy-ctl": (926, True),
        "orders-storm": (5, False),
        "payments-jslow": (7, None),
    }
    metrics, page = tmp_path / "m.prom", tmp_path / "r.html"
    line = ("--only", "report", "--metrics", metrics, "--output", page)
    assert run("pipeline", *options, *line).status == 0
    lags = [
        x for x in metrics.read_text("utf-8").splitlines() if x.startswith("groupledger_group_lag{")
    ]
    assert [x.split()[-1] for x in lags if "orders-storm" in x] == ["5.0"]
    assert not [x for x in lags if "healthy-ctl" in x]
    groups = data_of(page)["groups"]
    is_bound = column_of(groups, "total_lag_is_bound")
    named = dict(zip(column_of(groups, "group_id"), is_bound, strict=True))
    assert named["healthy-ctl"] is True
    told = run("explain", *options, "--group", "healthy-ctl", "--until", "2027-01-01 00:00:01")
    assert "Lag at most 926 records in 2 partitions" in told.out


def test_what_a_group_is_behind_at_most_is_no_lag_to_detectors(spark: SparkSession) -> None:
    at = dt.datetime(2027, 1, 1, tzinfo=dt.timezone.utc)
    samples = {
        "keeps-up": [("t", 0, False), ("u", 926, True)],
        "waits": [("t", 5, False), ("t", 926, True), ("u", 7, True)],
        "at-the-end": [("t", 0, False), ("u", None, None)],
        "of-an-old-release": [("t", 5, None)],
    }
    commits = [(offset, at) for offset in (0, 50, 100, 150, 200, 300)]
    committed = [("waits", topic, 0, 300, commits) for topic in ("t", "u")]
    known = (
        "group_id STRING, topic STRING, topic_partition INT, committed_offset BIGINT, "
        "recent_commits ARRAY<STRUCT<committed_offset: BIGINT, committed_at: TIMESTAMP>>"
    )
    rows = [
        (group, 3, topic, at, lag, is_bound, None, 0, 300, 0, None)
        for group, of_group in samples.items()
        for topic, lag, is_bound in of_group
    ]
    schema = (
        "group_id STRING, lag_run BIGINT, topic STRING, sampled_at TIMESTAMP, lag BIGINT, "
        "lag_is_bound BOOLEAN, committed_at TIMESTAMP, topic_partition INT, "
        "committed_offset BIGINT, "
        "log_start_offset BIGINT, log_end_offset BIGINT"
    )
    lag, last = spark.createDataFrame(rows, schema), spark.createDataFrame(committed, known)
    found = transform._lags(lag, last).collect()
    # 250 in the last four steps, of the one that lags for certain.
    assert {row.group_id: row.usual_step for row in found if row.usual_step} == {"waits": 62}
    told = {row.group_id: (row.lag, [tuple(t) for t in row.topics]) for row in found}
    assert told == {
        "keeps-up": (None, [("t", 0), ("u", None)]),
        "waits": (5, [("t", None), ("u", None)]),
        "at-the-end": (0, [("t", 0), ("u", None)]),
        "of-an-old-release": (5, [("t", 5)]),
    }


def test_the_front_page_of_a_log_without_times_has_the_last_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = pq.read_table(OLD)
    for name, value in (("timestamp", -1), ("timestampType", "NoTimestampType")):
        column = pa.array([value] * len(records), records.schema.field(name).type)
        records = records.set_column(records.schema.get_field_index(name), name, column)
    pq.write_table(records, tmp_path / "r.parquet")
    root = str(tmp_path / "lakehouse")
    succeed("silver", "--records", tmp_path / "r.parquet", "--lakehouse", root)
    succeed("history", "--lakehouse", root)
    succeed("anomalies", "--lakehouse", root)
    last: dict[str, Row] = {}
    for row in table(spark, root, GROUP_STATES.name).orderBy("sequence").collect():
        last[row.group_id] = row
    assert any(row.sequence > 0 and row.started_at is None for row in last.values())
    health = table(spark, root, GROUP_HEALTH.name).collect()
    assert sorted((h.group_id, h.state) for h in health) == sorted(
        (group, row.state) for group, row in last.items()
    )


def test_offset_progress_adds_up(spark: SparkSession, root: str) -> None:
    progress = table(spark, root, "gold.offset_progress", "one")
    commits = table(spark, root, "silver.offset_commits", "one").where(~F.col("is_tombstone"))
    assert progress.agg(F.sum("commits")).first()[0] == commits.count()
    steps = progress.agg(
        F.sum(F.col("progressed_offsets") - F.col("rewound_offsets")).alias("net")
    ).first()
    ends = commits.groupBy("group_id", "topic", "topic_partition").agg(
        F.min_by("committed_offset", "record_offset").alias("first"),
        F.max_by("committed_offset", "record_offset").alias("last"),
    )
    assert steps.net == ends.agg(F.sum(F.col("last") - F.col("first"))).first()[0]


def test_bytes_in_the_log_are_those_of_the_records(spark: SparkSession, root: str) -> None:
    commits = table(spark, root, "silver.offset_commits", "one").select(
        "record_partition", "record_offset"
    )
    records = table(spark, root, "bronze.records", "one")
    sizes = records.join(commits, ["record_partition", "record_offset"]).select(
        (F.length("key") + F.coalesce(F.length("value"), F.lit(0))).alias("size")
    )
    whole = table(spark, root, "gold.offset_progress", "one").agg(F.sum("log_bytes")).first()[0]
    assert whole == sizes.agg(F.sum("size")).first()[0]


# -- the views -------------------------------------------------------------------------------------


def test_the_timeline_between_two_times_has_a_cause_for_each_rebalance(root: str) -> None:
    rows = query(
        root,
        "SELECT state, cause FROM gold.timeline WHERE cluster = 'one' AND group_id = 'crash-loop'"
        " ORDER BY sequence",
    )
    assert [r["state"] for r in rows[:4]] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
    ]
    assert all(r["cause"] is not None for r in rows)
    assert {r["cause"] for r in rows[7:-2]} == {"new_member"}


def test_owners_at_a_time_are_the_assignment_in_force(spark: SparkSession, root: str) -> None:
    generation = (
        table(spark, root, "silver.group_metadata", "one")
        .where("group_id = 'orders-storm' AND generation = 50")
        .first()
    )
    expected = sorted(
        (part.topic, number, member.member_id)
        for member in generation.members
        for part in member.assignment.partitions
        for number in part.partitions
    )
    micros = round(generation.record_timestamp.timestamp() * 1_000_000)
    rows = query(
        root,
        f"SELECT topic, topic_partition, member_id FROM owners_at(timestamp_micros({micros}))"
        " WHERE cluster = 'one' AND group_id = 'orders-storm' ORDER BY ALL",
    )
    assert [tuple(row.values()) for row in rows] == expected


@cache
def asked_once(root: str, texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return what some statements give together, of all groups."""
    return query(root, " UNION ALL ".join(texts))


@pytest.mark.parametrize("group", GAP_GROUPS)
def test_owners_are_not_known_where_records_are_missing(gap: str, group: str) -> None:
    moments = (GAP_SINCE, GAP_SINCE + HOUR // 2, GAP_SINCE + HOUR)

    def owners(at: int) -> list[tuple[object, ...]]:
        texts = tuple(
            f"SELECT {at} AS at, group_id, topic_partition, client_id, member_id IS NULL AND"
            " generation IS NULL AND since IS NULL AS unknown, not_known_since"
            f" FROM owners_at(timestamp_millis({at}))"
            for at in moments
        )
        found = (r for r in asked_once(gap, texts) if (r["at"], r["group_id"]) == (at, group))
        return sorted(tuple(row.values())[2:] for row in found)

    def answers(at: int) -> dict[str, str | None]:
        texts = tuple(
            f"SELECT {at} AS at, * FROM heartbeat_answers_at(timestamp_millis({at}), 1)"
            for at in moments[:2]
        )
        found = (r for r in asked_once(gap, texts) if (r["at"], r["group_id"]) == (at, group))
        return {row["client_id"]: row["answer"] for row in found}

    first, second = (0, 1) if group == "gap-modern" else (1, 0)
    before = [(0, "client-a", False, None), (1, "client-b", False, None)]
    assert owners(GAP_SINCE) == before
    since = "2023-11-14 22:13:20"
    assert owners(GAP_SINCE + HOUR // 2) == [(0, None, True, since), (1, None, True, since)]
    after = sorted([(first, "client-c", False, None), (second, "client-b", False, None)])
    assert owners(GAP_SINCE + HOUR) == after
    # A move from an owner that may not have been the last one is told without it.
    text = (
        "SELECT group_id, replaced_member_id AS former FROM gold.generation_changes"
        " WHERE change = 'partition moved'"
    )
    moves = [row["former"] for row in asked_once(gap, (text,)) if row["group_id"] == group]
    assert moves
    assert {*moves} == {None}
    if group == "gap-classic":
        assert answers(GAP_SINCE) == {"client-a": "NONE", "client-b": "NONE"}
        assert answers(GAP_SINCE + HOUR // 2)["client-a"] is None


def test_rebalances_per_hour_add_up(spark: SparkSession, root: str) -> None:
    (row,) = query(
        root,
        "SELECT sum(rebalances) AS n FROM gold.rebalances_per_hour"
        " WHERE cluster = 'one' AND group_id = 'orders-storm'",
    )
    whole = table(spark, root, "gold.group_generations", "one")
    assert row["n"] == whole.where("group_id = 'orders-storm' AND generation > 0").count()


def test_the_changes_of_a_generation_name_members_and_partitions(root: str) -> None:
    rows = query(
        root,
        "SELECT DISTINCT change FROM gold.generation_changes WHERE cluster = 'one'"
        " AND group_id = 'crash-loop' AND generation = 3",
    )
    assert {r["change"] for r in rows} == {"member joined", "member left", "partition moved"}


def test_a_heartbeat_is_answered_by_state_membership_and_generation(
    spark: SparkSession, root: str
) -> None:
    states = table(spark, root, "gold.group_states", "one").where("group_id = 'crash-loop'")
    of_state = {row.state: row for row in states.where("generation = 4").collect()}
    asked = []
    for name in ("CompletingRebalance", "Stable", "PreparingRebalance"):
        micros = round(of_state[name].started_at.timestamp() * 1_000_000) + 1_000
        asked += [
            f"SELECT DISTINCT '{name}' AS state, {generation} AS generation, answer FROM"
            f" heartbeat_answers_at(timestamp_micros({micros}), {generation})"
            " WHERE cluster = 'one' AND group_id = 'crash-loop'"
            for generation in (4, 3)
        ]
    answers: dict[tuple[str, int], list[str]] = defaultdict(list)
    for row in query(root, " UNION ALL ".join(asked)):
        answers[row["state"], row["generation"]].append(row["answer"])
    assert answers == {
        ("CompletingRebalance", 4): ["NONE"],
        ("CompletingRebalance", 3): ["ILLEGAL_GENERATION"],
        ("Stable", 4): ["NONE"],
        ("Stable", 3): ["ILLEGAL_GENERATION"],
        ("PreparingRebalance", 4): ["REBALANCE_IN_PROGRESS"],
        ("PreparingRebalance", 3): ["ILLEGAL_GENERATION"],
    }


def test_while_attempts_to_rebalance_are_given_up_the_answer_is_not_known(
    spark: SparkSession, root: str
) -> None:
    rows = table(spark, root, GROUP_GENERATIONS.name, "one").where("group_id = 'orders-storm'")
    aborted = rows.where("aborted_generations > 0 AND join_ms > 10").orderBy("generation").first()
    assert aborted is not None
    before, times = aborted.previous_generation, aborted.aborted_generations
    micros = round(aborted.join_started_at.timestamp() * 1_000_000) + 1_000
    text = " UNION ALL ".join(
        f"SELECT DISTINCT {number} AS sent, answer FROM heartbeat_answers_at("
        f"timestamp_micros({micros}), {number}) WHERE cluster = 'one' AND group_id = 'orders-storm'"
        for number in (before - 1, before, before + times, before + times + 1)
    )
    answers = {row["sent"] - before: row["answer"] for row in query(root, text)}
    illegal = "ILLEGAL_GENERATION"
    assert answers == {-1: illegal, 0: None, times: None, times + 1: illegal}


def test_members_of_a_group_that_was_made_anew_are_not_mixed(
    spark: SparkSession, lakehouse_path: str
) -> None:
    """Its epochs begin again, and a member may get to one while the next is there already."""
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    start = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    week = dt.timedelta(days=7)
    epochs = [(1, 10, start), (2, 20, start + dt.timedelta(seconds=30)), (1, 100, start + week)]
    generation = {"group_id": "g", "group_type": "consumer", "record_partition": 0}
    lakehouse.append(
        GROUP_GENERATIONS,
        [
            generation | {"generation": epoch, "record_offset": offset, "join_started_at": at}
            for epoch, offset, at in epochs
        ],
    )
    reconciled = [("first", 12, 1), ("slow", 25, 40), ("second", 102, week.total_seconds() + 2)]
    assignment = {"group_id": "g", "member_epoch": 1, "state": 0, "record_partition": 0}
    lakehouse.append(
        decoded_table("consumer_group_current_member_assignment"),
        [
            assignment
            | {"member_id": member, "record_offset": offset}
            | {"record_timestamp": start + dt.timedelta(seconds=seconds)}
            for member, offset, seconds in reconciled
        ],
    )
    for spec in (RECORDS, MEMBER_SESSIONS):
        lakehouse.create(spec)
    rows = query(
        lakehouse_path, "SELECT member_id, reconcile_ms FROM gold.slowest_members ORDER BY ALL"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("first", 1_000),
        ("second", 2_000),
        ("slow", 40_000),
    ]


def test_sql_cuts_no_value_of_json_and_makes_no_folder_here(spark: SparkSession, root: str) -> None:
    assert query(root, "SELECT repeat('x', 1000) AS long") == [{"long": "x" * 1_000}]
    of_tables_without_a_place = urlsplit(spark.catalog.getDatabase("default").locationUri).path
    assert Path(of_tables_without_a_place).parent == Path(tempfile.gettempdir())


def test_sql_that_cannot_run_is_refused_in_one_line(root: str) -> None:
    outcome = run("sql", "--lakehouse", root, "--query", "SELECT nope FROM gold.timeline")
    assert outcome.status == 1
    assert "nope" in outcome.complaint


def test_what_a_killed_run_has_written_is_not_counted_again_by_what_comes_behind(
    thrice: Thrice, tmp_path: Path
) -> None:
    """The next run ends it and goes on with newer records, in one process."""
    root = shutil.copytree(thrice.behind[1], tmp_path / "lakehouse")
    first, second = halves_of(thrice.parts[2], tmp_path)
    succeed("silver", "--records", first, "--lakehouse", root)
    with killed_behind(COMMITTED_OFFSETS):  # the checkpoints are written behind it
        assert run("history", "--lakehouse", root).status == INTERRUPTED
    golden.add(second, root)
    assert golden.told(root) == golden.told(thrice.behind[2])
