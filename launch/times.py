"""Moments as people write them: `02:10`, `2026-11-21 02:10`, `2h ago`, `2026-11-21T02:10:00Z`."""

from __future__ import annotations

import datetime as dt
import os
import re
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LOCAL = Path("/etc/localtime")
_AGO = re.compile(r"(\d{1,5})\s*([smhd])\s+ago")
DAY_MS = 86_400_000
_CLOCK = re.compile(r"\d{1,2}:\d{2}|\d{2}:\d{2}:\d{2}")
FORMS = "02:10, 2026-11-21 02:10, 2026-11-21T02:10:00Z or 2h ago"


def zone(name: str) -> dt.tzinfo:
    """Return the time zone of a name: `UTC`, `Europe/Berlin`, `local` for that of this machine.

    Raises:
        ValueError: there is no such zone.
    """
    try:
        if name != "local":
            return ZoneInfo(name)
        # Jobs run in UTC; the launcher keeps the zone of the one who asks.
        own = os.environ.get("GROUPLEDGER_TZ", "").removeprefix(":")
        if own:
            return ZoneInfo(own)
        with _LOCAL.open("rb") as file:
            return ZoneInfo.from_file(file, key="local")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone, such as UTC or Europe/Berlin") from error


def parsed(text: str | None, now: dt.datetime, where: str) -> int | None:
    """Return what `moment` does of a zone's name, as epoch milliseconds; None without a text.

    Raises:
        ValueError: there is no such zone, or the text is none of the forms.
    """
    of_zone = zone(where)
    return None if text is None else millis(moment(text, now, of_zone))


def is_clock(text: str) -> bool:
    """Return whether a text is a time without a date."""
    return _CLOCK.fullmatch(text.strip()) is not None


def millis(at: dt.datetime) -> int:
    """Return a moment as epoch milliseconds."""
    return round(at.timestamp() * 1_000)


def moment(text: str, now: dt.datetime, where: dt.tzinfo) -> dt.datetime:
    """Return the moment that a text means, see `FORMS`.

    A time without a date is the last such time before now. A time without a zone is of `where`.

    Raises:
        ValueError: the text is none of the forms.
    """
    given = " ".join(text.split())
    if given == "now":
        return now
    ago = _AGO.fullmatch(given)
    if ago is not None:
        return now - dt.timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        if _CLOCK.fullmatch(given):
            clock = dt.time.fromisoformat(f"{given:0>5}" if given.count(":") == 1 else given)
            today = dt.datetime.combine(now.astimezone(where).date(), clock, where)
            return today if today <= now else today - dt.timedelta(days=1)
        found = dt.datetime.fromisoformat(re.sub(r"Z$", "+00:00", given))
    except ValueError as error:
        raise ValueError(f"{text!r} is no time: write {FORMS}") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=where)
