"""What a cluster says of itself and of a topic, as far as a user may ask.

Each question is one of kafka-python's, and stands alone: a user who may not ask one may ask the
others. No group is joined and nothing written. One question could have a broker make something:
who asks for the coordinator of a group makes it create `__consumer_offsets`
(KafkaApis.handleFindCoordinatorRequest). So it is asked only where the topic is there.
"""

from __future__ import annotations

import datetime as dt
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest

from schemas.columns import LAST_MS
from sources.kafka import Cluster
from sources.log_offsets import LogOffsets, ask

READER_GROUPS = "spark-kafka-relation"
"""What the names begin with of the groups whose offsets Spark's reader asks for."""
_DAY_MS = 86_400_000
# Of Redpanda the id is this and an UUID.
_REDPANDA = "redpanda."
# Some hundred records of a busy log.
_SAMPLE_OFFSETS = 1_000
_SAMPLE_BYTES = 262_144
_FETCH_WAIT_MS = 100
# From the next version on, a topic has its id there instead of its name.
_FETCH_BY_NAME = 12
_ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
# A batch begins with its first offset, its length behind these two, the leader's epoch and the
# version of the format (DefaultRecordBatch, AbstractLegacyRecordBatch).
_BATCH = struct.Struct(">qiib")
_BATCH_START = struct.calcsize(">qi")
_BATCH_FORMAT = 2
# Where a batch of this format has the number of its records: at the end of its header.
_COUNT = struct.Struct(">i")
_COUNT_AT = 57


@dataclass(frozen=True)
class Brokers:
    """The brokers of a cluster."""

    cluster_id: str
    # By address the release of each that answers, as far as its API versions tell.
    versions: dict[str, str]
    silent: list[str]  # addresses of those that do not answer
    down: list[str]  # addresses of those that the cluster itself has no contact with


@dataclass(frozen=True)
class Partitions:
    """A topic as the cluster describes it to a user."""

    leaders: dict[int, int]  # by partition the broker that leads it, -1 for none
    is_hidden: bool = False  # the user may not describe it; whether it is there only others know

    @property
    def is_there(self) -> bool:
        """Whether the cluster has the topic, as far as the user may know."""
        return bool(self.leaders)


@dataclass(frozen=True)
class LogOfTopic:
    """How much the logs of a topic hold."""

    logs: list[LogOffsets]  # the log of each partition; none of those that have no leader
    hidden: int  # offsets behind open transactions, which readers of committed records do not see
    # Time of the oldest record; None without a record, or if it has no time.
    oldest: dt.datetime | None
    # By partition, how many offsets were given in the last 24 hours, of those that are there.
    last_day: dict[int, int]

    @property
    def offsets(self) -> int:
        """The number of offsets, each with at most one record."""
        return sum((log.end or 0) - (log.start or 0) for log in self.logs)

    @property
    def busiest(self) -> int | None:
        """The partition that grew most; None of a topic without a log."""
        grown = {log.partition: (self.last_day.get(log.partition, 0), log.end) for log in self.logs}
        return max(grown, key=lambda p: grown[p], default=None)


