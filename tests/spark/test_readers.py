"""The examples for readers without Spark: they run, and give what Spark gives."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from deltalake import DeltaTable

from examples import read_with_deltalake, read_with_duckdb, read_with_polars
from schemas.tables import all_tables
from tests.support.jobs import query

AT = dt.datetime(2026, 11, 21, 7, 2, tzinfo=dt.timezone.utc)


def test_no_table_asks_for_a_feature_that_a_reader_may_lack(storm: str) -> None:
    made = {p.parent for p in Path(storm).glob("*/*/_delta_log")}
    assert {f"{p.parent.name}.{p.name}" for p in made} <= set(all_tables())
    for path in made:
        protocol = DeltaTable(str(path)).protocol()
        assert (protocol.min_reader_version, protocol.reader_features) == (1, None), path


def test_duckdb_gives_what_spark_gives(storm: str) -> None:
    connection = read_with_duckdb.connect(storm)
    owners = connection.sql(read_with_duckdb.OWNERS).fetchall()
    expected = query(
        storm,
        "SELECT group_id, client_id, generation FROM owners_at(TIMESTAMP '2026-11-21 07:01:15')"
        " WHERE topic = 'orders' AND topic_partition = 2 ORDER BY group_id",
    )
    assert [row[:3] for row in owners] == [tuple(row.values()) for row in expected]
    rebalances = connection.sql(read_with_duckdb.REBALANCES).fetchall()
    expected = query(
        storm,
        "SELECT group_id, cause, rebalances, rebalance_ms FROM gold.rebalances_per_hour"
        " ORDER BY rebalances DESC, group_id, cause LIMIT 5",
    )
    assert rebalances == [tuple(row.values()) for row in expected]
    members = connection.sql(read_with_duckdb.MEMBERS).fetchall()
    assert members == [(2, "crash-1"), (2, "crash-x")]


def test_polars_gives_what_spark_gives(storm: str) -> None:
    committed = read_with_polars.committed_at(storm, "crash-loop", AT)
    expected = query(
        storm,
        "SELECT topic, topic_partition, max_by(committed_offset, record_offset)"
        " FROM silver.offset_commits WHERE group_id = 'crash-loop'"
        " AND record_timestamp <= TIMESTAMP '2026-11-21 07:02:00' GROUP BY ALL ORDER BY ALL",
    )
    assert committed.rows() == [tuple(row.values()) for row in expected]
    clients = read_with_polars.flapping_clients(storm).rows()
    expected = query(
        storm,
        "SELECT group_id, client_id, count(*) AS sessions FROM gold.member_sessions"
        " GROUP BY ALL HAVING sessions > 2 ORDER BY sessions DESC, group_id, client_id",
    )
    assert [row[:3] for row in clients] == [tuple(row.values()) for row in expected]


def test_the_examples_print_their_answers(storm: str, capsys: pytest.CaptureFixture[str]) -> None:
    for example in (read_with_deltalake, read_with_duckdb, read_with_polars):
        example.main(storm)
    text = capsys.readouterr().out
    assert "07:00:41 rebalance_storm orders-storm rebalanced 132 times" in text
    assert "version 0, 11 critical" in text
