"""The generated pages are current."""

from __future__ import annotations

from docs.tables import PAGE, page


def test_the_page_of_tables_is_what_the_declarations_say() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: PYTHONPATH=. .venv/bin/python docs/tables.py"
