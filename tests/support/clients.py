"""What real clients of a Kafka cluster do to its groups, in one call each."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kafka import (
    ConsumerGroupMetadata,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    ResourcePattern,
    ResourceType,
)
from kafka.errors import KafkaError, for_code
from kafka.net.compat import KafkaNetClient
from kafka.structs import MemberState

from launch.jars import JarSet, fetch
from tests.support.broker import JARS, JVM_FLAGS

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

OFFSETS_TOPIC = "__consumer_offsets"
TIMEOUT_S = 60.0
POLL_S = 0.05
READ_UNCOMMITTED = "read_uncommitted"
READ_COMMITTED = "read_committed"


def wait_until(
    predicate: Callable[[], T], timeout_s: float = TIMEOUT_S, *, what: str = "the condition"
) -> T:
    """Return the first truthy answer of `predicate`, asked again and again.

    Args:
        predicate: What is waited for. A Kafka error counts as "not yet".
        timeout_s: How long to ask.
        what: How the failure names it.

    Raises:
        TimeoutError: It never came true; the message holds the last answer or error.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    last: object = None
    while True:
        try:
            if answer := predicate():
                return answer
            last = answer
        except KafkaError as error:
            last = error
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what} did not come true within {timeout_s:g} s, last: {last!r}")
        pause.wait(POLL_S)


@contextlib.contextmanager
def admin_client(bootstrap: str, **options: object) -> Iterator[KafkaAdminClient]:
    """Open an admin client, and close it at the end."""
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=bootstrap, **options)) as admin:
        yield admin


@contextlib.contextmanager
def reader(
    bootstrap: str, isolation: str = READ_UNCOMMITTED, **options: object
) -> Iterator[KafkaConsumer]:
    """Open a consumer that is in no group, and so leaves no trace."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        **options,
    )
    with contextlib.closing(consumer):
        yield consumer


# --- topics and records ---------------------------------------------------------------------


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None
) -> list[TopicPartition]:
    """Create a topic and return its partitions when each has a leader."""
    with admin_client(bootstrap) as admin:
        admin.create_topics(
            {
                topic: {
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": dict(configs or {}),
                }
            },
            wait_for_metadata=True,
        )
    return [TopicPartition(topic, partition) for partition in range(partitions)]


def create_offsets_topic(bootstrap: str) -> list[TopicPartition]:
    """Have the broker create `__consumer_offsets`, empty, and return its partitions.

    Brokers create it when somebody first asks for the coordinator of a group.
    """
    with admin_client(bootstrap) as admin:
        wait_until(lambda: admin.describe_groups(["nobody"]), what="a group coordinator")
        admin.wait_for_topics([OFFSETS_TOPIC])
    return partitions_of(bootstrap, OFFSETS_TOPIC)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic and return when no broker lists it any more."""
    with admin_client(bootstrap) as admin:
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics(), what=f"the end of {topic}")


def delete_records(bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
    """Delete what lies before an offset of each partition, as an operator would."""
    with admin_client(bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, p): offset for p, offset in before.items()})


def allow(
    bootstrap: str,
    user: str,
    *,
    read_topic: str | None = None,
    describe_topic: str | None = None,
    describe_groups: str | None = None,
) -> None:
    """Return a user ACLs on a topic, or on all groups whose names start with a prefix."""
    literal, prefixed = ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED
    wanted = [
        (ACLOperation.READ, ResourceType.TOPIC, read_topic, literal),
        (ACLOperation.DESCRIBE, ResourceType.TOPIC, describe_topic, literal),
        (ACLOperation.DESCRIBE, ResourceType.GROUP, describe_groups, prefixed),
    ]
    acls = [
        ACL(
            f"User:{user}",
            "*",
            operation,
            ACLPermissionType.ALLOW,
            ResourcePattern(resource, name, pattern),
        )
        for operation, resource, name, pattern in wanted
        if name is not None
    ]
    with admin_client(bootstrap) as admin:
        answer = admin.create_acls(acls)
    if answer["failed"]:
        raise KafkaError(f"ACLs were not made: {answer['failed']}")


