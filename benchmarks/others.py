"""Measures what else one could do to get consumer groups' history into Delta, beside the product.

All ways read the same topic of a real broker, in one run: the product's ingest and decode; Kafka's
console consumer with its two formatters, whose JSON Spark reads into Delta; a row-at-a-time Python
UDF behind Spark's Kafka source; and kafka-python, which here does nothing but read.

Run it by ``benchmarks/run.sh others --records 500000``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from benchmarks import generate
from benchmarks.ingest_decode import MAIN_TABLES, machine, row_by_row, spark_session
from decoders.transform import is_of_type
from launch.jars import JarSet, fetch
from schemas.silver import decoded_columns, silver_tables
from storage.tables import spark_schema
from tests.support import clients
from tests.support.broker import Broker
from tests.support.jobs import succeed

TOPIC = "recorded"
_TOOLS = "org.apache.kafka", "kafka-tools", "4.3.1"
_PACKAGE = "org.apache.kafka.tools.consumer"
_FORMATTERS = ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")
_POSITION = ("record_partition", "record_offset", "record_timestamp")
_SOURCE = ("partition", "offset", "timestamp")


@dataclass(frozen=True)
class Way:
    """One way of doing it."""

    name: str
    seconds: float
    rows: int  # rows that it gave, of any table
    lacks: str  # what is not there afterwards


@dataclass(frozen=True)
class World:
    """What every way has: a session, a topic, a folder."""

    spark: SparkSession
    broker: Broker
    records: int
    work: Path

    def product(self) -> int:
        """Ingest and decode, as the pipeline does."""
        source = ("--bootstrap-servers", self.broker.bootstrap, "--topic", TOPIC)
        return int(succeed("silver", *source, "--lakehouse", self.work / "lakehouse")["decoded"])

    def console_consumer(self) -> int:
        """Have Kafka's own tool print JSON, once for each formatter, and Spark read that."""
        tools = JarSet("kafka-tools", ("-dependency", *_TOOLS), "\0".join(_TOOLS).encode())
        jars = ":".join(map(str, fetch(tools)))
        rows = 0
        for formatter in _FORMATTERS:
            printed = self.work / f"{formatter}.json"
            # In a group of its own it would have to commit; so it needs a limit where to stop.
            command = ["java", "-cp", jars, f"{_PACKAGE}.ConsoleConsumer", "--from-beginning"]
            command += ["--bootstrap-server", self.broker.bootstrap, "--topic", TOPIC]
            command += ["--formatter", f"{_PACKAGE}.{formatter}"]
            command += ["--max-messages", str(self.records)]
            with printed.open("wb") as out:
                subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=True)
            # The formatters put all objects on one line, of which Spark reads the first.
            split = ["sed", "-i", r's/}{"key":/}\n{"key":/g', str(printed)]
            subprocess.run(split, check=True)
            table = str(self.work / f"{formatter}.delta")
            self.spark.read.json(str(printed)).write.format("delta").save(table)
            rows += self.spark.read.format("delta").load(table).count()
        return rows

    def row_udf(self) -> int:
        """Decode commits and group metadata by a Python function of one record."""
        options = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        read = self.spark.read.format("kafka").options(**options).load()
        position = [F.col(c).alias(n) for c, n in zip(_SOURCE, _POSITION, strict=True)]
        rows = 0
        for name in MAIN_TABLES:
            columns = [c for c in decoded_columns(name) if c.name not in _POSITION]
            function = F.udf(row_by_row, spark_schema(columns), useArrow=False)
            records = read.where(is_of_type([t.id for t in silver_tables()[name]]))
            decoded = records.select(*position, function("key", "value").alias("row"))
            table = str(self.work / f"udf-{name}.delta")
            decoded.select(*_POSITION, "row.*").write.format("delta").save(table)
            rows += self.spark.read.format("delta").load(table).count()
        return rows

    def kafka_python(self) -> int:
        """Read every record, and forget it."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.broker.bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        partitions = [TopicPartition(TOPIC, p) for p in consumer.partitions_for_topic(TOPIC) or ()]
        consumer.assign(partitions)
        rows = 0
        while rows < self.records:
            rows += sum(map(len, consumer.poll(1000, max_records=10_000).values()))
        consumer.close()
        return rows


_WAYS: dict[str, tuple[Callable[[World], int], str]] = {
    "groupledger: ingest + decode": (World.product, "nothing"),
    "console consumer, JSON, Spark": (
        World.console_consumer,
        (
            "offset and time of each record, assignments and subscriptions (base64), tombstones,"
            " new protocols, what came before if run again"
        ),
    ),
    "row-at-a-time UDF, Spark": (World.row_udf, "new protocols, raw records, accounting"),
    "kafka-python, reading alone": (World.kafka_python, "all: nothing is decoded or kept"),
}


def fill(spark: SparkSession, broker: Broker, shape: generate.Shape, work: Path) -> int:
    """Make the topic; give the number of its records."""
    path = work / f"topic-{shape.records}"
    generate.generate(shape, path)
    clients.create_topic(broker.bootstrap, TOPIC, partitions=shape.partitions)
    records = spark.read.parquet(str(path)).select("partition", "key", "value", "offset")
    in_order = records.repartition("partition").sortWithinPartitions("partition", "offset")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": TOPIC}
    in_order.drop("offset").write.format("kafka").options(**options).save()
    return records.count()


def measure(spark: SparkSession, shape: generate.Shape, work: Path) -> list[Way]:
    """Go every way once."""
    ways = []
    with Broker(work / "broker", properties={"log.retention.ms": "-1"}) as broker:
        world = World(spark, broker, fill(spark, broker, shape, work), work)
        for name, (action, lacks) in _WAYS.items():
            print(f"{name} ...", file=sys.stderr, flush=True)
            started = time.monotonic()
            rows = action(world)
            ways.append(Way(name, time.monotonic() - started, rows, lacks))
    return ways


def main(argv: list[str]) -> None:
    """Measure as the command line says, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    generate.add_options(parser)
    parser.set_defaults(records=500_000)
    parser.add_argument("--work", metavar="PATH", help="folder for what is written (default: tmp)")
    given = parser.parse_args(argv)
    shape = generate.shape_of(given)
    if given.work:
        Path(given.work).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.work) as name, spark_session() as spark:
        for folder, records in (("warm-up", 20_000), ("run", shape.records)):
            work = Path(name) / folder
            work.mkdir()
            ways = measure(spark, replace(shape, records=records), work)
    ours = ways[0]
    table = Table(title=f"{shape.records:,} records of a real broker")
    for column in ("", "seconds", "x ours", "rows", "what is missing"):
        table.add_column(
            column, justify="right" if column in {"seconds", "x ours", "rows"} else "left"
        )
    for way in ways:
        ratio = f"{way.seconds / ours.seconds:.1f}"
        table.add_row(way.name, f"{way.seconds:.1f}", ratio, f"{way.rows:,}", way.lacks)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(", ".join(f"{key} {value}" for key, value in machine().items()))
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
