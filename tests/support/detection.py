"""Finds the anomalies of a recording without Spark, in one run or cut into many."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from detectors import detection, thresholds
from detectors.detection import CHECKPOINT, COLUMNS, SORT_RANKS
from detectors.group import (
    GENERATION,
    MINUTE,
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
from detectors.model import MINUTE_MS
from detectors.thresholds import Thresholds
from detectors.unread import OWNED_MS
from offsets import progress
from schemas.columns import arrow_schema
from schemas.gold import RHYTHM_COMMITS
from schemas.silver import decoded_columns
from tests.support.history import commits_of, histories_of, in_millis
from timeline.model import GENERATIONS, OWNERS, SESSIONS, STATES

Row = dict[str, Any]
CLUSTER = "default"
_TIMES = ("record_timestamp", "commit_timestamp")
_COMMITS = pa.schema(
    [
        *(
            f
            for f in arrow_schema(decoded_columns("offset_commits"))
            if f.name in progress.COMMIT_COLUMNS
        ),
        pa.field(progress.KIND, pa.int32()),
    ]
)


def default_thresholds(own: str | None = None) -> Thresholds:
    """Read our thresholds, and some over them."""
    return thresholds.read((resources.files("conf") / "anomalies.toml").read_text("utf-8"), own)


def detected(recording: Path, runs: int = 1, own: str | None = None) -> list[Row]:
    """Return the rows of gold.anomalies that the groups of a recording have.

    Args:
        recording: a Parquet file.
        runs: number of runs that the rows known by the end come in.
        own: thresholds as TOML.
    """
    limits = default_thresholds(own)
    commits, every = commits_of(recording), _commits_of_all(recording)
    tables_of = histories_of(recording)
    times = [r["record_timestamp"] for t in tables_of.values() for r in t[STATES]]
    times += [c["at"] for of_group in commits.values() for c in of_group]
    now = max(t for t in times if t is not None)
    rows = []
    for group, tables in tables_of.items():
        of_group, by_kind = commits.get(group, []), _by_kind(tables)
        rows += _detect(group, by_kind, of_group, limits, (now, runs), every=every)
    return sorted(rows, key=lambda r: (r["started_at"], r["kind"], r["group_id"], r["anomaly_id"]))


def detected_history(
    tables_of: dict[str, list[Row]],
    now: int,
    commits: list[Row] | None = None,
    holes: Mapping[int, progress.Holes] | None = None,
    *,
    others: Mapping[str, list[Row]] = MappingProxyType({}),
    runs: int = 1,
    lost: Mapping[int, int] = MappingProxyType({}),
) -> list[Row]:
    """Return the rows of gold.anomalies of a group's history.

    Args:
        tables_of: the history by table.
        now: time of the log.
        commits: rows of offset_commits in milliseconds; None to leave them aside.
        holes: what is missing, by partition of the records.
        others: commits of other groups; those of "" are ends of logs.
        runs: number of runs that the rows known by the end come in.
        lost: by partition of the records, the last offset that was lost before it could be read.
    """
    by_kind, limits, every = _by_kind(tables_of), default_thresholds(), Commits(others)
    given = by_kind, commits or [], limits, (now, runs)
    return _detect("g", *given, holes=holes, every=every, lost=lost)


def _by_kind(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    by_kind: dict[str, list[Row]] = defaultdict(list)
    by_kind[OPEN_STATE] = [row for row in tables[STATES] if row["ended_at"] is None]
    rows = sorted(tables[GENERATIONS], key=lambda r: r["record_offset"])
    # The newest one of a group that may be gone has an end, and is not settled.
    lost = rows[-1:] if not by_kind[OPEN_STATE] else []
    for row in rows:
        is_open = row["ended_at"] is None or row in lost
        by_kind[OPEN_GENERATION if is_open else GENERATION].append(row)
    static = [row for row in tables[SESSIONS] if row["group_instance_id"] is not None]
    by_kind[SESSION] = sorted(
        (row for row in static if row["left_at"] is not None),
        key=lambda r: (r["left_at"], r["record_offset"], r["member_id"]),
    )
    by_kind[OPEN_SESSION] = [row for row in static if row["left_at"] is None]
    by_kind[OWNER] = sorted(
        (row for row in tables[OWNERS] if row["valid_from"] is not None),
        key=lambda r: r["valid_from"],
    )
    by_kind[TWO_OWNERS] = ownerships_of(by_kind[OWNER])
    return by_kind


def ownerships_of(owners: list[Row]) -> list[Row]:
    """Return the ownerships of each partition that has several."""
    ownerships: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in owners:
        if row["group_type"] not in ("share", "streams"):
            of = row["topic"] or row["topic_id"], row["topic_partition"]
            ownerships[of].append({"known_until": None, "valid_to": None, **row})
    return [
        {"topic": topic, "topic_partition": partition, "ownerships": of_partition}
        for (topic, partition), of_partition in ownerships.items()
        if len(of_partition) > 1
    ]


def _detect(
    group: str,
    by_kind: dict[str, list[Row]],
    commits: list[Row],
    limits: Thresholds,
    now_and_runs: tuple[int, int],
    *,
    holes: Mapping[int, progress.Holes] | None = None,
    every: Commits,
    lost: Mapping[int, int] = MappingProxyType({}),
) -> list[Row]:
    """Have `detectors.detection` read what each run learns: the columns that Spark passes, too."""
    checkpoint, (now, runs), seen, read = None, now_and_runs, -1, -1
    rows: list[Row] = []
    generations, moves, done = by_kind[GENERATION], _moves(commits, holes), -1
    _mark_kept(group, moves, every)
    for run in range(runs):
        is_last, until = run == runs - 1, None
        known = {kind: _part(by_kind[kind], run, runs) for kind in (GENERATION, SESSION)}
        known[TWO_OWNERS] = _ending_behind(by_kind[TWO_OWNERS], seen)
        if is_last:
            known |= {k: by_kind[k] for k in (OPEN_GENERATION, OPEN_SESSION, OPEN_STATE)}
        else:
            # The next generation is known, but not its end, and half of the commits in it.
            settled = len(generations) * (run + 1) // runs
            following = (*generations, *by_kind[OPEN_GENERATION])[settled:]
            known[OPEN_GENERATION] = [{**row, "ended_at": None} for row in following[:1]]
            known[OPEN_SESSION] = _lasting(by_kind, run, runs)
            known[TWO_OWNERS] = _twice_as_of(known[TWO_OWNERS], following[:1])
            seen = max((row["record_timestamp"] for row in following[:1]), default=seen)
            until = sum(r["record_offset"] for r in (*following[:1], *following[-1:])) // 2
            until = max(done, until)  # what a run has read the next one has, too
        new = _between(commits, done, until)
        known |= {OWNER: by_kind[OWNER], MOVE: _between(moves, done, until)}
        known |= {MINUTE: _minutes(new), TOPIC: _topics(new)}
        time = now if until is None else max((c["at"] for c in new), default=read)
        of_run = _between(commits, -1, until)
        known[WAIT] = _waits(group, of_run, known[MOVE], every, (read, time))
        read = time
        _name_owners(known[WAIT], known[OWNER])
        if checkpoint is not None:
            known[CHECKPOINT] = [{"state": checkpoint}]
        done = done if until is None else until
        found, checkpoint = one_run(group, known, limits, now, lost=lost)
        rows += [row for row in found if row["is_settled"] or is_last]
    return rows


def one_run(
    group: str,
    known: dict[str, list[Row]],
    limits: Thresholds,
    now: int,
    *,
    lost: Mapping[int, int] = MappingProxyType({}),
) -> tuple[list[Row], str | None]:
    """Have the detectors read what a run learns; return the anomalies, and the next checkpoint."""
    batches = _table(group, known).to_batches()
    found = detection.detected(batches, limits, CLUSTER, now, known_until={}, lost=lost)
    rows = [row for batch in found for row in map(in_millis, batch.to_pylist())]
    kept = [row["state"] for row in rows if row["state"] is not None]
    return [row for row in rows if row["state"] is None], next(iter(kept), None)


def _table(group: str, known: Mapping[str, list[Row]]) -> pa.Table:
    """Bring all kinds of rows into one shape, as `detectors.transform` does."""
    columns = sorted({name for names in COLUMNS.values() for name in names})
    rows = [
        {
            "group_id": group,
            "kind": kind,
            **dict.fromkeys(columns),
            **{n: row.get(n) for n in COLUMNS[kind]},
        }
        for kind in sorted(known, key=lambda kind: SORT_RANKS[kind])
        for row in known[kind]
    ]
    return pa.Table.from_pylist(rows)


def _between(rows: list[Row], after: int, until: int | None) -> list[Row]:
    return [
        row
        for row in rows
        if row["record_offset"] > after and (until is None or row["record_offset"] <= until)
    ]


def _part(rows: list[Row], run: int, runs: int) -> list[Row]:
    return rows[len(rows) * run // runs : len(rows) * (run + 1) // runs]


def _moves(commits: list[Row], holes: Mapping[int, progress.Holes] | None = None) -> list[Row]:
    """Return the rows of offset_moves that commits of one group make, in the order of the log.

    Args:
        commits: rows of offset_commits in milliseconds, in the order of the log.
        holes: what is missing, by partition of the records.
    """
    given = [
        {
            **commit,
            "group_id": "g",
            progress.KIND: progress.COMMIT,
            **{n: None if commit[n] is None else commit[n] * 1_000 for n in _TIMES},
        }
        for commit in sorted(commits, key=lambda c: (c["topic"], c["topic_partition"]))
    ]
    moves: list[Row] = []
    if given:
        rows = pa.Table.from_pylist(given, _COMMITS).to_batches()
        for table, batch in progress.follow(rows, holes or {}):
            moves += map(in_millis, batch.to_pylist()) if table == progress.MOVES else ()
    return sorted(moves, key=lambda m: m["record_offset"])


class Commits:
    """The commits of all groups, by what a group is asked of those of the others."""

    def __init__(self, commits: Mapping[str, list[Row]]) -> None:
        """Take them by group, in the order of the log; those of "" are ends of logs."""
        self._kept: dict[str, dict[str, int]] = defaultdict(dict)
        self._by_time: dict[tuple[str, int], list[tuple[int, int, str]]] = defaultdict(list)
        for group, of_group in commits.items():
            last = {(c["topic"], c["topic_partition"]): c for c in of_group}
            for (topic, _), c in last.items():
                if not c["is_tombstone"]:
                    kept = self._kept[topic]
                    kept[group] = min(c["at"], kept.get(group, c["at"]))
            for c in of_group:
                if not c["is_tombstone"]:
                    of = c["topic"], c["topic_partition"]
                    self._by_time[of].append((c["at"], c["committed_offset"], group))
        for of_partition in self._by_time.values():
            of_partition.sort()

    def kept_since(self, topic: str, group: str) -> int | None:
        """Return since when another group has an offset of a topic, which is still there."""
        return min((at for g, at in self._kept[topic].items() if g != group), default=None)

    def beyond(
        self,
        of: tuple[str, int],
        offset: int,
        group: str,
        span: tuple[int, int],
        run: tuple[int, int],
    ) -> list[tuple[int, int, str]]:
        """Return when other groups committed more than an offset, how much, and which they are.

        A run that reads what came between two times knows of that, and of the last of each group.
        """
        known, (read, now) = self._by_time[of], run
        first, end = (bisect_right(known, at, key=lambda c: c[0]) for at in span)
        found = [c for c in known[first:end] if c[2] != group and c[1] > offset]
        if not found or found[0][0] > read:
            return found
        last = {c[2]: c for c in known[first : bisect_right(known, now, key=lambda c: c[0])]}
        return [c for c in found if c[0] > read or c == last[c[2]]]


@cache
def _commits_of_all(recording: Path) -> Commits:
    return Commits(commits_of(recording))


def _mark_kept(group: str, moves: list[Row], every: Commits) -> None:
    """Do what `detectors.transform._with_kept` does."""
    times = set()
    for move in moves:
        if move["move"] == "deleted" and move["at"] is not None:
            kept = every.kept_since(move["topic"], group)
            if kept is not None and kept < move["at"]:
                times.add(move["at"])
    for move in moves:
        move["is_kept"] = True if move["at"] in times else None


def _lasting(by_kind: dict[str, list[Row]], run: int, runs: int) -> list[Row]:
    """Return the static members' sessions that go on when a run is over."""
    ended = _part(by_kind[SESSION], run, runs)
    rest = [*by_kind[SESSION][len(by_kind[SESSION]) * (run + 1) // runs :], *by_kind[OPEN_SESSION]]
    until = ended[-1]["left_at"] if ended else 0
    going_on = (row for row in rest if row["joined_at"] <= until)
    return [{**row, "left_at": None, "end_cause": None} for row in going_on]


def _twice_as_of(rows: list[Row], newest: Sequence[Row]) -> list[Row]:
    """Return the partitions with several owners as of a generation, in which the last ones own."""
    found = []
    for row, now in product(rows, newest):
        then, at = (now["record_partition"], now["record_offset"]), now["record_timestamp"]
        known = [
            {**o, "valid_to": o["valid_to"] if (o["valid_to"] or 0) <= at else None}
            for o in row["ownerships"]
            if (o["record_partition"], o["record_offset"]) <= then
        ]
        if len(known) > 1:
            found.append({**row, "ownerships": known})
    return found


def _ending_behind(rows: list[Row], seen: int) -> list[Row]:
    """Leave out ownerships that an earlier run, which had read up to a time, knows to be over."""
    kept = [
        [o for o in row["ownerships"] if o["valid_to"] is None or o["valid_to"] > seen]
        for row in rows
    ]
    return [{**row, "ownerships": of} for row, of in zip(rows, kept, strict=True) if len(of) > 1]


def _minutes(commits: list[Row]) -> list[Row]:
    """Do what `detectors.transform._minutes` does."""
    of_minute: dict[int, list[Row]] = defaultdict(list)
    for commit in commits:
        if not commit["is_tombstone"] and commit["at"] is not None:
            of_minute[commit["at"] // MINUTE_MS].append(commit)
    return [
        {
            "minute": minute,
            "record_partition": rows[0]["record_partition"],
            "commits": len(rows),
            "partitions": len({(r["topic"], r["topic_partition"]) for r in rows}),
            "keys": sorted({hash((r["topic"], r["topic_partition"])) for r in rows}),
            "first_at": min(r["at"] for r in rows),
            "last_at": max(r["at"] for r in rows),
            "first_offset": rows[0]["record_offset"],
            "last_offset": rows[-1]["record_offset"],
        }
        for minute, rows in sorted(of_minute.items())
    ]


def _waits(
    group: str, commits: list[Row], moves: list[Row], every: Commits, run: tuple[int, int]
) -> list[Row]:
    """Do what `detectors.transform.waits_of` does, of what a run reads between two times."""
    of_partition: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for c in commits:
        recent = of_partition[c["topic"], c["topic_partition"]]
        recent.append(c) if not c["is_tombstone"] else recent.clear()
    pauses = [
        {
            "topic": move["topic"],
            "topic_partition": move["topic_partition"],
            "since": move["previous_at"],
            "until": move["at"],
            "rhythm_since": move["rhythm_since"],
            "rhythm_offset": move["rhythm_offset"],
            "committed_offset": move["previous_offset"],
            "is_complete": move["is_complete"],
            "record_partition": move["record_partition"],
            "record_offset": move["previous_record_offset"],
            "until_offset": move["record_offset"],
        }
        for move in moves
        if move["previous_at"] is not None and move["rhythm_since"] is not None
    ]
    pauses += [
        {
            **{n: recent[-1][n] for n in ("topic", "topic_partition", "committed_offset")},
            "since": recent[-1]["at"],
            "until": None,
            "rhythm_since": recent[-RHYTHM_COMMITS]["at"],
            "rhythm_offset": recent[-RHYTHM_COMMITS]["committed_offset"],
            "is_complete": True,
            "record_partition": recent[-1]["record_partition"],
            "record_offset": recent[-1]["record_offset"],
            "until_offset": None,
        }
        for recent in of_partition.values()
        if len(recent) >= RHYTHM_COMMITS
    ]
    waits = []
    for pause in pauses:
        until = run[1] if pause["until"] is None else min(pause["until"], run[1])
        of, offset = (pause["topic"], pause["topic_partition"]), pause["committed_offset"]
        seen = every.beyond(of, offset, group, (pause["since"], until), run)
        if seen:
            pause["usual_ms"] = (pause["since"] - pause["rhythm_since"]) // 4
            if pause["rhythm_offset"] is not None:
                pause["usual_step"] = (offset - pause["rhythm_offset"]) // 4
            pause["first_at"], pause["first_offset"], _ = seen[0]
            pause["other_offset"] = max(e[1] for e in seen)
            pause["others"] = sorted({e[2] for e in seen} - {""})
            waits.append(pause)
    return waits


def _name_owners(waits: list[Row], owners: list[Row]) -> None:
    """Do what `detectors.transform._with_owner` does."""
    for wait in waits:
        of = wait["topic"], wait["topic_partition"]
        owned = [o for o in owners if (o["topic"], o["topic_partition"]) == of]
        begun = [o for o in owned if o["valid_from"] <= wait["since"] + OWNED_MS]
        wait["owner"] = begun[-1] if begun else None
        now = [o for o in owned if o["valid_to"] is None]
        wait["now_owner"] = next((o for o in now[-1:] if o["known_until"] is None), None)
        wait["is_owned"] = bool(now)


def _topics(commits: list[Row]) -> list[Row]:
    """Do what `detectors.transform._topics` does."""
    first: dict[tuple[int, str], dict[int, int]] = defaultdict(dict)
    for commit in commits:
        if not commit["is_tombstone"]:
            of_topic = first[commit["record_partition"], commit["topic"]]
            of_topic.setdefault(commit["topic_partition"], commit["record_offset"])
    return [
        {
            "topic": topic,
            "record_partition": partition,
            "firsts": [{"topic_partition": p, "record_offset": o} for p, o in of_topic.items()],
        }
        for (partition, topic), of_topic in first.items()
    ]
