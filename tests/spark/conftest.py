"""What holds for the tests of jobs in one session."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from tests.conftest import RECORDINGS
from tests.support import golden
from tests.support.parts import parts_of
from tests.support.webhook import SECRET, Webhook


class Thrice(NamedTuple):
    """A small recording in three runs, neither validated nor reported; not to be written to."""

    parts: list[Path]  # the records of each
    behind: list[Path]  # a lakehouse as it was behind each


@pytest.fixture(scope="session")
def thrice(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Thrice:
    assert spark is not None
    folder = tmp_path_factory.mktemp("thrice")
    root, behind = folder / "lakehouse", []
    parts = parts_of(RECORDINGS / "2.2.2-default.parquet", folder / "parts", 3)
    for number, part in enumerate(parts):
        golden.add(part, root)
        behind.append(shutil.copytree(root, folder / f"behind-{number}"))
    return Thrice(parts, behind)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    hook = Webhook()
    yield hook
    hook.close()
