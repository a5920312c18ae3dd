"""The file of metrics, of facts that were read; `tests/spark/test_metrics.py` has a pipeline's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.runtime import metrics
from jobs.runtime.command_line import parse
from reporting.model import Facts

if TYPE_CHECKING:
    from pathlib import Path


def told(path: Path) -> list[str]:
    lines = path.read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#") and "end_seconds" not in line]


def test_what_a_group_is_behind_at_most_is_no_figure(tmp_path: Path) -> None:
    behind = [("a", 5, False), ("b", None, None), ('c"\n', 0, None), ("d", 7, True)]
    names = ("group_id", "total_lag", "total_lag_is_bound")
    facts = Facts("eu", "/lakehouse", 0, group_count=4)
    facts.lags = [dict(zip(names, row, strict=True)) for row in behind]
    facts.open_counts = {("idle_members", "warning"): 2}
    path = tmp_path / "x.prom"
    metrics._write(str(path), metrics._of_groups(facts, "eu"))
    of_groups = [
        'groupledger_groups{cluster="eu"} 4.0',
        'groupledger_group_lag{cluster="eu",group="a"} 5.0',
        'groupledger_group_lag{cluster="eu",group="c\\"\\n"} 0.0',
        'groupledger_open_anomalies{cluster="eu",kind="idle_members",severity="warning"} 2.0',
    ]
    assert told(path) == of_groups
    # A run adds its own figures, and takes the place of those of the run before.
    options = parse(["pipeline", "--cluster", "eu", "--records", "x.parquet"])
    for status in (1, 0):
        metrics.write_run(str(path), options, status, {"decode": 1.5}, {"quarantined": 3})
    assert told(path) == [
        *of_groups,
        'groupledger_run_status{cluster="eu",job="pipeline"} 0.0',
        'groupledger_run_step_seconds{cluster="eu",job="pipeline",step="decode"} 1.5',
        'groupledger_run_quarantined{cluster="eu",job="pipeline"} 3.0',
    ]


def test_without_groups_a_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    metrics._write(str(path), metrics._of_groups(Facts("eu", "/lakehouse", 0), "eu"))
    assert told(path) == ['groupledger_groups{cluster="eu"} 0.0']
