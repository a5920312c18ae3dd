"""What is told of errors that nobody foresaw."""

from __future__ import annotations

import pytest

from jobs.runtime.runner import _explanation


@pytest.mark.parametrize(
    "text",
    [
        "[Errno 30] Read-only file system: '/data/groups/bronze'",
        "FileNotFoundException: /d/bronze/records/cluster=a/part-0.parquet (Read-only file system)",
    ],
    ids=["by Python", "by Java"],
)
def test_a_read_only_file_system_is_told_in_a_line(text: str) -> None:
    told = _explanation(OSError(text))
    assert told == "--lakehouse, --output or --docs cannot be written: the file system is read-only"
