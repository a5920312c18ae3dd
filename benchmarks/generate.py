"""Writes a topic such as a busy cluster has, as Parquet files that ``--records`` takes.

Every byte comes from the encoder once, and is then used many times with other numbers in it:
offsets, timestamps, generations. The same options give the same files.

Run it as ``python -m benchmarks.generate --records 5000000 --out /data/topic``.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from schemas.messages import embedded_messages
from schemas.placement import partition_for
from tests.support.encoder import encode_key, encode_message, encode_value

Ints = NDArray[np.int64]
Pair = tuple[bytes, bytes | None]

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("timestampType", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
_TOPIC = "__consumer_offsets"
_OFFSET_COMMIT = 1
_GROUP_METADATA = 2
_START_MS = 1_760_000_000_000
_SPAN_MS = 86_400_000  # what the topic holds was written in a day
_FILE_RECORDS = 125_000
_ROW_GROUP_RECORDS = 25_000
_VARIANTS = 12  # memberships of a group
_TEXT_HEADER = 2  # bytes before a string, in versions that are not flexible
_FLEXIBLE_FROM = 4  # values of offset commits and group metadata

_AREAS = [
    "orders",
    "payments",
    "stock",
    "users",
    "ledger",
    "shipping",
    "search",
    "pricing",
    "audit",
    "returns",
    "fraud",
]
_TASKS = [
    "enrichment",
    "indexer",
    "projector",
    "exporter",
    "notifier",
    "aggregator",
    "importer",
    "archiver",
    "sync",
]
_CITIES = [
    "eu-west",
    "us-east",
    "ap-south",
    "prod",
    "staging",
    "blue",
    "green",
    "batch",
    "realtime",
]
_EVENTS = [
    "created",
    "updated",
    "deleted",
    "snapshot",
    "events",
    "commands",
    "requests",
    "retries",
    "dlq",
    "v2",
]
_ASSIGNORS = ("range", "cooperative-sticky", "sticky", "roundrobin")


@dataclass(frozen=True)
class Shape:
    """What the topic looks like."""

    records: int = 1_000_000  # how many records
    groups: int = 400  # how many groups
    members: tuple[int, int] = (3, 50)  # least and greatest number of members of a group
    # Numbers of partitions that a topic may have.
    topic_partitions: tuple[int, ...] = (3, 6, 12, 12, 24, 48)
    partitions: int = 50  # partitions of the topic
    skew: float = 0.1  # share of the records that the busiest group has
    # Every other group is in one partition, with about half of the records.
    is_crowded: bool = False
    commits: float = 0.92  # share of offset commits
    # Share of metadata of classic groups; the rest are tombstones and records of the new protocols.
    group_metadata: float = 0.05
    gaps: float = 0.0  # share of the offsets that follow one that compaction has removed
    seed: int = 1  # start of the random numbers


@dataclass(frozen=True)
class Group:
    """A group, and what it reads: topics with their number of partitions."""

    number: int
    name: str
    kind: str
    topics: tuple[tuple[str, int], ...]
    weight: float


@dataclass(frozen=True)
class Chunk:
    """Records beside each other in one partition of the topic."""

    partition: int
    first: int
    count: int
    total: int  # records of the whole partition


def generate(shape: Shape, out: Path) -> None:
    """Write the topic as files into the folder `out`, on all cores."""
    out.mkdir(parents=True, exist_ok=True)
    files = list(_files(shape))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(partial(_write_file, shape, out), range(len(files)), files))


def records(shape: Shape, count: int) -> pa.Table:
    """Make `count` records of the topic in this process, all of its busiest partition."""
    busiest = max(groups(shape), key=lambda g: g.weight)
    partition = partition_for(busiest.name, shape.partitions)
    return _chunk(shape, Chunk(partition, 0, count, count))


@cache
def groups(shape: Shape) -> tuple[Group, ...]:
    """Make the groups: the busiest first, the others by Zipf's law."""
    rng = random.Random(shape.seed)  # noqa: S311 - to be the same in every run
    topics = [
        (f"{area}.{task}.{event}", rng.choice(shape.topic_partitions))
        for area in _AREAS
        for task in _TASKS[:4]
        for event in rng.sample(_EVENTS, 3)
    ]
    harmonic = sum(1 / rank for rank in range(1, shape.groups))
    made = []
    for number in range(shape.groups):
        parts = (rng.choice(_AREAS), rng.choice(_TASKS), rng.choice(_CITIES))
        weight = (1 - shape.skew) / (number * harmonic) if number else shape.skew
        kind = rng.choices(("consumer", "connect", "new", "share", "streams"), (75, 5, 15, 2, 3))
        chosen = rng.sample(topics, rng.choice((1, 1, 2, 3)))
        name = f"{'-'.join(parts)}-{number}"
        if shape.is_crowded and number % 2 == 0:
            name = next(n for n in _names(name) if partition_for(n, shape.partitions) == 0)
        made.append(Group(number, name, kind[0] if number else "consumer", tuple(chosen), weight))
    return tuple(made)


