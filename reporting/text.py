"""Texts for people: names that anyone may have chosen, numbers, moments, lengths of time."""

from __future__ import annotations

import datetime as dt
import html
from functools import partial

from rich.markup import escape

# Milliseconds, unit and decimal places.
_UNITS = (
    (86_400_000, "d", 1),
    (3_600_000, "h", 1),
    (60_000, "min", 1),
    (1_000, "s", 1),
    (1, "ms", 0),
)
# Escapes what Slack and its like take for markup: mentions, links.
escaped = partial(html.escape, quote=False)
_CONSUMER_TIMES = (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds")


def printable(text: str) -> str:
    """Return a text with its control characters visible."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """Return a text with blanks instead of line breaks and other control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def cut(text: str, longest: int) -> str:
    """Return a text, or as much of it as there is room for."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def short_name(text: str) -> str:
    """Return a name as a whole for a table of rich: control characters visible, no markup."""
    return escape("".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text))


def passed_on(text: str) -> str:
    """Write a text that others pass on to who knows whom: no mention or link of chat services."""
    return one_line(text).replace("<", "\u2039").replace(">", "\u203a")


def records_behind(lag: int, *, is_bound: bool | None) -> str:
    """Say how many records behind; "at most" where no more is known than that."""
    return f"at most {lag:,}" if is_bound else f"{lag:,}"


def duration(milliseconds: float) -> str:
    """Write a duration: `5 ms`, `5.9 s`, `12 min`, `3 h`."""
    size, unit, places = next((u for u in _UNITS if milliseconds >= u[0]), _UNITS[-1])
    return f"{milliseconds / size:.{places}f}".removesuffix(".0") + f" {unit}"


def consumer_time(milliseconds: int, least: int) -> str:
    """Write time of several consumers: `14 consumer-minutes (at least 12)`."""
    fits = (u for u in _CONSUMER_TIMES if milliseconds >= 2 * u[0])
    size, unit = next(fits, _CONSUMER_TIMES[-1])
    ms, bound = (f"{n / size:,.1f}".removesuffix(".0") for n in (milliseconds, least))
    return f"{ms} consumer-{unit}" + (f" (at least {bound})" if least < milliseconds else "")


def moment(millis: int, where: dt.tzinfo = dt.timezone.utc) -> dt.datetime:
    """Return a time in epoch milliseconds by the clocks of a zone."""
    return dt.datetime.fromtimestamp(millis / 1_000, where)


def to_second(millis: int, where: dt.tzinfo = dt.timezone.utc) -> str:
    """Write a time in epoch milliseconds: `2026-11-21 07:01:08`."""
    return f"{moment(millis, where):%Y-%m-%d %H:%M:%S}"
