"""The pages say what the code does; those that a script writes are current."""

from __future__ import annotations

import re

from docs import accuracy, alerts, detection, markdown, messages, options, performance
from docs.tables import PAGE, page
from jobs.runtime.command_line import COMMANDS
from jobs.runtime.sql import split
from lakehouse.catalog import description, function_texts, view_texts


def test_no_line_of_a_page_is_longer_than_120_characters() -> None:
    pages = [*accuracy.ROOT.glob("*.md"), *accuracy.ROOT.glob("docs/*.md")]
    long = [
        f"{page.name}:{number}"
        for page in pages
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1)
        if len(line) > markdown.WIDTH
    ]
    assert not long, long


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
    assert detection.thresholds() in text, "run: docs/detection.py"
    assert all(f"\n- **{kind}**: " in text for kind in detection.KINDS)


def test_the_page_of_anomalies_has_the_messages_that_are_posted() -> None:
    assert alerts.examples() in alerts.PAGE.read_text("utf-8"), "run: docs/alerts.py"


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
