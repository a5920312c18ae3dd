"""Ingest from Parquet files, and the pipeline on bundled recordings."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.generate import SCHEMA
from jobs import ingest as ingest_job
from jobs.runtime import runner
from launch.signals import INTERRUPTED
from schemas.ledger import RunId
from schemas.tables import (
    COMMITTED_OFFSETS,
    COVERAGE,
    QUARANTINE,
    RECORDS,
    RUNS,
    TableSpec,
    all_tables,
)
from sources import parquet
from storage.lakehouse import Lakehouse
from tests.conftest import FIELD, RECORDINGS
from tests.support.jobs import contents, held, is_balanced, noted, run, succeed, table
from tests.support.kills import killed_before_it_is_noted
from tests.support.parts import parts_of
from tests.support.topic import PARTITIONS

# The first of a file makes the session, which has to have its JARs.
pytestmark = pytest.mark.usefixtures("spark")

STORM = RECORDINGS / "4.3.1-storm.parquet"
MODERN = RECORDINGS / "4.3.1-modern.parquet"
ROUNDS = ("--only", "ingest", "--every", "1m")


def write(path: Path, records: pa.Table) -> Path:
    pq.write_table(records, path)
    return path


def record(
    offset: int, key: bytes | None, value: bytes | None, *, partition: int = 0
) -> dict[str, object]:
    return {
        "topic": "__consumer_offsets",
        "partition": partition,
        "offset": offset,
        "timestamp": 1_700_000_000_000 + offset,
        "timestampType": "CreateTime",
        "key": key,
        "value": value,
    }


def test_a_dry_run_writes_nothing_and_says_what_would_be_read(tmp_path: Path) -> None:
    root = tmp_path / "lakehouse"
    path = write(
        tmp_path / "records.parquet",
        pa.Table.from_pylist([record(offset, b"k", None) for offset in (3, 4, 6)], SCHEMA),
    )
    outcome = run("pipeline", "--records", path, "--lakehouse", root, "--dry-run")
    assert outcome.status == 0
    assert "__consumer_offsets-0" in outcome.out
    assert "1 partitions, 7 offsets, 3 records; nothing was written" in outcome.out
    assert (outcome.summary["partitions"], outcome.summary["offsets"]) == (1, 7)
    assert not root.exists()


def test_a_pipeline_of_some_steps_leaves_the_others_for_later(tmp_path: Path) -> None:
    root = tmp_path / "lakehouse"
    line = ["pipeline", "--records", RECORDINGS / "2.2.2-default.parquet", "--lakehouse", root]
    summary = succeed(*line, "--only", "ingest,decode")
    assert summary["records_read"] == summary["records_ingested"] > 0
    assert not (root / "gold").exists()
    assert succeed("pipeline", "--lakehouse", root, "--only", "history")["groups_changed"] > 0


def test_a_run_that_fails_is_followed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, each with figures of its own, until it is interrupted."""
    records, root, metrics = (tmp_path / n for n in ("some.parquet", "lakehouse", "ingest.prom"))
    said: list[str] = []

    def starts(every_s: int) -> Iterator[float]:
        assert every_s == 60
        yield time.monotonic()
        said.append(metrics.read_text("utf-8"))
        shutil.copy(RECORDINGS / "2.2.2-default.parquet", records)
        yield time.monotonic()
        said.append(metrics.read_text("utf-8"))
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_times", starts)
    line = ["pipeline", "--records", records, "--lakehouse", root, "--metrics", metrics]
    outcome = run(*line, *ROUNDS)
    assert outcome.status == INTERRUPTED
    assert "no such file" in outcome.complaint
    statuses = [re.findall(r"groupledger_run_status\{\S* (\S+)", text) for text in said]
    assert statuses == [["1.0"], ["0.0"]]
    assert json.loads(outcome.out.splitlines()[-1])["records_ingested"] > 0


