"""Tells anomalies of many groups that one cause is behind as one: an incident.

Records have to bear the cause out. A topic is named by the anomalies themselves; offsets that
nobody of a group has set are written at a time; a partition of the offsets topic has a coordinator
of its own, and what that does shows in its groups alone; a client has a name. That of a partition
and of a client is held against all other groups: where most of its own are well, or others are in
the same trouble, it explains nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import chain
from operator import itemgetter, xor
from typing import Any, NamedTuple

import orjson

from detectors.log import Ask, pattern_of
from detectors.model import DAY_MS, MINUTE_MS, Row, anomaly_id
from detectors.sentences import filled, some, window
from detectors.unread import KIND as UNREAD
from detectors.unread import NEVER_OWNED
from schemas.gold import SEVERITIES
from schemas.tables import INCIDENTS

LEAST_GROUPS = 3
"""Two groups in trouble at a time are a coincidence, or an application with two groups, and two
alerts are no flood. A third that names the same topic, client or partition is neither."""
WINDOW_MS = 10 * MINUTE_MS
"""Anomalies of one cause begin no further apart, one after the other: a deployment goes through its
groups, and members notice a coordinator that is gone when their sessions or polls end."""
LOOKING_BACK_MS = DAY_MS
"""So far before what is new an incident may begin that takes it."""
# A script that sets offsets needs seconds for each group.
_AT_ONCE_MS = MINUTE_MS
_MOST, _HARDLY_ANY = 0.5, 0.1

(OFFSETS_SET, TOPIC_DELETED, TOPIC_GROWN, SILENT_PARTITION, COORDINATOR, CLIENT) = (
    *("offsets_set", "topic_deleted", "topic_grown"),
    *("silent_partition", "coordinator", "client"),
)
_REBALANCES = frozenset(
    {"rebalance_storm", "aborted_rebalances", "slow_rebalance", "stuck_rebalance"}
    | {"member_flapping"}
)
_STALLS = frozenset({"commit_stall", "stuck_rebalance"})
LABELS = {"orphan_topic": "deleted", "offsets_expired": "deleted", UNREAD: NEVER_OWNED}
"""Kinds of anomalies that an incident may have where they have this label."""
KINDS = frozenset({"offset_reset"} | LABELS.keys() | _REBALANCES | _STALLS)
"""Kinds of anomalies that an incident may have."""

# What the same groups show meanwhile, by cause.
_MEANWHILE = {
    SILENT_PARTITION: _STALLS,
    **dict.fromkeys((COORDINATOR, CLIENT), _REBALANCES | _STALLS),
}
# Rebalances that no member of the group explains.
_OF_NO_MEMBER = frozenset({"coordinator_failover_suspected", "unknown"})
# Names that libraries give to clients without one, by their beginning: librdkafka, Sarama, the Java
# client, kafka-python, aiokafka, KafkaJS, franz-go, ruby-kafka. They are of no application.
_OF_A_LIBRARY = (
    *("rdkafka", "sarama", "consumer-", "kafka-python-", "aiokafka-", "kafkajs", "kgo"),
    *("ruby-kafka", "None"),
)

_MANY = "({when}): {groups:some group_count}"
_SENTENCES = {
    OFFSETS_SET: "Somebody set {partitions:# offset} of {group_count:# group}"
    f"[ within {{apart_ms:lasting}}| at once] {_MANY}. Ask who restored them, or ran a script: the"
    " log does not say. Each group reads on from there.",
    TOPIC_DELETED: "{subject:name} was deleted, which {group_count:# group} had offsets of"
    f" {_MANY}. Ask who deleted it; stop these groups, or give them another topic.",
    TOPIC_GROWN: "{subject:name} has grown, and {group_count:# group} have not seen it"
    f" {_MANY}. What comes into {{unread:some}} is not read. Restart all of their members, the"
    " static ones, too.",
    SILENT_PARTITION: "{group_count:# group} of partition{log_partitions:/s} {subject} of the"
    f" offsets topic stopped committing {_MANY}; groups of other partitions went on. Look whether"
    " the broker that leads {log_partitions:it/them} answers, and whether all of"
    " {log_partitions:it/them} was read.",
    COORDINATOR: "{group_count:# group} of partition{log_partitions:/s} {subject} of the offsets"
    f" topic rebalanced without a change of their members {_MANY}; groups of other partitions did"
    " not. Look at the broker that leads {log_partitions:it/them}: it may have restarted, or lost"
    " {log_partitions:it/them} and got {log_partitions:it/them} back.",
    CLIENT: f"{{group_count:# group}} rebalanced as clients named {{subject:name}} came and went"
    f" {_MANY}. Look at what deploys or restarts these clients: one deployment, or one fault, is"
    " behind all of it.",
}
CAUSES = tuple(_SENTENCES)
"""All causes, the best borne out first."""


class Client(NamedTuple):
    """Clients with names of one pattern, and when anomalies that are put down to them began."""

    name: str
    first: int
    last: int


class Known(NamedTuple):
    """What is known of the groups, in trouble or not."""

    # By group, the partition that its newest record is in, and the time of that record.
    places: Mapping[str, tuple[int, int]]
    # Which groups had such clients then, of all that `clients_of` names.
    groups_of: Mapping[Client, Collection[str]]
    former: Sequence[Row]  # incidents that earlier runs told: incident_id, cause and anomaly_ids


class _Suspected(NamedTuple):
    """Anomalies that one cause may be behind, in the order in which they began."""

    cause: str
    subject: str
    anomalies: list[Row]
    evidence: Row = {}  # noqa: RUF012 - never changed


def incidents(anomalies: Iterable[Row], known: Known, cluster: str) -> list[Row]:
    """Return the incidents that anomalies are of, each anomaly in one at most, by time.

    The anomalies are of `KINDS`, without those of the log itself; times are epoch milliseconds. An
    incident that was told before keeps its id, however many anomalies have come to it.
    """
    left = {row["anomaly_id"]: row for row in _read(anomalies)}
    of_group: dict[str, list[Row]] = defaultdict(list)
    meanwhile = frozenset().union(*_MEANWHILE.values())
    for row in left.values():
        if row["kind"] in meanwhile:
            of_group[row["group_id"]].append(row)
    found: list[_Suspected] = []
    for suspect in _SUSPECTING:
        for suspected in suspect([*left.values()], known):
            own = [row for row in suspected.anomalies if row["anomaly_id"] in left]
            if _group_count(own) < LEAST_GROUPS:
                continue
            own += _meanwhile(suspected.cause, own, of_group)
            names = left.keys() & {row["anomaly_id"] for row in own}
            found.append(suspected._replace(anomalies=_in_order(map(left.pop, names))))
    found.sort(key=lambda s: (s.anomalies[0]["started_at"], s.anomalies[0]["anomaly_id"]))
    ids = _ids(found, known.former, cluster)
    return [_row(incident_id, suspected) for incident_id, suspected in zip(ids, found, strict=True)]


def clients_of(anomalies: Iterable[Row]) -> list[Client]:
    """Return the clients that may be behind the anomalies of many groups."""
    return [
        Client(s.subject, s.anomalies[0]["started_at"], s.anomalies[-1]["started_at"])
        for s in _clients(_read(row for row in anomalies if row["kind"] in _REBALANCES), None)
    ]


def groups_of(clients: Sequence[Client], members: Iterable[Row]) -> dict[Client, set[str]]:
    """Return which groups had such clients.

    `members` has rows with group_id and client_id, and `client`, the number of the one that they
    are asked for.
    """
    found: dict[Client, set[str]] = {client: set() for client in clients}
    for row in members:
        client = clients[row["client"]]
        if pattern_of(row["client_id"] or "") == client.name:
            found[client].add(row["group_id"])
    return found


def _read(anomalies: Iterable[Row]) -> list[Row]:
    return _in_order(
        {**row, "evidence": orjson.loads(row["evidence"])}
        for row in anomalies
        if row["group_id"] is not None and row["started_at"] is not None
        if row["label"] == LABELS.get(row["kind"], row["label"])
    )


def _in_order(anomalies: Iterable[Row]) -> list[Row]:
    return sorted(anomalies, key=lambda row: (row["started_at"], row["anomaly_id"]))


def _group_count(anomalies: Iterable[Row]) -> int:
    return len({row["group_id"] for row in anomalies})


def _together(anomalies: Iterable[Row], gap_ms: int = WINDOW_MS) -> Iterator[list[Row]]:
    """Cut anomalies, in their order, where the next one begins too long after the one before."""
    run: list[Row] = []
    for row in anomalies:
        if run and row["started_at"] - run[-1]["started_at"] > gap_ms:
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _runs(named: Iterable[tuple[Any, Row]]) -> Iterator[tuple[Any, list[Row]]]:
    """Cut the anomalies of each name, in their order, into runs; see `_together`."""
    by_name: dict[Any, list[Row]] = defaultdict(list)
    for name, row in named:
        by_name[name].append(row)
    return ((name, run) for name, of_name in by_name.items() for run in _together(of_name))


def _meanwhile(cause: str, own: Sequence[Row], of_group: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return what the groups of an incident show meanwhile, as a stall beside a storm."""
    kinds = _MEANWHILE.get(cause, frozenset())
    spans: dict[str, tuple[int, int]] = {}
    for row in own:
        start, end = spans.get(row["group_id"], (row["started_at"], row["ended_at"]))
        spans[row["group_id"]] = start, max(end, row["ended_at"])
    return [
        row
        for group, (start, end) in spans.items()
        for row in of_group.get(group, ())
        if row["kind"] in kinds and start - WINDOW_MS <= row["started_at"] <= end
    ]


