"""Bytes of many records side by side: reading one number from each at once, and making columns."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

# Reads start at or before the end of a record's bytes, so this many bytes behind the last record
# make every read of up to 16 bytes safe; what such a read returns is never used.
_PADDING = 16
_INLINE = 12  # a string_view holds so many bytes itself
_DTYPES = {"bool": "i1", "int8": "i1", "int16": "i2", "uint16": "u2", "int32": "i4", "int64": "i8"}
_VIEW = np.dtype([("length", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
_INLINE_VIEW = np.dtype([("length", "<i4"), ("bytes", f"V{_INLINE}")])
_BASE64_URL = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8
)
_UUID_TEXT = 22
# A half of a surrogate pair, which UTF-8 does not write: to Java it is one fault, whole or cut
# short, and one U+FFFD; to Python each of its bytes is one.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_NO_UTF8 = b"\xff"

if sys.byteorder != "little":  # pragma: no cover
    msg = "groupledger reads Arrow's little-endian buffers: this machine is big-endian"
    raise ImportError(msg)


class Buffer:
    """The bytes of a batch, padded, with a strided view for each width of number."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self._views = {kind: self._view(dtype) for kind, dtype in _DTYPES.items()}
        self._inline = self._view(f"V{_INLINE}")
        self._uuid = self._view("V16")
        self._arrow = pa.py_buffer(data)

    @classmethod
    def of(cls, array: pa.Array) -> tuple[Buffer, Ints, Ints]:
        """Take over a column of type binary; return where each record's bytes start and end."""
        count = len(array)
        _, offsets_buffer, data_buffer = array.buffers()
        offsets = np.zeros(1, np.int32)
        if offsets_buffer is not None and count:
            offsets = np.frombuffer(offsets_buffer, np.int32, count + 1, array.offset * 4)
        first, last = int(offsets[0]), int(offsets[-1])
        data = np.zeros(last - first + _PADDING, np.uint8)
        if last > first:
            data[: last - first] = np.frombuffer(data_buffer, np.uint8, last - first, first)
        bounds = offsets.astype(np.int64) - first
        start, end = bounds[:-1], bounds[1:]
        if array.null_count:
            # Arrow lets a null keep bytes that mean nothing.
            end = np.where(array.is_valid().to_numpy(zero_copy_only=False), end, start)
        return cls(data), start, end

    def _view(self, dtype: str) -> NDArray[np.generic]:
        width = np.dtype(dtype).itemsize
        view: NDArray[np.generic] = np.ndarray(
            (self.data.size - width + 1,), dtype, self.data, strides=(1,)
        )
        return view

    def numbers(self, kind: str, pos: Ints) -> NDArray[np.signedinteger]:
        """Read one big-endian number at each position, as Kafka's type `kind`."""
        values: NDArray[np.signedinteger] = self._views[kind][pos].byteswap(inplace=True)
        return values

    def unsigned_bytes(self, pos: Ints) -> Ints:
        """Read one byte at each position, 0 to 255."""
        return self.data[pos].astype(np.int64)

    def slices(self, start: Ints, length: Ints, valid: Mask | None, *, text: bool) -> pa.Array:
        """Make a string or binary column of slices of the bytes.

        Raises:
            pa.ArrowInvalid: `text`, and a slice is not UTF-8.
        """
        views = np.empty(start.size, _VIEW)
        inline = views.view(_INLINE_VIEW)
        inline["length"] = length
        inline["bytes"] = self._inline[start]
        long = np.flatnonzero(length > _INLINE)
        if long.size:
            views["buffer"][long] = 0
            views["offset"][long] = start[long]
        array = pa.Array.from_buffers(
            pa.binary_view(), start.size, [_validity(valid), pa.py_buffer(views), self._arrow]
        )
        return array.cast(pa.string() if text else pa.binary())

    def replaced_strings(self, start: Ints, length: Ints, valid: Mask | None) -> pa.Array:
        """Make a string column as Java does: U+FFFD stands for what is not UTF-8."""
        raw = self.slices(start, length, valid, text=False).to_pylist()
        return pa.array([None if b is None else _replaced(b) for b in raw], pa.string())

    def uuids(self, pos: Ints) -> pa.Array:
        """Make a string column of ids as Kafka prints them: 22 characters of URL-safe base64."""
        octets = np.zeros((pos.size, 18), np.uint8)
        octets[:, :16] = self._uuid[pos].view(np.uint8).reshape(pos.size, 16)
        triples = octets.reshape(pos.size, 6, 3).astype(np.uint32)
        bits = (triples[:, :, 0] << 16) | (triples[:, :, 1] << 8) | triples[:, :, 2]
        sextets = np.stack([(bits >> shift) & 63 for shift in (18, 12, 6, 0)], axis=2)
        text = _BASE64_URL[sextets.reshape(pos.size, 24)[:, :_UUID_TEXT]]
        offsets = np.arange(pos.size + 1, dtype=np.int32) * _UUID_TEXT
        return pa.StringArray.from_buffers(
            pos.size, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text))
        )


@dataclass
class Slots:
    """One position to read from in each of many records (or elements of arrays in records).

    `row` is the record a slot belongs to, `pos` the next byte to read, `end` the byte behind the
    record's last. ``pos <= end`` always holds: a record that fails is moved to its end.
    `version` is one number for all, or one a slot.
    """

    row: Ints
    pos: Ints
    end: Ints
    version: int | Ints

    def __len__(self) -> int:
        """Count the slots."""
        return int(self.pos.size)

    def take(self, index: Ints | Mask) -> Slots:
        """Copy some of the slots."""
        version = self.version if isinstance(self.version, int) else self.version[index]
        return Slots(self.row[index], self.pos[index], self.end[index], version)

    def put(self, index: Ints, some: Slots) -> None:
        """Move the slots at `index` to where `some`, taken from there, have got to."""
        self.pos = self.pos.copy()
        self.pos[index] = some.pos


def spread(array: pa.Array, index: Ints, count: int) -> pa.Array:
    """Put the values of `array` at the rows `index` of a column of `count`, null elsewhere."""
    if index.size == count:
        return array
    source = np.zeros(count, np.int64)
    absent = np.ones(count, np.bool_)
    source[index] = np.arange(index.size)
    absent[index] = False
    return array.take(pa.array(source, mask=absent))


def _replaced(octets: bytes) -> str:
    return _SURROGATE.sub(_NO_UTF8, octets).decode("utf-8", "replace")


def _validity(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
