"""What schemas/kafka declares holds together: versions, columns, comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources

import pytest

from schemas.columns import ArrayOf, Column, StructOf, arrow_schema
from schemas.messages import (
    DeclarationError,
    Message,
    RecordType,
    Versions,
    _message,
    embedded_messages,
    record_types,
    snake_case,
)
from schemas.silver import decoded_columns, quarantine_columns, silver_tables

CONSUMER_MESSAGES = ("ConsumerProtocolAssignment", "ConsumerProtocolSubscription")
CONNECT_MESSAGES = ("ConnectProtocolAssignment", "ConnectProtocolSubscription")


def all_messages() -> list[Message]:
    return [
        *(t.key for t in record_types().values()),
        *(m for t in record_types().values() for m in t.value_layouts),
        *embedded_messages().values(),
    ]


def nested(columns: tuple[Column, ...], path: str = "") -> Iterator[tuple[str, Column]]:
    for column in columns:
        yield path + column.name, column
        inner = column.type
        while isinstance(inner, ArrayOf):
            inner = inner.element
        if isinstance(inner, StructOf):
            yield from nested(inner.columns, f"{path}{column.name}.")


def tables() -> dict[str, tuple[Column, ...]]:
    return {
        "quarantine": quarantine_columns(),
        **{table: decoded_columns(table) for table in silver_tables()},
    }


def test_every_record_type_of_kafka_is_declared() -> None:
    assert list(record_types()) == list(range(25))


def test_every_file_declares_a_record_type_or_an_embedded_message() -> None:
    folder = resources.files("schemas") / "kafka"
    declared = [json.loads(f.read_text("utf-8"))["name"] for f in folder.iterdir()]
    assert sorted(declared) == sorted(
        [*(t.name for t in record_types().values()), *embedded_messages()]
    )


def test_files_are_named_after_what_they_declare() -> None:
    folder = resources.files("schemas") / "kafka"
    names = [f"{t.id:02}_{snake_case(t.name)}.json" for t in record_types().values()]
    names += [f"embedded_{snake_case(name)}.json" for name in embedded_messages()]
    assert sorted(f.name for f in folder.iterdir()) == sorted(names)


@pytest.mark.parametrize(
    ("number", "valid", "flexible"),
    [
        pytest.param(0, "0", "none", id="legacy offset commit"),
        pytest.param(1, "0-4", "4+", id="offset commit"),
        pytest.param(2, "0-4", "4+", id="group metadata"),
        *(pytest.param(n, "0", "0+", id=f"record type {n}") for n in range(3, 25)),
    ],
)
def test_value_versions_are_those_of_kafka(number: int, valid: str, flexible: str) -> None:
    value = record_types()[number].value
    assert (value.valid, value.flexible) == (Versions.parse(valid), Versions.parse(flexible))


@pytest.mark.parametrize("record_type", record_types().values(), ids=lambda t: t.name)
def test_keys_have_one_version_that_is_not_flexible(record_type: RecordType) -> None:
    key = record_type.key
    assert (str(key.valid), 0 in key.flexible) == ("0", False)


@pytest.mark.parametrize(
    ("names", "newest"),
    [(CONSUMER_MESSAGES, 3), (CONNECT_MESSAGES, 2)],
    ids=["consumer", "connect"],
)
def test_versions_of_embedded_messages(names: tuple[str, ...], newest: int) -> None:
    found = [embedded_messages()[name] for name in names]
    assert [m.valid for m in found] == [Versions(0, newest)] * 2
    assert all(m.has_version_header and 0 not in m.flexible for m in found)


def test_former_layouts_are_those_that_brokers_wrote() -> None:
    former = {n: [m.layout for m in t.former_values] for n, t in record_types().items()}
    assert {n: names for n, names in former.items() if names} == {
        4: ["before 3.8"],
        5: ["3.5 to 3.7"],
        7: ["before 3.8"],
        8: ["3.5 to 3.7"],
        11: ["4.0"],
        15: ["4.0"],
    }


def test_variants_are_those_of_other_vendors() -> None:
    variants = {n: [m.layout for m in t.variants] for n, t in record_types().items()}
    assert {n: names for n, names in variants.items() if names} == {2: ["Redpanda"]}


@pytest.mark.parametrize("record_type", record_types().values(), ids=lambda t: t.name)
def test_a_former_layout_has_the_versions_of_todays(record_type: RecordType) -> None:
    value = record_type.value
    for former in record_type.former_values:
        assert (former.valid, former.flexible) == (value.valid, value.flexible)


@pytest.mark.parametrize(
    ("table", "columns"), tables().items(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_every_column_says_what_it_means(table: str, columns: tuple[Column, ...]) -> None:
    for path, column in nested(columns):
        assert re.fullmatch(r"[\w-].+\w.*\.", column.comment), f"{table}.{path}"


@pytest.mark.parametrize(
    ("table", "columns"), tables().items(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_no_column_is_declared_twice(table: str, columns: tuple[Column, ...]) -> None:
    paths = [path.lower() for path, _ in nested(columns)]
    assert len(paths) == len(set(paths)), table


@pytest.mark.parametrize(
    "message", all_messages(), ids=lambda m: f"{m.name} {m.layout or ''}".strip()
)
def test_no_two_fields_of_a_struct_share_a_column(message: Message) -> None:
    pending = [message.root]
    while pending:
        struct = pending.pop()
        names = [
            name
            for f in struct.fields
            for name in (f.column, f.error_column, *(e.column for e in f.embeds))
            if name
        ]
        assert len(names) == len(set(names))
        pending += [f.struct for f in struct.fields if f.struct is not None]


def test_keys_and_values_of_a_record_type_share_no_column() -> None:
    for record_type in record_types().values():
        keys = {f.column for f in record_type.key.root.fields}
        for layout in record_type.value_layouts:
            assert not keys & {f.column for f in layout.root.fields}


@pytest.mark.parametrize("record_type", record_types().values(), ids=lambda t: t.name)
def test_the_grain_is_one_row_per_record_or_tombstone(record_type: RecordType) -> None:
    grain = record_type.grain
    assert grain.startswith("One row per ")
    assert "or its tombstone" in grain


def test_every_record_type_has_a_table_and_both_offset_commits_share_one() -> None:
    shared = {t: [r.id for r in types] for t, types in silver_tables().items() if len(types) > 1}
    assert shared == {"offset_commits": [0, 1]}
    assert len(silver_tables()) == 24


@pytest.mark.parametrize(
    ("table", "columns"), tables().items(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_columns_have_arrow_types_and_start_with_the_position(
    table: str, columns: tuple[Column, ...]
) -> None:
    names = arrow_schema(columns).names
    assert names[:3] == ["record_partition", "record_offset", "record_timestamp"], table


@pytest.mark.parametrize(
    ("text", "shown", "inside", "outside"),
    [
        ("0", "0", [0], [-1, 1]),
        ("0-4", "0 to 4", [0, 4], [-1, 5]),
        ("3+", "3 to 32767", [3, 32767], [2]),
        ("none", "1 to 0", [], [0, 1]),
    ],
)
def test_versions_are_read_as_kafka_writes_them(
    text: str, shown: str, inside: list[int], outside: list[int]
) -> None:
    versions = Versions.parse(text)
    assert str(versions) == shown
    assert all(v in versions for v in inside)
    assert not any(v in versions for v in outside)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("groupInstanceId", "group_instance_id"),
        ("GroupId", "group_id"),
        ("RebalanceTimeoutMs", "rebalance_timeout_ms"),
        ("ResolvedTopicIdsBySubtopology", "resolved_topic_ids_by_subtopology"),
    ],
)
def test_a_column_is_the_field_in_snake_case(name: str, column: str) -> None:
    assert snake_case(name) == column


@pytest.mark.parametrize(
    ("declaration", "complaint"),
    [
        ({"type": "[]Missing"}, "neither a primitive type nor declared"),
        ({"type": 7}, "expected a string"),
        ({"type": "int8", "tag": "first"}, "expected a number"),
    ],
    ids=["unknown type", "type is no string", "tag is no number"],
)
def test_a_declaration_that_contradicts_itself_is_refused(
    declaration: dict[str, object], complaint: str
) -> None:
    field = {"name": "f", "versions": "0", "about": "A field.", **declaration}
    message = {"name": "M", "validVersions": "0", "flexibleVersions": "none", "fields": [field]}
    with pytest.raises(DeclarationError, match=complaint):
        _message(message)  # type: ignore[arg-type]
