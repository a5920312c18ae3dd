"""The messages of errors that nobody foresaw; what goes on, and when."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JNetworkError

from jobs.runtime.runner import _again, _times
from launch.signals import ENDING
from schemas.errors import UsageError
from storage.failures import _explanation, line_of


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


def test_a_jvm_that_is_gone_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm
    with pytest.raises(Py4JNetworkError) as caught:
        jvm.System.currentTimeMillis()
    for error in (caught.value, ConnectionRefusedError(111, "Connection refused")):
        assert line_of(error).startswith("the JVM of Spark has ended, most likely since")


def test_runs_begin_in_time_however_long_each_takes() -> None:
    starts = []
    for started in _times(1):
        starts.append(started)
        if len(starts) == 3:
            break
        time.sleep(0.4)
    assert all(1 <= later - former < 1.3 for former, later in pairwise(starts))


class Clock:
    """A time that passes where something takes some, or waits.

    Attributes:
        pauses: how long each wait was.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def played(self, *rounds: tuple[float, int]) -> tuple[list[float], int]:
        """Play rounds that take some seconds and end with a status; the last is the process's end.

        Returns:
            When each began, and the exit status.
        """
        begun: list[float] = []
        coming = iter(rounds)

        def one(started: float) -> int:
            begun.append(started)
            seconds, status = next(coming)
            self.now += seconds
            return status

        return begun, _again(one, _times(60, lambda: self.now, self.pause))


WRONG_USAGE = (0.0, UsageError.status)


def test_a_round_begins_so_long_after_the_one_before_has_begun() -> None:
    clock = Clock()
    begun, _ = clock.played((10, 0), (59, 0), WRONG_USAGE)
    assert (begun, clock.pauses) == ([0, 60, 120], [50, 1])


def test_a_round_that_takes_longer_is_followed_at_once_and_none_piles_up() -> None:
    clock = Clock()
    begun, _ = clock.played((200, 0), (10, 0), WRONG_USAGE)
    assert (begun, clock.pauses) == ([0, 200, 260], [0, 50])


@pytest.mark.parametrize("status", [1, 3, 141])
def test_a_round_that_fails_is_followed_by_the_next_one(status: int) -> None:
    begun, _ = Clock().played((10, status), (10, 0), WRONG_USAGE)
    assert begun == [0, 60, 120]


def test_wrong_usage_is_the_end() -> None:
    clock = Clock()
    assert clock.played(WRONG_USAGE, (10, 0)) == ([0], UsageError.status)
    assert clock.pauses == []


@pytest.mark.parametrize("number", sorted(ENDING))
@pytest.mark.parametrize(
    ("before", "status", "said"),
    [
        ("", 0, ""),
        ("wait(0); time.sleep(30)", None, "groupledger: {word}; run again to go on\n"),
        ("signal.signal(number, signal.SIG_IGN)", 7, ""),
    ],
    ids=["while it waits", "while it works again", "what a shell has the background ignore"],
)
def test_a_signal_while_it_waits_is_its_end_in_peace(
    number: signal.Signals, before: str, status: int | None, said: str
) -> None:
    code = (
        "import os, signal, sys, threading, time\n"
        "from launch.signals import end_by_signals, wait\n"
        f"number = {int(number)}\n"
        "signal.signal(number, signal.SIG_DFL)\n"  # whatever these tests are in the background of
        "end_by_signals()\n"
        "threading.Timer(0.3, os.kill, (os.getpid(), number)).start()\n"
        f"{before}\n"
        "wait(1)\n"
        "sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    word = "interrupted" if number == signal.SIGINT else "terminated"
    expected = 128 + number if status is None else status
    assert (done.returncode, done.stdout, done.stderr) == (expected, "", said.format(word=word))
