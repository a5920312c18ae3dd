"""Holds the decoder against Kafka's own classes, on keys and values that were damaged.

``benchmarks/run.sh differential --records 1000000 --seed 1`` damages records of all types and
versions in all the ways of `tests.damage`, lets the decoder and the classes of a broker read each,
and compares whether they read it and every field. It prints how often they agree, differ with a
reason (docs/decoding.md has these), and differ without one: such records are shown, and the exit
status is 1. The same seed and number give the same record.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.messages import record_types
from tests.damage import KINDS, damaged_more, of_any_version
from tests.factories import Pair, decode_all, record_batch
from tests.support.kafka_classes import (
    BOTH_READ,
    BOTH_REFUSE,
    DIFFERENT,
    REASONS,
    KafkaClasses,
    NoJdkError,
    compare_record,
    jdk,
    type_of,
)

SEVERAL = "two or three of these"
_CHUNK = 5_000
_SHOWN = 20
_VERDICTS = (BOTH_READ, BOTH_REFUSE, *REASONS, DIFFERENT)


class Case(NamedTuple):
    """A record to compare: what was done to it, the type it had before, what it is now."""

    kind: str
    record_type: str
    pair: Pair


@dataclass
class Tally:
    """What became of the records, and the first ones that differ without a reason."""

    by_kind: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    by_type: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    different: list[tuple[int, Case, list[str]]] = field(default_factory=list)


def main() -> int:
    """Compare records; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=100_000, help="how many (default 100000)")
    parser.add_argument("--seed", type=int, default=0, help="what they are made up from")
    options = parser.parse_args()
    try:
        java = jdk()
    except NoJdkError as error:
        sys.exit(str(error))

    started = time.monotonic()
    with KafkaClasses(java) as kafka:
        tally = compare(kafka, options.records, options.seed)
    _print_table("what was done", tally.by_kind)
    _print_table("record type, before", dict(sorted(tally.by_type.items(), key=_number)))
    for number, case, found in tally.different:
        key, value = (None if part is None else part.hex() for part in case.pair)
        print(f"record {number}, {case.kind}: key {key} value {value}")
        for text in found:
            print(f"  {text}")
    seconds = time.monotonic() - started
    count = sum(seen[DIFFERENT] for seen in tally.by_kind.values())
    print(
        f"{options.records} records of seed {options.seed} in {seconds:.0f} s: "
        f"{count} differ without a reason"
    )
    return 1 if count else 0


def compare(kafka: KafkaClasses, records: int, seed: int) -> Tally:
    """Hold the decoder against Kafka on so many records."""
    tally = Tally()
    for first in range(0, records, _CHUNK):
        cases = list(cases_of(seed, first // _CHUNK))[: records - first]
        pairs = [case.pair for case in cases]
        kafka.send(pairs)
        rows = decode_all(record_batch(pairs))
        answers = kafka.answers(len(pairs))
        for at, (case, row, theirs) in enumerate(zip(cases, rows, answers, strict=True)):
            verdict, found = compare_record(case.pair, row, theirs)
            tally.by_kind[case.kind][verdict] += 1
            tally.by_type[case.record_type][verdict] += 1
            if verdict == DIFFERENT and len(tally.different) < _SHOWN:
                tally.different.append((first + at, case, found))
    return tally


def cases_of(seed: int, chunk: int) -> Iterator[Case]:
    """Damage the records of a chunk: each kind of damage as often as the others."""
    rng = random.Random(f"{seed} {chunk}")  # noqa: S311 - to be the same in every run
    kinds = [*KINDS, SEVERAL]
    for number in range(_CHUNK):
        kind = kinds[number % len(kinds)]
        pair = of_any_version(rng)
        declared = record_types()[type_of(pair) or 0]
        if kind == SEVERAL:
            damaged = damaged_more(pair, rng.choice((2, 3)), rng)
        else:
            damaged = KINDS[kind](pair, rng)
        yield Case(kind, f"{declared.id} {declared.name}", damaged)


def _number(item: tuple[str, object]) -> int:
    return int(item[0].partition(" ")[0])


def _print_table(title: str, counts: Mapping[str, Counter[str]]) -> None:
    verdicts = [v for v in _VERDICTS if any(c[v] for c in counts.values())]
    lines = [[title, "records", *verdicts]]
    for name, of_name in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        lines.append([name, f"{of_name.total()}", *(f"{of_name[v]}" for v in verdicts)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
        print("  ".join(cells))
    print()


if __name__ == "__main__":
    sys.exit(main())
