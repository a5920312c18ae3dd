"""What would have prevented rebalances, and what looks like it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reporting.remedies import (
    COOPERATIVE,
    DELAY,
    POLL,
    SESSION,
    STATIC,
    Remedies,
    Remedy,
    remedies,
)
from tests.support.history import histories_of
from tests.support.remedies import with_nulls
from timeline.model import GENERATIONS, SESSIONS

Row = dict[str, Any]
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
ROOT = Path(__file__).parents[2]


class Group:
    """A group that is made up, rebalance by rebalance; all that it does not say is usual."""

    def __init__(self, *members: str, **usual: object) -> None:
        self.usual: Row = {
            "group_type": "classic",
            "protocol_type": "consumer",
            "protocol": "range",
            "rebalance_protocol": "eager",
            "subscriptions": 1,
            "subscribed_topics": ["t"],
            "session_timeout_ms": 45 * SECOND,
            "rebalance_timeout_ms": 300 * SECOND,
            "cost_member_ms": 0,
            "cost_member_ms_min": 0,
            "aborted_generations": 0,
            "aborted_evidence": "complete",
            **usual,
        }
        self.at = 0
        self.there: dict[str, Row] = {}
        self.rows: list[Row] = []
        self.sessions: list[Row] = []
        self.starts: dict[str, int] = {}
        self.rebalance(joined=members, cause="group_created")

    def wait(self, ms: int) -> Group:
        self.at += ms
        return self

    def rebalance(
        self,
        *,
        joined: Sequence[str] = (),
        left: Sequence[str] = (),
        cause: str | None = None,
        takes: int = 2 * SECOND,
        **over: Any,  # noqa: ANN401 - columns
    ) -> Group:
        """Let members join and leave: `name`, `name@host` or `instance:name`."""
        number, started = len(self.rows) + 1, self.at
        self.at += takes
        went = [self._leave(name, number) for name in left]
        came = [self._join(name, number) for name in joined]
        back = [m for m in came if any(_client(m) == _client(w) for w in went)]
        replaced = [
            m
            | {"replaced_member_id": next(w for w in went if _client(w) == _client(m))["member_id"]}
            for m in back
        ]
        new = [m for m in came if m not in back]
        gone = [w for w in went if all(_client(w) != _client(m) for m in back)]
        usual = "new_member" if new else "member_left" if gone else "member_restarted"
        row = {
            "generation": number,
            "previous_generation": number - 1 or None,
            "join_started_at": started,
            "join_completed_at": self.at,
            "join_ms": takes,
            "member_count": len(self.there),
            "members_joined": new,
            "members_left": gone,
            "members_replaced": replaced,
            "cause": cause or usual,
            "record_partition": 7,
            "record_offset": 100 + number,
        }
        self.rows.append(with_nulls(GENERATIONS, self.usual | row | over))
        return self

    def _join(self, name: str, number: int) -> Row:
        instance, _, rest = name.rpartition(":")
        client, _, host = rest.partition("@")
        self.starts[name] = self.starts.get(name, 0) + 1
        who = {
            "member_id": f"{name}-{self.starts[name]}",
            "group_instance_id": rest if instance else None,
            "client_id": client,
            "client_host": host or "/10.0.0.1",
            **{n: self.usual[n] for n in ("session_timeout_ms", "rebalance_timeout_ms")},
        }
        self.there[name] = who
        self.sessions.append(
            with_nulls(SESSIONS, who | {"joined_at": self.at, "last_generation": number})
        )
        return who

    def _leave(self, name: str, number: int) -> Row:
        who = self.there.pop(name)
        stay = next(s for s in reversed(self.sessions) if s["member_id"] == who["member_id"])
        stay |= {"left_at": self.at, "last_generation": number - 1}
        return who

    def restart(self, name: str, down: int, stays: int = HOUR, **over: Any) -> Group:  # noqa: ANN401 - columns
        """Let a member leave and come back in two rebalances."""
        self.wait(stays).rebalance(left=[name], **over)
        return self.wait(down).rebalance(joined=[name], **over)

    @property
    def found(self) -> Remedies:
        return remedies(self.rows, self.sessions)

    def remedy(self, kind: str) -> Remedy | None:
        return next((r for r in self.found.named if r.kind == kind), None)


def _client(member: Row) -> tuple[str, str, str]:
    return member["group_instance_id"], member["client_id"], member["client_host"]


# -- static membership -----------------------------------------------------------------------------


def test_restarts_in_place_are_hidden_by_static_membership() -> None:
    group = Group("a", "b", "c")
    for name in "abc":
        group.restart(name, 8 * SECOND, cost_member_ms=4_000, cost_member_ms_min=1_000)
    (remedy,) = group.found.named
    assert (remedy.kind, remedy.rebalances, remedy.of) == (STATIC, 6, 7)
    assert (remedy.saved_member_ms, remedy.saved_member_ms_min) == (24_000, 6_000)
    # 12 s till all had joined the rebalance that it came back with; it may have died before it
    # was missed for a session timeout of 45 s.
    assert remedy.setting == "group.instance.id and session.timeout.ms=60000"
    assert remedy.records == [(7, 102), (7, 103), (7, 104), (7, 105), (7, 106), (7, 107)]
    assert "a, b, c came back 3 times, after 12 s at most" in remedy.text
    assert "a member that stops is missed after 1 min instead of 45 s" in remedy.text
    assert group.found.remarks == []


def test_who_left_in_order_needs_no_more_than_it_was_away() -> None:
    group = Group("a", "b")
    # Nobody is missed that soon after it joined, if sessions last for 45 s.
    group.restart("a", 5 * SECOND, stays=20 * SECOND).restart("b", 5 * SECOND, stays=SECOND)
    remedy = group.remedy(STATIC)
    assert remedy is not None
    assert remedy.rebalances == 4
    assert remedy.setting == "group.instance.id and session.timeout.ms=45000 as it is"


def test_a_restart_in_one_rebalance_is_one() -> None:
    group = Group("a", "b", "c")
    for name in "abc":
        group.wait(HOUR).rebalance(left=[name], joined=[name], takes=20 * SECOND)
    remedy = group.remedy(STATIC)
    assert remedy is not None
    assert (remedy.rebalances, remedy.of) == (3, 4)
    assert remedy.setting.endswith("session.timeout.ms=45000 as it is")


def test_what_ends_a_rebalance_that_is_not_would_not_be_either() -> None:
    group = Group("a", "b", protocol="cooperative-sticky", rebalance_protocol="cooperative")
    group.wait(HOUR).rebalance(left=["a"]).rebalance(cause="cooperative_follow_up")
    group.wait(SECOND).rebalance(joined=["a"]).rebalance(cause="cooperative_follow_up")
    remedy = group.remedy(STATIC)
    assert remedy is not None
    assert remedy.rebalances == 4


def test_a_client_id_is_a_client_with_another_address() -> None:
    group = Group("a@/10.0.0.1", "b@/10.0.0.2")
    for old, new in (("a@/10.0.0.1", "a@/10.0.0.3"), ("b@/10.0.0.2", "b@/10.0.0.4")):
        group.wait(HOUR).rebalance(left=[old]).wait(SECOND).rebalance(joined=[new])
    remedy = group.remedy(STATIC)
    assert remedy is not None
    assert remedy.rebalances == 4


def test_a_client_id_of_several_members_is_none() -> None:
    group = Group("app@/10.0.0.1", "app@/10.0.0.2")
    for old, new in (("app@/10.0.0.1", "app@/10.0.0.3"), ("app@/10.0.0.2", "app@/10.0.0.4")):
        group.wait(HOUR).rebalance(left=[old]).wait(SECOND).rebalance(joined=[new])
    assert group.found.named == []
    # Nor is it known to be one where not all stays are.
    assert remedies(group.rows, None).named == []


@pytest.mark.parametrize(
    "change",
    [
        {"joined": ["d"]},
        {"left": ["c"]},
        {"subscribed_topics": ["t", "u"]},
        {"subscriptions": 2},
        {"protocol": "sticky"},
    ],
    ids=["one that is new", "one that stays away", "other topics", "two versions", "assignor"],
)
def test_what_would_have_happened_all_the_same_does_not_count(change: Row) -> None:
    group = Group("a", "b", "c")
    for name in "ab":
        group.restart(name, 5 * SECOND)
    before = group.remedy(STATIC)
    joined, left = change.get("joined", []), ["a", *change.get("left", [])]
    others = {name: value for name, value in change.items() if name not in ("joined", "left")}
    group.wait(HOUR).rebalance(left=left, joined=joined, **others)
    group.wait(SECOND).rebalance(joined=["a"], **others)
    remedy = group.remedy(STATIC)
    assert before is not None
    assert remedy is not None
    assert remedy.rebalances == before.rebalances + 1  # `a` comes back, and nothing else changes


def test_members_that_never_came_back_are_meant_to_go() -> None:
    group = Group("a", "b", "c", "d")
    for name in "abc":
        group.wait(HOUR).rebalance(left=[name])
    assert group.found == Remedies([], [])


def test_members_that_stay_away_for_long_are_not_restarts() -> None:
    group = Group("a", "b")
    for name in "ab":
        group.restart(name, HOUR)
    assert group.found.named == []


def test_a_group_that_is_stopped_as_a_whole_disturbs_nobody() -> None:
    group = Group("a", "b")
    for _ in range(4):
        group.wait(5 * MINUTE).rebalance(left=["a", "b"]).wait(20 * SECOND)
        group.rebalance(joined=["a", "b"])
    assert group.found == Remedies([], [])


@pytest.mark.parametrize("group_type", ["share", "streams"])
def test_groups_without_static_members(group_type: str) -> None:
    group = Group("a", "b", group_type=group_type, session_timeout_ms=None)
    for name in "abab":
        group.restart(name, 2 * SECOND)
    assert group.found.named == []


def test_workers_of_connect_are_not_static() -> None:
    group = Group("a", "b", protocol_type="connect", protocol="sessioned")
    for name in "abab":
        group.restart(name, 2 * SECOND)
    assert group.found.named == []


def test_the_new_protocol_has_its_session_timeout_at_the_broker() -> None:
    group = Group("a", "b", group_type="consumer", session_timeout_ms=None)
    for name in "ab":
        group.restart(name, 5 * SECOND, takes=0)
    remedy = group.remedy(STATIC)
    assert remedy is not None
    assert remedy.setting == "group.instance.id and group.consumer.session.timeout.ms=60000"


def test_a_straggler_does_not_decide() -> None:
    group = Group(*"abcdefghijkl")
    for name in "abcdefghijk":
        group.restart(name, 5 * SECOND)
    group.restart("l", 3 * MINUTE)
    remedy = group.remedy(STATIC)
    assert remedy is not None
    assert remedy.setting.endswith("=60000")
    assert (remedy.rebalances, remedy.of) == (22, 25)
    for name in "abcdefghijkl":  # nor do those that no value is to cover
        group.restart(name, 20 * MINUTE)
    remedy = group.remedy(STATIC)
    assert remedy is not None
    assert remedy.setting.endswith("=60000")


def test_one_in_many_is_no_remedy() -> None:
    group = Group(*"abcdefgh")
    for number in range(60):
        group.wait(HOUR).rebalance(joined=[f"n{number}"])
    group.restart("a", SECOND)
    assert group.found.named == []


# -- who comes back again and again ----------------------------------------------------------------


def test_clients_that_leave_in_order_again_and_again_are_to_be_looked_at_first() -> None:
    group = Group("a", "b", session_timeout_ms=10 * SECOND)
    for _ in range(5):
        group.restart("a", SECOND, stays=2 * SECOND)
    remedy = group.remedy(STATIC)
    assert remedy is not None
    assert remedy.rebalances == 10
    assert "First find out why a stop and start again and again" in remedy.text


def test_a_crash_loop_is_prevented_by_no_setting() -> None:
    group = Group("a", "b", session_timeout_ms=30 * SECOND)
    for _ in range(5):
        group.wait(50 * SECOND).rebalance(left=["a"], joined=["a"], takes=25 * SECOND)
    assert group.found.named == []
    (remark,) = group.found.remarks
    assert remark.startswith("No setting prevents 5 rebalances of a: members die again and again")
    assert "Static membership would only hide it, while their partitions wait" in remark


@pytest.mark.parametrize("name", ["a", "i:a"], ids=["dynamic", "static"])
def test_who_is_away_for_minutes_again_and_again_is_not_waited_for(name: str) -> None:
    group = Group(name, "b")
    for _ in range(4):
        group.restart(name, 3 * MINUTE, stays=2 * MINUTE)
    assert group.found.named == []
    (remark,) = group.found.remarks
    assert remark.startswith("No setting prevents 8 rebalances of")
    assert "members die, hang or are stopped again and again" in remark


def test_members_that_die_and_are_replaced_by_others() -> None:
    group = Group("a", "b0", session_timeout_ms=6 * SECOND)
    for number in range(4):
        group.wait(8 * SECOND).rebalance(
            left=[f"b{number}"], joined=[f"b{number + 1}"], takes=6 * SECOND
        )
    assert group.found.named == []
    (remark,) = group.found.remarks
    assert remark.startswith("No setting prevents 4 rebalances of b0, b1, b2 and 1 more:")


@pytest.mark.parametrize(
    ("takes", "joins"),
    [(6 * SECOND, False), (3 * SECOND, True)],
    ids=["scaled in", "deployed"],
)
def test_members_that_leave_for_good_have_not_died(takes: int, *, joins: bool) -> None:
    group = Group(*(f"b{n}" for n in range(9)), session_timeout_ms=6 * SECOND)
    for number in range(6):
        joined = [f"c{number}"] if joins else []
        group.wait(MINUTE).rebalance(left=[f"b{number}"], joined=joined, takes=takes)
    assert group.found == Remedies([], [])


def test_whether_a_client_hung_or_died_is_not_known() -> None:
    group = Group("a", "b", session_timeout_ms=10 * SECOND)
    for _ in range(4):
        group.restart("a", 15 * SECOND, stays=3 * MINUTE)
    (remedy,) = group.found.named
    assert (remedy.kind, remedy.rebalances, remedy.is_most) == (SESSION, 8, True)
    assert remedy.text.startswith("With session.timeout.ms=30000, at most 8 of 9 rebalances")
    assert "The log does not tell whether they hung, or died" in remedy.text


def test_a_member_that_polls_too_seldom_needs_the_time_between_two_polls() -> None:
    group = Group("a", "b", rebalance_timeout_ms=MINUTE)
    for _ in range(4):
        group.restart("a", 20 * SECOND, stays=65 * SECOND)
    (remedy,) = group.found.named
    assert (remedy.kind, remedy.rebalances, remedy.is_most) == (POLL, 8, True)
    assert remedy.setting == "max.poll.interval.ms=120000"
    assert "instead of 1 min" in remedy.text


def test_a_member_that_is_scaled_in_and_out_is_stopped() -> None:
    group = Group("a", "b", rebalance_timeout_ms=5 * MINUTE)
    for _ in range(4):
        group.restart("a", 10 * MINUTE, stays=10 * MINUTE)
    assert group.found == Remedies([], [])


def test_static_members_that_take_longer_than_their_session() -> None:
    group = Group("i:a", "i:b", session_timeout_ms=10 * SECOND)
    for name in ("i:a", "i:b"):
        group.restart(name, 16 * SECOND)
    (remedy,) = group.found.named
    assert (remedy.kind, remedy.rebalances, remedy.is_most) == (SESSION, 4, False)
    assert remedy.setting == "session.timeout.ms=30000"


def test_a_static_member_that_is_replaced_without_a_rebalance_is_no_change() -> None:
    group = Group("i:a", "b")
    group.restart("b", SECOND).restart("b", SECOND)
    row = group.rows[1]
    row["members_replaced"] = [group.there["i:a"] | {"replaced_member_id": "i:a-0"}]
    remedy = group.remedy(STATIC)
    assert remedy is not None
    assert remedy.rebalances == 4


def test_a_member_of_the_new_protocol_that_keeps_its_id_went_on() -> None:
    group = Group("a", "b", group_type="consumer", session_timeout_ms=None)
    group.restart("a", 5 * SECOND, takes=0)
    group.rows[-1]["members_joined"] = group.rows[-2]["members_left"]
    (remedy,) = group.found.named
    assert (remedy.kind, remedy.rebalances) == (SESSION, 2)
    assert remedy.setting == "group.consumer.session.timeout.ms=60000"


# -- starts ----------------------------------------------------------------------------------------


def test_a_start_that_comes_apart_needs_a_longer_delay() -> None:
    group = Group("a")
    group.wait(SECOND).rebalance(joined=["b"]).wait(2 * SECOND).rebalance(joined=["c", "d"])
    assert group.remedy(DELAY) is None  # for so little, no group should wait
    group.wait(0).rebalance(joined=["e"])
    remedy = group.remedy(DELAY)
    assert remedy is not None
    assert (remedy.rebalances, remedy.of) == (3, 4)
    # From the first of each rebalance to the first of the next: the last may have come later.
    assert remedy.setting == "group.initial.rebalance.delay.ms=5000 (brokers)"
    assert "each start of an empty group takes 5 s at least" in remedy.text


def test_a_group_that_grows_has_no_start() -> None:
    group = Group("a")
    for name in "bcd":
        group.wait(MINUTE).rebalance(joined=[name])
    assert group.found.named == []


def test_who_joins_where_others_leave_is_not_late_for_the_start() -> None:
    group = Group("a")
    group.wait(SECOND).rebalance(joined=["b"], left=["a"])
    group.wait(SECOND).rebalance(joined=["c"], left=["b"])
    assert group.remedy(DELAY) is None


# -- assignors -------------------------------------------------------------------------------------


def _scaled(**usual: object) -> Group:
    group = Group("a", "b", "c", assigned_partitions=12, **usual)
    for name in "defg":
        group.wait(HOUR).rebalance(
            joined=[name], stickiness=0.75, moved_partitions=3, cost_member_ms=8_000
        )
    return group


def test_what_members_gave_up_and_got_back_a_cooperative_assignor_leaves_alone() -> None:
    (remedy,) = _scaled().found.named
    assert (remedy.kind, remedy.rebalances, remedy.saved_member_ms) == (COOPERATIVE, 0, 24_000)
    assert "in 4 rebalances members gave up what range gave them again" in remedy.text


def test_what_those_had_that_are_gone_nobody_gave_up() -> None:
    group = Group("a", "b", "c", assigned_partitions=12)
    for name in "ab":
        group.wait(HOUR).rebalance(
            left=[name], stickiness=0.5, moved_partitions=6, cost_member_ms=8_000
        )
    (remedy,) = group.found.named
    # The first had 4 of the 6 that have another owner now, the second all 6.
    assert remedy.saved_member_ms == 8_000 * 6 // 8 + 8_000


@pytest.mark.parametrize(
    "usual",
    [
        {"rebalance_protocol": "cooperative"},
        {"rebalance_protocol": "incremental", "group_type": "consumer"},
        {"protocol_type": "connect"},
        {"protocol": "stream"},
    ],
)
def test_others_have_no_other_assignor(usual: Row) -> None:
    assert _scaled(**usual).found.named == []


# -- the recordings --------------------------------------------------------------------------------


def _of_recording(group: str) -> Remedies:
    tables = histories_of(ROOT / "examples/recordings/4.3.1-storm.parquet")[group]
    rows = [with_nulls(GENERATIONS, row) for row in tables[GENERATIONS]]
    return remedies(rows, [with_nulls(SESSIONS, row) for row in tables[SESSIONS]])


def test_the_docs_show_what_is_said_of_the_demo() -> None:
    page = re.sub(r"\s+", " ", (ROOT / "docs/explain.md").read_text("utf-8"))
    for group in ("orders-storm", "payments-slow"):
        assert _of_recording(group).named[0].sentence in page
    (remark,) = _of_recording("crash-loop").remarks
    assert remark in page
    front = re.sub(r"\s+", " ", (ROOT / "README.md").read_text("utf-8"))
    static = _of_recording("orders-storm").named[0]
    assert f"{static.rebalances} of {static.of} rebalances would not have happened" in front


def test_each_storm_of_the_demo_has_its_remedy() -> None:
    kinds = {
        group: [r.kind for r in _of_recording(group).named]
        for group in ("orders-storm", "payments-slow", "payments-jslow", "healthy-ctl")
    }
    assert kinds == {
        "orders-storm": [STATIC, COOPERATIVE],
        "payments-slow": [POLL],
        "payments-jslow": [POLL, COOPERATIVE],
        "healthy-ctl": [],
    }


def test_why_a_rebalance_began_may_not_be_known() -> None:
    group = Group("a", "b").wait(HOUR).rebalance(cause="unknown")
    assert group.found.remarks == ["Why 1 rebalance began is not known."]


def test_where_records_are_missing_nothing_is_counted() -> None:
    gap: Any = {"aborted_generations": 2, "aborted_evidence": "unknown"}
    group = Group("a", "b", "c")
    group.restart("a", SECOND).restart("b", SECOND).restart("c", SECOND, **gap)
    remedy = group.remedy(STATIC)
    assert remedy is not None
    assert (remedy.rebalances, remedy.of) == (4, 7)
    assert group.found.remarks == ["Before 2 rebalances records are missing: these do not count."]


def test_a_group_with_many_rebalances_is_counted_in_time() -> None:
    group = Group("a", "b")
    for _ in range(2_000):
        group.restart("a", 15 * SECOND, stays=3 * MINUTE)
    assert [r.rebalances for r in group.found.named] == [4_000]