class Inspector:
    """Asks a cluster about a topic, by an admin client that is connected.

    The questions let kafka-python's errors out: who asks does so within `log_offsets.speaking_of`,
    which says why the cluster does not answer.
    """

    def __init__(self, admin: KafkaAdminClient, cluster: Cluster, topic: str) -> None:
        self._admin = admin
        # Requests that kafka-python has, but no method of its admin client sends.
        self._connections: Any = admin._manager  # noqa: SLF001
        self.cluster = cluster
        self._topic = topic

    def brokers(self) -> Brokers:
        """Ask for the brokers, and each of them for its version."""
        described = self._admin.describe_cluster()
        found = Brokers(described["cluster_id"], {}, [], [])
        for broker in sorted(described["brokers"], key=lambda broker: broker["broker_id"]):
            address = f"{broker['host']}:{broker['port']}"
            if broker.get("is_fenced"):
                found.down.append(address)
            elif (version := self._version(broker["broker_id"])) is not None:
                found.versions[address] = version
            else:
                found.silent.append(address)
        return found

    def _version(self, node: int) -> str | None:
        request = ApiVersionsRequest(
            client_software_name="groupledger", client_software_version="1", max_version=3
        )
        try:
            answer = self._send(request, node)
        except errors.KafkaError:
            return None
        versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        return ".".join(map(str, infer_broker_version_from_api_versions(versions)))

    def topic(self, name: str | None = None) -> Partitions:
        """Ask for the partitions of the topic, or of another one."""
        (described,) = self._admin.describe_topics([name or self._topic])
        error = errors.for_code(described["error_code"])
        if error is errors.TopicAuthorizationFailedError:
            return Partitions({}, is_hidden=True)
        if error is errors.UnknownTopicOrPartitionError:
            return Partitions({})
        leaders = {p["partition_index"]: p["leader_id"] for p in described["partitions"]}
        if error is not errors.NoError and not leaders:
            raise error
        return Partitions(dict(sorted(leaders.items())))

    def visible_topics(self) -> int:
        """Count the topics that the user may describe, without Kafka's internal ones."""
        return sum(not topic["is_internal"] for topic in self._admin.describe_topics())

    def may_describe(self, group: str) -> bool:
        """Ask whether the user may describe a group, which need not be there.

        `__consumer_offsets` has to be there.
        """
        try:
            described = self._admin.describe_groups([group])
        except errors.GroupAuthorizationFailedError:
            return False
        return "GroupAuthorizationFailed" not in (described[group]["error"] or "")

    def log(self, leaders: Mapping[int, int], now: dt.datetime) -> LogOfTopic:
        """Ask for the ends of the logs, the oldest record, and what the last day brought."""
        led = [TopicPartition(self._topic, p) for p, leader in leaders.items() if leader != -1]
        day = int(now.timestamp() * 1_000) - _DAY_MS
        logs = [log for log in ask(self._admin, led).logs if log.problem is None]
        oldest = self._admin.list_partition_offsets(dict.fromkeys(led, 0))
        since = self._admin.list_partition_offsets(dict.fromkeys(led, day))
        hidden = 0
        if self.cluster.isolation_level == "read_committed":
            hidden = self._hidden(logs)
        times = [at.timestamp for at in oldest.values() if 0 <= at.timestamp <= LAST_MS]
        # Without a record of the day there is no offset, which is -1 then.
        first = {tp.partition: at.offset for tp, at in since.items() if at.offset >= 0}
        return LogOfTopic(
            logs,
            hidden,
            dt.datetime.fromtimestamp(min(times) / 1_000, dt.timezone.utc) if times else None,
            {x.partition: max(0, (x.end or 0) - first.get(x.partition, x.end or 0)) for x in logs},
        )

    def _hidden(self, logs: Sequence[LogOffsets]) -> int:
        wanted = {TopicPartition(self._topic, log.partition): OffsetSpec.LATEST for log in logs}
        stable = self._admin.list_partition_offsets(wanted, "read_committed")
        ends = {log.partition: log.end or 0 for log in logs}
        return sum(max(0, ends[tp.partition] - at.offset) for tp, at in stable.items())

    def newest(self, log: LogOffsets, leader: int) -> bytes | None:
        """Fetch some of the newest batches of a log, as they lie there; none of an empty log.

        The last may be cut off. None if the user may not read the topic.
        """
        start = max(log.start or 0, (log.end or 0) - _SAMPLE_OFFSETS)
        topic_type = FetchRequest.FetchTopic
        wanted = topic_type.FetchPartition(
            partition=log.partition, fetch_offset=start, partition_max_bytes=_SAMPLE_BYTES
        )
        request = FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=_SAMPLE_BYTES,
            isolation_level=_ISOLATION[self.cluster.isolation_level],
            topics=[topic_type(topic=self._topic, partitions=[wanted])],
            max_version=_FETCH_BY_NAME,
        )
        (topic,) = self._send(request, leader).responses
        (answer,) = topic.partitions
        error = errors.for_code(answer.error_code)
        if error is errors.TopicAuthorizationFailedError:
            return None
        if error is errors.OffsetOutOfRangeError:  # deleted since its start was asked for
            return b""
        if error is not errors.NoError:
            raise error
        return bytes(answer.records or b"")

    def settings(self) -> dict[str, str] | None:
        """Ask for the settings of the topic; None if the user may not see them."""
        wanted = ConfigResource(ConfigResourceType.TOPIC, self._topic)
        found = self._admin.describe_configs([wanted], config_filter="all")
        of_topic = found.get("topic", {}).get(self._topic, {})
        # kafka-python passes over the error, and a topic without a setting there is not.
        return {name: one["value"] for name, one in of_topic.items()} or None

    def size(self, leaders: Mapping[int, int]) -> int | None:
        """Ask the leaders for the bytes of the logs; None if the user may not see them."""
        nodes = sorted({leader for leader in leaders.values() if leader != -1})
        wanted = {self._topic: sorted(leaders)}
        answers = self._admin.describe_log_dirs(wanted, brokers=nodes)
        sizes: dict[int, int] = {}
        for answer in answers:
            topics = [topic for folder in answer["log_dirs"] for topic in folder["topics"]]
            for part in (part for topic in topics for part in topic["partitions"]):
                index = part["partition_index"]
                if leaders.get(index) == answer["broker"] and not part["is_future_key"]:
                    sizes[index] = part["partition_size"]
        return sum(sizes.values()) if sizes else None

    def _send(self, request: object, node: int) -> Any:  # noqa: ANN401 - of any type of answer
        return self._connections.run(self._connections.send, request, node)


def vendor_of(cluster_id: str | None) -> str | None:
    """Name who made the brokers, by the id of their cluster; None if it is as Kafka's."""
    return "Redpanda" if (cluster_id or "").startswith(_REDPANDA) else None


def has_address(servers: str) -> bool:
    """Return whether one of some hosts, as HOST:PORT,…, has an address."""
    return any(map(_is_known, servers.split(",")))


def _is_known(server: str) -> bool:
    host, _, port = server.strip().rpartition(":")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError:
        return False
    return True


def measured(batches: bytes) -> float | None:
    """Tell how many bytes a record takes in a log, its batch included; None without a record.

    The last batch may be cut off.
    """
    at = taken = records = 0
    while at + _BATCH.size <= len(batches):
        _, length, _, version = _BATCH.unpack_from(batches, at)
        end = at + _BATCH_START + length
        if end > len(batches):
            break
        # An older format has no batches, but records one behind the other.
        is_batch = version >= _BATCH_FORMAT
        records += _COUNT.unpack_from(batches, at + _COUNT_AT)[0] if is_batch else 1
        taken += end - at
        at = end
    return taken / records if records else None
