"""Runs the pipeline again and again, each time with new records, and measures time and memory.

All runs share one driver process, with its JVM and its Python workers: what leaks, leaks there. A
scheduler starts a process for each run, which hides leaks and adds the start of Spark; so does
``--processes``. What the growth of the tables costs shows in both.

Each run brings what an hour may bring, and `maintain` comes once a day, as docs/operations.md says;
``--maintain-every 0`` leaves it out. At the end it is run once more, and the number of files and
the time of three queries are taken before and after it. A year has 8,760 hours, which take a day
here: ``--runs 500`` is the simulation of one, and its figures are those of 500 runs, no more.

Run it by ``benchmarks/run.sh soak --runs 200 --work /data/soak``; with ``--broker`` a broker is
started, and each hour's records are produced to its topic ``soak`` and read from there.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from benchmarks import generate
from benchmarks.ingest_decode import spark_session
from storage.catalog import register
from storage.lakehouse import Lakehouse
from tests.support import clients
from tests.support.broker import Broker
from tests.support.jobs import run

ROOT = Path(__file__).parents[1]
_MIB = 2**20
_TENTHS = 10
_TRIES = 3
QUERIES = {
    "timeline of a group": "SELECT * FROM gold.timeline WHERE group_id = '{group}'",
    "commits of a group by hour": "SELECT date_trunc('hour', record_timestamp) AS hour, count(*)"
    " FROM silver.offset_commits WHERE group_id = '{group}' GROUP BY 1",
    "rebalances per hour": "SELECT * FROM gold.rebalances_per_hour",
}


class Memory(NamedTuple):
    """Resident memory in MiB: the driver's Python, its JVM, Spark's Python workers."""

    driver: int
    jvm: int
    workers: int


def main(argv: list[str]) -> None:
    """Run, and print a line for each run and a summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200, help="runs of the pipeline")
    parser.add_argument("--records", type=int, default=2_000, help="new records of each run")
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--maintain-every", type=int, default=24, metavar="RUNS", help="0: never")
    parser.add_argument("--processes", action="store_true", help="a process for each run")
    parser.add_argument("--broker", action="store_true", help="bring the records by a real broker")
    parser.add_argument("--work", type=Path, required=True, help="folder for data and lakehouse")
    options = parser.parse_args(argv)
    work: Path = options.work
    if work.exists() and any(work.iterdir()):
        parser.error(f"{work} is not empty: name a new folder")
    shape = generate.Shape(records=options.runs * options.records, groups=options.groups)
    hours = list(_hours(shape, work, options.runs))
    with ExitStack() as stack:
        _run(options, stack, shape, hours)


def _run(
    options: argparse.Namespace, stack: ExitStack, shape: generate.Shape, hours: list[Path]
) -> None:
    lakehouse = options.work / "lakehouse"
    spark = None if options.processes else stack.enter_context(spark_session())
    job = _as_process if options.processes else _in_session
    broker = Broker(options.work / "broker", offsets_partitions=1) if options.broker else None
    if broker is not None:
        stack.enter_context(broker)
    way = "a process for each run" if options.processes else "one driver process"
    print(f"{options.runs} runs of {options.records:,} records each, {way}", flush=True)
    print(f"{'run':>5}{'seconds':>9}{'driver':>9}{'JVM':>9}{'workers':>9}  MiB resident")
    seconds, memory = [], []
    for number, hour in enumerate(hours):
        if broker is not None:
            _produce(broker.bootstrap, hour, shape.partitions, is_first=number == 0)
            source = ["--bootstrap-servers", broker.bootstrap, "--topic", "soak"]
        else:
            source = ["--records", str(hour)]
        started = time.monotonic()
        job("pipeline", [*source, "--lakehouse", str(lakehouse)])
        seconds.append(time.monotonic() - started)
        memory.append(_memory(broker))
        figures = "".join(f"{mib:>9,}" for mib in memory[-1])
        print(f"{number:>5}{seconds[-1]:>9.1f}{figures}", flush=True)
        if options.maintain_every and (number + 1) % options.maintain_every == 0:
            job("maintain", ["--lakehouse", str(lakehouse)])
    _print_growth(seconds, memory)
    spark = spark or stack.enter_context(spark_session())
    group = generate.groups(shape)[0].name
    before = _look(spark, lakehouse, group)
    started = time.monotonic()
    _in_session("maintain", ["--lakehouse", str(lakehouse)])
    print(f"\nmaintain: {time.monotonic() - started:.1f} s; after {options.runs} runs")
    print(f"{'':34}{'before':>10}{'after':>10}")
    after = _look(spark, lakehouse, group)
    for name, was in before.items():
        digits = 0 if isinstance(was, int) else 2
        print(f"{name:34}{was:>10,.{digits}f}{after[name]:>10,.{digits}f}")


