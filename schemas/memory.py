"""How Python looks after the memory of many rows."""

from __future__ import annotations

import gc


def seldom_collect() -> None:
    """Have Python look for garbage that refers to itself once in 100,000 new objects, not in 700.

    Rows are none, and each thorough look passes over all that are held: a fourteenth of what the
    fold and the detectors take.
    """
    gc.set_threshold(100_000, 20, 100)
