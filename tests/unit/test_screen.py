"""What a terminal shows of facts: names that anyone may have chosen stay names."""

from __future__ import annotations

import datetime as dt
import io
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from reporting.model import Facts, Quality
from reporting.screen import missing, show_groups, show_story, worst_by_group
from reporting.story import Event, Story
from reporting.text import printable, short_name
from schemas.words import count
from tests.support.report import AS_OF, facts

KINDS = ("rebalance_storm", "offset_rewind")


def anomaly(group: str | None, severity: str, kind: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401
    about = {"group_id": group, "severity": severity, "kind": kind, "started_at": AS_OF}
    return {**about, "summary": f"{group} {kind}", **given}


def shown(told: Facts) -> str:
    out = Console(record=True, width=120, file=io.StringIO())
    show_groups(out, told, KINDS)
    return out.export_text()


def test_the_worst_of_each_group_is_told_with_how_much_more_there_is() -> None:
    rows = [
        anomaly("a", "critical", "offset_rewind"),
        anomaly("b", "critical", "offset_rewind"),
        anomaly("b", "critical", "rebalance_storm"),
        anomaly("a", "warning", "rebalance_storm"),
        anomaly(None, "warning", "offset_rewind"),
    ]
    told = [(row["group_id"], row["kind"], more) for row, more in worst_by_group(rows, KINDS)]
    assert told == [
        ("a", "offset_rewind", 1),
        ("b", "rebalance_storm", 1),
        (None, "offset_rewind", 0),
    ]
    assert len(worst_by_group([anomaly(str(n), "info", KINDS[0]) for n in range(20)], KINDS)) == 8


def test_groups_and_what_is_wrong_with_them() -> None:
    told = facts([f"group-{n}" for n in range(20)], 0)
    told.late = [anomaly("x", "critical", "rebalance_storm", summary="[red]\n\x1b[2J")]
    told.late_counts = {"info": 3, "critical": 1}
    text = shown(told)
    assert "(12 of 20 groups)" in text
    assert "rebalance_storm  [red]  [2J" in text
    assert "Anomalies of these 24 hours: 1 critical, 3 info; gold.anomalies has them all" in text
    assert not [c for c in text if not c.isprintable() and c != "\n"]


def test_an_incident_is_one_line_in_place_of_its_anomalies() -> None:
    told = facts(["a", "b"], 0)
    storm = {"anomaly_id": "1", "is_open": True, "ended_at": AS_OF, "group_late": 2}
    told.late = [
        anomaly("a", "critical", KINDS[0], **storm),
        anomaly("b", "warning", KINDS[0], anomaly_id="2", group_late=1),
        anomaly("a", "warning", KINDS[1], anomaly_id="3", group_late=2),
    ]
    old = AS_OF - 2 * 24 * 3_600_000
    told.incidents = [
        incident(["1", "2"], summary="3 groups of [7] stopped."),
        incident(["3"], is_open=False, ended_at=old),
        incident(["3"], severity="info"),
    ]
    lines = shown(told).splitlines()
    assert lines[-3:-1] == [
        "critical 2026-11-21 07:00:00 incident  3 groups of [7] stopped.",
        "warning  2026-11-21 07:00:00 offset_rewind  a offset_rewind",
    ]


def incident(ids: list[str], **given: Any) -> dict[str, Any]:  # noqa: ANN401
    about = {"severity": "critical", "started_at": AS_OF, "ended_at": AS_OF, "is_open": True}
    return {**about, "anomaly_ids": ids, "summary": "an incident", **given}


def test_a_file_of_80_columns_has_every_id_and_figure_as_a_whole() -> None:
    names = [f"stock-projector-ready-of-the-department-us-east-{n}" for n in range(12)]
    told = facts(names, 0)
    open_one = {"is_open": True, "ended_at": AS_OF - 39 * 60_000, "group_late": 42}
    told.late = [
        anomaly("elsewhere", "critical", KINDS[0]),
        anomaly(names[5], "critical", KINDS[0], is_open=False),
        anomaly(names[0], "critical", KINDS[1]),
        anomaly(names[0], "warning", KINDS[0], **open_one),
    ]
    out = Console(record=True, width=80, file=io.StringIO())
    show_groups(out, told, KINDS)
    lines = out.export_text().splitlines()
    assert lines[1:3] == [
        names[0],
        "  critical, Stable, 3 members, 5,000 rebalances took 12.3 s, lag 0",
    ]
    assert [line for line in lines if line in names] == names
    at = "2026-11-21 07:00:00 rebalance_storm"
    assert lines[-4:-1] == [
        f"warning  {at}  {names[0]} rebalance_storm Last seen 39 min ago. (+41 more)",
        f"critical {at}  {names[5]} rebalance_storm",
        f"critical {at}  elsewhere rebalance_storm",
    ]


def test_without_groups_nothing_is_shown() -> None:
    assert shown(Facts("default", "/lakehouse", 0, groups=pa.table({}))) == ""


def test_what_is_missing_is_said() -> None:
    holes = {"compacted": 902, "truncated": 70, "not read": 30}
    quarantine = {"a": 4, "b": 3, "c": 2, "d": 1}
    held = Quality(records=3, offsets=1_005, holes=holes, quarantine=quarantine)
    assert list(missing(held)) == [
        "100 of 1,005 offsets were lost before they could be read; bronze.coverage says where",
        *(f"{n} records in quarantine: {error}" for error, n in zip("abc", (4, 3, 2), strict=True)),
    ]
    assert list(missing(Quality(records=3, offsets=1_005, holes={"compacted": 1_002}))) == []


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "member", "1 member"), (0, "anomaly", "0 anomalies"), (2_000, "record", "2,000 records")],
)
def test_a_number_has_its_noun(number: int, noun: str, text: str) -> None:
    assert count(number, noun) == text