def test_a_run_finds_a_copy_that_was_put_back_since_the_one_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process of its own does; and what the one before has kept in memory is gone."""
    records, root, copy = (tmp_path / name for name in ("records", "lakehouse", "copy"))
    second = parts_of(STORM, records, 2)[-1]
    ingested = []
    blocks = spark.sparkContext._jsc.getPersistentRDDs  # type: ignore[attr-defined]

    def starts(_: int) -> Iterator[float]:
        for put_back in (False, False, True):
            if put_back:
                shutil.rmtree(root)
                shutil.copytree(copy, root)
            yield time.monotonic()
            assert not blocks()
            ingested.append(held(root, RECORDS).num_rows)
            if not copy.exists():
                shutil.copytree(root, copy)
                later.rename(second)
        raise KeyboardInterrupt

    later = second.rename(tmp_path / "later.parquet")
    monkeypatch.setattr(runner, "_times", starts)
    outcome = run("pipeline", "--records", records, "--lakehouse", root, *ROUNDS)
    assert outcome.status == INTERRUPTED
    assert "groupledger:" not in outcome.err
    half, whole, again = ingested
    assert 0 < half < whole == again == pq.read_metadata(STORM).num_rows


class Recordings(NamedTuple):
    """Every bundled recording as one topic, in which each has partitions of its own."""

    folder: Path
    root: str
    counts: list[int]  # the number of records of each, in the order of their partitions
    summary: dict[str, Any]  # that of the run which has ingested and decoded them


def accounts_for_every_offset(spark: SparkSession, root: str, cluster: str = "default") -> bool:
    """Each range of coverage is the records held there and the holes, nothing twice."""
    coverage = table(spark, root, COVERAGE.name, cluster)
    held = F.expr(
        "aggregate(holes, 0L, (sum, hole) -> sum + hole.end_offset - hole.start_offset + 1)"
    )
    wrong = coverage.where(
        F.col("next_offset") - F.col("from_offset") != F.col("record_count") + held
    )
    return not coverage.isEmpty() and wrong.isEmpty()


@pytest.fixture(scope="module")
def recordings(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recordings:  # noqa: ARG001
    folder, counts = tmp_path_factory.mktemp("recordings"), []
    for number, path in enumerate(sorted(RECORDINGS.glob("*.parquet"))):
        records = pq.read_table(path)
        moved = pa.compute.add(records["partition"], pa.scalar(number * PARTITIONS, pa.int32()))
        column = records.schema.get_field_index("partition")
        write(folder / path.name, records.set_column(column, "partition", moved))
        counts.append(records.num_rows)
    root = str(tmp_path_factory.mktemp("ingested") / "lakehouse")
    summary = succeed("silver", "--records", folder, "--lakehouse", root)
    return Recordings(folder, root, counts, summary)


def test_recordings_are_decoded_completely(spark: SparkSession, recordings: Recordings) -> None:
    root, counts, summary = recordings.root, recordings.counts, recordings.summary
    assert len(counts) == 7
    assert summary["records_ingested"] == summary["decoded"] == sum(counts)
    assert summary["quarantined"] == 0
    of_recording = F.floor(F.col("record_partition") / PARTITIONS).alias("recording")
    held = table(spark, root, RECORDS.name).groupBy(of_recording).count().collect()
    assert {row.recording: row["count"] for row in held} == dict(enumerate(counts))
    assert is_balanced(root)
    assert accounts_for_every_offset(spark, root)


def test_a_second_run_changes_nothing(spark: SparkSession, recordings: Recordings) -> None:
    root = recordings.root
    before = contents(spark, root)
    coverage = table(spark, root, COVERAGE.name).count()
    summary = succeed("silver", "--records", recordings.folder, "--lakehouse", root)
    assert summary["records_ingested"] == summary["records_read"] == 0
    assert contents(spark, root) == before
    assert table(spark, root, COVERAGE.name).count() == coverage


def test_another_topic_under_the_same_name_is_refused(
    spark: SparkSession, storm: str, lakehouse_path: str
) -> None:
    shutil.copytree(storm, lakehouse_path)
    before = contents(spark, lakehouse_path, "one")
    line = ("--records", MODERN, "--lakehouse", lakehouse_path, "--cluster", "one")
    outcome = run("ingest", *line)
    assert outcome.status == 1
    assert "has other bytes" in outcome.complaint
    assert outcome.complaint.endswith("keep it under a name of its own: --cluster one.2")
    assert contents(spark, lakehouse_path, "one") == before


def test_any_split_into_runs_gives_the_same_tables(
    spark: SparkSession, storm: str, tmp_path: Path, lakehouse_path: str
) -> None:
    records = pq.read_table(STORM)
    chooser = random.Random(7)  # noqa: S311 - any split will do
    part = pa.array([chooser.randrange(3) for _ in range(records.num_rows)])
    for number in range(3):  # not in the order of offsets: later files fill holes of earlier ones
        some = records.filter(pa.compute.equal(part, number))
        path = write(tmp_path / f"{number}.parquet", some)
        succeed("silver", "--records", path, "--lakehouse", lakehouse_path, "--cluster", "one")
    whole, split = (contents(spark, root, "one") for root in (storm, lakehouse_path))
    names = [name for name in split if not name.startswith("gold.")]
    assert len(names) > 2
    assert {name: split[name] for name in names} == {name: whole[name] for name in names}


def test_a_folder_that_grows_adds_what_is_new(
    spark: SparkSession, tmp_path: Path, lakehouse_path: str
) -> None:
    records = pq.read_table(STORM).sort_by([("timestamp", "ascending"), ("offset", "ascending")])
    folder = tmp_path / "mirror"
    folder.mkdir()
    write(folder / "1.parquet", records.slice(0, 1000))
    first = succeed("ingest", "--records", folder, "--lakehouse", lakehouse_path)
    write(folder / "2.parquet", records.slice(900))  # backups overlap
    second = succeed("ingest", "--records", folder, "--lakehouse", lakehouse_path)
    assert first["records_ingested"] == 1000
    assert second["records_ingested"] == records.num_rows - 1000
    assert accounts_for_every_offset(spark, lakehouse_path)


@pytest.mark.usefixtures("spark")
def test_other_files_of_a_folder_are_left_alone(tmp_path: Path, lakehouse_path: str) -> None:
    folder = tmp_path / "mirror"
    folder.mkdir()
    records = pa.Table.from_pylist([record(0, b"k", None)], SCHEMA)
    write(folder / "1.parquet", records)
    (folder / "README.txt").write_text("Copied each night.")
    summary = succeed("ingest", "--records", folder, "--lakehouse", lakehouse_path)
    assert summary["records_ingested"] == 1
    # A file that is named itself may have any name.
    file = write(tmp_path / "copy", pa.Table.from_pylist([record(1, b"k", None)], SCHEMA))
    summary = succeed("ingest", "--records", file, "--lakehouse", lakehouse_path)
    assert summary["records_ingested"] == 1


def test_holes_have_reasons_and_are_filled_later(
    spark: SparkSession, tmp_path: Path, lakehouse_path: str
) -> None:
    def holes(path: Path) -> list[tuple[int, int, int, list[tuple[int, int, str]]]]:
        succeed("ingest", "--records", path, "--lakehouse", lakehouse_path)
        rows = table(spark, lakehouse_path, COVERAGE.name)
        last = rows.where(F.col("ingest_run") == rows.agg(F.max("ingest_run")).first()[0])
        return [
            (r.record_partition, r.from_offset, r.next_offset, [tuple(h) for h in r.holes])
            for r in last.orderBy("record_partition").collect()
        ]

    def file(name: str, offsets: list[int], partition: int = 0) -> list[dict[str, object]]:
        rows = [record(o, b"\0\2\0\1a", None, partition=partition) for o in offsets]
        write(tmp_path / name, pa.Table.from_pylist(rows, SCHEMA))
        return rows

    late = file("late.parquet", [3, 4, 7])
    assert holes(tmp_path / "late.parquet") == [
        (0, 0, 8, [(0, 2, "compacted"), (5, 6, "compacted")])
    ]
    # A backup that goes back further, and on in another partition.
    rows = late + file("early.parquet", [1, 5, 9]) + file("other.parquet", [0, 1], partition=1)
    write(tmp_path / "all.parquet", pa.Table.from_pylist(rows, SCHEMA))
    assert holes(tmp_path / "all.parquet") == [
        (0, 1, 10, [(2, 2, "compacted"), (6, 6, "compacted"), (8, 8, "compacted")]),
        (1, 0, 2, []),
    ]
    # What lies between two files of a partition was not read.
    rows = file("later.parquet", [14])
    assert holes(tmp_path / "later.parquet") == [(0, 10, 15, [(10, 13, "not read")])]
    held = table(spark, lakehouse_path, RECORDS.name).where("record_partition = 0").collect()
    assert sorted(r.record_offset for r in held) == [1, 3, 4, 5, 7, 9, 14]


def test_what_spark_wrote_of_its_kafka_source_is_read(spark: SparkSession) -> None:
    """TIMESTAMP (INT96), and the type of the time as a number; beside the files is _SUCCESS."""
    rows = parquet.read(spark, str(FIELD / "written-by-spark.parquet"))
    millis = F.unix_millis("record_timestamp")
    (found,) = rows.agg(F.count("*"), F.min(millis), F.max(millis)).collect()
    assert tuple(found) == (4036, 1_758_319_500_000, 1_758_329_980_012)
    assert [r[0] for r in rows.select("timestamp_type").distinct().collect()] == ["CreateTime"]


def test_times_of_any_unit_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """As numbers of milliseconds and as times, with a zone and without, in one folder."""
    times = [1_700_000_000_123, -1, None]
    columns = {
        "topic": ["t"] * 3,
        "partition": pa.array([0] * 3, pa.int32()),
        "offset": pa.array(range(3), pa.int64()),
        "timestampType": pa.array([0, 1, -1], pa.int32()),
        "key": pa.array([b"k"] * 3),
        "value": pa.array([None] * 3, pa.binary()),
    }
    kinds = [pa.int64(), *(pa.timestamp(u, z) for u in ("ms", "us", "ns") for z in (None, "UTC"))]
    for number, kind in enumerate(kinds):
        at = pa.array(times, pa.int64()).cast(pa.timestamp("ms")).cast(kind)
        write(tmp_path / f"{number}.parquet", pa.table({**columns, "timestamp": at}))
    rows = parquet.read(spark, str(tmp_path))
    found = rows.groupBy("record_offset", F.unix_millis("record_timestamp"), "timestamp_type")
    assert sorted(map(tuple, found.count().collect()), key=str) == [
        (0, 1_700_000_000_123, "CreateTime", len(kinds)),
        (1, None, "LogAppendTime", len(kinds)),
        (2, None, "NoTimestampType", len(kinds)),
    ]


def test_files_of_a_connector_are_found(spark: SparkSession, tmp_path: Path) -> None:
    """Files and folders named after the topic, which Spark hides; partitions as folders."""
    records = pa.Table.from_pylist([record(o, b"k", None) for o in range(3)], SCHEMA)
    for partition in (0, 7):
        folder = tmp_path / "topics" / "__consumer_offsets" / f"partition={partition}"
        folder.mkdir(parents=True)
        name = f"__consumer_offsets+{partition}+0000000000.snappy.parquet"
        write(folder / name, records.drop_columns(["partition"]))
    (tmp_path / "_delta_log").mkdir()
    write(tmp_path / "_delta_log" / "0.checkpoint.parquet", pa.table({"add": [1]}))
    rows = parquet.read(spark, str(tmp_path))
    counted = rows.groupBy("record_partition").count().orderBy("record_partition").collect()
    assert [tuple(row) for row in counted] == [(0, 3), (7, 3)]
    (tmp_path / "2025" / "09").mkdir(parents=True)
    write(tmp_path / "2025" / "09" / "more.parquet", records)
    assert parquet.read(spark, str(tmp_path)).count() == 9


def test_ends_of_transactions_are_no_records(
    spark: SparkSession, tmp_path: Path, lakehouse_path: str
) -> None:
    marker, commit = b"\0\0\0\0\0\0", b"\0\2\0\1a"
    rows = [record(o, commit, None) for o in (0, 1, 4, 9)]
    rows += [record(2, b"\0\0\0\1", marker), record(3, b"\0\0\0\0", marker)]
    rows += [record(7, b"\0\0\0\1", marker)]
    path = write(tmp_path / "dump.parquet", pa.Table.from_pylist(rows, SCHEMA))
    line = ("--records", path, "--lakehouse", lakehouse_path)
    summary = succeed("silver", *line)
    assert (summary["transaction_markers"], summary["records_ingested"]) == (3, 4)
    assert (summary["decoded"], summary["quarantined"]) == (4, 0)
    (covered,) = table(spark, lakehouse_path, COVERAGE.name).collect()
    assert [tuple(hole) for hole in covered.holes] == [
        *((start, end, "compacted") for start, end in ((5, 6), (8, 8))),
        *((start, end, "transaction marker") for start, end in ((2, 3), (7, 7))),
    ]
    assert succeed("ingest", *line)["records_ingested"] == 0


@pytest.mark.parametrize("is_here", [True, False], ids=["here", "in another store"])
def test_files_that_were_read_are_not_opened_again(
    tmp_path: Path, lakehouse_path: str, monkeypatch: pytest.MonkeyPatch, *, is_here: bool
) -> None:
    folder, long_ago = tmp_path / "bucket", 1_700_000_000
    if not is_here:
        monkeypatch.setattr(parquet, "_here", lambda _: None)

    def file(name: str, offset: int, at: int = long_ago, group: bytes = b"a") -> Path:
        rows = [record(offset, b"\0\2\0\1" + group, None)]
        path = write(folder / name, pa.Table.from_pylist(rows, SCHEMA))
        os.utime(path, (at, at))
        return path

    def ingested() -> object:
        line = ("--records", folder, "--lakehouse", lakehouse_path)
        return succeed("ingest", *line)["records_ingested"]

    folder.mkdir()
    first = file("0.parquet", 0)
    assert ingested() == 1
    # Nobody could read it now, and nobody tries.
    first.write_bytes(bytes(first.stat().st_size))
    os.utime(first, (long_ago, long_ago))
    assert ingested() == 0
    file("1.parquet", 1, at=int(time.time()) + 60)
    assert ingested() == 1
    # One that was copied with its time, and one that is as long and not as old as it was.
    first = file("0.parquet", 0)
    file("2.parquet", 2)
    assert ingested() == 1
    file("1.parquet", 3, at=long_ago + 1)
    assert ingested() == 1
    file("2.parquet", 2, at=long_ago + 1, group=b"b")
    outcome = run("ingest", "--records", folder, "--lakehouse", lakehouse_path)
    assert "has other bytes" in outcome.complaint


@pytest.mark.parametrize("other", [b"\0\2\0\1b", b"\0\1\0\1a"], ids=["one type", "two types"])
def test_files_that_contradict_each_other_are_refused(
    spark: SparkSession, tmp_path: Path, lakehouse_path: str, other: bytes
) -> None:
    rows = [record(0, b"\0\2\0\1a", None), record(0, other, None)]
    path = write(tmp_path / "two.parquet", pa.Table.from_pylist(rows, SCHEMA))
    outcome = run("ingest", "--records", path, "--lakehouse", lakehouse_path)
    assert outcome.status == 1
    assert "twice with different bytes" in outcome.complaint
    assert table(spark, lakehouse_path, RECORDS.name).isEmpty()


def test_odd_records_are_kept(spark: SparkSession, tmp_path: Path, lakehouse_path: str) -> None:
    long_group = ("é" * 16_383).encode()
    rows = [
        record(0, None, b"x"),
        record(1, b"", b"x"),
        record(2, b"\0", None),
        record(3, b"\0\2\0\0", None),  # the empty group
        record(4, b"\0\2" + len(long_group).to_bytes(2, "big") + long_group, None),
        record(5, b"\0\2\0\4\xf0\x9f\x9a\x80", None),
        record(6, b"\0\2\0\2\xff\xfe", None),  # no UTF-8
        record(7, b"\x7f\xff", None),
        record(8, b"\xff\xfb", None),
        record(9, b"\0\2\0\1a", b"\x7f\xff"),
        record(10, b"\0\2\0\1a", b"\xff\xff"),
        record(11, b"\0\2\0\1a", b""),
    ]
    path = write(tmp_path / "odd.parquet", pa.Table.from_pylist(rows, SCHEMA))
    summary = succeed("silver", "--records", path, "--lakehouse", lakehouse_path)
    assert (summary["decoded"], summary["quarantined"]) == (4, 8)
    assert is_balanced(lakehouse_path)
    refused = table(spark, lakehouse_path, QUARANTINE.name).orderBy("record_offset").collect()
    assert [row.error for row in refused] == [
        "key is null",
        "key: needs 2 bytes for the record type, has 0",
        "key: needs 2 bytes for the record type, has 1",
        "unknown record type 32767",
        "unknown record type -5",
        "value version 32767 of GroupMetadata is not known (known: 0 to 4)",
        "value version -1 of GroupMetadata is not known (known: 0 to 4)",
        "value: needs 2 bytes for its version, has 0",
    ]
    groups = (
        table(spark, lakehouse_path, "silver.group_metadata").orderBy("record_offset").collect()
    )
    assert [row.group_id for row in groups] == ["", "é" * 16_383, "🚀", "\ufffd\ufffd"]
    assert [row.decode_notes for row in groups][-1] == ["group is not valid UTF-8"]


def test_a_lakehouse_by_relative_path_with_a_space(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "one.parquet", pa.Table.from_pylist([record(0, b"k", None)], SCHEMA))
    succeed("silver", "--records", path, "--lakehouse", "./my lake")
    assert table(spark, str(tmp_path / "my lake"), RECORDS.name).count() == 1


def test_an_empty_file_gives_empty_tables(tmp_path: Path, lakehouse_path: str) -> None:
    path = write(tmp_path / "empty.parquet", pa.Table.from_pylist([], SCHEMA))
    summary = succeed("silver", "--records", path, "--lakehouse", lakehouse_path)
    assert summary["records_ingested"] == summary["decoded"] == 0
    assert not held(lakehouse_path, RECORDS).num_rows


def test_columns_of_other_types_and_spellings(spark: SparkSession, tmp_path: Path) -> None:
    kinds = ["CreateTime", "LOG_APPEND_TIME", "create time", "NoTimestampType", "other", None]
    count = len(kinds)
    columns = {
        "topic": pa.array(["a", "b"] * (count // 2)),
        "partition": pa.array(range(count), pa.int16()),
        "offset": pa.array(range(count), pa.int32()),
        "timestamp": pa.array(
            [0, -1, 1_700_000_000_001, None, 2**63 - 1, 253_402_300_799_999], pa.int64()
        ),
        "timestampType": pa.array(kinds, pa.string()),
        "key": pa.array([b"k", None] * (count // 2), pa.binary()),
        "value": pa.array([None, b""] * (count // 2), pa.binary()),
        "more": pa.array(range(count)),
    }
    path = write(tmp_path / "records.parquet", pa.table(columns))
    rows = parquet.read(spark, str(path))
    held = [row.asDict() for row in rows.orderBy("record_partition").collect()]
    assert [row["timestamp_type"] for row in held] == [
        *("CreateTime", "LogAppendTime", "CreateTime"),
        *("NoTimestampType",) * 3,
    ]
    at = rows.orderBy("record_partition").select(F.unix_millis("record_timestamp"))
    assert [row[0] for row in at.collect()] == [
        *(0, None, 1_700_000_000_001),
        *(None, None, 253_402_300_799_999),
    ]
    assert [row["key"] for row in held] == [b"k", None] * (count // 2)
    assert [row["value"] for row in held] == [None, b""] * (count // 2)
    assert [row["record_offset"] for row in held] == list(range(count))


def test_columns_that_folders_are_named_by(
    spark: SparkSession, tmp_path: Path, lakehouse_path: str
) -> None:
    folder = tmp_path / "records"
    records = pq.read_table(STORM)
    spark.read.parquet(str(STORM)).write.partitionBy("partition", "timestampType").parquet(
        str(folder)
    )
    summary = succeed("ingest", "--records", folder, "--lakehouse", lakehouse_path)
    assert summary["records_ingested"] == records.num_rows
    kept = table(spark, lakehouse_path, RECORDS.name).collect()
    assert sorted(r.record_partition for r in kept) == sorted(records["partition"].to_pylist())
    assert {r.timestamp_type for r in kept} == {"CreateTime"}


def test_timestamps_of_old_brokers_are_null(
    spark: SparkSession, tmp_path: Path, lakehouse_path: str
) -> None:
    row = record(0, b"\0\2\0\1a", None) | {"timestamp": -1, "timestampType": "NoTimestampType"}
    path = write(tmp_path / "old.parquet", pa.Table.from_pylist([row], SCHEMA))
    succeed("silver", "--records", path, "--lakehouse", lakehouse_path)
    (kept,) = table(spark, lakehouse_path, RECORDS.name).collect()
    assert (kept.record_timestamp, kept.timestamp_type) == (None, "NoTimestampType")


class TestInterrupted:
    """A run that ends between two commits is completed by the next."""

    def test_ingest_before_coverage(
        self, spark: SparkSession, lakehouse_path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def killed(*_: object, **__: object) -> int:
            raise KeyboardInterrupt

        options = ("--records", STORM, "--lakehouse", lakehouse_path)
        with monkeypatch.context() as patch:
            patch.setattr(ingest_job, "account", killed)
            assert run("ingest", *options).status == INTERRUPTED
        assert table(spark, lakehouse_path, RECORDS.name).count() == 1671
        assert table(spark, lakehouse_path, COVERAGE.name).isEmpty()
        assert succeed("silver", *options)["records_ingested"] == 0
        assert accounts_for_every_offset(spark, lakehouse_path)
        assert is_balanced(lakehouse_path)
        # What came behind the run that was killed is not known by the time of the next.
        began = table(spark, lakehouse_path, RECORDS.name).select("ingested_at").distinct()
        observed = table(spark, lakehouse_path, COVERAGE.name).select("observed_at").distinct()
        assert observed.collect() == began.collect()

    def test_a_run_that_brought_no_record_has_its_number(
        self, spark: SparkSession, tmp_path: Path, lakehouse_path: str
    ) -> None:
        """Also where nothing but the ledger knows of it: of a number, Delta takes one write."""
        first, second = parts_of(STORM, tmp_path, 2)
        succeed("ingest", "--records", first, "--lakehouse", lakehouse_path)
        lakehouse = Lakehouse(spark, lakehouse_path, "default")
        lakehouse.append(RECORDS, [], RunId("ingest", 1))
        noted(lakehouse, RunId("ingest", 1))
        shutil.rmtree(Path(lakehouse_path, "bronze", "coverage"))
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        succeed("ingest", "--records", second, "--lakehouse", lakehouse_path)
        assert table(spark, lakehouse_path, RECORDS.name).count() == 1671
        assert accounts_for_every_offset(spark, lakehouse_path)

    def test_decode_between_two_tables(
        self,
        tmp_path: Path,
        lakehouse_path: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        append = Lakehouse.append
        calls = []

        def killed_at_the_third(self: Lakehouse, spec: TableSpec, *arguments: object) -> int | None:
            if spec.name.startswith("silver."):
                calls.append(spec)
                if len(calls) == 3:
                    raise KeyboardInterrupt
            return append(self, spec, *arguments)  # type: ignore[arg-type]

        # Four of its thirteen tables.
        recorded = pq.read_table(MODERN)
        is_of_some = pa.array([key[1] in {0, 1, 2, 3, 5} for key in recorded["key"].to_pylist()])
        records = recorded.filter(is_of_some)
        whole = write(tmp_path / "whole.parquet", records)
        first = write(
            tmp_path / "1.parquet", records.filter(pa.compute.less(records["offset"], 40))
        )
        succeed("ingest", "--records", first, "--lakehouse", lakehouse_path)
        with monkeypatch.context() as patch:
            patch.setattr(Lakehouse, "append", killed_at_the_third)
            assert run("decode", "--lakehouse", lakehouse_path).status == INTERRUPTED
        # Bronze grows before the run is done again.
        succeed("silver", "--records", whole, "--lakehouse", lakehouse_path)
        succeed("decode", "--lakehouse", lakehouse_path)
        assert is_balanced(lakehouse_path)


def _as_if_by(lakehouse: Lakehouse, decoder: str, in_quarantine: int) -> None:
    """Have the ledger say that another decoder did the last decode run."""
    last = lakehouse.runs.last("decode")
    assert last is not None
    details = last.details | {"decoder": decoder, "in_quarantine": in_quarantine}
    rows = {"silver.quarantine": in_quarantine}
    ranged = {"after_run": last.after_run, "to_run": last.to_run}
    noted(lakehouse, RunId("decode", last.run), **ranged, rows=rows, details=details)


@pytest.fixture(scope="module")
def refused(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two records, one of a type that the decoder knows now, both in quarantine."""
    rows = [record(0, b"\0\2\0\1a", None), record(1, b"\0\x63", None)]
    folder = tmp_path_factory.mktemp("refused")
    path = write(folder / "r.parquet", pa.Table.from_pylist(rows, SCHEMA))
    lakehouse = Lakehouse(spark, str(folder / "lakehouse"), "default")
    succeed("silver", "--records", path, "--lakehouse", lakehouse.root)
    bronze = lakehouse.read(RECORDS)
    for name in ("silver.group_metadata", QUARANTINE.name):
        DeltaTable.forPath(spark, lakehouse.path(all_tables()[name])).delete()
    refused = bronze.selectExpr(
        "record_partition", "record_offset", "record_timestamp", "2S AS record_type",
        "null AS value_version", "key", "value", "'unknown record type' AS error",
        "'0-older' AS decoder", "0L AS decode_run",
    )  # fmt: skip
    lakehouse.append(QUARANTINE, refused)
    _as_if_by(lakehouse, "0-older", in_quarantine=2)
    return lakehouse.root


