"""What a pipeline would lack of a cluster: brokers, a login, rights; and how often to run it."""

from __future__ import annotations

import datetime as dt
import math
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from pyspark.sql import SparkSession

from schemas.errors import SourceError
from schemas.messages import OFFSETS_TOPIC
from schemas.words import count, duration, size, some
from sources import kafka
from sources.compaction import LAG, RETENTION, SEGMENT, how_often
from sources.inspection import (
    READER_GROUPS,
    Inspector,
    LogOfTopic,
    Partitions,
    has_address,
    measured,
    vendor_of,
)
from sources.log_offsets import (
    RefusedError,
    UnsupportedError,
    admin_client,
    client_options,
    principal,
    speaking_of,
)

OK, WARN, FAIL = "ok", "warn", "fail"
# What a record takes in the log of a quiet group, if none can be looked at: key, value, batch.
_RECORD_BYTES = 150.0
_SETTINGS = ("cleanup.policy", "segment.bytes", "min.compaction.lag.ms", "delete.retention.ms")
# The example of docs/operations.md: four hours.
_LAG_MS = 14_400_000
# A pipeline does without the answers to these.
_OPTIONAL = {"lag", "settings"}


@dataclass(frozen=True)
class Finding:
    """A line of the check."""

    name: str  # what was looked at
    state: str = field(kw_only=True)  # ok, warn or fail
    text: str  # what was found
    advice: str = ""  # what to do, a command where there is one; "" for nothing


ok = partial(Finding, state=OK)  # as it has to be
warn = partial(Finding, state=WARN)  # a pipeline does without
missing = partial(Finding, state=FAIL)  # a pipeline needs it
BySpark: TypeAlias = (
    "Callable[[str, Callable[[SparkSession], Iterable[Finding]]], Iterable[Finding]]"
)
"""Gives what a look by Spark finds; under a name it gives what keeps it from looking."""


