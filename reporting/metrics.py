"""Figures of a run and of the groups, as a textfile for Prometheus's node_exporter.

The figures of the groups are those of the last pipeline that came to its end; what a run was like
is written unless a signal ends it, and then the time of the last end gets old.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_fd_to_metric_families
from prometheus_client.registry import Collector

from reporting.model import Facts
from schemas.errors import GroupledgerError
from schemas.gold import SEVERITIES

_OURS = "groupledger_"
_OF_RUN = f"{_OURS}run_"
_HEALTH = ("ok", *SEVERITIES)
_SUCCESS = f"{_OURS}last_success_seconds"
# What is known of each group: column of gold.group_health, and what it says.
_OF_GROUP = {
    "members": "members now",
    "rebalances_1h": "rebalances that began in the last hour of the log",
    "open_anomalies": "anomalies that may go on",
}
# Figures of the summary, and what each counts.
_COUNTED = {
    "records_ingested": "records that the run brought into bronze",
    "records_read": "records that the run read to decode them",
    "quarantined": "records that the run could not decode",
    "expectations_failed": "expectations that failed in the run",
    "expectations_still_failing": "expectations that failed in an earlier run",
}


class MetricsError(GroupledgerError):
    """The file of the metrics cannot be written, or is none."""


class _Families(Collector):
    """Metrics as they are, for a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def write_groups(path: str, facts: Facts) -> None:
    """Write the figures of the groups, and leave those of the run for later."""
    _kept(path)  # refuses to replace something else
    _write(path, _of_groups(facts))


def write_run(
    path: str,
    of: dict[str, str],
    status: int,
    seconds: Mapping[str, float],
    summary: Mapping[str, Any],
) -> None:
    """Write what a run was like, beside the figures of the groups that are there."""
    steps = [({**of, "step": step}, spent) for step, spent in seconds.items()]
    families = [
        _gauge(_OF_RUN + "status", "exit status of the last run", (of, status)),
        _gauge(_OF_RUN + "end_seconds", "when the last run ended", (of, time.time())),
        _gauge(_OF_RUN + "step_seconds", "how long a step took", *steps),
        *(
            _gauge(_OF_RUN + name, about, (of, summary[name]))
            for name, about in _COUNTED.items()
            if name in summary
        ),
    ]
    kept = _kept(path)
    if status == 0:  # else the time of the last success stays as it is
        about = "when a run last ended without a failure"
        kept = [family for family in kept if family.name != _SUCCESS]
        kept.append(_gauge(_SUCCESS, about, (of, time.time())))
    _write(path, [*kept, *families])


