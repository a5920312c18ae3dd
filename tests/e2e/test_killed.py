"""Jobs killed by SIGKILL on the way, then run to their end, leave what undisturbed ones leave."""

from __future__ import annotations

import random
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from schemas.tables import COVERAGE, RECORDS
from tests.conftest import RECORDINGS
from tests.support import clients
from tests.support.broker import Broker
from tests.support.jobs import contents, differences, everything, is_balanced, succeed, table
from tests.support.kills import BRIEF, Job, counted, steps_of
from tests.support.parts import parts_of

RECORDING = RECORDINGS / "4.3.1-connect.parquet"
SEED = 20_260_701
PARTS = 5
LEAST_KILLS = 30

# Each is a file whose appearance says how far the run is; the kill follows at once.
OF_INGEST = {
    "first data file of bronze": "bronze/records/cluster=default/*.parquet",
    "bronze committed, coverage not": "bronze/records/_delta_log/*0.json",
}
OF_PIPELINE = {
    "decode run planned": "bronze/runs/_delta_log/*0.json",
    "first data file of silver": "silver/*/cluster=default/*.parquet",
    "one silver table committed": "silver/offset_commits/_delta_log/*.json",
    "one gold table committed": "gold/group_states/_delta_log/*0.json",
}
# What is killed at random moments, in the order of the pipeline.
JOBS = ("ingest", "decode", "history", "anomalies", "validate", "report", "maintain")
# A process takes so long to start, and its first work so many times what it takes in a session
# that has worked before. Too little kills before the work, too much comes too late: the test says
# what it hit.
START_S = dict.fromkeys(JOBS, 6.0) | {"report": 1.0}  # which starts no JVM
COLD = 2.0


def test_a_decode_killed_among_its_commits_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    lakehouse, whole = tmp_path / "lakehouse", tmp_path / "whole"
    succeed("ingest", "--records", RECORDING, "--lakehouse", whole)
    shutil.copytree(whole, lakehouse)
    with Job("decode", "--lakehouse", lakehouse, *BRIEF) as job:
        assert job.kill_when(lakehouse, OF_PIPELINE["one silver table committed"])
    for root in (lakehouse, whole):
        succeed("decode", "--lakehouse", root)
    assert differences(everything(spark, str(lakehouse)), everything(spark, str(whole))) == {}
    assert is_balanced(lakehouse)


