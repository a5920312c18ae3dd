"""Turns episodes into rows of gold.anomalies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from detectors.model import Episode, Row, anomaly_id
from detectors.sentences import name, summary, window
from detectors.thresholds import Values

_FIRST_RECORD = ("first_record_partition", "first_record_offset", "first_record_timestamp")
_LAST_RECORD = ("last_record_partition", "last_record_offset", "last_record_timestamp")


def anomaly_rows(
    settled: Iterable[Episode],
    still_open: Iterable[Episode],
    cluster: str,
    group_id: str | None,
    limits: Values,
    *,
    now: int,
) -> Iterator[Row]:
    """Return the rows of the episodes of a group, see `anomaly_row`."""
    for is_settled, episodes in ((True, settled), (False, still_open)):
        for episode in episodes:
            yield anomaly_row(episode, cluster, group_id, limits, now=now, is_settled=is_settled)


def anomaly_row(
    episode: Episode,
    cluster: str,
    group_id: str | None,
    limits: Values,
    *,
    now: int,
    is_settled: bool,
) -> Row:
    """Return the row of an episode, of a group or, if `group_id` is None, of the log.

    If it is settled, no later run can change it.
    """
    evidence = nested(episode.evidence)
    values = {
        **evidence,
        "subject": episode.subject,
        "label": episode.label,
        "ms": episode.ended_at - episode.started_at,
        "of": name(group_id or ""),
        "when": window(episode.started_at, episode.ended_at),
    }
    return {
        "anomaly_id": anomaly_id(
            cluster, episode.kind, group_id or "", episode.subject, episode.started_at
        ),
        "kind": episode.kind,
        "severity": episode.severity,
        "group_id": group_id,
        "subject": episode.subject or None,
        "started_at": episode.started_at,
        "ended_at": episode.ended_at,
        "is_open": not is_settled and episode.is_open(now),
        "label": episode.label,
        "summary": summary(episode.kind, values),
        "evidence": orjson.dumps(evidence).decode(),
        "thresholds": orjson.dumps(limits.get(episode.kind, {})).decode(),
        **dict(zip(_FIRST_RECORD, episode.first, strict=True)),
        **dict(zip(_LAST_RECORD, episode.last, strict=True)),
        "is_settled": is_settled,
    }


def nested(evidence: Row) -> Row:
    """Return evidence with names that have a dot as nested objects: ``causes.new_member``."""
    values: Row = {}
    for key, value in evidence.items():
        outer, dot, inner = key.partition(".")
        if dot:
            values.setdefault(outer, {})[inner] = value
        else:
            values[key] = value
    return values
