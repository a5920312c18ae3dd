"""The page of the report: what strangers wrote remains text, it is small, and it loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from detectors.sentences import KINDS
from launch.command_line import parse
from launch.options import report_path
from reporting.advice import ADVICE
from reporting.charts import charts, javascript, libraries
from reporting.model import DAY_MS, DAY_PARTS, LISTED_GROUPS, Facts, day_of
from reporting.page import Ingredients, embedded, ingredients, packed, page
from tests.support.report import AS_OF, ATTACKS, facts


@pytest.fixture(scope="module")
def parts() -> Ingredients:
    return ingredients()


def test_charts_are_made_while_another_thread_imports_pandas() -> None:
    program = """
import threading
from reporting.charts import charts
threading.Thread(target=__import__, args=("pandas",)).start()
charts()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text of scripts by their number."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.open = tag
        if tag == "script":
            self.scripts.append("")
        if tag == "style":
            self.styles.append("")

    def handle_endtag(self, tag: str) -> None:
        del tag
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open == "script":
            self.scripts[-1] += data
        if self.open == "style":
            self.styles[-1] += data

    def embedded(self, name: str) -> object:
        ids = [attributes.get("id") for tag, attributes in self.found if tag == "script"]
        return json.loads(self.scripts[ids.index(name)])


def test_names_that_attack_the_page_stay_in_its_data(parts: Ingredients) -> None:
    harmless = Elements(page(facts(["orders"] * len(ATTACKS), 3), parts))
    attacked = Elements(page(facts(list(ATTACKS), 3), parts))
    # The same elements: no name has become one.
    assert attacked.found == harmless.found
    data = attacked.embedded("data")
    assert isinstance(data, dict)
    names = data["groups"]["columns"]["group_id"]
    # The incident names which of the page's anomalies are its own.
    assert [incident["at"] for incident in data["incidents"]] == [[1, 0]]
    assert names == list(ATTACKS)


def test_the_cluster_and_the_folder_are_escaped(parts: Ingredients) -> None:
    shown = Facts("<canary>&\"'", "/data/<script>alert(1)</script>", 0)
    text = page(shown, parts)
    assert "<canary" not in text
    assert "alert(1)" not in text.replace("\\u003cscript\\u003ealert(1)\\u003c/script\\u003e", "")


def test_embedded_json_means_the_same_and_has_no_character_of_html() -> None:
    value = {"x": list(ATTACKS), "n": [1, None, 1.5, True]}
    text = embedded(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029\u202e\x00") & set(text)
    assert text.isascii()


def test_a_number_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        embedded({"lag_seconds": float("nan")})


def test_the_policy_names_the_pages_own_code_and_nothing_else(parts: Ingredients) -> None:
    text = page(facts(["orders"], 2), parts)
    elements = Elements(text)
    policy = next(
        attributes["content"] or ""
        for tag, attributes in elements.found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    code = elements.scripts[2:]
    hashes = re.findall(r"'sha256-([^']+)'", policy)
    digests = [hashlib.sha256(part.encode()).digest() for part in [*code, *elements.styles]]
    assert hashes == [base64.b64encode(digest).decode() for digest in digests]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_nothing_in_the_page_is_loaded_from_anywhere(parts: Ingredients) -> None:
    elements = Elements(page(facts(["orders"], 2), parts))
    for tag, attributes in elements.found:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img"}
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") or name == "style" for name in attributes)
    assert "url(" not in "".join(elements.styles)
    assert "@import" not in "".join(elements.styles)
    assert not re.search(r"\b(fetch|XMLHttpRequest|import)\s*\(", elements.scripts[-1])


def test_five_thousand_groups_fit_a_page(parts: Ingredients) -> None:
    names = [f"team-{n % 40}.service-{n}.consumer" for n in range(5_000)]
    text = page(facts(names), parts)
    assert len(text.encode()) < 10_000_000
    data = Elements(text).embedded("data")
    assert isinstance(data, dict)
    assert data["groups"]["count"] == data["group_count"] == 5_000
    assert len(data["shown"]) == 25


def test_what_is_left_out_is_counted(parts: Ingredients) -> None:
    names = [f"group-{n}" for n in range(LISTED_GROUPS + 11)]
    data = Elements(page(facts(names, 2), parts)).embedded("data")
    assert isinstance(data, dict)
    assert data["groups"]["count"] == LISTED_GROUPS
    assert data["group_count"] == LISTED_GROUPS + 11
    states = data["shown"][0]["panels"]["states"]
    assert (states["rows"]["count"], states["count"]) == (2, 9)


def test_an_empty_lakehouse_has_a_page(parts: Ingredients) -> None:
    data = Elements(page(Facts("default", "/lakehouse", 0), parts)).embedded("data")
    assert isinstance(data, dict)
    assert data["as_of"] is None
    assert data["shown"] == []


def test_texts_that_repeat_are_written_once() -> None:
    rows = pa.table({"a": ["x", None, "x"], "b": [1, 2, None]})
    columns = {"a": {"texts": ["x"], "at": [0, None, 0]}, "b": [1, 2, None], "c": None}
    assert packed(rows, ("a", "b", "c")) == {"count": 3, "columns": columns}


def test_times_are_counted_from_the_first() -> None:
    rows = pa.table({"at": [AS_OF + 5, None, AS_OF]})
    assert packed(rows, ("at",))["columns"]["at"] == {"least": AS_OF, "by": [5, None, 0]}


def test_no_chart_names_an_address() -> None:
    assert "http" not in json.dumps(charts())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--lakehouse", "/data/groups"], "/data/groups/report.html"),
        (["--lakehouse", "/data/groups/", "--cluster", "eu"], "/data/groups/report-eu.html"),
        (["--lakehouse", "file:///data/my%20groups"], "/data/my groups/report.html"),
        (["--lakehouse", "s3a://bucket/groups/"], "s3a://bucket/groups/report.html"),
        (["--lakehouse", "s3a://bucket/groups", "--output", "x.html"], "x.html"),
        (["--lakehouse", "/data/groups", "--output", "x.html"], "x.html"),
    ],
    ids=["local", "another cluster", "file URI", "remote", "remote with output", "output"],
)
def test_where_the_report_goes(arguments: list[str], expected: str) -> None:
    assert report_path(parse(["report", *arguments])) == expected


