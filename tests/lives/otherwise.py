"""Lives that are played twice: as they are, and with the setting that is to prevent rebalances.

What is counted of the first life is held against what then happens in the second. ``PYTHONPATH=.
.venv-dev/bin/python -m tests.lives.otherwise`` prints the table of docs/accuracy.md.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

from reporting.remedies import COOPERATIVE, DELAY, POLL, SESSION, STATIC, Remedies, Remedy, remedies
from tests.lives.judge import write
from tests.lives.player import Played, play
from tests.lives.scripts import (
    CLASSIC,
    CONSUMER,
    MINUTE,
    SECOND,
    Kind,
    Life,
    Script,
)
from tests.support.history import commits_of, logs_of, rebuild
from tests.support.kafka_classes import jdk
from tests.support.remedies import with_nulls
from timeline.model import GENERATIONS, SESSIONS

Row = dict[str, Any]
SEED = 3


class Case(NamedTuple):
    """A life, and the remedy that it is played again with; None if none is to be named.

    `style` is what its clients have, `broker` what its broker has.
    """

    title: str
    protocol: str
    remedy: str | None
    write: Callable[[Script], None]
    style: Mapping[str, Any] = MappingProxyType({})
    broker: Mapping[str, Any] = MappingProxyType({})


class Outcome(NamedTuple):
    """What became of a life."""

    case: Case
    found: Remedies
    counted: Remedy | None  # the remedy, of the life as it was
    before: tuple[int, int]  # how many rebalances it had, and what they cost
    after: tuple[int, int]  # the same with the remedy's setting


# -- lives -----------------------------------------------------------------------------------------


def _app(s: Script, members: int, **style: object) -> None:
    s.style |= {"static": False, "moves_hosts": False, "shares_id": False, "poll_ms": 400}
    s.style |= {"revoke_ms": 0, "session_ms": 45_000, **style}
    s.app(members, members)


def _rolling(s: Script) -> None:
    _app(s, 5)
    for at in (10 * MINUTE, 100 * MINUTE):
        s.rolling(at)


def _crashes(s: Script) -> None:
    _app(s, 4)
    for number, at in enumerate(range(10 * MINUTE, 170 * MINUTE, 20 * MINUTE)):
        slot = str(number % 4)
        s.end(at, slot, "crash")
        s.start(at + s.between(2, 25) * SECOND, slot)


def _slow_restarts(s: Script) -> None:
    _app(s, 4, static=True, session_ms=10_000)
    for number, at in enumerate(range(10 * MINUTE, 170 * MINUTE, 15 * MINUTE)):
        s.restart(at, str(number % 4), s.between(14, 40) * SECOND)


def _hangs(s: Script) -> None:
    _app(s, 4, session_ms=10_000)
    at = 10 * MINUTE
    while at < 170 * MINUTE:
        s.do(at, "freeze", client=s.running["1"], ms=s.between(13, 40) * SECOND)
        at += s.between(2, 15) * MINUTE


def _slow_polls(s: Script) -> None:
    _app(s, 3, max_poll_ms=60_000)
    at = 10 * MINUTE
    while at < 170 * MINUTE:
        takes = s.between(70, 110) * SECOND
        s.do(at, "work", client=s.running["1"], ms=takes)
        at += takes + s.between(1, 10) * SECOND


def _scales(s: Script) -> None:
    _app(s, 6)
    for at in range(10 * MINUTE, 170 * MINUTE, 20 * MINUTE):
        s.scale(at, 5)
        s.scale(at + 10 * MINUTE, 6)


def _starts(s: Script) -> None:
    _app(s, 6)
    for at in range(20 * MINUTE, 160 * MINUTE, 30 * MINUTE):
        s.stop_all(at)
        for number in range(6):
            s.start(at + 5 * MINUTE + number * s.between(1_200, 3_500), str(number))


def _dies(s: Script) -> None:
    _app(s, 4)
    at = 10 * MINUTE
    while at < 110 * MINUTE:
        s.end(at, "0", "crash")
        s.start(at + 8 * SECOND, "0")
        at += s.between(40, 120) * SECOND


def _at_once(apart: int) -> Callable[[Script], None]:
    """Return a life whose members are deployed all at once, twice, and start so far apart."""

    def life(s: Script) -> None:
        _app(s, 5)
        for at in (10 * MINUTE, 100 * MINUTE):
            s.stop_all(at, SECOND)
            for number in range(5):
                s.start(at + 10 * SECOND + number * apart, str(number))

    return life


_RANGE, _COOPERATIVE = {"assignors": ["range"]}, {"assignors": ["cooperative-sticky"]}
_MOVES = {"moves_hosts": True}
_NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
CASES = (
    Case("rolling restarts, range", CLASSIC, STATIC, _rolling, _RANGE),
    Case("rolling restarts, cooperative-sticky", CLASSIC, STATIC, _rolling, _COOPERATIVE),
    Case("rolling restarts with new addresses", CLASSIC, STATIC, _rolling, _RANGE | _MOVES),
    Case("rolling restarts, new protocol", CONSUMER, STATIC, _rolling),
    Case("members die and are back", CLASSIC, STATIC, _crashes, _RANGE),
    Case("static members, slow to restart", CLASSIC, SESSION, _slow_restarts, _RANGE),
    Case("a member hangs again and again", CLASSIC, SESSION, _hangs, _RANGE),
    Case("a member polls too seldom", CLASSIC, POLL, _slow_polls, _RANGE),
    Case("scale-in and scale-out, range", CLASSIC, COOPERATIVE, _scales, _RANGE),
    Case(
        *("starts without initial delay", CLASSIC, DELAY, _starts, _COOPERATIVE),
        _NO_DELAY,
    ),
    Case("a member dies again and again", CLASSIC, None, _dies, _COOPERATIVE),
)
# What the log of rolling restarts tells nothing of decides how many rebalances these have.
AT_ONCE = (
    Case("within a second", CLASSIC, None, _at_once(SECOND // 5), _RANGE),
    Case("far apart, no initial delay", CLASSIC, None, _at_once(4 * SECOND), _RANGE, _NO_DELAY),
    Case("new protocol", CONSUMER, None, _at_once(SECOND // 5)),
)


# -- playing ---------------------------------------------------------------------------------------


def outcome(case: Case) -> Outcome:
    """Play a life, count, and play it again with what is counted."""
    java = jdk()
    (first,) = play([_life(case, {}, {})], SEED, java)
    rows, sessions = history(first)
    found = remedies(rows, sessions)
    counted = next((r for r in found.named if r.kind == case.remedy), None)
    own, broker = settings(counted)
    if case.remedy is None:
        own = {"static": True}
    (second,) = play([_life(case, own, broker)], SEED, java)
    return Outcome(case, found, counted, _sums(rows), _sums(history(second)[0]))


def rebalances(case: Case) -> int:
    """Play a life, and count its rebalances."""
    (played,) = play([_life(case, {}, {})], SEED, jdk())
    return _sums(history(played)[0])[0]


def settings(remedy: Remedy | None) -> tuple[Row, Row]:
    """Return the settings of a remedy, for clients and for brokers as lives have them."""
    own: Row = {}
    broker: Row = {}
    for part in "" if remedy is None else remedy.setting.split():
        name, _, value = part.partition("=")
        if name == "group.instance.id":
            own["static"] = True
        elif name == "session.timeout.ms":
            own["session_ms"] = int(value)
        elif name == "max.poll.interval.ms":
            own["max_poll_ms"] = int(value)
        elif name == "cooperative-sticky":
            own["assignors"] = ["cooperative-sticky"]
        elif name.startswith(("group.initial.", "group.consumer.")):
            broker[name] = value
    return own, broker


def _life(case: Case, own: Row, broker: Row) -> Life:
    def make(s: Script) -> None:
        s.style |= case.style
        s.broker = {**case.broker, **broker}
        case.write(s)

    kind = Kind("otherwise", case.protocol, "", (), (3, 3), make)
    name = f"{case.protocol}-{(*CASES, *AT_ONCE).index(case)}"
    rng = random.Random(name)  # noqa: S311 - to be the same
    return Script(kind, name, rng, own).written()


def history(played: Played) -> tuple[list[Row], list[Row]]:
    """Return generations and sessions of a life, as the records tell them."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        write(played.records, path)
        (log,) = logs_of(path)
        logs_of.cache_clear()
        commits_of.cache_clear()
    told = rebuild(log)
    rows = sorted(told[GENERATIONS], key=lambda r: r["record_offset"])
    sessions = [with_nulls(SESSIONS, r) for r in told[SESSIONS]]
    return [with_nulls(GENERATIONS, r) for r in rows], sessions