@contextlib.contextmanager
def topic_configs(bootstrap: str, topic: str, configs: Mapping[str, str]) -> Iterator[None]:
    """Return a topic, internal or not, other settings; at the end it has the broker's again."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
    with admin_client(bootstrap) as admin:
        admin.alter_configs([resource])
        try:
            yield
        finally:
            admin.reset_configs([resource])


def expire_records(bootstrap: str, topic: str = OFFSETS_TOPIC) -> None:
    """Let retention remove every record that a topic holds now: its log starts where it ended."""
    configs = {"cleanup.policy": "delete", "retention.ms": "1", "segment.ms": "1"}
    with topic_configs(bootstrap, topic, configs):
        wait_until(
            lambda: begin_offsets(bootstrap, topic) == end_offsets(bootstrap, topic),
            what=f"an empty {topic}",
        )


def partitions_of(bootstrap: str, topic: str) -> list[TopicPartition]:
    """List the partitions of a topic, internal or not, in order."""
    with admin_client(bootstrap) as admin:
        [described] = admin.describe_topics([topic])
    if described["error_code"]:
        raise for_code(described["error_code"])(topic)
    numbers = sorted(partition["partition_index"] for partition in described["partitions"])
    return [TopicPartition(topic, number) for number in numbers]


def produce(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partition: int | None = None,
    keys: int | None = None,
    text: str = "record",
    timestamp_ms: int | None = None,
) -> None:
    """Append `count` small records, and return when the broker has them all.

    Args:
        bootstrap: The cluster.
        topic: The topic.
        count: How many.
        partition: Default: any.
        keys: How many keys take turns; default: the records have none.
        text: What the records say.
        timestamp_ms: Their time; default: now.
    """
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    with contextlib.closing(producer):
        sent = [
            producer.send(
                topic,
                key=None if keys is None else f"key {number % keys}".encode(),
                value=f"{text} {number}".encode(),
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
            for number in range(count)
        ]
        for record in sent:
            record.get(timeout=TIMEOUT_S)


def begin_offsets(bootstrap: str, topic: str = OFFSETS_TOPIC) -> dict[int, int]:
    """Say where the log of every partition starts."""
    partitions = partitions_of(bootstrap, topic)
    with reader(bootstrap) as consumer:
        begins = consumer.beginning_offsets(partitions)
    return {tp.partition: offset for tp, offset in sorted(begins.items())}


def end_offsets(
    bootstrap: str, topic: str = OFFSETS_TOPIC, isolation: str = READ_UNCOMMITTED
) -> dict[int, int]:
    """Say where every partition ends: its high watermark, or its last stable offset.

    Args:
        bootstrap: The cluster.
        topic: The topic.
        isolation: `READ_COMMITTED` for last stable offsets.
    """
    partitions = partitions_of(bootstrap, topic)
    with reader(bootstrap, isolation) as consumer:
        ends = consumer.end_offsets(partitions)
    return {tp.partition: offset for tp, offset in sorted(ends.items())}


@dataclass(frozen=True)
class Record:
    """One record as a consumer got it."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None


def read_records(
    bootstrap: str, topic: str = OFFSETS_TOPIC, isolation: str = READ_COMMITTED
) -> list[Record]:
    """Read a topic from the first record to the end as it is now, in the order of positions."""
    partitions = partitions_of(bootstrap, topic)
    records: list[Record] = []
    with reader(bootstrap, isolation) as consumer:
        ends = consumer.end_offsets(partitions)
        begins = consumer.beginning_offsets(partitions)
        open_partitions = [tp for tp in partitions if begins[tp] < ends[tp]]
        consumer.assign(open_partitions)
        for tp in open_partitions:
            consumer.seek(tp, begins[tp])

        def is_read() -> bool:
            for found in consumer.poll(timeout_ms=200).values():
                records.extend(
                    Record(r.partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value)
                    for r in found
                )
            # The position, not the last record: transaction markers are no records.
            return all(consumer.position(tp) >= ends[tp] for tp in open_partitions)

        if open_partitions:
            wait_until(is_read, what=f"the end of {topic}")
    return sorted(
        (r for r in records if r.offset < ends[TopicPartition(topic, r.partition)]),
        key=lambda r: (r.partition, r.offset),
    )


# --- offset commits -------------------------------------------------------------------------


def commit(
    bootstrap: str, group: str, offsets: Mapping[TopicPartition, int], metadata: str = ""
) -> None:
    """Commit offsets as a consumer with manual assignment does: in no generation."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    with contextlib.closing(consumer):
        consumer.assign(list(offsets))
        consumer.commit(_with_metadata(offsets, metadata))


class Transaction:
    """An open transaction that holds offset commits of one group.

    End it by `commit` or `abort`, or `abandon` it: the broker then aborts it when `timeout_ms`
    is over, and until then it hangs and holds back the last stable offset.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        metadata: str = "",
        transactional_id: str | None = None,
        timeout_ms: int = 60_000,
        member: ConsumerGroupMetadata | None = None,
    ) -> None:
        """Begin a transaction and send the offsets into it.

        Args:
            bootstrap: The cluster.
            group: The consumer group.
            offsets: What to commit.
            metadata: The text beside each offset.
            transactional_id: Default: one made from the group's name.
            timeout_ms: When the broker may abort it by itself.
            member: For a group with members: whose generation the commit is fenced by.
        """
        self.transactional_id = transactional_id or f"{group}-transactions"
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        self._producer.init_transactions()
        self._producer.begin_transaction()
        self._producer.send_offsets_to_transaction(
            _with_metadata(offsets, metadata),
            member or ConsumerGroupMetadata(group_id=group),
        )

    def commit(self) -> None:
        """Commit the transaction: the offsets count."""
        self._producer.commit_transaction()
        self._producer.close()

    def abort(self) -> None:
        """Abort the transaction: the offsets never were."""
        self._producer.abort_transaction()
        self._producer.close()

    def abandon(self) -> None:
        """Drop the producer with the transaction open, as a crash does."""
        self._producer.close(timeout=0)


