"""The most memory that processes took at a time: Python, the JVM, and its Python workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

GIB = 2**30
# To look at the pages of a large process takes tens of milliseconds.
_INTERVAL = 1.0


@dataclass
class Peak:
    """The most so far, in bytes; set it to 0 to start over."""

    bytes: int = 0

    @property
    def gib(self) -> float:
        """The same in GiB."""
        return self.bytes / GIB


@contextmanager
def measured(*, with_own: bool = False) -> Iterator[Peak]:
    """Look at the memory of all processes below this one once a second.

    This one counts only where it does the work itself: else it has made the records, and holds on
    to what that took.
    """
    peak, is_over = Peak(), threading.Event()
    sampler = threading.Thread(target=_sample, args=(peak, is_over, with_own), daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        is_over.set()
        sampler.join()


def _sample(peak: Peak, is_over: threading.Event, with_own: bool) -> None:  # noqa: FBT001
    me = psutil.Process()
    while not is_over.wait(_INTERVAL):
        everyone = [*([me] if with_own else ()), *me.children(recursive=True)]
        peak.bytes = max(peak.bytes, sum(map(_resident, everyone)))


def _resident(process: psutil.Process) -> int:
    """Return the memory of a process; what forked processes share is shared out, where known."""
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except psutil.Error:  # it has ended, or lets nobody look
        return 0
