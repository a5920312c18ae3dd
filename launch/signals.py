"""How Ctrl-C and SIGTERM end a job, and Ctrl-C its launcher: with a line, whatever they are at.

They do so once this is imported. `launch` and `jobs` import it before anything else, since much of
a start is imports.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import TracebackType
from typing import NoReturn

INTERRUPTED = 130
"""The exit status of a job that was interrupted, as a shell gives it."""

ENDING = frozenset({signal.SIGINT, signal.SIGTERM})
"""The signals that end a job with a line."""

HELD_BACK = "GROUPLEDGER_SIGNALS_HELD_BACK"
"""Environment variable of a job whose launcher has blocked these signals."""


def say_ended(number: int = signal.SIGINT) -> None:
    """Say that a signal has ended the job, also within its handler and beside a spinner."""
    # The progress line is erased, and the cursor shown again.
    clear = "\r\x1b[2K\x1b[?25h" if sys.stderr.isatty() else ""
    word = "interrupted" if number == signal.SIGINT else "terminated"
    os.write(2, f"{clear}groupledger: {word}; run again to go on\n".encode())


def end(number: int, _: object = None) -> NoReturn:
    """End the process by a signal at once, and with it the JVM: 130 for SIGINT, 143 for SIGTERM.

    Of a JVM that is about to answer nothing else can be asked, not even to stop; and whenever a run
    ends, nothing half-written counts.
    """
    say_ended(number)
    os._exit(128 + number)


def end_by_signals() -> None:
    """Let these signals end the process, but what the caller ignores: a shell's background."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def wait(seconds: float) -> None:
    """Wait between two runs, when a signal breaks nothing off: it ends with 0, without a line."""
    ours = [number for number in ENDING if signal.getsignal(number) is end]
    for number in ours:
        signal.signal(number, lambda *_: os._exit(0))
    time.sleep(seconds)
    for number in ours:
        signal.signal(number, end)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        say_ended()
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _uncaught

# The launcher holds the signals back while Python starts. As an exception Ctrl-C could be lost
# among the imports, and the job would go on.
if os.environ.pop(HELD_BACK, None):
    end_by_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
