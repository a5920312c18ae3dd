"""Anomalies of many groups with one cause are one incident; what only looks alike stays single."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from detectors import incidents as rule
from detectors.incidents import CAUSES, KINDS, Known, clients_of, groups_of, incidents
from schemas.gold import INCIDENTS
from schemas.placement import partition_for
from tests.support.detection import detected
from tests.support.topic import PARTITIONS, Topic

ROOT = Path(__file__).parents[2]

Row = dict[str, Any]
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
AT = 1_800_000_000_000
NUMBERS = itertools.count()


def anomaly(kind: str, group: str, at: float = 0, **given: Any) -> Row:  # noqa: ANN401
    """Return a row of gold.anomalies that begins so many minutes after `AT`."""
    lasts, evidence = given.pop("lasts", 5), given.pop("evidence", {})
    return {
        "anomaly_id": f"a{next(NUMBERS):05}",
        "kind": kind,
        "severity": "warning",
        "group_id": group,
        "subject": None,
        "label": None,
        "started_at": AT + round(at * MINUTE),
        "ended_at": AT + round((at + lasts) * MINUTE),
        "is_open": False,
        "evidence": json.dumps(evidence),
        "first_record_partition": 7,
        **given,
    }


def told(anomalies: list[Row], **known: Any) -> list[Row]:  # noqa: ANN401
    """Return the incidents; `groups_of` are the groups with the clients that are asked for."""
    clients = clients_of(anomalies)
    others = known.pop("groups_of", {})
    members = [
        {"client": number, "group_id": group, "client_id": client.name.replace("*", "5")}
        for number, client in enumerate(clients)
        for group in others.get(client.name, ())
    ]
    given = {"places": {}, "former": [], **known}
    return incidents(anomalies, Known(groups_of=groups_of(clients, members), **given), "c")


def reset(group: str, at: float = 0, **given: Any) -> Row:  # noqa: ANN401
    evidence = {"backward_offsets": 100, "partitions": 4}
    return anomaly("offset_reset", group, at, lasts=0, evidence=evidence, **given)


def storm(group: str, at: float = 0, client: str = "payments", **given: Any) -> Row:  # noqa: ANN401
    evidence = {"clients": [f"{client}@/10.0.0.1"], "causes": {"member_left": 4}}
    return anomaly("rebalance_storm", group, at, **{"evidence": evidence, **given})


def stall(group: str, at: float = 0, partition: int = 7, **given: Any) -> Row:  # noqa: ANN401
    given = {"label": "records_wait", "first_record_partition": partition, "lasts": 60, **given}
    return anomaly("commit_stall", group, at, **given)


# -- offsets that somebody set ---------------------------------------------------------------------


def test_a_restore_is_one_incident_with_the_worst_severity_of_all() -> None:
    rows = [reset(f"g{number:02}", number / 60) for number in range(30)]
    rows[3]["severity"], rows[4]["is_open"] = "critical", True
    (one,) = told(rows)
    assert (one["cause"], one["severity"], one["is_open"]) == ("offsets_set", "critical", True)
    assert (one["group_count"], one["anomaly_count"], one["subject"]) == (30, 30, None)
    assert (one["started_at"], one["ended_at"]) == (AT, AT + 29_000)
    assert one["groups"] == [f"g{number:02}" for number in range(30)]
    assert one["anomaly_ids"] == [row["anomaly_id"] for row in rows]
    assert one["summary"].startswith("Somebody set 120 offsets of 30 groups within 29.0 s (")
    assert "g00, g01, g02 and 27 more. Ask who" in one["summary"]
    assert one.keys() | {"anomalies_run"} == {column.name for column in INCIDENTS} | {
        "anomalies_run"
    }


@pytest.mark.parametrize(
    "rows",
    [
        [reset("a"), reset("b")],
        [reset("a"), reset("b", 0.1), reset("a", 0.2), reset("b", 0.3)],
        [reset("a"), reset("b", 5), reset("c", 10)],
        [reset("a"), reset("b"), anomaly("offset_rewind", "c")],
    ],
    ids=["two groups", "two groups, twice each", "minutes apart", "a consumer that seeks"],
)
def test_offsets_of_few_groups_or_at_other_times_stay_single(rows: list[Row]) -> None:
    assert told(rows) == []


# -- topics ----------------------------------------------------------------------------------------


def deleted(group: str, topic: str = "orders", at: float = 0) -> Row:
    return anomaly("orphan_topic", group, at, label="deleted", subject=topic)


def gone(group: str, *topics: str) -> Row:
    offsets = [f"{topic}/0: 7" for topic in topics]
    about = {"label": "deleted", "subject": "deleted", "severity": "info"}
    return anomaly("offsets_expired", group, evidence={"offsets": offsets}, **about)


def test_a_topic_that_is_deleted_under_many_groups_is_one_incident() -> None:
    rows = [deleted("a"), deleted("b", at=2), gone("c", "other", "orders"), deleted("d", "bills")]
    (one,) = told(rows)
    assert (one["cause"], one["subject"], one["groups"]) == (
        *("topic_deleted", "orders"),
        ["a", "c", "b"],
    )
    assert "orders was deleted, which 3 groups had offsets of (" in one["summary"]


@pytest.mark.parametrize(
    "rows",
    [
        [deleted("a", "x"), deleted("b", "y"), deleted("c", "z")],
        [deleted("a"), deleted("b", at=30), deleted("c", at=60)],
        [gone("a", "orders"), gone("b", "orders"), gone("c", "orders")],
        [deleted("a"), *(anomaly("orphan_topic", g, subject="orders") for g in "bc")],
    ],
    ids=["other topics", "at other times", "groups that were deleted", "a topic that is not there"],
)
def test_topics_that_do_not_explain_it_make_no_incident(rows: list[Row]) -> None:
    assert told(rows) == []


def not_seen(group: str, *unread: str, at: float = 0) -> Row:
    about = {"label": "never_owned", "subject": unread[0]}
    return anomaly("unread_partition", group, at, evidence={"unread": [*unread]}, **about)


def test_a_topic_that_has_grown_unseen_by_many_groups_is_one_incident() -> None:
    rows = [not_seen("a", "fares/6", "fares/7"), not_seen("b", "fares/7"), not_seen("c", "fares/6")]
    (one,) = told([*rows, not_seen("d", "rides/9")])
    assert (one["cause"], one["subject"], one["group_count"]) == ("topic_grown", "fares", 3)
    assert "What comes into fares/6, fares/7 is not read." in one["summary"]
    assert told([not_seen(group, f"{group}/6") for group in "abc"]) == []
    stopped = [anomaly("unread_partition", g, subject="fares/6", evidence={}) for g in "abc"]
    assert told(stopped) == []


# -- partitions of the log -------------------------------------------------------------------------


def places(*of: tuple[int, Iterable[str]], newest: int = AT + HOUR) -> dict[str, tuple[int, int]]:
    """Place groups in partitions of the log."""
    return {group: (partition, newest) for partition, groups in of for group in groups}


WELL = places((1, "uvw"), (2, "xyz"))


def test_a_partition_of_the_log_that_is_silent_is_one_incident() -> None:
    rows = [stall("a"), stall("b", 0.5), stall("c", 1, label=None, severity="info")]
    (one,) = told(rows, places=WELL)
    assert (one["cause"], one["subject"], one["groups"]) == ("silent_partition", "7", [*"abc"])
    assert "3 groups of partition 7 of the offsets topic stopped committing (" in one["summary"]
    assert "a, b, c; groups of other partitions went on. Look whether" in one["summary"]


def test_the_partitions_of_a_broker_are_one_incident() -> None:
    rows = [stall(group, number / 4, partition=number % 3) for number, group in enumerate("abcdef")]
    (one,) = told(rows, places=places((8, "uvw"), (9, "xyz")))
    assert (one["subject"], one["group_count"]) == ("0, 1, 2", 6)
    assert "partitions 0, 1, 2 of the offsets topic" in one["summary"]
    assert "the broker that leads them answers" in one["summary"]


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        ([stall(g, partition=p) for p, g in enumerate("abc")], WELL),
        ([stall("a"), stall("b"), stall("c", 30)], WELL),
        ([stall(g) for g in "abc"], {}),
        ([stall(g) for g in "abc"], places((1, "uvwxyz"), newest=AT)),
        ([stall(g) for g in "abc"], {**WELL, **places((7, "defg"))}),
        ([*map(stall, "abc"), stall("u", partition=1), stall("x", partition=2)], WELL),
        ([stall(g, label="nothing_to_read") for g in "abc"], WELL),
    ],
    ids=[
        "other partitions",
        "at other times",
        "no other group",
        "nobody went on",
        "most groups of the partition go on",
        "others stall, too",
        "there is nothing to read",
    ],
)
def test_stalls_that_no_partition_explains_stay_single(rows: list[Row], known: Row) -> None:
    assert told(rows, places=known) == []


def unmoved(group: str, at: float = 0, **given: Any) -> Row:  # noqa: ANN401
    causes = {"causes": {"coordinator_failover_suspected": 3, "unknown": 1}}
    return anomaly("rebalance_storm", group, at, **{"evidence": causes, **given})


def test_rebalances_without_a_change_of_members_are_their_coordinators() -> None:
    beside = [stall("a", 2), anomaly("slow_rebalance", "b", 1), anomaly("offset_rewind", "c", 1)]
    rows = [*map(unmoved, "abc"), *beside]
    (one,) = told(rows, places=WELL)
    assert (one["cause"], one["group_count"], one["anomaly_count"]) == ("coordinator", 3, 5)
    assert beside[2]["anomaly_id"] not in one["anomaly_ids"]
    assert "without a change of their members" in one["summary"]
    assert told([storm(g, client=g) for g in "abc"], places=WELL) == []
    apart = [unmoved(g, first_record_partition=p) for p, g in enumerate("abc")]
    assert told(apart, places=WELL) == []


def test_what_was_borne_out_once_is_not_lost_when_other_groups_come() -> None:
    rows = [stall(g) for g in "abc"]
    (one,) = told(rows, places=WELL)
    later = {**WELL, **places((7, "defghijk"), newest=AT + DAY)}
    assert told(rows, places=later) == []
    assert told(rows, places=later, former=[one]) == [one]


# -- clients ---------------------------------------------------------------------------------------


def test_the_clients_of_one_name_are_one_incident() -> None:
    rows = [storm("a"), storm("b", 4), storm("c", 9), anomaly("member_flapping", "c", 9)]
    (one,) = told([*rows, storm("d", 3, client="other")])
    assert (one["cause"], one["groups"]) == ("client", ["a", "b", "c"])
    assert one["anomaly_ids"] == [row["anomaly_id"] for row in rows]
    numbered = [storm(g, client="payments", evidence=named(f"payments-{n}")) for n, g in NUMBERED]
    (one,) = told(numbered)
    assert (one["subject"], one["group_count"]) == ("payments-*", 3)
    assert "3 groups rebalanced as clients named payments-* came and went (" in one["summary"]


NUMBERED = [(1, "a"), (27, "b"), (3, "c")]


def named(*clients: str) -> Row:
    return {"clients": [f"{client}@/10.0.0.1" for client in clients]}


@pytest.mark.parametrize(
    "rows",
    [
        [storm(g, client=c) for g, c in zip("abc", ("pay", "bill", "ship"), strict=True)],
        [storm("a", evidence=named("pay")), storm("b", 20, evidence=named("pay"))],
        [storm(g, 20 * n, evidence=named("pay")) for n, g in enumerate("abcd")],
        [storm(g, evidence=named(f"rdkafka-{g}")) for g in "abc"],
        [storm(g, evidence=named("consumer-1")) for g in "abc"],
        [storm(g, evidence=named("kafka-python-2.0.2")) for g in "abc"],
        [storm(g, evidence=named("1234")) for g in "abc"],
        [storm(g, evidence={}) for g in "abc"],
        [anomaly("idle_members", g, evidence=named("pay")) for g in "abc"],
    ],
    ids=[
        "other clients",
        "two groups",
        "at other times",
        "a library's name",
        "Java's name",
        "a library's name and version",
        "a number",
        "nobody is named",
        "no rebalance",
    ],
)
def test_storms_that_no_client_explains_stay_single(rows: list[Row]) -> None:
    assert told(rows) == []


def test_a_name_that_other_groups_have_without_trouble_explains_nothing() -> None:
    rows = [storm(g, evidence=named(f"app-{n}")) for n, g in NUMBERED]
    assert len(told(rows, groups_of={"app-*": ["a", "b", "c", "d", "e", "f"]})) == 1
    assert told(rows, groups_of={"app-*": [*"abcdefg"]}) == []
    assert groups_of(clients_of(rows), [{"client": 0, "group_id": "x", "client_id": "apple"}]) == {
        clients_of(rows)[0]: set()
    }


# -- of records ------------------------------------------------------------------------------------


def groups_in(partition: int) -> list[str]:
    """Name groups that belong into a partition of the log."""
    names = (f"g-{number}" for number in range(1_000))
    return [name for name in names if partition_for(name, PARTITIONS) == partition][:4]


def test_records_of_a_silent_partition_are_one_incident(tmp_path: Path) -> None:
    topic, silent, well = Topic(), groups_in(7), [*groups_in(8), *groups_in(9)]
    for group in (*silent, *well):
        topic.generation(group, AT, 1, a=0)
    for minute in range(240):
        for group in silent if minute < 90 else []:
            topic.commits(group, 7, AT + minute * MINUTE + 1_000, minute)
        for group in well:
            partition = partition_for(group, PARTITIONS)
            topic.commits(group, partition, AT + minute * MINUTE + 1_000, minute)
    path = topic.write(tmp_path / "silent.parquet")
    rows = [row for row in detected(path) if row["kind"] in KINDS]
    assert {row["group_id"] for row in rows} == {*silent}
    (one,) = told(rows, places=places((8, tuple(well)), newest=AT + 4 * HOUR))
    assert (one["cause"], one["subject"], one["group_count"]) == ("silent_partition", "7", 4)
    # With others of the partition that go on it is no incident.
    others = places((7, tuple("abcdefgh")), (8, tuple(well)), newest=AT + 4 * HOUR)
    assert told(rows, places=others) == []


def test_a_recording_of_a_topic_that_three_groups_lose_has_an_incident() -> None:
    path = ROOT / "tests" / "field" / "09-expired-during-a-rebalance.parquet"
    rows = [row for row in detected(path) if row["kind"] in KINDS]
    (one,) = told(rows)
    assert (one["cause"], one["subject"]) == ("topic_deleted", "dusty")
    assert one["groups"] == ["f09-dust-a", "f09-dust-b", "f09-dust-c"]
    assert len({row["group_id"] for row in rows}) > 3


# -- all of them -----------------------------------------------------------------------------------


def test_an_anomaly_is_of_one_incident_that_which_is_borne_out_best() -> None:
    rows = [
        *(stall(g) for g in "abc"),
        *(anomaly("aborted_rebalances", g, 1, evidence=named("pay")) for g in "abcd"),
    ]
    found = told(rows, places=WELL)
    assert [one["cause"] for one in found] == ["silent_partition", "client"]
    ids = [name for one in found for name in one["anomaly_ids"]]
    assert len(ids) == len(set(ids)) == 7


def test_an_incident_keeps_its_id_whatever_comes_to_it() -> None:
    rows = [reset(g, 0.5 + n / 10) for n, g in enumerate("bcd")]
    (one,) = told(rows)
    (again,) = told(rows)
    assert one == again
    (grown,) = told([reset("a"), *rows], former=[one])
    assert (grown["group_count"], grown["started_at"]) == (4, AT)
    assert grown["incident_id"] == one["incident_id"] != told([reset("a"), *rows])[0]["incident_id"]
    # One that is cut in two gives its id to the first alone.
    two = [reset(g, at) for at in (0, 10) for g in "abc"]
    former = {**one, "anomaly_ids": [row["anomaly_id"] for row in two]}
    first, second = told(two, former=[former])
    assert first["incident_id"] == one["incident_id"] != second["incident_id"]


def test_anomalies_of_the_log_and_without_a_time_are_of_none() -> None:
    rows = [reset("a"), reset("b"), reset("c", group_id=None), reset("d", started_at=None)]
    assert told(rows) == []


def test_each_cause_has_a_sentence_and_is_suspected() -> None:
    assert len(CAUSES) == len(rule._SUSPECTING)
    assert set().union(*rule._MEANWHILE.values()) <= KINDS


def test_names_of_groups_stay_short_in_a_sentence() -> None:
    (one,) = told([reset(f"{n}\n{'g' * 9_000}", 0) for n in range(40)])
    assert len(one["summary"]) < 600
    assert one["summary"].isprintable()
    assert "at once (" in one["summary"]
