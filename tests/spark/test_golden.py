"""What the pipeline makes of recordings is, row by row, what it made of them before.

`tests/golden/digests.json` has the digests. Where rows differ, `tests/support/golden.py` shows
which: it dumps what this code makes, and what another checkout makes, and compares. It also writes
the digests again, after an intended change.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import RECORDINGS
from tests.support import golden

TESTS = Path(__file__).parents[1]
GOLDEN = json.loads((TESTS / "golden" / "digests.json").read_text("utf-8"))
# A small one, in several runs, which make use of all that a run keeps for the next.
QUICK = {("2.2.2-default", "thrice")}
CASES = [
    pytest.param(name, variant, marks=() if (name, variant) in QUICK else pytest.mark.slow)
    for name, variants in GOLDEN["digests"].items()
    for variant in variants
]


@pytest.mark.parametrize(("name", "variant"), CASES)
@pytest.mark.usefixtures("spark")
def test_every_row_is_what_it_was(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, variant: str
) -> None:
    if (name, variant) in QUICK:
        root = request.getfixturevalue("thrice").behind[-1]
    else:
        folders = (RECORDINGS, TESTS / "truth")
        recording = next(f / f"{name}.parquet" for f in folders if (f / f"{name}.parquet").exists())
        root = tmp_path / "lakehouse"
        golden.process(recording, root, golden.VARIANTS[variant])
    now = golden.tables(root)
    before = GOLDEN["digests"][name][variant]
    differences = [
        difference
        for table in dict.fromkeys([*before, *now])
        for difference in differing(table, before.get(table, "0"), now.get(table, []))
    ]
    assert not differences, "\n".join(["", *differences])


def test_the_number_of_runs_does_not_matter() -> None:
    """What detectors find where two runs meet, and keep for the next one, is left out."""
    for name, variants in GOLDEN["digests"].items():
        once, thrice = (
            {table: rows for table, rows in variants[v].items() if "anomal" not in table}
            for v in golden.VARIANTS
        )
        assert once == thrice != {}, name
    once, thrice = (GOLDEN["digests"]["4.3.1-storm"][v]["gold.anomalies"] for v in golden.VARIANTS)
    assert once == thrice


def differing(table: str, before: str, rows: list[golden.Row]) -> list[str]:
    """Say how the rows of a table differ from those it had."""
    count, _, _ = before.partition(" ")
    if count == "0" or not rows:
        return [f"{table}: {count} rows before, {len(rows)} now"]
    columns = GOLDEN["columns"][table].split(", ")
    gone = [column for column in columns if column not in rows[0]]
    if gone:
        return [f"{table}: columns are gone: {', '.join(gone)}"]
    if golden.digest(rows, columns) == before:
        return []
    return [f"{table}: {count} rows before, {len(rows)} now, and not the same"]
