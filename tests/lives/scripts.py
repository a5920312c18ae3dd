"""Makes up lives of groups: what happens when, in words that Lives.java plays.

A kind of life is a function that writes a script; what makes it a life of one protocol or another
is the style of its clients. The same seed and number give the same life.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = dict[str, Any]
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
START = 1_772_409_600_000
"""When each life begins: 2026-03-02 00:00 UTC, a Monday."""
ORDINARY = "ordinary"
CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
CONNECT, ASSIGN, MIGRATION = "connect", "assign", "migration"
READING = (CLASSIC, CONSUMER)
ALL = (CLASSIC, CONSUMER, SHARE, STREAMS, CONNECT)
_RECORDS = 4_000
_DAYS = 24
_CALLS = ("slow_rebalance", "stuck_rebalance")
_STORM = ("rebalance_storm", "member_flapping", "aborted_rebalances", *_CALLS)


class Kind(NamedTuple):
    """A kind of life."""

    name: str
    protocol: str
    label: str  # ordinary, or what trouble it is
    # Kinds of anomalies that tell of the trouble; of an ordinary life, such as are true.
    fits: tuple[str, ...]
    hours: tuple[float, float]  # how long it lasts, from and to
    write: Callable[[Script], None]


KINDS: list[Kind] = []


def kind(
    *protocols: str,
    label: str = ORDINARY,
    fits: tuple[str, ...] = (),
    hours: tuple[float, float] = (1, 6),
) -> Callable[[Callable[[Script], None]], Callable[[Script], None]]:
    """Make a kind of life of a function, for each of some protocols."""

    def add(write: Callable[[Script], None]) -> Callable[[Script], None]:
        name = write.__name__.strip("_")
        KINDS.extend(Kind(name, p, label, fits, hours, write) for p in protocols)
        return write

    return add


@dataclass
class Script:
    """A life that is being made up."""

    kind: Kind
    name: str
    rng: random.Random
    # What the caller wants otherwise in all of this life.
    own: Mapping[str, Any] = field(default_factory=dict)
    is_brief: bool = False  # whether it is as short as its kind can be, with fewer commits
    style: Row = field(default_factory=dict)  # what all clients have, unless a start says otherwise
    steps: list[Row] = field(default_factory=list)
    broker: Row = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    # The client in each slot of the application.
    running: dict[str, str] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    members: int = 0
    trouble_at: int | None = None  # since when there is trouble
    _starts: int = 0

    def __post_init__(self) -> None:
        rng, protocol = self.rng, self.kind.protocol
        low, high = self.kind.hours
        longer = (high / low) ** rng.random()
        self.length = int(low * (1.05 if self.is_brief else longer) * HOUR)
        self.groups.append(self.name)
        self.style = {
            "protocol": CLASSIC if protocol == MIGRATION else protocol,
            "assignors": rng.choice(
                (["range", "cooperative-sticky"], ["cooperative-sticky"], ["range"], ["sticky"])
            ),
            "assignor": rng.choice((None, None, "uniform", "range")),
            "commits": rng.choice(("all", "all", "changed")),
            "session_ms": 10_000 if protocol == CONNECT else rng.choice((45_000, 45_000, 10_000)),
            "max_poll_ms": 60_000 if protocol == CONNECT else 300_000,
            "poll_ms": rng.choice((100, 400, 1_500)),
            "revoke_ms": rng.choice((0, 0, 500, 4_000)),
            "speed": 20_000,
            "mode": rng.choice(("sessioned", "sessioned", "compatible")),
            "static": rng.random() < 0.2 and protocol in (*READING, MIGRATION),
            "moves_hosts": rng.random() < 0.5,
            "shares_id": rng.random() < 0.5,
        }

    # -- what happens -------------------------------------------------------------------------

    def between(self, least: float, most: float) -> int:
        """Return a whole number."""
        return self.rng.randint(int(least), int(most))

    def do(self, at: float, what: str, **details: object) -> None:
        """Let something happen, if the life lasts that long."""
        if at < self.length:
            self.steps.append({"at": int(at), "do": what, **details})

    def every(self, since: float, period: float) -> list[int]:
        """Return times from one on."""
        return list(range(int(since), self.length - 10 * MINUTE, int(period)))

    def topic(self, partitions: int, rate: float, name: str = "topic", at: int = 0) -> str:
        """Create a topic with so many records a second in each partition."""
        topic = f"{self.name}-{name}"
        self.do(at, "create", topic=topic, partitions=partitions, rate=rate)
        self.topics[topic] = partitions
        return topic

    def app(
        self, least: int = 2, most: int = 6, rate: float = 3, *, at: int = SECOND, spare: int = 1
    ) -> str:
        """Start an application, with a topic of its own; of Connect, with connectors.

        Args:
            least: members, at least.
            most: members, at most.
            rate: records a second in each partition.
            at: when.
            spare: for so many members more there are partitions, too.
        """
        self.members = self.between(least, most)
        topic = self.topic((self.members + spare) * self.between(1, 3), rate)
        if self.kind.protocol == CONNECT:
            for number in range(self.between(1, 4)):
                name, tasks = f"connector-{number}", self.between(1, 6)
                self.do(0, "connector", name=name, tasks=max(tasks, self.members + spare))
        self.style.setdefault("topics", []).append(topic)
        self.start_all(at)
        return topic

    def beside(self, topic: str) -> None:
        """Let another group read a topic, too, and commit what it has read."""
        name = f"{self.name}-beside"
        self.groups.append(name)
        over = {"group": name, "topics": [topic], "commits": "changed"}
        self.do(SECOND, "start", client="beside", settings=self.settings("beside", **over))

    def commit_ms(self, wanted: int = 5_000) -> int:
        """Return how often to commit, so that a life does not write more than is looked at."""
        partitions = sum(self.topics[t] for t in self.style["topics"])
        most = _RECORDS // 4 if self.is_brief else _RECORDS
        return int(max(wanted, self.length * partitions / most // 1_000 * 1_000))

    def settings(self, slot: str, **over: object) -> Row:
        """Return what a client has."""
        style = {"commit_ms": self.commit_ms(), **self.style, **over, **self.own}
        shared, number = style["shares_id"], sum(map(ord, slot))
        place = self._starts if style["moves_hosts"] else number
        own = {
            "group": self.name,
            "client_id": "app" if shared else f"app-{slot}",
            "host": f"10.{place // 60_000}.{place // 250 % 250}.{place % 250 + 1}",
            "instance": f"{self.name}-{slot}" if style["static"] else None,
        }
        return {**own, **style}

    def start(self, at: float, slot: str, **over: object) -> None:
        """Start what is in a slot of the application."""
        self._starts += 1
        client = f"{slot}.{self._starts}"
        if at < self.length:
            self.running[slot] = client
            self.do(at, "start", client=client, settings=self.settings(slot, **over))

    def end(self, at: float, slot: str, how: str = "stop") -> None:
        """Stop it, or let it crash."""
        if at < self.length and slot in self.running:
            self.do(at, how, client=self.running.pop(slot))

    def start_all(self, at: float, spread: int = 6 * SECOND, **over: object) -> None:
        """Start all members, as a scheduler does: within seconds."""
        for number in range(self.members):
            self.start(at + self.between(0, spread), str(number), **over)

    def stop_all(self, at: float, spread: int = 3 * SECOND) -> None:
        """Stop all that runs."""
        for slot in list(self.running):
            self.end(at + self.between(0, spread), slot)

    def restart(self, at: float, slot: str, down: float, **over: object) -> None:
        """Stop and start again in place."""
        self.end(at, slot)
        self.start(at + down, slot, **over)

    def rolling(self, at: float, **over: object) -> float:
        """Restart all members in place, one after the other; return when that is done."""
        gap, down = self.between(15, 90) * SECOND, self.between(2, 14) * SECOND
        for slot in list(self.running):
            self.restart(at, slot, down, **over)
            at += gap + self.between(0, gap // 3)
        return at

    def surge(self, at: float, **over: object) -> float:
        """Replace all members as a Deployment does: a new one is there before an old one goes."""
        gap = self.between(15, 60) * SECOND
        for slot, client in list(self.running.items()):
            self.start(at, slot, moves_hosts=True, static=False, **over)
            self.do(at + self.between(3, 12) * SECOND, "stop", client=client)
            at += gap + self.between(0, gap // 3)
        return at

    def scale(self, at: float, members: int) -> None:
        """Have so many members."""
        for number in range(max(members, len(self.running))):
            slot = str(number)
            if number >= members:
                self.end(at + self.between(0, 2 * SECOND), slot)
            elif slot not in self.running:
                self.start(at + self.between(0, 4 * SECOND), slot)

    def trouble(self, at: float) -> int:
        """Say since when there is trouble."""
        self.trouble_at = START + int(at)
        return int(at)

    def some(self) -> str:
        """Return a slot with a client in it."""
        return self.rng.choice(sorted(self.running))

    def written(self) -> Life:
        """Write the life."""
        self.kind.write(self)
        self.steps.sort(key=lambda step: step["at"])
        return Life(self)


class Life:
    """One life, ready to be played."""

    def __init__(self, script: Script) -> None:
        self.name, self.kind, self.groups = script.name, script.kind, script.groups
        self.trouble_at, self.end = script.trouble_at, START + script.length
        self.style = {**script.style, **script.own}
        self.broker, self.steps = script.broker, script.steps

    @property
    def is_ordinary(self) -> bool:
        """Whether nobody should be alarmed."""
        return self.kind.label == ORDINARY

    def line(self, seed: int) -> str:
        """Return it as Lives.java reads it."""
        own = {"name": self.name, "seed": seed, "start": START, "end": self.end}
        return json.dumps(
            {**own, "groups": self.groups, "broker": self.broker, "steps": self.steps}
        )


def of_seed(seed: int, number: int, own: Mapping[str, Any] | None = None) -> Life:
    """Make up a life; each kind comes as often as the others.

    Args:
        seed: a whole number.
        number: which of that seed's lives.
        own: settings of its clients that are to be others: the same life with them.
    """
    order = list(range(len(KINDS)))
    random.Random(f"{seed}/{number // len(KINDS)}").shuffle(order)  # noqa: S311 - to be the same
    chosen = KINDS[order[number % len(KINDS)]]
    rng = random.Random(f"{seed}/{number}")  # noqa: S311
    return Script(chosen, f"{chosen.protocol}-{chosen.name}-{number}", rng, own or {}).written()


def brief() -> list[Life]:
    """Return a short life of each kind that does not take days, by one protocol or another."""
    chosen: dict[str, list[Kind]] = {}
    for one in KINDS:
        if one.hours[0] < _DAYS:
            chosen.setdefault(one.name, []).append(one)
    lives = []
    for number, (name, of_name) in enumerate(chosen.items()):
        one = of_name[number % len(of_name)]
        rng = random.Random(f"brief/{name}")  # noqa: S311
        lives.append(Script(one, f"{one.protocol}-{name}", rng, is_brief=True).written())
    return lives


# -- ordinary lives -------------------------------------------------------------------------------


@kind(*ALL, hours=(0.4, 12))
def _steady(s: Script) -> None:
    s.app(1, 6)


@kind(*ALL, hours=(1, 10))
def _rolling_restart(s: Script) -> None:
    s.app()
    for at in s.every(15 * MINUTE, s.between(120, 400) * MINUTE):
        s.rolling(at)


@kind(*ALL, hours=(1, 10), fits=_CALLS[:1])
def _deployment(s: Script) -> None:
    s.app()
    for at in s.every(15 * MINUTE, s.between(120, 400) * MINUTE):
        s.surge(at)


@kind(*READING, hours=(1.5, 6))
def _rollback(s: Script) -> None:
    s.app(3, 6)
    done = s.rolling(20 * MINUTE)
    s.rolling(done + s.between(2, 30) * MINUTE)


@kind(*READING, CONNECT, hours=(1, 6))
def _all_at_once(s: Script) -> None:
    s.app()
    for at in s.every(20 * MINUTE, s.between(120, 300) * MINUTE):
        s.stop_all(at)
        s.start_all(at + s.between(15, 60) * SECOND)


@kind(CLASSIC, hours=(1.5, 5), fits=_CALLS[:1])
def _canary(s: Script) -> None:
    s.app(3, 6, spare=2)
    s.start(20 * MINUTE, "canary")
    s.end(s.between(35, 60) * MINUTE, "canary")
    s.surge(65 * MINUTE)


@kind(*READING, hours=(1.5, 5))
def _blue_green(s: Script) -> None:
    s.app(spare=6)
    for number in range(s.members):
        s.start(25 * MINUTE + s.between(0, 5_000), f"green-{number}", moves_hosts=True)
    for number in range(s.members):
        s.end(28 * MINUTE + s.between(0, 5_000), str(number))


@kind(*ALL, hours=(1, 12))
def _scale(s: Script) -> None:
    s.app(2, 4, spare=3)
    for at in s.every(20 * MINUTE, s.between(100, 300) * MINUTE):
        s.scale(at, s.members + s.between(1, 3))
        s.scale(at + s.between(30, 80) * MINUTE, s.members)


@kind(*READING, SHARE, hours=(12, 30))
def _nightly_stop(s: Script) -> None:
    s.app(1, 4)
    for at in s.every(3 * HOUR, 10 * HOUR):
        s.stop_all(at)
        s.start_all(at + s.between(200, 400) * MINUTE)


@kind(*READING, hours=(4, 12))
def _cron_job(s: Script) -> None:
    s.style["commits"] = "changed"
    s.app(1, 2, at=30 * SECOND)
    s.stop_all(3 * MINUTE)
    for at in s.every(15 * MINUTE, s.rng.choice((5, 10, 15, 30, 60)) * MINUTE):
        s.start_all(at, SECOND)
        s.stop_all(at + s.between(60, 180) * SECOND, SECOND)


@kind(*READING, STREAMS, hours=(1, 6), fits=_CALLS[:1])
def _one_crash(s: Script) -> None:
    s.app()
    for at in s.every(30 * MINUTE, s.between(200, 400) * MINUTE):
        slot = s.some()
        s.end(at, slot, "crash")
        s.start(at + s.between(2, 40) * SECOND, slot)


@kind(*READING, hours=(1, 6))
def _pauses(s: Script) -> None:
    s.style["session_ms"] = 45_000
    s.app(2, 5)
    for at in s.every(10 * MINUTE, s.between(15, 50) * MINUTE):
        s.do(at, "freeze", client=s.running[s.some()], ms=s.between(1, 25) * SECOND)


@kind(*READING, SHARE, hours=(1, 6))
def _topic_grows(s: Script) -> None:
    topic = s.app(2, 4)
    s.do(s.between(20, 40) * MINUTE, "grow", topic=topic, partitions=2 * s.topics[topic])


@kind(*READING, hours=(1.5, 8))
def _pattern(s: Script) -> None:
    s.style["pattern"] = f"{s.name}-.*"
    s.app(1, 4)
    for number, at in enumerate(s.every(30 * MINUTE, s.between(60, 200) * MINUTE)):
        s.topic(2, 1, f"new-{number}", at)


@kind(*READING, hours=(2.5, 6))
def _topics_come_and_go(s: Script) -> None:
    """Tests make some topics each hour, and delete them; a pattern matches them meanwhile."""
    s.style |= {"pattern": f"{s.name}-.*", "static": False}
    s.app(1, 4)
    for hour, at in enumerate(s.every(30 * MINUTE, s.between(55, 80) * MINUTE)):
        gone = at + s.between(20, 40) * MINUTE
        for number in range(s.between(2, 6)):
            topic = s.topic(2, 1, f"new-{hour}-{number}", at + s.between(0, 60) * SECOND)
            s.do(gone + s.between(0, 20) * SECOND, "drop", topic=topic)


@kind(*READING, SHARE, CONNECT, hours=(1, 6))
def _fail_over(s: Script) -> None:
    s.app(2, 5)
    for at in s.every(20 * MINUTE, s.between(60, 200) * MINUTE):
        s.do(at, "fail_over", group=s.name, ms=s.between(50, 900))


@kind(*READING, hours=(1, 6))
def _new_subscription(s: Script) -> None:
    second = s.topic(4, 2, "second")
    topic = s.app(2, 4)
    s.rolling(25 * MINUTE, topics=[topic, second])


@kind(*READING, hours=(3, 12))
def _idle_topic(s: Script) -> None:
    s.style["commits"] = "changed"
    topic = s.app(1, 4)
    for at in s.every(20 * MINUTE, 2 * HOUR):
        s.do(at, "produce", topic=topic, rate=0)
        s.do(at + 65 * MINUTE, "produce", topic=topic, rate=3)
    for at in s.every(s.between(24, 80) * MINUTE, 4 * HOUR):
        s.restart(at, s.some(), 5 * SECOND)


@kind(*READING, hours=(3, 6))
def _catches_up(s: Script) -> None:
    s.style["speed"] = s.between(2_000, 50_000)
    s.app(1, 4, 30)
    s.stop_all(HOUR)
    s.start_all(2 * HOUR)


@kind(CLASSIC, ASSIGN, hours=(4, 12))
def _bursts(s: Script) -> None:
    s.style["speed"] = s.between(2_000, 50_000)
    topic = s.app(1, 3, 1) if s.kind.protocol == CLASSIC else s.app(1, 1, 5)
    for at in s.every(2 * HOUR, 3 * HOUR):
        s.do(at, "produce", topic=topic, rate=1, at_once=s.between(50_000, 500_000))


@kind(ASSIGN, hours=(2, 12))
def _checkpoints(s: Script) -> None:
    s.style["commit_ms"] = s.rng.choice((10, 60, 60, 300, 600)) * SECOND
    s.app(1, 1, s.between(1, 40))
    for at in s.every(HOUR, s.between(120, 500) * MINUTE):
        s.restart(at, "0", s.between(10, 300) * SECOND)


@kind(CLASSIC, hours=(0.3, 0.7))
def _transactions(s: Script) -> None:
    every = s.rng.choice((100, 1_000, 5_000))
    s.style |= {"commits": "transactions", "commit_ms": every, "assignors": ["cooperative-sticky"]}
    s.app(1, 2, 5)
    s.restart(8 * MINUTE, "0", 8 * SECOND)


@kind(*READING, hours=(1.5, 5))
def _dropped_topic(s: Script) -> None:
    old = s.topic(2, 1, "old")
    s.style["topics"] = [old]
    topic = s.app(2, 3)
    s.rolling(30 * MINUTE, topics=[topic])
    s.do(70 * MINUTE, "delete_offsets", group=s.name, topic=old)
    s.do(80 * MINUTE, "drop", topic=old)


@kind(*READING, hours=(190, 200))
def _dropped_topic_expires(s: Script) -> None:
    old = s.topic(2, 0.01, "old")
    s.style["topics"] = [old]
    topic = s.app(2, 2, 0.01)
    s.rolling(2 * HOUR, topics=[topic])


@kind(CLASSIC, hours=(1, 3))
def _static_removed(s: Script) -> None:
    s.style |= {"static": True, "session_ms": 120_000}
    s.app(3, 5)
    s.end(30 * MINUTE, "0")
    s.do(30 * MINUTE + 20 * SECOND, "remove", group=s.name, instance=f"{s.name}-0")


@kind(CLASSIC, CONSUMER, hours=(1, 6))
def _static_restarts(s: Script) -> None:
    s.style |= {"static": True, "session_ms": s.rng.choice((45_000, 120_000))}
    s.app(2, 6)
    for at in s.every(15 * MINUTE, s.between(100, 200) * MINUTE):
        s.rolling(at)


@kind(*READING, SHARE, STREAMS, MIGRATION, hours=(100, 190))
def _long(s: Script) -> None:
    s.app(2, 4, 0.1)
    if s.kind.protocol == MIGRATION:
        s.style["protocol"] = CONSUMER
        s.rolling(20 * HOUR)
    for at in s.every(30 * HOUR, 24 * HOUR):
        s.surge(at)
    for at in s.every(60 * HOUR, 50 * HOUR):
        s.scale(at, s.members + 1)


@kind(*READING, hours=(50, 60))
def _empty_for_days(s: Script) -> None:
    s.app(1, 3, 0.1)
    s.stop_all(2 * HOUR)
    s.start_all(48 * HOUR)


@kind(*READING, hours=(2, 4))
def _decommissioned(s: Script) -> None:
    s.app(2, 3)
    s.stop_all(HOUR)
    s.do(HOUR + s.between(1, 20) * MINUTE, "delete_group", group=s.name)


@kind(CLASSIC, hours=(1.5, 5))
def _assignor_migration(s: Script) -> None:
    s.style["assignors"] = ["range"]
    s.app()
    done = s.rolling(15 * MINUTE, assignors=["cooperative-sticky", "range"])
    s.rolling(done + s.between(2, 20) * MINUTE, assignors=["cooperative-sticky"])


@kind(CONSUMER, hours=(1, 4))
def _assignor_change(s: Script) -> None:
    s.style["assignor"] = "uniform"
    s.app()
    s.rolling(20 * MINUTE, assignor="range")


@kind(MIGRATION, hours=(1, 6))
def _upgrade(s: Script) -> None:
    s.app()
    s.rolling(15 * MINUTE, protocol=CONSUMER)


@kind(MIGRATION, hours=(1, 6))
def _downgrade(s: Script) -> None:
    s.style["protocol"] = CONSUMER
    s.app()
    s.rolling(15 * MINUTE, protocol=CLASSIC)


@kind(MIGRATION, hours=(1, 6))
def _offline_upgrade(s: Script) -> None:
    s.app()
    s.stop_all(20 * MINUTE)
    s.start_all(22 * MINUTE, protocol=CONSUMER)


@kind(STREAMS, hours=(1, 8))
def _standbys(s: Script) -> None:
    s.do(0, "configure", group=s.name, settings={"streams.num.standby.replicas": "1"})
    s.app(2, 4)
    for at in s.every(20 * MINUTE, s.between(100, 200) * MINUTE):
        s.rolling(at)


@kind(CONNECT, hours=(2, 8))
def _connectors(s: Script) -> None:
    """Connectors are created, reconfigured and deleted, an hour apart."""
    s.app(2, 4)
    for number, at in enumerate(s.every(20 * MINUTE, HOUR)):
        s.do(at, "connector", name=f"new-{number}", tasks=0)
        s.do(at + s.between(3, 9) * SECOND, "connector", name=f"new-{number}", tasks=4)
        if number % 2:
            s.do(at + 20 * MINUTE, "connector", name=f"new-{number - 1}", tasks=-1)


@kind(CONNECT, hours=(1, 5))
def _worker_lost(s: Script) -> None:
    s.app(3, 5)
    s.end(20 * MINUTE, "0", "crash")
    if s.rng.random() < 0.5:
        s.start(22 * MINUTE, "0")


@kind(CONNECT, hours=(1, 4))
def _eager(s: Script) -> None:
    s.style["mode"] = "eager"
    s.app(2, 4)
    s.rolling(20 * MINUTE)


# -- lives with trouble ---------------------------------------------------------------------------


@kind(*ALL, label="crash loop", fits=_STORM, hours=(1.7, 4))
def _crash_loop(s: Script) -> None:
    s.app(2, 5)
    at, backoff = float(s.trouble(20 * MINUTE)), 10 * SECOND
    while at < 75 * MINUTE:
        s.end(at, "0", "crash")
        s.start(at + backoff, "0")
        at += backoff + s.between(5, 40) * SECOND
        backoff = min(backoff * 2, 5 * MINUTE)


@kind(*READING, STREAMS, label="slow consumer", fits=_STORM, hours=(3, 6))
def _slow_member(s: Script) -> None:
    longest = s.rng.choice((60_000, 120_000, 300_000))
    s.style["max_poll_ms"] = longest
    s.app(2, 4)
    at = float(s.trouble(30 * MINUTE))
    while at < s.length:
        takes = s.between(longest // 2, 2 * longest)
        s.do(at, "work", client=s.running["0"], ms=takes)
        at += takes + s.between(500, 5_000)


@kind(*READING, label="slow join", fits=_STORM, hours=(2, 5))
def _slow_join(s: Script) -> None:
    s.style["static"] = False
    s.app(3, 5)
    for at in (s.trouble(25 * MINUTE), 70 * MINUTE):
        s.do(at, "work", client=s.running["0"], ms=s.between(80, 200) * SECOND)
        s.restart(at + 3 * SECOND, "1", 4 * SECOND)


@kind(CLASSIC, label="the leader never assigns", fits=_STORM, hours=(1.5, 3))
def _leader_hangs(s: Script) -> None:
    s.style["static"] = False  # a static leader that comes back has nothing to assign
    s.app(2, 4)
    s.rolling(s.trouble(30 * MINUTE), assign_ms=-1, max_poll_ms=60_000)
    s.rolling(55 * MINUTE)


@kind(*READING, label="hang", fits=("commit_stall",), hours=(2, 5))
def _hang(s: Script) -> None:
    s.style["commits"] = "changed"
    s.app(1, 3, 5)
    for client in s.running.values():
        s.do(s.trouble(HOUR), "hang", client=client)


@kind(CLASSIC, label="fencing", fits=("static_member_fencing", *_STORM[:2]))
def _fencing(s: Script) -> None:
    s.style |= {"static": True, "moves_hosts": False, "shares_id": False}
    s.app(2, 4)
    at = float(s.trouble(25 * MINUTE))
    for turn in range(16):
        s.start(at, "0", host=f"10.200.0.{turn % 2 + 1}", client_id=f"twin-{turn % 2}")
        at += s.between(10, 40) * SECOND


@kind(*READING, label="offsets set back", fits=("offset_reset", "offset_rewind"), hours=(1.5, 4))
def _reset_backward(s: Script) -> None:
    topic = s.app(1, 3, 20)
    s.stop_all(HOUR)
    s.do(
        s.trouble(HOUR + 2 * MINUTE), "set_offsets", group=s.name, topic=topic,
        share=s.rng.random() / 2,
    )  # fmt: skip
    s.start_all(HOUR + 4 * MINUTE)


@kind(*READING, label="offsets set forward", fits=("offset_reset", "offset_jump"), hours=(1.5, 4))
def _reset_forward(s: Script) -> None:
    s.style["speed"] = 4
    topic = s.app(1, 3, 20)
    s.stop_all(HOUR)
    s.do(s.trouble(HOUR + 2 * MINUTE), "set_offsets", group=s.name, topic=topic, share=1.0)
    s.start_all(HOUR + 4 * MINUTE)


@kind(*READING, label="seek back", fits=("offset_rewind",), hours=(1.5, 4))
def _seek_back(s: Script) -> None:
    s.style["speed"] = 400
    s.app(1, 3, 20)
    s.do(s.trouble(HOUR), "seek", client=s.running["0"], share=0)


@kind(CLASSIC, label="commit storm", fits=("commit_storm",), hours=(0.5, 0.9))
def _commit_storm(s: Script) -> None:
    s.app(1, 2, 30)
    s.rolling(s.trouble(10 * MINUTE), commits="changed", commit_ms=150)
    s.stop_all(16 * MINUTE)


@kind(*READING, label="idle members", fits=("idle_members",), hours=(1, 4))
def _idle_members(s: Script) -> None:
    s.trouble(MINUTE)
    s.members = s.between(4, 7)
    s.style["topics"] = [s.topic(2, 3)]
    s.start_all(SECOND)


@kind(CLASSIC, label="skew", fits=("assignment_skew", "idle_members"), hours=(1, 4))
def _skew(s: Script) -> None:
    s.trouble(MINUTE)
    s.members = 3
    s.style["topics"] = [s.topic(1, 1, f"t{number}") for number in range(9)]
    s.style["assignors"] = ["range"]
    s.start_all(SECOND)


@kind(*READING, label="topic deleted", fits=("orphan_topic",), hours=(1.5, 4))
def _topic_deleted(s: Script) -> None:
    second = s.topic(3, 2, "second")
    s.style["topics"] = [second]
    s.app(1, 3)
    s.do(s.trouble(40 * MINUTE), "drop", topic=second)


@kind(
    CLASSIC, label="leader re-joins", fits=("leader_rejoin_loop", "rebalance_storm"), hours=(2, 4)
)
def _leader_rejoins(s: Script) -> None:
    s.app(2, 4)
    at, gap = float(s.trouble(30 * MINUTE)), s.rng.choice(((20, 40), (90, 150)))
    while at < 80 * MINUTE:
        s.do(at, "rejoin")
        at += s.between(*gap) * SECOND


@kind(*ALL, label="thrash", fits=("rebalance_storm", "member_flapping"), hours=(2, 4))
def _thrash(s: Script) -> None:
    s.style |= {"moves_hosts": True, "static": False}
    s.app(2, 3, spare=2)
    period = s.between(150, 240) * SECOND
    for at in s.every(s.trouble(30 * MINUTE), 2 * period):
        s.scale(at, s.members + 2)
        s.scale(at + period, s.members)


@kind(*READING, label="offsets expired", fits=("offsets_expired",), hours=(192, 200))
def _expired_and_back(s: Script) -> None:
    s.app(1, 2, 0.05)
    s.stop_all(2 * HOUR)
    s.start_all(s.trouble(188 * HOUR))


@kind(
    *READING,
    label="group deleted",
    fits=("group_recreated", "offset_rewind", "offset_reset", "offsets_expired"),
    hours=(2, 4),
)
def _deleted_and_remade(s: Script) -> None:
    s.app(1, 3, 10)
    s.stop_all(HOUR)
    s.do(s.trouble(HOUR + 5 * MINUTE), "delete_group", group=s.name)
    s.start_all(HOUR + 8 * MINUTE)


@kind(CONNECT, label="configuration loop", fits=("rebalance_storm", "leader_rejoin_loop"))
def _config_loop(s: Script) -> None:
    s.app(2, 4)
    at = float(s.trouble(20 * MINUTE))
    while at < 60 * MINUTE:
        s.do(at, "connector", name="connector-0", tasks=s.between(2, 6))
        at += s.between(60, 150) * SECOND


@kind(STREAMS, label="source topic grows", fits=_CALLS, hours=(1, 3))
def _source_grows(s: Script) -> None:
    """The repartition topic has as many partitions as before: the topology is not valid."""
    topic = s.app(2, 3)
    s.do(s.trouble(30 * MINUTE), "grow", topic=topic, partitions=2 * s.topics[topic])


@kind(*READING, label="a partition is not read", fits=("unread_partition",), hours=(2, 5))
def _paused(s: Script) -> None:
    """One partition is paused, the others go on; so does another group that reads the topic."""
    s.style["commits"] = "changed"
    topic = s.app(1, 4, 5)
    for client in s.running.values():
        s.do(s.trouble(HOUR), "stick", client=client, topic=topic, partition=0)
    s.beside(topic)


@kind(*READING, label="hang while others read", fits=("commit_stall",), hours=(2, 5))
def _hang_beside(s: Script) -> None:
    _hang(s)
    s.beside(*s.topics)


@kind(CLASSIC, label="two owners", fits=("unread_partition",), hours=(1.5, 4))
def _two_owners(s: Script) -> None:
    """The assignor of a new release gives one partition to two members."""
    # Static members that come back within their session are assigned nothing anew.
    s.style["static"] = False
    s.app(2, 4)
    s.rolling(s.trouble(30 * MINUTE), gives_twice=1)


@kind(CLASSIC, label="ghosts", fits=_STORM, hours=(1.5, 4))
def _ghosts(s: Script) -> None:
    """All wait for one member, while a client that joins gives up again and again."""
    s.style["static"] = False
    s.app(3, 5)
    for at in (s.trouble(25 * MINUTE), 50 * MINUTE):
        s.do(at, "work", client=s.running["0"], ms=s.between(100, 200) * SECOND)
        for turn in range(1, 5):
            s.end(at + turn * 15 * SECOND, "1", "crash")
            s.start(at + turn * 15 * SECOND + 2 * SECOND, "1")


@kind(*READING, label="topic that is not there", fits=("orphan_topic",), hours=(1, 4))
def _misspelt_topic(s: Script) -> None:
    misspelt = f"{s.name}-seccond"
    s.topics[misspelt] = 0
    s.style["topics"] = [misspelt]
    s.app(1, 3)
    s.trouble(SECOND)


# -- ordinary, and look-alikes of trouble ---------------------------------------------------------


@kind(*READING, hours=(4, 8))
def _upstream_outage(s: Script) -> None:
    """Who writes the topic is away, and catches up at once; its readers poll all the while."""
    s.style["commits"] = "changed"
    topic, gap = s.app(1, 4), s.between(15, 90) * MINUTE
    s.do(100 * MINUTE, "produce", topic=topic, rate=0)
    s.do(100 * MINUTE + gap, "produce", topic=topic, rate=3, at_once=3 * gap // SECOND)


@kind(*READING, hours=(4, 8))
def _outage_and_deployment(s: Script) -> None:
    """Members come while who writes the topic is away: they find nothing either."""
    s.style["commits"] = "changed"
    topic, gap = s.app(2, 4, spare=2), s.between(30, 90) * MINUTE
    if s.rng.random() < 0.5:
        s.beside(topic)
    s.do(100 * MINUTE, "produce", topic=topic, rate=0)
    if s.rng.random() < 0.5:
        s.rolling(100 * MINUTE + s.between(1, 15) * MINUTE)
    else:
        s.scale(100 * MINUTE + s.between(1, 20) * MINUTE, s.members + 2)
    s.do(100 * MINUTE + gap, "produce", topic=topic, rate=3, at_once=3 * gap // SECOND)


@kind(*READING, label="a job that starts in vain", fits=("commit_stall",), hours=(5, 8))
def _starts_in_vain(s: Script) -> None:
    """From a release on each start takes its partitions, and ends before it commits."""
    s.style |= {"commits": "changed", "static": False}
    s.beside(s.app(1, 2, at=30 * SECOND))
    s.stop_all(3 * MINUTE)
    since = s.trouble(2 * HOUR)
    for at in s.every(15 * MINUTE, s.rng.choice((10, 15)) * MINUTE):
        s.start_all(at, SECOND, **({"commits": "none"} if at > since else {}))
        s.stop_all(at + s.between(60, 180) * SECOND, SECOND)


@kind(*READING, hours=(5, 8))
def _job_without_records(s: Script) -> None:
    """Nothing comes for hours, and a job that looks for it again and again commits nothing."""
    s.style |= {"commits": "changed", "static": False}
    topic = s.app(1, 2, at=30 * SECOND)
    s.beside(topic)
    s.stop_all(3 * MINUTE)
    s.do(2 * HOUR, "produce", topic=topic, rate=0)
    for at in s.every(15 * MINUTE, s.rng.choice((10, 15)) * MINUTE):
        s.start_all(at, SECOND)
        s.stop_all(at + s.between(60, 180) * SECOND, SECOND)
    s.do(s.length - HOUR, "produce", topic=topic, rate=3)


def _part(s: Script, at: float, slots: list[str]) -> float:
    """Restart some members, one after the other."""
    for slot in slots:
        s.restart(at, slot, s.between(3, 14) * SECOND)
        at += s.between(20, 70) * SECOND
    return at


@kind(*READING, STREAMS, fits=_CALLS[:1], hours=(1.5, 4))
def _half_rollback(s: Script) -> None:
    s.app(4, 8)
    half = list(s.running)[: s.members // 2 + s.between(0, 1)]
    at = _part(s, 20 * MINUTE, half)
    _part(s, at + s.between(2, 15) * MINUTE, half)


@kind(*READING, STREAMS, SHARE, fits=_CALLS[:1], hours=(1.5, 4))
def _superseded(s: Script) -> None:
    """A deployment takes over from one that is half done."""
    s.style["static"] = False
    s.app(4, 8)
    order = list(s.running)
    at = _part(s, 20 * MINUTE, order[: s.members // 2 + s.between(0, 1)])
    _part(s, at + s.between(5, 60) * SECOND, order)


@kind(*READING, hours=(3, 6))
def _long_batches(s: Script) -> None:
    """One member works on a batch for as long as it has said that it may."""
    s.style |= {"max_poll_ms": 1_800_000, "commits": "changed", "static": False}
    s.beside(s.app(1, 3))
    at = 40.0 * MINUTE
    while at < s.length:
        takes = s.rng.choice((2, 4, 12, 18, 25)) * MINUTE
        s.do(at, "work", client=s.running["0"], ms=takes)
        at += takes + s.between(20, 400) * SECOND


@kind(*READING, SHARE, STREAMS, hours=(2, 6))
def _active_and_passive(s: Script) -> None:
    s.members, s.style["topics"] = 2, [s.topic(1, 3)]
    s.start_all(SECOND)
    s.rolling(HOUR)


@kind(*READING, hours=(1.5, 4))
def _canary_reads_more(s: Script) -> None:
    s.style["static"] = False
    new, topic = s.topic(20, 2, "v2"), s.app(3, 5)
    s.restart(20 * MINUTE, "0", 5 * SECOND, topics=[topic, new])
    s.rolling(45 * MINUTE, topics=[topic, new])


@kind(
    *READING,
    label="a release that cannot commit",
    fits=("commit_stall", "unread_partition"),
    hours=(2, 4),
)
def _cannot_commit(s: Script) -> None:
    s.style["commits"] = "changed"
    s.beside(s.app(1, 3, 5))
    at = s.trouble(HOUR)
    for slot in list(s.running):
        s.restart(at, slot, 5 * SECOND, commits="none")


@kind(
    CONNECT,
    label="two clusters in one group",
    fits=("leader_rejoin_loop", *_STORM),
    hours=(1.5, 4),
)
def _two_clusters(s: Script) -> None:
    """A cluster is set up with the config of another: their config topics differ."""
    s.app(2, 4)
    for number in range(s.between(6, 12)):
        s.do(0, "connector", cluster="other", name=f"other-{number}", tasks=2)
    others = [f"other-{number}" for number in range(s.between(1, 3))]
    for slot in others:
        s.start(s.trouble(30 * MINUTE), slot, cluster="other")
    for slot in others:
        s.end(60 * MINUTE, slot)


@kind(STREAMS, label="source topic deleted", fits=("orphan_topic", *_CALLS), hours=(1.5, 4))
def _source_deleted(s: Script) -> None:
    """The group is NotReady from then on, in one epoch after the other as members restart."""
    second = s.topic(3, 2, "second")
    s.style["topics"] = [second]
    s.app(2, 3)
    s.do(s.trouble(40 * MINUTE), "drop", topic=second)
    s.rolling(55 * MINUTE)


@kind(*READING, STREAMS, SHARE, fits=_CALLS[:1], hours=(2.5, 4))
def _drained(s: Script) -> None:
    """Nodes are drained one by one; what was there comes to a later one, or to a new one."""
    s.style |= {"static": False, "moves_hosts": True}
    s.app(4, 9)
    on: list[list[str]] = [[] for _ in range(s.between(3, 5))]
    for slot in s.running:
        s.rng.choice(on).append(slot)
    at = 20.0 * MINUTE
    while on:
        for slot in on.pop(0):
            s.restart(at + s.between(0, 20) * SECOND, slot, s.between(5, 90) * SECOND)
            s.rng.choice([*on, []]).append(slot)
        at += s.between(11, 20) * MINUTE


@kind(*READING, STREAMS, label="never closed", fits=("idle_members",), hours=(1, 3))
def _never_closed(s: Script) -> None:
    """A process makes one consumer after the other, and closes none."""
    s.style["static"] = False
    s.app(2, 3)
    at = float(s.trouble(10 * MINUTE))
    for number in range(40):
        s.start(at, f"leak-{number}", host="10.200.0.1")
        at += s.between(25, 75) * SECOND


@kind(*READING, SHARE, fits=_CALLS[:1], hours=(2, 3))
def _moves_on(s: Script) -> None:
    """A slow deployment to another topic: old members have the old one, new ones the new one."""
    s.style["static"] = False
    new = s.topic(8, 2, "new")
    s.app(4, 7)
    at = 15.0 * MINUTE
    for slot in list(s.running):
        s.restart(at, slot, s.between(5, 60) * SECOND, topics=[new])
        at += s.between(6, 13) * MINUTE


def _two_topics(s: Script, *, one_process: bool) -> None:
    """Let machines have a consumer for each of two topics, and be deployed an hour later."""
    s.style["static"] = False
    topics = s.style["topics"] = [s.topic(6, 2, "orders"), s.topic(6, 2, "payments")]
    machines = s.between(2, 3)
    for since, network in ((SECOND, 1), (100 * MINUTE, 2)):
        for machine in range(machines):
            at = since + machine * 40 * SECOND
            for number, topic in enumerate(topics, 1):
                slot = f"{machine}-{number}"
                s.end(at, slot)
                s.start(
                    at + 8 * SECOND, slot, topics=[topic], host=f"10.9.{network}.{machine + 1}",
                    client_id=f"consumer-{s.name}-{number if one_process else 1}",
                )  # fmt: skip


@kind(*READING, SHARE, hours=(2.5, 6))
def _listeners(s: Script) -> None:
    """One application has a listener for each topic, as Spring's do with one group id."""
    _two_topics(s, one_process=True)