@pytest.fixture
def refused_by_an_older_decoder(refused: str, lakehouse_path: str) -> None:
    shutil.copytree(refused, lakehouse_path)


def test_a_log_of_which_nothing_can_be_decoded_is_no_end(
    tmp_path: Path, lakehouse_path: str
) -> None:
    """Nor is an hour of which all is refused; what comes behind goes on."""
    folder, refused, at = tmp_path / "records", b"\0\x63", ("--lakehouse", lakehouse_path)
    folder.mkdir()
    commit = next(r for r in pq.read_table(STORM).to_pylist() if r["key"][:2] == b"\0\1")
    runs = [record(0, refused, None), commit | {"partition": 0, "offset": 1}]
    runs.append(record(2, refused, None))
    changed = []
    for number, row in enumerate(runs):
        write(folder / f"{number}.parquet", pa.Table.from_pylist([row], SCHEMA))
        if number == 0:
            summary = succeed("pipeline", "--records", folder, *at, "--strict")
            assert (summary["decoded"], summary["quarantined"]) == (0, 1)
            told = run("explain", *at, "--group", "any", "--since", "2026-11-21 02:10")
            assert told.complaint.endswith("cluster default has no group yet; run the pipeline")
        else:
            succeed("silver", "--records", folder, *at)
            summary = succeed("history", *at)
        changed.append(summary["groups_changed"])
    assert changed == [0, 1, 0]
    assert held(lakehouse_path, COMMITTED_OFFSETS)["record_offset"].to_pylist() == [1]


