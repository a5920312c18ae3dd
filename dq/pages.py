"""Makes great-expectations' pages readable without a network; they load code and styles from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

_LOADED = re.compile(
    r"<(script|footer)\b.*?</\1>|<(?:link|img)\b[^>]*\"https?://[^>]*>|url\(.https?:[^)]*\)",
    re.DOTALL,
)
_STYLE = (
    "<style>body { font-family: sans-serif }"
    " td, th { padding: .2rem .8rem; text-align: left }</style>"
)


def without_network(folder: Path, told: Mapping[str, str]) -> None:
    """Leave out of pages what they would load, and what that would run; make the first one.

    That one says of each suite, by its title, what is `told`, and leads to the newest page.
    """
    for page in folder.rglob("*.html"):
        text = page.read_text("utf-8")
        if _LOADED.search(text):
            page.write_text(_LOADED.sub("", text).replace("</head>", f"{_STYLE}</head>"), "utf-8")
    rows = []
    for title, text in told.items():
        held = sorted((folder / "validations").joinpath(*title.split(".")).rglob("*.html"))
        href = escape(held[-1].relative_to(folder).as_posix()) if held else ""
        rows.append(f'<tr><td><a href="{href}">{escape(title)}</a><td>{escape(text)}')
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Data Docs</title>{_STYLE}'
    table = (
        f"<h1>Data Docs</h1><table><tr><th>suite<th>the newest validation{''.join(rows)}</table>"
    )
    (folder / "index.html").write_text(f"{head}{table}\n", "utf-8")
