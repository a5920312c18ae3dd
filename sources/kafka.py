"""Records from a live cluster, read without leaving a trace in it.

Offsets and partitions come from Kafka's own admin client in the driver's JVM, so that every client
property (SASL, TLS, OAuth, Kerberos) means here what it means to the source that reads the rows.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.columns import LAST_MS
from schemas.environment import with_environment
from schemas.errors import SourceError
from schemas.tables import TRUNCATED
from sources.coverage import Position, Range, leading
from sources.listeners import refuse_closed_ports
from sources.parquet import kind_of

_TIMEOUTS = {"request.timeout.ms": "10000", "default.api.timeout.ms": "20000"}
_FETCH_TIMEOUT_S = 20.0
_PLANNING_TIMEOUT_S = 60.0
# How long a task waits for the broker of its partition.
_POLL_TIMEOUT_MS = 30_000
_OFFSETS_A_TASK = 100_000
# Spark's source asks for a log's ends behind each fetch, and a broker answers the requests of a
# connection one by one: behind a fetch at the end of a log, which it holds back by 500 ms for
# records to come. None that come are wanted, so half a second of each partition is saved.
_NO_LONG_POLL = {"fetch.max.wait.ms": "10"}
_NOT_AUTHORIZED = (
    "not authorized: the user needs the ACL READ on the topic, and DESCRIBE on groups whose names"
    " start with spark-kafka-relation"
)
# What a user can do about an error, by the simple name of its class in Kafka.
ADVICE = {
    "TimeoutException": "no broker answered within 20 s: check the addresses, that the brokers"
    " run, and that the listener's security protocol is the one in --kafka-config",
    "SaslAuthenticationException": "the brokers refused the credentials: check user, password and"
    " sasl.mechanism in --kafka-config",
    "SslAuthenticationException": "the TLS handshake failed: check the truststore and, if the"
    " brokers ask for one, the client's certificate in --kafka-config",
    "UnknownTopicOrPartitionException": "there is no such topic. Brokers make __consumer_offsets"
    " when the first group uses them: check --topic and --bootstrap-servers",
    "TopicAuthorizationException": _NOT_AUTHORIZED,
    "ClusterAuthorizationException": _NOT_AUTHORIZED,
    "UnsupportedVersionException": "the brokers are too old for this client of Kafka: read their"
    " topic by another one, and give its records as files (--records)",
    "UnsupportedSaslMechanismException": "the brokers do not take the sasl.mechanism in"
    " --kafka-config: it has to be one that is enabled on this listener",
    "ConfigException": "a property in --kafka-config is wrong",
}
UNRESOLVED = "none of the hosts in --bootstrap-servers has an address: check their names"
# By Kafka's messages, which are not shown, since they may quote a property's value.
_NO_ADDRESS = "No resolvable bootstrap urls"
_WRONG_PROPERTY = re.compile(r"for configuration ([\w.]+)")
_PROPERTY_NAME = re.compile(r"[a-z]\w*(?:\.\w+)+")


Record: TypeAlias = "tuple[bytes | None, bytes | None]"
"""Key and value of a record."""


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster to read from.

    `properties` are Kafka client properties; they may hold secrets and are never shown.
    """

    bootstrap_servers: str
    properties: Mapping[str, str] = field(repr=False)
    isolation_level: str

    @classmethod
    def of(cls, servers: str, config: str | None, isolation_level: str) -> Cluster:
        """Return the cluster with the properties of a file, if any, see `read_properties`."""
        return cls(servers, read_properties(config) if config else {}, isolation_level)


@dataclass(frozen=True)
class Log:
    """The offsets that one partition has: `first` up to `end` - 1."""

    first: int
    end: int
    # The end for all readers; of those that read committed, an open transaction hides what follows
    # `end`.
    high: int


@dataclass(frozen=True)
class Topic:
    """A topic as its cluster describes it."""

    name: str
    topic_id: str | None
    logs: dict[int, Log]
    kafka_cluster_id: str | None = None