# -- what names its cause --------------------------------------------------------------------------


def _offsets_set(left: Sequence[Row], _: Known) -> Iterator[_Suspected]:
    """Suspect a restore, or a script that set offsets of groups without members at a time."""
    for run in _together((r for r in left if r["kind"] == "offset_reset"), _AT_ONCE_MS):
        partitions = sum(row["evidence"].get("partitions", 1) for row in run)
        yield _Suspected(OFFSETS_SET, "", run, {"partitions": partitions})


def _topics_deleted(left: Sequence[Row], _: Known) -> Iterator[_Suspected]:
    """Suspect that a topic was deleted, where a group that subscribed to it shows so.

    Of groups without members that lost offsets of it then, somebody may have deleted the group, or
    the topic: the others tell.
    """
    named: list[tuple[str, Row]] = []
    for row in left:
        if row["kind"] == "orphan_topic":
            named.append((row["subject"], row))
        elif row["kind"] == "offsets_expired":
            offsets = row["evidence"].get("offsets", ())
            topics = {text.rpartition(": ")[0].rpartition("/")[0] for text in offsets}
            named += [(topic, row) for topic in topics]
    for topic, run in sorted(_runs(named), key=itemgetter(0)):
        if any(row["kind"] == "orphan_topic" for row in run):
            yield _Suspected(TOPIC_DELETED, topic, run)


