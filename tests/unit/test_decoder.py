"""What becomes of a record: one behaviour a test, checked in both decoders."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.row_decoder import DecodedRow, Rejected
from decoders.records import decode, times_off
from schemas.columns import arrow_schema
from schemas.messages import embedded_messages
from schemas.silver import decoded_columns, quarantine_columns
from tests.factories import (
    FIRST_MS,
    LAST_MS,
    NIL_UUID,
    TOPIC_ID,
    Pair,
    Records,
    assert_agrees_with_row_decoder,
    assignment,
    decode_all,
    decode_one,
    group_metadata,
    member,
    modern,
    offset_commit,
    record_batch,
    reject_one,
    subscription,
)
from tests.support.encoder import UNKNOWN_TAGS, encode_key, encode_message, encode_value

INT32 = struct.Struct(">i").pack
INT16 = struct.Struct(">h").pack
HUGE = 2**31 - 1
MEMBER_METADATA = {"ClientId": "c", "ClientHost": "/h", "SubscribedTopicNames": ["orders"]}
STREAMS_MEMBER = {
    "ClientId": "c",
    "ClientHost": "/h",
    "RebalanceTimeoutMs": 1,
    "TopologyEpoch": 0,
    "ProcessId": "p",
    "ClientTags": [],
}
TOPIC_PARTITIONS = {"TopicId": TOPIC_ID, "Partitions": [0, 1]}
TOPIC_COLUMNS = {"topic_id": TOPIC_ID, "partitions": [0, 1]}


def at(year: int, month: int = 1, day: int = 1, *clock: int) -> datetime:
    hour, minute, second = clock or (0, 0, 0)
    return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)


def only_member(pair: Pair) -> dict[str, Any]:
    [found] = decode_one(pair)["members"]
    assert isinstance(found, dict)
    return found


# -- offset commits ---------------------------------------------------------------------------


def test_an_offset_commit_becomes_a_row() -> None:
    assert decode_one(offset_commit(4, leaderEpoch=9, metadata="note", topicId=TOPIC_ID)) == {
        "key_version": 1,
        "value_version": 4,
        "is_tombstone": False,
        "group_id": "billing",
        "topic": "orders",
        "topic_partition": 5,
        "committed_offset": 42,
        "leader_epoch": 9,
        "metadata": "note",
        "commit_timestamp": at(2023, 11, 14, 22, 13, 20),
        "expire_timestamp": None,
        "topic_id": TOPIC_ID,
        "decode_notes": None,
    }


def test_the_record_keeps_its_position() -> None:
    batch = record_batch([offset_commit()] * 3)
    [rows] = decode(batch).tables["offset_commits"]
    names = ("record_partition", "record_offset", "record_timestamp")
    assert [rows.column(n) for n in names] == [batch.column(n) for n in names]


def test_a_record_without_a_time_keeps_having_none() -> None:
    batch = record_batch([offset_commit()])
    columns = [
        pa.nulls(1, f.type) if f.name == "record_timestamp" else c
        for f, c in zip(batch.schema, batch.columns, strict=True)
    ]
    [rows] = decode(pa.RecordBatch.from_arrays(columns, schema=batch.schema)).tables[
        "offset_commits"
    ]
    assert rows.column("record_timestamp").to_pylist() == [None]


@pytest.mark.parametrize(
    ("version", "filled"),
    [
        (0, set()),
        (1, {"expire_timestamp"}),
        (2, set()),
        (3, {"leader_epoch"}),
        (4, {"leader_epoch", "topic_id"}),
    ],
    ids=lambda v: f"v{v}" if isinstance(v, int) else "",
)
def test_fields_that_a_version_lacks_are_null(version: int, filled: set[str]) -> None:
    given: dict[int, dict[str, Any]] = {1: {"expireTimestamp": 5}, 4: {"topicId": TOPIC_ID}}
    row = decode_one(offset_commit(version, **given.get(version, {})))
    assert row["value_version"] == version
    optional = {"leader_epoch", "expire_timestamp", "topic_id"}
    assert {name for name in optional if row[name] is not None} == filled


@pytest.mark.parametrize(
    ("version", "field", "value", "column"),
    [
        (3, "leaderEpoch", -1, "leader_epoch"),
        (1, "expireTimestamp", -1, "expire_timestamp"),
    ],
)
def test_minus_one_means_none(version: int, field: str, value: int, column: str) -> None:
    changes: dict[str, Any] = {field: value}
    row = decode_one(offset_commit(version, **changes))
    assert row[column] is None
    assert row["decode_notes"] is None


def test_the_id_of_zeros_means_no_topic_id() -> None:
    key, value = offset_commit(4, topicId=TOPIC_ID)
    zeros = value[:-16] + bytes(16)  # the encoder leaves it out, as Kafka does
    assert decode_one((key, zeros))["topic_id"] is None
    assert decode_one(offset_commit(4, topicId=NIL_UUID))["topic_id"] is None


def test_an_offset_of_minus_one_stays() -> None:
    assert decode_one(offset_commit(offset=-1))["committed_offset"] == -1


def test_the_largest_and_least_numbers_stay() -> None:
    key = {"partition": -(2**31)}
    row = decode_one(offset_commit(offset=2**63 - 1, leaderEpoch=2**31 - 1, key=key))
    assert row["committed_offset"] == 2**63 - 1
    assert row["leader_epoch"] == 2**31 - 1
    assert row["topic_partition"] == -(2**31)


def test_a_commit_of_kafka_0_8_goes_to_the_same_table() -> None:
    key = encode_key(0, {"group": "billing", "topic": "orders", "partition": 5})
    value = encode_value(0, 0, {"offset": 1, "metadata": "", "commitTimestamp": 0})
    [row] = assert_agrees_with_row_decoder(record_batch([(key, value)]))
    assert isinstance(row, DecodedRow)
    assert row.table == "offset_commits"
    assert (row.columns["key_version"], row.columns["value_version"]) == (0, 0)
    assert row.columns["commit_timestamp"] == at(1970)


# -- tombstones ---------------------------------------------------------------------------------


def test_a_tombstone_of_an_offset_keeps_its_key() -> None:
    row = decode_one((offset_commit()[0], None))
    assert {n: v for n, v in row.items() if v is not None} == {
        "key_version": 1,
        "is_tombstone": True,
        "group_id": "billing",
        "topic": "orders",
        "topic_partition": 5,
    }


def test_a_tombstone_of_a_group_has_no_members_rather_than_an_empty_list() -> None:
    row = decode_one((group_metadata()[0], None))
    assert row["is_tombstone"] is True
    assert row["members"] is None


def test_tombstones_and_values_of_one_key_stand_side_by_side() -> None:
    key, value = offset_commit()
    rows = assert_agrees_with_row_decoder(record_batch([(key, value), (key, None), (key, value)]))
    assert [r.columns["is_tombstone"] for r in rows if isinstance(r, DecodedRow)] == [
        False,
        True,
        False,
    ]


# -- null and empty -----------------------------------------------------------------------------


def test_null_and_empty_strings_are_kept_apart() -> None:
    row = decode_one(group_metadata(protocol="", leader=None))
    assert (row["protocol"], row["leader"]) == ("", None)


def test_empty_and_null_arrays_are_kept_apart() -> None:
    values = {"Epoch": 1, "MetadataHash": 0}
    empty = decode_one(modern(17, {**values, "LastAssignmentConfigs": []}))
    null = decode_one(modern(17, values))
    assert (empty["last_assignment_configs"], null["last_assignment_configs"]) == ([], None)


def test_a_null_in_a_tagged_array_of_numbers_is_null() -> None:
    values = {"MemberEpoch": 1, "PreviousMemberEpoch": 0, "State": 0}
    topics = [{**TOPIC_PARTITIONS, "AssignmentEpochs": [3, 4]}, TOPIC_PARTITIONS]
    row = decode_one(
        modern(8, {**values, "AssignedPartitions": topics, "PartitionsPendingRevocation": []})
    )
    assert row["assigned_partitions"] == [
        {**TOPIC_COLUMNS, "assignment_epochs": [3, 4]},
        {**TOPIC_COLUMNS, "assignment_epochs": None},
    ]


def test_zero_length_bytes_are_not_null() -> None:
    found = only_member(group_metadata(member(subscription=b"")))
    assert found["subscription_bytes"] == b""


# -- text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "group",
    [
        "",
        "x" * 32_767,
        "🙂🚀",
        "группа-ä-日本",
        "with\nnewline\tand\x00nul",
        "twelve bytes",
        "thirteen byte",
    ],
    ids=["empty", "32 KB", "emoji", "scripts", "control characters", "12 bytes", "13 bytes"],
)
def test_group_ids_are_kept_as_they_are(group: str) -> None:
    row = decode_one(offset_commit(key={"group": group}))
    assert row["group_id"] == group
    assert row["decode_notes"] is None


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (b"caf\xe9", "caf\ufffd"),
        (b"\xf0\x9f\x99", "\ufffd"),
        (b"\xc0\xaf", "\ufffd\ufffd"),
        (b"a" * 40 + b"\xff", "a" * 40 + "\ufffd"),
    ],
    ids=["Latin-1", "cut emoji", "overlong slash", "at the end of a long text"],
)
def test_text_that_is_not_utf_8_is_kept_with_replacement_characters_and_flagged(
    octets: bytes, text: str
) -> None:
    row = decode_one(offset_commit(metadata=octets))
    assert row["metadata"] == text
    assert row["decode_notes"] == ["metadata is not valid UTF-8"]


def test_a_key_that_is_not_utf_8_is_flagged_even_in_a_tombstone() -> None:
    row = decode_one((offset_commit(key={"group": b"\xff"})[0], None))
    assert row["group_id"] == "\ufffd"
    assert row["decode_notes"] == ["group is not valid UTF-8"]


def test_text_that_holds_the_replacement_character_itself_is_not_flagged() -> None:
    batch = record_batch([offset_commit(metadata="\ufffd"), offset_commit(metadata=b"\xff")])
    rows = [r.columns for r in decode_all(batch) if isinstance(r, DecodedRow)]
    assert [r["metadata"] for r in rows] == ["\ufffd", "\ufffd"]
    assert [r["decode_notes"] for r in rows] == [None, ["metadata is not valid UTF-8"]]


def test_remarks_on_many_members_come_once() -> None:
    row = decode_one(group_metadata(*[member(clientId=b"\xff")] * 3, version=2))
    assert row["decode_notes"] == ["members[].clientId is not valid UTF-8"]


def test_half_a_surrogate_pair_is_one_fault_as_to_java() -> None:
    halves = b"\xed\xa0\xbd and \xed\xb8\x80, \xed\xa0, \xed\xa0"
    row = decode_one(offset_commit(metadata=halves))
    assert row["metadata"] == "\ufffd and \ufffd, \ufffd, \ufffd"


# -- bytes behind a message -----------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5), ids=lambda v: f"v{v}")
def test_bytes_behind_a_value_are_passed_over_and_noted(version: int) -> None:
    key, value = offset_commit(version)
    row = decode_one((key, value + b"\0\0\0"))
    assert row["decode_notes"] == ["trailing_bytes: 3 after OffsetCommitValue"]
    assert {**row, "decode_notes": None} == decode_one((key, value))


def test_bytes_behind_a_key_are_passed_over_and_noted() -> None:
    key, value = offset_commit()
    row = decode_one((key + b"\0", value))
    assert row["decode_notes"] == ["trailing_bytes: 1 after OffsetCommitKey"]
    assert {**row, "decode_notes": None} == decode_one((key, value))


def test_bytes_behind_the_key_of_a_tombstone() -> None:
    row = decode_one((group_metadata()[0] + b"x", None))
    assert (row["group_id"], row["is_tombstone"]) == ("billing", True)
    assert row["decode_notes"] == ["trailing_bytes: 1 after GroupMetadataKey"]


def test_bytes_behind_key_and_value_are_noted_last() -> None:
    key, value = offset_commit(key={"group": b"\xff"}, metadata=b"\xff")
    assert decode_one((key + b"12", value + b"1"))["decode_notes"] == [
        "group is not valid UTF-8",
        "trailing_bytes: 2 after OffsetCommitKey",
        "metadata is not valid UTF-8",
        "trailing_bytes: 1 after OffsetCommitValue",
    ]


def test_bytes_behind_one_record_are_no_matter_of_its_neighbours() -> None:
    key, value = offset_commit()
    pairs: list[Pair] = [(key, value), (key, value + b"\0"), (key, value[:-1]), (key, value)]
    rows = assert_agrees_with_row_decoder(record_batch(pairs))
    found = [r.columns["decode_notes"] if isinstance(r, DecodedRow) else r.error for r in rows]
    assert found == [
        None,
        ["trailing_bytes: 1 after OffsetCommitValue"],
        "value.commitTimestamp at byte 16: needs 8 bytes, 7 left",
        None,
    ]


def test_what_is_behind_the_tagged_fields_is_none_of_them() -> None:
    key, value = modern(3, {"Epoch": 1})
    tag = bytes.fromhex("00 08") + struct.pack(">q", 77)  # MetadataHash, but none is announced
    row = decode_one((key, value + tag))
    assert (row["epoch"], row["metadata_hash"]) == (1, None)
    assert row["decode_notes"] == ["trailing_bytes: 10 after ConsumerGroupMetadataValue"]


def test_what_a_tagged_field_claims_beyond_its_value_is_behind_the_message() -> None:
    key, value = modern(3, {"Epoch": 1})
    row = decode_one((key, value[:-1] + b"\1\0" + b"\x0a" + struct.pack(">q", 77) + b"\0\0"))
    assert row["metadata_hash"] == 77
    assert row["decode_notes"] == ["trailing_bytes: 2 after ConsumerGroupMetadataValue"]


def test_a_former_layout_that_leaves_nothing_is_better_than_todays_that_does() -> None:
    values = {"Epoch": 12, UNKNOWN_TAGS: [(5, bytes(10))]}
    key, value = modern(11, values, layout="4.0")
    row = decode_one((key, value))
    assert (row["epoch"], row["metadata_hash"]) == (12, None)
    assert row["decode_notes"] == [
        "layout: 4.0",
        "1 unknown tagged fields in ShareGroupMetadataValue",
    ]

    row = decode_one((key, value + b"\0"))
    assert (row["epoch"], row["metadata_hash"]) == (12, 0x01050A0000000000)
    assert row["decode_notes"] == ["trailing_bytes: 5 after ShareGroupMetadataValue"]


def test_a_former_layout_that_leaves_bytes_does_not_fit() -> None:
    key, value = modern(11, {"Epoch": 12}, layout="4.0")
    rejected = reject_one((key, value + b"\0"))
    assert rejected.error == "value.MetadataHash at byte 6: needs 8 bytes, 2 left"


# -- times ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch_ms", "time"),
    [
        (0, at(1970)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=timezone.utc)),
        (FIRST_MS, at(1)),
        (LAST_MS, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=timezone.utc)),
    ],
    ids=["epoch", "before the epoch", "year 1", "year 9999"],
)
def test_times_of_the_years_1_to_9999_are_times(epoch_ms: int, time: datetime) -> None:
    row = decode_one(offset_commit(commitTimestamp=epoch_ms))
    assert row["commit_timestamp"] == time
    assert row["decode_notes"] is None


@pytest.mark.parametrize(
    "epoch_ms",
    [FIRST_MS - 1, LAST_MS + 1, 2**63 - 1, -(2**63)],
    ids=["before year 1", "year 10000", "largest", "least"],
)
def test_a_number_that_is_no_time_is_null_and_noted(epoch_ms: int) -> None:
    row = decode_one(offset_commit(commitTimestamp=epoch_ms))
    assert row["commit_timestamp"] is None
    text = f"commitTimestamp: {epoch_ms} ms is no time between the years 1 and 9999"
    assert row["decode_notes"] == [text]
    assert row["committed_offset"] == 42


# -- members of classic groups ------------------------------------------------------------------


def test_a_consumer_of_a_classic_group_becomes_a_struct() -> None:
    owned = [{"Topic": "orders", "Partitions": [1]}]
    found = only_member(
        group_metadata(
            member(
                groupInstanceId="static-1",
                subscription=subscription(OwnedPartitions=owned, GenerationId=3, UserData=b"u"),
                assignment=assignment(),
            )
        )
    )
    assert found == {
        "member_id": "consumer-1-aaaa",
        "group_instance_id": "static-1",
        "client_id": "consumer-1",
        "client_host": "/10.0.0.1",
        "rebalance_timeout_ms": 300_000,
        "session_timeout_ms": 45_000,
        "subscription": {
            "version": 3,
            "topics": ["orders"],
            "owned_partitions": [{"topic": "orders", "partitions": [1]}],
            "generation_id": 3,
            "rack_id": None,
            "user_data": b"u",
        },
        "assignment": {
            "version": 3,
            "partitions": [{"topic": "orders", "partitions": [0, 1]}],
            "user_data": None,
        },
        "subscription_bytes": subscription(OwnedPartitions=owned, GenerationId=3, UserData=b"u"),
        "assignment_bytes": assignment(),
        "subscription_error": None,
        "assignment_error": None,
        "connect_subscription": None,
        "connect_assignment": None,
    }


@pytest.mark.parametrize("version", range(5), ids=lambda v: f"v{v}")
def test_every_version_of_group_metadata(version: int) -> None:
    row = decode_one(group_metadata(member(version), version=version))
    [found] = row["members"]
    assert row["value_version"] == version
    assert found["rebalance_timeout_ms"] == (300_000 if version >= 1 else None)
    assert (row["current_state_timestamp"] is not None) == (version >= 2)


@pytest.mark.parametrize("version", range(4), ids=lambda v: f"v{v}")
def test_fields_that_a_version_of_the_subscription_lacks_are_null(version: int) -> None:
    later = {"GenerationId": 2} if version >= 2 else {}
    rack = {"RackId": "r"} if version >= 3 else {}
    given = subscription(version, **later, **rack)
    found = only_member(group_metadata(member(subscription=given)))["subscription"]
    assert found == {
        "version": version,
        "topics": ["orders"],
        "user_data": None,
        "owned_partitions": [] if version >= 1 else None,
        "generation_id": 2 if version >= 2 else None,
        "rack_id": "r" if version >= 3 else None,
    }


def test_members_may_send_different_versions() -> None:
    members = [member(subscription=subscription(v), assignment=assignment(0)) for v in (3, 0, 1)]
    row = decode_one(group_metadata(*members))
    assert [m["subscription"]["version"] for m in row["members"]] == [3, 0, 1]
    assert [m["assignment"]["version"] for m in row["members"]] == [0, 0, 0]


def test_bytes_of_zero_length_embed_nothing_and_are_no_error() -> None:
    found = only_member(group_metadata(member(subscription=b"", assignment=b"")))
    names = ("subscription", "assignment", "subscription_error", "assignment_error")
    assert [found[name] for name in names] == [None] * 4


def test_what_kafka_go_leaves_out_is_noted_and_the_rest_read() -> None:
    given = INT16(1) + subscription(0, UserData=b"u")[2:]
    found = only_member(group_metadata(member(subscription=given)))
    assert found["subscription"] == {
        "version": 1,
        "topics": ["orders"],
        "user_data": b"u",
        "owned_partitions": None,
        "generation_id": None,
        "rack_id": None,
    }
    error = f"OwnedPartitions missing: the bytes end at byte {len(given)}"
    assert found["subscription_error"] == error


def test_a_subscription_of_its_version_only_lacks_everything() -> None:
    found = only_member(group_metadata(member(subscription=INT16(0))))
    assert found["subscription"]["version"] == 0
    assert found["subscription_error"] == (
        "Topics missing: the bytes end at byte 2; UserData missing: the bytes end at byte 2"
    )


def test_a_newer_subscription_is_read_as_the_newest_known() -> None:
    given = INT16(9) + subscription(3, RackId="r")[2:] + b"appended"
    found = only_member(group_metadata(member(subscription=given)))
    assert found["subscription"]["version"] == 9
    assert found["subscription"]["rack_id"] == "r"
    assert found["subscription_error"] is None


def test_a_known_version_with_bytes_left_over_is_read_and_noted() -> None:
    given = subscription(3) + b"surplus"
    found = only_member(group_metadata(member(subscription=given)))
    assert found["subscription"]["topics"] == ["orders"]
    assert str(found["subscription_error"]).endswith("7 bytes left over after the last field")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (b"\0", "version at byte 0: needs 2 bytes, 1 left"),
        (INT16(-1) + b"anything", "version at byte 2: version -1 is not known"),
        (
            INT16(0) + INT32(HUGE),
            f"Topics[] at byte 6: an array of {HUGE} elements with 0 bytes left",
        ),
        (INT16(0) + INT32(-1), "Topics[] at byte 6: is null, which this field cannot be"),
        (
            INT16(0) + INT32(1) + INT16(9) + b"or",
            "Topics[] at byte 8: a length of 9 with 2 bytes left",
        ),
        (
            b"not a subscription",
            "Topics[] at byte 6: an array of 1948279072 elements with 12 bytes left",
        ),
    ],
    ids=["one byte", "negative version", "lying count", "null array", "cut string", "text"],
)
def test_a_subscription_that_cannot_be_read_does_not_condemn_its_record(
    given: bytes, error: str
) -> None:
    found = only_member(group_metadata(member(subscription=given, assignment=assignment())))
    assert found["subscription"] is None
    assert found["subscription_bytes"] == given
    assert found["subscription_error"] == error
    assert found["assignment"] is not None


def test_a_bad_member_does_not_disturb_its_neighbours() -> None:
    good = member(subscription=subscription())
    row = decode_one(group_metadata(good, member(subscription=b"\0\0\7"), good))
    assert [m["subscription"] is None for m in row["members"]] == [False, True, False]
    assert [m["subscription_error"] is None for m in row["members"]] == [True, False, True]


@pytest.mark.parametrize("protocol_type", ["sr", "", "custom", "CONSUMER"])
def test_other_protocol_types_keep_their_bytes_only(protocol_type: str) -> None:
    given = member(subscription=subscription(), assignment=b"{}")
    found = only_member(group_metadata(given, protocolType=protocol_type))
    assert (found["subscription_bytes"], found["assignment_bytes"]) == (subscription(), b"{}")
    names = ("subscription", "assignment", "connect_subscription", "connect_assignment")
    errors = ("subscription_error", "assignment_error")
    assert [found[name] for name in (*names, *errors)] == [None] * 6


# -- Connect workers ------------------------------------------------------------------------------

CONNECTORS = [{"connector": "sink", "tasks": [-1, 0]}]
CONNECT_ASSIGNMENT = {
    "error": 0,
    "leader": "w-1",
    "leaderUrl": "http://w-1/",
    "configOffset": 7,
    "assignment": CONNECTORS,
}


def connect_subscription(version: int, **values: object) -> bytes:
    message = embedded_messages()["ConnectProtocolSubscription"]
    return encode_message(message, version, {"url": "http://w-1/", "configOffset": 7, **values})


def connect_assignment(version: int, **values: object) -> bytes:
    message = embedded_messages()["ConnectProtocolAssignment"]
    return encode_message(message, version, {**CONNECT_ASSIGNMENT, **values})


def connect_member(subscription: bytes, assignment: bytes) -> dict[str, Any]:
    given = member(subscription=subscription, assignment=assignment)
    return only_member(group_metadata(given, protocolType="connect"))


def test_connect_workers_of_the_eager_protocol() -> None:
    found = connect_member(connect_subscription(0), connect_assignment(0))
    assert found["connect_subscription"] == {
        "version": 0,
        "url": "http://w-1/",
        "config_offset": 7,
        "allocation": None,
        "allocation_bytes": None,
        "allocation_error": None,
    }
    assert found["connect_assignment"] == {
        "version": 0,
        "error": 0,
        "leader": "w-1",
        "leader_url": "http://w-1/",
        "config_offset": 7,
        "assignment": CONNECTORS,
        "revoked": None,
        "delay_ms": None,
    }
    assert (found["subscription"], found["assignment"]) == (None, None)


@pytest.mark.parametrize("version", [1, 2], ids=["compatible", "sessioned"])
def test_connect_workers_of_the_incremental_protocols(version: int) -> None:
    allocation = connect_assignment(version, revoked=CONNECTORS, delay=300)
    found = connect_member(connect_subscription(version, allocation=allocation), allocation)
    columns = {
        "version": version,
        "error": 0,
        "leader": "w-1",
        "leader_url": "http://w-1/",
        "config_offset": 7,
        "assignment": CONNECTORS,
        "revoked": CONNECTORS,
        "delay_ms": 300,
    }
    assert found["connect_assignment"] == columns
    assert found["connect_subscription"]["allocation"] == columns
    assert found["connect_subscription"]["allocation_bytes"] == allocation


@pytest.mark.parametrize(
    ("allocation", "error"),
    [(b"\0", "version at byte 0: needs 2 bytes, 1 left"), (b"\xff\xff", "version"), (b"", None)],
    ids=["cut short", "no such version", "no bytes"],
)
def test_an_allocation_that_cannot_be_read_condemns_nothing(
    allocation: bytes, error: str | None
) -> None:
    given = connect_subscription(2, allocation=allocation)
    found = connect_member(given, connect_assignment(2))
    worker = found["connect_subscription"]
    assert (worker["url"], worker["config_offset"]) == ("http://w-1/", 7)
    assert (worker["allocation"], worker["allocation_bytes"]) == (None, allocation)
    told = worker["allocation_error"]
    assert told is None if error is None else told.startswith(error)
    assert (found["subscription_error"], found["assignment_error"]) == (None, None)


def test_missing_trailing_fields_of_connect_are_tolerated_without_a_remark() -> None:
    short = INT16(1) + connect_assignment(0)[2:]
    found = connect_member(INT16(2) + connect_subscription(0)[2:], short)
    assert found["connect_assignment"]["revoked"] is None
    assert found["connect_assignment"]["assignment"] == CONNECTORS
    assert found["connect_subscription"]["allocation_bytes"] is None
    assert (found["subscription_error"], found["assignment_error"]) == (None, None)


# -- the new protocols ----------------------------------------------------------------------------


def test_a_member_that_speaks_the_classic_protocol_carries_its_subscription() -> None:
    protocols = [{"Name": "range", "Metadata": subscription()}, {"Name": "x", "Metadata": b"\0"}]
    classic = {"SessionTimeoutMs": 45_000, "SupportedProtocols": protocols}
    row = decode_one(modern(5, {**MEMBER_METADATA, "ClassicMemberMetadata": classic}))
    found = row["classic_member_metadata"]
    assert found["session_timeout_ms"] == 45_000
    good, bad = found["supported_protocols"]
    assert good["subscription"]["topics"] == ["orders"]
    assert good["metadata"] == subscription()
    assert bad["subscription"] is None
    assert bad["subscription_error"] == "version at byte 0: needs 2 bytes, 1 left"


def test_a_member_of_the_new_protocol_has_no_classic_metadata() -> None:
    key, value = modern(5, MEMBER_METADATA)
    written = value[:-1] + b"\x01\x00\x01\x00"  # brokers write the null
    for each in (value, written):
        row = decode_one((key, each))
        assert row["classic_member_metadata"] is None
        assert row["decode_notes"] is None


@pytest.mark.parametrize("mark", ["00", "ffffffff0f"], ids=["0", "-1"])
def test_a_tagged_struct_is_null_by_a_mark_of_0_or_less(mark: str) -> None:
    key, value = modern(5, MEMBER_METADATA)
    written = value[:-1] + b"\x01\x00\x01" + bytes.fromhex(mark)
    assert decode_one((key, written))["classic_member_metadata"] is None


@pytest.mark.parametrize(
    ("endpoint", "columns"),
    [(None, None), ({"Host": "h", "Port": 65_535}, {"host": "h", "port": 65_535})],
    ids=["null", "port 65535"],
)
def test_a_struct_that_can_be_null(
    endpoint: Mapping[str, object] | None, columns: dict[str, object] | None
) -> None:
    row = decode_one(modern(19, {**STREAMS_MEMBER, "UserEndpoint": endpoint}))
    assert row["user_endpoint"] == columns


def test_null_and_present_structs_stand_side_by_side() -> None:
    endpoints = [{"Host": "a", "Port": 1}, None, {"Host": "b", "Port": 2}]
    pairs = [modern(19, {**STREAMS_MEMBER, "UserEndpoint": e}) for e in endpoints]
    rows = assert_agrees_with_row_decoder(record_batch(pairs))
    found = [r.columns["user_endpoint"] for r in rows if isinstance(r, DecodedRow)]
    assert found == [{"host": "a", "port": 1}, None, {"host": "b", "port": 2}]


def test_unknown_tagged_fields_are_counted() -> None:
    tags = [(7, b"xx"), (2**31, b"")]
    topic = {**TOPIC_PARTITIONS, UNKNOWN_TAGS: [(9, b"")]}
    row = decode_one(modern(7, {"TopicPartitions": [topic], UNKNOWN_TAGS: tags}))
    assert row["topic_partitions"] == [TOPIC_COLUMNS]
    assert sorted(row["decode_notes"]) == [
        "1 unknown tagged fields in TopicPartition",
        "2 unknown tagged fields in ConsumerGroupTargetAssignmentMemberValue",
    ]


def test_unknown_tagged_fields_around_known_ones_are_passed_over() -> None:
    values = {"Epoch": 1, "MetadataHash": 2, "ValidatedTopologyEpoch": 3}
    row = decode_one(modern(17, {**values, UNKNOWN_TAGS: [(1_000, bytes(300))]}))
    assert row["validated_topology_epoch"] == 3
    assert row["decode_notes"] == ["1 unknown tagged fields in StreamsGroupMetadataValue"]


def test_a_tagged_field_is_read_as_it_lies_there_whatever_size_it_claims() -> None:
    head = encode_value(3, 0, {"Epoch": 1})[:-1]
    number = struct.pack(">q", 77)
    for size in (b"\x00", b"\x08", b"\x7f"):
        row = decode_one((modern(3, {"Epoch": 1})[0], head + b"\x01\x00" + size + number))
        assert row["metadata_hash"] == 77


def test_the_last_of_two_tagged_fields_with_one_tag_wins() -> None:
    head = encode_value(3, 0, {"Epoch": 1})[:-1]
    twice = b"\x02" + b"".join(b"\x00\x08" + struct.pack(">q", n) for n in (1, 2))
    assert decode_one((modern(3, {"Epoch": 1})[0], head + twice))["metadata_hash"] == 2


def test_a_negative_count_of_tagged_fields_is_none_to_java() -> None:
    head = encode_value(3, 0, {"Epoch": 1})[:-1]
    row = decode_one((modern(3, {"Epoch": 1})[0], head + b"\xff\xff\xff\xff\x0f"))
    assert row["metadata_hash"] is None


# -- former layouts -------------------------------------------------------------------------------


def metadata(record_type: int) -> dict[str, Any]:
    topic = {"TopicId": TOPIC_ID, "TopicName": "orders", "NumPartitions": 2}
    racks = [{"Partition": 0, "Racks": ["a", "b"]}]
    state = {**TOPIC_PARTITIONS, "TopicName": "orders"}
    client = {"MetadataVersion": 3, "MetadataBytes": b"meta"}
    assignor = {"Name": "a", "MinimumVersion": 0, "MaximumVersion": 1, "Reason": 2, "Version": 1}
    values: dict[int, dict[str, Any]] = {
        4: {"Epoch": 12, "Topics": [{**topic, "PartitionMetadata": racks}]},
        5: {**MEMBER_METADATA, "Assignors": [{**assignor, "Metadata": b"m"}]},
        7: {"Error": 1, "TopicPartitions": [TOPIC_PARTITIONS], **client},
        8: {
            "MemberEpoch": 5,
            "PreviousMemberEpoch": 4,
            "TargetMemberEpoch": 6,
            "AssignedPartitions": [TOPIC_PARTITIONS],
            "PartitionsPendingRevocation": [],
            "PartitionsPendingAssignment": [TOPIC_PARTITIONS],
            "Error": 0,
            **client,
        },
        11: {"Epoch": 12},
        15: {
            "InitializedTopics": [state],
            "DeletingTopics": [{"TopicId": TOPIC_ID, "TopicName": "gone"}],
        },
    }
    return values[record_type]


CLIENT_COLUMNS = {"metadata_version": 3, "metadata_bytes": b"meta"}
STATE_COLUMNS = {**TOPIC_COLUMNS, "topic_name": "orders"}


@pytest.mark.parametrize(
    ("record_type", "layout", "columns"),
    [
        (
            4,
            "before 3.8",
            {
                "epoch": 12,
                "topics": [
                    {
                        "topic_id": TOPIC_ID,
                        "topic_name": "orders",
                        "num_partitions": 2,
                        "partition_metadata": [{"partition": 0, "racks": ["a", "b"]}],
                    }
                ],
            },
        ),
        (
            5,
            "3.5 to 3.7",
            {
                "client_id": "c",
                "assignors": [
                    {
                        "name": "a",
                        "minimum_version": 0,
                        "maximum_version": 1,
                        "reason": 2,
                        "version": 1,
                        "metadata": b"m",
                    }
                ],
                "classic_member_metadata": None,
            },
        ),
        (
            7,
            "before 3.8",
            {"error": 1, "topic_partitions": [TOPIC_COLUMNS], **CLIENT_COLUMNS},
        ),
        (
            8,
            "3.5 to 3.7",
            {
                "member_epoch": 5,
                "target_member_epoch": 6,
                "state": None,
                "assigned_partitions": [{**TOPIC_COLUMNS, "assignment_epochs": None}],
                "partitions_pending_revocation": [],
                "partitions_pending_assignment": [{**TOPIC_COLUMNS, "assignment_epochs": None}],
                "error": 0,
                **CLIENT_COLUMNS,
            },
        ),
        (11, "4.0", {"epoch": 12, "metadata_hash": None}),
        (
            15,
            "4.0",
            {
                "initializing_topics": None,
                "initialized_topics": [STATE_COLUMNS],
                "deleting_topics": [{"topic_id": TOPIC_ID, "topic_name": "gone"}],
            },
        ),
    ],
    ids=lambda v: f"type {v}" if isinstance(v, int) else v if isinstance(v, str) else "",
)
def test_a_former_layout_is_read_and_named(
    record_type: int, layout: str, columns: dict[str, object]
) -> None:
    row = decode_one(modern(record_type, metadata(record_type), layout=layout))
    assert {name: row[name] for name in columns} == columns
    assert row["decode_notes"] == [f"layout: {layout}"]


def test_the_name_of_the_layout_comes_before_other_remarks() -> None:
    values = {**MEMBER_METADATA, "ClientId": b"\xff", "Assignors": []}
    key = encode_key(5, {"GroupId": b"\xff", "MemberId": "m"})
    value = encode_value(5, 0, values, layout="3.5 to 3.7")
    assert decode_one((key, value))["decode_notes"] == [
        "GroupId is not valid UTF-8",
        "layout: 3.5 to 3.7",
        "ClientId is not valid UTF-8",
    ]


def test_both_layouts_of_a_type_share_a_table_in_one_batch() -> None:
    former = modern(11, metadata(11), layout="4.0")
    todays = modern(11, {"Epoch": 13, "MetadataHash": 99})
    rows = assert_agrees_with_row_decoder(record_batch([todays, former, todays]))
    found = [r.columns["metadata_hash"] for r in rows if isinstance(r, DecodedRow)]
    assert found == [99, None, 99]


def test_a_value_that_fits_no_layout_is_refused_with_the_reason_of_todays() -> None:
    rejected = reject_one((modern(11, metadata(11), layout="4.0")[0], b"\0\0\0"))
    assert rejected.error == "value.Epoch at byte 2: needs 4 bytes, 1 left"


# -- the quarantine -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [25, -5, 32_767, -32_768])
def test_an_unknown_record_type_is_kept_by_its_number(number: int) -> None:
    rejected = reject_one((INT16(number) + b"whatever", INT16(0) + b"value"))
    assert rejected == Rejected(number, None, f"unknown record type {number}")


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (None, "key is null"),
        (b"", "key: needs 2 bytes for the record type, has 0"),
        (b"\x00", "key: needs 2 bytes for the record type, has 1"),
    ],
    ids=["null", "empty", "one byte"],
)
@pytest.mark.parametrize("value", [None, b"", b"\0\0"], ids=["null", "empty", "two bytes"])
def test_a_key_too_short_for_a_record_type(
    key: bytes | None, value: bytes | None, error: str
) -> None:
    assert reject_one((key, value)) == Rejected(None, None, error)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (INT16(1), "key.group at byte 2: needs 2 bytes, 0 left"),
        (INT16(1) + INT16(-1), "key.group at byte 4: is null, which this field cannot be"),
        (INT16(1) + INT16(9) + b"bill", "key.group at byte 4: a length of 9 with 4 bytes left"),
    ],
    ids=["no field", "null", "cut"],
)
def test_a_key_that_cannot_be_read(key: bytes, error: str) -> None:
    number = int.from_bytes(key[:2], "big")
    assert reject_one((key, None)) == Rejected(number, None, error)


@pytest.mark.parametrize("version", [5, 32_767, -1, -32_768])
def test_an_unknown_value_version_is_named_with_those_known(version: int) -> None:
    key, value = offset_commit()
    rejected = reject_one((key, INT16(version) + value[2:]))
    error = f"value version {version} of OffsetCommit is not known (known: 0 to 4)"
    assert rejected == Rejected(1, version, error)


@pytest.mark.parametrize("length", [0, 1], ids=["empty", "one byte"])
def test_a_value_too_short_for_a_version(length: int) -> None:
    rejected = reject_one((offset_commit()[0], bytes(length)))
    error = f"value: needs 2 bytes for its version, has {length}"
    assert rejected == Rejected(1, None, error)


@pytest.mark.parametrize("version", range(5), ids=lambda v: f"v{v}")
def test_every_byte_is_needed(version: int) -> None:
    key, value = group_metadata(member(version, subscription=b"12"), version=version)
    pairs: list[Pair] = [(key, value[:length]) for length in range(len(value))]
    rows = assert_agrees_with_row_decoder(record_batch(pairs))
    assert all(isinstance(row, Rejected) for row in rows)


@pytest.mark.parametrize(
    ("length", "error"),
    [
        (INT16(32_767), "metadata at byte 16: a length of 32767 with 8 bytes left"),
        (INT16(-1), "metadata at byte 16: is null, which this field cannot be"),
        (INT16(-2), "metadata at byte 16: is null, which this field cannot be"),
    ],
    ids=["too long", "null", "negative"],
)
def test_a_string_whose_length_lies(length: bytes, error: str) -> None:
    key, value = offset_commit(3)
    damaged = value[:14] + length + value[16:]
    assert reject_one((key, damaged)).error == f"value.{error}"


@pytest.mark.parametrize(
    ("count", "why"),
    [
        (HUGE, f"an array of {HUGE} elements with 0 bytes left"),
        (1, "an array of 1 elements with 0 bytes left"),
        (-1, "is null, which this field cannot be"),
        (-(2**31), "is null, which this field cannot be"),
    ],
)
def test_an_array_whose_count_lies(count: int, why: str) -> None:
    key, value = group_metadata()
    damaged = value[:-4] + INT32(count)
    assert reject_one((key, damaged)).error == f"value.members[] at byte {len(damaged)}: {why}"


@pytest.mark.parametrize(
    ("length", "why"),
    [
        (HUGE, f"a length of {HUGE} with 4 bytes left"),
        (5, "a length of 5 with 4 bytes left"),
        (-1, "is null, which this field cannot be"),
    ],
)
def test_bytes_whose_length_lies(length: int, why: str) -> None:
    key, value = group_metadata(member(subscription=b""))
    damaged = value[:-8] + INT32(length) + value[-4:]
    error = f"value.members[].subscription at byte {len(damaged) - 4}: {why}"
    assert reject_one((key, damaged)).error == error


@pytest.mark.parametrize(
    ("varint", "why"),
    [
        ("ffffffff07", "{at}: an array of 2147483646 elements with 1 bytes left"),
        ("8080808008", "{at}: an array of 2147483647 elements with 1 bytes left"),
        ("ffffffff0f", "{at}: is null, which this field cannot be"),
        ("00", "{at}: is null, which this field cannot be"),
        ("ffffffff8f", "{at}: a varint longer than 5 bytes"),
        ("ff", "4: needs 1 bytes, 0 left"),
    ],
    ids=["2^31 - 1", "2^31", "2^32 - 1", "null", "six bytes", "cut"],
)
def test_a_varint_that_lies(varint: str, why: str) -> None:
    octets = bytes.fromhex(varint)
    rest = b"" if varint == "ff" else b"\0"
    rejected = reject_one((modern(7, {"TopicPartitions": []})[0], INT16(0) + octets + rest))
    where = why.format(at=2 + len(octets)) if "{at}" in why else "3: needs 1 bytes, 0 left"
    assert rejected.error == f"value.TopicPartitions[] at byte {where}"


def test_a_string_longer_than_kafka_allows_is_refused() -> None:
    key, _ = modern(16, {"Topics": [], "Version": 0, "Timestamp": 0})
    long = b"\x02" + b"\x81\x80\x02" + b"x" * 32_768 + bytes(17)
    rejected = reject_one((key, INT16(0) + long))
    assert rejected.error == (
        "value.Topics[] at byte 6: a string of 32768 bytes, more than the 32767 that Kafka allows"
    )


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        ("01 05 03 00", "tagged fields at byte 9: a tagged field of 3 bytes with 1 bytes left"),
        (
            "01 05 ffffffff0f",
            "tagged fields at byte 13: a tagged field of -1 bytes with 0 bytes left",
        ),
        ("05 05 00", "tagged fields at byte 7: an array of 5 elements with 2 bytes left"),
        ("01 00 08 00", "MetadataHash at byte 9: needs 8 bytes, 1 left"),
        ("", "ConsumerGroupMetadataValue at byte 6: needs 1 bytes, 0 left"),
    ],
    ids=["size too large", "negative size", "count too large", "known field cut", "missing"],
)
def test_tagged_fields_that_lie(tags: str, error: str) -> None:
    value = encode_value(3, 0, {"Epoch": 1})[:-1] + bytes.fromhex(tags)
    assert reject_one((modern(3, {"Epoch": 1})[0], value)).error == f"value.{error}"


def test_the_error_names_the_field_within_arrays_of_structs() -> None:
    key, value = group_metadata(member(), member())
    rejected = reject_one((key, value[:-9]))
    assert rejected.error.startswith("value.members[].sessionTimeout at byte ")


# -- batches --------------------------------------------------------------------------------------


def mixed() -> list[Pair]:
    return [
        offset_commit(),
        (None, None),
        group_metadata(member(subscription=subscription())),
        offset_commit(4, topicId=TOPIC_ID),
        (b"\0\x63", b""),
        offset_commit(0, metadata=b"\xff"),
        modern(7, {"TopicPartitions": [TOPIC_PARTITIONS]}),
        (offset_commit()[0], None),
        (offset_commit()[0], b"\0\3"),
    ]


def test_an_empty_batch_becomes_nothing() -> None:
    decoded = decode(record_batch([]))
    assert (decoded.tables, decoded.quarantined) == ({}, [])


@pytest.mark.parametrize("offset", [0, 1, 2, 5, 8, 9])
@pytest.mark.parametrize("length", [1, 4, 9])
def test_a_slice_of_a_batch_decodes_as_if_it_were_one(offset: int, length: int) -> None:
    whole = decode_all(record_batch(mixed()))
    assert (
        decode_all(record_batch(mixed()).slice(offset, length)) == whole[offset : offset + length]
    )


@pytest.mark.parametrize(
    "wanted", [pa.large_binary(), pa.binary_view()], ids=["large_binary", "binary_view"]
)
def test_other_binary_types_decode_the_same(wanted: pa.DataType) -> None:
    batch = record_batch(mixed())
    columns = [c.cast(wanted) if pa.types.is_binary(c.type) else c for c in batch.columns]
    assert decode_all(pa.RecordBatch.from_arrays(columns, names=batch.schema.names)) == decode_all(
        batch
    )


def test_bytes_that_a_null_keeps_mean_nothing() -> None:
    key, value = offset_commit()
    batch = record_batch([(key, value), (key, value)])
    hidden = [hide_first(batch.column(name)) for name in ("key", "value")]
    columns = [*batch.columns[:3], *hidden]
    rows = decode_all(pa.RecordBatch.from_arrays(columns, schema=batch.schema))
    assert rows[0] == Rejected(None, None, "key is null")
    assert isinstance(rows[1], DecodedRow)
    columns[3] = batch.column("key")
    first, _ = decode_all(pa.RecordBatch.from_arrays(columns, schema=batch.schema))
    assert isinstance(first, DecodedRow)
    assert first.columns["is_tombstone"] is True


def hide_first(array: pa.Array) -> pa.Array:
    """Make the first value null and leave its bytes where they are."""
    validity = pa.py_buffer(bytes([0b10]))
    return pa.Array.from_buffers(array.type, 2, [validity, *array.buffers()[1:]])


def test_records_keep_their_order_within_a_table() -> None:
    pairs = [offset_commit(offset=n) for n in range(100)]
    [rows] = decode(record_batch(pairs)).tables["offset_commits"]
    assert rows.column("committed_offset").to_pylist() == list(range(100))


def test_tables_have_the_declared_columns() -> None:
    decoded = decode(record_batch(mixed()))
    assert decoded.tables.keys() == {
        "offset_commits",
        "group_metadata",
        "consumer_group_target_assignment_member",
    }
    for table, batches in decoded.tables.items():
        assert {b.schema for b in batches} == {arrow_schema(decoded_columns(table))}
    assert {b.schema for b in decoded.quarantined} == {arrow_schema(quarantine_columns())}


def test_one_bad_record_changes_nothing_for_its_neighbours() -> None:
    good = [offset_commit(offset=n) for n in range(4)]
    expected = decode_all(record_batch(good))
    bad = (good[0][0], b"\0\3\0")
    rows = decode_all(Records([good[0], bad, *good[1:], bad]).batch())
    assert [row for row in rows if isinstance(row, DecodedRow)] == expected


# -- times of a copy ---------------------------------------------------------------------------


def test_times_of_records_are_compared_with_those_of_commits() -> None:
    assert times_off([]) is None
    assert times_off([record_batch([group_metadata()])]) is None
    # A record of a batch is as many seconds behind the epoch as its number.
    commits = [offset_commit(commitTimestamp=1_000 * n + off) for n, off in enumerate((0, 2, -9))]
    assert times_off([record_batch([*commits, offset_commit(commitTimestamp=10**12)])]) == 5
    assert times_off([record_batch([offset_commit(commitTimestamp=86_400_000)])]) == 86_400_000


# -- other vendors ----------------------------------------------------------------------------


def by_redpanda(*members: dict[str, object], **changes: object) -> Pair:
    values = {"protocolType": "consumer", "generation": 1, "protocol": "range", "leader": "a"}
    values |= {"currentStateTimestamp": 0, "members": list(members), **changes}
    key = encode_key(2, {"group": "billing"})
    return key, encode_value(2, 3, values, layout="Redpanda")


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_version_in_front_of_each_member_is_redpandas(count: int) -> None:
    members = [member(memberId=f"m-{n}", groupInstanceId=f"i-{n}") for n in range(count)]
    row = decode_one(by_redpanda(*members))
    assert row["decode_notes"] == ["layout: Redpanda"]
    assert [m["member_id"] for m in row["members"]] == [f"m-{n}" for n in range(count)]
    assert {m["session_timeout_ms"] for m in row["members"]} == {45_000}
    assert "version" not in row["members"][0]


def test_without_members_redpandas_layout_is_kafkas() -> None:
    assert decode_one(by_redpanda())["decode_notes"] is None


def test_a_value_of_kafka_is_never_tried_as_redpandas() -> None:
    _, value = group_metadata(member())
    assert decode_one((encode_key(2, {"group": "g"}), value))["decode_notes"] is None
    row = decode_one((encode_key(2, {"group": "g"}), value + b"more"))
    assert row["decode_notes"] == ["trailing_bytes: 4 after GroupMetadataValue"]


@pytest.mark.parametrize("change", [lambda v: v + b"\0", lambda v: v[:-1]])
def test_redpandas_layout_has_to_fit_to_the_last_byte(change: Any) -> None:  # noqa: ANN401
    key, value = by_redpanda(member())
    assert reject_one((key, change(value))).error.startswith("value.members[].groupInstanceId at")


@pytest.mark.parametrize("version", [0, 1, 2, 4])
def test_the_number_in_front_of_a_member_has_to_be_the_values_version(version: int) -> None:
    key, value = by_redpanda(member())
    assert value is not None
    at_member = value.index(INT16(3) + INT16(15))
    changed = value[:at_member] + INT16(version) + value[at_member + 2 :]
    assert reject_one((key, changed)).error.startswith("value.members[]")


def wrapped(key: bytes) -> bytes:
    return struct.pack("<i", len(key)) + key


@pytest.mark.parametrize("topic", ["orders", "o" * 237])
def test_a_tombstone_whose_key_stands_behind_its_length_is_redpandas(topic: str) -> None:
    key, _ = offset_commit(key={"topic": topic})
    row = decode_one((wrapped(key), None))
    assert (row["group_id"], row["topic"], row["topic_partition"]) == ("billing", topic, 5)
    assert (row["key_version"], row["is_tombstone"]) == (1, True)
    assert row["decode_notes"] == ["layout: Redpanda, the key behind its length"]
    group = decode_one((wrapped(encode_key(2, {"group": "billing"})), None))
    assert (group["group_id"], group["is_tombstone"]) == ("billing", True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (wrapped(offset_commit()[0]), offset_commit()[1]),
        (wrapped(offset_commit()[0]) + b"\0", None),
        (wrapped(encode_key(3, {"GroupId": "billing"})), None),
        (wrapped(b"\0"), None),
        (wrapped(b""), None),
    ],
    ids=["with a value", "of another length", "of a newer type", "without a type", "empty"],
)
def test_what_only_looks_wrapped_is_not_decoded(key: bytes, value: bytes | None) -> None:
    reject_one((key, value))