@pytest.mark.parametrize(
    "moments",
    [
        ["bronze committed, coverage not"],
        pytest.param(list(OF_INGEST), marks=pytest.mark.slow),
    ],
    ids=["once", "twice"],
)
def test_an_ingest_from_a_cluster_that_was_killed_loses_and_doubles_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path, moments: list[str]
) -> None:
    lakehouse, topic = tmp_path / "lakehouse", f"killed-{len(moments)}"
    argv = ("ingest", "--bootstrap-servers", broker.bootstrap, "--topic", topic)
    argv += ("--lakehouse", str(lakehouse))
    clients.create_topic(broker.bootstrap, topic, partitions=2)
    for partition in range(2):
        clients.produce(broker.bootstrap, topic, 10, partition=partition)
    for moment in moments:
        with Job(*argv, *BRIEF) as job:
            assert job.kill_when(lakehouse, OF_INGEST[moment]), moment
    clients.produce(broker.bootstrap, topic, 1, partition=1)
    succeed(*argv)
    records = table(spark, str(lakehouse), RECORDS.name).collect()
    expected = [(0, offset) for offset in range(10)] + [(1, offset) for offset in range(11)]
    assert sorted((r.record_partition, r.record_offset) for r in records) == expected
    covered = table(spark, str(lakehouse), COVERAGE.name).collect()
    assert not any(r.holes for r in covered)
    assert sorted((r.record_partition, r.from_offset, r.next_offset) for r in covered) == [
        (0, 0, 10),
        (1, 0, 10),
        (1, 10, 11),
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_pipeline_killed_again_and_again_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    lakehouse = tmp_path / "lakehouse"
    argv = ("pipeline", "--records", RECORDING, "--lakehouse", lakehouse)
    killed = {}
    for moment, pattern in OF_PIPELINE.items():
        with Job(*argv) as job:
            killed[moment] = job.kill_when(lakehouse, pattern)
    # A moment that a former kill has already passed does not come again.
    assert sum(killed.values()) >= 2, killed
    succeed(*argv)
    whole = str(tmp_path / "whole")
    succeed("pipeline", "--records", RECORDING, "--lakehouse", whole)
    assert contents(spark, str(lakehouse)) == contents(spark, whole)
    assert is_balanced(lakehouse)
    offsets = ("topic", "record_partition", "from_offset", "next_offset", "record_count", "holes")
    ours, theirs = (
        sorted(map(repr, table(spark, root, COVERAGE.name).select(*offsets).collect()))
        for root in (str(lakehouse), whole)
    )
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_thirty_kills_at_any_moment_of_any_job_lose_and_double_nothing(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One lakehouse goes through all kills, so that what one of them leaves meets the next."""
    rng = random.Random(SEED)  # noqa: S311 - to be the same in every run
    lakehouse, whole = tmp_path / "lakehouse", tmp_path / "whole"
    hits: list[tuple[str, str]] = []
    for number, part in enumerate(parts_of(RECORDING, tmp_path, PARTS)):
        for job in JOBS:
            source = ("--records", part) if job == "ingest" else ()
            argv = (job, "--lakehouse", lakehouse, *source)
            seconds = succeed(job, "--lakehouse", whole, *source)["seconds"]
            steps = steps_of(seconds)
            # Each step has its turn; the moment in it is random.
            step = (number + JOBS.index(job)) % len(steps)
            with Job(*argv) as process:
                delay = rng.uniform(0.1, 0.9) * COLD * seconds[steps[step]]
                if step:
                    process.await_step(steps[step - 1])
                else:
                    delay += START_S[job]
                if process.kill_after(delay):
                    reached = next((s for s in reversed(steps) if process.has_done(s)), None)
                    at = 0 if reached is None else steps.index(reached) + 1
                    hits.append((job, steps[min(at, len(steps) - 1)]))
            succeed(*argv)
    found = differences(everything(spark, str(lakehouse)), everything(spark, str(whole)))
    jobs, steps_hit = counted(job for job, _ in hits), counted(step for _, step in hits)
    with capsys.disabled():
        sys.stdout.write(f"\n{len(hits)} kills (seed {SEED}); {jobs}; {steps_hit}\n")
    assert found == {}
    assert is_balanced(lakehouse)
    assert len(hits) >= LEAST_KILLS
    assert {job for job, _ in hits} == set(JOBS)


@pytest.mark.parametrize(
    ("number", "word", "seconds"),
    [
        *((signal.SIGINT, "interrupted", seconds) for seconds in (0.5, 2, 5, 9)),
        *((signal.SIGTERM, "terminated", seconds) for seconds in (1, 7)),
    ],
)
def test_a_signal_is_one_line(
    tmp_path: Path, number: signal.Signals, word: str, seconds: float
) -> None:
    """While it imports, while the JVM starts, while it works."""
    job = Job("pipeline", "--records", RECORDING, "--lakehouse", tmp_path / "lakehouse", *BRIEF)
    with job:
        time.sleep(seconds)
        job.wait_to_catch(number)
        assert job.is_running
        # Python ends itself by the signal if it had not begun; to a shell that is the same.
        assert job.end(number) in {128 + number, -number}
    usual = re.compile(r".+: \d+\.\d s(, .+)?")  # what any run says: its steps
    said = [line for line in job.err.splitlines() if not usual.fullmatch(line)]
    assert said == [f"groupledger: {word}; run again to go on"]