def _topics_grown(left: Sequence[Row], _: Known) -> Iterator[_Suspected]:
    """Suspect that a topic was given partitions, which other groups' commits show."""
    named = (
        (topic, row)
        for row in left
        if row["kind"] == UNREAD
        for topic in {name.rpartition("/")[0] for name in row["evidence"]["unread"]}
    )
    for topic, run in sorted(_runs(named), key=itemgetter(0)):
        names = chain.from_iterable(row["evidence"]["unread"] for row in run)
        unread = {name for name in names if name.rpartition("/")[0] == topic}
        yield _Suspected(TOPIC_GROWN, topic, run, {"unread": sorted(unread)})


# -- what all groups bear out ----------------------------------------------------------------------


def _is_silent(row: Row) -> bool:
    """Return whether a coordinator may be behind it that writes nothing any more."""
    if row["kind"] == "commit_stall":
        return row["label"] not in ("nothing_to_read", "perhaps_markers")
    return bool(row["kind"] == "stuck_rebalance" and row["label"] == "still_rebalancing")


def _is_of_no_member(row: Row) -> bool:
    """Return whether a coordinator may be behind it that went away, or came back."""
    causes = row["evidence"].get("causes") or {}
    is_counted = row["kind"] in ("rebalance_storm", "aborted_rebalances")
    return is_counted and bool(causes) and causes.keys() <= _OF_NO_MEMBER


