"""Makes the page: one HTML file with its styles, its code and its data, that loads nothing.

Whatever comes from the log was chosen by whoever may join a group. It stands in the page as JSON
without a character that HTML knows, the page's code shows it as text and never as markup, and a
content security policy names the page's own code by its hash: nothing else runs, nothing is loaded.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from html import escape
from importlib import resources
from string import Template
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reporting.advice import ADVICE
from reporting.charts import LABELS_WIDTH, Spec, charts, javascript, licences
from reporting.model import NO_ROWS, OLDER_STEPS, PANELS, Facts

_GROUP_COLUMNS = (
    *("group_id", "group_type", "health", "state", "since", "members", "rebalances_1h"),
    *("rebalances_24h", "rebalances_7d", "rebalancing_24h_ms", "open_anomalies", "worst_anomaly"),
    *("anomalies_24h", "total_lag", "total_lag_is_bound", "worst_lag_status", "last_commit_at"),
    "day",
)
_ANOMALY_COLUMNS = (
    *("kind", "severity", "group_id", "subject", "started_at", "ended_at", "is_open", "label"),
    *("summary", "evidence", "thresholds", "first_record_partition", "first_record_offset"),
    *("last_record_partition", "last_record_offset", "kind_rank", "kind_count", "kind_open"),
)
_LARGE = 10**9  # times, above all
# What could end the script element that holds the data, or begin a comment in it.
_IN_HTML = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


@dataclass(frozen=True)
class Ingredients:
    """What every page has, whatever its rows: code that draws charts, and their descriptions."""

    libraries: str
    charts: dict[str, Spec]


def ingredients(libraries: str | None = None) -> Ingredients:
    """Return what every page has; `libraries` is what `javascript` gives, if it is known."""
    return Ingredients(_inlined(javascript() if libraries is None else libraries), charts())


def page(facts: Facts, parts: Ingredients | None = None, made_of: str = "") -> str:
    """Return the page as HTML; `made_of` is a mark of what it was made of, for its `<head>`."""
    parts = parts or ingredients()
    code, style = _text("report.js"), _text("report.css")
    policy = (
        f"default-src 'none'; script-src {_hash(parts.libraries)} {_hash(code)};"
        f" style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Template(_text("template.html")).substitute(
        policy=escape(policy),
        made_of=escape(made_of),
        title=escape(f"groupledger: {facts.cluster}"),
        cluster=escape(facts.cluster),
        licences=escape(licences()),
        style=style,
        data=embedded(_data(facts)),
        charts=embedded(parts.charts),
        libraries=parts.libraries,
        code=code,
    )


def embedded(value: Any) -> str:  # noqa: ANN401 - anything that JSON can hold
    """Write JSON that can stand in an HTML script element, and means the same."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(_IN_HTML)


def packed(rows: pa.Table, columns: Iterable[str]) -> dict[str, Any]:
    """Write columns down: texts once, large numbers as what they exceed the least by.

    None stands for a column without any value.
    """
    held = set(rows.schema.names)
    return {
        "count": rows.num_rows,
        "columns": {name: _column(rows[name]) if name in held else None for name in columns},
    }


def _column(values: pa.ChunkedArray) -> Any:  # noqa: ANN401 - a list, or what stands for one
    if values.null_count == len(values):
        return None
    if pa.types.is_string(values.type):
        coded = values.combine_chunks().dictionary_encode()
        if len(coded.dictionary) < len(coded):
            return {"texts": coded.dictionary.to_pylist(), "at": coded.indices.to_pylist()}
    elif pa.types.is_integer(values.type) and (least := pc.min(values)).as_py() >= _LARGE:
        return {"least": least.as_py(), "by": pc.subtract(values, least).to_pylist()}
    return values.to_pylist()


def _data(facts: Facts) -> dict[str, Any]:
    return {
        "cluster": facts.cluster,
        "lakehouse": facts.lakehouse,
        "made_at": facts.made_at,
        "as_of": facts.as_of,
        "chosen": asdict(facts.chosen),
        "labels_width": LABELS_WIDTH,
        "older_steps": OLDER_STEPS,
        "group_count": facts.group_count,
        "groups": packed(facts.groups, _GROUP_COLUMNS),
        "kinds": facts.kinds,
        "advice": ADVICE,
        "anomaly_count": facts.anomaly_count,
        "fold_count": facts.fold_count,
        "anomalies": packed(facts.anomalies, _ANOMALY_COLUMNS),
        "incidents": _incidents(facts),
        "step_ms": facts.step_ms,
        "rebalances": packed(facts.rebalances, ("group_id", "at", "count")),
        "quality": asdict(facts.quality),
        "shown": [
            {
                "group_id": group.group_id,
                "anomaly_count": group.counts.get("anomalies", 0),
                "remedies": group.remedies,
                "panels": {
                    name: {
                        "rows": packed(group.rows.get(name, NO_ROWS), panel.columns),
                        "count": group.counts.get(name, 0),
                        "older": group.older.get(name, []),
                    }
                    for name, panel in PANELS.items()
                },
            }
            for group in facts.shown
        ],
    }


def _incidents(facts: Facts) -> list[dict[str, Any]]:
    """Return the incidents, each with the numbers of its anomalies that the page has (`at`)."""
    names = facts.anomalies["anomaly_id"].to_pylist() if facts.incidents else []
    numbers = {name: number for number, name in enumerate(names)}
    return [
        {name: value for name, value in row.items() if name not in ("incident_id", "anomaly_ids")}
        | {"at": [numbers[name] for name in row["anomaly_ids"] if name in numbers]}
        for row in facts.incidents
    ]


def _inlined(code: str) -> str:
    """Keep code from ending the script element that it stands in; it means the same."""
    return code.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _text(name: str) -> str:
    return (resources.files("reporting") / name).read_text("utf-8")