@pytest.mark.usefixtures("refused_by_an_older_decoder")
def test_what_an_older_decoder_refused_is_tried_again(
    spark: SparkSession, lakehouse_path: str
) -> None:
    summary = succeed("decode", "--lakehouse", lakehouse_path)
    assert (summary["decoded"], summary["quarantined"]) == (1, 1)
    assert is_balanced(lakehouse_path)
    (left,) = table(spark, lakehouse_path, QUARANTINE.name).collect()
    assert left.error == "unknown record type 99"
    assert succeed("decode", "--lakehouse", lakehouse_path)["records_read"] == 0


@pytest.mark.usefixtures("refused_by_an_older_decoder")
def test_a_retry_killed_behind_its_last_write_is_ended_by_the_next_run(
    lakehouse_path: str,
) -> None:
    with killed_before_it_is_noted():
        assert run("decode", "--lakehouse", lakehouse_path).status == INTERRUPTED
    summary = succeed("decode", "--lakehouse", lakehouse_path)
    assert (summary["records_read"], summary["decoded"], summary["quarantined"]) == (2, 1, 1)
    assert is_balanced(lakehouse_path)


@pytest.mark.usefixtures("spark")
class TestBadInput:
    """One clear line, status 1, and nothing half-written."""

    def complaint(self, lakehouse_path: str, path: object) -> str:
        outcome = run("silver", "--records", path, "--lakehouse", lakehouse_path)
        assert outcome.status == 1
        return outcome.complaint

    def test_missing_file(self, lakehouse_path: str) -> None:
        assert "no such file or folder" in self.complaint(lakehouse_path, "/nowhere/x.parquet")

    def test_not_parquet(self, lakehouse_path: str) -> None:
        assert "is not a Parquet file" in self.complaint(lakehouse_path, __file__)

    def test_empty_folder(self, tmp_path: Path, lakehouse_path: str) -> None:
        folder = tmp_path / "none"
        folder.mkdir()
        assert "no Parquet file in it" in self.complaint(lakehouse_path, folder)

    def test_missing_columns(self, tmp_path: Path, lakehouse_path: str) -> None:
        path = write(tmp_path / "x.parquet", pq.read_table(STORM).drop_columns(["key", "offset"]))
        line = self.complaint(lakehouse_path, path)
        assert "has no column offset, key" in line
        assert "nobody can know which group or offset a value is of" in line

    def test_no_record_has_a_key(self, tmp_path: Path, lakehouse_path: str) -> None:
        rows = [record(0, None, b"x"), record(1, b"", b"x")]
        path = write(tmp_path / "x.parquet", pa.Table.from_pylist(rows, SCHEMA))
        line = self.complaint(lakehouse_path, path)
        assert "no record has a key; without keys nobody can know which group" in line

    def test_a_later_file_lacks_a_column(self, tmp_path: Path, lakehouse_path: str) -> None:
        """Spark alone would take null for every key of it."""
        folder = tmp_path / "records"
        folder.mkdir()
        records = pq.read_table(STORM)
        half = records.num_rows // 2
        write(folder / "1.parquet", records.slice(0, half))
        second = write(folder / "2.parquet", records.slice(half).drop_columns(["key"]))
        line = self.complaint(lakehouse_path, folder)
        assert f"--records {folder}: {second} has no column key; needed are topic" in line

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ({"topic": None}, "null, 0, 2"),
            ({"partition": None}, "__consumer_offsets, null, 2"),
            ({"partition": -1}, "__consumer_offsets, -1, 2"),
            ({"offset": None}, "__consumer_offsets, 0, null"),
            ({"offset": -1}, "__consumer_offsets, 0, -1"),
        ],
        ids=repr,
    )
    def test_a_record_without_a_place(
        self, tmp_path: Path, lakehouse_path: str, wrong: dict[str, object], words: str
    ) -> None:
        folder = tmp_path / "records of a day"
        folder.mkdir()
        write(folder / "1.parquet", pa.Table.from_pylist([record(1, None, None)], SCHEMA))
        rows = [record(0, None, None), record(2, None, None) | wrong]
        second = write(folder / "2.parquet", pa.Table.from_pylist(rows, SCHEMA))
        line = self.complaint(lakehouse_path, folder)
        message = (
            f"--records {folder}: {second} has a record with topic, partition and offset {words};"
        )
        assert message in line

    def test_column_of_another_type(self, tmp_path: Path, lakehouse_path: str) -> None:
        records = pq.read_table(STORM)
        text = records["value"].cast(pa.large_binary()).combine_chunks()
        bad = records.set_column(6, "value", pa.array([str(v) for v in text.to_pylist()]))
        path = write(tmp_path / "x.parquet", bad)
        assert "column value is string" in self.complaint(lakehouse_path, path)

    def test_lakehouse_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        line = self.complaint(str(tmp_path / "file" / "lakehouse"), STORM)
        assert "--lakehouse" in line

    def test_lakehouse_of_another_format(self, spark: SparkSession, lakehouse_path: str) -> None:
        lakehouse = Lakehouse(spark, lakehouse_path, "default")
        noted(lakehouse, RunId("ingest", 0))
        spark.sql(f"UPDATE delta.`{lakehouse.path(RUNS)}` SET format_version = 999")
        line = self.complaint(lakehouse_path, STORM)
        assert "lakehouse format 999" in line
