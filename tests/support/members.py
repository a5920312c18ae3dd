"""Records whose members are given as rows of silver have them."""

from __future__ import annotations

from typing import Any

from timeline import connect, streams
from timeline.fold import GROUP_METADATA
from timeline.model import Member, Record

Row = dict[str, Any]
_OWN = (
    *("member_id", "group_instance_id", "client_id", "client_host"),
    *("rebalance_timeout_ms", "session_timeout_ms"),
)


def record_of(
    offset: int, at: int | None, kind: str, member_id: str | None, payload: Row | None
) -> Record:
    """Return a record as the fold takes it."""
    if kind == GROUP_METADATA and payload is not None:
        is_connect = payload.get("protocol_type") == connect.PROTOCOL_TYPE
        members = [_member(m, is_connect=is_connect) for m in payload.get("members") or ()]
        payload = {**payload, "members": members}
    return Record(offset, at, kind, member_id, payload)


def _member(given: Row, *, is_connect: bool) -> Member:
    assigned: dict[str, list[int]] | None = None
    assignment = given.get("connect_assignment" if is_connect else "assignment")
    if assignment is not None and is_connect:
        assigned = connect.tasks_of(assignment.get("assignment"))
    elif assignment is not None:
        assigned = _by_topic(assignment.get("partitions"))
    elif given.get("has_empty_assignment"):
        assigned = {}
    subscription = given.get("subscription")
    own: dict[str, Any] = {name: given.get(name) for name in _OWN}
    return Member(
        **own,
        topics=None if subscription is None else subscription.get("topics") or [],
        assigned=assigned,
        claimed=_by_topic((subscription or {}).get("owned_partitions")),
        worker=connect.worker_of(
            given.get("connect_subscription"), assignment if is_connect else None
        ),
        streams=streams.read(given.get("user_data")),
    )


def _by_topic(parts: list[Row] | None) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for part in parts or ():
        found.setdefault(part.get("topic") or "", []).extend(part.get("partitions") or ())
    return found
