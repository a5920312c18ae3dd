"""What time it is in the log, in epoch milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detectors.model import SKEW_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detectors.model import Row


def time_of_log(groups: Iterable[Row], read: Iterable[Row], sampled_until: int | None) -> int:
    """Return the time of the log: that of its newest record.

    No record is younger than when it was read, whatever its broker's clock says. When nobody
    commits any more, a sample of the lag shows until when there was nothing to read.

    Args:
        groups: what `detectors.health.GROUPS_NOW` asks for.
        read: of each partition of the log, when it was read last (`observed_at`).
        sampled_until: until when no commit was missing at the newest sample of the lag.
    """
    newest = max((g["newest_at"] for g in groups if g["newest_at"] is not None), default=0)
    observed = [p["observed_at"] for p in read if p["observed_at"] is not None]
    newest = min(newest, max(observed) + SKEW_MS) if observed else newest
    return max(newest, sampled_until or newest)


def known_until(groups: Iterable[Row], read: Iterable[Row]) -> dict[int, int]:
    """Return the time of the newest record of partitions that could not be read to their end.

    An open transaction hides what follows it; such a partition `is_behind`.
    """
    behind = {p["record_partition"] for p in read if p["is_behind"]}
    newest: dict[int, int] = {}
    for group in groups:
        partition, at = group["record_partition"], group["newest_at"]
        if partition in behind and at is not None:
            newest[partition] = max(at, newest.get(partition, at))
    return newest
