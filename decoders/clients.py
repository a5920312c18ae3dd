"""Keyed hashes instead of what identifies clients: their ids and hosts, and what names them.

The same key gives the same hash, so that clients can still be counted one by one. Without the key
nobody can try names out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import uuid
from collections.abc import Callable

import pyarrow as pa

HASHED = frozenset(
    {
        *("client_id", "client_host"),
        # Configured ids of static members are often names of hosts.
        *("group_instance_id", "instance_id"),
        # Of Connect's workers, and of the endpoint of a member of Kafka Streams.
        *("url", "leader_url", "host"),
    }
)
"""Columns, also in structs, whose text is hashed as a whole."""
MEMBERS = frozenset({"member_id", "leader"})
"""Columns with ids of members: what stands before the random part is hashed."""

_DIGITS = 16  # 64 bits: of a million clients, two share a hash once in thirty million times
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# The coordinator of classic groups makes CLIENT-UUID, of static members INSTANCE-UUID.
_MEMBER = re.compile(f"(?P<name>.*)-(?P<random>{_UUID})", re.DOTALL)
_KAFKA_ID_LENGTH = 22


class ClientKey:
    """The key of the hashes. It is never shown."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def __repr__(self) -> str:
        """Show nothing of it."""
        return "ClientKey(…)"

    @property
    def fingerprint(self) -> str:
        """Return a fingerprint of the key, from which the key cannot be found."""
        # No client's name begins with NUL, so this is the hash of none.
        return f"hmac-sha256 {self.hash(chr(0) + 'groupledger')}"

    def hash(self, text: str) -> str:
        """Return the hash of a name; of an empty one, which is none, the empty one."""
        if not text:
            return text
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()[:_DIGITS]

    def hash_member(self, text: str) -> str:
        """Return a member's id with a hash instead of the name that it begins with.

        Ids that are random as a whole, as members of the newer protocols have them, are unchanged.
        """
        match = _MEMBER.fullmatch(text)
        if match is not None:
            return f"{self.hash(match['name'])}-{match['random']}"
        return text if re.fullmatch(_UUID, text) or _is_kafka_id(text) else self.hash(text)


def _is_kafka_id(text: str) -> bool:
    """Return whether a text is a random id as Kafka prints it: 22 characters of URL-safe base64."""
    if len(text) != _KAFKA_ID_LENGTH:
        return False
    try:
        found = uuid.UUID(bytes=base64.b64decode(f"{text}==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        return False
    return found.variant == uuid.RFC_4122 and found.version == 4  # noqa: PLR2004 - the random ones


def hash_clients(rows: pa.RecordBatch, key: ClientKey) -> pa.RecordBatch:
    """Replace names by hashes in rows of a silver table, at whatever depth they are.

    Text of other columns and bytes are unchanged.
    """
    arrays = [_hashed(rows.column(f.name), f, key) for f in rows.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def _hashed(array: pa.Array, field: pa.Field, key: ClientKey) -> pa.Array:
    kind = field.type
    if not _concerns(field):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_list(kind):
        values = _hashed(array.values, kind.value_field.with_name(field.name), key)
        offsets = pa.array(array.offsets.to_numpy())  # of a slice, Arrow takes none with a mask
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)
    if pa.types.is_struct(kind):
        children = [_hashed(array.field(i), kind.field(i), key) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    return _replaced(array, key.hash if field.name in HASHED else key.hash_member)


def _concerns(field: pa.Field) -> bool:
    """Return whether a column is hashed, or one in it."""
    kind = field.type
    if pa.types.is_list(kind):
        return _concerns(kind.value_field.with_name(field.name))
    if pa.types.is_struct(kind):
        return any(_concerns(child) for child in kind)
    return bool(pa.types.is_string(kind)) and field.name in HASHED | MEMBERS


def _replaced(array: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """Change each text; the same text comes many times, and is worked on once."""
    coded = array.dictionary_encode()
    changed = pa.array(map(change, coded.dictionary.to_pylist()), array.type)
    return changed.take(coded.indices)
