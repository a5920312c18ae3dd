"""What time it is in the log, in epoch milliseconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from detectors.model import SKEW_MS, Row


def time_of_log(groups: Iterable[Row], observed_at: int | None, sampled_until: int | None) -> int:
    """Return the time of the log: that of its newest record.

    No record is younger than when it was read, whatever its broker's clock says. When nobody
    commits any more, a sample of the lag shows until when there was nothing to read. The groups are
    as `detectors.health.GROUPS_NOW` gives them.
    """
    newest = max((g["newest_at"] for g in groups if g["newest_at"] is not None), default=0)
    if observed_at is not None:
        newest = min(newest, observed_at + SKEW_MS)
    return max(newest, sampled_until or newest)


def known_until(groups: Iterable[Row], behind: Collection[int]) -> dict[int, int]:
    """Return the time of the newest record of partitions that could not be read to their end.

    An open transaction hides what follows it; `behind` are such partitions.
    """
    newest: dict[int, int] = {}
    for group in groups:
        partition, at = group["record_partition"], group["newest_at"]
        if partition in behind and at is not None:
            newest[partition] = max(at, newest.get(partition, at))
    return newest