class ClusterCheck:
    """Looks at a cluster by one question after the other."""

    def __init__(
        self,
        servers: str,
        topic: str,
        by_spark: BySpark,
        config: str | None = None,
        isolation_level: str = "read_committed",
    ) -> None:
        self._name, self._by_spark = topic, by_spark
        self._config, self._isolation_level = config, isolation_level
        self._servers = ",".join(s.strip() for s in servers.split(","))
        self._user: str | None = None
        self._is_plain = True
        self._partitions: Partitions | None = None
        self._log: LogOfTopic | None = None
        self._newest: bytes | None = None
        self._record_bytes = _RECORD_BYTES
        # How many records the topic has at most; None before that is known.
        self.records: int | None = None

    def findings(self) -> Iterator[Finding]:
        """Return a line for each thing that a pipeline needs of the cluster."""
        try:
            cluster = kafka.Cluster.of(self._servers, self._config, self._isolation_level)
            client_options(cluster.properties)
        except UnsupportedError as error:
            yield warn("login", str(error), "read on: Kafka's own client answers what it can")
            yield from self._by_spark("brokers", lambda s: self._by_kafkas_client(s, cluster))
            return
        except SourceError as error:
            yield missing("config", str(error))
            return
        if not has_address(self._servers):
            yield missing("brokers", kafka.UNRESOLVED)
            return
        properties = cluster.properties
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        self._user, self._is_plain = principal(properties), protocol == "PLAINTEXT"
        try:
            with admin_client(cluster) as admin:
                yield ok("login", self._login(protocol, properties.get("sasl.mechanism")))
                yield from self._asked(Inspector(admin, cluster, self._name))
        except RefusedError as error:
            yield missing("login", str(error))
        except SourceError as error:
            yield missing("brokers", str(error))

    def _login(self, protocol: str, mechanism: str | None) -> str:
        how = f"{protocol}, {mechanism}" if protocol.startswith("SASL") else protocol
        return f"accepted as {self._user or 'the subject of the certificate'} ({how})"

    def _asked(self, inspector: Inspector) -> Iterator[Finding]:
        questions = (
            ("brokers", self._brokers),
            ("topic", self._topic),
            ("log", self._measure),
            ("read", self._read),
            ("group", self._group),
            ("lag", self._lag),
            ("settings", self._settings),
        )
        for name, ask in questions:
            try:
                with speaking_of(inspector.cluster):
                    yield from ask(inspector)
            except SourceError as error:  # noqa: PERF203 - each question stands alone
                line = warn if name in _OPTIONAL else missing
                yield line(name, str(error))

    def _brokers(self, inspector: Inspector) -> Iterator[Finding]:
        found = inspector.brokers()
        versions = " and ".join(sorted(set(found.versions.values())))
        vendor = vendor_of(found.cluster_id)
        kind = "Kafka" if vendor is None else f"{vendor}, which answers as Kafka"
        whole = f"{kind} {versions} by their API versions, cluster id {found.cluster_id}"
        if found.silent:
            yield missing(
                "brokers",
                f"{some(found.silent)} of {len(found.versions) + len(found.silent)} do not answer"
                " at the address that the cluster gives",
                "check advertised.listeners of the brokers, DNS and firewalls",
            )
        if found.versions and not found.silent:
            yield ok("brokers", f"{len(found.versions)} reachable, {whole}")
        if found.down:
            yield warn(
                "brokers",
                f"the cluster has no contact with {some(found.down)}",
                "see whether it should run",
            )

    def _topic(self, inspector: Inspector) -> Iterator[Finding]:
        name = self._name
        self._partitions = found = inspector.topic()
        if found.is_hidden:
            yield missing(
                "topic",
                f"not authorized: the user may not see {name}, if it is there",
                self._allow("Read", "--topic", name),
            )
        elif not found.is_there:
            yield missing("topic", kafka.ADVICE["UnknownTopicOrPartitionException"])
        elif led := [p for p, leader in found.leaders.items() if leader == -1]:
            yield missing(
                "topic",
                f"partitions without a leader: {some(list(map(str, led)))} of {len(found.leaders)}",
                "bring back the brokers that have their replicas",
            )
        else:
            yield ok("topic", f"{name} has {count(len(found.leaders), 'partition')}")

    def _measure(self, inspector: Inspector) -> Iterator[Finding]:
        if self._partitions is None or not self._partitions.is_there:
            return
        leaders = self._partitions.leaders
        log = inspector.log(leaders, dt.datetime.now(dt.timezone.utc))
        self._newest = self._some_batches(inspector, log)
        self._log = log  # both are known now, else nobody can say whether the user may read
        self._record_bytes = measured(self._newest or b"") or _RECORD_BYTES
        since = f"; the oldest is of {log.oldest:%Y-%m-%d %H:%M} UTC" if log.oldest else ""
        since += f"; {sum(log.last_day.values()):,} came in the last 24 hours"
        since += f"; {log.hidden:,} offsets are behind open transactions" if log.hidden else ""
        try:
            with speaking_of(inspector.cluster):
                held = inspector.size(leaders)
            unknown = warn(
                "size",
                "not authorized to ask how many bytes the log has: after compaction they are fewer",
                self._allow("Describe", "--cluster"),
            )
        except SourceError as error:
            held, unknown = None, warn("size", str(error))
        if held is not None:
            self.records = min(log.offsets, math.ceil(held / self._record_bytes))
            yield ok("log", f"about {count(self.records, 'record')} in {size(held)}{since}")
            return
        self.records = log.offsets
        most = size(log.offsets * self._record_bytes)
        yield ok("log", f"at most {count(log.offsets, 'record')} in {most}{since}")
        yield unknown

    def _some_batches(self, inspector: Inspector, log: LogOfTopic) -> bytes | None:
        """Return batches of the partition that grows most; None if they may not be read."""
        busiest = next((x for x in log.logs if x.partition == log.busiest), None)
        if self._partitions is None or busiest is None:
            return b""
        return inspector.newest(busiest, self._partitions.leaders[busiest.partition])

    def _read(self, _: Inspector) -> Iterator[Finding]:
        topic = self._name
        if self._log is None or not self._log.logs:
            return
        if self._newest is None:
            yield missing(
                "read",
                f"not authorized: the user may see {topic}, but not read it",
                self._allow("Read", "--topic", topic),
            )
        else:
            yield ok("read", f"the user may read {topic}")

    def _group(self, inspector: Inspector) -> Iterator[Finding]:
        rest = ("--group", READER_GROUPS, "--resource-pattern-type", "prefixed")
        command = self._allow("Describe", *rest)
        is_asked = self._name == OFFSETS_TOPIC
        offsets = self._partitions if is_asked else inspector.topic(OFFSETS_TOPIC)
        if offsets is None or not offsets.is_there:
            yield warn(
                "group",
                f"whether the user may describe groups {READER_GROUPS}* is not asked: brokers would"
                f" make {OFFSETS_TOPIC} to answer",
                command,
            )
        elif inspector.may_describe(f"{READER_GROUPS}-check"):
            yield ok("group", f"the user may describe groups {READER_GROUPS}*, as Spark's reader")
        else:
            yield missing(
                "group",
                f"not authorized: Spark's reader describes groups {READER_GROUPS}*",
                command,
            )

    def _lag(self, inspector: Inspector) -> Iterator[Finding]:
        topics = inspector.visible_topics()
        if topics:
            yield ok("lag", f"the user may describe {count(topics, 'topic')}; others have no lag")
        else:
            yield warn(
                "lag",
                "the user may describe no topic that groups could consume: there is no lag",
                self._allow("Describe", "--topic", "*"),
            )

    def _settings(self, inspector: Inspector) -> Iterator[Finding]:
        if self._log is None:
            return
        settings = inspector.settings()
        if settings is None:
            yield warn(
                "settings",
                "not authorized to ask for the settings of the topic: Kafka's defaults are taken",
                self._allow("DescribeConfigs", "--topic", self._name),
            )
        else:
            yield self._policy(settings)
        yield self._schedule(self._log, settings or {})

    def _policy(self, settings: dict[str, str]) -> Finding:
        is_deleted = "delete" in settings.get("cleanup.policy", "")
        names = (*_SETTINGS, "retention.ms") if is_deleted else _SETTINGS
        shown = ", ".join(f"{name}={settings[name]}" for name in names if name in settings)
        if is_deleted and self._name == OFFSETS_TOPIC:
            return warn(
                "settings",
                f"retention deletes what groups committed, and Kafka forgets it: {shown}",
                self._configure("cleanup.policy=compact"),
            )
        return ok("settings", shown)

    def _schedule(self, log: LogOfTopic, settings: dict[str, str]) -> Finding:
        grown = log.last_day.get(log.busiest or 0, 0)
        often = how_often(settings, grown * self._record_bytes)
        span = duration(often.limit_ms)
        reason = {
            SEGMENT: f"the busiest partition closes a segment in {span}, which may be compacted at"
            " once",
            LAG: f"no record is compacted away before it is {span} old",
            RETENTION: f"retention deletes records that are {span} old",
        }[often.limit]
        if not often.is_enough:
            return warn(
                "schedule",
                f"every {often.minutes} minutes is not often enough: {reason}",
                self._configure(f"min.compaction.lag.ms={_LAG_MS}"),
            )
        return ok("schedule", f"every {often.minutes} minutes or more often: {reason}")

    def _by_kafkas_client(self, spark: SparkSession, cluster: kafka.Cluster) -> Iterator[Finding]:
        topic = self._name
        found = kafka.describe(spark, cluster, topic)
        self.records = sum(log.end - log.first for log in found.logs.values())
        yield ok("brokers", f"reachable, cluster id {found.kafka_cluster_id}")
        yield ok("topic", f"{topic} has {count(len(found.logs), 'partition')}")
        yield ok("log", f"at most {count(self.records, 'record')}")
        first = {p: log.first for p, log in found.logs.items() if log.end > log.first}
        if first:
            kafka.fetch(spark, cluster, topic, dict(list(first.items())[:1]))
            yield ok("read", f"the user may read {topic}")

    def _allow(self, operation: str, *resource: str) -> str:
        """Return the command that gives the user a right."""
        who = ("--add", "--allow-principal", self._user or "User:NAME")
        return self._command("kafka-acls.sh", *who, "--operation", operation, *resource)

    def _configure(self, setting: str) -> str:
        topic = ("--entity-type", "topics", "--entity-name", self._name)
        return self._command("kafka-configs.sh", "--alter", *topic, "--add-config", setting)

    def _command(self, script: str, *words: str) -> str:
        # The properties of an administrator are not those of --kafka-config.
        login = () if self._is_plain else ("--command-config", "admin.properties")
        return shlex.join([script, "--bootstrap-server", self._servers, *login, *words])
