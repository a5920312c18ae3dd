"""Passes over the elements of one record's array, one by one.

For arrays that are much longer than those of the other records: a step of the reader, which takes
the k-th element of every record at once, costs the same for a single record as for hundreds.
"""

from __future__ import annotations

from array import array

from decoders.buffers import Bytes
from schemas.messages import Field, Struct

_MORE = 0x80  # the bit of a varint's byte that says another follows
_MAX_STRING = 32767


class Walker:
    """Passes over well-formed elements; what to say of others is the reader's business."""

    def __init__(self, data: Bytes, *, end: int, version: int, flexible: bool) -> None:
        self._data = memoryview(data.data)
        self._end = end
        self._version = version
        self._flexible = flexible

    def ends(self, field: Field, pos: int, count: int) -> array[int]:
        """Find where each of `count` elements ends that start at `pos`.

        It stops before the first element that is not as it should be or has tagged fields.
        """
        found = array("q")
        try:
            for _ in range(count):
                pos = self._element(field, pos)
                found.append(pos)
        except _UnfitError:
            pass
        return found

    def _element(self, field: Field, pos: int) -> int:
        if field.struct is not None:
            return self._struct(field.struct, pos)
        return self._payload(field, pos, nullable=False)

    def _struct(self, struct: Struct, pos: int) -> int:
        if struct.repeats_version:
            found = int.from_bytes(self._data[pos : pos + 2], "big", signed=True)
            if found != self._version:
                raise _UnfitError
            pos = self._within(pos + 2)
        for field in struct.fields:
            if field.tag is not None and self._flexible:
                continue
            if self._version in field.versions:
                pos = self._field(field, pos)
        if self._flexible:
            if self._data[pos]:
                raise _UnfitError
            pos = self._within(pos + 1)
        return pos

    def _field(self, field: Field, pos: int) -> int:
        nullable = self._version in field.nullable
        width = field.fixed_width
        if field.is_array:
            count, pos = self._length(4, pos, nullable=nullable)
            if width is not None:
                return self._within(pos + count * width)
            self._within(pos + count)  # no element takes less than a byte
            for _ in range(count):
                pos = self._element(field, pos)
            return pos
        if width is not None:
            return self._within(pos + width)
        if field.struct is None:
            return self._payload(field, pos, nullable=nullable)
        if nullable:
            raise _UnfitError
        return self._struct(field.struct, pos)

    def _payload(self, field: Field, pos: int, *, nullable: bool) -> int:
        is_string = field.kind == "string"
        length, pos = self._length(2 if is_string else 4, pos, nullable=nullable)
        if is_string and length > _MAX_STRING:
            raise _UnfitError
        return self._within(pos + length)

    def _length(self, width: int, pos: int, *, nullable: bool) -> tuple[int, int]:
        """Read a length or count, 0 for null, and give the position behind it."""
        data = self._data
        if self._flexible and data[pos] < _MORE:
            length = data[pos] - 1
            pos += 1
        elif self._flexible and data[pos + 1] < _MORE:
            length = (data[pos] & 0x7F | data[pos + 1] << 7) - 1
            pos += 2
        elif self._flexible:
            raise _UnfitError
        else:
            length = int.from_bytes(data[pos : pos + width], "big", signed=True)
            pos += width
        if length < 0:
            if not nullable:
                raise _UnfitError
            length = 0
        return length, self._within(pos)

    def _within(self, pos: int) -> int:
        if pos > self._end:
            raise _UnfitError
        return pos


class _UnfitError(Exception):
    """An element is not as it should be."""
