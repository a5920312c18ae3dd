"""How often a topic has to be read, by its settings; docs/operations.md has the reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
# What __consumer_offsets has unless somebody set it (TopicConfig, GroupCoordinatorConfig).
_DEFAULTS = {
    "cleanup.policy": "compact",
    "segment.bytes": "104857600",
    "segment.ms": str(7 * _DAY_MS),
    "max.compaction.lag.ms": str(2**63 - 1),
    "min.compaction.lag.ms": "0",
    "retention.ms": str(7 * _DAY_MS),
}
SEGMENT, LAG, RETENTION = "segment", "lag", "retention"
"""What limits the interval: a closed segment, min.compaction.lag.ms, retention."""
# Runs in the time that the busiest partition takes to close a segment, or that retention leaves.
_RUNS_A_SEGMENT = 10
# Runs in the time that a record is left alone: most of it is for a long run, and for an outage.
_RUNS_A_LAG = 4
_MINUTES = (60, 30, 20, 15, 10, 5)


@dataclass(frozen=True)
class Interval:
    """How far apart two runs may be."""

    minutes: int  # so far; as far as is usual, if a limit allows more
    is_enough: bool  # runs as far apart read nearly all; else no interval that is usual does
    limit: str  # what limits it
    limit_ms: float  # how long that takes, or leaves a record alone


def how_often(settings: Mapping[str, str], bytes_a_day: float) -> Interval:
    """Tell how often to run, by the topic's settings and the growth of its busiest partition."""
    found = {**_DEFAULTS, **settings}
    fills_ms = math.inf
    if bytes_a_day > 0:
        fills_ms = float(found["segment.bytes"]) / bytes_a_day * _DAY_MS
    closes_ms = min(fills_ms, float(found["segment.ms"]), float(found["max.compaction.lag.ms"]))
    if "compact" not in found["cleanup.policy"]:
        closes_ms = math.inf
    kept_ms = float(found["min.compaction.lag.ms"])
    limit, limit_ms, runs = SEGMENT, closes_ms, _RUNS_A_SEGMENT
    if kept_ms / _RUNS_A_LAG >= closes_ms / _RUNS_A_SEGMENT:
        limit, limit_ms, runs = LAG, kept_ms, _RUNS_A_LAG
    deleted_ms = float(found["retention.ms"])
    is_deleted = "delete" in found["cleanup.policy"] and deleted_ms >= 0
    if is_deleted and deleted_ms / _RUNS_A_SEGMENT < limit_ms / runs:
        limit, limit_ms, runs = RETENTION, deleted_ms, _RUNS_A_SEGMENT
    fitting = [minutes for minutes in _MINUTES if minutes * _MINUTE_MS <= limit_ms / runs]
    return Interval((fitting or _MINUTES[-1:])[0], bool(fitting), limit, limit_ms)
