"""Numbers and lists in words: with their noun, in the unit that fits, the first of many."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 3
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_UNITS = {"GB": 1e9, "MB": 1e6}


def count(number: float, noun: str) -> str:
    """Write a number with its noun: `1 anomaly`, `2,000 members`."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,.0f} {noun}"


def duration(ms: float) -> str:
    """Return a length of time in the unit that fits."""
    if ms < _SECOND:
        return f"{ms:.0f} ms"
    if ms < 2 * _MINUTE:
        return f"{ms / _SECOND:.1f} s"
    if ms < 10 * _MINUTE:
        minutes, seconds = divmod(round(ms / _SECOND), 60)
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    if ms < 2 * _HOUR:
        return f"{ms / _MINUTE:.0f} min"
    if ms < 2 * _DAY:
        return f"{ms / _HOUR:.0f} h"
    return f"{ms / _DAY:.0f} days"


def size(number: float) -> str:
    """Return a number of bytes in the unit that fits."""
    unit, one = next((x for x in _UNITS.items() if number >= x[1]), ("kB", 1e3))
    return f"{number / one:,.1f} {unit}"


def some(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
