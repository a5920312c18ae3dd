"""The ledger says what ran when; a run that was killed is done again with the same range."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from schemas.errors import LakehouseError
from schemas.ledger import DONE, PLANNED, RunId
from schemas.tables import RUNS
from storage.lakehouse import Lakehouse
from storage.local import quickest
from storage.queries import by_spark
from storage.runs import newest
from tests.support.jobs import noted


@pytest.fixture
def lakehouse(spark: SparkSession, lakehouse_path: str) -> Lakehouse:
    return Lakehouse(spark, lakehouse_path, "default")


def reopened(lakehouse: Lakehouse, cluster: str = "default") -> Lakehouse:
    """Return the tables as another process sees them."""
    return Lakehouse(lakehouse.spark, lakehouse.root, cluster)


def steps(lakehouse: Lakehouse) -> list[tuple[int, str, int, int]]:
    lakehouse.runs.write()
    rows = lakehouse.read(RUNS).where("stage = 'decode'").orderBy("run", "at").collect()
    return [(row.run, row.state, row.after_run, row.to_run) for row in rows]


def test_a_stage_takes_what_is_new(lakehouse: Lakehouse) -> None:
    with lakehouse.runs.incremental("decode", to=-1) as run:
        assert run is None
    for to in (2, 2, 5):
        with lakehouse.runs.incremental("decode", to=to, plan={"as_of": to}) as run:
            if run is not None:
                run.rows["silver.offset_commits"] = 10 * to
                run.details["quarantined"] = 1
    # With the plan of the second run the ledger got that the first was done.
    rows = reopened(lakehouse).read(RUNS).where("run = 0").select("state").collect()
    assert {row.state for row in rows} == {PLANNED, DONE}
    assert steps(lakehouse) == [
        (0, PLANNED, -1, 2),
        (0, DONE, -1, 2),
        (1, PLANNED, 2, 5),
        (1, DONE, 2, 5),
    ]
    last = reopened(lakehouse).runs.last("decode")
    assert last is not None
    assert (last.run, last.rows) == (1, {"silver.offset_commits": 50})
    assert last.details == {"as_of": 5, "quarantined": 1}
    assert [row.run for row in lakehouse.runs.done("decode", -1, 1)] == [0, 1]
    assert [row.run for row in lakehouse.runs.done("decode", 0, 1)] == [1]


def test_the_ledger_says_the_same_with_spark_and_without(lakehouse: Lakehouse) -> None:
    for stage, to in (("decode", 1), ("history", 0), ("decode", 4)):
        with lakehouse.runs.incremental(stage, to=to, plan={"as_of": to}) as run:
            assert run is not None
            run.rows["silver.offset_commits"] = to
    lakehouse.runs.write()
    with reopened(lakehouse, "other").runs.incremental("decode", to=7):
        pass
    told = [
        {(row.stage, row.state): row for row in newest(lakehouse.root, ask)}
        for ask in (by_spark(lakehouse), quickest(lakehouse))
    ]
    assert told[0] == told[1]
    assert {key: row.run for key, row in told[0].items()} == {
        ("decode", PLANNED): 1,
        ("decode", DONE): 1,
        ("history", PLANNED): 0,
        ("history", DONE): 0,
    }


def test_a_run_that_was_killed_is_resumed_with_its_range(lakehouse: Lakehouse) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        lakehouse.runs.incremental("decode", to=2, plan={"as_of": 7}),
    ):
        raise KeyboardInterrupt
    later = reopened(lakehouse)
    with later.runs.incremental("decode", to=9, plan={"as_of": 8}) as run:
        assert run is not None
        assert (run.id, run.after, run.to) == (RunId("decode", 0), -1, 2)
        assert run.is_resumed
        assert run.plan == {"as_of": 7}
    assert [step[:2] for step in steps(lakehouse)] == [(0, PLANNED)]
    assert [step[:2] for step in steps(later)] == [(0, PLANNED), (0, DONE)]
    with reopened(lakehouse, "other").runs.incremental("decode", to=-1) as run:
        assert run is None  # it is the business of one cluster


def test_a_full_refresh_takes_all_from_the_start(lakehouse: Lakehouse) -> None:
    for to, refresh in ((2, False), (2, True), (2, False)):
        with lakehouse.runs.incremental("decode", to=to, refresh=refresh) as run:
            if refresh:
                assert run is not None
                assert (run.id.number, run.after, run.to, run.is_refresh) == (1, -1, 2, True)
    assert [step[0] for step in steps(lakehouse)] == [0, 0, 1, 1]


def test_of_two_plans_at_once_one_holds(lakehouse: Lakehouse) -> None:
    one, other = reopened(lakehouse), reopened(lakehouse)
    assert one.runs.last("decode") is None
    assert other.runs.last("decode") is None  # neither knows of the other
    with (
        one.runs.incremental("decode", to=2) as first,
        other.runs.incremental("decode", to=3) as second,
    ):
        assert first is not None
        assert second is not None
        assert (second.id, second.to) == (first.id, 2)
        assert (first.is_resumed, second.is_resumed) == (False, True)
    one.runs.write()
    other.runs.write()
    done = reopened(lakehouse).runs.done("decode", -1, 5)
    assert [(row.run, row.to_run) for row in done] == [(0, 2)]


def test_numbers_go_on_behind_those_that_the_tables_have(lakehouse: Lakehouse) -> None:
    with lakehouse.runs.incremental("history", to=2, refresh=True, floor=7) as run:
        assert run is not None
        assert run.id.number > 7
        assert run.is_refresh


def test_a_ledger_of_a_later_release_is_refused(lakehouse: Lakehouse) -> None:
    noted(lakehouse, RunId("ingest", 0))
    row = lakehouse.read(RUNS).drop("cluster").collect()[0].asDict(recursive=True)
    lakehouse.append(RUNS, [row | {"run": 1, "format_version": 999}])
    with pytest.raises(LakehouseError, match="lakehouse format 999"):
        reopened(lakehouse).runs.last("ingest")
