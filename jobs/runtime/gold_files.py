"""Silver to gold where tables are files on a disk that driver and tasks share.

A task, or this process if there is little, reads what came of some groups, folds them, follows
their offsets, and writes files of the gold tables. It takes groups whose records are in one
partition each, as Kafka writes them; `jobs.runtime.history` lets Spark tell of others.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from history import arrow, groups, offsets
from history.fold import GROUP_METADATA
from history.spark import COMMITS
from jobs.runtime.shares import a_task, shared_out
from schemas import gold
from schemas.columns import arrow_schema
from schemas.tables import COMMITTED_OFFSETS, GROUP_HEADS, all_tables
from storage.conditions import in_range
from storage.files import FileWriter, in_tasks, is_here, read_where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from jobs.runtime.shares import Share
    from schemas.tables import TableSpec
    from storage.conditions import Test
    from storage.files import DataFile

# A record of a group's state takes the fold as long as so many commits.
_WEIGHT = 100
# So much takes this process less than starting Spark's tasks.
_HERE = 500_000
# Arrow reads one by one core, and all of it is held.
_FILES_AT_ONCE = 2


@dataclass(frozen=True)
class Source:
    """What a run reads.

    Attributes:
        silver: by table, the files with what is new.
        after: of their rows, those of the decode runs behind this,
        to: up to and with this.
        heads: files of group_heads.
        committed: files of committed_offsets.
    """

    silver: dict[str, list[str]]
    after: int
    to: int
    heads: list[str]
    committed: list[str]


@dataclass(frozen=True)
class Target:
    """Where rows go, and what they say of the run.

    Attributes:
        root: folder of the lakehouse.
        cluster: whose rows they are.
        history_run: number of the run.
    """

    root: str
    cluster: str
    history_run: int


def places(source: Source) -> Counter[tuple[str, int]]:
    """Tell in which partitions the groups with new records are, and were before.

    Returns:
        By group and partition, about how long their records take, in commits.
    """
    given = [(table, path) for table, paths in source.silver.items() for path in paths]
    found: Counter[tuple[str, int]] = Counter()
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        for part in pool.map(partial(_places, source.after, source.to), given):
            found.update(part)
    told = {group for group, _ in found}
    fields = [pa.field("group_id", pa.string()), pa.field("record_partition", pa.int32())]
    for row in read_where(source.heads, fields).to_pylist():
        if row["group_id"] in told:
            found[row["group_id"], row["record_partition"]] += 0
    return found


def _places(after: int, to: int, given: tuple[str, str]) -> Counter[tuple[str, int]]:
    table, path = given
    fields = [f for f in arrow.fields(table) if f.name in ("group_id", "record_partition")]
    rows = read_where([path], fields, in_range("decode_run", after, to))
    counts = rows.group_by(["group_id", "record_partition"]).aggregate([([], "count_all")])
    weight = 1 if table == COMMITS else _WEIGHT
    return Counter(
        {
            (row["group_id"], row["record_partition"]): weight * row["count_all"]
            for row in counts.to_pylist()
        }
    )


def write(
    spark: SparkSession,
    source: Source,
    target: Target,
    holes: dict[int, groups.Holes],
    weights: Counter[tuple[str, int]],
) -> list[tuple[str, DataFile]]:
    """Tell the history of what is new, and write files of it, to be added to their tables.

    The rows of offset_progress are of the new commits alone.

    Args:
        spark: the session.
        source: what to read.
        target: where to.
        holes: what is missing, by partition.
        weights: what `places` gave.

    Returns:
        Files with the names of their tables.
    """
    weight, cores = weights.total(), spark.sparkContext.defaultParallelism
    here = weight <= _HERE
    least = weight if here and is_here(spark) else a_task(weight, cores)
    shares = [share for share in shared_out(weights, least) if share.weight]
    parts = in_tasks(spark, shares, partial(_write, source, target, holes), here=here)
    return [file for part in parts for file in part]


def _write(
    source: Source, target: Target, holes: dict[int, groups.Holes], share: Share
) -> list[tuple[str, DataFile]]:
    """Tell of the groups of a share."""
    tables = {}
    for table, paths in source.silver.items():
        rows = read_where(
            paths,
            arrow.fields(table),
            [*share.tests(), *in_range("decode_run", source.after, source.to)],
            leaves={"members": arrow.LEAVES} if table == GROUP_METADATA else None,
        )
        if rows.num_rows:
            tables[table] = rows
    names = pc.unique(arrow.joined(rows["group_id"] for rows in tables.values()))
    of_groups: list[Test] = [("group_id", "in", names.to_pylist())]
    heads = read_where(source.heads, arrow_schema(GROUP_HEADS.in_files), of_groups)
    writer = FileWriter(target.root, target.cluster)
    told_since = dict(zip(*(heads[n].to_pylist() for n in ("group_id", "told_since")), strict=True))
    for table, rows in groups.fold([arrow.events(tables, names, heads)], holes):
        spec = all_tables()[f"gold.{table}"]
        if spec is GROUP_HEADS:
            since = [told_since.get(name) for name in rows["group_id"].to_pylist()]
            filled = pa.array(since, pa.int64()).fill_null(target.history_run)
            told = rows.append_column("told_since", filled)
        else:
            told = rows
        writer.add(spec, _of_run(spec, told, target))
    if COMMITS in source.silver:
        fields = arrow_schema(COMMITTED_OFFSETS.in_files)
        former = read_where(source.committed, fields, of_groups)
        commits = tables.get(COMMITS, pa.schema(arrow.fields(COMMITS)).empty_table())
        for table, rows in offsets.follow(commits, former).items():
            spec = all_tables()[f"gold.{table}"]
            parts = _by_last_hour(rows) if table == offsets.HOURS else {"": rows}
            for part, of_part in parts.items():
                for batch in of_part.to_batches():
                    writer.add(spec, _of_run(spec, batch, target), part)
    return writer.close()


def _by_last_hour(hours: pa.Table) -> dict[str, pa.Table]:
    """Take the hours that the next run may go on with apart: it has to write their file anew.

    So a first run's files stay as they are; those of later runs are joined with the run before.
    """
    is_last = pc.fill_null(pc.equal(hours["hour"], pc.max(hours["hour"])), fill_value=True)
    return {"": hours.filter(pc.invert(is_last)), "last": hours.filter(is_last)}


def keep(
    spark: SparkSession,
    former: Mapping[str, list[str]],
    weights: Counter[tuple[str, int]],
    target: Target,
) -> list[tuple[str, DataFile]]:
    """Write the rows of the groups that a run does not tell of once more, of files to be replaced.

    Args:
        spark: the session.
        former: the files, by table.
        weights: what `places` gave of the groups that are left out.
        target: where to.
    """
    given = [(table, paths) for table, paths in former.items() if paths]
    told = pa.array([group for group, _ in weights], pa.string())
    here = weights.total() <= _HERE
    parts = in_tasks(spark, given, partial(_keep, told, target), here=here)
    return [file for part in parts for file in part]


def _keep(
    told: pa.Array, target: Target, given: tuple[str, list[str]]
) -> list[tuple[str, DataFile]]:
    table, paths = given
    spec = all_tables()[table]
    rows = read_where(paths, arrow_schema(spec.in_files))
    rows = rows.filter(pc.invert(pc.is_in(rows["group_id"], told)))
    writer = FileWriter(target.root, target.cluster)
    if "is_settled" in spec.partitions:
        rows = rows.append_column("is_settled", pa.repeat(False, rows.num_rows))  # noqa: FBT003
    for batch in rows.to_batches():
        writer.add(spec, batch)
    return writer.close()


def _of_run(spec: TableSpec, rows: pa.RecordBatch, target: Target) -> pa.RecordBatch:
    """Bring rows into the form of a table's files."""
    number = pa.repeat(pa.scalar(target.history_run, pa.int64()), rows.num_rows)
    schema = arrow_schema(spec.of_cluster)
    columns = [
        (number if f.name == gold.HISTORY_RUN.name else rows[f.name]).cast(f.type) for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
