"""Records of ``__consumer_offsets``, bytes in and columns out: what each record type becomes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from decoders.buffers import Buffer, Ints, Mask, Slots
from decoders.failures import Failures
from decoders.reader import Reader, join_notes
from schemas.columns import arrow_schema, millis_of
from schemas.messages import WRAPPED, WRAPPED_TYPES, Message, RecordType, record_types
from schemas.silver import decoded_columns, quarantine_columns

_POSITION = ("record_partition", "record_offset", "record_timestamp")
_NO_TYPE = -(2**31)  # of a key too short to hold one
_TOMBSTONE = _NO_TYPE - 1  # instead of a version: there is no value
# What Redpanda wrote in front of some keys: their length, little-endian.
_WRAPPER = 4


@dataclass
class Decoded:
    """What a batch of records became: each record is one row of exactly one of these batches."""

    tables: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    quarantined: list[pa.RecordBatch] = field(default_factory=list)


def decode(batch: pa.RecordBatch) -> Decoded:
    """Decode a batch of records, with the columns of `decoders.transform.INPUT`."""
    return _Batch(batch).decode()


def times_off(batches: Iterable[pa.RecordBatch]) -> int | None:
    """Return how many milliseconds the times of records are off those of their commits: the median.

    Without a commit that has both times there is none.
    """
    rows = [rows for batch in batches for rows in decode(batch).tables.get("offset_commits", ())]
    if not rows:
        return None
    table = pa.Table.from_batches(rows)
    names = ("record_timestamp", "commit_timestamp")
    of_record, of_commit = (millis_of(table[name]) for name in names)
    off = pc.abs(pc.subtract(of_record, of_commit)).drop_null()
    return int(np.median(off.to_numpy())) if len(off) else None


class _Batch:
    def __init__(self, batch: pa.RecordBatch) -> None:
        keys, values = (batch.column(name).cast(pa.binary()) for name in ("key", "value"))
        self._columns = {name: batch.column(name) for name in _POSITION}
        self._columns |= {"key": keys, "value": values}
        self._count = batch.num_rows
        self._keys, self._key_start, self._key_end = Buffer.of(keys)
        self._values, self._value_start, self._value_end = Buffer.of(values)
        self._has_value: Mask = values.is_valid().to_numpy(zero_copy_only=False)
        self._wrapped = np.zeros(0, np.int64)
        self._out = Decoded()

    def decode(self) -> Decoded:
        """Decode each record by the type that its key starts with."""
        types = self._unwrapped(_leading_int16(self._keys, self._key_start, self._key_end))
        for number in np.unique(types):
            rows = np.flatnonzero(types == number)
            if number == _NO_TYPE:
                self._quarantine_without_type(rows)
            elif (record_type := record_types().get(int(number))) is None:
                errors = [f"unknown record type {number}"] * rows.size
                self._quarantine(rows, errors, record_type=int(number))
            else:
                self._decode_type(record_type, rows)
        return self._out

    def _unwrapped(self, types: Ints) -> Ints:
        """Return the types of keys, of tombstones that Redpanda's older releases wrapped the inner.

        Redpanda knows them by their length, too (maybe_unwrap_from_iobuf in group_metadata.cc).
        """
        rows = np.flatnonzero(~self._has_value)
        start, end = self._key_start[rows], self._key_end[rows]
        is_wrapped = self._keys.numbers("int32", start).byteswap() == end - start - _WRAPPER
        rows = rows[is_wrapped & (end - start > _WRAPPER)]
        if rows.size:
            start = self._key_start[rows] + _WRAPPER
            inner = _leading_int16(self._keys, start, self._key_end[rows])
            pairs = zip(types[rows].tolist(), inner.tolist(), strict=True)
            held = np.array([_holds(*pair) for pair in pairs])
            self._wrapped = rows = rows[held]
            self._key_start = self._key_start.copy()
            self._key_start[rows] = start[held]
            types[rows] = inner[held]
        return types

    def _quarantine_without_type(self, rows: Ints) -> None:
        keys = self._columns["key"].take(pa.array(rows)).to_pylist()
        errors = [
            "key is null"
            if key is None
            else f"key: needs 2 bytes for the record type, has {len(key)}"
            for key in keys
        ]
        self._quarantine(rows, errors, record_type=None)

    def _decode_type(self, record_type: RecordType, rows: Ints) -> None:
        """Decode records of one type, those of one version together."""
        start, end = self._value_start[rows], self._value_end[rows]
        has_value = self._has_value[rows]
        version = np.where(has_value, _leading_int16(self._values, start, end), _TOMBSTONE)
        known = record_type.value.valid
        inside = (version >= known.low) & (version <= known.high)
        for number in (_TOMBSTONE, *range(known.low, known.high + 1)):
            chosen = version == number
            if chosen.any():
                keys = self._keys_of(record_type, rows if chosen.all() else rows[chosen])
                if number == _TOMBSTONE:
                    self._emit(record_type, keys, {}, None, {})
                elif keys.rows.size:
                    self._decode_layouts(record_type, keys, number)
        rest = np.flatnonzero(has_value & ~inside)
        if rest.size:
            self._quarantine_unknown_versions(record_type, rows[rest])

    def _keys_of(self, record_type: RecordType, rows: Ints) -> _Part:
        """Read the keys of some records; a record whose key is refused is none of the result."""
        start = self._key_start[rows]
        reader = Reader(self._keys, start, flexible=False)
        slots = Slots(np.arange(rows.size), start + 2, self._key_end[rows], 0)
        keys = _Part(rows, reader.message(record_type.key, slots), reader.notes)
        if self._wrapped.size:
            for row in np.flatnonzero(np.isin(rows, self._wrapped)):
                reader.notes.setdefault(int(row), []).append(WRAPPED)
        reader.note_left(record_type.key, slots)
        if not reader.failures.any:
            return keys
        failed = np.flatnonzero(reader.failures.mask)
        errors = [f"key.{reader.failures.text(int(row))}" for row in failed]
        self._quarantine(rows[failed], errors, record_type=record_type.id)
        return keys.take(np.flatnonzero(~reader.failures.mask))

    def _quarantine_unknown_versions(self, record_type: RecordType, rows: Ints) -> None:
        rows = self._keys_of(record_type, rows).rows
        start, end = self._value_start[rows], self._value_end[rows]
        version = _leading_int16(self._values, start, end)
        errors = [
            f"value: needs 2 bytes for its version, has {length}"
            if number == _NO_TYPE
            else f"value version {number} of {record_type.name} is not known "
            f"(known: {record_type.value.valid})"
            for number, length in zip(version, end - start, strict=True)
        ]
        self._quarantine(rows, errors, record_type=record_type.id, version=version)

    def _decode_layouts(self, record_type: RecordType, keys: _Part, version: int) -> None:
        """Decode values by today's layout, and what does not fit it by the other ones."""
        # Another layout that fits to the last byte is better than today's with bytes left.
        others = [m for m in record_type.value_layouts[1:] if version in m.valid]
        today = self._values_of(record_type.value, keys, version)
        settled = today.fits if others else ~today.failures.mask
        self._emit_values(record_type, today, np.flatnonzero(settled), version)
        rest = np.flatnonzero(~settled)
        for layout in others:
            if not rest.size:
                return
            other = self._values_of(layout, keys.take(rest), version)
            fits = np.flatnonzero(other.fits)
            for row in fits:
                other.part.notes.setdefault(int(row), []).insert(0, f"layout: {layout.layout}")
            self._emit_values(record_type, other, fits, version)
            rest = rest[~other.fits]
        failed = today.failures.mask[rest]
        self._emit_values(record_type, today, rest[~failed], version)
        refused = rest[failed]
        if refused.size:
            self._quarantine(
                keys.rows[refused],
                [f"value.{today.failures.text(int(row))}" for row in refused],
                record_type=record_type.id,
                version=np.full(refused.size, version),
            )

    def _values_of(self, layout: Message, keys: _Part, version: int) -> _Values:
        """Read values in one layout."""
        count = keys.rows.size
        start = self._value_start[keys.rows]
        reader = Reader(self._values, start, flexible=version in layout.flexible)
        slots = Slots(np.arange(count), start + 2, self._value_end[keys.rows], version)
        columns = reader.message(layout, slots)
        left = reader.note_left(layout, slots)
        part = _Part(np.arange(count), columns, reader.notes)
        return _Values(keys, part, reader.failures, ~reader.failures.mask & (left == 0))

    def _emit_values(
        self, record_type: RecordType, values: _Values, index: Ints, version: int
    ) -> None:
        """Add the records at `index` as one layout reads them."""
        if index.size:
            part = values.part.take(index)
            self._emit(record_type, values.keys.take(index), part.columns, version, part.notes)

    def _emit(
        self,
        record_type: RecordType,
        keys: _Part,
        columns: dict[str, pa.Array],
        version: int | None,
        notes: dict[int, list[str]],
    ) -> None:
        """Add rows to the table of their type; without a version they are tombstones."""
        count = keys.rows.size
        schema = arrow_schema(decoded_columns(record_type.table))
        whole = count == self._count
        index = None if whole else pa.array(keys.rows)
        found = {
            name: self._columns[name] if index is None else self._columns[name].take(index)
            for name in _POSITION
        }
        found["key_version"] = pa.array(np.full(count, record_type.id, np.int16))
        found["is_tombstone"] = pa.array(np.full(count, version is None))
        if version is not None:
            found["value_version"] = pa.array(np.full(count, version, np.int16))
        for row, texts in keys.notes.items():
            notes.setdefault(row, [])[:0] = texts
        if notes:
            found["decode_notes"] = join_notes(notes, range(count))
        found = {**columns, **keys.columns, **found}
        arrays = [
            _conform(found[f.name], f.type) if f.name in found else pa.nulls(count, f.type)
            for f in schema
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self._out.tables.setdefault(record_type.table, []).append(rows)

    def _quarantine(
        self, rows: Ints, errors: list[str], *, record_type: int | None, version: Ints | None = None
    ) -> None:
        index = pa.array(rows)
        count = len(errors)
        found = {name: column.take(index) for name, column in self._columns.items()}
        found["record_type"] = pa.array([record_type] * count, pa.int16())
        if version is None:
            found["value_version"] = pa.nulls(count, pa.int16())
        else:
            unread = version == _NO_TYPE
            readable = np.where(unread, 0, version).astype(np.int16)
            found["value_version"] = pa.array(readable, mask=unread)
        found["error"] = pa.array(errors, pa.string())
        schema = arrow_schema(quarantine_columns())
        self._out.quarantined.append(
            pa.RecordBatch.from_arrays([found[f.name] for f in schema], schema=schema)
        )


@dataclass
class _Part:
    """Some records of the batch: their row numbers there, columns read so far, and remarks."""

    rows: Ints
    columns: dict[str, pa.Array]
    notes: dict[int, list[str]]

    def take(self, index: Ints) -> _Part:
        """Keep the records at `index`."""
        if index.size == self.rows.size:
            return self
        indices = pa.array(index)
        notes: dict[int, list[str]] = {}
        if self.notes:  # else a look at each record is the most that this costs
            for new, old in enumerate(index):
                if int(old) in self.notes:
                    notes[new] = self.notes[int(old)]
        columns = {name: array.take(indices) for name, array in self.columns.items()}
        return _Part(self.rows[index], columns, notes)


@dataclass
class _Values:
    """What one layout makes of values: which it `fits`, to the last byte."""

    keys: _Part
    part: _Part
    failures: Failures
    fits: Mask


def _holds(outer: int, inner: int) -> bool:
    """Return whether a key that seems to be of one type can be the wrapper of another's."""
    types = record_types()
    if inner not in WRAPPED_TYPES:
        return False
    return outer not in types or types[outer].table == types[inner].table


def _leading_int16(buffer: Buffer, start: Ints, end: Ints) -> Ints:
    """Read the number that a key or a value starts with, `_NO_TYPE` where it is too short."""
    # Without the cast NumPy would fit _NO_TYPE into 16 bits, which makes it 0.
    numbers = buffer.numbers("int16", start).astype(np.int64)
    return np.where(end - start >= 2, numbers, _NO_TYPE)  # noqa: PLR2004 - an int16


def _conform(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a column in the table's type: a former layout lacks fields of nested structs."""
    if array.type == wanted:
        return array
    if pa.types.is_list(wanted):
        values = _conform(array.values, wanted.value_type)
        return pa.ListArray.from_arrays(
            array.offsets, values, type=wanted, mask=array.is_null() if array.null_count else None
        )
    if pa.types.is_struct(wanted):
        children = [
            _conform(array.field(f.name), f.type)
            if array.type.get_field_index(f.name) >= 0
            else pa.nulls(len(array), f.type)
            for f in wanted
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
    return array.cast(wanted)
