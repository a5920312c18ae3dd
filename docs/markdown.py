"""Breaks Markdown into lines, for the scripts that write pages."""

from __future__ import annotations

import re
import textwrap

WIDTH = 120
# What would begin a list, a heading or a quotation at the start of a line.
_MARK = re.compile(r" (?=(?:[-+*#>|=~]+|\d+[.)])(?: |$))")


def paragraph(text: str, first: str = "", rest: str = "") -> str:
    """Break a text into lines of 120 characters, with what the first and the others begin with."""
    lines = textwrap.wrap(
        _MARK.sub("\0", text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")


def item(text: str) -> str:
    """Write a text as an item of a list."""
    return paragraph(text, "- ", "  ")