def _of_partitions(
    cause: str, is_hit: Callable[[Row], bool], left: Sequence[Row], known: Known
) -> Iterator[_Suspected]:
    """Suspect partitions of the log of which most groups are hit at a time, two at least of each.

    A broker leads several. What was borne out once is not asked again: groups come and go.
    """
    hits = list(filter(is_hit, left))
    told = {name for f in known.former if f["cause"] == cause for name in f["anomaly_ids"]}
    placed = (row for row in hits if row["first_record_partition"] is not None)
    of_one = [
        run
        for partition, run in _runs((row["first_record_partition"], row) for row in placed)
        if any(row["anomaly_id"] in told for row in run) or _is_most_of(partition, run, known)
    ]
    for run in _together(_in_order(chain.from_iterable(of_one))):
        is_told = any(row["anomaly_id"] in told for row in run)
        if is_told or _others_are_well(run, hits, known):
            partitions = sorted({row["first_record_partition"] for row in run})
            about = {"log_partitions": len(partitions), "numbers": partitions}
            yield _Suspected(cause, some([*map(str, partitions)]), run, about)


def _is_most_of(partition: int, run: Sequence[Row], known: Known) -> bool:
    """Return whether most groups of a partition that did something just before are hit."""
    since, hit = run[0]["started_at"] - WINDOW_MS, {row["group_id"] for row in run}
    here = {g for g, (p, newest) in known.places.items() if p == partition and newest >= since}
    return len(hit) > 1 and len(hit) >= _MOST * len(here | hit)


def _others_are_well(run: Sequence[Row], hits: Iterable[Row], known: Known) -> bool:
    """Return whether groups of other partitions went on, and hardly any of them is hit."""
    first, last = run[0]["started_at"], run[-1]["started_at"]
    partitions = {row["first_record_partition"] for row in run}
    others = {g for g, (p, newest) in known.places.items() if p not in partitions and newest > last}
    hit = {
        row["group_id"]
        for row in hits
        if row["first_record_partition"] not in partitions
        and first - WINDOW_MS <= row["started_at"] <= last + WINDOW_MS
    }
    return len(others) >= LEAST_GROUPS and len(hit) <= _HARDLY_ANY * len(others)


def _clients(left: Sequence[Row], known: Known | None) -> Iterator[_Suspected]:
    """Suspect clients of one name that come and go in many groups, those of most groups first.

    That most of the groups with such clients are hit shows that the name is of one application;
    without what is known, it is not asked.
    """
    runs = _runs((name, row) for row in left for name in _names_in(row))
    many = [(n, run) for n, run in runs if _group_count(run) >= LEAST_GROUPS]
    for name, run in sorted(many, key=lambda found: (-_group_count(found[1]), found[0])):
        hit = {row["group_id"] for row in run}
        every = hit if known is None else hit | _with_client(name, run, known)
        if len(hit) >= _MOST * len(every):
            yield _Suspected(CLIENT, name, run, {"of_groups": len(every)})


def _with_client(name: str, run: Sequence[Row], known: Known) -> set[str]:
    """Return the groups that had clients of a name when anomalies began."""
    first, last = run[0]["started_at"], run[-1]["started_at"]
    return {
        group
        for client, groups in known.groups_of.items()
        if client.name == name and client.first <= last and client.last >= first
        for group in groups
    }