def _names(name: str) -> Iterator[str]:
    yield from (f"{name}-{number}" for number in itertools.count())


def _files(shape: Shape) -> Iterator[list[Chunk]]:
    """Plan the files: chunks of partitions, about as many records in each file."""
    weights = np.zeros(shape.partitions)
    for group in groups(shape):
        weights[partition_for(group.name, shape.partitions)] += group.weight
    edges = np.round(np.cumsum(weights) / weights.sum() * shape.records).astype(int)
    chunks: list[Chunk] = []
    room = _FILE_RECORDS
    for partition, total in enumerate(np.diff(edges, prepend=0).tolist()):
        done = 0
        while done < total:
            count = min(room, total - done)
            chunks.append(Chunk(partition, done, count, total))
            done += count
            room -= count
            if not room:
                yield chunks
                chunks, room = [], _FILE_RECORDS
    if chunks:
        yield chunks


def _write_file(shape: Shape, out: Path, number: int, chunks: Sequence[Chunk]) -> None:
    with pq.ParquetWriter(out / f"part-{number:05}.parquet", SCHEMA) as writer:
        for chunk in chunks:
            writer.write_table(_chunk(shape, chunk), row_group_size=_ROW_GROUP_RECORDS)


def _chunk(shape: Shape, chunk: Chunk) -> pa.Table:
    """Make the records of a chunk."""
    rng = np.random.default_rng([shape.seed, chunk.partition, chunk.first])
    pool = _partition_pool(shape, chunk.partition)
    position = np.arange(chunk.first, chunk.first + chunk.count)
    share = (position + rng.random(chunk.count)) / chunk.total  # of the partition's day
    time_ms = _START_MS + (share * _SPAN_MS).astype(np.int64)
    rest = 1 - shape.commits - shape.group_metadata
    kinds = rng.choice(3, chunk.count, p=(shape.commits, shape.group_metadata, max(rest, 0.0)))
    which = np.zeros(chunk.count, np.int64)
    for kind, weights in enumerate(pool.weights):
        mine = np.flatnonzero(kinds == kind)
        which[mine] = rng.choice(weights.size, mine.size, p=weights) + pool.first[kind]
    columns = {
        "topic": pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(chunk.count, np.int32)), pa.array([_TOPIC])
        ).cast(pa.string()),
        "partition": pa.array(np.full(chunk.count, chunk.partition, np.int32)),
        "offset": pa.array(position + (position * shape.gaps).astype(np.int64)),
        "timestamp": pa.array(time_ms),
        "timestampType": pa.array(["CreateTime"] * chunk.count),
        "key": pool.keys.take(pa.array(which)),
        "value": pool.filled_values(which, time_ms),
    }
    return pa.table(columns, schema=SCHEMA)


@dataclass(frozen=True)
class Positions:
    """Where each value of a pool holds numbers to fill in, -1 for nowhere."""

    offset: Ints  # int64, the committed offset
    generation: Ints  # int32
    time: Ints  # int64, epoch ms


