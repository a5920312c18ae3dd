"""Measures ingest and decode against the least that any pipeline has to do, in one Spark session.

The floor is a copy of the raw records to a Delta table: whoever keeps the bytes pays that. Run it
by ``benchmarks/run.sh``, which takes the options of `benchmarks.generate` too.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from benchmarks import generate, memory
from benchmarks.row_decoder import DecodedRow, decode_record
from decoders.records import decode as decode_batch
from decoders.transform import decoded, is_of_type
from jobs.decode import decode
from jobs.ingest import ingest
from jobs.runtime.runner import run_job
from jobs.runtime.session import session
from launch import jars, submit
from schemas.silver import decoded_columns, silver_tables
from sources import parquet
from storage.tables import spark_schema

_WARM_UP = 50_000
# What a decode run bounds its batches by.
MAX_ROWS, MAX_BYTES = 10_000, 4 * 2**20
MAIN_TABLES = ("offset_commits", "group_metadata")
_POSITION = ("record_partition", "record_offset", "record_timestamp")
_ROUNDS = 9  # of half a second each, in which the machine may have done something else too


@dataclass
class Figure:
    """What one way of doing it took."""

    name: str
    records: int
    seconds: float
    peak_gib: float
    note: str = ""

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds


@dataclass
class Bench:
    """One session, one input, and what was measured so far."""

    spark: SparkSession
    memory: memory.Peak
    work: Path
    figures: list[Figure] = field(default_factory=list)

    def measure(self, name: str, records: int, action: Callable[[], None], note: str = "") -> None:
        """Run something once, with its time and the most memory at a time."""
        print(f"{name} ...", file=sys.stderr, flush=True)
        self.memory.bytes = 0
        started = time.monotonic()
        action()
        seconds = time.monotonic() - started
        self.figures.append(Figure(name, records, seconds, self.memory.gib, note))

    def folder(self, name: str) -> str:
        """Return a folder that is not there yet."""
        path = self.work / name
        shutil.rmtree(path, ignore_errors=True)
        return str(path)


# -- ways to do it --------------------------------------------------------------------------------


def read_only(spark: SparkSession, path: str) -> None:
    """Read every column, and forget it."""
    _forget(spark.read.parquet(path))


def copy_raw(spark: SparkSession, path: str, out: str) -> None:
    """Copy the recording to a Delta table as it is: the floor."""
    spark.read.parquet(path).write.format("delta").save(out)


def run_product(lakehouse: str, path: str | None) -> dict[str, object]:
    """Run the product's own job on a lakehouse: ingest with a path, else decode."""
    job, name = (decode, "decode") if path is None else (ingest, "ingest")
    argv = [name, "--lakehouse", lakehouse, "--json"]
    if path is not None:
        argv += ["--records", path]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run_job(job, argv)
    if status:
        raise RuntimeError(err.getvalue())
    summary: dict[str, object] = json.loads(out.getvalue().splitlines()[-1])
    return summary


def decode_vectorised(spark: SparkSession, path: str) -> None:
    """Decode commits and group metadata by the product's decoder, and forget the rows."""
    for table in MAIN_TABLES:
        schema = spark_schema(decoded_columns(table))
        _forget(decoded(_records_of(spark, path, table), table, schema))


def decode_row_by_row(spark: SparkSession, path: str) -> None:
    """Decode the same by a Python function of one record, as most would write it first."""
    for table in MAIN_TABLES:
        columns = [c for c in decoded_columns(table) if c.name not in _POSITION]
        function = F.udf(row_by_row, spark_schema(columns), useArrow=False)
        rows = _records_of(spark, path, table)
        _forget(rows.select(*_POSITION, function("key", "value").alias("row")))


def row_by_row(key: bytearray | None, value: bytearray | None) -> dict[str, object] | None:
    """Decode one record; None if it cannot be decoded."""
    row = decode_record(key and bytes(key), value if value is None else bytes(value))
    return row.columns if isinstance(row, DecodedRow) else None


def _records_of(spark: SparkSession, path: str, table: str) -> DataFrame:
    types = [t.id for t in silver_tables()[table]]
    return parquet.read(spark, path).where(is_of_type(types))


