"""The file of metrics, of facts that were read; `tests/spark/test_metrics.py` has a pipeline's."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from reporting import metrics
from reporting.model import Facts
from tests.support.environments import environment

OF = {"cluster": "eu", "job": "pipeline"}


def told(path: Path) -> list[str]:
    lines = path.read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#") and "end_seconds" not in line]


def test_what_a_group_is_behind_at_most_is_no_figure(tmp_path: Path) -> None:
    behind = [("a", 5, False), ("b", None, None), ('c"\n', 0, None), ("d", 7, True)]
    names = ("group_id", "total_lag", "total_lag_is_bound")
    health = {"health": "warning", "state": "Empty", "members": 0, "rebalances_1h": 2}
    health |= {"open_anomalies": 1, "worst_lag_status": None}
    facts = Facts("eu", "/lakehouse", 0, group_count=4)
    facts.every_group = [health | dict(zip(names, row, strict=True)) for row in behind]
    facts.open_counts = {("idle_members", "warning"): 2}
    facts.incidents = [{"severity": "critical", "is_open": is_open} for is_open in (True, False)]
    path = tmp_path / "x.prom"
    metrics.write_groups(str(path), facts)
    every = told(path)
    of_groups = [
        line
        for line in every
        if re.match(r"groupledger_(groups|group_lag|open_anomalies|incidents)\{", line)
    ]
    assert of_groups == [
        'groupledger_groups{cluster="eu"} 4.0',
        'groupledger_group_lag{cluster="eu",group="a"} 5.0',
        'groupledger_group_lag{cluster="eu",group="c\\"\\n"} 0.0',
        'groupledger_open_anomalies{cluster="eu",kind="idle_members",severity="warning"} 2.0',
        'groupledger_incidents{cluster="eu",severity="critical"} 1.0',
    ]
    # A run adds its own figures, and takes the place of those of the run before.
    for status in (1, 0):
        metrics.write_run(str(path), OF, status, {"decode": 1.5}, {"quarantined": 3})
    assert [line for line in told(path) if "last_success" not in line] == [
        *every,
        'groupledger_run_status{cluster="eu",job="pipeline"} 0.0',
        'groupledger_run_step_seconds{cluster="eu",job="pipeline",step="decode"} 1.5',
        'groupledger_run_quarantined{cluster="eu",job="pipeline"} 3.0',
    ]


def test_without_groups_a_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    metrics.write_groups(str(path), Facts("eu", "/lakehouse", 0))
    assert told(path) == [
        'groupledger_groups{cluster="eu"} 0.0',
        'groupledger_missing_offsets{cluster="eu"} 0.0',
    ]


def test_what_a_group_is_like_is_measured(tmp_path: Path) -> None:
    facts = Facts("eu", "/lakehouse", 0, group_count=1, as_of=1_500)
    health = {"group_id": "a", "total_lag": 9, "total_lag_is_bound": False, "health": "critical"}
    health |= {"state": "Stable", "members": 3, "rebalances_1h": 2, "open_anomalies": 1}
    since = {"lag_status_since": 500, "as_of": 1_500}
    facts.every_group = [health | {"worst_lag_status": "STALL"} | since]
    every = {"every_rebalance": 9, "cost_member_ms": 12_500}
    facts.causes = [{"group_id": "a", "cause": "new_member", "rebalances": 7, **every}]
    # None of the last day, and nobody knows what the others cost.
    every = {"every_rebalance": 1, "cost_member_ms": None}
    facts.causes += [{"group_id": "a", "cause": "unknown", "rebalances": 0, **every}]
    facts.lag_seconds = {"a": 12.5}
    facts.partition_lag = [{"group_id": "a", "topic": "t", "topic_partition": 2, "lag": 9}]
    facts.quality.offsets, facts.quality.records = 10, 8
    path = tmp_path / "x.prom"
    metrics.write_groups(str(path), facts)
    of_a = 'cluster="eu",group="a"'
    assert told(path) == [
        'groupledger_groups{cluster="eu"} 1.0',
        f"groupledger_group_lag{{{of_a}}} 9.0",
        f'groupledger_partition_lag{{{of_a},partition="2",topic="t"}} 9.0',
        f"groupledger_group_lag_seconds{{{of_a}}} 12.5",
        f'groupledger_group_lag_status{{{of_a},status="STALL"}} 1.0',
        f'groupledger_group_lag_status_seconds{{{of_a},status="STALL"}} 1.0',
        f"groupledger_group_health{{{of_a}}} 3.0",
        f'groupledger_group_state{{{of_a},state="Stable"}} 1.0',
        f"groupledger_group_members{{{of_a}}} 3.0",
        f"groupledger_group_rebalances_1h{{{of_a}}} 2.0",
        f"groupledger_group_open_anomalies{{{of_a}}} 1.0",
        'groupledger_group_rebalances_24h{cause="new_member",cluster="eu",group="a"} 7.0',
        f'groupledger_group_rebalances_total{{cause="new_member",{of_a}}} 9.0',
        f'groupledger_group_rebalances_total{{cause="unknown",{of_a}}} 1.0',
        f'groupledger_group_rebalance_cost_seconds_total{{cause="new_member",{of_a}}} 12.5',
        f'groupledger_group_rebalance_cost_seconds_total{{cause="unknown",{of_a}}} 0.0',
        'groupledger_missing_offsets{cluster="eu"} 2.0',
        'groupledger_newest_record_seconds{cluster="eu"} 1.5',
    ]
    # What a run keeps of it is the same, counters too.
    kept = metrics._kept(str(path))
    assert {family.name: family.type for family in kept if family.type == "counter"} == {
        f"groupledger_group_{name}": "counter" for name in ("rebalances", "rebalance_cost_seconds")
    }
    before = told(path)
    metrics._write(str(path), kept)
    assert told(path) == before


def test_the_last_success_outlives_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    metrics.write_run(str(path), OF, 0, {}, {})
    (first,) = (line for line in told(path) if "last_success" in line)
    metrics.write_run(str(path), OF, 1, {}, {})
    assert first in told(path)


_EXAMPLES = Path(__file__).parents[2] / "examples" / "prometheus"


def test_rules_and_dashboard_ask_for_metrics_that_there_are(tmp_path: Path) -> None:
    facts = Facts("eu", "/lakehouse", 0, as_of=1)
    path = tmp_path / "x.prom"
    metrics.write_groups(str(path), facts)
    summary = dict.fromkeys(metrics._COUNTED, 0)
    metrics.write_run(str(path), OF, 0, {}, summary)
    known = set(re.findall(r"^# TYPE (\S+)", path.read_text(), re.MULTILINE))
    for name in ("rules.yaml", "dashboard.json"):
        text = (_EXAMPLES / name).read_text("utf-8")
        asked = set(re.findall(r"\bgroupledger_[a-z0-9_]+", text))
        assert asked
        assert asked <= known, name
    rules = yaml.safe_load((_EXAMPLES / "rules.yaml").read_text("utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert {"alert", "expr", "for", "labels", "annotations"} == set(rule)
    dashboard = json.loads((_EXAMPLES / "dashboard.json").read_text("utf-8"))
    assert all(panel["targets"] for panel in dashboard["panels"])


@pytest.mark.slow
def test_a_parser_takes_rules_and_dashboard() -> None:
    """That of promql-parser, which has the grammar of Prometheus's own."""
    rules = yaml.safe_load((_EXAMPLES / "rules.yaml").read_text("utf-8"))
    dashboard = json.loads((_EXAMPLES / "dashboard.json").read_text("utf-8"))
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    parse_all = (
        "import json, sys, promql_parser\n"
        "for text in json.load(sys.stdin): promql_parser.parse(text)\n"
        "try: promql_parser.parse('sum by (group) (a')\n"
        "except ValueError: sys.exit(0)\n"
        "sys.exit('it takes anything')"
    )
    line = [environment("promql") / "bin" / "python", "-c", parse_all]
    done = subprocess.run(
        line, input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
