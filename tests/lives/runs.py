"""Follows the alarms of a life through the runs of a schedule, as who is called lives them.

Each run reads what is new, and goes on from the checkpoints of the last one, of the history and of
the detectors. What they tell in the end has to be what one run over all of the log tells.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from detectors.detection import CHECKPOINT
from detectors.group import (
    GENERATION,
    MOVE,
    OPEN_GENERATION,
    OPEN_SESSION,
    OPEN_STATE,
    OWNER,
    SESSION,
    TOPIC,
    TWO_OWNERS,
    WAIT,
)
from detectors.group import MINUTE as MINUTE_ROW
from tests.lives import judge
from tests.lives.player import Kept, Played
from tests.lives.scripts import HOUR, START
from tests.support import detection as support
from tests.support import history
from tests.support.history import Log
from timeline.model import GENERATIONS, OWNERS, SESSIONS, STATES

Row = dict[str, Any]
_FAR = 1 << 60
_AGAIN_MS = 2 * HOUR
# What has to be the same however the log is cut.
_SAME = ("severity", "label", "started_at", "ended_at", "is_open", "summary", "evidence")


def followed(played: Played, period_ms: int) -> list[judge.Wrong]:
    """Return what is told of a life otherwise than one alarm that begins, and ends once."""
    life = played.life
    times = [*range(START + period_ms, life.end, period_ms), life.end]
    logs, commits = judge.read_back(played.records)
    wrong: list[judge.Wrong] = []
    for group in life.groups:
        if group in logs:
            others = support.Commits({g: of for g, of in commits.items() if g != group})
            given = logs[group], commits.get(group, []), others
            told = [*_told(*given, played.records, times)]
            (whole,) = _told(*given, played.records, times[-1:])
            wrong += [judge.Wrong(1, group, *one) for one in _contradictions(times, told, whole)]
    return wrong


def _told(
    log: Log,
    commits: list[Row],
    others: support.Commits,
    records: list[Kept],
    times: list[int],
) -> list[list[Row]]:
    """Return the anomalies that each run knows."""
    group, limits = log.group_id, support.default_thresholds()
    moves = support._moves(commits)
    support._mark_kept(group, moves, others)
    kept: dict[str, list[Row]] = {table: [] for table in history.TABLES}
    still_open: dict[str, list[Row]] = {table: [] for table in history.TABLES}
    of_history, of_detectors, done, read, settled = None, None, 0, -1, list[Row]()
    told: list[list[Row]] = []
    last = -1
    for now in times:
        new: dict[str, list[Row]] = {table: [] for table in history.TABLES}
        until = [r.offset for r in records if r.partition == log.partition and r.timestamp <= now]
        offset = max(until, default=-1)
        end = sum(event.offset <= offset for event in log.events)
        if end > done:
            new, still_open, of_history = history._run(log, done, end, of_history)
            history._add(kept, new)
        known = _known(new, still_open)
        known[OWNER] = sorted(
            (r for r in kept[OWNERS] + still_open[OWNERS] if r["valid_from"] is not None),
            key=lambda r: int(r["valid_from"]),
        )
        fresh = support._between(commits, last, offset)
        known[MOVE] = support._between(moves, last, offset)
        known[MINUTE_ROW], known[TOPIC] = support._minutes(fresh), support._topics(fresh)
        so_far = support._between(commits, -1, offset)
        known[WAIT] = support._waits(group, so_far, known[MOVE], others, (read, now))
        support._name_owners(known[WAIT], known[OWNER])
        if of_detectors is not None:
            known[CHECKPOINT] = [{"state": of_detectors}]
        done, read, last = end, now, offset
        found, of_detectors = support.one_run(group, known, limits, now)
        settled += [row for row in found if row["is_settled"]]
        going_on = [row for row in found if not row["is_settled"]]
        told.append([*settled, *going_on])
    return told


def _known(new: dict[str, list[Row]], still_open: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Return what the detectors get of a run of the history, as `detectors.transform` orders it."""
    settled = json.loads(json.dumps(new))
    going_on = json.loads(json.dumps(still_open))
    known: dict[str, list[Row]] = defaultdict(list)
    for kind, rows in ((GENERATION, settled), (OPEN_GENERATION, going_on)):
        known[kind] = sorted(
            rows[GENERATIONS],
            key=lambda r: (_FAR if r["ended_at"] is None else r["ended_at"], r["record_offset"]),
        )
    known[OPEN_STATE] = [row for row in going_on[STATES] if row["ended_at"] is None]
    for kind, rows in ((SESSION, settled), (OPEN_SESSION, going_on)):
        static = [row for row in rows[SESSIONS] if row["group_instance_id"] is not None]
        known[kind] = sorted(
            (r for r in static if kind == OPEN_SESSION or r["left_at"] is not None),
            key=lambda r: (r["left_at"] or _FAR, r["record_offset"], r["member_id"]),
        )
    owners = [r for r in settled[OWNERS] + going_on[OWNERS] if r["valid_from"] is not None]
    owners.sort(key=lambda r: (r["valid_from"], r["valid_to"] or _FAR))
    known[TWO_OWNERS] = support.ownerships_of(owners)
    return known


def _contradictions(
    times: list[int], told: list[list[Row]], whole: list[Row]
) -> list[tuple[str, str]]:
    """Return what two runs tell otherwise of an alarm, each with its kind."""
    found: list[tuple[str, str]] = []
    known: dict[str, Row] = {}
    for at, rows in zip(times, told, strict=True):
        now = {row["anomaly_id"]: row for row in rows}
        names = Counter(row["anomaly_id"] for row in rows)
        twice = [now[name] for name, number in names.items() if number > 1]
        gone = [row for name, row in known.items() if name not in now]
        again = [row for name, row in now.items() if name in known and _reopens(known[name], row)]
        again += [row for name, row in now.items() if name not in known and _follows(row, known)]
        for what, all_of in (("twice", twice), ("taken back", gone), ("told again", again)):
            found += [(what, f"{judge.clock(at)} {_line(r)}") for r in all_of if _is_alarm(r)]
        known = now
    once = {row["anomaly_id"]: row for row in whole}
    for name in sorted(once.keys() | known.keys()):
        one, many = once.get(name), known.get(name)
        if one is None or many is None or any(one[n] != many[n] for n in _SAME):
            found.append(("in one run otherwise", f"{_line(many or one)}"))
    return found


def _is_alarm(row: Row) -> bool:
    return row["severity"] in judge.ALARMS


def _reopens(before: Row, row: Row) -> bool:
    return bool(row["is_open"] and not before["is_open"])


def _follows(row: Row, known: dict[str, Row]) -> bool:
    """Return whether an alarm of the same kind and subject had ended shortly before."""
    return any(
        (other["kind"], other["subject"]) == (row["kind"], row["subject"])
        and _is_alarm(other)
        and 0 <= row["started_at"] - other["ended_at"] < _AGAIN_MS
        for other in known.values()
    )


def _line(row: Row | None) -> str:
    assert row is not None
    return f"{row['severity']} {row['kind']} ({row['label']}): {row['summary']}"
