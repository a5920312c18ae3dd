"""The whole of groupledger on s3a://, against an S3 server: the same tables as on this machine."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from launch import jars
from tests.conftest import RECORDINGS
from tests.support.jobs import contents, differences, everything, query, succeed
from tests.support.kills import Job
from tests.support.object_store import BUCKET, Store, s3_server
from tests.support.parts import parts_of

pytestmark = [pytest.mark.s3, pytest.mark.timeout(1800)]
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


def test_the_report_is_in_the_bucket(store: Store, tmp_path: Path) -> None:
    written = done(job(store, "pipeline", "page", "--records", RECORDING))
    assert f"The report is s3a://{BUCKET}/page/report.html" in " ".join(written.out.split())
    again = done(job(store, "pipeline", "page", "--records", RECORDING))
    assert any("report: left as it is" in line for _, line in again.lines), again.lines
    uri = f"s3a://{BUCKET}/pages/of one.html"
    asked = done(job(store, "report", "page", "--group", "connect-.*", "--output", uri))
    assert uri in asked.out
    store.download("page", tmp_path / "page")
    store.download("pages", tmp_path / "pages")
    for page in (tmp_path / "page" / "report.html", tmp_path / "pages" / "of one.html"):
        assert "connect-" in page.read_text("utf-8")
    # No run left what it shows to others.
    assert not (tmp_path / "page" / "writers").exists()


def test_a_run_says_that_another_one_writes(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "killed"
    file.write_text("pipeline of default on host")
    store.upload(file, "at once/writers/killed")
    decoding = done(job(store, "decode", "at once"))
    assert any(
        "may be writing to this lakehouse: pipeline of" in line for _, line in decoding.lines
    )


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


_BY_PROXY = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={port}"


class _Requests(http.server.BaseHTTPRequestHandler):
    """Answers nothing, and keeps what was asked."""

    def _refuse(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")  # type: ignore[attr-defined]
        self.send_error(HTTPStatus.NOT_FOUND)

    do_GET = do_HEAD = do_POST = do_PUT = do_CONNECT = _refuse  # noqa: N815 - the names of methods

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("uri", "conf", "asked"),
    [
        (
            "gs://bucket/groups",
            (
                "spark.hadoop.fs.gs.storage.root.url=http://127.0.0.1:{port}",
                "spark.hadoop.fs.gs.auth.type=UNAUTHENTICATED",
            ),
            "GET /storage/v1/b/bucket/o",
        ),
        (
            "abfss://box@account.dfs.core.windows.net/groups",
            (
                f"spark.driver.extraJavaOptions={_BY_PROXY}",
                "spark.hadoop.fs.azure.account.key.account.dfs.core.windows.net=a2V5",
                "spark.hadoop.fs.azure.io.retry.max.retries=1",
            ),
            "CONNECT account.dfs.core.windows.net:443",
        ),
    ],
    ids=["gs", "abfss"],
)
def test_connectors_of_other_stores_load_and_ask(
    uri: str, conf: tuple[str, ...], asked: str
) -> None:
    """No such store is here: what is seen is that all classes are there."""
    (needed,) = jars.store_jars([uri])
    jars.fetch(needed)  # the check itself fetches nothing
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Requests)
    server.asked = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = [("--conf", pair.format(port=server.server_port)) for pair in conf]
    with server, Job("check", "--lakehouse", uri, *(w for pair in options for w in pair)) as check:
        check.wait()
        server.shutdown()
    requests = server.asked  # type: ignore[attr-defined]
    assert any(request.startswith(asked) for request in requests), (requests, check.out, check.err)
    assert "no file system" not in check.out