def _hours(shape: generate.Shape, work: Path, count: int) -> Iterable[Path]:
    """Cut a generated topic: each part has the next records of every partition."""
    generate.generate(shape, work / "topic")
    topic = pq.read_table(work / "topic").sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    ends = topic.group_by("partition").aggregate([("offset", "max")])
    last = dict(zip(ends["partition"].to_pylist(), ends["offset_max"].to_pylist(), strict=True))
    total = pa.array([last[p] + 1 for p in topic["partition"].to_pylist()], pa.int64())
    number = pc.divide(pc.multiply(topic["offset"].combine_chunks(), count), total)
    (work / "hours").mkdir()
    for hour in range(count):
        path = work / "hours" / f"{hour:05}.parquet"
        pq.write_table(topic.filter(pc.equal(number, hour)), path)
        yield path
    shutil.rmtree(work / "topic")


def _produce(bootstrap: str, hour: Path, partitions: int, *, is_first: bool) -> None:
    """Bring an hour's records into the topic, which is none that the broker writes to itself."""
    if is_first:
        # The records are older than a broker keeps others.
        configs = {"retention.ms": "-1"}
        clients.create_topic(bootstrap, "soak", partitions=partitions, configs=configs)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for row in pq.read_table(hour).to_pylist():
        producer.send(
            "soak",
            key=row["key"],
            value=row["value"],
            partition=row["partition"],
            timestamp_ms=row["timestamp"],
        )
    producer.flush()
    producer.close()


def _in_session(job: str, argv: list[str]) -> None:
    outcome = run(job, *argv)
    if outcome.status:
        sys.exit(f"{job} failed: {outcome.err}")


def _as_process(job: str, argv: list[str]) -> None:
    command = [str(ROOT / "spark-submit.sh"), job, *argv]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{job} failed: {done.stderr[-2000:]}")


def _memory(broker: Broker | None) -> Memory:
    """Add up the resident memory of this process and of all that it started, but for the broker."""
    me = psutil.Process()
    java, python = 0, 0
    for child in me.children(recursive=True):
        try:
            name, resident = child.name(), child.memory_info().rss // _MIB
        except psutil.NoSuchProcess:  # a worker that has ended in between
            continue
        if broker is not None and child.pid == broker.pid:
            continue
        if name == "java":
            java += resident
        else:
            python += resident
    return Memory(me.memory_info().rss // _MIB, java, python)


def _print_growth(seconds: list[float], memory: list[Memory]) -> None:
    tenth = max(1, len(seconds) // _TENTHS)
    first, last = (statistics.median(part) for part in (seconds[:tenth], seconds[-tenth:]))
    print(f"\nmedian of the first {tenth} runs {first:.1f} s, of the last {tenth} {last:.1f} s")
    print(f"ratio of time, last tenth to first: {last / first:.2f}")
    sums = [sum(m) for m in memory]
    was, now = (statistics.median(part) for part in (sums[:tenth], sums[-tenth:]))
    print(f"ratio of memory, last tenth to first: {now / was:.2f} ({was:,.0f} to {now:,.0f} MiB)")


def _look(spark: SparkSession, root: Path, group: str) -> dict[str, float]:
    """Count the tables' files, and take the time of queries."""
    lakehouse = Lakehouse(spark, str(root), "default")
    found: dict[str, float] = {"files stored": sum(path.is_file() for path in root.rglob("*"))}
    for name, query in QUERIES.items():
        text = query.format(group=group)
        register(lakehouse, text)
        spark.catalog.setCurrentDatabase("gold")
        taken = []
        for _ in range(_TRIES):
            started = time.monotonic()
            spark.sql(text).collect()
            taken.append(time.monotonic() - started)
        found[f"{name}, s"] = statistics.median(taken)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
