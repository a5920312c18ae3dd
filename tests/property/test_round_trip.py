"""What the encoder writes the decoder reads, for every record type, version and layout."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from benchmarks.row_decoder import DecodedRow, decode_record
from schemas.messages import Message, RecordType, embedded_messages, record_types
from schemas.silver import decoded_columns
from tests.factories import (
    EmbeddedBytes,
    Encoded,
    Pair,
    assert_agrees_with_row_decoder,
    decode_one,
    expected_columns,
    group_metadata,
    layout_id,
    layouts,
    member,
    message_values,
    record_batch,
)
from tests.support.encoder import encode_key, encode_value

POSITION = {"record_partition", "record_offset", "record_timestamp"}
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def embedded_id(case: tuple[Message, int]) -> str:
    return f"{case[0].name} v{case[1]}"


EMBEDDED = [
    (message, version)
    for message in embedded_messages().values()
    for version in range(message.valid.low, message.valid.high + 1)
]
# Where a member of a classic group carries each of them: protocol type, field, column.
POSITIONS = {
    "ConsumerProtocolSubscription": ("consumer", "subscription", "subscription"),
    "ConsumerProtocolAssignment": ("consumer", "assignment", "assignment"),
    "ConnectProtocolSubscription": ("connect", "subscription", "connect_subscription"),
    "ConnectProtocolAssignment": ("connect", "assignment", "connect_assignment"),
}


def draw_record(
    data: DataObject, case: tuple[RecordType, Message, int]
) -> tuple[Encoded, dict[str, object]]:
    """Draw a record and the columns it has to become."""
    record_type, message, version = case
    keys = data.draw(message_values(record_type.key, 0), label="key")
    values = data.draw(message_values(message, version), label="value")
    key = encode_key(record_type.id, keys)
    value = encode_value(record_type.id, version, values, layout=message.layout)
    notes = [] if message.layout is None else [f"layout: {message.layout}"]
    flexible = version in message.flexible
    names = {c.name for c in decoded_columns(record_type.table)} - POSITION
    expected: dict[str, object] = {
        **dict.fromkeys(names),
        **expected_columns(record_type.key.root, 0, keys, notes, flexible=False),
        **expected_columns(message.root, version, values, notes, flexible=flexible),
        "value_version": version,
        "is_tombstone": False,
        "decode_notes": notes or None,
    }
    if "key_version" in names:
        expected["key_version"] = record_type.id
    if message.layout is not None:
        # Bytes of a former layout may happen to be a message of today's layout as well.
        assume(expected["decode_notes"] == decoded_notes(key, value))
    return (key, value), expected


def decoded_notes(key: bytes, value: bytes) -> object:
    row = decode_record(key, value)
    assert isinstance(row, DecodedRow)
    return row.columns["decode_notes"]


@pytest.mark.parametrize("case", layouts(), ids=layout_id)
@given(data=st.data())
@FEW
def test_every_layout_reads_back_what_was_written(
    case: tuple[RecordType, Message, int], data: DataObject
) -> None:
    pair, expected = draw_record(data, case)
    assert decode_one(pair) == expected


@pytest.mark.parametrize("case", EMBEDDED, ids=embedded_id)
@given(data=st.data())
@FEW
def test_every_embedded_message_reads_back_what_was_written(
    case: tuple[Message, int], data: DataObject
) -> None:
    message, version = case
    values = data.draw(message_values(message, version))
    protocol_type, field, column = POSITIONS[message.name]
    written = EmbeddedBytes.of(message, version, values)
    row = decode_one(group_metadata({**member(), field: written}, protocolType=protocol_type))
    [found] = row["members"]
    expected = expected_columns(message.root, version, values, [], flexible=False)
    assert found[column] == {"version": version, **expected}
    assert found[f"{field}_bytes"] == written
    assert found[f"{field}_error"] is None


@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_mixed_records_of_one_batch_do_not_disturb_each_other(data: DataObject) -> None:
    cases = data.draw(st.lists(st.sampled_from(layouts()), max_size=8))
    drawn = [draw_record(data, case) for case in cases]
    rows = assert_agrees_with_row_decoder(record_batch([pair for pair, _ in drawn]))
    assert [r.columns if isinstance(r, DecodedRow) else r for r in rows] == [e for _, e in drawn]


@given(data=st.data())
@FEW
def test_a_tombstone_keeps_its_key_and_nothing_else(data: DataObject) -> None:
    record_type = data.draw(st.sampled_from(list(record_types().values())))
    keys = data.draw(message_values(record_type.key, 0))
    row = decode_one((encode_key(record_type.id, keys), None))
    expected = expected_columns(record_type.key.root, 0, keys, [], flexible=False)
    kept = {name: value for name, value in row.items() if value is not None}
    kept.pop("key_version", None)
    assert kept == {**expected, "is_tombstone": True}


@given(data=st.data())
@FEW
def test_bytes_behind_key_and_value_change_nothing(data: DataObject) -> None:
    case = data.draw(st.sampled_from([c for c in layouts() if c[1].layout is None]))
    (key, value), expected = draw_record(data, case)
    behind_key, behind_value = data.draw(st.binary(max_size=9)), data.draw(st.binary(min_size=1))
    row = decode_one((key + behind_key, value + behind_value))
    notes, before = row.pop("decode_notes"), expected.pop("decode_notes")
    # With these bytes it may happen to be a former layout, which then is the better one.
    assume(not notes[0].startswith("layout: "))
    record_type, message, _ = case
    told = {f"trailing_bytes: {len(behind_value)} after {message.name}"}
    if behind_key:
        told.add(f"trailing_bytes: {len(behind_key)} after {record_type.key.name}")
    assert row == expected
    assert set(notes) == told.union(before if isinstance(before, list) else ())


@given(data=st.data())
@FEW
def test_a_message_cut_anywhere_is_refused(data: DataObject) -> None:
    case = data.draw(st.sampled_from([c for c in layouts() if len(c[0].value_layouts) == 1]))
    (key, value), _ = draw_record(data, case)
    pairs: list[Pair] = [(key, value[:length]) for length in range(len(value))]
    rows = assert_agrees_with_row_decoder(record_batch(pairs))
    assert not [row for row in rows if isinstance(row, DecodedRow)]