# --- groups ---------------------------------------------------------------------------------


def describe_group(bootstrap: str, group: str) -> dict[str, Any]:
    """Ask the coordinator for a classic group: state, generation's protocol, members."""
    with admin_client(bootstrap) as admin:
        return dict(admin.describe_groups([group])[group])


def group_state(bootstrap: str, group: str) -> str:
    """Ask the coordinator for the state of a group of any type; `Dead` if there is none."""
    with admin_client(bootstrap) as admin:
        listed = {found["group_id"]: found["group_state"] for found in admin.list_groups()}
    return str(listed.get(group, "Dead"))


def list_group_offsets(bootstrap: str, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Ask the coordinator for every committed offset of a group."""
    with admin_client(bootstrap) as admin:
        return dict(admin.list_group_offsets(group)[group])


def delete_group(bootstrap: str, group: str) -> None:
    """Delete an empty group with all its offsets.

    Raises:
        KafkaError: The coordinator refused, for a group that has members.
    """
    with admin_client(bootstrap) as admin:
        answer = admin.delete_groups([group])[group]
    if answer != "OK":
        raise KafkaError(f"{group} was not deleted: {answer}")


def delete_offsets(bootstrap: str, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete committed offsets of partitions that no member of the group subscribes to.

    Raises:
        KafkaError: The coordinator refused some.
    """
    with admin_client(bootstrap) as admin:
        answers = admin.delete_group_offsets(group, list(partitions))
    refused = {tp: error.__name__ for tp, error in answers.items() if error.errno != 0}
    if refused:
        raise KafkaError(f"offsets of {group} were not deleted: {refused}")


class GroupMember:
    """A consumer in a group of the classic protocol, polled by a thread of its own.

    kafka-python 3.0.12 has no consumer of the new protocol (KIP-848).
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str],
        *,
        client_id: str = "member",
        instance_id: str | None = None,
        session_timeout_ms: int = 6_000,
        **options: object,
    ) -> None:
        """Describe a member; `join` makes it one.

        Args:
            bootstrap: The cluster.
            group: The group to join.
            topics: What it subscribes to.
            client_id: The first part of its member id.
            instance_id: Makes it a static member.
            session_timeout_ms: How long the group waits for it after `abandon`.
            options: Any other setting of kafka-python's consumer.
        """
        self.bootstrap = bootstrap
        self.group = group
        self._topics = list(topics)
        self._options: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "client_id": client_id,
            "group_instance_id": instance_id,
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": min(500, session_timeout_ms // 3),
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "kafka_client": self._connect,
        } | options
        self._client: KafkaNetClient | None = None
        self._consumer: KafkaConsumer | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=client_id)
        self._polling: Future[None] = Future()
        self._is_ended = False
        self._metadata = ConsumerGroupMetadata(group_id=group)
        self._assignment: frozenset[TopicPartition] = frozenset()

    def __enter__(self) -> Self:
        """Join the group, without waiting for an assignment."""
        return self.join()

    def __exit__(self, *_: object) -> None:
        """Leave the group."""
        self.leave()

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """Group, generation, member id and instance id as of the last poll."""
        return self._metadata

    @property
    def generation(self) -> int:
        """The generation as of the last poll."""
        return int(self._metadata.generation_id)

    @property
    def member_id(self) -> str:
        """The member id that the coordinator gave."""
        return str(self._metadata.member_id)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions it owns as of the last poll; possibly none."""
        return self._assignment

    @property
    def is_stable(self) -> bool:
        """Whether it has joined and knows its assignment, as of the last poll.

        Raises:
            KafkaError: What ended its polling.
        """
        if self._polling.done():
            self._polling.result()
        return bool(self._metadata.state == MemberState.STABLE)

    def join(self) -> Self:
        """Begin to join the group."""
        self._consumer = KafkaConsumer(*self._topics, **self._options)
        # A leader that joins before it knows its topics assigns nothing, and joins again when it
        # does.
        for topic in self._topics:
            self._consumer.partitions_for_topic(topic)
        self._polling = self._thread.submit(self._poll, self._consumer)
        return self

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commit offsets as this member, in its generation."""
        self.call(lambda consumer: consumer.commit(_with_metadata(offsets, metadata)))

    def call(self, function: Callable[[KafkaConsumer], T]) -> T:
        """Run something with the consumer, between two polls, and return its answer."""
        return self._thread.submit(function, self._consumer).result(TIMEOUT_S)

    def leave(self) -> None:
        """Close the consumer: a dynamic member leaves its group, a static one keeps its slot."""
        self._end()
        if self._consumer is not None:
            self._consumer.close()

    def abandon(self) -> None:
        """Cut its connections without a word, as a crash does: its session has to run out."""
        self._end()
        if self._client is not None:
            self._client.close()

    def _connect(self, **options: object) -> KafkaNetClient:
        """Make the consumer's connections, which `abandon` cuts."""
        self._client = KafkaNetClient(**options)
        return self._client

    def _poll(self, consumer: KafkaConsumer) -> None:
        """Poll once, and queue the next poll behind whatever was asked for meanwhile."""
        consumer.poll(timeout_ms=50)
        self._metadata = consumer.group_metadata()
        if self._metadata.state == MemberState.REBALANCING:
            # kafka-python 3.0.12 forgets the join of a leader whose topics have changed if a poll
            # ends in it: no poll completes it, and the member has no heartbeat from then on.
            consumer._coordinator.request_rejoin()
        self._assignment = frozenset(consumer.assignment())
        if not self._is_ended:
            self._polling = self._thread.submit(self._poll, consumer)

    def _end(self) -> None:
        self._is_ended = True
        self._thread.shutdown()


class NewProtocolMember:
    """A consumer of the new protocol (KIP-848): Kafka's own client, run by a JDK."""

    def __init__(
        self, java: str, bootstrap: str, group: str, topic: str, *, client_id: str = "member"
    ) -> None:
        """Describe a member; entering the context joins it.

        Args:
            java: A JDK's, which compiles the program.
            bootstrap: The cluster.
            group: The group to join.
            topic: What it subscribes to.
            client_id: Its client id.
        """
        jars = fetch(JarSet.from_file(JARS, name="kafka-broker"))
        program = Path(__file__).with_name("NewProtocolMember.java")
        classpath = f"{jars[0].parent}/*"
        arguments = [bootstrap, group, topic, client_id]
        self._command = [java, *JVM_FLAGS, "-cp", classpath, str(program), *arguments]
        self._said: list[str] = []

    def __enter__(self) -> Self:
        """Begin to join the group."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the group."""
        assert self._process.stdin is not None
        with self._process:  # closes the pipes, too
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            self._listener.join(TIMEOUT_S)

    @property
    def member_id(self) -> str:
        """The member id, which the client made up."""
        return self._said[-1].partition("\t")[0]

    @property
    def partitions(self) -> list[int]:
        """The partitions that it owns."""
        return list(json.loads(self._said[-1].partition("\t")[2])) if self._said else []

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line.rstrip("\n"))


