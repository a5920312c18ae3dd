"""Tests of how groups are shared out to tasks."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.runtime.shares import GROUP, PARTITION, Share, shared_out
from storage.conditions import that_meet

_GROUPS = st.tuples(st.text("ab\u00e9\U0001f600", max_size=3), st.integers(0, 5))


@settings(deadline=None)
@given(
    weights=st.dictionaries(_GROUPS, st.integers(0, 100)),
    others=st.lists(_GROUPS),
    least=st.integers(1, 200),
)
def test_each_group_is_in_one_share(
    weights: dict[tuple[str, int], float], others: list[tuple[str, int]], least: float
) -> None:
    rows = [{GROUP: group, PARTITION: partition} for group, partition in [*weights, *others]]
    table = pa.Table.from_pylist(rows, pa.schema([(GROUP, pa.string()), (PARTITION, pa.int32())]))
    shares = shared_out(weights, least)
    numbered = table.append_column("row", pa.array(range(len(rows)), pa.int64()))
    taken = [n for share in shares for n in that_meet(numbered, share.tests())["row"].to_pylist()]
    assert sorted(taken) == [*range(len(rows))]
    assert sum(share.weight for share in shares) == sum(weights.values())
    assert [s.weight for s in shares] == sorted((s.weight for s in shares), reverse=True)


def test_a_partition_that_takes_long_is_cut_between_its_groups() -> None:
    weights = {("a", 3): 5.0, ("b", 3): 40.0, ("c", 3): 30.0, ("d", 3): 15.0, ("e", 7): 8.0}
    assert shared_out(weights, 20) == [
        Share(2, 3, None, "b", 45),
        Share(2, 3, "b", "c", 30),
        Share(2, 3, "c", None, 15),
        Share(3, None, weight=8),
        Share(None, 2, weight=0),
    ]


def test_a_group_is_never_cut() -> None:
    assert shared_out({("a", 0): 100.0, ("b", 1): 1.0}, 10) == [
        Share(None, 0, weight=100),
        Share(0, None, weight=1),
    ]


def test_nothing_is_one_share_of_all() -> None:
    assert shared_out({}, 10) == [Share(None, None)]
