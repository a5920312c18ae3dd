"""gold.anomalies to gold.incidents: what one cause is behind in many groups, told as one.

As long as no anomaly is new, worse or over, and no incident is open, nothing is read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import xor

import pyarrow as pa

from detectors import incidents as rule
from detectors.detection import batch_of
from detectors.model import Row
from lakehouse.lakehouse import Lakehouse
from lakehouse.queries import Ask, rows_by
from lakehouse.runs import StageRun
from lakehouse.tables import EVERY_ROW, among
from schemas.ledger import Detail
from schemas.tables import INCIDENTS

_MARK, _OPEN_SINCE, _HAS_SOME = "mark", "open_since", "has_some"
_TIMES = ("started_at", "ended_at")
_ANOMALY = (
    *("anomaly_id", "kind", "severity", "group_id", "subject", "label", "is_open", "evidence"),
    "first_record_partition",
)
_INCIDENT = tuple(
    c.name for c in INCIDENTS.of_cluster if c.name not in (*_TIMES, INCIDENTS.run_column)
)


def tell_incidents(
    lakehouse: Lakehouse, ask: Ask, stage: StageRun, groups: Iterable[Row], kinds: Iterable[Row]
) -> tuple[int, Row]:
    """Bring gold.incidents up to the anomalies of a run; return how many rows, and what to note.

    The groups are as `health.GROUPS_NOW` asks for, the kinds as `health.known_anomalies` does.
    """
    is_made = lakehouse.exists(INCIDENTS)
    # Dashboards ask for incidents, also where there are none.
    lakehouse.create(INCIDENTS)
    before = {} if stage.is_refresh or not is_made else stage.former.get(Detail.INCIDENTS, {})
    has_some = bool(before.get(_HAS_SOME, is_made))
    of_kinds = [row for row in kinds if row["kind"] in rule.KINDS]
    mark = reduce(xor, (row["mark"] for row in of_kinds), 0)
    open_since = before.get(_OPEN_SINCE)
    is_same = mark == before.get(_MARK) and open_since is None
    is_few = sum(row["known"] for row in of_kinds) < rule.LEAST_GROUPS and not has_some
    if is_same or is_few:
        return 0, {_MARK: mark, _OPEN_SINCE: None, _HAS_SOME: has_some}
    begun = [t for t in (*(row["since"] for row in of_kinds), open_since) if t is not None]
    since = min(begun) - rule.LOOKING_BACK_MS if before and begun else None
    begun_since = "" if since is None else f" AND started_at >= timestamp_millis({since})"
    may_be = [f"(kind <> '{kind}' OR label = '{label}')" for kind, label in rule.LABELS.items()]
    where = " AND ".join([among("kind", rule.KINDS), *may_be])
    asked = {"new": _asked("gold.anomalies", _ANOMALY, f"{where}{begun_since}")}
    if has_some:
        asked["former"] = _asked(INCIDENTS.name, _INCIDENT, f"true{begun_since}")
    read = rows_by(ask, asked)
    anomalies, former = read["new"], read.get("former", [])
    # What began with the first of those that were read may have begun before.
    first = None if since is None else since + rule.WINDOW_MS
    clients = rule.clients_of(anomalies)
    known = rule.Known(_places(groups), rule.groups_of(clients, _members(ask, clients)), former)
    found = rule.incidents(anomalies, known, lakehouse.cluster)
    found = [row for row in found if first is None or row["started_at"] >= first]
    noted = {_MARK: mark, _OPEN_SINCE: _earliest(found), _HAS_SOME: has_some or bool(found)}
    told = [row for row in former if first is None or row["started_at"] >= first]
    if _by_id(found) == _by_id(told):
        return 0, noted
    rows = [{**row, INCIDENTS.run_column: stage.id.number} for row in found]
    table = pa.Table.from_batches([batch_of(rows, INCIDENTS.of_cluster)])
    ids = among("incident_id", [row["incident_id"] for row in found])
    where = EVERY_ROW if first is None else f"started_at >= timestamp_millis({first}) OR {ids}"
    lakehouse.replace(INCIDENTS, table, stage.id, where)
    return len(rows), noted


def _asked(table: str, columns: Sequence[str], where: str) -> str:
    return f"SELECT {', '.join((*columns, *_TIMES))} FROM {table} WHERE {where}"  # noqa: S608 - ours


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
GROUP BY client, group_id, client_id"""  # noqa: S608 - numbers alone
    names = {f"name{n}": name.partition("*")[0] for n, (name, *_) in enumerate(clients)}
    return rows_by(ask, {"members": query}, **names)["members"]


def _earliest(found: Iterable[Row]) -> int | None:
    return min((row["started_at"] for row in found if row["is_open"]), default=None)


def _by_id(rows: Iterable[Row]) -> dict[str, Row]:
    return {row["incident_id"]: row for row in rows}
