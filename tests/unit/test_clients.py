"""Keyed hashes that stand for clients: which text is hashed, and that nothing else changes."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest

from decoders import clients
from decoders.clients import ClientKey, hash_clients
from schemas.columns import ArrayOf, ColumnType, StructOf, arrow_schema
from schemas.silver import decoded_columns, silver_tables

KEY = ClientKey("a secret for the tests")
RANDOM = "0f4c9e2a-8a33-4a47-9b6e-5a1d0c7e8f21"

# Text that does not name a client, as somebody has looked at: a new column has to be put here, or
# into HASHED or MEMBERS.
UNCHANGED = {
    # Positions and lengths, no text.
    *("allocation_error", "assignment_error", "subscription_error", "decode_notes"),
    *("connector", "group_id", "topic", "topic_id", "topic_ids", "topic_name", "topics", "name"),
    *("protocol", "protocol_type", "server_assignor", "regular_expression", "source_topic_regex"),
    *("source_topics", "repartition_sink_topics", "subscribed_topic_names"),
    *("subscribed_topic_regex", "subtopology_id", "rack_id", "racks", "process_id"),
    # Free text of the client: the docs say that it is kept.
    *("metadata", "key", "value"),
}


def text_columns(name: str, kind: ColumnType) -> set[str]:
    if isinstance(kind, ArrayOf):
        return text_columns(name, kind.element)
    if isinstance(kind, StructOf):
        return {found for c in kind.columns for found in text_columns(c.name, c.type)}
    return {name} if kind.name == "string" else set()


def test_every_column_of_text_was_decided_on() -> None:
    found = {
        name
        for table in silver_tables()
        for c in decoded_columns(table)
        for name in text_columns(c.name, c.type)
    }
    assert found == UNCHANGED | clients.HASHED | clients.MEMBERS
    assert not UNCHANGED & (clients.HASHED | clients.MEMBERS)


def test_a_hash_is_of_the_key_and_the_name() -> None:
    assert KEY.hash("orders-1") == ClientKey("a secret for the tests").hash("orders-1")
    assert KEY.hash("orders-1") != KEY.hash("orders-2")
    assert KEY.hash("orders-1") != ClientKey("another secret for them").hash("orders-1")
    # As openssl gives it: echo -n orders-1 | openssl dgst -sha256 -hmac "a secret for the tests"
    assert KEY.hash("orders-1") == "d3af9a7f713a4e50"
    assert not KEY.hash("")


def test_a_key_is_not_shown() -> None:
    shown = f"{KEY!r} {KEY} {KEY.fingerprint}"
    assert "secret" not in shown
    assert KEY.fingerprint != ClientKey("another secret for them").fingerprint


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (f"orders-1-{RANDOM}", f"{KEY.hash('orders-1')}-{RANDOM}"),
        (f"-{RANDOM}", f"-{RANDOM}"),
        (f"of\nlines-{RANDOM}", f"{KEY.hash(chr(10).join(('of', 'lines')))}-{RANDOM}"),
        (RANDOM, RANDOM),
        ("X6VJbR2sTpqVbLZ8mEw3xA", "X6VJbR2sTpqVbLZ8mEw3xA"),  # a random id as Kafka prints it
        ("X6VJbR2sapqVbLZ8mEw3xA", KEY.hash("X6VJbR2sapqVbLZ8mEw3xA")),  # not one
        ("jane.doe.at.example.co", KEY.hash("jane.doe.at.example.co")),
        ("whatever", KEY.hash("whatever")),
        ("", ""),
    ],
)
def test_members(member: str, expected: str) -> None:
    assert KEY.hash_member(member) == expected


def rows_of(table: str, *rows: dict[str, object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), arrow_schema(decoded_columns(table)))


def test_members_of_a_classic_group() -> None:
    who = {
        "member_id": f"orders-1-{RANDOM}",
        "group_instance_id": "host-1",
        "client_id": "orders-1",
        "client_host": "/10.0.0.1",
        "subscription": {"topics": ["orders-1"], "user_data": b"orders-1"},
        "connect_subscription": {"url": "http://host-1:8083/"},
        "subscription_bytes": b"orders-1",
    }
    given = rows_of(
        "group_metadata",
        {"group_id": "orders-1", "leader": f"orders-1-{RANDOM}", "members": [who, who]},
        {"group_id": "none", "members": None},
        {"group_id": "empty", "leader": "", "members": []},
        {"group_id": "others", "members": [{"member_id": str(uuid4()), "client_id": None}]},
    )
    for part in (given, given.slice(1), given.slice(0, 1)):
        found, expected = hash_clients(part, KEY), part.to_pylist()
        for row in expected:
            row["leader"] = row["leader"] and KEY.hash_member(row["leader"])
            for member in row["members"] or ():
                member["member_id"] = KEY.hash_member(member["member_id"])
                for name in ("group_instance_id", "client_id", "client_host"):
                    member[name] = member[name] and KEY.hash(member[name])
                if member["connect_subscription"]:
                    member["connect_subscription"]["url"] = KEY.hash("http://host-1:8083/")
        assert found.schema == part.schema
        assert found.to_pylist() == expected
        found.validate(full=True)


def test_a_member_of_kafka_streams() -> None:
    given = rows_of(
        "streams_group_member_metadata",
        {"group_id": "g", "client_id": "a", "user_endpoint": {"host": "host-1", "port": 1}},
        {"group_id": "g", "client_id": "a", "user_endpoint": None},
    )
    found = hash_clients(given, KEY).to_pylist()
    assert [row["client_id"] for row in found] == [KEY.hash("a")] * 2
    assert [row["user_endpoint"] for row in found] == [
        {"host": KEY.hash("host-1"), "port": 1},
        None,
    ]


def test_rows_without_clients_stay() -> None:
    given = rows_of("offset_commits", {"group_id": "client-1", "metadata": "by client-1"})
    assert hash_clients(given, KEY).equals(given)
