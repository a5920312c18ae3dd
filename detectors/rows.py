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
    """Return the rows of episodes, of a group or, if `group_id` is None, of the log.

    Those that are settled, no later run can change.
    """
    of = [(episode, True) for episode in settled] + [(episode, False) for episode in still_open]
    for episode, is_settled in of:
        evidence = nested(episode.evidence)
        values = {
            **evidence,
            "subject": episode.subject,
            "label": episode.label,
            "ms": episode.ended_at - episode.started_at,
            "of": name(group_id or ""),
            "when": window(episode.started_at, episode.ended_at),
        }
        yield {
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