@kind(
    *READING, label="two applications in one group", fits=("mixed_subscriptions",), hours=(2.5, 6)
)
def _two_applications(s: Script) -> None:
    """Two applications on the same machines have one group id."""
    s.trouble(MINUTE)
    _two_topics(s, one_process=False)


@kind(*READING, SHARE, hours=(2, 4))
def _topic_made_anew(s: Script) -> None:
    """A topic of test data is dropped and made again while nobody reads it."""
    s.style["commits"] = "changed"
    topic = s.app(1, 3)
    s.stop_all(HOUR)
    s.do(HOUR + s.between(60, 600) * SECOND, "drop", topic=topic)
    s.topic(s.topics[topic], 3, at=HOUR + 11 * MINUTE)
    s.start_all(HOUR + s.between(12, 40) * MINUTE)


@kind(*READING, SHARE, STREAMS, hours=(6, 10))
def _scaled_to_nothing(s: Script) -> None:
    """An autoscaler stops all members five minutes after the last record, and starts other pods."""
    s.style |= {"commits": "changed", "static": False, "moves_hosts": True}
    s.members = s.between(2, 4)
    s.style["topics"] = [s.topic(s.members + 1, 2)]
    at = 2.0 * MINUTE
    while at < s.length - 40 * MINUTE:
        s.scale(at, 1)
        if s.rng.random() < 0.5:
            s.scale(at + s.between(30, 90) * SECOND, s.members)
        end = at + 5 * MINUTE + s.between(30, 400) * SECOND
        s.scale(end - s.between(20, 60) * SECOND, 1)
        s.scale(end, 0)
        at = end + s.between(40, 330) * SECOND


