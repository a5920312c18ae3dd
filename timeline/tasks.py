"""Tasks of streams groups: of which partitions they are, as far as the log tells.

A subtopology has as many tasks as the largest of its source topics has partitions, and a smaller
one has no partition for the others (PartitionGrouper.partitionGroups). Only topics that are joined
are known to have the same number; of the others, a commit shows that a partition is there.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from timeline.model import Epochs, GroupState, Row, partition_hash, partition_key, partition_of

Tasks = dict[str, list[int]]


def sources_of(subtopology: Row) -> list[str]:
    """Return the topics that a subtopology reads."""
    made = subtopology.get("repartition_source_topics") or ()
    return [*(subtopology.get("source_topics") or ()), *(topic["name"] for topic in made)]


def are_uneven(subtopology: Row) -> bool:
    """Return whether its source topics may have different numbers of partitions."""
    count = len(sources_of(subtopology))
    joined = (
        len(of_join.get("source_topics") or ())
        + len(of_join.get("repartition_source_topics") or ())
        for of_join in subtopology.get("copartition_groups") or ()
    )
    return max(joined, default=1) < count


def renamed(owned: Tasks, before: dict[str, list[str]], now: dict[str, list[str]]) -> Tasks:
    """Return partitions by topics that subtopologies read now: tasks go on when these change."""
    tasks = {part: owned.get(topics[0], []) for part, topics in before.items() if topics}
    return {topic: numbers for part, numbers in tasks.items() for topic in now.get(part, ())}


def is_there(epochs: Epochs, topic: str, partition: int) -> bool:
    """Return whether a partition of a task is known to exist."""
    # A topology is valid if its topics exist, and each has a partition 0.
    return topic not in epochs.uneven or partition <= epochs.shown.get(topic, 0)


def note(state: GroupState, committed: np.ndarray) -> None:
    """Note which partitions commits show to exist, by `partition_hash`."""
    epochs, row = state.epochs, state.generation
    if not epochs.uneven:
        return
    hashes = set(committed.tolist())
    for topic in epochs.uneven:
        owned = {p for m in state.members.values() for p in (m.assigned or {}).get(topic, ())}
        there = [p for p in owned if partition_hash(partition_key(topic, p)) in hashes]
        if there:
            epochs.shown[topic] = max(*there, epochs.shown.get(topic, -1))
    if row is not None and epochs.assignment == epochs.group:
        owners = owners_of(epochs, state.last_owners)
        if owners is not None:
            row["assigned_partitions"] = len(owners)
            row["most_partitions"] = max(Counter(owners.values()).values(), default=None)


def owners_of(epochs: Epochs, owners: dict[str, str]) -> dict[str, str] | None:
    """Return the owners of those partitions that exist, by key; None if these are not known."""
    if not epochs.uneven:
        return owners
    if not epochs.shown.keys() >= {*epochs.uneven}:
        return None
    return {p: o for p, o in owners.items() if is_there(epochs, *partition_of(p))}
