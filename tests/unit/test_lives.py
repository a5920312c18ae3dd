"""What becomes of a group between two lives: conversions, deletions, another partition, clocks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.detection import detected_history
from tests.support.history import Log, _chunk, cut_anywhere, rebuild
from tests.support.records import HOUR, MINUTE, SECOND, START, Records
from tests.unit.test_history_truth import as_text, assert_same
from timeline.fold import Fold
from timeline.model import GENERATIONS, OWNERS, SESSIONS, STATES, GroupState

Row = dict[str, Any]


def states(tables: dict[str, list[Row]]) -> list[tuple[str, str]]:
    """Return type and name of each state."""
    rows = sorted(tables[STATES], key=lambda r: r["sequence"])
    return [(r["group_type"], r["state"]) for r in rows]


def generations(tables: dict[str, list[Row]]) -> list[Row]:
    return sorted(tables[GENERATIONS], key=lambda r: r["record_offset"])


def whole_and_cut(log: Log) -> dict[str, list[Row]]:
    """Tell a log in one run, after holding that it is the same with a cut anywhere."""
    whole = rebuild(log)
    assert_same(rebuild(log, range(1, len(log.events))), whole, log)  # a run for each event
    for cut in cut_anywhere(log):
        assert_same(cut, whole, log)
    rows = sorted(whole[STATES], key=lambda r: r["sequence"])
    assert [r["sequence"] for r in rows] == list(range(len(rows)))
    return whole


# -- migration -------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1, 2, 9])
def test_an_offline_migration_ends_a_group_and_begins_another(epoch: int) -> None:
    # GroupMetadataManager.maybeDeleteEmptyClassicGroup
    log = Records().classic(1, {"a": [0, 1]}).wait(MINUTE).classic(2).wait(MINUTE)
    log.deleted().joins_empty("b", epoch)
    tables = whole_and_cut(log.log())
    *_, empty, dead, stable = states(tables)
    assert (empty, dead, stable) == (
        ("classic", "Empty"),
        ("classic", "Dead"),
        ("consumer", "Stable"),
    )
    last = generations(tables)[-1]
    assert (last["generation"], last["previous_generation"]) == (epoch, None)
    assert last["cause"] == "group_created"


def test_the_way_back_of_an_offline_migration_does_the_same() -> None:
    # GroupMetadataManager.maybeDeleteEmptyConsumerGroup
    log = Records().joins_empty("a").wait(MINUTE).leaves_empty("a", 2).wait(MINUTE)
    log.target(None).epoch(None).created().wait(3 * SECOND).classic(1, {"b": [0, 1]})
    tables = whole_and_cut(log.log())
    assert states(tables) == [
        ("consumer", "Stable"),
        ("consumer", "Empty"),
        ("consumer", "Dead"),
        ("classic", "Empty"),
        ("classic", "PreparingRebalance"),
        ("classic", "CompletingRebalance"),
        ("classic", "Stable"),
    ]
    created = generations(tables)[2]
    assert (created["generation"], created["previous_generation"]) == (0, None)
    assert created["cause"] == "group_created"


def test_an_online_migration_goes_on_with_the_generation() -> None:
    log = Records().classic(3, {"a": [0, 1]}).wait(MINUTE)
    log.deleted().member("a").epoch(3).target(3, a=[0, 1]).current("a", 3, [0, 1])
    log.member("b").epoch(4).target(4, a=[0], b=[1]).current("a", 3, [0], 1)
    tables = whole_and_cut(log.log())
    assert ("classic", "Dead") not in states(tables)
    last = generations(tables)[-1]
    assert (last["generation"], last["previous_generation"]) == (4, 3)
    assert last["cause"] == "conversion"


def test_a_conversion_behind_a_hole_is_none_of_the_group_that_was_there_before() -> None:
    log = Records().joins_empty("x").wait(HOUR, hole=True)
    log.deleted().member("a").epoch(3).target(3, a=[0]).current("a", 3, [0], previous=3)
    log.member("b").epoch(4)
    tables = whole_and_cut(log.log())
    assert states(tables) == [
        *(("consumer", "Stable"), ("consumer", "Dead"), ("consumer", "Assigning")),
    ]
    assert {r["member_id"] for r in tables[SESSIONS] if r["left_at"] is None} == {"a", "b"}


def test_no_classic_group_is_converted_to_a_share_group() -> None:
    log = Records().wait(SECOND, hole=True).classic(2).wait(HOUR, hole=True)
    log.deleted().member("a", kind="share").member("b", kind="share")
    log.record("share_group_metadata", {"epoch": 2})
    assert states(whole_and_cut(log.log()))[-2:] == [("classic", "Dead"), ("share", "Stable")]


def test_members_that_had_only_joined_are_converted_too() -> None:
    log = Records().created().wait(SECOND)
    log.deleted().member("a").epoch(0).target(0, a=[]).current("a", 0, previous=0)
    log.member("b").epoch(1).target(1, a=[0], b=[1]).current("b", 1, [1])
    tables = whole_and_cut(log.log())
    assert states(tables) == [("classic", "Empty"), ("consumer", "Reconciling")]
    assert generations(tables)[-1]["cause"] == "conversion"


def test_a_static_member_that_brings_the_new_protocol_starts_no_classic_rebalance() -> None:
    log = Records().classic(3, {"a": [0, 1]}).wait(MINUTE)
    log.deleted().member("a").epoch(3).target(3, a=[0, 1]).current("a", 3, [0, 1])
    log.current("a", None).member("a", gone=True).member("b").current("b", 3, [0, 1])
    assert states(whole_and_cut(log.log()))[-2:] == [
        ("classic", "Stable"),
        ("consumer", "Stable"),
    ]


def test_who_left_before_a_conversion_left_at_some_time_since_the_group_was_stable() -> None:
    log = Records().classic(3, {"a": [0], "b": [1]})
    stable = log.clock
    log.wait(MINUTE).deleted().member("a").epoch(3).target(3, a=[0]).current("a", 3, [0])
    log.member("c").epoch(4).target(4, a=[0], c=[1]).current("c", 4, [1])
    tables = whole_and_cut(log.log())
    of = {r["member_id"]: r for r in tables[SESSIONS]}
    left = {m: (r["left_at_min"], r["left_at"], r["end_cause"]) for m, r in of.items()}
    assert left["b"] == (stable, log.clock, "left_or_failed")
    assert {left["a"], left["c"]} == {(None, None, None)}
    assert of["c"]["joined_at_min"] == log.clock


def test_an_online_migration_back_rebalances_at_once() -> None:
    log = Records().joins_empty("a").wait(MINUTE)
    log.current("a", None).target(None).member("a", gone=True).epoch(None)
    log.classic(1, {"a": [0, 1]})
    tables = whole_and_cut(log.log())
    assert states(tables) == [("consumer", "Stable"), ("classic", "PreparingRebalance")]
    assert generations(tables)[-1]["cause"] == "conversion"


@pytest.mark.parametrize("joins", [False, True])
def test_the_rebalance_that_a_conversion_back_begins_is_one_with_it(joins: bool) -> None:  # noqa: FBT001
    log = Records().joins_empty("a").wait(MINUTE).member("b").epoch(2).target(2, a=[0], b=[1])
    log.current("a", 2, [0]).current("b", 2, [1]).wait(MINUTE)
    # The last member of the new protocol leaves: what it had goes to the other one.
    log.current("b", None).member("b", gone=True).current("a", None).target(None)
    log.member("a", gone=True).epoch(None).classic(2, {"a": [0]}).wait(2 * SECOND)
    log.classic(3, {"a": [0, 1], "c": []} if joins else {"a": [0, 1]})
    *_, back, row = generations(whole_and_cut(log.log()._replace(names={"id-of-t": "t"})))
    assert (back["cause"], [m["member_id"] for m in back["members_left"]]) == ("conversion", ["b"])
    assert row["cause"] == ("new_member" if joins else "conversion")
    assert (row["moved_partitions"], row["stickiness"]) == (1, 0.5)


def test_a_static_member_that_brings_the_classic_protocol_back_starts_no_rebalance() -> None:
    # GroupMetadataManager.convertToClassicGroup with a joining member
    log = Records().joins_empty("a").wait(MINUTE).current("a", None).member("a", gone=True)
    log.member("b").current("b", 1, [0, 1])
    log.current("b", None).target(None).member("b", gone=True).epoch(None).classic(1, {"b": [0, 1]})
    tables = whole_and_cut(log.log())
    assert states(tables) == [("consumer", "Stable"), ("classic", "Stable")]
    last = generations(tables)[-1]
    assert (last["cause"], last["stable_at"]) == ("conversion", log.clock)


def test_what_comes_in_the_millisecond_of_a_conversion_back_is_in_the_history_too() -> None:
    log = Records().joins_empty("a").wait(MINUTE).current("a", None).target(None)
    log.member("a", gone=True).epoch(None).classic(1, {"b": [0, 1]}).classic(2, took=0).deleted()
    tables = whole_and_cut(log.log())
    assert [state for _, state in states(tables)] == [
        *("Stable", "PreparingRebalance", "Empty", "Dead"),
    ]
    assert [r["generation"] for r in generations(tables)] == [1, 1, 2]


def test_what_is_left_of_a_conversion_back_does_not_show_whether_it_rebalances() -> None:
    log = Records().joins_empty("a").wait(MINUTE, hole=True)
    log.target(None).epoch(None).classic(1, {"b": [0, 1]})
    tables = whole_and_cut(log.log())
    (classic,) = (r for r in tables[STATES] if r["group_type"] == "classic")
    assert (classic["state"], classic["evidence"]) == ("Stable", "bounded")
    kinds = {row["kind"] for row in detected_history(tables, log.clock + HOUR)}
    assert "stuck_rebalance" not in kinds
    log.wait(HOUR).classic(2, {"b": [0, 1]})
    told = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    phases = ["PreparingRebalance", "CompletingRebalance", "Stable"]
    assert [r["state"] for r in told[-3:]] == phases


def test_a_conversion_back_that_is_never_over_is_stuck() -> None:
    log = Records().joins_empty("a").joins_empty("b", 2).wait(MINUTE)
    log.leaves_empty("a", 3).target(None).epoch(None).classic(3, {"b": [0, 1]})
    tables = whole_and_cut(log.log())
    assert states(tables)[-1] == ("classic", "PreparingRebalance")
    kinds = {row["kind"] for row in detected_history(tables, log.clock + HOUR)}
    assert "stuck_rebalance" in kinds


def test_what_is_left_of_a_group_that_is_gone_begins_none() -> None:
    log = Records().joins_empty("a").wait(MINUTE).leaves_empty("a", 2).wait(MINUTE)
    log.epoch(None).wait(SECOND).member("a", gone=True).wait(SECOND).epoch(None)
    assert states(whole_and_cut(log.log()))[-1] == ("consumer", "Dead")


# -- after a death ---------------------------------------------------------------------------------


def test_a_classic_group_behind_a_dead_consumer_group_is_what_its_record_says() -> None:
    log = Records().epoch(None).wait(HOUR, hole=True).classic(9, {"a": [0, 1]})
    tables = whole_and_cut(log.log())
    assert states(tables)[-1] == ("classic", "Stable")
    assert generations(tables)[-1]["cause"] != "conversion"


def test_a_classic_record_amid_a_consumer_group_ends_that() -> None:
    log = Records().joins_empty("a").wait(HOUR, hole=True).classic(9, {"b": [0, 1]})
    tables = whole_and_cut(log.log())
    assert states(tables)[:2] == [("consumer", "Stable"), ("consumer", "Dead")]
    assert states(tables)[-1] == ("classic", "Stable")
    (dead,) = (r for r in tables[STATES] if r["state"] == "Dead")
    assert dead["evidence"] == "bounded"


def test_the_tombstone_of_another_type_is_that_of_a_later_group() -> None:
    log = Records().joins_empty("a").wait(HOUR, hole=True).deleted()
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    dead = rows[-1]
    assert (dead["group_type"], dead["state"]) == ("consumer", "Dead")
    assert dead["started_at_min"] == rows[0]["started_at"]
    assert dead["started_at_max"] == log.clock


def test_a_conversion_back_of_a_group_that_is_not_known_makes_no_illegal_step() -> None:
    log = Records().commit().wait(HOUR, hole=True)
    log.current("a", None).target(None).member("a", gone=True).epoch(None)
    log.classic(2, {"b": [0, 1]}, took=0)
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    assert [r["state"] for r in rows] == [
        *("Empty", "Dead", "Empty"),
        *("PreparingRebalance", "CompletingRebalance", "Stable"),
    ]
    assert {r["evidence"] for r in rows[1:]} == {"bounded"}


def test_an_offline_migration_behind_a_hole_begins_a_group_that_is_known() -> None:
    log = Records().wait(SECOND, hole=True).commit().wait(SECOND)
    log.deleted().member("b").epoch(1)
    assert states(whole_and_cut(log.log()))[-2:] == [
        ("classic", "Dead"),
        ("consumer", "Assigning"),
    ]


def test_a_consumer_group_behind_a_dead_classic_group_is_a_new_one() -> None:
    log = Records().classic(1, {"a": [0]}).wait(MINUTE).classic(2).wait(MINUTE).deleted()
    log.wait(24 * HOUR).joins_empty("b")
    last = generations(whole_and_cut(log.log()))[-1]
    assert (last["cause"], last["previous_generation"]) == ("group_created", None)


def test_a_group_that_is_gone_unseen_may_have_begun_again_long_ago() -> None:
    log = Records().classic(5, {"a": [0]}).wait(HOUR).classic(1, {"b": [0]}, took=2 * SECOND)
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    dead, empty = rows[-5:-3]
    assert (dead["state"], empty["state"]) == ("Dead", "Empty")
    assert empty["started_at_min"] == dead["started_at_min"] < empty["started_at_max"]
    assert empty["evidence"] == "bounded"


def test_a_group_that_began_again_unseen_has_its_join_phase() -> None:
    log = Records().classic(5, {"a": [0]}).wait(HOUR).classic(1, {"b": [0]}, took=2 * SECOND)
    last = generations(whole_and_cut(log.log()))[-1]
    assert (last["sync_ms"], last["clock_skew_ms"]) == (2 * SECOND, None)
    assert last["join_completed_at_min"] == last["join_completed_at_max"]


def test_a_group_of_which_no_state_was_known_leaves_nothing_to_the_next() -> None:
    log = Records().wait(SECOND, hole=True).member("a").epoch(1).wait(HOUR, hole=True).classic(1)
    tables = whole_and_cut(log.log())
    assert [r["end_cause"] for r in tables[SESSIONS]] == ["group_deleted"]
    assert all(r["started_at"] is not None for r in tables[STATES])


@pytest.mark.parametrize(("later", "is_bounded"), [(0, False), (10 * MINUTE, True)])
def test_a_group_that_commits_outlives_an_offset_that_was_deleted(
    later: int,
    is_bounded: bool,  # noqa: FBT001
) -> None:
    # OffsetMetadataManager.deleteOffsets, GroupCoordinatorShard.cleanupGroupMetadata
    log = Records().commit().wait(HOUR).commit(deletes=True)
    gone = log.clock
    if later:
        log.wait(later)
    log.deleted()
    *_, dead = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    assert dead["state"] == "Dead"
    assert dead["evidence"] == ("bounded" if is_bounded else "exact")
    assert (dead["started_at_min"], dead["started_at_max"]) == (gone, gone + later)


@pytest.mark.parametrize("has_markers", [True, False])
def test_commits_of_transactions_do_not_bound_a_join_phase(has_markers: bool) -> None:  # noqa: FBT001
    # Records before Kafka 2.1 do not tell when it ended.
    log = Records().classic(1, {"a": [0]}).wait(MINUTE)
    began = log.clock - MINUTE
    log.commit().wait(0, hole=has_markers).wait(SECOND).classic(2, {"a": [0], "b": [1]})
    payload = log.events[-1].payload
    assert payload is not None
    del payload["current_state_timestamp"]
    *_, row = generations(whole_and_cut(log.log()))
    assert row["join_completed_at_min"] == (began if has_markers else began + MINUTE)


def test_sequences_go_on_when_a_group_turns_up_that_was_never_seen_whole() -> None:
    log = Records().wait(SECOND, hole=True).commit().wait(SECOND).commit(deletes=True)
    log.wait(SECOND).commit().wait(HOUR, hole=True).classic(7, {"a": [0]})
    tables = whole_and_cut(log.log())
    assert states(tables)[:3] == [("classic", "Empty"), ("classic", "Dead"), ("classic", "Empty")]


# -- first sight -----------------------------------------------------------------------------------


def test_a_consumer_group_in_a_compacted_log_has_no_known_start() -> None:
    log = Records().wait(SECOND, hole=True).member("a").wait(24 * HOUR, hole=True)
    log.epoch(7).target(7, a=[0, 1]).wait(SECOND, hole=True).current("a", 7, [0, 1])
    tables = whole_and_cut(log.log())
    rows = sorted(tables[STATES], key=lambda r: r["sequence"])
    # Whether it was Reconciling before is not known: records that tell so may be missing.
    assert [(r["state"], r["generation"]) for r in rows] == [("Stable", 7)]
    assert rows[0]["evidence"] == "bounded"
    assert rows[0]["started_at_min"] is None
    assert [r["cause"] for r in generations(tables)] == ["unknown"]


def test_a_batch_that_compaction_took_something_of_tells_no_exact_time() -> None:
    log = Records().joins_empty("a").wait(MINUTE)
    log.member("b").wait(0, hole=True).target(2, a=[0], b=[1]).wait(0, hole=True)
    log.current("a", 3, [0]).wait(MINUTE).epoch(3).target(3)
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    assert [r["evidence"] for r in rows[:2]] == ["exact", "bounded"]
    assert {r["evidence"] for r in rows if r["started_at"] < log.clock} == {"exact", "bounded"}


def test_a_consumer_group_of_which_no_member_is_known_is_not_called_empty() -> None:
    log = Records().wait(SECOND, hole=True)
    log.current("a", None).member("a", gone=True).epoch(8).wait(SECOND)
    log.target(8, b=[0, 1]).current("b", 8, [0, 1])
    assert states(whole_and_cut(log.log())) == []


@pytest.mark.parametrize("is_known", [True, False])
def test_no_phase_of_an_epoch_is_over_after_all_members_got_there(is_known: bool) -> None:  # noqa: FBT001
    """Also where a log has a target assignment once more, which no coordinator writes."""
    log = Records().wait(0, hole=True).epoch(5)
    if is_known:
        log.member("a")
    log.target(5, a=[0]).wait(MINUTE).member("a").current("a", 5, [0], previous=4)
    log.wait(HOUR).target(5, a=[0])
    (row,) = generations(whole_and_cut(log.log()))
    assert row["stable_at"] == START + MINUTE
    assert row["join_completed_at"] == (START if is_known else None)


def test_a_consumer_group_that_the_last_member_leaves_is_empty() -> None:
    log = Records().wait(SECOND, hole=True).target(7).wait(SECOND, hole=True).leaves_empty("a", 8)
    assert states(whole_and_cut(log.log())) == [("consumer", "Empty")]


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_consumer_group_that_begins_behind_a_hole_is_new(epoch: int) -> None:
    log = Records().wait(SECOND, hole=True).joins_empty("a", epoch)
    (row,) = generations(whole_and_cut(log.log()))
    assert row["cause"] == "group_created"


def test_a_static_member_may_have_come_back_where_the_log_has_a_hole() -> None:
    log = Records().classic(1, {"a": [0]}).wait(HOUR, hole=True)
    log.classic(2, {"a": [0]}, took=2 * MINUTE, instance="i")
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    preparing, completing, stable = rows[-3:]
    claimed = log.clock - 2 * MINUTE
    assert preparing["started_at_min"] == completing["started_at_min"] == rows[-4]["started_at"]
    assert completing["started_at_max"] == stable["started_at_min"] == claimed
    assert stable["started_at"] == stable["started_at_max"] == log.clock


def test_a_record_of_its_own_time_behind_a_hole_may_be_that_of_a_conversion() -> None:
    log = Records().joins_empty("a").wait(HOUR, hole=True).classic(2, {"b": [0]}, took=0)
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    assert [r["evidence"] for r in rows if r["started_at"] == log.clock] == ["bounded"] * 5


def test_a_group_that_became_empty_behind_a_hole_did_so_when_its_record_says() -> None:
    log = Records().classic(1, {"a": [0]}).wait(HOUR, hole=True).classic(2, took=0)
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    assert (rows[-1]["state"], rows[-1]["evidence"]) == ("Empty", "exact")


def test_offsets_of_a_consumer_group_make_no_other_group_of_it() -> None:
    log = Records().wait(SECOND, hole=True).commit().wait(HOUR, hole=True).joins_empty("a", 5)
    log.wait(SECOND).commit()
    assert states(whole_and_cut(log.log())) == [("consumer", "Stable")]


# -- what is known when a record arrives -----------------------------------------------------------


def test_a_hole_behind_a_record_says_nothing_of_it() -> None:
    log = Records().classic(1, {"a": [0]}).wait(MINUTE).classic(4, {"a": [0]})
    log.wait(MINUTE, hole=True).classic(5, {"a": [0]})
    before, after = generations(whole_and_cut(log.log()))[1:]
    assert (before["aborted_generations"], before["aborted_evidence"]) == (2, "complete")
    assert after["aborted_evidence"] == "unknown"


def test_a_generation_that_nobody_counts_to_fits_its_column() -> None:
    log = Records().classic(-(2**31), {"a": [0]}).wait(MINUTE).classic(2**31 - 1, {"a": [0]})
    assert max(r["aborted_generations"] or 0 for r in generations(rebuild(log.log()))) == 2**31 - 1


# -- owners ----------------------------------------------------------------------------------------


def test_a_member_owns_what_it_has_not_given_up_yet() -> None:
    log = Records().joins_empty("a").wait(12 * SECOND)
    log.member("b").epoch(2).target(2, a=[0], b=[1]).wait(0)
    log.current("a", 1, [0], 1).wait(28 * SECOND).current("a", 2, [0]).wait(3 * SECOND)
    log.current("b", 2, [1])
    owners = {(r["topic_partition"], r["member_id"]): r for r in whole_and_cut(log.log())[OWNERS]}
    acknowledged = Records().clock + 40 * SECOND
    assert owners[1, "a"]["valid_to"] == acknowledged
    assert owners[1, "b"]["valid_from"] == acknowledged + 3 * SECOND


def test_partitions_of_an_eager_group_that_come_back_are_no_follow_up() -> None:
    log = Records().classic(1, {"a": [0, 1], "b": [2]}).wait(MINUTE)
    log.classic(2, {"a": [0], "b": [2]}).wait(90 * 24 * HOUR)
    log.classic(3, {"a": [0], "b": [2, 1]})
    last = generations(whole_and_cut(log.log()))[-1]
    assert last["cause"] == "partitions_changed"


@pytest.mark.parametrize(
    ("pause", "cause"), [(SECOND, "cooperative_follow_up"), (HOUR, "partitions_changed")]
)
def test_a_cooperative_follow_up_comes_soon(pause: int, cause: str) -> None:
    tables = {"protocol": "cooperative-sticky"}
    log = Records().classic(1, {"a": [0, 1], "b": [2]}, **tables).wait(MINUTE)
    log.classic(2, {"a": [0], "b": [2]}, **tables).wait(SECOND)
    log.classic(3, {"a": [0], "b": [2]}, **tables).wait(pause)
    log.classic(4, {"a": [0], "b": [2, 1]}, **tables)
    assert generations(whole_and_cut(log.log()))[-1]["cause"] == cause


def test_a_topic_that_comes_back_to_its_owner_is_no_follow_up() -> None:
    tables = {"protocol": "cooperative-sticky"}
    log = Records().classic(1, {"a": [0, 1]}, **tables).wait(MINUTE)
    log.classic(2, {"a": [0]}, **tables).wait(4 * MINUTE).classic(3, {"a": [0, 1]}, **tables)
    last = generations(whole_and_cut(log.log()))[-1]
    assert last["cause"] == "partitions_changed"
    assert last["join_ms"] < SECOND


@pytest.mark.parametrize(
    ("meanwhile", "cause"),
    [({"a": [0], "b": [2]}, "cooperative_follow_up"), ({"a": [], "b": []}, "partitions_changed")],
    ids=["taken, since two claimed it", "the topic was gone"],
)
def test_what_has_its_owner_again_was_taken_if_others_of_its_topic_had_one(
    meanwhile: dict[str, list[int]], cause: str
) -> None:
    tables = {"protocol": "cooperative-sticky"}
    log = Records().classic(1, {"a": [0, 1], "b": [2]}, **tables).wait(MINUTE)
    log.classic(2, meanwhile, **tables).wait(SECOND)
    log.classic(3, {"a": [0, 1], "b": [2]}, **tables)
    last = generations(whole_and_cut(log.log()))[-1]
    assert last["cause"] == cause
    assert last["moved_partitions"] == 0
    assert last["stickiness"] == 1
    assert last["cost_member_ms"] > 0


def test_a_topic_that_no_member_subscribes_to_any_more_is_no_change_of_its_partitions() -> None:
    """Static members came back with another subscription, and then the leader re-joined."""
    log = Records().classic(1, {"a": [0, 1]}, topics=("t", "u"), instance="i").wait(MINUTE)
    log.classic(1, {"b": [0, 1]}, topics=("u",), instance="i", took=MINUTE).wait(SECOND)
    log.classic(2, {"b": []}, topics=("u",), instance="i")
    last = generations(whole_and_cut(log.log()))[-1]
    assert last["cause"] == "subscription_changed"
    assert last["cause_detail"] == "no member subscribes to t any more; 2 partitions without owner"


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_topic_that_is_made_again_is_given_back_by_nobody(is_deleted: bool) -> None:  # noqa: FBT001
    step = {"protocol": "cooperative-sticky"}
    log = Records().classic(1, {"a": [0, 1], "b": [2]}, **step).wait(MINUTE)
    for partition in range(3):
        log.commit("t", partition)
    for partition in range(3) if is_deleted else ():
        log.commit("t", partition, deletes=True)
    log.wait(SECOND).classic(2, {"a": [], "b": []}, **step).wait(40 * SECOND)
    log.classic(3, {"a": [2], "b": [0, 1]}, **step)
    tables = whole_and_cut(log.log())
    *_, gone, last = generations(tables)
    assert (gone["cause"] == "topic_deleted") == is_deleted
    assert last["cause"] == ("partitions_changed" if is_deleted else "cooperative_follow_up")
    slow = [a for a in detected_history(tables, log.clock) if a["kind"] == "slow_rebalance"]
    assert bool(slow) != is_deleted


@pytest.mark.parametrize("topics", [("t",), ("u",)], ids=["same subscription", "dropped"])
def test_a_topic_that_is_deleted_is_the_cause(topics: tuple[str, ...]) -> None:
    log = Records().classic(1, {"a": [0, 1]}).wait(SECOND).commit("t", 0).commit("t", 1)
    log.wait(MINUTE).commit("t", 0, deletes=True).commit("t", 1, deletes=True)
    log.wait(5 * SECOND).classic(2, {"a": []}, topics=topics)
    last = generations(whole_and_cut(log.log()))[-1]
    assert last["cause"] == "topic_deleted"
    assert last["cause_detail"] == "deleted: t; 2 partitions without owner"


def test_another_regular_expression_is_another_subscription() -> None:
    log = Records().joins_empty("a").wait(MINUTE)
    payload = {"client_id": "a", "client_host": "/h", "subscribed_topic_regex": "t.*"}
    log.record("consumer_group_member_metadata", payload, "a").epoch(2).target(2)
    assert generations(whole_and_cut(log.log()))[-1]["cause"] == "subscription_changed"


@pytest.mark.parametrize(
    ("subscriptions", "parts"),
    [
        (["t", "t"], 1),
        (["t", "u"], 2),
        (["t", "tu"], 1),
        (["t", "u", "tu"], 1),
        (["tu", "v", "uw", "x", "vx"], 2),
        (["t", ""], 1),
        (["", ""], None),
    ],
)
def test_members_fall_into_parts_that_have_no_topic_in_common(
    subscriptions: list[str], parts: int | None
) -> None:
    log = Records()
    for number, topics in enumerate(subscriptions):
        payload = {"client_id": "c", "client_host": "/h", "subscribed_topic_names": [*topics]}
        log.record("consumer_group_member_metadata", payload, f"m{number}")
    (row,) = generations(whole_and_cut(log.epoch(2).target(2).log()))
    assert row["separate_subscriptions"] == parts


@pytest.mark.parametrize(
    ("clients", "parts"),
    [
        ("g-1@a/t g-2@a/u", 1),
        ("g-1@a/t g-2@a/u g-1@b/t g-2@b/u", 1),
        ("g-1@a/t g-2@a/u g-1@b/v", 2),
        ("g-1@a/t g-2@a/ g-1@b/u", 2),
        # Two processes on a machine, two names, two machines.
        ("g-1@a/t g-1@a/u", 2),
        ("g-1@a/t g-2@a/t g-1@a/u", 2),
        ("orders-1@a/t payments-2@a/u", 2),
        ("g-1@a/t g-2@b/u", 2),
    ],
)
def test_consumers_of_a_process_are_of_one_application(clients: str, parts: int) -> None:
    log = Records()
    for number, client in enumerate(clients.split(" ")):
        place, topics = client.split("/")
        name, host = place.split("@")
        payload = {"client_id": name, "client_host": host, "subscribed_topic_names": [*topics]}
        log.record("consumer_group_member_metadata", payload, f"m{number}")
    (row,) = generations(whole_and_cut(log.epoch(2).target(2).log()))
    assert row["separate_subscriptions"] == parts


def by_expression(*regexes: str | None, **matches: list[str]) -> Records:
    """Let members join that subscribe by an expression each, or by name, and resolve these."""
    log = Records()
    for name, regex in zip("abc", regexes, strict=False):
        by_name = [] if regex else ["t"]
        payload = {"client_id": name, "client_host": "/h", "subscribed_topic_names": by_name}
        payload["subscribed_topic_regex"] = regex
        log.record("consumer_group_member_metadata", payload, name)
    for regex, topics in matches.items():
        payload = {"regular_expression": regex, "topics": topics}
        log.record("consumer_group_regular_expression", payload)
    return log.epoch(2).target(2, a=[0])


def test_what_members_subscribe_to_by_expression_is_known_once_it_is_resolved() -> None:
    def told(log: Records) -> list[list[str] | None]:
        return [row["subscribed_topics"] for row in generations(whole_and_cut(log.log()))]

    assert told(by_expression("u")) == [None]
    assert told(by_expression("u", u=["u1", "u2"])) == [["u1", "u2"]]
    assert told(by_expression("u", "v", u=["u1"])) == [None]
    assert told(by_expression("u", None, "v", u=["u1"], v=["v1"])) == [["t", "u1", "v1"]]
    log = by_expression("u", u=["u1"]).wait(MINUTE)
    payload = {"regular_expression": "u", "topics": ["u1", "u2"]}
    log.record("consumer_group_regular_expression", payload).epoch(3).target(3, a=[0])
    assert told(log) == [["u1"], ["u1", "u2"]]
    assert told(log.wait(MINUTE).leaves_empty("a", 4))[-1] is None


def test_what_a_streams_group_subscribes_to_is_in_its_topology() -> None:
    log = Records().member("a", kind="streams")
    parts = [
        {"subtopology_id": "0", "source_topics": ["in"]},
        {
            "subtopology_id": "1",
            "source_topics": [],
            "repartition_source_topics": [{"name": "r"}],
        },
    ]
    log.record("streams_group_topology", {"epoch": 0, "subtopologies": parts})
    log.record("streams_group_metadata", {"epoch": 2, "validated_topology_epoch": 0})
    (row,) = generations(whole_and_cut(log.log()))
    assert row["subscribed_topics"] == ["in", "r"]


def test_of_static_members_that_come_back_for_months_the_last_ones_are_put_down() -> None:
    log = Records().classic(1, {"a-0": [0]}, instance="i")
    for number in range(1, 1_101):
        log.wait(24 * HOUR).classic(1, {f"a-{number}": [0]}, instance="i")
    (row,) = generations(rebuild(log.log()))
    assert len(row["members_replaced"]) == 1_000
    assert row["members_replaced"][-1]["member_id"] == "a-1100"


def test_released_partitions_do_not_pile_up() -> None:
    log = Records()
    for day in range(1, 50):
        log.classic(day, {"a": [day]}, protocol="cooperative-sticky").wait(24 * HOUR)
    fold = Fold(GroupState("g", 0), has_hole=lambda *_: False)
    for record in log.events:
        fold.record(record)  # type: ignore[arg-type]
    assert len(fold.state.last_owners) <= 1


def test_partitions_of_a_share_group_have_many_owners() -> None:
    log = Records()
    for name in ("a", "b"):
        log.member(name, kind="share")
    log.record("share_group_metadata", {"epoch": 1})
    for name in ("a", "b"):
        payload = {"topic_partitions": [{"topic_id": "t", "partitions": [0, 1]}]}
        log.record("share_group_target_assignment_member", payload, name)
    log.record("share_group_target_assignment_metadata", {"assignment_epoch": 1})
    (row,) = generations(whole_and_cut(log.log()))
    assert row["assigned_partitions"] == 2
    assert row["most_partitions"] is row["moved_partitions"] is row["stickiness"] is None


# -- clocks ----------------------------------------------------------------------------------------


def test_a_record_behind_the_clock_is_bounded() -> None:
    log = Records().classic(1, {"a": [0]}).wait(MINUTE).classic(2, {"a": [0], "b": [1]})
    log.wait(-5 * SECOND).classic(3, {"a": [0]}).wait(MINUTE).classic(4, {"a": [0]})
    tables = whole_and_cut(log.log())
    third = [r for r in tables[STATES] if r["generation"] == 3]
    assert {r["evidence"] for r in third} == {"bounded"}
    assert generations(tables)[2]["clock_skew_ms"] == 5 * SECOND


def test_no_time_runs_back_behind_a_record_that_changed_no_state() -> None:
    log = Records().classic(1, {"a": [0]}, instance="i").wait(MINUTE)
    log.classic(1, {"b": [0]}, instance="i").wait(-5 * SECOND)
    log.classic(1, {"c": [0]}, instance="i")
    tables = whole_and_cut(log.log())
    for table, since, until in (
        (SESSIONS, "joined_at", "left_at"),
        (OWNERS, "valid_from", "valid_to"),
    ):
        assert all(r[until] is None or r[since] <= r[until] for r in tables[table])


def test_a_clock_that_was_ahead_heals() -> None:
    log = Records().classic(1, {"a": [0]}).wait(24 * HOUR).classic(2, {"a": [0], "b": [1]})
    log.wait(-21 * HOUR).classic(3, {"a": [0]}).wait(3 * HOUR).classic(4, {"a": [0], "b": [1]})
    tables = whole_and_cut(log.log())
    begun = [r["stable_at"] for r in generations(tables)]
    assert begun[3] - begun[2] == 3 * HOUR
    assert {r["evidence"] for r in tables[STATES] if r["generation"] == 2} == {"bounded"}


def test_a_commit_of_a_clock_that_was_ahead_heals() -> None:
    log = Records().wait(24 * HOUR).commit().wait(-24 * HOUR).commit(partition=1)
    log.wait(HOUR).commit(deletes=True).commit(partition=1, deletes=True).wait(HOUR).commit()
    rows = sorted(whole_and_cut(log.log())[STATES], key=lambda r: r["sequence"])
    assert [(r["state"], r["evidence"]) for r in rows] == [
        ("Empty", "bounded"),
        ("Dead", "exact"),
        ("Empty", "exact"),
    ]
    assert [r["duration_ms"] for r in rows[:2]] == [HOUR, HOUR]


def test_commits_of_a_group_that_died_are_no_rhythm_of_the_next() -> None:
    log = Records().commit().wait(SECOND).commit().wait(SECOND).commit().wait(SECOND)
    log.commit(deletes=True).wait(HOUR)
    fold = Fold(GroupState("g", 0), has_hole=lambda *_: False)
    fold.commits(_chunk(log.events))  # type: ignore[arg-type]
    fold.record(Records().wait(HOUR).created().events[0])  # type: ignore[arg-type]
    assert fold.state.commits.last is None


# -- another partition -----------------------------------------------------------------------------


def test_sessions_end_when_the_group_is_somewhere_else() -> None:
    old = Records().classic(1, {"a": [0]}).events
    new = Records(partition=25).wait(HOUR).classic(1, {"b": [0]}).events
    fold = Fold(GroupState("g", 0), has_hole=lambda *_: False)
    fold.record(old[0])  # type: ignore[arg-type]
    fold.move(25, new[0], has_hole=lambda *_: False)  # type: ignore[arg-type]
    fold.record(new[0])  # type: ignore[arg-type]
    settled, still_open = fold.finish()
    assert [r["end_cause"] for r in settled[SESSIONS]] == ["group_deleted"]
    assert [r["record_partition"] for r in still_open[SESSIONS]] == [25]
    tables = {STATES: settled[STATES] + still_open[STATES]}
    assert states(tables)[-1] == ("classic", "Stable")
    assert ("classic", "Dead") in states(tables)
    assert as_text(tables[STATES])


# -- when a rebalance began ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cycles", "join_ms"),
    [
        # Half of heartbeat.interval.ms, where that is 3 seconds, and where it is not known.
        ([6_060, 3_050, 12_100, 6_040], 1_500),
        ([5_200, 4_400, 7_700, 8_300], 545),
    ],
)
def test_cycles_show_the_heartbeats_of_members_with_a_short_session(
    cycles: list[int], join_ms: int
) -> None:
    log = Records().created().wait(3 * SECOND).classic(1, {"a": [0, 1]}, session_timeout_ms=6_000)
    for number, cycle in enumerate(cycles):
        members = {"a": [0, 1]} if number % 2 else {"a": [0], f"b{number}": [1]}
        log.wait(cycle + 10).classic(number + 2, members, session_timeout_ms=6_000)
    assert generations(whole_and_cut(log.log()))[-1]["join_ms"] == join_ms


def test_a_leader_that_never_assigns_holds_a_rebalance_for_its_session() -> None:
    log = Records().created().wait(SECOND).classic(1, {"a": [0]}, session_timeout_ms=8_000)
    log.wait(5 * SECOND).classic(2, {"a": [0], "b": [1]}, session_timeout_ms=8_000)
    log.wait(20 * SECOND).classic(4, {"b": [0, 1]}, session_timeout_ms=8_000)
    last = generations(whole_and_cut(log.log()))[-1]
    assert last["aborted_generations"] == 1
    assert 8 * SECOND < last["join_ms"] < 10 * SECOND