def read_properties(path: str) -> dict[str, str]:
    """Read Kafka client properties from a file: key=value lines, as Java's but without escapes.

    ``${env:NAME}`` in a value stands for the environment variable NAME.

    Raises:
        SourceError: the file cannot be read, a line is no property, or a variable is not set.
            The message holds no value.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise SourceError(f"--kafka-config {path}: cannot be read: {reason}") from error
    properties = {}
    for number, line in _logical_lines(text):
        match = re.match(r"([^\s=:]+)\s*[=:\s]\s*(.*)", line)
        if match is None:
            raise SourceError(f"--kafka-config {path}: line {number} is no property (key=value)")
        key, value = match.groups()
        try:
            properties[key] = with_environment(value.strip())
        except KeyError as error:
            raise SourceError(
                f"--kafka-config {path}: line {number} names the environment variable "
                f"{error.args[0]}, which is not set"
            ) from None
    return properties


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Join lines that end in a backslash, and leave out comments and empty lines."""
    pending = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not pending and (not line or line.startswith(("#", "!"))):
            continue
        if line.endswith("\\"):
            pending += line[:-1]
            continue
        yield number, pending + line
        pending = ""
    if pending:
        yield number, pending


def describe(spark: SparkSession, cluster: Cluster, topic: str) -> Topic:
    """Ask the cluster for the partitions of a topic and their offsets.

    With read committed, a log ends where its oldest open transaction starts.
    """
    refuse_closed_ports(cluster.bootstrap_servers)
    jvm: Any = spark._jvm  # noqa: SLF001 - Kafka's client is a Java library
    admin = None
    try:
        properties = _client_properties(jvm, cluster, {})
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        return _describe(jvm, admin, cluster, topic)
    except Py4JJavaError as error:
        reason = _reason(error, cluster) + _unknown_properties(jvm, cluster)
        raise SourceError(f"{cluster.bootstrap_servers}, topic {topic}: {reason}") from None
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ZERO)


def _client_properties(jvm: Any, cluster: Cluster, settings: Mapping[str, str]) -> Any:  # noqa: ANN401 - Java
    properties = jvm.java.util.Properties()
    for key, value in {**_TIMEOUTS, **cluster.properties, **settings}.items():
        properties.setProperty(key, value)
    properties.setProperty("bootstrap.servers", cluster.bootstrap_servers)
    return properties


def _describe(jvm: Any, admin: Any, cluster: Cluster, topic: str) -> Topic:  # noqa: ANN401 - Java
    names = jvm.java.util.ArrayList()
    names.add(topic)
    description = admin.describeTopics(names).allTopicNames().get().get(topic)
    clients = jvm.org.apache.kafka.clients.admin
    isolation = getattr(jvm.org.apache.kafka.common.IsolationLevel, cluster.isolation_level.upper())
    uncommitted = jvm.org.apache.kafka.common.IsolationLevel.READ_UNCOMMITTED

    def offsets(spec: Any, level: Any) -> dict[int, int]:  # noqa: ANN401 - Java
        wanted = jvm.java.util.HashMap()
        for info in description.partitions():
            wanted.put(jvm.org.apache.kafka.common.TopicPartition(topic, info.partition()), spec)
        found = admin.listOffsets(wanted, clients.ListOffsetsOptions(level)).all().get()
        return {entry.getKey().partition(): entry.getValue().offset() for entry in found.entrySet()}

    first = offsets(clients.OffsetSpec.earliest(), isolation)
    end = offsets(clients.OffsetSpec.latest(), isolation)
    high = end
    if not isolation.equals(uncommitted):
        high = offsets(clients.OffsetSpec.latest(), uncommitted)
    topic_id = description.topicId().toString()
    return Topic(
        name=topic,
        # A broker without topic ids gives one of zeros.
        topic_id=None if set(topic_id) == {"A"} else topic_id,
        logs={p: Log(first[p], end[p], max(end[p], high[p])) for p in sorted(first)},
        kafka_cluster_id=admin.describeCluster().clusterId().get(),
    )


def _reason(error: Py4JJavaError, cluster: Cluster) -> str:
    cause = error.java_exception
    while cause.getCause() is not None and cause.getClass().getSimpleName() not in ADVICE:
        cause = cause.getCause()
    name = cause.getClass().getSimpleName()
    message = cause.getMessage() or ""
    if _NO_ADDRESS in message:
        return UNRESOLVED
    wrong = _WRONG_PROPERTY.search(message)
    if wrong is not None and wrong[1] in cluster.properties:
        return f"the value of {wrong[1]} in --kafka-config is wrong"
    return ADVICE.get(name, f"Kafka's client failed with {name}")