def _sums(rows: list[Row]) -> tuple[int, int]:
    begun = [row for row in rows if row["join_started_at"] is not None]
    return len(begun), sum(row["cost_member_ms"] or 0 for row in begun)


def table(outcomes: Iterable[Outcome]) -> str:
    """Return what was counted and what happened, as a table of Markdown."""
    lines = [
        "| life | setting | rebalances | counted | not there | cost, s | then |",
        "|---|---|---|---|---|---|---|",
    ]
    for done in outcomes:
        remedy, (before, cost), (after, cost_after) = done.counted, done.before, done.after
        most = "at most " if remedy is not None and remedy.is_most else ""
        cells = [
            done.case.title,
            _short(remedy),
            str(before),
            "0" if remedy is None else f"{most}{remedy.rebalances}",
            str(before - after),
            f"{cost / SECOND:.0f}",
            f"{cost_after / SECOND:.0f}",
        ]
        if remedy is not None and remedy.kind == COOPERATIVE:
            cells[3] = f"{remedy.saved_member_ms / SECOND:.0f} s"
            cells[4] = f"{(cost - cost_after) / SECOND:.0f} s"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _short(remedy: Remedy | None) -> str:
    """Write a setting in few words: what it is, and the value if it has one."""
    if remedy is None:
        return "none; static members"
    value = re.search(r"=(\d+)", remedy.setting)
    names = {
        STATIC: "static members, sessions of",
        SESSION: "sessions of",
        POLL: "polls up to",
        DELAY: "initial delay of",
        COOPERATIVE: "cooperative-sticky",
    }
    return names[remedy.kind] + (f" {int(value[1]) // SECOND} s" if value else "")


def main() -> None:
    """Print the table."""
    print(table(map(outcome, CASES)))  # noqa: T201 - to be seen


if __name__ == "__main__":
    main()
