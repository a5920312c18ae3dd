"""The charts, as Vega-Lite descriptions without data: the page gives each the rows of its group.

Colours and zone are the page's, since its reader may change them: a row brings its `colour`, and
the axis of time is a scale in UTC that the page turns into one of the browser's zone. All charts of
a group show the same `span` of time, so that what happened together stands below each other.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import pandas as pd  # noqa: F401 - altair takes it for whole while another thread imports it
import vl_convert

from reporting.files import digest, write_whole

Spec: TypeAlias = dict[str, Any]
Chart: TypeAlias = "alt.Chart | alt.LayerChart | alt.FacetChart"

LABELS_WIDTH = 150
"""Pixels left of every chart: the time axes of a group have to start at the same x."""

_LETTER_WIDTH = 7  # at most, of a name as a whole
_SPAN = "span"
_LONG = "span[1] - span[0]"
_FORMAT = (
    f"{_LONG} < 4000 ? '%H:%M:%S.%L' : {_LONG} < 900000 ? '%H:%M:%S'"
    f" : {_LONG} < 86400000 ? '%H:%M' : {_LONG} < 432000000 ? '%b %d %H:%M' : '%b %d'"
)


def charts() -> dict[str, Spec]:
    """Return the description of each chart, by name."""
    # A height is of the whole, or of a lane.
    found: dict[str, tuple[Chart, int | alt.Step]] = {
        "rebalances": (_rebalances(), 150),
        "states": (_states(), 40),
        "anomalies": (_lanes("anomaly"), alt.Step(14)),
        "generations": (_generations(), 110),
        "members": (_striped("member"), alt.Step(15)),
        "owners": (_striped("partition"), alt.Step(15)),
        "offsets": (_offsets(), alt.Step(15)),
        "lag": (_lag(), 90),
    }
    return {name: _spec(chart, height) for name, (chart, height) in found.items()}


_SNIPPET = "window.vegaEmbed = vegaEmbed;"
MADE_OF = f"vl-convert {version('vl-convert-python')}: {_SNIPPET}"
"""What `javascript` is made from; the same gives the same."""


def javascript() -> str:
    """Return the libraries that draw the charts, of the versions that the lock file pins.

    To put them together takes seconds.
    """
    return vl_convert.javascript_bundle(_SNIPPET)


def libraries(cache: Path | None) -> str:
    """Return the code that draws charts; what takes seconds to put together is kept."""
    if cache is None:
        return javascript()
    name = f"charts-{digest(MADE_OF)}"
    for path in cache.glob(f"{name}.*.js"):
        with suppress(OSError, UnicodeDecodeError):
            kept = path.read_text("utf-8")
            if path.name == f"{name}.{digest(kept)}.js":  # else it is not whole
                return kept
    made = javascript()
    with suppress(OSError):  # then the next run makes it again, too
        write_whole(cache / f"{name}.{digest(made)}.js", made)
    return made


def licences() -> str:
    """Say whose code that is, as its licence asks for."""
    return (
        "Vega, Vega-Lite, Vega-Embed and what they are made of: Copyright University of Washington"
        " Interactive Data Lab and contributors, BSD-3-Clause; D3: Copyright Mike Bostock, ISC."
    )


def _rebalances() -> alt.Chart:
    """Draw how many rebalances began, those of one group above the other's."""
    y = alt.Y("from:Q", title=None, axis=_numbers())
    bars = _chart().mark_rect(clip=True)
    encoded: alt.Chart = bars.encode(x=_time("at"), x2="end", y=y, y2="to", color=_colour())
    return encoded


def _states() -> Chart:
    """Draw a band of states; below it, how early and how late a state may have begun."""
    rows = _chart()
    band = rows.mark_rect(clip=True, y=0, y2=24, strokeWidth=0.6).encode(
        x=_time("begin"),
        x2="end",
        color=_colour(),
        stroke=_colour("stroke"),
        opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
    )
    bounds = rows.mark_rule(clip=True, y=32, strokeWidth=3, strokeCap="butt").encode(
        x=_time("bound_from"), x2="bound_to", color=_colour("bounds")
    )
    best = rows.mark_tick(clip=True, y=32, height=10, thickness=1.5, orient="vertical").encode(
        x=_time("begin"), color=_colour("best")
    )
    return alt.layer(band, bounds, best)