def _unknown_properties(jvm: Any, cluster: Cluster) -> str:  # noqa: ANN401 - Java
    """Name the properties that Kafka's clients pass over, which may be why they failed."""
    clients = jvm.org.apache.kafka.clients
    known = {
        *clients.admin.AdminClientConfig.configNames(),
        *clients.consumer.ConsumerConfig.configNames(),
    }
    # A line of a text that was broken wrongly may look like a property, and be a secret.
    names = [n for n in cluster.properties if n not in known and _PROPERTY_NAME.fullmatch(n)]
    listed = ", ".join(sorted(names))
    return f". Kafka's clients know no property {listed} of --kafka-config" if listed else ""


def fetch(
    spark: SparkSession, cluster: Cluster, topic: str, offsets: Mapping[int, int]
) -> dict[int, Record]:
    """Read one record of each partition, at an offset that the log goes on behind.

    A record that is gone is left out.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - Kafka's client is a Java library
    settings = {"enable.auto.commit": "false", "auto.offset.reset": "earliest"}
    settings["isolation.level"] = cluster.isolation_level
    consumer = None
    try:
        kind = jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
        properties = _client_properties(jvm, cluster, settings)
        consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties, kind(), kind())
        return _fetch(jvm, consumer, topic, offsets)
    except Py4JJavaError as error:
        reason = _reason(error, cluster)
        raise SourceError(f"{cluster.bootstrap_servers}, topic {topic}: {reason}") from None
    finally:
        if consumer is not None:
            consumer.close(jvm.java.time.Duration.ZERO)


def _fetch(
    jvm: Any,  # noqa: ANN401 - Java
    consumer: Any,  # noqa: ANN401 - Java
    topic: str,
    offsets: Mapping[int, int],
) -> dict[int, Record]:
    left = {p: jvm.org.apache.kafka.common.TopicPartition(topic, p) for p in offsets}
    partitions = jvm.java.util.ArrayList()
    for tp in left.values():
        partitions.add(tp)
    consumer.assign(partitions)
    for p, tp in left.items():
        consumer.seek(tp, offsets[p])
    found = {}
    deadline = time.monotonic() + _FETCH_TIMEOUT_S
    while left and time.monotonic() < deadline:
        records = consumer.poll(jvm.java.time.Duration.ofMillis(200))
        for p, tp in list(left.items()):
            of_partition = records.records(tp)
            if not of_partition.isEmpty():
                first = of_partition.get(0)
                if first.offset() == offsets[p]:
                    found[p] = (first.key(), first.value())
            if consumer.position(tp) > offsets[p]:
                del left[p]
    return found


def shorter(topic: Topic, positions: Mapping[Position, int]) -> list[int]:
    """Name the partitions that end before the lakehouse's position."""
    return [p for p, log in topic.logs.items() if log.end < positions.get((topic.name, p), 0)]


def another_log(topic: Topic, positions: Mapping[Position, int], topic_id: str | None) -> str:
    """Say what shows that a topic is another log than the one that was read; "" if nothing does.

    One with shorter partitions is to be seen with read uncommitted: an open transaction takes
    nothing from a log. The positions are behind the last offsets accounted for.
    """
    found = shorter(topic, positions)
    is_known = topic_id is not None and topic.topic_id is not None
    if is_known and topic.topic_id != topic_id:
        return f"topic {topic.name} was recreated since the last run"
    if not found:
        return ""
    p = found[0]
    ends = (
        f"{topic.name}-{p} ends at offset {topic.logs[p].end}, before {positions[topic.name, p]}, "
        "up to which it was read: "
    )
    if is_known:
        return f"{ends}the log lost its end (unclean leader election?)"
    return f"{ends}the topic was recreated, or the log lost its end"


def other_bytes(
    topic: str, theirs: Mapping[tuple[int, int], Record], ours: Mapping[tuple[int, int], Record]
) -> str:
    """Say of which record, by partition and offset, log and lakehouse differ; "" if of none."""
    for (p, offset), record in theirs.items():
        if ours.get((p, offset), record) != record:
            return (
                f"{topic}-{p} at offset {offset} has other bytes than when it was read: the topic "
                "was recreated, or the log lost its end and grew again"
            )
    return ""


