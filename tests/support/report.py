"""Makes up what a report tells of: many groups, or groups with names that attack the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from reporting.model import (
    LISTED_ANOMALIES,
    LISTED_GROUPS,
    PANELS,
    SHOWN_GROUPS,
    WINDOW_MS,
    Facts,
    Group,
    Quality,
    Selection,
)

AS_OF = 1_795_244_400_000
ATTACKS = (
    "<script>document.title = 'attacked'</script>",
    "</script><script>document.title = 'attacked'</script>",
    "<img src=x onerror=\"document.title = 'attacked'\">",
    "<!--<script>",
    "]]>&lt;b&gt;'\"`${document.title = 'attacked'}",
    "javascript:document.title='attacked'",
    "line\u2028separator\u2029and\u0000zero",
    "right\u202eto left",
    "__proto__",
    "",
)


def facts(names: list[str], rows_a_panel: int | None = None) -> Facts:
    """Make up a report of groups with these names, each with as many rows as a panel may have."""
    groups = [_health(name, n) for n, name in enumerate(names)]
    found = Facts(
        cluster="default",
        lakehouse="/lakehouse",
        made_at=AS_OF,
        chosen=Selection(since=AS_OF - WINDOW_MS),
        as_of=AS_OF,
        groups=pa.Table.from_pylist(groups[:LISTED_GROUPS]),
        group_count=len(groups),
        anomalies=pa.Table.from_pylist(
            [_anomaly(name, n) for n, name in enumerate(names[:LISTED_ANOMALIES])]
        ),
        kinds=("rebalance_storm", "member_flapping"),
        anomaly_count=len(names),
        fold_count=len(names),
        step_ms=3_600_000,
        rebalances=pa.Table.from_pylist(
            [
                {"group_id": name, "at": AS_OF - 3_600_000 * hour, "count": 3}
                for hour in range(24)
                for name in names[:10]
            ]
        ),
        quality=Quality(
            records=10,
            offsets=12,
            partitions=2,
            holes={"compacted": 2},
            last_validation_at=AS_OF,
            findings=[_finding(name) for name in names[:2]],
        ),
    )
    found.incidents = [_incident(names)] if names else []
    for name in names[:SHOWN_GROUPS]:
        group = Group(name, counts={"anomalies": 1})
        for panel, declared in PANELS.items():
            count = declared.most if rows_a_panel is None else min(rows_a_panel, declared.most)
            rows = [_ROWS[panel](name, n) for n in range(count)]
            group.rows[panel] = pa.Table.from_pylist(rows)
            group.counts[panel] = count + 7
            group.older[panel] = [(_at(-500), 4), (_at(-200), 3)]
        found.shown.append(group)
    return found


def _health(name: str, n: int) -> dict[str, object]:
    return {
        "group_id": name,
        "group_type": "classic",
        "health": ("critical", "warning", "info", "ok")[min(n // 10, 3)],
        "state": "Stable",
        "since": AS_OF - 1_000_000 - n,
        "members": 3,
        "rebalances_1h": 1,
        "rebalances_24h": max(0, 5_000 - n),
        "rebalances_7d": max(0, 5_000 - n),
        "rebalancing_24h_ms": 12_345,
        "open_anomalies": 1,
        "worst_anomaly": "rebalance_storm",
        "anomalies_24h": 1,
        "total_lag": n,
        "total_lag_is_bound": False,
        "worst_lag_status": "OK",
        "last_commit_at": AS_OF - n,
        "as_of": AS_OF,
        "day": "S" * 20 + "E" * 20 + "S" * 8 + "0" * 40 + "00900001",
    }


def _incident(names: list[str]) -> dict[str, object]:
    return {
        "incident_id": "i",
        "cause": "client",
        "severity": "critical",
        "subject": names[0],
        "started_at": AS_OF - 5_000_000,
        "ended_at": AS_OF - 4_000_000,
        "is_open": True,
        "group_count": 9,
        "anomaly_ids": ["a1", "a0", "elsewhere"],
        "anomaly_count": 3,
        "summary": f"9 groups rebalanced as clients named {names[0]} came and went.",
    }


def _finding(name: str) -> dict[str, object]:
    return {
        "table_name": "silver.group_metadata",
        "expectation": "leader_is_a_member",
        "meaning": f"the leader is a member {name}",
        "severity": "warning",
        "rows_unexpected": 2,
        "failed_at": AS_OF,
    }


def _anomaly(name: str, n: int) -> dict[str, object]:
    return {
        "anomaly_id": f"a{n}",
        "kind": "member_flapping",
        "severity": "warning",
        "group_id": name,
        "subject": name,
        "started_at": AS_OF - 5_000_000 - n,
        "ended_at": AS_OF - 4_000_000,
        "is_open": False,
        "label": name or None,
        "summary": f"{name} left and came back 4 times",
        "evidence": '{"members": "<b>"}',
        "thresholds": '{"returns_an_hour": 3}',
        "first_record_partition": 1,
        "first_record_offset": n,
        "last_record_partition": 1,
        "last_record_offset": n + 1,
        "kind_rank": 1,
        "kind_count": 1,
        "kind_open": 0,
    }


def _at(n: int) -> int:
    return AS_OF - 6_000_000 + n * 1_973


def _who(name: str, n: int) -> dict[str, object]:
    return {
        "member_id": f"{name}-{n}-6f2d9c1e-7a53-4c8e-9d0b-0f1f5a1d3c77",
        "group_instance_id": None,
        "client_id": f"{name}-{n % 60}",
        "client_host": "/10.0.0.1",
    }


def _state(_name: str, n: int) -> dict[str, object]:
    return {
        "state": ("Stable", "PreparingRebalance", "CompletingRebalance")[n % 3],
        "generation": n // 3,
        "started_at": _at(n),
        "ended_at": _at(n + 1),
        "started_at_min": _at(n) - 500,
        "started_at_max": _at(n) + 500,
        "evidence": "bounded" if n % 3 == 1 else "exact",
        "member_count": 3,
    }


def _generation(name: str, n: int) -> dict[str, object]:
    return {
        "generation": n,
        "join_started_at": _at(n),
        "join_completed_at": _at(n) + 700,
        "stable_at": _at(n) + 800,
        "rebalance_ms": 800,
        "cause": "new_member",
        "cause_detail": f"{name} joined; {name} left or failed",
        "aborted_generations": n % 7 == 0,
        "member_count": 3,
        "joined": name,
        "left": name,
        "replaced": "",
        "moved_partitions": 3,
        "protocol": "range",
        "leader_client_id": name,
    }


def _member(name: str, n: int) -> dict[str, object]:
    times = {"joined_at": _at(n), "joined_at_min": _at(n) - 300, "left_at": _at(n + 20)}
    ends = {"left_at_min": _at(n + 19), "end_cause": "left_or_failed"}
    return {**_who(name, n), "first_generation": n, "last_generation": n + 1, **times, **ends}


def _owner(name: str, n: int) -> dict[str, object]:
    position = {"topic": name or "orders", "topic_partition": n % 70, "generation": n}
    return {**_who(name, n), **position, "valid_from": _at(n), "valid_to": _at(n + 70)}


def _offset(name: str, n: int) -> dict[str, object]:
    return {
        "topic": name or "orders",
        "topic_partition": n % 70,
        "hour": _at(n),
        "first_commit_at": _at(n),
        "last_commit_at": _at(n + 30),
        "first_committed_offset": 10_000_000 + n,
        "last_committed_offset": 10_010_000 + n,
        "commits": 60,
        "progressed_offsets": 10_000,
        "rewinds": n % 3,
        "rewound_offsets": n % 3,
        "jumps": 0,
        "no_progress_commits": 0,
        "tombstones": 0,
    }


def _lag(_name: str, n: int) -> dict[str, object]:
    row = {
        "sampled_at": _at(n),
        "lag": n * 10,
        "is_bound": n == 0,
        "partitions": 6,
        "lag_seconds": 1.5,
    }
    return {**row, "status": ("OK", "WARN", "STOP")[n % 3]}


_ROWS = {
    "states": _state,
    "generations": _generation,
    "members": _member,
    "owners": _owner,
    "offsets": _offset,
    "lag": _lag,
}


def data_of(path: Path) -> dict[str, Any]:
    """Return the data that a page shows."""
    text = path.read_text("utf-8").partition('id="data">')[2].partition("</script>")[0]
    found: dict[str, Any] = json.loads(text)
    return found


def column_of(rows: dict[str, Any], name: str) -> list[Any]:
    """Return the values of a column of rows, as a page has them."""
    held = rows["columns"][name]
    if held is None:
        return [None] * int(rows["count"])
    if isinstance(held, list):
        return held
    if "texts" in held:
        return [None if at is None else held["texts"][at] for at in held["at"]]
    return [None if by is None else held["least"] + by for by in held["by"]]
