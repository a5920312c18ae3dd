"""Data Docs are read where there is no network."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from dq.pages import without_network
from dq.validation import _SITE, _add_site, great_expectations


def test_pages_load_nothing_and_the_first_one_leads_to_each_suite(tmp_path: Path) -> None:
    gx = great_expectations()
    context = gx.get_context(mode="ephemeral")
    _add_site(context, str(tmp_path))
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("rows")
    holds = gx.expectations.ExpectColumnValuesToNotBeNull(column="n")
    suite = context.suites.add(gx.ExpectationSuite("silver.* groups", expectations=[holds]))
    definition = gx.ValidationDefinition(name="silver.* groups", data=batch, suite=suite)
    given = {"dataframe": pd.DataFrame({"n": [1, None]})}
    context.validation_definitions.add(definition).run(batch_parameters=given)
    context.build_data_docs(site_names=[_SITE])
    without_network(
        tmp_path, {"silver.* groups": "0 of 1 <expectations> hold", "gold.none": "nothing"}
    )
    pages = {page: page.read_text("utf-8") for page in tmp_path.rglob("*.html")}
    assert len(pages) == 3
    for text in pages.values():
        assert not re.search(r"<script|@import|url\(.?http", text)
        assert not re.search(r'<(link|img)[^>]*"https?:', text)
    first = pages[tmp_path / "index.html"]
    (page,) = re.findall(r'href="(validations/[^"]+)">silver.\* groups</a>', first)
    assert "Status:" in pages[tmp_path / page]
    assert "0 of 1 &lt;expectations&gt; hold" in first
