"""What is seen before Spark starts, and what of Java's lines is passed on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.runtime.session import without_usual_lines
from launch import beforehand
from launch.beforehand import look_ahead
from launch.command_line import parse
from schemas.errors import GroupledgerError, LakehouseError, SourceError
from sources.listeners import refuse_closed_ports


@pytest.fixture
def closed() -> str:
    """An address of this machine at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def listening() -> Iterator[str]:
    """An address of this machine at which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


class TestTargets:
    @pytest.mark.parametrize(
        ("argv", "option"),
        [
            (["decode", "--lakehouse", "{}/l"], "lakehouse"),
            (["demo", "--lakehouse", "{}/l"], "lakehouse"),
            (["demo", "--output", "{}/x.html"], "output"),
            (["pipeline", "--records", "r", "--lakehouse", "l", "--output", "{}/x"], "output"),
            (
                ["pipeline", "--records", "r", "--lakehouse", "l", "--metrics", "{}/x.prom"],
                "metrics",
            ),
            (["validate", "--lakehouse", "t", "--docs", "{}/docs"], "docs"),
            (["report", "--lakehouse", "t", "--output", "{}/x.html"], "output"),
            (["explain", "--lakehouse", "t", "--group", "g", "--html", "{}/x.html"], "html"),
            (["export", "--lakehouse", "t", "--duckdb", "{}/x.duckdb"], "duckdb"),
            (["export", "--lakehouse", "t", "--parquet", "{}/x"], "parquet"),
        ],
        ids=lambda value: " ".join(value[:1]) if isinstance(value, list) else value,
    )
    def test_a_folder_that_is_a_file_is_refused_with_its_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], option: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "t" / "bronze" / "records" / "_delta_log").mkdir(parents=True)
        file = tmp_path / "file"
        file.write_text("")
        chosen = parse([word.format(file) for word in argv])
        with pytest.raises(
            GroupledgerError, match=rf"--{option} {file}.* cannot be written: .* a file"
        ):
            look_ahead(chosen)

    @pytest.mark.parametrize(
        "argv",
        [
            ["decode", "--lakehouse", "there/or/not"],
            ["maintain", "--lakehouse", "/proc/none", "--dry-run"],
            ["decode", "--lakehouse", "s3a://bucket/l"],  # only a write tells
            ["pipeline", "--records", "r", "--skip", "report", "--output", "/proc/x.html"],
        ],
        ids=" ".join,
    )
    def test_what_is_not_written_here_is_not_tried(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        look_ahead(parse(argv))
        assert list(tmp_path.iterdir()) == []  # nor is anything left

    def test_what_forbids_even_root_to_write_is_seen(self) -> None:
        with pytest.raises(
            GroupledgerError, match=r"--lakehouse /proc/none: cannot be written: .*/proc"
        ):
            look_ahead(parse(["decode", "--lakehouse", "/proc/none"]))


class TestTables:
    @pytest.mark.parametrize("job", ["report", "validate", "sql", "explain", "export"])
    def test_where_nothing_was_ever_read_it_is_said_at_once(self, tmp_path: Path, job: str) -> None:
        given = {
            "sql": ["--query", "SELECT 1"],
            "explain": ["--group", "g"],
            "export": ["--duckdb", "x"],
        }
        argv = [job, "--lakehouse", str(tmp_path / "l"), *given.get(job, [])]
        with pytest.raises(LakehouseError, match=rf"no tables in {tmp_path}/l: name the right"):
            look_ahead(parse(argv))

    def test_a_reader_needs_no_right_to_write(self, tmp_path: Path) -> None:
        (tmp_path / "bronze" / "records" / "_delta_log").mkdir(parents=True)
        tmp_path.chmod(0o500)
        look_ahead(parse(["explain", "--lakehouse", str(tmp_path), "--group", "g"]))

    def test_another_store_is_asked_by_spark(self) -> None:
        look_ahead(parse(["explain", "--lakehouse", "s3a://bucket/l", "--group", "g"]))


class TestPorts:
    def test_closed_ones_are_told_at_once(self, closed: str) -> None:
        started = time.monotonic()
        with pytest.raises(SourceError, match=rf"{closed},{closed}: no broker answered: each"):
            refuse_closed_ports(f"{closed},{closed}")
        assert time.monotonic() - started < 5

    def test_one_that_listens_is_enough(self, closed: str, listening: str) -> None:
        refuse_closed_ports(f"{closed}, {listening}")

    def test_what_else_is_wrong_is_left_to_the_client(self, closed: str) -> None:
        refuse_closed_ports(f"{closed},no-such-host.invalid:9092")

    @pytest.mark.parametrize(
        ("options", "is_refused"),
        [
            ([], True),
            (["--every", "5m"], False),  # a later run may find a broker
            (["--only", "decode"], False),  # asks no broker
        ],
    )
    def test_a_run_that_reads_nothing_else_does_not_wait_for_spark(
        self, tmp_path: Path, closed: str, options: list[str], *, is_refused: bool
    ) -> None:
        argv = ["pipeline", "--bootstrap-servers", closed, "--lakehouse", str(tmp_path), *options]
        if is_refused:
            with pytest.raises(SourceError):
                look_ahead(parse(argv))
        else:
            look_ahead(parse(argv))


class TestLinesOfJava:
    def test_usual_ones_are_left_out_and_errors_are_not(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        said = [
            "WARNING: Using incubator modules: jdk.incubator.vector",
            "SLF4J(W): Class path contains multiple SLF4J providers.",
            "SLF4J: Class path contains multiple SLF4J bindings.",
            "SLF4J(E): A SLF4J service provider failed to instantiate",
            "WARNING: something else",
            "Exception in thread main",
        ]
        before = {*threading.enumerate()}
        with without_usual_lines() as stderr:
            (forwarder,) = {*threading.enumerate()} - before
            text = "\n".join(said)
            line = [sys.executable, "-c", f"import os; os.write(2, {text!r}.encode())"]
            subprocess.run(line, stderr=stderr, check=True)
        forwarder.join(5)
        assert capfd.readouterr().err.splitlines() == said[3:]

    def test_all_that_was_said_is_out_before_the_error(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        def start() -> None:
            with without_usual_lines() as stderr:
                os.write(stderr, b"java: not found\n")
                raise FileNotFoundError

        with pytest.raises(FileNotFoundError):
            start()
        assert capfd.readouterr().err == "java: not found\n"


def test_a_folder_is_tried_where_the_path_ends(tmp_path: Path) -> None:
    assert beforehand.why_not(tmp_path / "a" / "b") is None
    assert list(tmp_path.iterdir()) == []
