"""The jobs: thin scripts that read tables, call transforms and write tables.

Ctrl-C ends each with a line, also while it still imports what it needs.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import TracebackType

INTERRUPTED = 130
"""The exit status of a job that was interrupted, as a shell gives it."""


HELD_BACK = "GROUPLEDGER_INTERRUPT_HELD_BACK"
"""Environment variable of a job whose launcher has blocked SIGINT."""


def say_interrupted() -> None:
    """Say that a job was interrupted, also within a signal handler and beside a spinner."""
    # The progress line is erased, and the cursor shown again.
    clear = "\r\x1b[2K\x1b[?25h" if sys.stderr.isatty() else ""
    os.write(2, f"{clear}groupledger: interrupted; run again to go on\n".encode())


def end_interrupted(*_: object) -> NoReturn:
    """End the process at once, and with it the JVM.

    Of a JVM that is about to answer nothing else can be asked, not even to stop; and whenever a run
    ends, nothing half-written counts.
    """
    say_interrupted()
    os._exit(INTERRUPTED)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        say_interrupted()
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _uncaught

# The launcher holds Ctrl-C back while Python starts. As an exception it could be lost among the
# imports, and the job would go on.
if os.environ.pop(HELD_BACK, None):
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end_interrupted)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
