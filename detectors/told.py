"""Which anomalies may be of one incident, and which incidents are told of them.

As long as no anomaly is new, worse or over, and no incident is open, nothing is asked or told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import xor
from typing import NamedTuple, TypeAlias

from detectors import incidents as rule
from detectors.model import Row
from schemas.tables import INCIDENTS

Ask: TypeAlias = Callable[..., Mapping[str, list[Row]]]
"""Answers queries by name with rows; `:name` in them stands for a value that is given by name."""

_MARK, _OPEN_SINCE, _HAS_SOME = "mark", "open_since", "has_some"
_TIMES = ("started_at", "ended_at")
_ANOMALY = (
    *("anomaly_id", "kind", "severity", "group_id", "subject", "label", "is_open", "evidence"),
    "first_record_partition",
)
_INCIDENT = tuple(
    c.name for c in INCIDENTS.of_cluster if c.name not in (*_TIMES, INCIDENTS.run_column)
)


class Told(NamedTuple):
    """The incidents that there are, as far as they were looked at."""

    noted: Row  # what the next run compares its anomalies with
    rows: list[Row] | None = None  # the incidents; None if those that are told still hold
    since: int | None = None  # they are all that began since then; None if they are all


def told(
    ask: Ask,
    noted: Row,
    kinds: Iterable[Row],
    groups: Iterable[Row],
    *,
    cluster: str,
    is_made: bool,
) -> Told:
    """Return the incidents of the anomalies that there are, if they are others than before.

    The groups are as `health.GROUPS_NOW` asks for, the kinds as `health.known_anomalies` does; the
    last run has noted something, and incidents may be there even so if the table is made.
    """
    has_some = bool(noted.get(_HAS_SOME, is_made))
    of_kinds = [row for row in kinds if row["kind"] in rule.KINDS]
    mark = reduce(xor, (row["mark"] for row in of_kinds), 0)
    open_since = noted.get(_OPEN_SINCE)
    is_same = mark == noted.get(_MARK) and open_since is None
    is_few = sum(row["known"] for row in of_kinds) < rule.LEAST_GROUPS and not has_some
    if is_same or is_few:
        return Told({_MARK: mark, _OPEN_SINCE: None, _HAS_SOME: has_some})
    begun = [t for t in (*(row["since"] for row in of_kinds), open_since) if t is not None]
    since = min(begun) - rule.LOOKING_BACK_MS if noted and begun else None
    begun_since = "" if since is None else f" AND started_at >= timestamp_millis({since})"
    may_be = [f"(kind <> '{kind}' OR label = '{label}')" for kind, label in rule.LABELS.items()]
    where = " AND ".join([f"kind IN ({', '.join(map(repr, sorted(rule.KINDS)))})", *may_be])
    asked = {"new": _asked("gold.anomalies", _ANOMALY, f"{where}{begun_since}")}
    if has_some:
        asked["former"] = _asked(INCIDENTS.name, _INCIDENT, f"true{begun_since}")
    read = ask(asked)
    anomalies, former = read["new"], read.get("former", [])
    # What began with the first of those that were read may have begun before.
    first = None if since is None else since + rule.WINDOW_MS
    clients = rule.clients_of(anomalies)
    known = rule.Known(_places(groups), rule.groups_of(clients, _members(ask, clients)), former)
    found = _begun_since(first, rule.incidents(anomalies, known, cluster))
    now: Row = {_MARK: mark, _OPEN_SINCE: _earliest(found), _HAS_SOME: has_some or bool(found)}
    is_told = _by_id(found) == _by_id(_begun_since(first, former))
    return Told(now) if is_told else Told(now, found, first)


def _asked(table: str, columns: Sequence[str], where: str) -> str:
    return f"SELECT {', '.join((*columns, *_TIMES))} FROM {table} WHERE {where}"


def _begun_since(first: int | None, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if first is None or row["started_at"] >= first]


def _places(groups: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """Return in which partition of the log the newest record of each group is, and its time."""
    return {
        row["group_id"]: (row["record_partition"], row["newest_at"])
        for row in groups
        if row["record_partition"] is not None and row["newest_at"] is not None
    }


def _members(ask: Ask, clients: Sequence[rule.Client]) -> list[Row]:
    """Ask for the groups that had members with such names, by what these begin with."""
    if not clients:
        return []
    asked = "\n  UNION ALL ".join(
        f"SELECT {number} AS client, :name{number} AS beginning,"
        f" timestamp_millis({first - rule.WINDOW_MS}) AS first, timestamp_millis({last}) AS last"
        for number, (_, first, last) in enumerate(clients)
    )
    query = f"""
SELECT client, group_id, client_id
FROM gold.member_sessions JOIN (
  {asked}
) ON startswith(client_id, beginning) AND joined_at <= last
  AND (left_at IS NULL OR left_at >= first)
GROUP BY client, group_id, client_id"""
    names = {f"name{n}": name.partition("*")[0] for n, (name, *_) in enumerate(clients)}
    return ask({"members": query}, **names)["members"]


def _earliest(found: Iterable[Row]) -> int | None:
    return min((row["started_at"] for row in found if row["is_open"]), default=None)


def _by_id(rows: Iterable[Row]) -> dict[str, Row]:
    return {row["incident_id"]: row for row in rows}