@dataclass(frozen=True)
class Pool:
    """The records that one partition's groups write, as templates."""

    keys: pa.Array
    values: pa.Array
    positions: Positions
    # By kind of record (commits, group metadata, the rest), its first template.
    first: tuple[int, int, int]
    weights: tuple[NDArray[np.float64], ...]  # by kind, how often each of its templates is used

    def filled_values(self, which: Ints, time_ms: Ints) -> pa.Array:
        """Copy templates, and fill in what rises with the time."""
        values = self.values.take(pa.array(which))
        validity, offsets, buffer = values.buffers()
        data = np.frombuffer(buffer, np.uint8).copy()
        start = np.frombuffer(offsets, np.int32, len(values)).astype(np.int64)
        elapsed = time_ms - _START_MS
        for at, dtype, numbers in (
            (self.positions.offset, ">i8", which * 1_000_003 + elapsed * (which % 7 + 1)),
            (self.positions.generation, ">i4", 1 + elapsed // 30_000),
            (self.positions.time, ">i8", time_ms),
        ):
            there = np.flatnonzero(at[which] >= 0)
            width = np.dtype(dtype).itemsize
            view = np.ndarray((max(data.size - width + 1, 0),), dtype, data, strides=(1,))
            view[start[there] + at[which[there]]] = numbers[there]
        return pa.Array.from_buffers(
            pa.binary(), len(values), [validity, offsets, pa.py_buffer(data)], values.null_count
        )


@dataclass
class _Template:
    key: bytes
    value: bytes | None
    weight: float
    offset: int = -1
    generation: int = -1
    time: int = -1


@cache
def _partition_pool(shape: Shape, partition: int) -> Pool:
    mine = [g for g in groups(shape) if partition_for(g.name, shape.partitions) == partition]
    commits = [t for g in mine if g.kind != "share" for t in _commits(g)]
    metadata = [t for g in mine if g.kind in _EMBEDDED for t in _group_metadata(shape, g)]
    rest = [t for g in mine for t in _rest(shape, g)]
    commits = commits or rest
    kinds = (commits, metadata or commits, rest or commits)
    templates = [t for kind in kinds for t in kind]
    first = np.cumsum([0, *map(len, kinds)]).tolist()
    numbers = {
        f.name: np.array([getattr(t, f.name) for t in templates], np.int64)
        for f in fields(Positions)
    }
    weights = [np.array([t.weight for t in kind]) for kind in kinds]
    return Pool(
        keys=pa.array([t.key for t in templates], pa.binary()),
        values=pa.array([t.value for t in templates], pa.binary()),
        positions=Positions(**numbers),
        first=(first[0], first[1], first[2]),
        weights=tuple(w / w.sum() for w in weights),
    )


def _rng(*seeds: object) -> random.Random:
    return random.Random(repr(seeds))  # noqa: S311 - to be the same in every run


def _topic_id(topic: str) -> str:
    return base64.urlsafe_b64encode(_rng(topic).randbytes(16)).decode().rstrip("=")


# -- offset commits -----------------------------------------------------------------------------


def _commits(group: Group) -> Iterator[_Template]:
    rng = _rng("commits", group.name)
    version = rng.choices((1, 3, 4), (4, 86, 10))[0]
    has_text = group.kind == "streams" or rng.random() < 0.1  # noqa: PLR2004 - one in ten
    text = base64.b64encode(rng.randbytes(14)).decode() if has_text else ""
    count = sum(partitions for _, partitions in group.topics)
    for topic, partitions in group.topics:
        values: dict[str, object] = {"offset": 0, "metadata": text, "commitTimestamp": 0}
        if version == 1:
            values["expireTimestamp"] = _START_MS + 7 * _SPAN_MS
        else:
            values["leaderEpoch"] = rng.randrange(40)
        if version >= _FLEXIBLE_FROM:
            values["topicId"] = _topic_id(topic)
        value = encode_value(_OFFSET_COMMIT, version, values)
        after_epoch = 10 if version == 1 else 14
        text_header = 1 if version >= _FLEXIBLE_FROM else _TEXT_HEADER
        for partition in range(partitions):
            keys = {"group": group.name, "topic": topic, "partition": partition}
            yield _Template(
                encode_key(_OFFSET_COMMIT, keys),
                value,
                group.weight / count,
                offset=2,
                time=after_epoch + text_header + len(text),
            )


# -- metadata of classic groups -----------------------------------------------------------------

_EMBEDDED = {"consumer": "ConsumerProtocol", "connect": "ConnectProtocol"}


def _group_metadata(shape: Shape, group: Group) -> Iterator[_Template]:
    rng = _rng("group metadata", group.name)
    version = rng.choices((2, 3, 4), (10, 75, 15))[0]
    protocol = rng.choice(_ASSIGNORS) if group.kind == "consumer" else "sessioned"
    host = f"/10.{rng.randrange(256)}.{rng.randrange(256)}."
    shares = _shares(group, _log_uniform(rng, *shape.members))
    # Nobody gives an instance id to two clients of a group.
    most = len(shares) + _VARIANTS
    numbers = iter(rng.sample(range(max(100, most)), most))

    def member(share: list[tuple[str, list[int]]]) -> dict[str, object]:
        client = (f"{group.name}-{next(numbers)}", f"{host}{rng.randrange(256)}")
        return _member(rng, group, version, client, share)

    members = [member(share) for share in shares]
    for variant in range(_VARIANTS):
        # One member goes and another takes its share, as when it is restarted.
        changed = variant % len(members)
        members = [*members]
        members[changed] = member(shares[changed])
        leader = str(members[0]["memberId"])
        values = {
            "protocolType": group.kind,
            "generation": 0,
            "protocol": protocol,
            "leader": leader,
            "currentStateTimestamp": 0,
            "members": members,
        }
        header = 1 if version >= _FLEXIBLE_FROM else _TEXT_HEADER
        generation = 2 + header + len(group.kind)
        yield _Template(
            encode_key(_GROUP_METADATA, {"group": group.name}),
            encode_value(_GROUP_METADATA, version, values),
            group.weight / _VARIANTS,
            generation=generation,
            time=generation + 4 + header + len(protocol) + header + len(leader),
        )


def _log_uniform(rng: random.Random, low: int, high: int) -> int:
    """Draw a number of members: small groups are the rule."""
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def _shares(group: Group, members: int) -> list[list[tuple[str, list[int]]]]:
    """Deal the partitions of a group's topics out to its members."""
    return [
        [
            (topic, owned)
            for topic, partitions in group.topics
            if (owned := list(range(i, partitions, members)))
        ]
        for i in range(members)
    ]


def _member(
    rng: random.Random,
    group: Group,
    version: int,
    client: tuple[str, str],
    share: list[tuple[str, list[int]]],
) -> dict[str, object]:
    name, host = client
    uuid = "-".join(rng.randbytes(n).hex() for n in (4, 2, 2, 2, 6))
    made: dict[str, object] = {
        "memberId": f"{name}-{uuid}",
        "clientId": name,
        "clientHost": host,
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
    }
    if version > 2:  # noqa: PLR2004 - the last one without static members
        made["groupInstanceId"] = name if rng.random() < 0.2 else None  # noqa: PLR2004
    kind = _EMBEDDED[group.kind]
    contents = _connect(host, share) if group.kind == "connect" else _consumer(group, share)
    messages = embedded_messages()
    for field, (embedded_version, values) in contents.items():
        message = messages[kind + field.capitalize()]
        made[field] = encode_message(message, embedded_version, values)
    return made


def _consumer(
    group: Group, share: list[tuple[str, list[int]]]
) -> dict[str, tuple[int, dict[str, object]]]:
    owned = [{"Topic": topic, "Partitions": partitions} for topic, partitions in share]
    version = group.number % 3 + 1
    subscription: dict[str, object] = {
        "Topics": [topic for topic, _ in group.topics],
        "OwnedPartitions": owned if group.number % 2 else [],
    }
    return {
        "subscription": (version, subscription),
        "assignment": (version, {"AssignedPartitions": owned}),
    }


def _connect(
    host: str, share: list[tuple[str, list[int]]]
) -> dict[str, tuple[int, dict[str, object]]]:
    url = f"http:/{host}:8083/"
    tasks = [{"connector": topic, "tasks": partitions} for topic, partitions in share]
    assignment: dict[str, object] = {
        "error": 0,
        "leader": "connect-1",
        "leaderUrl": url,
        "configOffset": 12,
        "assignment": tasks,
        "revoked": None,
        "delay": 0,
    }
    return {
        "subscription": (1, {"url": url, "configOffset": 12, "allocation": None}),
        "assignment": (1, assignment),
    }


# -- tombstones, and records of the new protocols -------------------------------------------------


def _rest(shape: Shape, group: Group) -> Iterator[_Template]:
    made = list(_tombstones(group) if group.kind in _EMBEDDED else _modern(shape, group))
    for key, value in made:
        yield _Template(key, value, group.weight / len(made))


def _tombstones(group: Group) -> Iterator[Pair]:
    yield encode_key(_GROUP_METADATA, {"group": group.name}), None
    for topic, partitions in group.topics:
        for partition in range(partitions):
            keys = {"group": group.name, "topic": topic, "partition": partition}
            yield encode_key(_OFFSET_COMMIT, keys), None


def _modern(shape: Shape, group: Group) -> Iterator[Pair]:
    """Return what a group of a new protocol writes when its members come."""
    rng = _rng("modern", group.name)
    key = {"GroupId": group.name}
    number = {"new": 3, "share": 11, "streams": 17}[group.kind]
    epoch = {"Epoch": rng.randrange(1, 500), "MetadataHash": rng.getrandbits(62)}
    yield encode_key(number, key), encode_value(number, 0, epoch)
    if group.kind == "streams":
        return
    is_share = group.kind == "share"
    if not is_share:
        time_ms = _START_MS + rng.randrange(_SPAN_MS)
        values = {"AssignmentEpoch": epoch["Epoch"], "AssignmentTimestamp": time_ms}
        yield encode_key(6, key), encode_value(6, 0, values)
    for share in _shares(group, _log_uniform(rng, *shape.members)):
        member = {**key, "MemberId": base64.urlsafe_b64encode(rng.randbytes(16)).decode()[:22]}
        description = {
            "RackId": rng.choice((None, "eu-west-1a")),
            "ClientId": f"{group.name}-{rng.randrange(100)}",
            "ClientHost": f"/10.1.{rng.randrange(256)}.{rng.randrange(256)}",
            "SubscribedTopicNames": [topic for topic, _ in group.topics],
        }
        if is_share:
            yield encode_key(10, member), encode_value(10, 0, description)
            continue
        more = {
            "InstanceId": None,
            "SubscribedTopicRegex": "",
            "RebalanceTimeoutMs": 300_000,
            "ServerAssignor": "uniform",
            "ClassicMemberMetadata": None,
        }
        owned = [
            {"TopicId": _topic_id(topic), "Partitions": positions} for topic, positions in share
        ]
        now = {
            "MemberEpoch": epoch["Epoch"],
            "PreviousMemberEpoch": max(int(epoch["Epoch"]) - 1, 0),
            "State": 0,
            "AssignedPartitions": owned,
            "PartitionsPendingRevocation": [],
        }
        yield encode_key(5, member), encode_value(5, 0, {**description, **more})
        yield encode_key(7, member), encode_value(7, 0, {"TopicPartitions": owned})
        yield encode_key(8, member), encode_value(8, 0, now)
        yield encode_key(8, member), None


# -- command line ---------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what the topic looks like."""
    default = Shape()
    parser.add_argument("--records", type=int, default=default.records)
    parser.add_argument("--groups", type=int, default=default.groups)
    parser.add_argument("--members", type=_span, default=default.members, metavar="MIN-MAX")
    parser.add_argument("--partitions", type=int, default=default.partitions)
    parser.add_argument(
        "--skew", type=float, default=default.skew, help="share of the busiest group"
    )
    parser.add_argument(
        "--share",
        type=_shares_of_kinds,
        default={},
        metavar="commits=0.92,group_metadata=0.05",
        help="the rest are tombstones and records of the new protocols",
    )
    parser.add_argument("--seed", type=int, default=default.seed)


def shape_of(given: argparse.Namespace) -> Shape:
    """Make a shape of the options."""
    names = ("records", "groups", "members", "partitions", "skew", "seed")
    return Shape(**{name: getattr(given, name) for name in names}, **given.share)


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def _shares_of_kinds(text: str) -> dict[str, float]:
    shares = {name: float(share) for name, _, share in (p.partition("=") for p in text.split(","))}
    if not shares.keys() <= {"commits", "group_metadata"} or sum(shares.values()) > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not like commits=0.92,group_metadata=0.05")
    return shares


def main() -> None:
    """Write a topic as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="PATH")
    given = parser.parse_args()
    started = time.monotonic()
    generate(shape_of(given), given.out)
    size = sum(f.stat().st_size for f in given.out.glob("*.parquet"))
    taken = time.monotonic() - started
    print(f"{given.records:,} records, {size / 1e6:,.0f} MB, in {taken:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
