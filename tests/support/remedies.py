"""Rows of the history as tables have them, for what is counted from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.tables import GROUP_GENERATIONS, MEMBER_SESSIONS
from timeline.model import GENERATIONS, SESSIONS

_TABLES = {GENERATIONS: GROUP_GENERATIONS, SESSIONS: MEMBER_SESSIONS}


def with_nulls(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with null in the columns that it lacks."""
    return {column.name: row.get(column.name) for column in _TABLES[table].columns}
