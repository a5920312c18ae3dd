"""The recipes of docs/sources.md, on files of the shape that connectors write."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sources.parquet import COLUMNS

PAGE = Path(__file__).parents[2] / "docs" / "sources.md"
TOPIC = "__consumer_offsets"
KEYS, VALUES = [b"k0", b"k1"], [b"v0", None]
OFFSETS, TIMES = [5, 9], [1_700_000_000_000, 1_700_000_000_001]


def aiven(folder: Path) -> None:
    columns = {"key": KEYS, "value": VALUES, "offset": OFFSETS, "timestamp": TIMES}
    pq.write_table(pa.table(columns), folder / f"{TOPIC}-3-5")


def lenses(folder: Path) -> None:
    metadata = [
        {"topic": TOPIC, "partition": 3, "offset": o, "timestamp": t}
        for o, t in zip(OFFSETS, TIMES, strict=True)
    ]
    inner = folder / TOPIC / "3"
    inner.mkdir(parents=True)
    rows = pa.table({"key": KEYS, "value": VALUES, "headers": [None] * 2, "metadata": metadata})
    pq.write_table(rows, inner / "000000000009.parquet")


def confluent(folder: Path) -> None:
    inner = folder / "topics" / TOPIC / "partition=3"
    inner.mkdir(parents=True)
    columns = {
        "value": pa.array(VALUES),
        "topic": pa.array([TOPIC] * 2),
        "partition": pa.array([3] * 2, pa.int32()),
        "offset": pa.array(OFFSETS),
        "timestamp": pa.array(TIMES).cast(pa.timestamp("ms")),
    }
    pq.write_table(pa.table(columns), inner / f"{TOPIC}+3+0000000005.snappy.parquet")
    pq.write_table(pa.table({"f0": KEYS}), inner / f"{TOPIC}+3+0000000005.keys.snappy.parquet")


@pytest.mark.parametrize("written", [aiven, lenses, confluent])
def test_a_recipe_gives_what_is_read(
    written: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = written.__name__
    monkeypatch.chdir(tmp_path)
    for folder in (name, "records"):
        Path(folder).mkdir()
    written(Path(name))
    recipes = re.findall(r"```python\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (recipe,) = [text for text in recipes if f'Path("{name}")' in text]
    exec(compile(recipe, name, "exec"), {})  # noqa: S102 - a page of ours
    (file,) = Path("records").iterdir()
    rows = pq.read_table(file)
    assert set(COLUMNS) <= set(rows.column_names)
    assert [rows[n].to_pylist() for n in ("key", "value", "offset")] == [KEYS, VALUES, OFFSETS]
    assert set(rows["topic"].to_pylist()) == {TOPIC}
    assert set(rows["partition"].to_pylist()) == {3}
    times = rows["timestamp"].cast(pa.timestamp("ms")).cast(pa.int64())
    assert times.to_pylist() == TIMES