def _names_in(row: Row) -> set[str]:
    """Return the patterns of the names of clients that an anomaly is put down to."""
    if row["kind"] not in _REBALANCES:
        return set()
    evidence = row["evidence"]
    columns = ("clients", "waited_for", "rejoined_last", "not_rejoined")
    named = {client for column in columns for client in evidence.get(column) or ()}
    if row["kind"] == "member_flapping" and "@" in (row["subject"] or ""):
        named.add(row["subject"])
    names = {pattern_of(client.rpartition("@")[0]) for client in named}
    return {n for n in names if any(map(str.isalpha, n)) and not n.startswith(_OF_A_LIBRARY)}


_SUSPECTING: tuple[Callable[[Sequence[Row], Known], Iterator[_Suspected]], ...] = (
    *(_offsets_set, _topics_deleted, _topics_grown),
    partial(_of_partitions, SILENT_PARTITION, _is_silent),
    partial(_of_partitions, COORDINATOR, _is_of_no_member),
    _clients,
)


# -- rows ------------------------------------------------------------------------------------------


def _ids(found: Iterable[_Suspected], former: Iterable[Row], cluster: str) -> Iterator[str]:
    """Yield the ids of incidents: what the first of their anomalies has brought, or a new one."""
    id_of = {(f["cause"], name): f["incident_id"] for f in former for name in f["anomaly_ids"]}
    given: set[str] = set()
    for cause, subject, anomalies, _ in found:
        brought = (id_of.get((cause, row["anomaly_id"])) for row in anomalies)
        first = anomalies[0]["started_at"]
        made = anomaly_id(cluster, f"incident {cause}", "", subject, first)
        own = next((i for i in (*brought, made) if i is not None and i not in given), made)
        given.add(own)
        yield own


def _row(incident_id: str, suspected: _Suspected) -> Row:
    cause, subject, anomalies, evidence = suspected
    starts = [row["started_at"] for row in anomalies]
    groups = list(dict.fromkeys(row["group_id"] for row in anomalies))
    start, end = starts[0], max(row["ended_at"] for row in anomalies)
    about: dict[str, Any] = {"apart_ms": starts[-1] - start, **evidence}
    values = {
        **about,
        "label": cause,
        "subject": subject,
        "groups": groups,
        "group_count": len(groups),
        "when": window(start, end),
    }
    return {
        "incident_id": incident_id,
        "cause": cause,
        "severity": max((row["severity"] for row in anomalies), key=SEVERITIES.index),
        "subject": subject or None,
        "started_at": start,
        "ended_at": end,
        "is_open": any(row["is_open"] for row in anomalies),
        "groups": groups,
        "group_count": len(groups),
        "anomaly_ids": [row["anomaly_id"] for row in anomalies],
        "anomaly_count": len(anomalies),
        "summary": filled(_SENTENCES[cause], values),
        "evidence": orjson.dumps(about).decode(),
    }


# -- what is told of the tables --------------------------------------------------------------------


_MARK, _OPEN_SINCE, _HAS_SOME = "mark", "open_since", "has_some"
_TIMES = ("started_at", "ended_at")
_ANOMALY = (
    *("anomaly_id", "kind", "severity", "group_id", "subject", "label", "is_open", "evidence"),
    "first_record_partition",
)
_INCIDENT = tuple(
    c.name for c in INCIDENTS.of_cluster if c.name not in (*_TIMES, INCIDENTS.run_column)
)


class Told(NamedTuple):
    """The incidents that there are, as far as they were looked at."""

    noted: Row  # what the next run compares its anomalies with
    rows: list[Row] | None = None  # the incidents; None if those that are told still hold
    since: int | None = None  # they are all that began since then; None if they are all


