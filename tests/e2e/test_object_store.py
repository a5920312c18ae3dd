"""The whole of groupledger on s3a://, against an S3 server: the same tables as on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.conftest import RECORDINGS
from tests.support.jobs import contents, differences, everything, query, succeed
from tests.support.kills import Job
from tests.support.object_store import BUCKET, Store, s3_server
from tests.support.parts import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.s3, pytest.mark.timeout(900)]
RECORDING = RECORDINGS / "4.3.1-connect.parquet"


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with s3_server() as store:
        yield store


def job(store: Store, name: str, lakehouse: str, *options: object) -> Job:
    argv = (name, "--lakehouse", f"s3a://{BUCKET}/{lakehouse}", *options, *store.options)
    return Job(*argv, env=store.env)


def done(started: Job) -> Job:
    with started as ended:
        assert ended.wait() == 0, ended.err
    return ended


def test_a_bucket_holds_the_same_tables(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    """Three runs, the second one killed among its commits, then what else is done to tables."""
    here, copy = tmp_path / "here", tmp_path / "copy"
    first, second, third = parts_of(RECORDING, tmp_path, 3)
    done(job(store, "pipeline", "a b/é", "--records", store.upload(first, "parts/first.parquet")))
    with job(store, "pipeline", "a b/é", "--records", second) as killed:
        assert killed.await_step("decoding into silver"), killed.err
        assert killed.kill_after(2.0)  # in the midst of the history
    done(job(store, "pipeline", "a b/é", "--records", second))
    done(job(store, "pipeline", "a b/é", "--records", third))
    for part in (first, second, third):
        succeed("pipeline", "--records", part, "--lakehouse", here)
    store.download("a b/é", copy)
    assert contents(spark, str(copy)) == contents(spark, str(here))
    done(job(store, "maintain", "a b/é"))
    page = tmp_path / "report.html"
    done(job(store, "report", "a b/é", "--output", page))
    assert "connect" in page.read_text("utf-8")
    counted = "SELECT count(*) AS n FROM gold.group_states"
    asked = done(job(store, "sql", "a b/é", "--json", "--query", counted))
    (row,) = query(str(here), counted)
    assert json.loads(asked.out.splitlines()[0]) == row


def test_a_run_that_nothing_disturbs_writes_the_same_run_for_run(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    here, copy = tmp_path / "here", tmp_path / "copy"
    done(job(store, "pipeline", "whole", "--records", RECORDING))
    succeed("pipeline", "--records", RECORDING, "--lakehouse", here)
    store.download("whole", copy)
    ours, theirs = everything(spark, str(copy)), everything(spark, str(here))
    assert differences(ours, theirs) == {}


def test_the_check_tells_a_lakehouse_that_is_not_there_from_a_bucket_that_is_not(
    store: Store,
) -> None:
    assert "is reachable" in done(job(store, "check", "not/yet")).out
    argv = ("check", "--lakehouse", "s3a://no-such-bucket/groups", *store.options)
    with Job(*argv, env=store.env) as refused:
        assert refused.wait() == 1, refused.err
    assert "FAIL lakehouse" in refused.out
    assert "does not exist" in refused.out