def test_names_are_printable() -> None:
    assert printable("a\n\x1b[2J\u202e") == "a\\n\\x1b[2J\\u202e"
    assert short_name("[red]\n" + "x" * 40) == "\\[red]\\u000a" + "x" * 40


def explained(story: Story, partition: str | None = None) -> str:
    out = Console(record=True, width=120, file=io.StringIO())
    show_story(out, story, dt.timezone.utc, partition)
    return out.export_text()


def test_a_story_says_what_is_not_known_and_not_shown() -> None:
    since, until = AS_OF, AS_OF + 60_000
    state = {"state": "Stable", "started_at": since + 30_000, "ended_at": None, "known_until": None}
    owners = [
        {"topic": "orders", "topic_partition": number, "client_id": "a\x1b", "client_host": "/h"}
        | {"valid_from": since, "valid_to": None, "known_until": None}
        for number in range(25)
    ]
    found = {"states": [state], "owners": owners, "offsets": []}
    event = Event(since + 1_500, "critical", "[red] a\nb", (3, 7), is_exact=False)
    text = explained(Story("g\n", since, until, [event], found))
    assert text.startswith("g\\n: ")
    assert "█ Stable, ? unknown" in text
    assert "cost" not in text
    assert "01.500~ [critical] [red] a\\nb  record 3/7" in text
    assert "a\\x1b at /h" in text
    assert "5 more rows of owners; --partition TOPIC:NUMBER shows those of one partition" in text
    cost = {"generations": [{"cost_member_ms": 7_000, "cost_member_ms_min": 2_500}]}
    whole = explained(Story("g", since, until, [], found | cost), "orders:1")
    assert "Rebalances cost 7 consumer-seconds (at least 2.5)." in whole
    assert (whole.count("at /h"), "more rows" in whole) == (25, False)
    nothing = Story("g", since, until, [], {"states": [], "owners": [], "offsets": []})
    text = explained(nothing, "orders:99")
    assert "Nothing happened: no rebalance, no anomaly." in text
    assert "orders:99: no owner and no commit is known of this time" in text


def test_a_band_begins_where_the_history_does() -> None:
    first, until = AS_OF - 60_000, AS_OF
    state = {"state": "Stable", "started_at": first, "ended_at": None, "known_until": None}
    found = {"states": [state], "owners": [], "offsets": []}
    text = explained(Story("g", first - 86_400_000, until, [], found, first))
    assert text.splitlines()[1:4] == [
        "█" * 118,
        "╵06:59:00                              ╵06:59:19                              ╵06:59:39",
        "█ Stable",
    ]
