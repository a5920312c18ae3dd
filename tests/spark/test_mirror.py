"""A copy of the topic under another name, whose records have the times of the copy."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.support.jobs import asked, succeed
from tests.support.topic import HOUR, MINUTE, Topic

START, DAY = 1_700_000_000_000, 24 * HOUR
NAME = "mirror.offsets"


def copied(path: Path, late_ms: int) -> Path:
    """Copy a topic of a group that lives for an hour, all at once and so much later."""
    topic = Topic()
    topic.lives("billing", 3, START, 10, minutes=60)
    topic.write(path)
    records = pq.read_table(path)
    times = records["timestamp"]
    if late_ms:
        last = pc.max(times).as_py() + late_ms
        times = pa.array([last] * len(records), pa.int64())
    for name, column in (("topic", pa.array([NAME] * len(records))), ("timestamp", times)):
        records = records.set_column(records.schema.get_field_index(name), name, column)
    pq.write_table(records, path)
    return path


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("late_ms", [0, DAY], ids=["with the topic's times", "with its own"])
def test_times_of_a_mirror_are_not_those_of_groups(tmp_path: Path, late_ms: int) -> None:
    root, path = str(tmp_path / "lakehouse"), copied(tmp_path / "mirror.parquet", late_ms)
    line = ("--records", path, "--lakehouse", root, "--topic", NAME)
    succeed("pipeline", *line, "--only", "ingest,decode,history,anomalies")
    times = "epoch_ms(min(commit_timestamp)) AS first, count(record_timestamp) AS known"
    (commits,) = asked(root, f"SELECT {times} FROM silver.offset_commits")
    assert commits["first"] == START + 1_000
    assert (commits["known"] > 0) is not bool(late_ms)
    wanted = "evidence = 'exact' AND epoch_ms(started_at)"
    beyond = f"SELECT * FROM gold.group_states WHERE {wanted} > {START + HOUR + MINUTE}"
    assert not asked(root, beyond)
    kinds = {row["kind"] for row in asked(root, "SELECT kind FROM gold.anomalies")}
    assert not kinds & {"slow_rebalance", "stuck_rebalance"}
