"""The tables in a session of the user's own; the notebook of the examples."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import groupledger
from groupledger.application import home
from schemas.errors import LakehouseError, UsageError
from storage.catalog import foreign_layers, function_texts, layers
from tests.support.jobs import query
from tests.support.topic import GAP_GROUPS, GAP_SINCE

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
BEGIN, END = "2026-11-21 07:01:08", "2026-11-21 07:01:36"


@pytest.fixture
def own(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session that jobs have registered nothing in, as far as the catalogue is concerned."""
    with without_names(spark, tmp_path):
        yield spark


@contextmanager
def without_names(spark: SparkSession, elsewhere: Path) -> Iterator[None]:
    def forget() -> None:
        spark.catalog.setCurrentDatabase("default")
        for name in function_texts():  # Spark still knows those that go with their database
            spark.sql(f"DROP FUNCTION IF EXISTS {name}")
        for layer in filter(spark.catalog.databaseExists, layers()):
            # A database that `sql` has made would take the tables with it.
            spark.sql(f"ALTER DATABASE {layer} SET LOCATION '{elsewhere / layer}'")
            spark.sql(f"DROP DATABASE {layer} CASCADE")

    forget()
    yield
    forget()


def test_the_methods_give_what_sql_gives(own: SparkSession, storm: str) -> None:
    lh = groupledger.lakehouse(own, storm)
    states = lh.timeline("crash-loop", since=BEGIN, until=END).select("sequence").collect()
    generations = lh.generations("crash-loop").select("generation").collect()
    anomalies = lh.anomalies("crash-loop", since="2026-11-21 07:01").select("kind").collect()
    at = dt.datetime(2026, 11, 21, 7, 1, 15, tzinfo=dt.timezone.utc)
    owners = lh.owners(at).where("topic_partition = 2").select("group_id", "client_id").collect()
    assert lh.owners("2026-11-21 07:01:15").count() == lh.owners(at.replace(tzinfo=None)).count()
    assert lh.table("gold.lag").columns[0] == "cluster"
    assert lh.table("gold.lag").count() == 0  # no run has made it
    assert own.catalog.currentDatabase() == "default"
    of_group = "group_id = 'crash-loop'"
    assert states
    assert rows(states) == query(
        storm,
        f"SELECT sequence FROM timeline WHERE {of_group} AND started_at < TIMESTAMP '{END}'"
        f" AND coalesce(ended_at > TIMESTAMP '{BEGIN}', true) ORDER BY sequence",
    )
    assert rows(generations) == query(
        storm,
        f"SELECT generation FROM gold.group_generations WHERE {of_group}"
        " ORDER BY join_completed_at, generation",
    )
    assert rows(anomalies) == query(
        storm, f"SELECT kind FROM gold.anomalies WHERE {of_group} ORDER BY started_at, kind"
    )
    assert rows(owners) == query(
        storm,
        "SELECT group_id, client_id FROM owners_at(TIMESTAMP '2026-11-21 07:01:15')"
        " WHERE topic_partition = 2 ORDER BY group_id",
    )


def test_an_owner_is_null_where_records_are_missing(own: SparkSession, gap: str) -> None:
    lh = groupledger.lakehouse(own, gap)
    for group in GAP_GROUPS:
        for minutes, known in ((0, True), (30, False), (60, True)):
            at = dt.datetime.fromtimestamp(GAP_SINCE / 1_000 + 60 * minutes, dt.timezone.utc)
            found = lh.owners(at, group).collect()
            assert [row.topic_partition for row in found] == [0, 1]
            assert {row.client_id is not None for row in found} == {known}


def rows(found: list[object]) -> list[dict[str, object]]:
    return [row.asDict() for row in found]  # type: ignore[attr-defined]


def test_the_notebook_of_the_examples(
    own: SparkSession,
    storm: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run its cells one after the other, as Jupyter would; the session is the one of the tests."""
    monkeypatch.setenv("GROUPLEDGER_LAKEHOUSE", storm)
    monkeypatch.setattr("delta.configure_spark_with_delta_pip", lambda _: _Given(own))
    names: dict[str, object] = {}
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)  # noqa: S102
    said = capsys.readouterr().out
    assert "rebalance_storm" in said
    assert "new_member" in said
    assert "flapper-1" in said


class _Given:
    def __init__(self, spark: SparkSession) -> None:
        self.getOrCreate = lambda: spark


def test_rows_of_one_cluster_alone(own: SparkSession, storm: str) -> None:
    assert groupledger.lakehouse(own, storm, "one").timeline().count() > 0
    with pytest.raises(UsageError, match=r"there is no cluster 'two' in .*, only one"):
        groupledger.lakehouse(own, storm, "two")


def test_what_is_not_there_is_said(own: SparkSession, storm: str, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(LakehouseError, match="there are no tables in"):
            groupledger.lakehouse(own, str(folder))
    with pytest.raises(UsageError, match=r"there is no table 'gold\.lags'"):
        groupledger.lakehouse(own, storm).table("gold.lags")


def test_databases_of_others_are_left_alone(own: SparkSession, storm: str) -> None:
    own.sql("CREATE DATABASE gold")
    with pytest.raises(LakehouseError, match="has a database gold that is somebody else's"):
        groupledger.lakehouse(own, storm)
    assert foreign_layers(own) == ["gold"]
    assert not own.catalog.tableExists("gold.group_states")


def test_who_drops_the_names_drops_no_table(own: SparkSession, storm: str) -> None:
    groupledger.lakehouse(own, storm)
    for layer in layers():
        own.sql(f"DROP DATABASE {layer} CASCADE")
    assert groupledger.lakehouse(own, storm).timeline().count() > 0


def test_another_lakehouse_takes_the_place_of_the_one_before(
    own: SparkSession, storm: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(storm, copy)
    assert groupledger.lakehouse(own, storm, "one").table("gold.group_states").count() > 0
    own.read.format("delta").load(f"{copy}/gold/group_states").limit(0).write.format("delta").mode(
        "overwrite"
    ).save(f"{copy}/gold/group_states")
    assert groupledger.lakehouse(own, str(copy)).table("gold.group_states").count() == 0
    assert groupledger.lakehouse(own, storm).table("gold.group_states").count() > 0


@pytest.mark.parametrize("conf", [{}, {"spark.jars": "delta"}], ids=["no JARs", "no extension"])
def test_a_session_without_delta_is_told_so(
    spark: SparkSession, storm: str, tmp_path: Path, conf: dict[str, str]
) -> None:
    """In a process of its own: a JVM has one class path."""
    classes = spark.conf.get("spark.driver.extraClassPath") if conf else ""
    program = (
        "from pyspark.sql import SparkSession\n"
        "from groupledger import lakehouse\n"
        "builder = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')\n"
        f"builder = builder.config('spark.driver.extraClassPath', {classes!r})\n"
        "builder = builder.config('spark.driver.extraJavaOptions', '-XX:TieredStopAtLevel=1')\n"
        f"lakehouse(builder.getOrCreate(), {storm!r})\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=env | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1].startswith(
        "schemas.errors.LakehouseError: the session has no Delta Lake: make it with"
    )


def test_in_a_checkout_the_application_is_the_checkout() -> None:
    assert home() == ROOT