def told(
    ask: Ask,
    noted: Row,
    kinds: Iterable[Row],
    groups: Iterable[Row],
    *,
    cluster: str,
    is_made: bool,
) -> Told:
    """Return the incidents of the anomalies that there are, if they are others than before.

    As long as no anomaly is new, worse or over, and no incident is open, nothing is asked. The
    groups are as `health.GROUPS_NOW` asks for, the kinds as `health.known_anomalies` does. If the
    last run has noted nothing, incidents may be there all the same where the table is made.
    """
    has_some = bool(noted.get(_HAS_SOME, is_made))
    of_kinds = [row for row in kinds if row["kind"] in KINDS]
    mark = reduce(xor, (row["mark"] for row in of_kinds), 0)
    open_since = noted.get(_OPEN_SINCE)
    is_same = mark == noted.get(_MARK) and open_since is None
    is_few = sum(row["known"] for row in of_kinds) < LEAST_GROUPS and not has_some
    if is_same or is_few:
        return Told({_MARK: mark, _OPEN_SINCE: None, _HAS_SOME: has_some})
    begun = [t for t in (*(row["since"] for row in of_kinds), open_since) if t is not None]
    since = min(begun) - LOOKING_BACK_MS if noted and begun else None
    begun_since = "" if since is None else f" AND started_at >= timestamp_millis({since})"
    may_be = [f"(kind <> '{kind}' OR label = '{label}')" for kind, label in LABELS.items()]
    where = " AND ".join([f"kind IN ({', '.join(map(repr, sorted(KINDS)))})", *may_be])
    asked = {"new": _asked("gold.anomalies", _ANOMALY, f"{where}{begun_since}")}
    if has_some:
        asked["former"] = _asked(INCIDENTS.name, _INCIDENT, f"true{begun_since}")
    read = ask(asked)
    found, former = read["new"], read.get("former", [])
    # What began with the first of those that were read may have begun before.
    first = None if since is None else since + WINDOW_MS
    clients = clients_of(found)
    known = Known(_places(groups), groups_of(clients, _members(ask, clients)), former)
    told_now = _begun_since(first, incidents(found, known, cluster))
    opened = (row["started_at"] for row in told_now if row["is_open"])
    now: Row = {_MARK: mark, _OPEN_SINCE: min(opened, default=None)}
    now[_HAS_SOME] = has_some or bool(told_now)
    is_told = _by_id(told_now) == _by_id(_begun_since(first, former))
    return Told(now) if is_told else Told(now, told_now, first)


def _asked(table: str, columns: Sequence[str], where: str) -> str:
    return f"SELECT {', '.join((*columns, *_TIMES))} FROM {table} WHERE {where}"


def _begun_since(first: int | None, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if first is None or row["started_at"] >= first]


def _places(groups: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """Return in which partition of the log the newest record of each group is, and its time."""
    return {
        row["group_id"]: (row["record_partition"], row["newest_at"])
        for row in groups
        if row["record_partition"] is not None and row["newest_at"] is not None
    }


def _members(ask: Ask, clients: Sequence[Client]) -> list[Row]:
    """Ask for the groups that had members with such names, by what these begin with."""
    if not clients:
        return []
    asked = " UNION ALL ".join(
        f"SELECT {number} AS client, :name{number} AS beginning,"
        f" timestamp_millis({first - WINDOW_MS}) AS first, timestamp_millis({last}) AS last"
        for number, (_, first, last) in enumerate(clients)
    )
    # Few names are held against each client, instead of many sessions.
    query = f"""
WITH clients AS ({asked}), named AS (
  SELECT client_id AS name, client, first, last
  FROM (SELECT DISTINCT client_id FROM gold.member_sessions) JOIN clients
    ON startswith(client_id, beginning)
)
SELECT client, group_id, client_id
FROM gold.member_sessions JOIN named
  ON client_id = name AND joined_at <= last AND (left_at IS NULL OR left_at >= first)
GROUP BY client, group_id, client_id"""
    names = {f"name{n}": name.partition("*")[0] for n, (name, *_) in enumerate(clients)}
    return ask({"members": query}, **names)["members"]


def _by_id(rows: Iterable[Row]) -> dict[str, Row]:
    return {row["incident_id"]: row for row in rows}