@kind(*READING, SHARE, STREAMS, label="one failing pod after the other", fits=_STORM, hours=(3, 5))
def _pods_fail(s: Script) -> None:
    """The only member fails within minutes, and another pod takes its place."""
    s.style |= {"commits": "changed", "static": False, "moves_hosts": True, "shares_id": True}
    s.members, s.style["topics"] = 1, [s.topic(2, 2)]
    at = float(s.trouble(2 * MINUTE))
    while at < s.length - 30 * MINUTE:
        s.start(at, "0")
        at += s.between(60, 200) * SECOND
        s.end(at, "0")
        at += s.between(10, 100) * SECOND


@kind(*READING, label="instances of a proxy", fits=_STORM, hours=(2, 4))
def _proxy(s: Script) -> None:
    """A proxy makes a consumer for each of its clients, in the group of an application."""
    s.style["static"] = False
    s.app(1, 2)
    at, number = float(s.trouble(20 * MINUTE)), 0
    while at < 90 * MINUTE:
        s.start(at, f"proxy-{number}", host="10.200.0.1", client_id=f"proxy-{number}")
        s.end(at + s.between(60, 150) * SECOND, f"proxy-{number}")
        at, number = at + s.between(100, 300) * SECOND, number + 1


@kind(*READING, fits=("offset_reset",), hours=(5, 8))
def _job_takes_over(s: Script) -> None:
    """A job that assigns itself its partitions goes on with an application's group."""
    s.style |= {"static": False, "speed": s.between(300, 5_000)}
    s.app(1, 3, s.between(2, 30))
    s.stop_all(HOUR)
    every = s.rng.choice((10, 60, 300)) * SECOND
    s.start(HOUR + s.between(2, 25) * MINUTE, "job", protocol=ASSIGN, commit_ms=every)


