"""The encoder writes what Kafka's generated classes write, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.row_decoder import DecodedRow, decode_record
from schemas.messages import Field, Struct, embedded_messages, record_types
from tests.factories import EPOCH, NIL_UUID, TOPIC_ID, assignment, member, subscription
from tests.support.encoder import (
    UNKNOWN_TAGS,
    encode_key,
    encode_message,
    encode_value,
    unsigned_varint,
)

RECORDINGS = Path(__file__).parents[2] / "examples" / "recordings"
TOPIC_ID_HEX = "0102030405060708090a0b0c0d0e0f10"
COMMIT = {"offset": 258, "leaderEpoch": 3, "metadata": "hi", "commitTimestamp": 1}
STREAMS_MEMBER = {
    "ClientId": "",
    "ClientHost": "",
    "RebalanceTimeoutMs": 0,
    "TopologyEpoch": 0,
    "ProcessId": "",
    "ClientTags": [],
}


def octets(text: str) -> bytes:
    return bytes.fromhex(text)


# -- the wire format --------------------------------------------------------------------------


def test_a_key_is_the_record_type_and_its_fields() -> None:
    key = encode_key(1, {"group": "g", "topic": "tt", "partition": 7})
    assert key == octets("0001  0001 67  0002 7474  00000007")


@pytest.mark.parametrize(
    ("version", "values", "written"),
    [
        (0, {}, "0000 0000000000000102 0002 6869 0000000000000001"),
        (
            1,
            {"expireTimestamp": 2},
            "0001 0000000000000102 0002 6869 0000000000000001 0000000000000002",
        ),
        (1, {}, "0001 0000000000000102 0002 6869 0000000000000001 ffffffffffffffff"),
        (2, {}, "0002 0000000000000102 0002 6869 0000000000000001"),
        (3, {"leaderEpoch": 3}, "0003 0000000000000102 00000003 0002 6869 0000000000000001"),
        (3, {}, "0003 0000000000000102 ffffffff 0002 6869 0000000000000001"),
        (4, {}, "0004 0000000000000102 ffffffff 03 6869 0000000000000001 00"),
        (
            4,
            {"topicId": TOPIC_ID},
            f"0004 0000000000000102 ffffffff 03 6869 0000000000000001 01 00 10 {TOPIC_ID_HEX}",
        ),
        (4, {"topicId": NIL_UUID}, "0004 0000000000000102 ffffffff 03 6869 0000000000000001 00"),
    ],
    ids=[
        "v0",
        "v1",
        "v1, default",
        "v2",
        "v3",
        "v3, default",
        "v4: flexible",
        "v4, tagged field",
        "v4, a tagged field with its default is left out",
    ],
)
def test_versions_of_an_offset_commit(
    version: int, values: Mapping[str, object], written: str
) -> None:
    common = {"offset": 258, "metadata": "hi", "commitTimestamp": 1}
    assert encode_value(1, version, {**common, **values}) == octets(written)


@pytest.mark.parametrize(
    ("version", "written"),
    [
        (3, "0003  0000  00000000  ffff  0000  ffffffffffffffff  00000000"),
        (4, "0004  01  00000000  00  01  ffffffffffffffff  01  00"),
    ],
    ids=["not flexible", "flexible"],
)
def test_null_and_empty_strings_differ(version: int, written: str) -> None:
    values = {"protocolType": "", "generation": 0, "protocol": None, "leader": "", "members": []}
    assert encode_value(2, version, values) == octets(written)


def test_strings_take_two_bytes_of_length_and_bytes_and_arrays_four() -> None:
    values = {
        "protocolType": "c",
        "generation": 1,
        "protocol": None,
        "leader": "",
        "members": [
            {
                "memberId": "m",
                "clientId": "",
                "clientHost": "",
                "sessionTimeout": 2,
                "subscription": b"\x09",
                "assignment": b"",
            }
        ],
    }
    assert encode_value(2, 0, values) == octets(
        "0000  0001 63  00000001  ffff  0000  00000001"
        "  0001 6d  0000  0000  00000002  00000001 09  00000000"
    )


def test_flexible_lengths_are_varints_of_one_more_and_each_struct_ends_with_tags() -> None:
    values = {"TopicPartitions": [{"TopicId": TOPIC_ID, "Partitions": [5, -1]}]}
    assert encode_value(7, 0, values) == octets(
        f"0000  02  {TOPIC_ID_HEX}  03 00000005 ffffffff  00  00"
    )


def test_a_flexible_length_of_127_takes_two_bytes() -> None:
    written = encode_value(3, 0, {"Epoch": 1, UNKNOWN_TAGS: [(200, b"x" * 127)]})
    assert written == octets("0000 00000001 01 c801 7f") + b"x" * 127
    topics = encode_value(16, 0, {"Topics": ["x" * 127], "Version": 0, "Timestamp": 0})
    assert topics[2:6] == octets("02 8001 78")


@pytest.mark.parametrize(
    ("number", "written"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned_varints(number: int, written: str) -> None:
    assert unsigned_varint(number) == octets(written)


@pytest.mark.parametrize(
    ("endpoint", "written"),
    [(None, "ff"), ({"Host": "h", "Port": 65535}, "01 02 68 ffff 00")],
    ids=["null", "present"],
)
def test_a_struct_that_can_be_null_starts_with_a_byte(
    endpoint: Mapping[str, object] | None, written: str
) -> None:
    value = encode_value(19, 0, {**STREAMS_MEMBER, "UserEndpoint": endpoint})
    assert value == octets(f"0000 00 00 01 01 00000000 00000000 01 {written} 01 00")


def test_a_tagged_struct_that_can_be_null_starts_with_a_varint() -> None:
    classic = {"SessionTimeoutMs": 3, "SupportedProtocols": [{"Name": "r", "Metadata": b"\x08"}]}
    values = {"ClientId": "", "ClientHost": "", "SubscribedTopicNames": []}
    with_it = encode_value(5, 0, {**values, "ClassicMemberMetadata": classic})
    without = encode_value(5, 0, values)
    assert without == octets("0000 00 00 01 01 01 00 ffffffff 00 00")
    assert with_it == octets(
        "0000 00 00 01 01 01 00 ffffffff 00  01 00 0c  01 00000003 02 02 72 02 08 00 00"
    )


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    values = {
        "Epoch": 1,
        "MetadataHash": 2,
        "StoredDescriptionTopologyEpoch": 3,
        "ValidatedTopologyEpoch": 4,
        UNKNOWN_TAGS: [(1000, b"\x2a"), (1, b"\x00")],
    }
    assert encode_value(17, 0, values) == octets(
        "0000 00000001 0000000000000002  04  00 04 00000004  01 01 00  02 04 00000003  e807 01 2a"
    )


def test_a_former_layout_is_chosen_by_name() -> None:
    values = {"Epoch": 9, "Topics": []}
    assert encode_value(4, 0, values, layout="before 3.8") == octets("0000 00000009 01 00")


def test_an_embedded_message_starts_with_its_version() -> None:
    assert subscription(0) == octets("0000  00000001 0006") + b"orders" + octets("ffffffff")
    assert assignment(1) == octets("0001  00000001 0006") + b"orders" + octets(
        "00000002 00000000 00000001  ffffffff"
    )


# -- what does not fit --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"offset": None}, "offset cannot be null"),
        ({"metadata": None}, "metadata cannot be null"),
        ({"offset": 2**63}, "offset: 9223372036854775808 is out of the range of int64"),
        ({"leaderEpoch": -(2**31) - 1}, "leaderEpoch: -2147483649 is out of the range of int32"),
        ({"offset": "1"}, "offset: expected an int, found '1'"),
        ({"offset": True}, "offset: expected an int, found True"),
        ({"metadata": 1}, "metadata: expected a str, found 1"),
        ({"metadata": "x" * 32768}, "metadata: 32768 bytes, more than Kafka's 32767"),
        ({"metadata": "\ud800"}, "metadata: .*surrogates not allowed"),
        ({"topicId": TOPIC_ID}, "topicId: version 3 lacks this field"),
        ({"expireTimestamp": 5}, "expireTimestamp: version 3 lacks this field"),
        ({"ofset": 1}, "OffsetCommitValue has no field ofset"),
        ({UNKNOWN_TAGS: [(9, b"")]}, "OffsetCommitValue: version 3 has no tagged fields"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_value_that_does_not_fit_names_its_field(
    changes: Mapping[str, object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_value(1, 3, {**COMMIT, **changes})


@pytest.mark.parametrize(
    ("record_type", "values", "complaint"),
    [
        (7, {"TopicPartitions": 1}, r"TopicPartitions\[\]: expected a list, found 1"),
        (7, {"TopicPartitions": [1]}, r"TopicPartitions\[\]: expected a dict, found 1"),
        (
            7,
            {"TopicPartitions": [{"TopicId": "short", "Partitions": []}]},
            r"TopicPartitions\[\]\.TopicId: expected an id of 22 characters",
        ),
        (
            7,
            {"TopicPartitions": [{"TopicId": TOPIC_ID, "Partitions": [2**31]}]},
            r"TopicPartitions\[\]\.Partitions\[\]: 2147483648 is out of the range of int32",
        ),
        (
            19,
            {**STREAMS_MEMBER, "UserEndpoint": {"Host": "h", "Port": -1}},
            r"UserEndpoint\.Port: -1 is out of the range of uint16",
        ),
        (16, {"Topics": [None], "Version": 0, "Timestamp": 0}, r"Topics\[\]: expected a str"),
        (3, {}, "Epoch: no value, and no default to take instead"),
        (
            3,
            {"Epoch": 1, UNKNOWN_TAGS: [1]},
            "ConsumerGroupMetadataValue: expected a tag and bytes",
        ),
        (3, {"Epoch": 1, UNKNOWN_TAGS: [(-1, b"")]}, "expected a tag and bytes"),
        (3, {"Epoch": 1, "MetadataHash": 1, UNKNOWN_TAGS: [(0, b"")]}, "tag 0 is written twice"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_value_that_does_not_fit_names_its_field_in_nested_structs_too(
    record_type: int, values: Mapping[str, object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_value(record_type, 0, values)


def test_bytes_have_to_be_bytes() -> None:
    values = {"generation": 1, "protocolType": "", "members": [member(subscription="text")]}
    with pytest.raises(ValueError, match=r"members\[\]\.subscription: expected bytes"):
        encode_value(2, 3, values)


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match="OffsetCommitValue: version 5 is not known"):
        encode_value(1, 5, COMMIT)


def test_an_unknown_layout_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no layout '3\.3', only \['before 3\.8'\]"):
        encode_value(4, 0, {}, layout="3.3")


def test_an_embedded_message_of_an_unknown_version_is_refused() -> None:
    message = embedded_messages()["ConsumerProtocolSubscription"]
    with pytest.raises(ValueError, match="version 4 is not known"):
        encode_message(message, 4, {"Topics": []})


# -- real brokers -------------------------------------------------------------------------------


def wire_values(struct: Struct, columns: Mapping[str, object], version: int) -> dict[str, object]:
    """Turn columns back into the values they came from."""
    due = [f for f in struct.fields if version in f.versions]
    return {f.name: wire_value(f, columns[f.column], version) for f in due}


def wire_value(field: Field, value: object, version: int) -> object:
    if isinstance(value, list):
        return [wire_value(field, element, version) for element in value]
    if isinstance(value, dict):
        assert field.struct is not None
        return wire_values(field.struct, value, version)
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(milliseconds=1)
    if value is None and version not in field.nullable:
        return field.none if field.none is not None else field.default
    return value


@pytest.mark.parametrize("file", sorted(RECORDINGS.glob("*.parquet")), ids=lambda f: f.stem)
def test_what_brokers_wrote_is_written_again(file: Path) -> None:
    table = pq.read_table(file, columns=["key", "value"])
    checked = 0
    for key, value in {tuple(row.values()) for row in table.to_pylist()}:
        row = decode_record(key, value)
        assert isinstance(row, DecodedRow)
        number = int.from_bytes(key[:2], "big")
        record_type = record_types()[number]
        assert encode_key(number, wire_values(record_type.key.root, row.columns, 0)) == key
        if value is None or value[-4:] == b"\x01\x00\x01\x00":
            continue  # brokers write ClassicMemberMetadata although it is null
        version = int.from_bytes(value[:2], "big")
        layout = record_type.value
        notes = row.columns["decode_notes"]
        for note in notes if isinstance(notes, list) else ():
            name = note.removeprefix("layout: ")
            [layout] = [m for m in record_type.former_values if m.layout == name]
        values = wire_values(layout.root, row.columns, version)
        assert encode_value(number, version, values, layout=layout.layout) == value
        checked += 1
    assert checked > 10
