"""How the groups of a topic are shared out to tasks, each of which follows its own to the end."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.conditions import Test

PARTITION = "record_partition"
GROUP = "group_id"
_TASKS_A_CORE = 4
# As much at least, and with that not much more: a task holds all that it looks at. Of less, most of
# the rows that a task reads are others', and all later runs open its small files.
_A_TASK = 2_000_000


class Share(NamedTuple):
    """The groups of some partitions of the topic, or some of those of one partition.

    Attributes:
        above: partitions behind this; None for all from the first.
        upto: up to and with this; None for all to the last.
        after: groups behind this, by id; None for all from the first.
        to: up to and with this; None for all to the last.
        weight: about how long they take.
    """

    above: int | None
    upto: int | None
    after: str | None = None
    to: str | None = None
    weight: float = 0

    def tests(self) -> list[Test]:
        """Tell which rows are of these groups, by columns record_partition and group_id."""
        given: list[Test] = [
            *((PARTITION, ">", self.above), (PARTITION, "<=", self.upto)),
            *((GROUP, ">", self.after), (GROUP, "<=", self.to)),
        ]
        return [test for test in given if test[2] is not None]


def a_task(weight: float, cores: int) -> float:
    """Tell how long a task should take at least, in commits, if there are some for each core.

    Args:
        weight: how long all of them take.
        cores: how many there are.
    """
    return max(1, min(_A_TASK, weight / (_TASKS_A_CORE * cores)))


def shared_out(weights: Mapping[tuple[str, int], float], least: float) -> list[Share]:
    """Share all groups out, each to one share.

    A partition that takes far longer than a share is cut between its groups: Kafka writes all
    records of a group into one partition, and some partitions are much busier than others.

    Args:
        weights: by group and partition, how long it takes.
        least: how long a share should take at least.

    Returns:
        Shares that have each partition, also those that have no weight. Those that take longest
        come first, so that none of them is alone at the end.
    """
    by_partition: dict[int, dict[str, float]] = defaultdict(dict)
    for (group, partition), weight in weights.items():
        by_partition[partition][group] = weight
    found: list[Share] = []
    above: int | None = None
    taken = 0.0
    for partition, groups in sorted(by_partition.items()):
        weight = sum(groups.values())
        if len(groups) > 1 and weight > 2 * least:
            if above != partition - 1:
                found.append(Share(above, partition - 1, weight=taken))
            found += _cut(partition, groups, least)
            above, taken = partition, 0.0
            continue
        taken += weight
        if taken >= least:
            found.append(Share(above, partition, weight=taken))
            above, taken = partition, 0.0
    found.append(Share(above, None, weight=taken))
    return sorted(found, key=lambda share: -share.weight)


def _cut(partition: int, groups: Mapping[str, float], least: float) -> Iterator[Share]:
    """Cut one partition between its groups."""
    after: str | None = None
    taken = 0.0
    for group, weight in sorted(groups.items()):
        taken += weight
        if taken >= least:
            yield Share(partition - 1, partition, after, group, taken)
            after, taken = group, 0.0
    yield Share(partition - 1, partition, after, None, taken)