def _of_groups(facts: Facts) -> list[Metric]:
    of = {"cluster": facts.cluster}
    # What a group is behind at most, it may not be behind at all.
    groups = [({**of, "group": row["group_id"]}, row) for row in facts.every_group]
    behind = [
        (named, row["total_lag"])
        for named, row in groups
        if row["total_lag"] is not None and not row["total_lag_is_bound"]
    ]
    statuses = [
        ({**named, "status": row["worst_lag_status"]}, 1)
        for named, row in groups
        if row["worst_lag_status"] is not None
    ]
    in_trouble = [
        ({**named, "status": row["worst_lag_status"]}, (row["as_of"] - since) / 1000)
        for named, row in groups
        if (since := row.get("lag_status_since")) is not None
    ]
    causes = [
        ({**of, "group": row["group_id"], "cause": row["cause"]}, row) for row in facts.causes
    ]
    seconds = [({**of, "group": group}, held) for group, held in facts.lag_seconds.items()]
    partitions = [
        (
            {
                **of,
                "group": row["group_id"],
                "topic": row["topic"],
                "partition": str(row["topic_partition"]),
            },
            row["lag"],
        )
        for row in facts.partition_lag
    ]
    missing = facts.quality.offsets - facts.quality.records
    not_ended = [
        ({**of, "kind": kind, "severity": severity}, number)
        for (kind, severity), number in facts.open_counts.items()
    ]
    of_severity = Counter(row["severity"] for row in facts.incidents if row["is_open"])
    incidents = [({**of, "severity": severity}, n) for severity, n in sorted(of_severity.items())]
    about_lag = "records that a group is behind, of all its partitions, at the last sample"
    about_anomalies = "anomalies that had not ended at the last run"
    return [
        _gauge(_OURS + "groups", "groups that are known", (of, facts.group_count)),
        _gauge(_OURS + "group_lag", about_lag, *behind),
        *(
            [_gauge(_OURS + "partition_lag", "records that a group is behind", *partitions)]
            if partitions
            else []
        ),
        _gauge(_OURS + "group_lag_seconds", "age of what a group reads next", *seconds),
        _gauge(_OURS + "group_lag_status", "worst status of a partition's lag: 1", *statuses),
        _gauge(
            _OURS + "group_lag_status_seconds",
            "for how long a group's lag has had a status that is not OK",
            *in_trouble,
        ),
        _gauge(
            _OURS + "group_health",
            "0 ok, 1 info, 2 warning, 3 critical: the worst open anomaly of a group",
            *((named, _HEALTH.index(row["health"])) for named, row in groups),
        ),
        _gauge(
            _OURS + "group_state",
            "the state that a group is in: 1",
            *(({**named, "state": row["state"]}, 1) for named, row in groups),
        ),
        *(
            _gauge(
                f"{_OURS}group_{name}",
                about,
                *((named, row[name]) for named, row in groups if row[name] is not None),
            )
            for name, about in _OF_GROUP.items()
        ),
        _gauge(
            _OURS + "group_rebalances_24h",
            "rebalances that began in the last 24 hours of the log, by cause",
            *((named, row["rebalances"]) for named, row in causes if row["rebalances"]),
        ),
        _counter(
            _OURS + "group_rebalances",
            "rebalances that are known, by cause",
            *((named, row["every_rebalance"]) for named, row in causes),
        ),
        _counter(
            _OURS + "group_rebalance_cost_seconds",
            "for how long members were without partitions of theirs, all together, by cause",
            *((named, (row["cost_member_ms"] or 0) / 1000) for named, row in causes),
        ),
        _gauge(_OURS + "open_anomalies", about_anomalies, *not_ended),
        _gauge(_OURS + "incidents", "incidents that had not ended at the last run", *incidents),
        _gauge(_OURS + "missing_offsets", "offsets of the log without a record", (of, missing)),
        *(
            _gauge(_OURS + "newest_record_seconds", "time of the newest record of the log", sample)
            for sample in ([] if facts.as_of is None else [(of, facts.as_of / 1000)])
        ),
    ]


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    about: str,
    *samples: tuple[dict[str, str], float],
) -> Metric:
    family = kind(name, about, labels=list(samples[0][0]) if samples else [])
    for labels, value in samples:
        family.add_metric(list(labels.values()), value)
    return family


_gauge = partial(_family, GaugeMetricFamily)
# What only grows; its samples have `_total` behind their name.
_counter = partial(_family, CounterMetricFamily)


def _kept(path: str) -> list[Metric]:
    """Return the figures of the groups that a file holds."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            families = list(text_fd_to_metric_families(file))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise MetricsError(f"--metrics {path}: is no file of metrics: {error}") from error
    others = [family.name for family in families if not family.name.startswith(_OURS)]
    if others:
        raise MetricsError(f"--metrics {path}: holds metrics of another program: {others[0]}")
    return [family for family in families if not family.name.startswith(_OF_RUN)]


def _write(path: str, families: Iterable[Metric]) -> None:
    registry = CollectorRegistry()
    registry.register(_Families(families))
    try:
        write_to_textfile(path, registry)  # as a whole, or not at all
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise MetricsError(f"--metrics {path}: cannot be written: {reason}") from error
