"""The messages of errors that nobody foresaw."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from jobs.runtime.runner import _explanation, _times


@pytest.mark.parametrize(
    "text",
    [
        "[Errno 30] Read-only file system: '/data/groups/bronze'",
        "FileNotFoundException: /d/bronze/records/cluster=a/part-0.parquet (Read-only file system)",
    ],
    ids=["by Python", "by Java"],
)
def test_a_read_only_file_system_is_one_line(text: str) -> None:
    message = _explanation(OSError(text))
    assert (
        message == "--lakehouse, --output or --docs cannot be written: the file system is read-only"
    )


def test_runs_begin_in_time_however_long_each_takes() -> None:
    starts = []
    for started in _times(1):
        starts.append(started)
        if len(starts) == 3:
            break
        time.sleep(0.4)
    assert all(1 <= later - former < 1.3 for former, later in pairwise(starts))
