"""Offsets of many groups that somebody sets at once: one incident, also where runs cut it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from detectors.health import known_anomalies
from jobs.anomalies import tell_incidents
from schemas.ledger import Detail, RunId
from schemas.placement import partition_for
from schemas.tables import ANOMALIES, INCIDENTS, MEMBER_SESSIONS
from storage.lakehouse import Lakehouse
from storage.local import quickest
from storage.queries import Ask, by_spark, rows_by
from storage.runs import StageRun
from storage.tables import sql_text
from tests.support.jobs import asked, run, sampled, succeed
from tests.support.topic import HOUR, MINUTE, PARTITIONS, Topic
from tests.support.webhook import NOW, Webhook, anomaly

START = 1_700_000_000_000
SET_AT = START + HOUR
GROUPS = ("bills", "fares", "rides", "ships")


def lives(topic: Topic) -> None:
    """Let groups read for half an hour, and then stop."""
    for group in GROUPS:
        partition = partition_for(group, PARTITIONS)
        topic.generation(group, START, 1, a=0)
        for minute in range(30):
            topic.commits(group, partition, START + minute * MINUTE + 1_000, 100 + minute)
        topic.generation(group, START + 31 * MINUTE, 2)


def test_a_restore_is_told_as_one_wherever_it_is_told(
    spark: SparkSession, tmp_path: Path, webhook: Webhook
) -> None:
    root, topic, page = tmp_path / "lakehouse", Topic(), tmp_path / "report.html"
    lakehouse = Lakehouse(spark, str(root), "default")

    def run_on(number: int, *skipped: str) -> None:
        path = topic.write(tmp_path / f"{number}.parquet")
        line = ("--records", path, "--lakehouse", root, "--output", page, "--skip", *skipped)
        assert run("pipeline", *line, "--notify", webhook.url).status == 0

    lives(topic)
    # Two of them before the run ends, and the others behind it.
    for seconds, group in enumerate(GROUPS[:2]):
        topic.commits(group, partition_for(group, PARTITIONS), SET_AT + seconds * 1_000, 10)
    run_on(0, "report,validate")
    assert not asked(root, "SELECT * FROM gold.incidents")
    made = lakehouse.version(INCIDENTS)  # for who asks: it has no rows
    for seconds, group in enumerate(GROUPS[2:]):
        topic.commits(group, partition_for(group, PARTITIONS), SET_AT + 9_000 + seconds, 10)
    topic.generation("beside", SET_AT + HOUR, 1, a=0)
    run_on(1, "validate")
    (one,) = asked(root, "SELECT * FROM gold.incidents")
    cause = "offsets_set"
    assert (one["cause"], one["severity"], one["is_open"]) == (cause, "warning", False)
    assert one["groups"] == [*GROUPS]
    ids = asked(root, "SELECT anomaly_id FROM gold.anomalies WHERE kind = 'offset_reset'")
    assert sorted(one["anomaly_ids"]) == sorted(row["anomaly_id"] for row in ids)
    posted = [[row["kind"] for row in message["anomalies"]] for message in webhook.received]
    assert posted == [["offset_reset"] * 2, ["incident"]]
    assert webhook.received[1]["anomalies"][0]["groups"] == [*GROUPS]
    assert one["summary"] in page.read_text("utf-8")
    span = ("--since", "2023-11-14T23:00:00Z", "--until", "2023-11-15T00:00:00Z")
    told = run("explain", "--lakehouse", root, "--group", GROUPS[3], *span).summary["events"]
    assert [e["text"] for e in told if e["text"].startswith("Part of an incident of 4 groups: ")]
    # Nothing of it is new: nothing is written.
    at = dt.datetime.fromtimestamp((START + 4 * HOUR) / 1_000, dt.timezone.utc)
    beside = {"group_id": "beside", "topic": "orders", "topic_partition": 0, "status": "OK"}
    sampled(lakehouse, 0, at, beside | {"lag": 0, "commits_known_until": at})
    assert succeed("anomalies", "--lakehouse", root)["anomalies_run"] is True
    assert lakehouse.version(INCIDENTS, made) == made + 1
    # A full refresh finds the same.
    succeed("anomalies", "--lakehouse", root, "--thresholds", _other(tmp_path))
    assert asked(root, "SELECT incident_id, groups, anomaly_ids FROM gold.incidents") == [
        {name: one[name] for name in ("incident_id", "groups", "anomaly_ids")}
    ]


@pytest.mark.parametrize("asks", [quickest, by_spark])
def test_clients_are_held_against_all_groups_that_have_them(
    spark: SparkSession, lakehouse_path: str, asks: Callable[[Lakehouse], Ask]
) -> None:
    lakehouse = Lakehouse(spark, lakehouse_path, "default")
    ask = asks(lakehouse)

    def storm(number: int, client: str) -> dict[str, Any]:
        evidence = json.dumps({"clients": [f"{client}@/10.0.0.1"]})
        about = {"evidence": evidence, "group_id": f"{client}-{number}", "is_open": True}
        return anomaly(f"{client}-{number}", anomalies_run=0, **about)

    def session(group: str, client: str, hours: int = 2) -> dict[str, Any]:
        begun = NOW - dt.timedelta(hours=hours)
        about = {"group_type": "classic", "history_run": 0, "is_settled": False}
        record = {"record_partition": 0, "record_offset": 0}
        member = {"member_id": f"{group} {hours}", "client_id": client, "joined_at": begun}
        left = {"left_at": None if hours < 3 else begun + dt.timedelta(minutes=1)}
        return {"group_id": group, **member, **left, **about, **record}

    names = ("pay 'n' ship-1", "app-1")
    lakehouse.replace(ANOMALIES, [storm(n, client) for client in names for n in range(3)])
    sessions = [session(f"{client}-{n}", client) for client in names for n in range(3)]
    sessions += [session(f"well-{n}", "app-7") for n in range(4)]
    # They were gone by then, or have a name that only begins like it.
    sessions += [session(f"gone-{n}", names[0], hours=30) for n in range(4)]
    sessions += [session(f"other-{n}", "pay 'n' ship-them") for n in range(4)]
    lakehouse.append(MEMBER_SESSIONS, sessions)

    def told(former: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        run = RunId("anomalies", len(former))
        about = {"is_refresh": False, "is_resumed": False, "plan": {}, "former": former}
        stage = StageRun(run, after=-1, to=0, **about)
        as_of = round(NOW.timestamp() * 1000)
        known = rows_by(ask, {"known": known_anomalies(as_of, run.number)})["known"]
        kinds = [row for row in known if row["kind"] is not None]
        return tell_incidents(lakehouse, ask, stage, [], kinds)

    written, noted = told({})
    (one,) = asked(lakehouse.root, "SELECT * FROM gold.incidents")
    assert (written, one["cause"], one["subject"]) == (1, "client", "pay 'n' ship-*")
    assert noted["open_since"] == round(one["started_at"].timestamp() * 1000)
    # As long as it is open it is looked at again, and written only if it is another.
    assert told({Detail.INCIDENTS: noted}) == (0, noted)
    worse = storm(1, names[0]) | {"severity": "critical", "anomalies_run": 1}
    lakehouse.replace(ANOMALIES, [worse], where=f"anomaly_id = {sql_text(worse['anomaly_id'])}")
    assert told({Detail.INCIDENTS: noted})[0] == 1
    (again,) = asked(lakehouse.root, "SELECT * FROM gold.incidents")
    assert (again["incident_id"], again["severity"]) == (one["incident_id"], "critical")


def _other(tmp_path: Path) -> Path:
    path = tmp_path / "thresholds.toml"
    path.write_text("[hot_partition]\nshare = 0.7\n", "utf-8")
    return path