def _generations() -> Chart:
    """Draw each rebalance where it began, as high as it was long."""
    rows = _chart()
    y = alt.Y(
        "seconds:Q", title=None, axis=_numbers(",.2~f"), scale=alt.Scale(zero=True, nice=True)
    )
    stems = rows.mark_rule(clip=True, strokeWidth=1, opacity=0.55).encode(
        x=_time("join_started_at"), y=y, y2=alt.Y2Datum(0), color=_colour()
    )
    shape = alt.Shape("shape:N", scale=None, legend=None)
    dots = rows.mark_point(clip=True, filled=True, opacity=1, size=34).encode(
        x=_time("join_started_at"), y=y, color=_colour(), shape=shape
    )
    return alt.layer(stems, dots)


# Names of one fleet differ at their ends; the page says how many letters have room.
_SHORT = (
    "length(datum.label) > letters ? slice(datum.label, 0, letters / 3 - 1) + '…' +"
    " slice(datum.label, length(datum.label) - 2 * letters / 3) : datum.label"
)


def _lanes(lane: str) -> alt.Chart:
    """Draw what lasts as bars, a lane for each member, partition or kind."""
    bars = _chart().mark_rect(clip=True, strokeWidth=0.8)
    encoded: alt.Chart = bars.encode(
        x=_time("begin"),
        x2="end",
        y=_lane(lane),
        color=_colour(),
        stroke=_colour("stroke"),
        opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
    )
    return encoded


def _striped(lane: str) -> Chart:
    """Draw lanes whose bars have a stripe along them: colours are fewer than members."""
    stripes = _chart().mark_bar(clip=True, height=alt.RelativeBandSize(band=0.3))
    encoded = stripes.encode(
        x=_time("begin"),
        x2="end",
        y=_lane(lane),
        color=_colour("stripe"),
        opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
    )
    return alt.layer(_lanes(lane), encoded)


def _offsets() -> Chart:
    """Draw where each partition committed, darker where it got on faster; rewinds as marks."""
    rows = _chart()
    bars = rows.mark_rect(clip=True, strokeWidth=0.8).encode(
        x=_time("begin"), x2="end", y=_lane("partition"), color=_colour(), stroke=_colour("stroke")
    )
    signs = rows.mark_text(align="left", dx=5, dy=1, fontSize=13, fontWeight="bold", clip=True)
    back = signs.encode(x=_time("begin"), y=_lane("partition"), text="sign:N", color=_colour("on"))
    return alt.layer(bars, back)


def _lag() -> Chart:
    rows = _chart()
    y = alt.Y("lag:Q", title=None, axis=_numbers())
    line = rows.mark_line(clip=True, strokeWidth=1.5).encode(
        x=_time("sampled_at"), y=y, color=_colour("line")
    )
    dots = rows.mark_point(clip=True, filled=True, size=36, opacity=1).encode(
        x=_time("sampled_at"), y=y, color=_colour()
    )
    return alt.layer(line, dots)


def _chart() -> alt.Chart:
    return alt.Chart(alt.NamedData("rows"))


def _time(name: str) -> alt.X:
    axis = alt.Axis(
        title=None,
        labelExpr=f"utcFormat(datum.value, {_FORMAT})",
        tickCount={"expr": "max(2, width / 110)"},
        labelFlush=False,
        labelOverlap=True,
        zindex=0,
    )
    scale = alt.Scale(type="utc", domainRaw={"expr": _SPAN}, nice=False)
    return alt.X(f"{name}:T", scale=scale, axis=axis)


def _lane(name: str) -> alt.Y:
    axis = alt.Axis(title=None, ticks=False, grid=True, labelExpr=_SHORT, zindex=0)
    scale = alt.Scale(paddingInner=0.2, paddingOuter=0.1)
    return alt.Y(f"{name}:N", sort=None, scale=scale, axis=axis)


def _numbers(form: str = "~s") -> alt.Axis:
    return alt.Axis(tickCount=4, format=form, title=None, zindex=0)


def _colour(field: str = "colour") -> alt.Color:
    return alt.Color(f"{field}:N", scale=None, legend=None)


def _spec(chart: Chart, height: int | alt.Step) -> Spec:
    span = alt.param(name=_SPAN, value=[0, 1])
    letters = alt.param(name="letters", value=LABELS_WIDTH / _LETTER_WIDTH)
    # Room for the axes is left by the page, the same for all charts.
    whole = chart.add_params(span, letters).properties(autosize="none", height=height)
    spec: Spec = whole.configure_view(strokeWidth=0).configure_axisY(domain=False).to_dict()
    spec.pop("$schema", None)  # an address, of use to editors only
    return spec
