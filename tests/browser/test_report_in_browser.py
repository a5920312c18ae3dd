"""The report in a real browser: Chromium, as Debian's packages have it."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from reporting.model import Facts
from reporting.page import Ingredients, ingredients, page
from tests.support.jobs import run
from tests.support.report import ATTACKS, facts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver.remote.webelement import WebElement

_PATIENCE = 60
_STORM = "#group-0"  # the worst group of the recording is the storm


class Page:
    """A page that is open in the browser."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        driver.get(address)
        self.wait("return document.documentElement.dataset.ready === 'true'")

    def run(self, script: str) -> Any:  # noqa: ANN401 - whatever it returns
        return self.driver.execute_script(script)

    def wait(self, script: str) -> None:
        WebDriverWait(self.driver, _PATIENCE).until(lambda _: self.run(script))

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        found: str = self.run(f"return document.querySelector({selector!r}).textContent")
        return found

    def texts(self, selector: str) -> list[str]:
        return [element.text for element in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    def wait_for_charts(self, group: str, count: int) -> None:
        self.wait(f"return document.querySelectorAll('{group} canvas').length >= {count}")

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
def storm_report(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the demo writes."""
    del spark
    lakehouse = tmp_path_factory.mktemp("storm") / "lakehouse"
    outcome = run("demo", "--lakehouse", lakehouse)
    assert outcome.status == 0, outcome.err
    path = lakehouse / "report.html"
    assert outcome.summary["report"] == str(path)
    lines = "".join(outcome.out.splitlines()[:-1])  # a terminal may break a long path
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
    found = storm.texts(f"{_STORM} .found > li")
    assert found[0].startswith(
        "critical rebalance storm (short lived members): orders-storm rebalanced 134 times"
    )
    shown = {
        figure.get_attribute("data-chart"): figure.text
        for figure in storm.driver.find_elements(By.CSS_SELECTOR, f"{_STORM} figure")
    }
    assert list(shown) == ["anomalies", "states", "generations", "members", "owners", "offsets"]
    assert "most often: new member" in shown["generations"]
    assert "6 clients, 210 sessions, all on 127.0.0.1; came back most: flapper-" in shown["members"]
    names = storm.texts("#groups tbody td:first-child")
    assert names[0] == "orders-storm"
    assert sorted(names)[1:3] == ["healthy-ctl", "orders-storm"]


def test_every_chart_is_described_in_words_and_every_table_has_a_caption(storm: Page) -> None:
    labels = storm.run("return [...document.querySelectorAll('.plot')].map(p => p.ariaLabel)")
    assert len(labels) == 7
    assert all(len(label) > 40 for label in labels)
    for button in storm.driver.find_elements(By.CSS_SELECTOR, f"{_STORM} .as-table"):
        button.click()
    assert storm.run("return [...document.querySelectorAll('table')].every(t => t.caption)")
    rows = storm.driver.find_elements(By.CSS_SELECTOR, "[data-chart=generations] tbody tr")
    assert len(rows) == 100  # and more behind a button
    levels = storm.run(
        "return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))"
    )
    assert all(below - above <= 1 for above, below in pairwise(levels))
    controls = storm.driver.find_elements(By.CSS_SELECTOR, "button, select, input")
    assert all(control.accessible_name for control in controls if control.is_displayed())


def test_the_search_filters_the_table_and_a_heading_sorts_it(storm: Page) -> None:
    search = storm.one("#search")
    search.send_keys("PAYMENTS")
    assert sorted(storm.texts("#groups tbody td:first-child")) == [
        "payments-jslow",
        "payments-slow",
    ]
    assert storm.text("#groups caption").startswith("2 of 5 groups")
    search.clear()
    search.send_keys("no such group")
    assert storm.texts("#groups tbody td:first-child") == []
    search.clear()
    search.send_keys("-")
    Select(storm.one("#health")).select_by_visible_text("ok")
    assert storm.texts("#groups tbody td:first-child") == ["healthy-ctl"]
    Select(storm.one("#health")).select_by_visible_text("any")
    storm.one("#groups th:first-child button").click()
    names = storm.texts("#groups tbody td:first-child")
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
    for button in opened.driver.find_elements(By.CSS_SELECTOR, ".as-table"):
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
        ("#group=no-such-group", "#anomalies"),
        ("#group=%E0%A4%A", "#anomalies"),
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


@pytest.mark.parametrize("count", [0, 1, 2_000])
def test_it_is_quick_with_few_and_with_many_groups(
    browser: webdriver.Chrome, parts: Ingredients, tmp_path: Path, count: int
) -> None:
    path = tmp_path / "report.html"
    shown_facts = facts([f"team.service-{n}" for n in range(count)]) if count else _nothing()
    path.write_text(page(shown_facts, parts), encoding="utf-8")
    opened = Page(browser, path.as_uri())
    if not count:
        assert "no groups here yet" in opened.text("#headline")
    else:
        assert f"{count:,} of {count:,} group" in opened.text("#groups caption")
        opened.wait_for_charts(_STORM, 7)
    assert len(opened.texts("details.group")) == min(count, 25)
    assert opened.complaints == []


def _nothing() -> Facts:
    return Facts("default", "/lakehouse", 0)


def _brightness(colour: str) -> float:
    parts = colour.removeprefix("rgb(").removesuffix(")").split(",")
    return sum(map(float, parts)) / 3
