"""What is asked of a lakehouse on this machine without Spark."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from reporting.model import Selection, quoted
from schemas.errors import LakehouseError
from storage.local import NeedsSparkError, asked_here

AT = dt.datetime(2026, 11, 21, 7, tzinfo=dt.timezone.utc)
AT_MS = int(AT.timestamp() * 1_000)
CLUSTER = "eu/west 1"
READ = {"rows": "SELECT observed_at, source FROM bronze.coverage WHERE observed_at <= :at"}


def write(root: Path, cluster: str, **columns: object) -> None:
    rows = pa.table({"cluster": [cluster], **{name: [value] for name, value in columns.items()}})
    path = str(root / "bronze/coverage")
    write_deltalake(path, rows, mode="append", partition_by=["cluster"], schema_mode="merge")


def test_rows_are_those_of_the_cluster_as_any_release_wrote_them(tmp_path: Path) -> None:
    write(tmp_path, CLUSTER, observed_at=AT)
    write(tmp_path, CLUSTER, observed_at=AT, source="kafka")
    write(tmp_path, CLUSTER, observed_at=AT + dt.timedelta(seconds=1), source="later")
    write(tmp_path, "other", observed_at=AT, source="other")
    rows = asked_here(tmp_path, CLUSTER)(READ, {"at": AT, "unused": 1})["rows"]
    assert sorted(rows.to_pylist(), key=str) == [
        {"observed_at": AT_MS, "source": "kafka"},
        {"observed_at": AT_MS, "source": None},
    ]


def test_a_commit_that_is_empty_is_no_commit_of_no_rows(tmp_path: Path) -> None:
    for source in ("one", "two"):
        write(tmp_path, CLUSTER, observed_at=AT, source=source)
    (tmp_path / "bronze/coverage/_delta_log/00000000000000000001.json").write_bytes(b"")
    with pytest.raises(LakehouseError, match="bronze/coverage: files of the table's log"):
        asked_here(tmp_path, CLUSTER)(READ, {"at": AT})


def test_a_column_that_no_release_wrote_yet_is_null(tmp_path: Path) -> None:
    write(tmp_path, CLUSTER, observed_at=AT)
    rows = asked_here(tmp_path, CLUSTER)(READ, {"at": AT})["rows"]
    assert rows.to_pylist() == [{"observed_at": AT_MS, "source": None}]


def test_what_is_nested_and_no_release_wrote_yet_is_null(tmp_path: Path) -> None:
    write(tmp_path, CLUSTER, holes=[{"start_offset": 1}])
    hole = "(SELECT explode(holes) AS hole FROM bronze.coverage)"
    query = {"holes": f"SELECT hole.reason AS reason, hole.start_offset AS start FROM {hole}"}
    found = asked_here(tmp_path, CLUSTER)(query, {})["holes"]
    assert found.to_pylist() == [{"reason": None, "start": 1}]


def test_a_field_is_taken_of_each_struct_in_a_list_as_spark_takes_it(tmp_path: Path) -> None:
    holes = [{"start_offset": 1, "reason": None}, {"start_offset": 2, "reason": "compacted"}]
    write(tmp_path, CLUSTER, holes=holes)
    taken = "array_compact(holes.reason) AS reasons, size(holes.start_offset) AS number"
    query = {"taken": f"SELECT {taken} FROM bronze.coverage"}
    (row,) = asked_here(tmp_path, CLUSTER)(query, {})["taken"].to_pylist()
    assert row == {"reasons": ["compacted"], "number": 2}


def test_rows_that_join_many_others_need_no_spark(tmp_path: Path) -> None:
    rows = pa.table({"cluster": [CLUSTER] * 50_000, "source": list(map(str, range(50_000)))})
    write_deltalake(str(tmp_path / "bronze/coverage"), rows, partition_by=["cluster"])
    known = "SELECT source AS known FROM bronze.coverage ORDER BY source LIMIT 5000"
    query = {"rows": f"SELECT count(*) AS n FROM bronze.coverage JOIN ({known}) ON source = known"}
    assert asked_here(tmp_path, CLUSTER)(query, {})["rows"].to_pylist() == [{"n": 5_000}]


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    root = tmp_path / "o'brien's \"50%\""
    write(root, CLUSTER, observed_at=AT)
    assert asked_here(root, CLUSTER)(READ, {"at": AT})["rows"].num_rows == 1


@pytest.mark.parametrize(("name", "other"), [("a%20b", "a b"), ("50%25", "50%"), ("%c3%A9", "é")])
def test_a_folder_whose_name_looks_escaped_is_left_to_spark(
    tmp_path: Path, name: str, other: str
) -> None:
    """For delta-rs its log is that of another folder, which is read as it is."""
    write(tmp_path / other, CLUSTER, observed_at=AT)
    shutil.copytree(tmp_path / other, tmp_path / name)
    with pytest.raises(NeedsSparkError, match=name):
        asked_here(tmp_path / name, CLUSTER)(READ, {"at": AT})
    assert asked_here(tmp_path / other, CLUSTER)(READ, {"at": AT})["rows"].num_rows == 1


def test_what_folders_say_has_the_type_of_its_column(tmp_path: Path) -> None:
    rows = pa.table({"cluster": ["007"] * 2, "group_id": ["a", "b"], "is_settled": [True, False]})
    path, by = str(tmp_path / "gold/group_states"), ["cluster", "is_settled"]
    write_deltalake(path, rows, partition_by=by)
    (tmp_path / "bronze").mkdir()
    query = {"rows": "SELECT cluster, group_id FROM gold.group_states WHERE is_settled"}
    found = asked_here(tmp_path, "007")(query, {})["rows"]
    assert found.to_pylist() == [{"cluster": "007", "group_id": "a"}]


def test_deleted_rows_are_left_to_spark(tmp_path: Path) -> None:
    write(tmp_path, CLUSTER, observed_at=AT)
    log = tmp_path / "bronze/coverage/_delta_log/00000000000000000000.json"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    actions = [{"protocol": protocol} if "protocol" in line else line for line in lines]
    log.write_text("\n".join(map(json.dumps, actions)), "utf-8")
    with pytest.raises(NeedsSparkError, match=r"coverage$"):
        asked_here(tmp_path, CLUSTER)(READ, {"at": AT})


def test_a_table_that_nobody_made_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "bronze").mkdir()
    assert asked_here(tmp_path, CLUSTER)(READ, {"at": AT})["rows"].num_rows == 0


def test_what_is_damaged_is_left_to_spark(tmp_path: Path) -> None:
    write(tmp_path, CLUSTER, observed_at=AT)
    (data,) = tmp_path.glob("bronze/coverage/cluster=*/*.parquet")
    data.write_bytes(b"PAR1 and no more")
    with pytest.raises(NeedsSparkError):
        asked_here(tmp_path, CLUSTER)(READ, {"at": AT})
    (tmp_path / "bronze/coverage/_delta_log/00000000000000000000.json").write_text("{")
    with pytest.raises(NeedsSparkError):
        asked_here(tmp_path, CLUSTER)(READ, {"at": AT})


def test_what_is_not_on_this_machine_is_left_to_spark(tmp_path: Path) -> None:
    with pytest.raises(NeedsSparkError):
        asked_here(tmp_path, CLUSTER)(READ, {"at": AT})


def test_a_sum_is_a_whole_number(tmp_path: Path) -> None:
    (tmp_path / "bronze").mkdir()
    query = {"sum": "SELECT sum(CAST(1 AS BIGINT)) AS n, count_if(true) AS m"}
    assert asked_here(tmp_path, CLUSTER)(query, {})["sum"].to_pylist() == [{"n": 1, "m": 1}]


def asked(tmp_path: Path, query: str, **values: object) -> list[object]:
    (tmp_path / "bronze").mkdir(exist_ok=True)
    rows = asked_here(tmp_path, CLUSTER)({"of": f"SELECT {query} AS x"}, values)["of"]
    return [row["x"] for row in rows.to_pylist()]


@pytest.mark.parametrize(
    ("groups", "name", "is_it"),
    [
        ("orders-.*", "orders-1\n", True),
        ("x", "x\n", False),
        (r"(?:a|\d+)[^/.]", "12-", True),
        (quoted("a.b[c\\E(?i)é"), "a.b[c\\E(?i)é", True),
    ],
)
def test_a_pattern_is_of_whole_ids(tmp_path: Path, groups: str, name: str, *, is_it: bool) -> None:
    pattern = Selection(groups).pattern
    assert asked(tmp_path, "regexp_like(:name, :pattern)", name=name, pattern=pattern) == [is_it]


@pytest.mark.parametrize(
    "groups",
    ["[a-z&&[^b]]+", "[a[bc]]+", "(?i)a", "[[:alpha:]]+", r"a\sb", r"\bé", "é", r"(a)\1", "a(?=b)"],
)
def test_a_pattern_that_may_mean_something_else_to_duckdb_is_left_to_spark(
    tmp_path: Path, groups: str
) -> None:
    with pytest.raises(NeedsSparkError):
        asked(tmp_path, "regexp_like('a', :pattern)", pattern=Selection(groups).pattern)


def test_a_time_long_ago_is_a_time(tmp_path: Path) -> None:
    assert asked(tmp_path, "timestamp_millis(-5000000)") == [-5_000_000]


def test_two_at_once_write_to_different_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one, other = (asked(tmp_path, "current_setting('temp_directory')") for _ in range(2))
    assert one != other
    monkeypatch.setattr("storage.local._MOST_MEMORY", "64MB")
    many = "(SELECT sum(i) FROM (SELECT range AS i FROM range(8000000) ORDER BY hash(range)))"
    assert asked(tmp_path, many) == [8_000_000 * 7_999_999 // 2]
    assert [path.name for path in tmp_path.iterdir()] == ["bronze"]