def wait_stable(*members: GroupMember, after: int = -1, timeout_s: float = TIMEOUT_S) -> int:
    """Wait until the coordinator and all members agree who is in the group and owns what.

    Args:
        members: All the members that the group should have.
        after: A generation that is not good enough: the one before a change.
        timeout_s: How long to wait.

    Returns:
        The generation that they agree on.
    """

    def is_settled() -> bool:
        described = describe_group(members[0].bootstrap, members[0].group)
        known = {found["member_id"]: _assigned(found) for found in described["members"]}
        own = {member.member_id: member.assignment for member in members}
        generations = {member.generation for member in members}
        return (
            all(member.is_stable for member in members)
            and described["group_state"] == "Stable"
            and known == own
            and len(generations) == 1
            and generations.pop() > after
        )

    wait_until(is_settled, timeout_s, what=f"a stable generation of {members[0].group}")
    return members[0].generation


def _assigned(described: Mapping[str, Any]) -> frozenset[TopicPartition]:
    """Take a member's partitions out of a group's description."""
    assignment = described["member_assignment"] or {"assigned_partitions": []}
    return frozenset(
        TopicPartition(topic["topic"], number)
        for topic in assignment["assigned_partitions"]
        for number in topic["partitions"]
    )


def _with_metadata(
    offsets: Mapping[TopicPartition, int], metadata: str
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {tp: OffsetAndMetadata(offset, metadata, -1) for tp, offset in offsets.items()}
