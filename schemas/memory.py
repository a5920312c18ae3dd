"""How a Python worker looks after the memory of many rows."""

from __future__ import annotations

import gc


def seldom_collect() -> None:
    """Have Python look for objects that refer to each other in circles more seldom in this process.

    It looks once in 100,000 new objects, not in 700. Rows are in no circles, and each thorough look
    passes over all that are held: a fourteenth of what the fold and the detectors take.
    """
    gc.set_threshold(100_000, 20, 100)
