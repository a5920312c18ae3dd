"""Plays random lives of groups against a model of Kafka's coordinator, and prints what broke.

``benchmarks/run.sh model --lives 100000 --seed 7`` makes up lives from a seed, folds the records
that the coordinator of `tests.support.coordinator` writes of them, holds the history against what
it knew, and prints each kind of failure once, with the fewest steps that show it. The exit status
is 1 if anything broke. The same seed and number give the same life.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.support.lives import failure, of_seed, shrunk

_CHUNK = 50


def main() -> int:
    """Play lives; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lives", type=int, default=20_000, help="how many (default 20000)")
    parser.add_argument("--seed", type=int, default=0, help="what they are made up from")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="all cores if unset")
    options = parser.parse_args()

    started = time.monotonic()
    broken: dict[str, list[int]] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        failures = pool.map(partial(_failure, options.seed), range(options.lives), chunksize=_CHUNK)
        for number, found in enumerate(failures):
            if found is not None:
                broken.setdefault(found.partition(": ")[0], []).append(number)
    for kind, numbers in broken.items():
        _print(kind, options.seed, numbers)
    count = sum(map(len, broken.values()))
    seconds = time.monotonic() - started
    print(f"{options.lives} lives of seed {options.seed} in {seconds:.0f} s: {count} broke")
    return 1 if broken else 0


def _failure(seed: int, number: int) -> str | None:
    return failure(of_seed(seed, number))


def _print(kind: str, seed: int, numbers: list[int]) -> None:
    """Print one kind of failure, as the shortest of its first lives shows it."""
    life = min((shrunk(of_seed(seed, n)) for n in numbers[:5]), key=lambda one: len(one.steps))
    print(f"{kind}: {len(numbers)} lives, seed {seed}, the first are {numbers[:5]}")
    print(f"  broker {life.broker}")
    for pause, step, arguments in life.steps:
        print(f"  {pause:>12} ms later: {step}{arguments}")
    print(f"  {failure(life)}")


if __name__ == "__main__":
    sys.exit(main())
