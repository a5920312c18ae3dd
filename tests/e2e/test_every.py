"""The pipeline that stays: rounds in one process, its signals, its end, its memory."""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.conftest import RECORDINGS
from tests.support.kills import BRIEF, Job
from tests.support.parts import parts_of

RECORDING = RECORDINGS / "4.3.1-modern.parquet"
# In a second: a process that waits takes next to nothing of a processor.
IDLE_S = 0.2
ROUNDS = 40
FRESH = 3
_MIB = 2**20


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A folder with the first half of a recording; the second one is beside it."""
    first, second = parts_of(RECORDING, tmp_path, 2)
    folder = tmp_path / "records"
    folder.mkdir()
    first.rename(folder / first.name)
    second.rename(tmp_path / "second.parquet")
    return folder


def rounds_of(job: Job) -> Iterator[dict[str, Any]]:
    """Give the summary of each round, as it comes; end with the process."""
    seen = 0
    while job.is_running:
        summaries = [line for line in job.out.splitlines(keepends=True) if line.endswith("}\n")]
        for line in summaries[seen:]:
            yield json.loads(line)
        seen = max(seen, len(summaries))
        time.sleep(0.02)


def wait_idle(pid: int) -> None:
    """Wait until a job waits: behind the summary of a round, what it has left is freed."""

    def used() -> float:
        job = psutil.Process(pid)
        times = (process.cpu_times() for process in (job, *job.children()))
        return sum(taken.user + taken.system for taken in times)

    before, now = -1.0, used()
    while now - before > IDLE_S:
        time.sleep(1)
        before, now = now, used()


def test_a_run_reads_what_came_and_a_signal_while_it_waits_is_its_end_in_peace(
    records: Path, tmp_path: Path
) -> None:
    line = ("pipeline", "--records", records, "--lakehouse", tmp_path / "lakehouse")
    with Job(*line, "--only", "ingest", "--json", "--every", "25s", *BRIEF) as job:
        rounds = rounds_of(job)
        first = next(rounds)["records_ingested"]
        (tmp_path / "second.parquet").rename(records / "second.parquet")
        second = next(rounds)["records_ingested"]
        wait_idle(job.pid)
        assert job.end(signal.SIGTERM) == 0
    assert first > 0 < second
    assert first + second == pq.read_metadata(RECORDING).num_rows
    assert job.complaints == []
    assert "Traceback" not in job.err


@pytest.mark.slow
def test_without_spark_there_is_no_other_run(records: Path, tmp_path: Path) -> None:
    """What started the process starts it again."""
    line = ("pipeline", "--records", records, "--lakehouse", tmp_path / "lakehouse")
    with Job(*line, "--only", "ingest", "--json", "--every", "2s", *BRIEF) as job:
        next(rounds_of(job))
        (jvm,) = (p for p in psutil.Process(job.pid).children() if p.name() == "java")
        jvm.kill()
        assert job.wait(60) == 1
    assert job.complaints[-1] == (
        "groupledger: Spark has ended, and with it all further runs: start again"
    )


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_its_memory_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each round brings one new small file; behind it the same is done by new processes."""
    parts = parts_of(RECORDING, tmp_path / "parts", ROUNDS + FRESH)
    folder = tmp_path / "records"
    folder.mkdir()
    line = ("pipeline", "--records", folder, "--lakehouse", tmp_path / "lakehouse", "--json")
    memory, taken, fresh = [], [], []
    parts[0].rename(folder / parts[0].name)
    with capsys.disabled(), Job(*line, "--every", "1s") as job:
        began = time.monotonic()
        for number, _ in zip(range(1, ROUNDS + 1), rounds_of(job), strict=False):
            parts[number].rename(folder / parts[number].name)
            taken.append(time.monotonic() - began)
            began += taken[-1]
            memory.append(resident(job.pid))
            python, java, workers = (size // _MIB for size in memory[-1])
            sys.stdout.write(
                f"\nround {number}: {taken[-1]:.1f} s, Python {python} MiB, JVM {java}, workers"
                f" {workers}"
            )
        assert job.is_running, job.err
    for part in parts[ROUNDS + 1 :]:
        part.rename(folder / part.name)
        with Job(*line) as job:
            assert job.wait() == 0, job.err
        fresh.append(time.monotonic() - job.started)
    with capsys.disabled():
        sys.stdout.write(
            f"\na round {statistics.median(taken[ROUNDS // 2 :]):.1f} s, a process of its own"
            f" {statistics.median(fresh):.1f} s\n"
        )
    half = [sum(m) for m in memory[ROUNDS // 4 : ROUNDS // 2]]
    assert statistics.median(sum(m) for m in memory[-len(half) :]) < 1.25 * statistics.median(half)


def resident(pid: int) -> tuple[int, int, int]:
    """Return the memory of a job's Python, of its JVM, and of Spark's Python workers."""
    job = psutil.Process(pid)
    java = workers = 0
    for child in job.children(recursive=True):
        try:
            size = child.memory_info().rss
            is_java = child.name() == "java"
        except psutil.Error:  # a worker that has ended in between
            continue
        java, workers = (java + size, workers) if is_java else (java, workers + size)
    return job.memory_info().rss, java, workers
