"""What detectors ask of the tables, answered by DuckDB and by Spark: the same, for any rows."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from detectors import health, log
from detectors.thresholds import Values, read_thresholds
from schemas.gold import OK, REWIND, STOP
from schemas.tables import (
    ANOMALIES,
    COMMITTED_OFFSETS,
    COVERAGE,
    GROUP_GENERATIONS,
    GROUP_HEALTH,
    GROUP_STATES,
    LAG,
    MEMBER_SESSIONS,
    OFFSET_PROGRESS,
    QUARANTINE,
    RECORDS,
    all_tables,
)
from storage.lakehouse import Lakehouse
from storage.local import asked_here
from storage.queries import Ask, by_spark, rows_by
from tests.support.webhook import anomaly

Row = dict[str, Any]

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_000
LIMITS = read_thresholds(None)
NEW = log.Asked(
    *("ingest_run > 0", "decode_run > 0"),
    Counter({log.QUARANTINE: 1, log.METADATA: 1}),
    since=NOW - 30 * DAY,
    hours="true",
)
STUCK = log.unchanged(NEW.hours, LIMITS)


def at(millis: int | None) -> dt.datetime | None:
    if millis is None:
        return None
    return dt.datetime.fromtimestamp(millis / 1_000, dt.timezone.utc)


def state(group: str, sequence: int, name: str, ended: int | None = None) -> Row:
    about = {"group_type": "classic", "evidence": "exact", "is_settled": sequence == 0}
    times = {"started_at": at(NOW - DAY + sequence), "ended_at": at(ended)}
    times["record_timestamp"] = at(NOW - DAY + sequence)
    record = {"record_partition": 3, "record_offset": sequence, "history_run": 0}
    return {"group_id": group, "sequence": sequence, "state": name, "member_count": sequence} | (
        about | times | record
    )


def last(group: str, partition: int, offset: int, written: int | None, **given: object) -> Row:
    about = {"group_id": group, "topic": "orders", "topic_partition": partition}
    record = {"record_partition": partition, "record_offset": offset, "is_deleted": False}
    times = {"record_timestamp": at(written), "committed_at": at(NOW - HOUR)}
    return about | record | times | given


def lag(group: str, status: str | None, committed: int | None = None, behind: int = 5) -> Row:
    about = {"group_id": group, "topic": "orders", "topic_partition": committed or 0, "lag_run": 4}
    times = {"sampled_at": at(NOW), "commits_known_until": at(NOW - behind)}
    times["committed_at"] = None if committed is None else at(NOW - committed)
    return about | times | {"status": status, "lag": behind, "lag_is_bound": behind > 5}


def generation(group: str, begun: int, rebalance_ms: int | None) -> Row:
    about = {"group_id": group, "group_type": "classic", "is_settled": True, "history_run": 0}
    record = {"record_partition": 0, "record_offset": begun, "generation": 1}
    return about | record | {"join_started_at": at(NOW - begun), "rebalance_ms": rebalance_ms}


def refused(offset: int, error: str, written: int | None) -> Row:
    record = {"record_partition": 7, "record_offset": offset, "record_timestamp": at(written)}
    return record | {"error": error, "decode_run": 1}


def commit(group: str, offset: int, written: int, record: int) -> Row:
    about = {"group_id": group, "topic": "orders", "topic_partition": 0, "is_tombstone": False}
    where = {"record_partition": 2, "record_offset": record, "decode_run": 1}
    return about | where | {"committed_offset": offset, "record_timestamp": at(written)}


def hour(group: str, commits: int, offset: int) -> Row:
    about = {"group_id": group, "topic": "orders", "topic_partition": 0, "history_run": 0}
    first, end = NOW - 6 * HOUR, NOW - HOUR
    times = {"hour": at(NOW // HOUR * HOUR - 2 * HOUR), "unchanged_since": at(first)}
    times |= {"first_commit_at": at(first), "last_commit_at": at(end), "unchanged_until": at(end)}
    counts = {"commits": commits, "unchanged_commits": commits, "unchanged_offset": offset}
    record = {"record_partition": 2, "record_offset": 9, "last_committed_offset": offset}
    return about | times | counts | record


OLD = NOW - 40 * DAY
WHO = {"client_id": "é'; -- \\", "client_host": "/h", "group_type": "classic", "is_settled": False}
ROWS: dict[Any, list[Row]] = {
    GROUP_STATES: [
        *(state("busy", 0, "Empty"), state("busy", 1, "Empty", NOW), state("busy", 2, "Stable")),
        state("gone", 1, "Empty", NOW - HOUR),
    ],
    COMMITTED_OFFSETS: [
        *(last("busy", 0, 11, NOW - 2 * HOUR), last("busy", 1, 17, None)),
        *(last("busy", 2, 99, NOW, is_deleted=True), last("left", 1, 5, NOW, is_deleted=True)),
        *(last("tied", 2, 6, NOW - HOUR), last("tied", 5, 6, None, committed_at=None)),
    ],
    LAG: [
        *(lag("busy", OK), lag("busy", STOP, 50), lag("busy", STOP, 90, behind=7)),
        *(lag("back", REWIND), lag("none", None), lag("none", "no such status")),
        lag("busy", "ERR") | {"lag_run": 3},
    ],
    GROUP_HEALTH: [
        {"group_id": name, "health": "ok", "worst_lag_status": status, "lag_status_since": at(NOW)}
        for name, status in (("busy", STOP), ("well", OK), ("back", None))
    ],
    GROUP_GENERATIONS: [
        *(generation("busy", n * MINUTE, n) for n in (5, 61, 25 * 60)),
        *(generation("busy", 8 * DAY, 8), generation("back", MINUTE, None)),
    ],
    ANOMALIES: [
        anomaly("1", group_id="busy", anomalies_run=1, is_open=True),
        anomaly("2", "critical", group_id="busy", anomalies_run=2, is_open=True, started_at=at(5)),
        anomaly("3", group_id="busy", anomalies_run=2, kind="hot_partition", ended_at=at(NOW)),
        anomaly("4", "info", group_id="back", anomalies_run=2, ended_at=at(NOW - 2 * DAY)),
        anomaly("5", group_id=None, anomalies_run=1, ended_at=None, kind="coverage_gap"),
    ],
    COVERAGE: [
        {"record_partition": 1, "ingest_run": n, "from_offset": 0, "next_offset": 9, "holes": holes}
        for n, holes in enumerate([[], [], [], None])
    ],
    QUARANTINE: [
        *(refused(4, "byte 7: é", None), refused(5, "byte 7: é", NOW), refused(8, "byte 2", NOW)),
        *(refused(9, "byte 2", NOW + 1), refused(2, "earlier", NOW)),
    ],
    RECORDS: [
        {"record_partition": 7, "record_offset": n, "ingest_run": int(n > 3)}
        for n in (2, 4, 5, 8, 9)
    ],
    all_tables()[log.METADATA]: [
        {"group_id": "wide", "record_offset": n, "decode_run": 1, "record_timestamp": at(NOW)}
        | {"record_partition": 3, "members": [{"member_id": "é", "assignment_bytes": b"x" * each}]}
        for n, each in enumerate([600_000, 9])
    ],
    all_tables()[log.COMMITS]: [
        *(commit("busy", 5 + n, OLD + n, n) for n in range(3)),
        *(commit("ahead", n, NOW - 5 * HOUR + n, 50 + n) for n in (30, 40)),
        *(commit("ahead", 90, NOW, 99), commit("busy", 99, NOW - 90 * MINUTE, 98)),
    ],
    OFFSET_PROGRESS: [hour("busy", 90, 7), hour("ahead", 90, 40), hour("calm", 3, 9)],
    MEMBER_SESSIONS: [
        *(
            WHO | {"group_id": name, "member_id": name, "record_offset": 1, "record_partition": 0}
            for name in ("a'b", "c\\d", "other")
        ),
    ],
}
COVERAGE_HOLE = {"start_offset": 3, "end_offset": 8, "reason": "truncated"}
ROWS[COVERAGE][2]["holes"] = [COVERAGE_HOLE, COVERAGE_HOLE | {"reason": "compacted"}]


def cleaner() -> log.Question:
    limits: Values = {
        "cleaner_stalled": {"age_ms": DAY, "least_records": 2, "superseded_share": 0.5}
    }
    return log.cleaner_stalled(NEW.is_decoded, limits, NOW)


def overtaken() -> log.Question:
    of_stuck = {"unchanged_since": NOW - 6 * HOUR, "unchanged_until": NOW - HOUR}
    return log.overtaken(STUCK, [of_stuck], LIMITS)


ASKED = {
    "groups": health.GROUPS_NOW,
    "known": health.known_anomalies(NOW, 2),
    "rebalances": health.rebalances(NOW),
    "lags": health.lags(4),
    "former": health.FORMER,
    "sampled": health.sampled_until(4),
    "coverage": log.coverage_gaps(NEW.is_read).sql,
    "undecodable": log.undecodable(NEW.is_read).sql,
    "oversized": log.oversized(NEW.is_decoded, LIMITS).sql,
    "cleaner": cleaner().sql,
    "hot": log.hot_partitions(NEW.hours, LIMITS.values).sql,
    "stuck": STUCK,
    "overtaken": overtaken().sql,
    "sessions": log.SESSIONS,
}


@pytest.fixture(scope="module")
def lakehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    made = Lakehouse(spark, str(tmp_path_factory.mktemp("asked") / "lakehouse"), "default")
    for spec, rows in ROWS.items():
        types = {c.name: c.type.sql() for c in spec.columns}
        odd = {"STRING": "any", "TIMESTAMP": at(NOW), "BOOLEAN": False}
        filled = {name: odd.get(types[name], 0) for name in spec.required if name != "cluster"}
        made.append(spec, [filled | row for row in rows])
        # Nothing that is asked of one cluster is another's.
        Lakehouse(spark, made.root, "other").append(spec, [filled | row for row in rows])
    return made


def told(ask: Ask) -> dict[str, list[Row]]:
    answers = rows_by(ask, ASKED, names=["a'b", "c\\d"])
    return {name: sorted(rows, key=repr) for name, rows in answers.items()}


@pytest.fixture(scope="module")
def here(lakehouse: Lakehouse) -> dict[str, list[Row]]:
    return told(asked_here(Path(lakehouse.root), "default"))


def test_spark_answers_the_same(lakehouse: Lakehouse, here: dict[str, list[Row]]) -> None:
    by_other = told(by_spark(lakehouse))
    for row in (*here["known"], *by_other["known"]):
        assert row.pop("mark")  # each has a hash of its own
    assert by_other == here
    assert all(here.values())


def test_what_groups_are(here: dict[str, list[Row]]) -> None:
    busy, gone, left, tied = here["groups"]
    held = ("partitions", "held_partition", "held_offset", "held_at", "kept_at")
    assert [busy[name] for name in held] == [2, 1, 17, None, NOW - HOUR]
    # The last of its states, and the newest of all records, though it deletes an offset.
    assert (busy["state"], busy["since"], busy["members"]) == ("Stable", NOW - DAY + 2, 2)
    assert (busy["newest_at"], busy["record_partition"], busy["until"]) == (NOW, 2, None)
    assert (gone["state"], gone["until"], gone["partitions"]) == ("Empty", NOW - HOUR, 0)
    assert (left["state"], left["partitions"], left["held_offset"]) == (None, 0, None)
    assert (tied["held_partition"], tied["held_at"]) == (5, None)


def test_what_groups_did(here: dict[str, list[Row]]) -> None:
    back, busy = here["rebalances"]
    windows = ("1h", "24h", "7d")
    assert [busy[f"rebalances_{name}"] for name in windows] == [1, 2, 3]
    assert [busy[f"rebalancing_{name}_ms"] for name in windows] == [5, 66, 1566]
    assert [back[f"rebalancing_{name}_ms"] for name in windows] == [None] * 3
    by_group = {row["group_id"]: row for row in here["lags"]}
    # The worst status, and since when the first partition with it has it.
    assert (by_group["busy"]["lag_status"], by_group["busy"]["lag_status_at"]) == (4, NOW - 90)
    assert (by_group["busy"]["total_lag"], by_group["busy"]["lag_is_bound"]) == (17, True)
    assert (by_group["none"]["lag_status"], by_group["none"]["total_lag"]) == (None, 10)
    assert [row["group_id"] for row in here["former"]] == ["busy"]
    assert here["sampled"] == [{"at": NOW - 7}]
    known = {row["group_id"] or row["kind"]: row for row in here["known"]}
    assert (known["busy"]["open_anomalies"], known["busy"]["anomalies_24h"]) == (2, 3)
    assert (known["rebalance_storm"]["known"], known["rebalance_storm"]["written"]) == (3, 2)
    (now,) = health.group_health(here["groups"][:1], [here["known"]], LIMITS, NOW)
    assert (now["health"], now["worst_anomaly"]) == ("critical", "rebalance_storm")


def test_what_is_found(here: dict[str, list[Row]]) -> None:
    (hole,) = log.coverage_gaps("").found(here["coverage"])
    assert (hole.hit.label, hole.hit.sums) == ("truncated", {"offsets": 6, "holes": 1})
    # The first error by its text, where several are as frequent; an earlier run had read another.
    (refused,) = log.undecodable("").found(here["undecodable"])
    assert (refused.hit.sums, refused.hit.last_values) == ({"records": 4}, {"error": "byte 2"})
    first, end = refused.hit.first, refused.hit.last
    assert first is not None
    assert (first.offset, first.timestamp, end.offset, end.timestamp) == (4, None, 9, NOW + 1)
    (wide,) = log.oversized("", LIMITS).found(here["oversized"])
    assert (wide.group_id, wide.hit.maxima) == ("wide", {"bytes": 600_022})
    (stalled,) = cleaner().found(here["cleaner"])
    assert stalled.hit.maxima == {"records": 3, "superseded_share": 0.667}
    (hot,) = here["hot"]
    assert (hot["busiest"], hot["commits"]) == ("ahead", 183)
    (passed,) = overtaken().found(here["overtaken"])
    assert (passed.group_id, passed.hit.maxima["other_offset"]) == ("busy", 40)
    assert {row["group_id"] for row in here["sessions"]} == {"a'b", "c\\d"}
