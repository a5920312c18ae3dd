"""Plays random lives of groups with Kafka's own coordinator, and prints what is told wrong.

``benchmarks/run.sh lives --seed 1 --count 300`` makes up lives of all kinds and protocols
(`tests.lives.scripts`), lets the coordinator of the broker's JARs play them in virtual time, folds
the records, and holds states, generations, causes, members, owners, ends of sessions and alarms
against the coordinator's own objects and words. It prints the figures by protocol, then what is
told wrong, the worst first, each with what plays it again: ``--only NUMBER`` with the same seed.

``--only 7 --set static=true assignor=range session_ms=30000`` plays life 7 once more, with clients
that have other settings. ``--compact`` reads the log as its cleaner leaves it, ``--gap D`` not at
all for D days. ``--moments N`` also looks at each life as a run would have at N times, each shortly
behind a change: who is called then hears what was known then. ``--runs M`` follows each alarm
through runs every M minutes: what is taken back, told again, told twice, or otherwise than by one
run. The exit status is 1 if an alarm is false or trouble is not told.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from tests.lives.judge import Reading, Verdict, judge
from tests.lives.player import play
from tests.lives.runs import followed
from tests.lives.scripts import DAY, KINDS, MINUTE, of_seed
from tests.support.kafka_classes import jdk

_CHUNK = 20
_OF_KIND = 3
_COLUMNS = (
    ("state right", "state_right_ms", "state_ms"),
    ("wrong", "state_wrong_ms", "state_ms"),
    ("untrue", "state_untrue_ms", "state_ms"),
    ("joining told", "rebalancing_told_ms", "rebalancing_ms"),
    ("generations", "generations_found", "generations"),
    ("bounds", "joins_in_bounds", "joins"),
    ("causes", "causes_right", "causes"),
    ("members", "members_right", "members"),
    ("owners", "owners_right", "owners"),
    ("ends", "ends_right", "ends"),
)


def main() -> int:
    """Play lives; give the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="what they are made up from")
    parser.add_argument("--count", type=int, default=len(KINDS), help="how many: one of each kind")
    parser.add_argument("--only", type=int, help="the one with this number, and all that is wrong")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings")
    parser.add_argument("--compact", action="store_true", help="as the log cleaner leaves the log")
    parser.add_argument("--gap", type=float, default=0, metavar="D", help="days without a run")
    parser.add_argument("--moments", type=int, default=0, metavar="N", help="alarms as of then")
    parser.add_argument("--runs", type=int, default=0, metavar="M", help="a run every M minutes")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="all cores if unset")
    options = parser.parse_args()

    started = time.monotonic()
    numbers = list(range(options.count)) if options.only is None else [options.only]
    parts = [numbers[i : i + _CHUNK] for i in range(0, len(numbers), _CHUNK)]
    is_cut = options.compact or options.gap > 0
    reading = Reading(is_cut, int(options.gap * DAY), options.moments)
    asked = reading, options.runs * MINUTE
    work = partial(_played, options.seed, _own(options.set), asked, jdk())
    with ProcessPoolExecutor(options.processes) as pool:
        verdicts = [v for part in pool.map(work, parts) for v in part]
    print("\n".join(table(verdicts)))
    print("\n".join(_told_wrong(verdicts, None if options.only is not None else _OF_KIND)))
    figures = sum((v.figures for v in verdicts), Counter())
    bad = figures["alarmed"] + figures["untrue"] + figures["missed"] + figures["meanwhile"]
    meanwhile = f"; false alarms at {figures['meanwhile']} of the moments between"
    print(
        f"{len(verdicts)} lives of seed {options.seed} in {time.monotonic() - started:.0f} s:"
        f" {figures['alarmed']} of {figures['ordinary']} ordinary groups alarmed, untrue alarms in"
        f" {figures['untrue']} of {figures['trouble']} with trouble, which is not told in"
        f" {figures['missed']}, and as info in {figures['told_as_info']}"
        + (meanwhile if options.moments else "")
    )
    return 1 if bad else 0


def _played(
    seed: int, own: dict[str, Any], asked: tuple[Reading, int], java: str, numbers: list[int]
) -> list[Verdict]:
    reading, period_ms = asked
    lives = [of_seed(seed, number, own) for number in numbers]
    verdicts = []
    for played in play(lives, seed, java):
        verdict = judge(played, reading)
        if period_ms:
            verdict.wrong.extend(followed(played, period_ms))
        verdicts.append(verdict)
    return verdicts


def _own(given: list[str]) -> dict[str, Any]:
    """Read settings; an assignor is one of both protocols."""
    own: dict[str, Any] = {}
    for setting in given:
        name, _, value = setting.partition("=")
        try:
            own[name] = json.loads(value)
        except ValueError:
            own[name] = value
        if name == "assignor":
            own["assignors"] = [value]
    return own


def table(verdicts: list[Verdict]) -> list[str]:
    """Return the figures as a table of Markdown, a line for each protocol."""
    by_protocol: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        by_protocol[verdict.protocol].update(verdict.figures)
    heads = " | ".join(name for name, _, _ in _COLUMNS)
    lines = [f"| protocol | groups | {heads} |", "|---" * (len(_COLUMNS) + 2) + "|"]
    for protocol, counts in sorted(by_protocol.items()):
        cells = " | ".join(_share(counts[part], counts[whole]) for _, part, whole in _COLUMNS)
        lines.append(f"| {protocol} | {counts['groups']} | {cells} |")
    return lines


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"


def _told_wrong(verdicts: list[Verdict], most: int | None) -> Iterator[str]:
    """Yield what is told wrong, a kind after the other, the worst first."""
    by_what: defaultdict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for verdict in verdicts:
        for wrong in verdict.wrong:
            by_what[wrong.what].append((wrong.weight, wrong.group, wrong.detail))
    for what, all_of in sorted(by_what.items(), key=lambda item: -sum(w for w, _, _ in item[1])):
        of_group: dict[str, tuple[float, str, str]] = {}
        for one in sorted(all_of, reverse=True):
            of_group.setdefault(one[1], one)
        yield f"\n{what}: {len(all_of)} in {len(of_group)} groups"
        shown = sorted(all_of, reverse=True) if most is None else list(of_group.values())[:most]
        for _, group, detail in shown:
            yield f"  {group}: {detail}"


if __name__ == "__main__":
    sys.exit(main())