@kind(ASSIGN, label="two jobs in one group", fits=("offset_rewind", "offset_reset"), hours=(4, 6))
def _two_jobs(s: Script) -> None:
    """A job is started from the beginning in the group of another, beside which it reads."""
    s.style["commit_ms"] = s.rng.choice((10, 60)) * SECOND
    s.app(1, 1, s.between(10, 40))
    at = s.trouble(100 * MINUTE)
    s.start(at, "twin", speed=s.rng.choice((50, 60)), host="10.200.0.1")
    s.do(at + 2 * SECOND, "seek", client=s.running["twin"], share=0)


@kind(*READING, ASSIGN, hours=(5, 8))
def _by_count(s: Script) -> None:
    """A sink commits whenever so many records have come, and far fewer come for hours."""
    rate = s.between(5, 20)
    s.style |= {"commits": "changed", "commit_records": rate * s.between(150, 600)}
    s.style["commit_ms"] = SECOND
    topic = s.app(1, 3, rate)
    s.style |= {"commit_records": 0, "commit_ms": s.commit_ms(10_000)}
    s.beside(topic)
    s.do(100 * MINUTE, "produce", topic=topic, rate=rate / 20)
    s.do(s.length - s.between(20, 120) * MINUTE, "produce", topic=topic, rate=rate)