def new_ranges(topic: Topic, cluster: Cluster, positions: Mapping[Position, int]) -> list[Range]:
    """Return what to read: of each partition what lies behind the lakehouse's position.

    If there is anything, it includes partitions of which an open transaction hides the rest. What
    retention or an operator deleted from the start of a log before it was read is part of its
    range, as a hole. At the first read that may be what compaction had taken long before.
    """
    ranges = []
    for partition, log in topic.logs.items():
        start = positions.get((topic.name, partition), 0)
        if log.end > start or log.high > log.end >= start:
            ranges.append(
                Range(
                    topic=topic.name,
                    record_partition=partition,
                    from_offset=start,
                    next_offset=log.end,
                    first_offset_available=log.first,
                    last_offset_available=log.high - 1,
                    partitions=len(topic.logs),
                    source="kafka",
                    isolation_level=cluster.isolation_level,
                    topic_id=topic.topic_id,
                    kafka_cluster_id=topic.kafka_cluster_id,
                    leading=leading((topic.name, partition), positions, TRUNCATED),
                )
            )
    return ranges if any(r.next_offset > r.from_offset for r in ranges) else []


def read(spark: SparkSession, cluster: Cluster, ranges: list[Range]) -> DataFrame:
    """Read the records of `ranges`, all of one topic, in the shape of bronze.

    Partitions are assigned, never subscribed to: subscribing would join a group, and so write to
    the very topic that is read.
    """
    topic, new = ranges[0].topic, [r for r in ranges if r.next_offset > r.from_offset]
    starts = {r.record_partition: max(r.from_offset, r.first_offset_available or 0) for r in new}
    ends = {r.record_partition: r.next_offset for r in new}
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.isolation.level": cluster.isolation_level,
        "assign": json.dumps({topic: list(starts)}),
        "startingOffsets": json.dumps({topic: starts}),
        "endingOffsets": json.dumps({topic: ends}),
        # False would silently pass over offsets that are cut off while they are read.
        "failOnDataLoss": "true",
        "kafkaConsumer.pollTimeoutMs": str(_POLL_TIMEOUT_MS),
    }
    client = {**_TIMEOUTS, **_NO_LONG_POLL, **cluster.properties}
    properties = {f"kafka.{key}": value for key, value in client.items()}
    planned = spark.read.format("kafka").options(**{**properties, **options}).load()
    # Spark's source has a task for each partition, and each would write a file, however small.
    offsets = sum(ends.values()) - sum(starts.values())
    tasks = max(spark.sparkContext.defaultParallelism, offsets // _OFFSETS_A_TASK)
    return _in_shape(_planned_once(planned, cluster).coalesce(tasks))


def _in_shape(rows: DataFrame) -> DataFrame:
    """Return the rows of Spark's source in the shape of bronze."""
    # The time is whatever a producer or a broker's clock said; one that few tools know is null.
    is_time = (F.col("timestampType") >= 0) & F.unix_millis("timestamp").between(0, LAST_MS)
    return rows.select(
        "topic",
        F.col("partition").alias("record_partition"),
        F.col("offset").alias("record_offset"),
        F.when(is_time, F.col("timestamp")).alias("record_timestamp"),
        kind_of(F.col("timestampType")).alias("timestamp_type"),
        "key",
        "value",
    )


def _planned_once(rows: DataFrame, cluster: Cluster) -> DataFrame:
    """Have Spark ask the brokers what it needs for a query's tasks, now and within bounded time."""
    # Spark's driver waits for a broker without end, whatever Kafka's time-outs are, and cannot be
    # interrupted. It asks again whenever a query is planned, so what is given back holds the plan.
    # No task belongs to what is left waiting: it cannot write anything later.
    spark = rows.sparkSession
    planned: list[Any] = []
    failed: list[Exception] = []

    def plan() -> None:
        try:
            planned.append(rows._jdf.queryExecution().toRdd())  # noqa: SLF001 - the plan's own rows
        except Exception as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    # A thread that the end of the process does not wait for.
    thread = threading.Thread(target=plan, daemon=True)
    thread.start()
    thread.join(_PLANNING_TIMEOUT_S)
    if failed:
        raise failed[0]
    if not planned:
        raise SourceError(
            f"{cluster.bootstrap_servers}: the brokers stopped answering; nothing was written, run "
            "again when they are back"
        )
    jsession: Any = spark._jsparkSession  # noqa: SLF001 - as Spark makes frames of its own rows
    schema = rows._jdf.schema()  # noqa: SLF001
    return DataFrame(jsession.internalCreateDataFrame(planned[0], schema, False), spark)  # noqa: FBT003