class TestKeptLibraries:
    @pytest.fixture(autouse=True)
    def made(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Stands for the code, which takes 2 s to put together."""
        made: list[str] = []

        def javascript() -> str:
            made.append("code, of some length")
            return made[-1]

        monkeypatch.setattr("reporting.charts.javascript", javascript)
        return made

    def test_they_are_put_together_once(self, made: list[str], tmp_path: Path) -> None:
        assert {libraries(tmp_path) for _ in range(3)} == set(made)
        assert len(made) == len(list(tmp_path.iterdir())) == 1

    def test_half_a_file_is_none(self, made: list[str], tmp_path: Path) -> None:
        libraries(tmp_path)
        (kept,) = tmp_path.iterdir()
        kept.write_text("code, of", "utf-8")
        assert libraries(tmp_path) == made[0]
        assert kept.read_text("utf-8") == made[0]

    def test_a_folder_that_cannot_be_written_does_no_harm(
        self, made: list[str], tmp_path: Path
    ) -> None:
        no_folder = tmp_path / "file"
        no_folder.touch()
        assert [libraries(no_folder), libraries(None)] == made


def test_the_same_versions_give_the_same_code(parts: Ingredients) -> None:
    assert ingredients(javascript()) == parts


def test_what_to_do_about_each_kind_stands_in_the_docs() -> None:
    told = " ".join(Path("docs/anomalies.md").read_text("utf-8").split())
    assert {what.partition(" ")[0] for what in ADVICE} == set(KINDS)
    assert [do for do in ADVICE.values() if do not in told] == []


def test_a_part_of_a_day_has_its_longest_state_and_how_much_of_it_was_rebalancing() -> None:
    step, since = DAY_MS // DAY_PARTS, 1_000_000

    def stay(state: str, begin: int, end: int, ms: int | None = None) -> dict[str, object]:
        ends = {"began": since + begin, "ended": since + end}
        return {"state": state, **ends, "ms": end - begin if ms is None else ms}

    third = step // 3
    told = day_of(
        [
            stay("Stable", 0, 2 * step + third),
            # Many in one part are one row, with the time that all took.
            stay("PreparingRebalance", 2 * step + third, 3 * step - 1, third),
            stay("CompletingRebalance", 3 * step, 4 * step),
            stay("Empty", 5 * step, 5 * step + 2),
            stay("Dead", 5 * step + 2, DAY_MS),
        ],
        since,
    )
    states, busy = told[:DAY_PARTS], told[DAY_PARTS:]
    assert states == "SSS  " + "D" * (DAY_PARTS - 5)
    assert busy == "00390" + "0" * (DAY_PARTS - 5)
    assert day_of([], since) == " " * DAY_PARTS + "0" * DAY_PARTS