@kind(*READING, SHARE, STREAMS, hours=(2, 5))
def _replicas_move(s: Script) -> None:
    """Replicas of a topic's partitions are moved to other brokers, one after the other."""
    topic, at = s.app(2, 5), 30.0 * MINUTE
    while at < s.length - HOUR / 2:
        number = s.between(0, s.topics[topic] - 1)
        s.do(at, "move", topic=topic, partition=number, ms=s.between(30, 200) * SECOND)
        at += s.between(30, 240) * SECOND


@kind(*READING, SHARE, STREAMS, hours=(6, 10))
def _hourly_renewal(s: Script) -> None:
    """Each consumer is made anew each hour, as its certificate is, now sooner and now later."""
    s.style |= {"static": False, "moves_hosts": False}
    s.app(2, 5)
    own = {slot: s.between(0, 600) * SECOND for slot in s.running}
    for at in s.every(20 * MINUTE, HOUR):
        for slot in list(s.running):
            since = at + own[slot] + s.between(0, 180) * SECOND
            s.restart(since, slot, s.between(1, 6) * SECOND)


@kind(*READING, SHARE, STREAMS, fits=_CALLS[:1], hours=(1.5, 4))
def _brokers_rolled(s: Script) -> None:
    """Brokers restart one after the other, and the coordinator moves, while members are rolled."""
    s.app(3, 6)
    done = s.rolling(20 * MINUTE)
    for _ in range(4):
        at = s.between(20 * MINUTE, done)
        s.do(at, "fail_over", group=s.name, ms=s.between(200, 15_000))


