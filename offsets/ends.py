"""Where the end of a partition's log was when, from a few samples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

MOST_SAMPLES = 64
"""Samples kept of a partition. They grow apart with age, so that few cover years."""


class Passed(NamedTuple):
    """When the end of a log went beyond an offset."""

    earliest: int | None  # not before; None if it was beyond in the oldest sample already
    latest: int  # not after
    estimate: int | None  # between them, as if records had come evenly; None without `earliest`


class EndHistory(NamedTuple):
    """Samples of a log's end, oldest first; the ends never fall."""

    at: Sequence[int]  # times in microseconds
    ends: Sequence[int]  # the log's end at each: the offset that the next record will get

    def end_at(self, time: int) -> int | None:
        """Return the end at a time, between samples as if records had come evenly; None before."""
        after = bisect_right(self.at, time)
        if after == 0:
            return None
        if after == len(self.at):
            return self.ends[-1]
        return self.ends[after - 1] + int(
            (self.ends[after] - self.ends[after - 1])
            * (time - self.at[after - 1])
            / (self.at[after] - self.at[after - 1])
        )

    def around(self, time: int) -> tuple[int | None, int]:
        """Return the least and the most that the end was at a time; None if no sample is as old."""
        after = bisect_right(self.at, time)
        least = None if after == 0 else self.ends[after - 1]
        return least, self.ends[min(after, len(self.ends) - 1)]

    def passed(self, offset: int) -> Passed:
        """Tell when the end went beyond an offset that it is beyond in the last sample."""
        first = bisect_right(self.ends, offset)
        latest = self.at[first]
        if first == 0:
            return Passed(None, latest, None)
        earliest, end = self.at[first - 1], self.ends[first - 1]
        share = (offset - end) / (self.ends[first] - end)
        return Passed(earliest, latest, earliest + int((latest - earliest) * share))

    def with_sample(self, time: int, end: int) -> EndHistory:
        """Add a sample, and let one go if there are too many.

        An end that fell is another log's: the topic was recreated, or lost records. What was before
        tells nothing of it.
        """
        if not self.at or end < self.ends[-1]:
            return EndHistory([time], [end])
        if time <= self.at[-1]:
            return self
        at, ends = [*self.at, time], [*self.ends, end]
        while len(at) > MOST_SAMPLES:
            # The one whose neighbours are closest, measured by its age, is missed least.
            gone = min(
                range(1, len(at) - 1), key=lambda i: (at[i + 1] - at[i - 1]) / (time - at[i])
            )
            del at[gone], ends[gone]
        return EndHistory(at, ends)
