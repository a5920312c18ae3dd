"""Takes the picture in docs/report.md: the first group of a report, as Chromium shows it.

./spark-submit.sh demo && PYTHONPATH=. .venv-dev/bin/python docs/report_picture.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

_ROOT = Path(__file__).parents[1]
_CHARTS = 6  # of a recording, which has no lag
_PATIENCE = 60


def main() -> None:
    """Open the demo's report and write the picture."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1180,1700"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get((_ROOT / "demo-lakehouse" / "report.html").as_uri())
        drawn = "return document.querySelectorAll('#group-0 canvas').length"
        waiting = WebDriverWait(driver, _PATIENCE)
        waiting.until(lambda opened: opened.execute_script(drawn) == _CHARTS)
        driver.execute_script("document.querySelector('nav').remove()")  # it lies above the group
        group = driver.find_element(By.ID, "group-0")
        (_ROOT / "docs" / "report.png").write_bytes(group.screenshot_as_png)
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
