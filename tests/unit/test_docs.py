"""The pages say what the code does; those that a script writes are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import accuracy, detection, markdown, messages, options, performance
from docs.tables import PAGE, page
from launch.command_line import COMMANDS
from reporting.alerts import FORMATS
from storage.catalog import description, function_texts, view_texts
from storage.statements import split


def test_no_line_of_a_page_is_longer_than_120_characters() -> None:
    pages = [*accuracy.ROOT.glob("*.md"), *accuracy.ROOT.glob("docs/*.md")]
    long = [
        f"{page.name}:{number}"
        for page in pages
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1)
        if len(line) > markdown.WIDTH and not (page == detection.THRESHOLDS and line[:1] == "|")
    ]
    assert not long, long


# A fronted "Of …", and "but" for "only": docs are read at night, in a hurry, and by people of all
# languages. Pages that scripts write from comments of tables and options are left out.
_HARD_TO_READ = {
    "begins with Of": r"(?:^|[.:;!?] )Of (?!course)[a-z]",
    "but for only": r"\b(?:has|have|can be|is|are|needs?|takes?|nobody) but (?!not|no\b)",
}
_WRITTEN = {"tables.md", "options.md", "sql-cookbook.md"}


def test_sentences_are_plain() -> None:
    pages = [accuracy.ROOT / "README.md", *accuracy.ROOT.glob("docs/*.md")]
    found = [
        f"{page.name}: {' '.join(text.split())[max(0, m.start() - 20) : m.end() + 40]} ({name})"
        for page in pages
        if page.name not in _WRITTEN
        for text in prose(page.read_text("utf-8"))
        for name, pattern in _HARD_TO_READ.items()
        if (m := re.search(pattern, " ".join(text.split())))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "is_hard"),
    [
        ("Of the new protocols all are exact.", True),
        ("Times are exact. Of others it is not known.", True),
        ("its list has but the one word", True),
        ("nobody but the jobs should write", True),
        ("the list has only one word", False),
        ("it is there, but not read", False),
        ("none of them, of which", False),
    ],
)
def test_what_is_hard_to_read(text: str, *, is_hard: bool) -> None:
    assert any(re.search(pattern, text) for pattern in _HARD_TO_READ.values()) == is_hard


def prose(text: str) -> list[str]:
    """Return the paragraphs, list items and cells of a page, without what commands print."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.split(r"\n\s*\n|^\s*[-*] |\|", plain, flags=re.MULTILINE)


def test_pages_lead_to_pages_that_are_there() -> None:
    pages = [*accuracy.ROOT.glob("*.md"), *accuracy.ROOT.glob("docs/*.md")]
    broken = [
        f"{page.name}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))
        if not link.startswith("http") and not _is_there(page, link)
    ]
    assert not broken, broken


def _is_there(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not anchor or target.suffix != ".md":
        return target.exists()
    headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
    return anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_the_index_has_every_page() -> None:
    index = (accuracy.ROOT / "docs" / "README.md").read_text("utf-8")
    pages = {page.name for page in accuracy.ROOT.glob("docs/*.md")} - {"README.md"}
    assert [name for name in sorted(pages) if f"({name}" not in index] == []


def test_the_page_of_tables_is_what_the_declarations_say() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: PYTHONPATH=. .venv/bin/python docs/tables.py"


def test_the_page_of_options_is_what_the_declarations_say() -> None:
    text = options.PAGE.read_text("utf-8")
    assert text == options.page(), "run: PYTHONPATH=. .venv/bin/python docs/options.py"


def test_the_readme_has_all_jobs() -> None:
    text = (accuracy.ROOT / "README.md").read_text("utf-8")
    (listed,) = re.findall(r"\| job \| does \|\n\|---\|---\|\n((?:\|.*\n)+)", text)
    assert sorted(re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE)) == sorted(COMMANDS)


def test_the_page_of_states_has_the_measured_errors() -> None:
    assert accuracy.table() in accuracy.PAGE.read_text("utf-8"), "run: docs/accuracy.py"


def test_the_page_of_performance_has_what_was_measured() -> None:
    assert performance.table() in performance.PAGE.read_text("utf-8"), "run: docs/performance.py"


def test_the_page_of_anomalies_has_what_was_found_and_the_thresholds() -> None:
    text = detection.PAGE.read_text("utf-8")
    assert detection.detection() in text, "run: docs/detection.py"
    assert detection.thresholds() == detection.THRESHOLDS.read_text("utf-8"), (
        "run: docs/detection.py"
    )
    assert all(f"\n- **{kind}**: " in text for kind in detection.KINDS)


def test_the_page_of_alerts_has_each_receiver() -> None:
    text = (accuracy.ROOT / "docs" / "alerts.md").read_text("utf-8")
    assert all(f"| `{name}` |" in text and f"- **{name}**: " in text for name in FORMATS)


def test_the_page_of_sql_has_the_views_and_functions() -> None:
    page_of_sql = (accuracy.ROOT / "docs" / "sql.md").read_text("utf-8")
    for name, text in {**view_texts(), **function_texts()}.items():
        assert name.removeprefix("gold.") in page_of_sql
        assert description(text) in " ".join(page_of_sql.split())


def test_the_cookbook_has_the_statements_of_the_examples() -> None:
    text = (accuracy.ROOT / "docs" / "sql-cookbook.md").read_text("utf-8")
    for file in ("cookbook.sql", "cookbook-more.sql"):
        for statement in split((accuracy.ROOT / "examples" / file).read_text("utf-8")):
            lines = [line for line in statement.strip().splitlines() if not line.startswith("--")]
            assert "\n".join(lines) in text, "run: docs/cookbook.py"


def test_the_page_of_troubleshooting_explains_each_message_of_the_product() -> None:
    said, explained = messages.messages(), messages.explained()
    missing = [f"- `{text}` *Why:* … *Do:* …  ({said[text]})" for text in said.keys() - explained]
    assert not missing, "\n".join(["add to docs/troubleshooting.md:", *sorted(missing)])
    gone = sorted(explained - said.keys())
    assert not gone, "\n".join(
        ["no code says this: take it out of docs/troubleshooting.md:", *gone]
    )