def _forget(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def decoder_alone(figures: list[Figure], shape: generate.Shape) -> None:
    """Decode batches on one core, without Spark."""
    ten = replace(shape, members=(10, 10), skew=0.9)
    no_rest = {"commits": 1.0, "group_metadata": 0.0}
    metadata_only = {"commits": 0.0, "group_metadata": 1.0}
    for name, chosen, count in (
        ("offset commits", replace(ten, **no_rest), 500_000),
        ("all records as they come", shape, 300_000),
        ("group metadata, 10 members", replace(ten, **metadata_only), 40_000),
    ):
        batches = batches_of(generate.records(chosen, count))
        decode_batch(batches[0])
        rounds = []
        for _ in range(_ROUNDS):
            started = time.monotonic()
            for batch in batches:
                decode_batch(batch)
            rounds.append(time.monotonic() - started)
        note = (
            f"median of {_ROUNDS} rounds; {count / max(rounds):,.0f} to {count / min(rounds):,.0f}"
        )
        median = statistics.median(rounds)
        figures.append(Figure(f"decoder alone, 1 core: {name}", count, median, 0.0, note))


def batches_of(made: pa.Table) -> list[pa.RecordBatch]:
    """Return generated records as they come, so many together as the decoder is fast with."""
    times = pc.multiply(made["timestamp"], 1000).cast(pa.timestamp("us", "UTC"))
    columns = [made["partition"], made["offset"], times, made["key"], made["value"]]
    table = pa.table(columns, names=[*_POSITION, "key", "value"])
    rows = min(MAX_ROWS, max(1, table.num_rows * MAX_BYTES // table.nbytes))
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(rows)
    return batches


# -- the run --------------------------------------------------------------------------------------


def run(bench: Bench, path: str, records: int, sample: int) -> dict[str, object]:
    """Measure every way on one recording.

    Returns:
        What the product's jobs say they did.
    """
    spark = bench.spark
    bench.measure("read only", records, lambda: read_only(spark, path))
    floor = bench.folder("floor")
    bench.measure("floor: raw copy to Delta", records, lambda: copy_raw(spark, path, floor))
    shutil.rmtree(floor)
    lakehouse = bench.folder("lakehouse")
    summaries: dict[str, object] = {}
    for name, source in (("ingest", path), ("decode", None)):
        bench.measure(
            name,
            records,
            lambda n=name, s=source: summaries.update({n: run_product(lakehouse, s)}),
        )
    bench.figures.append(_sum("ingest + decode", bench.figures[-2:]))
    bench.measure(
        "decode only, vectorised", records, lambda: decode_vectorised(spark, path), "no write"
    )
    some = bench.folder("sample")
    fraction = min(sample / records, 1.0)
    spark.read.parquet(path).sample(fraction, seed=1).repartition(4).write.parquet(some)
    count = spark.read.parquet(some).count()
    bench.measure(
        "decode only, row-at-a-time UDF",
        count,
        lambda: decode_row_by_row(spark, some),
        f"no write, on a sample of {count:,}",
    )
    return summaries


def _sum(name: str, parts: list[Figure]) -> Figure:
    seconds = sum(f.seconds for f in parts)
    return Figure(name, parts[0].records, seconds, max(f.peak_gib for f in parts))


def warm_up(bench: Bench, shape: generate.Shape) -> None:
    """Go every way once, so that no way pays for loading classes or starting workers."""
    path = bench.folder("warm-up-topic")
    generate.generate(replace(shape, records=_WARM_UP), Path(path))
    run(bench, path, _WARM_UP, _WARM_UP // 10)
    bench.figures.clear()


@contextmanager
def spark_session(master: str | None = None) -> Iterator[SparkSession]:
    """Make the session that ./spark-submit.sh would make: without a master, on all cores here."""
    target = submit.choose_target(master, {})
    arguments = submit.spark_arguments(target, {}, jars.fetch(jars.spark_jars()), None)
    os.environ.update(submit.environment(target, os.environ))
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
    time.tzset()
    with session(submit.options.Options(job="benchmark")) as spark:
        yield spark


def machine() -> dict[str, object]:
    """Say what this was measured on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / memory.GIB, 1),
        "driver_memory": submit.LOCAL_DRIVER_MEMORY,
        "python": platform.python_version(),
        **{name: version(name) for name in ("pyspark", "delta-spark", "pyarrow", "numpy")},
    }


def table_of(figures: list[Figure]) -> Table:
    """Lay the figures out."""
    floor = next(f for f in figures if f.name.startswith("floor"))
    table = Table()
    for name in ("", "seconds", "records/s", "x floor", "peak GiB"):
        table.add_column(name, justify="right" if name else "left")
    table.add_column("")
    for f in figures:
        ratio = floor.rate / f.rate
        table.add_row(
            f.name,
            f"{f.seconds:.1f}",
            f"{f.rate:,.0f}",
            f"{ratio:.2f}",
            f"{f.peak_gib:.1f}" if f.peak_gib else "",
            f.note,
        )
    return table


def main() -> None:
    """Measure as the command line says, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    generate.add_options(parser)
    parser.add_argument("--input", metavar="PATH", help="a recording, instead of a generated one")
    parser.add_argument("--sample", type=int, default=200_000, help="records for the UDF")
    parser.add_argument("--work", metavar="PATH", help="folder for what is written (default: tmp)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    shape = generate.shape_of(given)
    if given.work:
        Path(given.work).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.work) as name, spark_session() as spark:
        topic = given.input or str(Path(name) / "topic")
        if not given.input:
            generate.generate(shape, Path(topic))
        records = spark.read.parquet(topic).count()
        with memory.measured(with_own=True) as peak:
            bench = Bench(spark, peak, Path(name))
            warm_up(bench, shape)
            summaries = run(bench, topic, records, given.sample)
        decoder_alone(bench.figures, shape)
    figures = [asdict(f) | {"records_per_second": round(f.rate)} for f in bench.figures]
    if given.json:
        print(json.dumps({"machine": machine(), "figures": figures, "jobs": summaries}))
        return
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(", ".join(f"{key} {value}" for key, value in machine().items()))
    console.print(table_of(bench.figures))
    for job, summary in summaries.items():
        console.print(f"{job}: {summary}", highlight=False)


if __name__ == "__main__":
    main()
