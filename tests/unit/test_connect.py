"""What workers of Kafka Connect run, and what is told of their rebalances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from schemas.messages import embedded_messages
from tests.factories import decode_one, group_metadata, member
from tests.support.detection import detected_history
from tests.support.encoder import encode_message
from tests.support.history import Commit, Log, _chunk, in_millis, rebuild
from tests.support.members import record_of
from tests.unit.test_history_truth import assert_same
from timeline import connect
from timeline.fold import GROUP_METADATA, Fold
from timeline.model import GENERATIONS, OWNERS, GroupState, Member, Record

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
START = 1_700_000_000_000
DELAY = 300 * SECOND
Tasks = dict[str, list[int]]


class Cluster:
    """Workers that do what Kafka's do: each goes on with what it is not told to stop.

    `runs` is what each of them runs, after every generation. Records are bytes, as the coordinator
    writes them, decoded.
    """

    def __init__(self, version: int = 2, *, is_broken: bool = False) -> None:
        self.runs: dict[str, Tasks] = {}
        self.log: list[Record] = []
        self.at = START
        self.version = version
        self.offset = 7
        # Whether allocations are bytes that nobody can read.
        self._is_broken = is_broken

    def generation(
        self,
        workers: Mapping[str, Tasks],
        after: int = MINUTE,
        *,
        revoked: Mapping[str, Tasks] | None = None,
        delay: int = 0,
        error: int = 0,
        offsets: Mapping[str, int] | None = None,
        skips: int = 0,
    ) -> Cluster:
        """Let workers be in a new generation, and be given tasks that are new to them."""
        self.at += after
        revoked, members = revoked or {}, []
        number = len(self.log) + 1 + skips
        self.runs = {name: self.runs.get(name, {}) for name in workers}
        for name, given in workers.items():
            gone = revoked.get(name, {})
            said = self._subscription(name, (offsets or {}).get(name, self.offset))
            assigned = self._assignment(given, gone, delay=delay, error=error)
            members.append(
                member(
                    memberId=name,
                    clientId=f"connect-{name.split('-', maxsplit=1)[0]}",
                    clientHost=f"/{name.split('-', maxsplit=1)[0]}",
                    subscription=said,
                    assignment=assigned,
                    rebalanceTimeout=MINUTE,
                    sessionTimeout=10 * SECOND,
                )
            )
            self._run(name, given, gone, error=error)
        pair = group_metadata(
            *members,
            protocolType="connect",
            protocol=("default", "compatible", "sessioned")[self.version],
            generation=number,
            currentStateTimestamp=self.at - 20,
        )
        row = decode_one(pair)
        payload = in_millis({k: v for k, v in row.items() if not k.startswith("record_")})
        offset = len(self.log) + (10 if skips else 0)
        self.log.append(record_of(offset, self.at, GROUP_METADATA, None, payload))
        return self

    def _run(self, name: str, given: Tasks, gone: Tasks, *, error: int) -> None:
        before: Tasks = {} if self.version == 0 else self.runs[name]
        if error:
            return
        left = {c: [t for t in ts if t not in gone.get(c, [])] for c, ts in before.items()}
        for connector, tasks in given.items():
            left[connector] = left.get(connector, []) + tasks
        self.runs[name] = {c: ts for c, ts in left.items() if ts}

    def _subscription(self, name: str, offset: int) -> bytes:
        values: dict[str, object] = {"url": f"http://{name}/", "configOffset": offset}
        if self.version and self.runs[name]:
            allocation = self._assignment(self.runs[name], {}, delay=0, error=0)
            values["allocation"] = b"\xff\xff" if self._is_broken else allocation
        return encode_message(
            embedded_messages()["ConnectProtocolSubscription"], self.version, values
        )

    def _assignment(self, given: Tasks, gone: Tasks, *, delay: int, error: int) -> bytes:
        def parts(tasks: Tasks) -> list[dict[str, object]]:
            return [{"connector": c, "tasks": ts} for c, ts in tasks.items()]

        values: dict[str, object] = {
            "error": error,
            "leader": "w1",
            "leaderUrl": "http://w1/",
            "configOffset": self.offset,
            "assignment": parts(given),
        }
        if self.version:
            values |= {"revoked": parts(gone), "delay": delay}
        return encode_message(
            embedded_messages()["ConnectProtocolAssignment"], self.version, values
        )

    def told(self) -> dict[str, list[dict[str, Any]]]:
        """Tell the history, which is the same in as many runs as there are records."""
        log = Log("g", 0, list(self.log))
        whole = rebuild(log)
        assert_same(rebuild(log, range(1, len(log.events))), whole, log)
        return whole

    def rows(self) -> list[dict[str, Any]]:
        """Return the generations."""
        return sorted(self.told()[GENERATIONS], key=lambda r: r["record_offset"])

    def alarms(self, later: int = HOUR) -> list[dict[str, Any]]:
        """Return the anomalies of warning and worse, some time after the last generation."""
        found = detected_history(self.told(), self.at + later)
        return [a for a in found if a["severity"] != "info"]

    def members(self) -> dict[str, Member]:
        """Return the workers after the last generation."""
        fold = Fold(GroupState("g", 0), has_hole=lambda _after, _until: False)
        for record in self.log:
            fold.record(record)
        # Whatever comes next settles the last record.
        fold.commits(_chunk([Commit(999, self.at + 1, 0, deletes=False)]))
        return fold.state.members


def two_workers(version: int = 2) -> Cluster:
    """Let one worker run all, and another one join and take two tasks over."""
    cluster = Cluster(version).generation({"w1": {"s": [-1, 0, 1, 2, 3]}})
    cluster.generation({"w1": {}, "w2": {}}, HOUR, revoked={"w1": {"s": [2, 3]}})
    return cluster.generation({"w1": {}, "w2": {"s": [2, 3]}}, SECOND)


@pytest.mark.parametrize("version", [1, 2], ids=["compatible", "sessioned"])
def test_a_worker_runs_its_allocation_and_what_it_is_given(version: int) -> None:
    cluster = two_workers(version).generation({"w1": {}, "w2": {}}, HOUR)
    assert cluster.runs == {"w1": {"s": [-1, 0, 1]}, "w2": {"s": [2, 3]}}
    assert {k: m.assigned for k, m in cluster.members().items()} == cluster.runs
    first, revoking, given, again = cluster.rows()
    assert [r["assigned_partitions"] for r in (first, revoking, given, again)] == [5, 3, 5, 5]
    assert [r["most_partitions"] for r in (first, revoking, given, again)] == [5, 3, 3, 3]
    assert [r["idle_members"] for r in (first, revoking, given, again)] == [[], ["w2"], [], []]
    assert (given["cause"], given["moved_partitions"]) == ("cooperative_follow_up", 2)
    assert (again["moved_partitions"], again["stickiness"]) == (0, 1.0)
    assert cluster.alarms(12 * HOUR) == []
    assert cluster.told()[OWNERS] == []  # no partitions of topics


def test_an_eager_assignment_has_all() -> None:
    cluster = Cluster(0).generation({"w1": {"s": [-1, 0, 1]}})
    cluster.generation({"w1": {"s": [-1]}, "w2": {"s": [0, 1]}})
    assert {k: m.assigned for k, m in cluster.members().items()} == cluster.runs
    assert [r["assigned_partitions"] for r in cluster.rows()] == [3, 3]
    assert cluster.rows()[-1]["moved_partitions"] == 2


def test_with_an_assignment_error_all_go_on() -> None:
    cluster = two_workers()
    cluster.offset = 9
    cluster.generation({"w1": {}, "w2": {}}, HOUR, error=1, offsets={"w1": 8})
    assert {k: m.assigned for k, m in cluster.members().items()} == cluster.runs
    cluster.generation({"w1": {}, "w2": {}}, SECOND)
    *_, failed, after = cluster.rows()
    assert failed["cause"] == "configuration_changed"
    assert "read the configuration to offsets 8 to 9; assignment error 1" in failed["cause_detail"]
    assert after["cause"] == "cooperative_follow_up"
    assert (failed["assigned_partitions"], failed["idle_members"]) == (5, [])


def failing(cluster: Cluster, times: int, *, reads_on: bool = False) -> Cluster:
    """Let the leader fail to assign, as it has not read as far as the other worker."""
    for time in range(times):
        cluster.offset += reads_on or time == 0
        offsets = {"w1": cluster.offset - 1}
        cluster.generation({"w1": {}, "w2": {}}, 2 * SECOND, error=1, offsets=offsets)
    return cluster


def test_a_leader_that_never_assigns_is_a_loop() -> None:
    """Two clusters have one group.id: their config topics differ, so that it never catches up."""
    cluster = failing(two_workers(), 600)
    causes = [r["cause"] for r in cluster.rows()[3:]]
    assert causes[1:3] == ["cooperative_follow_up"] * 2
    assert {*causes[3:]} == {"leader_rejoined"}
    detail = cluster.rows()[-1]["cause_detail"]
    assert "the leader asked again, since 599 assignments in a row have failed" in detail
    assert all(r["join_ms"] < SECOND for r in cluster.rows()[5:])  # all ask again at once
    found = {a["kind"]: a for a in cluster.alarms()}
    assert found.keys() == {"leader_rejoin_loop", "rebalance_storm"}
    loop = found["leader_rejoin_loop"]
    assert loop["label"] == "workers"
    assert "rebalanced 597 times although no worker joined for good or left" in loop["summary"]
    assert "two clusters in one group never agree" in loop["summary"]
    # It is told while it goes on, after seconds.
    assert [a["kind"] for a in failing(two_workers(), 6).alarms()] == ["leader_rejoin_loop"]


def test_a_worker_that_is_gone_before_all_have_joined_may_be_why_workers_join_again() -> None:
    """No record has such a worker, and no assignment fails."""
    cluster = two_workers()
    for _ in range(12):
        cluster.generation({"w1": {}, "w2": {}}, 3 * MINUTE)
    (said,) = (a["summary"] for a in cluster.alarms() if a["kind"] == "leader_rejoin_loop")
    assert "rebalanced 12 times although no worker joined for good or left" in said
    assert "asked again, or a worker came and went before all had joined. Look at" in said
    assert "and for a worker that gives up as it joins" in said
    assert two_workers().generation({"w1": {}, "w2": {}}, 3 * MINUTE).alarms() == []


def test_a_leader_that_catches_up_is_no_loop() -> None:
    cluster = two_workers()
    for _ in range(20):
        failing(cluster, 3).generation({"w1": {}, "w2": {}}, 2 * SECOND).at += HOUR
    assert cluster.alarms() == []
    # Nor one that lags behind while somebody makes connectors: those are the cause.
    cluster = failing(two_workers(), 30, reads_on=True)
    assert {r["cause"] for r in cluster.rows()[6:]} == {"configuration_changed"}
    assert cluster.alarms() == []
    # A worker that joins explains its rebalance, and the next one that fails does not.
    cluster = failing(two_workers(), 5)
    cluster.generation({"w1": {}, "w2": {}, "w3": {}}, SECOND, error=1, offsets={"w1": 7})
    cluster.generation({"w1": {}, "w2": {}, "w3": {}}, SECOND, error=1, offsets={"w1": 7})
    assert [r["cause"] for r in cluster.rows()[-2:]] == ["new_member", "leader_rejoined"]


def test_an_uneven_share_is_that_of_all_tasks() -> None:
    shares = {"w1": {"s": [0]}, "w2": {"s": list(range(1, 9))}, "w3": {"s": list(range(9, 17))}}
    cluster = Cluster().generation(shares)
    cluster.generation({"w1": {"n": list(range(7))}, "w2": {}, "w3": {}}, HOUR)
    assert cluster.rows()[-1]["most_partitions"] == 8
    assert cluster.alarms() == []
    # It does hold where one has most of them.
    cluster.generation({"w1": {"m": list(range(40))}, "w2": {}, "w3": {}}, HOUR)
    assert [a["kind"] for a in cluster.alarms()] == ["assignment_skew"]


@pytest.mark.parametrize("delay", [8 * SECOND, DELAY])
def test_tasks_of_a_lost_worker_belong_to_the_rebalance_in_which_it_left(delay: int) -> None:
    cluster = two_workers().generation({"w1": {}}, HOUR, delay=delay)
    cluster.generation({"w1": {"s": [2, 3]}}, delay + SECOND // 2)
    *_, left, taken = cluster.rows()
    assert (left["cause"], left["delay_ms"]) == ("member_left", delay)
    assert (left["waiting_tasks"], left["waiting_since"]) == (["s/2", "s/3"], cluster.log[-2][1])
    assert (taken["cause"], taken["moved_partitions"]) == ("cooperative_follow_up", 2)
    assert (taken["delay_ms"], taken["waiting_tasks"], taken["waiting_since"]) == (None,) * 3
    # The join phase of workers whose delay is over does not last as long as the delay.
    assert taken["join_ms"] < 10 * SECOND
    assert cluster.alarms() == []


def test_a_rolling_restart_is_no_storm() -> None:
    """Each worker leaves, comes back, and gets its tasks when the delay is over."""
    cluster = Cluster().generation({f"w{i}": {"s": [2 * i, 2 * i + 1]} for i in range(5)})
    names = [f"w{i}" for i in range(5)]
    for i in range(5):
        rest = [n for n in names if n != names[i]]
        cluster.generation({n: {} for n in rest}, MINUTE, delay=DELAY)
        names[i] = f"w{i}-again"
        cluster.generation({n: {} for n in names}, 20 * SECOND, delay=DELAY - 20 * SECOND)
        given = {n: {"s": [2 * i, 2 * i + 1]} if n == names[i] else {} for n in names}
        cluster.generation(given, DELAY - 20 * SECOND)
        assert {k: m.assigned for k, m in cluster.members().items()} == cluster.runs
    causes = [r["cause"] for r in cluster.rows()[1:]]
    assert causes == ["member_left", "new_member", "cooperative_follow_up"] * 5
    assert cluster.alarms() == []


@pytest.mark.parametrize(("most", "is_told"), [(6, False), (60, True)])
def test_tasks_that_wait_are_a_share_of_workers_that_came_back(
    most: int,
    is_told: bool,  # noqa: FBT001
) -> None:
    """Restarted one after the other within the delay, all but one have nothing for a while."""
    names = [f"w{i}" for i in range(5)]
    own = {n: {n: list(range(most if n == "w4" else 6))} for n in names}
    cluster = Cluster().generation(own)
    for i in range(4):
        rest = [n for n in names if n != names[i]]
        cluster.generation({n: {} for n in rest}, MINUTE, delay=DELAY - i * MINUTE)
        names[i] = f"w{i}-again"
        cluster.generation({n: {} for n in names}, 5 * SECOND, delay=DELAY - i * MINUTE)
    cluster.generation({n: own.get(n[:2], {}) if n != "w4" else {} for n in names}, 90 * SECOND)
    skewed = [a["kind"] for a in cluster.alarms()]
    assert ("assignment_skew" in skewed) == is_told


def test_tasks_that_are_put_off_for_ever_are_told() -> None:
    cluster = two_workers().generation({"w1": {}}, HOUR, delay=DELAY)
    since = cluster.at
    assert cluster.alarms(DELAY + 30 * SECOND) == []  # the join phase takes its time
    cluster.generation({"w1": {}}, DELAY, delay=DELAY)
    cluster.generation({"w1": {}}, DELAY, delay=DELAY)
    *_, left, again, more = cluster.rows()
    assert [r["cause"] for r in (again, more)] == ["cooperative_follow_up"] * 2
    assert {r["waiting_since"] for r in (left, again, more)} == {since}
    [alarm] = cluster.alarms(MINUTE)
    assert (alarm["kind"], alarm["label"]) == ("stuck_rebalance", "tasks_wait")
    assert (alarm["severity"], alarm["started_at"]) == ("warning", since)
    assert alarm["is_open"]
    assert "2 tasks (s/2, s/3) of g have had no worker for 11 min" in alarm["summary"]
    assert "Restart the leader" in alarm["summary"]
    # Handed out at last: it was so, and is over.
    cluster.generation({"w1": {"s": [2, 3]}}, DELAY)
    [alarm] = cluster.alarms()
    assert (alarm["label"], alarm["is_open"]) == ("tasks_wait", False)
    assert alarm["ended_at"] == cluster.at


def test_tasks_that_are_put_off_for_long_each_time_are_one_alarm() -> None:
    cluster = two_workers().generation({"w1": {}}, HOUR, delay=4 * DELAY)
    since = cluster.at
    for _ in range(3):
        cluster.generation({"w1": {}}, 4 * DELAY, delay=4 * DELAY)
    cluster.generation({"w1": {"s": [2, 3]}}, 4 * DELAY)
    told = [a for a in cluster.alarms() if a["label"] == "tasks_wait"]
    assert [(a["started_at"], a["ended_at"]) for a in told] == [(since, cluster.at)]


def test_nobody_is_known_to_wait_where_generations_are_missing() -> None:
    cluster = two_workers().generation({"w1": {}}, HOUR, delay=DELAY)
    cluster.generation({"w1": {}}, HOUR, delay=DELAY, skips=5)
    log = Log("g", 0, list(cluster.log), missing=(5,))
    told = rebuild(log)
    last = max(told[GENERATIONS], key=lambda r: r["record_offset"])
    assert last["waiting_since"] == cluster.at
    found = detected_history(told, cluster.at + MINUTE)
    assert not [a for a in found if a["label"] == "tasks_wait"]


def test_a_log_that_begins_while_tasks_wait() -> None:
    cluster = Cluster().generation({"w1": {"s": [0]}}, delay=DELAY)
    cluster.generation({"w1": {"s": [1]}}, DELAY)
    first, taken = cluster.rows()
    assert (first["waiting_tasks"], first["waiting_since"]) == (None, cluster.log[0].timestamp)
    assert taken["cause"] == "cooperative_follow_up"
    assert cluster.alarms() == []


def reconfigured(times: int, every: int) -> Cluster:
    cluster = two_workers()
    for _ in range(times):
        cluster.offset += 1
        cluster.generation({"w1": {}, "w2": {}}, every)
    return cluster


def test_a_new_configuration_is_a_cause_and_no_loop_of_the_leader() -> None:
    cluster = reconfigured(4, 10 * MINUTE)
    changed = cluster.rows()[-4:]
    assert {r["cause"] for r in changed} == {"configuration_changed"}
    assert changed[0]["cause_detail"] == "the configuration changed: offset 7 to 8"
    assert cluster.alarms() == []
    # A leader that re-joins for nothing.
    again = two_workers()
    for _ in range(4):
        again.generation({"w1": {}, "w2": {}}, 10 * MINUTE)
    assert {r["cause"] for r in again.rows()[-4:]} == {"leader_rejoined"}
    assert {a["kind"] for a in again.alarms()} == {"leader_rejoin_loop", "rebalance_storm"}


def test_workers_that_all_re_join_by_themselves_do_so_at_once() -> None:
    cluster = Cluster().generation({"w1": {"c": [-1, 0]}, "w2": {"c": [1]}, "w3": {"c": [2]}})
    cluster.offset = 8
    cluster.generation({"w1": {}, "w2": {}, "w3": {}})  # a new configuration
    cluster.generation({"w1": {}, "w2": {}}, delay=DELAY)  # a worker is lost
    cluster.generation({"w1": {"c": [2]}, "w2": {}}, after=DELAY)
    cluster.generation({"w1": {}, "w2": {}})  # for no known reason
    cluster.offset = 9
    cluster.generation({"w1": {}, "w2": {}, "w4": {}})  # and a new worker
    took = [row["join_ms"] for row in cluster.rows()[1:]]
    assert [ms < SECOND for ms in took] == [True, False, True, False, False]
    # What bounds them is as before.
    row = cluster.rows()[1]
    assert row["join_completed_at"] - row["join_started_at_min"] > 50 * SECOND


def test_a_configuration_that_never_comes_to_rest_is_a_storm() -> None:
    cluster = reconfigured(60, 2 * MINUTE)
    [alarm] = cluster.alarms()
    assert alarm["kind"] == "rebalance_storm"
    assert "the configuration of connectors changed" in alarm["summary"]
    assert reconfigured(12, 5 * MINUTE).alarms() == []


def test_connectors_that_are_made_and_deleted() -> None:
    cluster = two_workers()
    cluster.offset += 1
    cluster.generation({"w1": {"n": [-1]}, "w2": {"n": [0]}}, HOUR)
    cluster.offset += 1
    cluster.generation({"w1": {}, "w2": {}}, HOUR, revoked={"w1": {"n": [-1]}, "w2": {"n": [0]}})
    cluster.generation({"w1": {}, "w2": {}}, SECOND)
    made, deleted, after = cluster.rows()[-3:]
    assert made["cause_detail"] == "the configuration changed: offset 7 to 8; 2 tasks new"
    assert deleted["cause_detail"].endswith("offset 8 to 9; 2 tasks without owner")
    assert after["cause"] == "cooperative_follow_up"
    assert after["cause_detail"] == "workers re-joined when they had stopped 2 tasks"


@pytest.mark.parametrize("worker", ["w1", "w2"])
def test_a_task_that_is_made_again_is_no_follow_up(worker: str) -> None:
    """A connector may lose one task, unlike a topic, whose others show that one was taken."""
    cluster = two_workers()
    (connector, tasks) = next(iter(cluster.runs["w2"].items()))
    last = {connector: [tasks[-1]]}
    cluster.offset += 1
    cluster.generation({"w1": {}, "w2": {}}, HOUR, revoked={"w2": last})
    cluster.generation({"w1": {}, "w2": {}}, SECOND)
    cluster.offset += 1
    cluster.generation({"w1": {}, "w2": {}} | {worker: last}, SECOND)
    assert cluster.rows()[-1]["cause"] == "configuration_changed"


def test_a_worker_that_gave_up_what_it_ran_runs_nothing() -> None:
    """One that did not reach the coordinator stops all, and re-joins under the same id."""
    cluster = two_workers()
    cluster.runs["w2"] = {}
    cluster.generation({"w1": {"s": [2, 3]}, "w2": {}}, HOUR)
    assert {k: m.assigned for k, m in cluster.members().items()} == cluster.runs


def test_an_allocation_that_cannot_be_read_is_that_of_before() -> None:
    cluster = Cluster(is_broken=True).generation({"w1": {"s": [0, 1]}, "w2": {"s": [2]}})
    cluster.generation({"w1": {}, "w2": {"n": [0]}}, revoked={"w1": {"s": [1]}})
    assert {k: m.assigned for k, m in cluster.members().items()} == cluster.runs
    assert cluster.rows()[-1]["idle_members"] == []


def test_what_nobody_knows_is_not_idle() -> None:
    """Behind a gap, nobody knows what workers ran whose allocation cannot be read."""
    cluster = Cluster(is_broken=True).generation({"w1": {"s": [0, 1]}, "w2": {"s": [2]}})
    cluster.generation({"w1": {}, "w2": {}}, HOUR, skips=5)
    told = rebuild(Log("g", 0, list(cluster.log), missing=(5,)))
    last = max(told[GENERATIONS], key=lambda r: r["record_offset"])
    assert (last["idle_members"], last["assigned_partitions"]) == (None, None)
    assert "owner" not in last["cause_detail"]
    assert detected_history(told, cluster.at + 12 * HOUR) == []


def test_workers_wait_for_connectors() -> None:
    """With a connector and its task alone, more workers are a choice; with more they are not."""
    cluster = Cluster().generation({"w1": {"s": [-1, 0]}, "w2": {}, "w3": {}})
    assert cluster.alarms() == []
    cluster = Cluster().generation({"w1": {"s": [-1, 0, 1]}, "w2": {}, "w3": {}})
    [alarm] = cluster.alarms()
    assert alarm["kind"] == "idle_members"
    assert "2 of 3 members of g had no task for" in alarm["summary"]


def test_a_worker_as_silver_has_it_and_as_an_older_release_wrote_it() -> None:
    assignment = {"version": 2, "error": 0, "assignment": None, "revoked": None, "delay_ms": 0}
    said = {"version": 2, "config_offset": 7, "allocation_bytes": b"x"}
    nothing = {"allocation": None, "allocation_bytes": None, "allocation_error": None}
    assert connect.worker_of({**said, **nothing}, assignment)["allocation"] == {}
    for unread in (said, {**said, "allocation": None, "allocation_error": "why"}, None):
        worker = connect.worker_of(unread, assignment)
        assert (worker["allocation"], worker["is_unread"]) == (None, True)
