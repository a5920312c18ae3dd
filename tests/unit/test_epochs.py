"""Why groups of the new protocols begin epochs, and which members these are of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.detection import detected_history
from tests.support.records import HOUR, MINUTE, SECOND, Records
from tests.unit.test_lives import generations, states, whole_and_cut
from timeline.model import OWNERS, SESSIONS

Row = dict[str, Any]


class Group(Records):
    """A group of a new protocol, of which each heartbeat is a batch."""

    def __init__(self, kind: str = "consumer") -> None:
        super().__init__()
        self.kind = kind
        self.number = 0
        self.given: Row = {"metadata_hash": 77}

    def of(self, name: str, payload: Row | None, member: str | None = None) -> Group:
        """Write a record by the end of its name."""
        self.record(f"{self.kind}_group_{name}", payload, member)
        return self

    def joins(self, name: str, **given: object) -> Group:
        """Write what a member tells of itself."""
        own = {} if self.kind == "streams" else {"subscribed_topic_names": ["t"]}
        own |= {"client_id": f"client-{name}", "client_host": "/h", "rebalance_timeout_ms": MINUTE}
        return self.of("member_metadata", {**own, **given}, name)

    def begins(self, **given: object) -> Group:
        """Begin the next epoch; what is given stays as it is in those that follow."""
        self.number += 1
        self.given |= given
        return self.of("metadata", {"epoch": self.number, **self.given})

    def assigned(self, **members: Row) -> Group:
        """Assign the epoch, and let all members be there at once."""
        for name, owned in members.items():
            self.of("target_assignment_member", owned, name)
        self.of("target_assignment_metadata", {"assignment_epoch": self.number})
        for name, owned in members.items():
            own = {"assigned_partitions": owned.get("topic_partitions", []), **owned}
            stable = 1 if self.kind == "streams" else 0
            of_epoch = {"member_epoch": self.number, "previous_member_epoch": 0, "state": stable}
            self.of("current_member_assignment", {**own, **of_epoch}, name)
        return self

    def resolved(self, expression: str, *topics: str) -> Group:
        """Write what an expression matches."""
        value = {"regular_expression": expression, "topics": list(topics)}
        return self.of("regular_expression", value)

    def later(self, ms: int = MINUTE, *, hole: bool = False) -> Group:
        """Let time pass."""
        self.wait(ms, hole=hole)
        return self

    def causes(self) -> list[tuple[str, str]]:
        """Return what is told of each epoch."""
        return [(r["cause"], r["cause_detail"]) for r in generations(whole_and_cut(self.log()))]


def partitions(*numbers: int) -> Row:
    return {"topic_partitions": [{"topic_id": "id-of-t", "partitions": list(numbers)}]}


def tasks(active: tuple[int, ...] = (), **copies: tuple[int, ...]) -> Row:
    """Return tasks of a subtopology: active ones, `standby` and `warmup` ones."""
    lists = {"active": active, "standby": (), "warmup": (), **copies}
    return {
        f"{kind}_tasks": [{"subtopology_id": "0", "partitions": list(numbers)}] if numbers else []
        for kind, numbers in lists.items()
    }


def streams(*sources: str, **of_subtopology: object) -> Group:
    """Let a member begin a streams group, whose epochs begin with 2."""
    group = Group("streams")
    group.number = 1
    subtopology = {"subtopology_id": "0", "source_topics": list(sources), **of_subtopology}
    group.joins("a", client_tags=[]).of("topology", {"epoch": 0, "subtopologies": [subtopology]})
    settings = [{"key": "num.standby.replicas", "value": "0"}]
    group.begins(validated_topology_epoch=0, last_assignment_configs=settings)
    return group.assigned(a=tasks((0, 1))).later()


def consumers() -> Group:
    return Group().joins("a").begins().assigned(a=partitions(0, 1)).later()


# -- causes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "cause", "text"),
    [
        (lambda g: g.begins(metadata_hash=78), "partitions_changed", "topics' metadata changed"),
        (
            lambda g: g.of("topology", {"epoch": 1, "subtopologies": []}).begins(
                validated_topology_epoch=1
            ),
            "settings_changed",
            "the topology is that of epoch 1",
        ),
        (
            lambda g: g.begins(
                last_assignment_configs=[{"key": "num.standby.replicas", "value": "1"}]
            ),
            "settings_changed",
            "num.standby.replicas is 1, not 0",
        ),
        (
            lambda g: g.joins("a", client_tags=[{"key": "zone", "value": "b"}]).begins(),
            "settings_changed",
            "client-a changed its client tags",
        ),
        (
            lambda g: g.joins("a", client_tags=[], client_host="/other").begins(),
            "settings_changed",
            "client-a changed its address",
        ),
        (lambda g: g.begins(validated_topology_epoch=-1), "settings_changed", "not all topics"),
        (lambda g: g.begins(), "unknown", "nothing that records tell of has changed"),
    ],
)
def test_an_epoch_of_a_streams_group_has_the_cause_that_its_records_show(
    change: Callable[[Group], Group], cause: str, text: str
) -> None:
    found, detail = change(streams("t")).causes()[-1]
    assert found == cause
    assert text in detail


def test_only_a_hash_tells_that_the_topics_changed() -> None:
    same = consumers().begins().assigned(a=partitions(0, 1))
    assert same.causes()[-1][0] == "unknown"
    other = consumers().begins(metadata_hash=78).assigned(a=partitions(0, 1, 2))
    assert other.causes()[-1][0] == "partitions_changed"


@pytest.mark.parametrize(
    ("kind", "nothing"), [("consumer", None), ("consumer", 0), ("share", 0), ("streams", 0)]
)
def test_a_hash_of_0_tells_that_no_topic_is_there(kind: str, nothing: int | None) -> None:
    def cause_of(before: int | None, now: int | None) -> str:
        group = Group(kind).joins("a").begins(metadata_hash=before).assigned(a=partitions())
        group.later().begins(metadata_hash=now).assigned(a=partitions())
        return group.causes()[-1][0]

    assert cause_of(nothing, 77) == cause_of(77, nothing) == "partitions_changed"
    assert cause_of(nothing, nothing) == cause_of(0, nothing) == cause_of(nothing, 0) == "unknown"


def test_a_share_group_of_kafka_4_0_has_no_hash_that_could_change() -> None:
    group = Group("share").joins("a").begins(metadata_hash=None).assigned(a=partitions(0)).later()
    group.begins(metadata_hash=77).assigned(a=partitions(0))
    assert group.causes()[-1][0] == "unknown"


@pytest.mark.parametrize("stored", [None, 0])
def test_up_to_kafka_4_0_a_record_tells_that_the_topics_changed(stored: int | None) -> None:
    group = Group().joins("a").begins(metadata_hash=stored).assigned(a=partitions(0)).later()
    group.of("partition_metadata", {"topics": []}).begins().assigned(a=partitions(0, 1)).later()
    assert group.causes()[-1][0] == "partitions_changed"
    # The first coordinator of a later release has a hash in its place.
    group.of("partition_metadata", None).begins(metadata_hash=5).assigned(a=partitions(0, 1))
    assert group.causes()[-1][0] == "coordinator_failover_suspected"
    # In a rolling upgrade it may come back.
    group.later().of("partition_metadata", {"topics": []}).begins(metadata_hash=stored)
    assert group.assigned(a=partitions(0, 1)).causes()[-1][0] == "coordinator_failover_suspected"
    # That the record is gone does not show another coordinator by itself.
    group.of("partition_metadata", None).begins().assigned(a=partitions(0, 1))
    assert group.causes()[-1][0] == "unknown"


def test_share_groups_assign_what_was_initialized_in_an_epoch_of_its_own() -> None:
    # GroupMetadataManager.initializedAssignmentPending
    topics = [{"topic_id": "id-of-t", "topic_name": "t", "partitions": [0, 1]}]
    group = Group("share").joins("a").begins().assigned(a=partitions())
    group.of("state_partition_metadata", {"initializing_topics": topics}).later()
    group.of("state_partition_metadata", {"initialized_topics": topics}).later(5 * SECOND)
    group.begins().assigned(a=partitions(0, 1)).later()
    assert group.causes()[-1][0] == "cooperative_follow_up"
    # More partitions: first the topic is another, then they are ready.
    group.begins(metadata_hash=78).assigned(a=partitions(0, 1)).later()
    assert group.causes()[-1][0] == "partitions_changed"
    group.begins().assigned(a=partitions(0, 1))
    assert group.causes()[-1][0] == "unknown"


@pytest.mark.parametrize("is_new", [False, True])
def test_who_sets_offsets_of_a_share_group_is_no_member(*, is_new: bool) -> None:
    # GroupMetadataManager.alterShareGroupOffsets
    group = Group("share")
    if not is_new:
        group.joins("a").begins().assigned(a=partitions(0)).later()
        for name in ("current_member_assignment", "target_assignment_member", "member_metadata"):
            group.of(name, None, "a")
        group.begins().later()
    topics = [{"topic_id": "id-of-t", "topic_name": "t", "partitions": [0]}]
    group.begins().of("state_partition_metadata", {"initializing_topics": topics})
    assert group.causes()[-1][0] == "offsets_altered"
    assert states(whole_and_cut(group.log()))[-1] == ("share", "Empty")
    if not is_new:
        assert group.causes()[-2][0] == "member_left"


def test_the_assignor_that_most_members_ask_for_is_told() -> None:
    group = Group().joins("a", server_assignor="range").begins().assigned(a=partitions(0, 1))
    group.later().joins("b", server_assignor="uniform").begins().assigned(a=partitions(0, 1))
    group.later().joins("c", server_assignor="uniform").begins().assigned(a=partitions(0, 1))
    tables = whole_and_cut(group.log())
    assert [r["protocol"] for r in generations(tables)] == ["range", "range", "uniform"]
    changes = [r for r in detected_history(tables, group.clock) if r["kind"] == "protocol_change"]
    assert [(r["label"], r["severity"]) for r in changes] == [("assignor", "info")]
    assert "from range to uniform" in changes[0]["summary"]


def test_the_assignor_of_a_converted_group_is_not_compared_with_that_of_its_clients() -> None:
    log = Records().classic(3, {"a": [0, 1]}, protocol="range").wait(MINUTE)
    log.deleted().member("a").epoch(3).target(3, a=[0, 1]).current("a", 3, [0, 1], previous=3)
    value = {"client_id": "b", "client_host": "/h", "subscribed_topic_names": ["t"]}
    log.wait(MINUTE).record(
        "consumer_group_member_metadata", {**value, "server_assignor": "uniform"}, "b"
    )
    log.epoch(4).target(4, a=[0], b=[1]).current("a", 4, [0]).current("b", 4, [1])
    found = detected_history(whole_and_cut(log.log()), log.clock)
    assert [r["label"] for r in found if r["kind"] == "protocol_change"] == ["conversion"]


def test_epochs_that_are_assigned_together_say_so() -> None:
    # KIP-1263: the coordinator assigns at most once in an interval.
    group = consumers().joins("b").begins().later(SECOND).joins("c").begins().later(SECOND)
    group.assigned(a=partitions(0), b=partitions(1), c=partitions())
    causes = group.causes()
    assert [name for name, _ in causes] == ["group_created", "new_member", "new_member"]
    assert [text.endswith("over before it was assigned") for _, text in causes] == [
        *(False, True, False)
    ]


def test_an_epoch_that_is_over_before_all_got_there_has_its_time_and_who_held_it_up() -> None:
    group = consumers().joins("b").begins()
    for name, owned in (("a", partitions(0)), ("b", partitions(1))):
        group.of("target_assignment_member", owned, name)
    group.of("target_assignment_metadata", {"assignment_epoch": group.number})
    group.later(3 * MINUTE).joins("c").begins().later(SECOND)
    group.assigned(a=partitions(0), b=partitions(1), c=partitions())
    first, over, last = generations(whole_and_cut(group.log()))
    assert (over["stable_at"], over["rebalance_ms"]) == (None, 3 * MINUTE)
    assert [member["client_id"] for member in over["waited_for"]] == ["client-a"]
    assert [row["rebalance_ms"] for row in (first, last)] == [0, SECOND]


def test_an_epoch_in_which_a_streams_group_waits_for_its_topics_has_no_time() -> None:
    group = streams("t").begins(validated_topology_epoch=-1).later()
    group.begins(validated_topology_epoch=0).assigned(a=tasks((0, 1)))
    _, waiting, _ = generations(whole_and_cut(group.log()))
    assert waiting["rebalance_ms"] is None


# -- regular expressions ---------------------------------------------------------------------------


def test_a_new_group_with_an_expression_has_its_first_epoch_though_no_record_has_it() -> None:
    # GroupMetadataManager.consumerGroupHeartbeat up to 4.3.
    group = Group()
    group.joins("a", subscribed_topic_names=[], subscribed_topic_regex="a.*")
    value = {"member_epoch": 1, "previous_member_epoch": 0, "state": 0}
    group.of("current_member_assignment", {**value, "assigned_partitions": []}, "a").later(4)
    group.number = 1
    group.resolved("a.*", "a1").begins().later(2).assigned(a=partitions(0))
    tables = whole_and_cut(group.log())
    first, second = generations(tables)
    assert (first["generation"], first["cause"], first["member_count"]) == (1, "group_created", 1)
    assert (second["cause"], second["cause_detail"]) == (
        "subscription_changed",
        "the expression a.* was resolved to a1",
    )
    assert [s for _, s in states(tables)] == ["Stable", "Assigning", "Stable"]


def test_a_join_with_a_new_expression_is_of_the_epoch_that_resolves_it() -> None:
    group = consumers()
    group.joins("b", subscribed_topic_names=[], subscribed_topic_regex="b.*").later(60)
    assert [r["member_count"] for r in generations(whole_and_cut(group.log()))] == [1]
    group.resolved("b.*", "b1", "b2").begins(metadata_hash=78).later(SECOND)
    group.assigned(a=partitions(0), b=partitions(1))
    tables = whole_and_cut(group.log())
    first, second = generations(tables)
    assert [m["member_id"] for m in first["members_joined"]] == ["a"]
    assert (first["member_count"], second["member_count"]) == (1, 2)
    assert second["cause"] == "new_member"
    assert second["cause_detail"] == ("client-b joined; the expression b.* was resolved to b1, b2")
    joined = {s["member_id"]: s["first_generation"] for s in tables[SESSIONS]}
    assert joined == {"a": 1, "b": 2}


def test_a_join_with_an_expression_that_is_known_or_matches_nothing_is_of_its_own_epoch() -> None:
    group = Group()
    group.joins("a", subscribed_topic_names=[], subscribed_topic_regex="a.*")
    group.begins().assigned(a=partitions()).later(4).resolved("a.*").later()
    group.joins("b", subscribed_topic_names=[], subscribed_topic_regex="x.*").later(4)
    group.resolved("x.*")
    (row,) = generations(whole_and_cut(group.log()))
    assert [m["member_id"] for m in row["members_joined"]] == ["a", "b"]
    assert row["member_count"] == 2


def test_a_member_with_a_new_expression_and_topics_that_come_to_match_are_told_apart() -> None:
    group = Group()
    group.joins("a", subscribed_topic_names=[], subscribed_topic_regex="a.*")
    group.begins().assigned(a=partitions()).later(4)
    group.resolved("a.*", "a1").begins().assigned(a=partitions(0)).later(HOUR)
    group.resolved("a.*", "a1").later(MINUTE)  # looked at again: nothing new
    group.resolved("a.*", "a1", "a2").begins(metadata_hash=78).assigned(a=partitions(0)).later()
    assert group.causes()[-1] == ("partitions_changed", "the expression a.* matches a2")
    group.joins("a", subscribed_topic_names=[], subscribed_topic_regex="b.*").later(4)
    group.of("regular_expression", None).resolved("b.*", "b1").begins()
    assert group.causes()[-1] == (
        "subscription_changed",
        "client-a subscribes by the expression b.*; the expression b.* was resolved to b1",
    )


# -- batches ---------------------------------------------------------------------------------------


def test_two_first_heartbeats_in_one_millisecond_are_two_epochs_and_no_conversion() -> None:
    for hole in (False, True):
        group = Group()
        group.classic(1, {"x": [0, 1]}).wait(MINUTE).classic(2).wait(MINUTE, hole=hole)
        group.deleted()
        group.joins("a").begins().assigned(a=partitions(0, 1))
        group.joins("b").begins().of("target_assignment_member", partitions(0), "a")
        group.of("target_assignment_metadata", {"assignment_epoch": 2})
        tables = whole_and_cut(group.log())
        found = [(r["generation"], r["cause"]) for r in generations(tables)[-2:]]
        assert found == [(1, "group_created"), (2, "new_member")]
        assert ("classic", "Dead") in states(tables)


def test_what_a_member_owns_may_come_before_what_it_is() -> None:
    # Its address has changed: the record of the member is written again, and compacted.
    group = Group().later(MINUTE, hole=True).begins().assigned(a=partitions(0, 1))
    group.later(HOUR, hole=True).joins("a")
    tables = whole_and_cut(group.log())
    assert [s for _, s in states(tables)] == ["Stable"]
    assert {r["topic_partition"] for r in tables[OWNERS]} == {0, 1}
    # A member that nobody has told of by then is gone.
    group.of("current_member_assignment", None, "a").of("member_metadata", None, "a")
    group.begins().later().joins("a").begins().assigned(a=partitions())
    assert all(r["valid_to"] is not None for r in whole_and_cut(group.log())[OWNERS])


# -- tasks of Kafka Streams ------------------------------------------------------------------------


def test_who_keeps_a_copy_of_a_task_or_warms_one_up_is_not_idle() -> None:
    group = streams("t").joins("b", client_tags=[]).joins("c", client_tags=[])
    group.joins("d", client_tags=[]).begins()
    group.assigned(a=tasks((0, 1)), b=tasks(standby=(0,)), c=tasks(warmup=(1,)), d=tasks()).later(
        HOUR
    )
    tables = whole_and_cut(group.log())
    assert generations(tables)[-1]["idle_members"] == ["d"]
    (found,) = (r for r in detected_history(tables, group.clock) if r["kind"] == "idle_members")
    assert found["evidence"].count('"d"') == 1


def test_warm_up_steps_are_no_change_of_topics_and_no_storm() -> None:
    # Each step bumps the epoch and leaves the target as it is (KAFKA-20665).
    group = streams("t").joins("b", client_tags=[]).begins()
    group.assigned(a=tasks((0,)), b=tasks((1,), warmup=(1,))).later()
    for _ in range(30):
        group.begins().of("target_assignment_metadata", {"assignment_epoch": group.number})
        for name, owned in (("a", tasks((0,))), ("b", tasks((1,), warmup=(0,)))):
            of_epoch = {"member_epoch": group.number, "previous_member_epoch": 0, "state": 1}
            group.of("current_member_assignment", {**owned, **of_epoch}, name)
        group.later(20 * SECOND)
    causes = group.causes()
    assert [name for name, _ in causes[2:]] == ["probing"] * 30
    found = detected_history(whole_and_cut(group.log()), group.clock)
    assert [r["kind"] for r in found if r["severity"] != "info"] == []
    # Without warm-up tasks, nobody knows why; members that come and go make a storm.
    restarts = streams("t")
    for i in range(12):
        for name in ("current_member_assignment", "target_assignment_member", "member_metadata"):
            restarts.of(name, None, f"b{i}" if i else "a")
        restarts.joins(f"b{i + 1}", client_tags=[]).begins()
        restarts.assigned(**{f"b{i + 1}": tasks((0, 1))}).later(40 * SECOND)
    kinds = {r["kind"] for r in detected_history(whole_and_cut(restarts.log()), restarts.clock)}
    assert "rebalance_storm" in kinds


def open_owners(group: Group) -> list[tuple[str, int]]:
    """Return topic and partition of each ownership that is open."""
    rows = whole_and_cut(group.log())[OWNERS]
    return sorted((r["topic"], r["topic_partition"]) for r in rows if r["valid_to"] is None)


def test_owners_are_only_of_partitions_that_are_there() -> None:
    # As many tasks as the largest source topic has partitions: PartitionGrouper.partitionGroups.
    group = streams("orders", "refunds")
    assert open_owners(group) == [("orders", 0), ("refunds", 0)]
    assert generations(whole_and_cut(group.log()))[-1]["assigned_partitions"] is None
    started = group.clock - MINUTE
    group.commit("orders", 0).commit("orders", 1).commit("refunds", 0)
    assert open_owners(group) == [("orders", 0), ("orders", 1), ("refunds", 0)]
    tables = whole_and_cut(group.log())
    assert {r["valid_from"] for r in tables[OWNERS]} == {started}
    assert generations(tables)[-1]["assigned_partitions"] == 3
    # What is known of topics stays so; what nobody commits does not come to be.
    group.later().joins("b", client_tags=[]).begins().assigned(a=tasks((0,)), b=tasks((1,)))
    assert open_owners(group) == [("orders", 0), ("orders", 1), ("refunds", 0)]
    tables = whole_and_cut(group.log())
    last = generations(tables)[-1]
    assert (last["assigned_partitions"], last["moved_partitions"]) == (3, 1)
    assert len(tables[OWNERS]) == 4


def test_topics_that_are_joined_have_as_many_partitions_as_each_other() -> None:
    joined = streams("orders", "refunds", copartition_groups=[{"source_topics": [0, 1]}])
    everything = [(topic, number) for topic in ("orders", "refunds") for number in (0, 1)]
    assert open_owners(joined) == everything
    assert generations(whole_and_cut(joined.log()))[-1]["assigned_partitions"] == 4
    assert open_owners(streams("orders")) == [("orders", 0), ("orders", 1)]
    part = [{"source_topics": [0], "repartition_source_topics": []}]
    assert open_owners(streams("orders", "refunds", copartition_groups=part)) == [
        ("orders", 0),
        ("refunds", 0),
    ]


def test_tasks_are_of_the_topics_that_the_topology_names_now() -> None:
    group = streams("orders")
    changed = {"epoch": 1, "subtopologies": [{"subtopology_id": "0", "source_topics": ["sales"]}]}
    group.of("topology", changed).begins(validated_topology_epoch=1)
    assert open_owners(group) == [("sales", 0), ("sales", 1)]


def _unassigned(group: Group) -> list[list[str] | None]:
    return [row["unassigned_topics"] for row in generations(whole_and_cut(group.log()))]


def test_topics_that_nobody_is_assigned_are_told_once_all_others_have_a_name() -> None:
    two: Row = {
        "topic_partitions": [
            {"topic_id": f"id-of-{topic}", "partitions": [0]} for topic in ("t", "u")
        ]
    }
    group = Group().joins("a", subscribed_topic_names=["t", "u", "v"]).begins()
    group.assigned(a=two).later()
    assert _unassigned(group) == [None]
    group.commit("t").later()
    assert _unassigned(group) == [None]
    group.commit("u").later()
    assert _unassigned(group) == [["v"]]
    # What is known of the next epoch is of that one.
    group.begins(metadata_hash=78)
    assert _unassigned(group) == [["v"], None]
    group.commit("w")
    assert _unassigned(group) == [["v"], None]


def test_an_expression_that_is_not_resolved_leaves_open_what_nobody_is_assigned() -> None:
    group = Group().joins("a", subscribed_topic_names=[], subscribed_topic_regex="t.*").begins()
    group.assigned(a=partitions(0)).later().commit("t").later()
    assert _unassigned(group) == [None]
