"""Kafka's own classes and ours take and refuse the same records, and read the same from them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from benchmarks.differential import SEVERAL, cases_of
from benchmarks.differential import compare as compare_cases
from benchmarks.row_decoder import DecodedRow, Rejected
from tests.damage import KINDS, damaged, pool
from tests.factories import TOPIC_ID, Pair, decode_all, offset_commit, record_batch
from tests.support.kafka_classes import (
    BOTH_READ,
    BOTH_REFUSE,
    DIFFERENT,
    KafkaClasses,
    compare_record,
)

DAMAGED = 20_000


def compare(kafka: KafkaClasses, pairs: Sequence[Pair]) -> Counter[str]:
    """Hold the decoder against Kafka, and count what the records were."""
    seen: Counter[str] = Counter()
    kafka.send(pairs)
    rows = decode_all(record_batch(pairs))
    for pair, row, theirs in zip(pairs, rows, kafka.answers(len(pairs)), strict=True):
        verdict, found = compare_record(pair, row, theirs)
        assert not found, f"key={pair[0]!r} value={pair[1]!r}: {found}"
        seen[verdict] += 1
        if verdict == BOTH_READ and (theirs["keyLeft"] or theirs["valueLeft"]):
            seen["with bytes left"] += 1
    return seen


def test_kafka_reads_the_same_from_sound_records(kafka_classes: KafkaClasses) -> None:
    seen = compare(kafka_classes, pool())
    assert seen[BOTH_REFUSE] == 0, seen
    assert seen[BOTH_READ] > 0.8 * len(pool()), seen


def test_kafka_takes_and_refuses_the_same_of_damaged_records(kafka_classes: KafkaClasses) -> None:
    rng = random.Random("against Kafka")  # noqa: S311 - to be the same in every run
    seen = compare(kafka_classes, [damaged(rng) for _ in range(DAMAGED)])
    assert seen[BOTH_REFUSE] > 0.2 * DAMAGED, seen
    assert seen[BOTH_READ] > 0.2 * DAMAGED, seen
    assert seen["with bytes left"] > 0.02 * DAMAGED, seen


def test_what_differs_is_seen(kafka_classes: KafkaClasses) -> None:
    pair = (offset_commit()[0] + b"\0", offset_commit()[1] + b"\0\0")
    [row] = decode_all(record_batch([pair]))
    kafka_classes.send([pair])
    [theirs] = kafka_classes.answers(1)
    assert isinstance(row, DecodedRow)
    assert compare_record(pair, row, theirs) == (BOTH_READ, [])
    for change in (
        {"committed_offset": 43},
        {"metadata": None},
        {"topic_id": TOPIC_ID},
        {"decode_notes": None},
        {"decode_notes": ["trailing_bytes: 3 after OffsetCommitValue"]},
        {"is_tombstone": True},
    ):
        other = DecodedRow(row.table, {**row.columns, **change})
        verdict, found = compare_record(pair, other, theirs)
        assert (verdict, len(found)) == (DIFFERENT, 1)
    refused = Rejected(1, 3, "a reason")
    assert compare_record(pair, refused, theirs)[0] == DIFFERENT
    assert compare_record(pair, row, {"refused": "a reason"})[0] == DIFFERENT


def test_the_benchmark_makes_the_same_records_of_a_seed(kafka_classes: KafkaClasses) -> None:
    cases = list(cases_of(7, 0))
    assert cases == list(cases_of(7, 0))
    assert cases != list(cases_of(7, 1))
    tally = compare_cases(kafka_classes, records=150, seed=7)
    assert {kind: seen.total() for kind, seen in tally.by_kind.items()} == dict.fromkeys(
        (*KINDS, SEVERAL), 10
    )
    assert not tally.different


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_damaged_records(kafka_classes: KafkaClasses) -> None:
    tally = compare_cases(kafka_classes, records=1_000_000, seed=0)
    assert not tally.different