@kind(*READING, hours=(2.5, 5))
def _released_at_once(s: Script) -> None:
    """Who writes is stopped, all readers are restarted within seconds, and who writes goes on."""
    s.style |= {"commits": "changed", "static": False, "assign_ms": s.rng.choice((300, 900, 2_000))}
    topic = s.app(4, 8, 10)
    for at in s.every(60 * MINUTE, 100 * MINUTE):
        s.do(at, "produce", topic=topic, rate=0)
        since = at + s.between(2, 15) * MINUTE
        for slot in list(s.running):
            s.restart(since, slot, s.between(1, 3) * SECOND)
            since += s.between(300, 1_500)
        s.do(since + s.between(-3, 5) * SECOND, "produce", topic=topic, rate=10)


@kind(*READING, SHARE, STREAMS, fits=_CALLS[:1], hours=(1.5, 5))
def _network_out(s: Script) -> None:
    """No member reaches the coordinator until all sessions are over."""
    s.style["static"] = False
    s.app(3, 8)
    for at in s.every(30 * MINUTE, s.between(90, 150) * MINUTE):
        for client in s.running.values():
            s.do(at + s.between(0, 500), "freeze", client=client, ms=s.between(60, 120) * SECOND)


@kind(*READING, label="one member hangs", fits=("unread_partition",), hours=(2.5, 5))
def _one_hangs(s: Script) -> None:
    """It goes on to poll, while another gets a part of what it has, and gives that back."""
    s.style |= {"commits": "changed", "static": False}
    topic = s.app(3, 5, 5, spare=2)
    s.do(s.trouble(HOUR), "hang", client=s.running["1"])
    s.start(80 * MINUTE, "9")
    s.end(100 * MINUTE, "9")
    s.beside(topic)


@kind(*READING, STREAMS, label="killed again and again", fits=_STORM, hours=(3, 6))
def _leaks_memory(s: Script) -> None:
    """Each member is killed after a quarter of an hour, and started anew."""
    s.style["static"] = False
    s.app(3, 6)
    s.trouble(30 * MINUTE)
    for slot in list(s.running):
        at = s.between(30, 45) * MINUTE
        while at < s.length - 20 * MINUTE:
            s.end(at, slot, "crash")
            s.start(at + s.between(8, 40) * SECOND, slot)
            at += s.between(14, 19) * MINUTE
