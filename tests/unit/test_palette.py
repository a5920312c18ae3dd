"""One colour has one meaning: what the page shows in a colour, the dashboards show in it, too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SUPERSET = ROOT / "examples" / "superset" / "assets"
CODE = (ROOT / "reporting" / "report.js").read_text("utf-8")
STYLES = dict(
    re.findall(
        r"--([\w-]+): light-dark\((#\w{6})", (ROOT / "reporting" / "report.css").read_text("utf-8")
    )
)
SEVERITIES = {name: STYLES[f"{name}-fill"] for name in ("critical", "warning", "info", "ok")}


def listed(name: str) -> dict[str, str]:
    """Return what an object of the page's code has."""
    (text,) = re.findall(rf"const {name} = {{(.*?)}};", CODE, re.DOTALL)
    return dict(re.findall(r'(\w+): "([^"]+)"', text))


STATES = {state: STYLES[style] for state, style in listed("STATES").items()}
CAUSES = listed("CAUSES")
(REST,) = re.findall(r'REST = "(#\w+)"', CODE)
MEANT = {**SEVERITIES, **STATES, **CAUSES, "unknown": REST}


def test_no_colour_has_two_meanings() -> None:
    (clients,) = re.findall(r'PALETTE = "([^"]+)"', CODE)
    # What the new protocols call otherwise.
    same = {"Assigning": "PreparingRebalance", "Reconciling": "CompletingRebalance"}
    assert all(STATES[new] == STATES[classic] for new, classic in same.items())
    colours = [colour for name, colour in MEANT.items() if name not in same]
    colours += clients.split()
    assert len(colours) == len(set(colours))


def test_the_dashboard_of_superset_has_the_colours_of_the_page() -> None:
    (path,) = (SUPERSET / "dashboards").iterdir()
    assert yaml.safe_load(path.read_text("utf-8"))["metadata"]["label_colors"] == MEANT
    for chart in (SUPERSET / "charts").iterdir():
        rules = yaml.safe_load(chart.read_text("utf-8"))["params"].get("conditional_formatting")
        for rule in rules or ():
            if rule["operator"] == "=":
                assert rule["colorScheme"] == MEANT[rule["targetValue"]], chart
            else:
                assert rule["colorScheme"] in SEVERITIES.values(), chart


def coloured(part: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Yield names and their colours in a dashboard of Grafana."""
    if isinstance(part, dict):
        if "matcher" in part and part["properties"][0]["id"] == "color":
            yield part["matcher"]["options"], part["properties"][0]["value"]["fixedColor"]
        for name, inner in part.items():
            if isinstance(inner, dict) and {"text", "color"} <= inner.keys():
                yield name, inner["color"]
            yield from coloured(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from coloured(inner)


def test_the_dashboards_of_grafana_have_the_colours_of_the_page() -> None:
    for name in ("grafana/kafka-consumer-groups.json", "prometheus/dashboard.json"):
        found = list(coloured(json.loads((ROOT / "examples" / name).read_text("utf-8"))))
        assert {label for label, _ in found} >= {*CAUSES, "unknown", "critical"}
        assert all(MEANT[label] == colour for label, colour in found)
