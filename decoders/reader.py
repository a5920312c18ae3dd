"""Reads one declared message from many records at once.

Numbers are gathered for all records together, strings become views of the same bytes, arrays are
loops over "the k-th element of every record that has one". Every read is checked against the end
of its record for the whole batch; a short or lying length marks that record as failed, moves it
to its end, and never raises. The rules are those of the classes that Kafka generates from its
message definitions (``MessageDataGenerator``), ByteUtils.readUnsignedVarint included.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from decoders.buffers import Buffer, Ints, Mask, Slots, spread
from decoders.failures import Failures, Reason
from decoders.walker import Walker
from schemas.columns import LAST_MS, field_columns, scalar_type, struct_columns
from schemas.messages import FIXED_WIDTH, Embed, Field, Message, Struct, Versions

# Which slots: True and False for all and none, which spares looking at each.
Which = bool | Mask
Columns = dict[str, pa.Array]

_MAX_STRING = 32767
_FEW = 16  # slots: so many arrays are passed over one after the other
_VARINT_SHIFTS = (7, 14, 21, 28)
_MORE = 0x80  # the bit of a varint's byte that says another follows
_FALSE = pa.scalar(value=False)
# TIMESTAMP holds the years 1 to 9999; what lies outside has no meaning as a time.
_MIN_EPOCH_MS = -62_135_596_800_000


class Reader:
    """Reads messages of one kind, flexible or not, from the records of one batch."""

    def __init__(self, buffer: Buffer, start: Ints, *, flexible: bool) -> None:
        self.failures = Failures(start.size)
        # By record, remarks that do not condemn it (bad UTF-8, unknown tagged fields, bytes behind
        # the message).
        self.notes: dict[int, list[str]] = {}
        self._buffer = buffer
        self._start = start
        self._flexible = flexible
        self._context: dict[str, pa.Array] = {}

    def message(self, message: Message, slots: Slots) -> Columns:
        """Read `message` from each slot, and move the slot behind it.

        The columns of a failed record are well-formed but meaningless.
        """
        if message.missing_tail == "refused":
            return self._struct(message.root, slots)
        return self._tolerant_struct(message, slots)

    def note_left(self, message: Message, slots: Slots) -> Ints:
        """Remark how many bytes are left behind a record's message, and give the numbers."""
        left = np.where(self.failures.mask, 0, slots.end - slots.pos)
        for row in np.flatnonzero(left):
            self._note(int(row), f"trailing_bytes: {left[row]} after {message.name}")
        return left

    # -- structs ------------------------------------------------------------------------------

    def _struct(self, struct: Struct, slots: Slots) -> Columns:
        columns: Columns = {}
        if struct.repeats_version:
            self._repeated_version(struct, slots)
        for field in struct.fields:
            if field.tag is None or not self._flexible:
                columns |= self._field(field, slots)
            if field.path == field.name and field.kind == "string":
                self._context[field.name] = columns[field.column]
        if self._flexible:
            columns |= self._tagged_fields(struct, slots)
        return columns

    def _repeated_version(self, struct: Struct, slots: Slots) -> None:
        """Pass over the version in front of a struct, which has to be that of the message."""
        version = self._number("int16", slots, f"{struct.name}.version").astype(np.int64)
        other = (version != slots.version) & ~self.failures.mask[slots.row]
        if other.any():
            self._fail(slots, other, Reason.VERSION, f"{struct.name}.version", found=version)

    def _tolerant_struct(self, message: Message, slots: Slots) -> Columns:
        """Read an embedded message whose bytes may end before a field, but not within one."""
        columns: Columns = {}
        for field in message.root.fields:
            due = _within(field.versions, slots.version)
            ended = (slots.pos == slots.end) & ~self.failures.mask[slots.row] & due
            if ended.any() and message.missing_tail == "noted":
                for slot in np.flatnonzero(ended):
                    row = slots.row[slot]
                    at = slots.pos[slot] - self._start[row]
                    self._note(int(row), f"{field.name} missing: the bytes end at byte {at}")
            due = np.full(len(slots), due) if isinstance(due, bool) else due
            columns |= self._partly_present(field, slots, due & ~ended)
        return columns

    def _field(self, field: Field, slots: Slots) -> Columns:
        present = _within(field.versions, slots.version)
        if isinstance(present, bool):
            return self._values(field, slots) if present else _absent(field, len(slots))
        return self._partly_present(field, slots, present)

    def _partly_present(self, field: Field, slots: Slots, present: Mask) -> Columns:
        index = np.flatnonzero(present)
        if not index.size:
            return _absent(field, len(slots))
        if index.size == len(slots):
            return self._values(field, slots)
        some = slots.take(index)
        columns = self._values(field, some)
        slots.put(index, some)
        return {name: spread(array, index, len(slots)) for name, array in columns.items()}

    def _values(self, field: Field, slots: Slots) -> Columns:
        nullable = _within(field.nullable, slots.version)
        if field.is_array:
            return {field.column: self._array(field, slots, nullable)}
        if field.struct is not None:
            return {field.column: self._nested_struct(field, field.struct, slots, nullable)}
        if field.kind == "bytes":
            return self._bytes(field, slots, nullable)
        return {field.column: self._scalar(field, slots, nullable)}

    def _nested_struct(
        self, field: Field, struct: Struct, slots: Slots, nullable: Which
    ) -> pa.Array:
        """Read a struct; one that can be null is preceded by a mark."""
        if nullable is False:
            return _struct_array(struct, self._struct(struct, slots), len(slots))
        index = self._present_structs(field, slots)
        some = slots.take(index)
        array = _struct_array(struct, self._struct(struct, some), index.size)
        slots.put(index, some)
        return spread(array, index, len(slots))

    def _present_structs(self, field: Field, slots: Slots) -> Ints:
        """Read the marks: a negative int8 is null, but in a tagged field a varint of 0."""
        if field.tag is not None:
            return np.flatnonzero(self._varint(slots, field.path) > 0)
        return np.flatnonzero(self._number("int8", slots, field.path) >= 0)

    # -- scalars ------------------------------------------------------------------------------

    def _scalar(self, field: Field, slots: Slots, nullable: Which) -> pa.Array:
        if field.kind == "string":
            return self._text(slots, *self._payload(field, slots, nullable), field.path)
        if field.kind == "uuid":
            start = slots.pos
            self._advance(16, slots, field.path)
            array = self._buffer.uuids(np.minimum(start, slots.end))
            return _null_where(array, pc.equal(array, field.none)) if field.none else array
        values = self._number(field.kind, slots, field.path)
        return self._number_array(field, slots, values)

    def _number_array(
        self, field: Field, slots: Slots, values: NDArray[np.signedinteger]
    ) -> pa.Array:
        none = values == field.none if field.none is not None else None
        if field.unit == "epoch_ms":
            outside = (values < _MIN_EPOCH_MS) | (values > LAST_MS)
            if outside.any():
                for slot in np.flatnonzero(outside):
                    text = (
                        f"{field.path}: {values[slot]} ms is no time between the years 1 and 9999"
                    )
                    self._note(int(slots.row[slot]), text)
                none = outside if none is None else none | outside
                values = np.where(outside, 0, values)
            return pa.array(values * 1000, pa.timestamp("us", "UTC"), mask=none)
        if field.kind == "bool":
            return pa.array(values != 0, mask=none)
        return pa.array(values, scalar_type(field).arrow(), mask=none)

    def _text(
        self, slots: Slots, start: Ints, length: Ints, valid: Mask | None, path: str
    ) -> pa.Array:
        try:
            return self._buffer.slices(start, length, valid, text=True)
        except pa.ArrowInvalid:
            array = self._buffer.replaced_strings(start, length, valid)
            raw = self._buffer.slices(start, length, valid, text=False)
            changed = pc.not_equal(array.cast(pa.binary()), raw).fill_null(_FALSE)
            for slot in np.flatnonzero(changed.to_numpy(zero_copy_only=False)):
                self._note(int(slots.row[slot]), f"{path} is not valid UTF-8")
            return array

    def _bytes(self, field: Field, slots: Slots, nullable: Which) -> Columns:
        start, length, valid = self._payload(field, slots, nullable)
        columns = {field.column: self._buffer.slices(start, length, valid, text=False)}
        if not field.embeds:
            return columns
        errors: dict[int, str] = {}
        for embed in field.embeds:
            columns[embed.column] = self._embedded(embed, slots, start, length, errors)
        if field.error_column is not None:
            texts = [errors.get(slot) for slot in range(len(slots))] if errors else None
            columns[field.error_column] = (
                pa.nulls(len(slots), pa.string()) if texts is None else pa.array(texts, pa.string())
            )
        return columns

    def _embedded(
        self, embed: Embed, slots: Slots, start: Ints, length: Ints, errors: dict[int, str]
    ) -> pa.Array:
        """Read the messages that a bytes field holds; their failures become `errors` by slot."""
        here = length > 0  # without a byte there is no version to read, which is allowed
        if embed.when is not None:
            name, value = embed.when
            rows_with_it = pc.equal(self._context[name], value).fill_null(_FALSE)
            here &= rows_with_it.to_numpy(zero_copy_only=False)[slots.row]
        index = np.flatnonzero(here)
        message = embed.message
        first = start[index]
        inner = Reader(self._buffer, first, flexible=False)
        inner_slots = Slots(np.arange(index.size), first, first + length[index], 0)
        version = inner._number("int16", inner_slots, "version")
        negative = version < message.valid.low
        if negative.any():
            inner._fail(inner_slots, negative, Reason.VERSION, "version", found=version)
        # A newer version is read as the newest known: fields are only ever appended.
        inner_slots.version = np.maximum(version, message.valid.low).astype(np.int64)
        columns = inner.message(message, inner_slots)
        # A version newer than known may append fields; older ones must fit.
        surplus = (inner_slots.pos < inner_slots.end) & (inner_slots.version <= message.valid.high)
        if surplus.any():
            inner._fail(inner_slots, surplus, Reason.TRAILING, message.name)
        columns["version"] = pa.array(version, pa.int16())
        array = _struct_array(message.root, columns, index.size, version=True)
        refused = inner.failures.mask & (inner.failures.reason != Reason.TRAILING)
        if refused.any():
            array = _null_where(array, pa.array(refused))
        for row in np.flatnonzero(inner.failures.mask):
            inner.notes.setdefault(int(row), []).append(inner.failures.text(int(row)))
        errors.update({int(index[row]): "; ".join(texts) for row, texts in inner.notes.items()})
        return spread(array, index, len(slots))

    # -- arrays -------------------------------------------------------------------------------

    def _array(self, field: Field, slots: Slots, nullable: Which) -> pa.Array:
        counts, valid = self._count(field, slots, nullable)
        elements, counts = self._elements(field, slots, counts)
        if field.struct is not None:
            columns = self._struct(field.struct, elements)
            values = _struct_array(field.struct, columns, len(elements))
        elif field.kind == "string":
            values = self._text(
                elements, *self._payload(field, elements, nullable=False), field.path
            )
        elif field.kind == "uuid":
            values = self._buffer.uuids(elements.pos)
        elif field.kind == "bytes":
            values = self._buffer.slices(
                *self._payload(field, elements, nullable=False), text=False
            )
        else:
            values = self._number_array(
                field, elements, self._buffer.numbers(field.kind, elements.pos)
            )
        return _list_array(counts, values, valid)

    def _count(self, field: Field, slots: Slots, nullable: Which) -> tuple[Ints, Mask | None]:
        """Read the length of an array, no larger than what can follow it."""
        count = self._length("int32", slots, field.path)
        count, valid = self._refuse_null(field, slots, count, nullable)
        too_many = count * _least_width(field, flexible=self._flexible) > slots.end - slots.pos
        if too_many.any():
            self._fail(slots, too_many, Reason.COUNT, field.path, found=count)
            count = np.where(too_many, 0, count)
        return count, valid

    def _elements(self, field: Field, slots: Slots, counts: Ints) -> tuple[Slots, Ints]:
        """Return a slot for each element, and how many each record has: none if it failed."""
        offsets = np.cumsum(counts) - counts
        owner = np.repeat(np.arange(len(slots)), counts)
        width = field.fixed_width
        if width is not None:
            within = np.arange(owner.size) - offsets[owner]
            pos = slots.pos[owner] + within * width
            slots.pos = slots.pos + counts * width
        else:
            pos = np.zeros(owner.size, np.int64)
            if self._walk_elements(field, slots, counts, pos, offsets):
                failed = self.failures.mask[slots.row] & (counts > 0)
                kept = ~failed[owner]
                owner, pos = owner[kept], pos[kept]
                counts = np.where(failed, 0, counts)
        version = slots.version if isinstance(slots.version, int) else slots.version[owner]
        return Slots(slots.row[owner], pos, slots.end[owner], version), counts

    def _walk_elements(
        self, field: Field, slots: Slots, counts: Ints, starts: Ints | None, offsets: Ints
    ) -> bool:
        """Pass over all elements, note in `starts` where each begins, and say if a record failed.

        Element k of slot i is noted at ``offsets[i] + k``.
        """
        slots.pos = slots.pos.copy()
        active = np.flatnonzero(counts)
        cursor = slots.take(active)
        remaining = counts[active]
        target = offsets[active]
        failed_before = int(np.count_nonzero(self.failures.mask)) if self.failures.any else 0
        failed = failed_before
        one_by_one = True
        while active.size:
            if active.size <= _FEW and one_by_one:
                one_by_one = False
                done: Ints | int = self._walk_few(field, cursor, remaining, target, starts)
            else:
                if starts is not None:
                    starts[target] = cursor.pos
                self._skip_element(field, cursor)
                done = 1
            remaining, target = remaining - done, target + done
            going = remaining > 0
            if self.failures.any:
                now = int(np.count_nonzero(self.failures.mask))
                if now != failed:
                    failed = now
                    going &= ~self.failures.mask[cursor.row]
            if not going.all():
                slots.pos[active[~going]] = cursor.pos[~going]
                active, remaining, target = active[going], remaining[going], target[going]
                cursor = cursor.take(going)
        return failed != failed_before

    def _walk_few(
        self, field: Field, cursor: Slots, counts: Ints, targets: Ints, starts: Ints | None
    ) -> Ints:
        """Pass over the elements of a few slots, slot by slot; give how many of each."""
        done = np.zeros(len(cursor), np.int64)
        for slot in range(len(cursor)):
            walker = Walker(
                self._buffer.data,
                end=int(cursor.end[slot]),
                version=cursor.version
                if isinstance(cursor.version, int)
                else int(cursor.version[slot]),
                flexible=self._flexible,
            )
            ends = walker.ends(field, int(cursor.pos[slot]), int(counts[slot]))
            done[slot] = len(ends)
            if not ends:
                continue
            if starts is not None:
                first = targets[slot]
                starts[first] = cursor.pos[slot]
                starts[first + 1 : first + len(ends)] = np.frombuffer(ends, np.int64)[:-1]
            cursor.pos[slot] = ends[-1]
        return done

    # -- passing over what is not read ----------------------------------------------------------

    def _skip_element(self, field: Field, slots: Slots) -> None:
        if field.struct is not None:
            self._skip_struct(field.struct, slots)
        else:
            self._payload(field, slots, nullable=False)

    def _skip_struct(self, struct: Struct, slots: Slots) -> None:
        if struct.repeats_version:
            self._repeated_version(struct, slots)
        for field in struct.fields:
            if field.tag is not None and self._flexible:
                continue
            present = _within(field.versions, slots.version)
            if present is True:
                self._skip_field(field, slots)
            elif present is not False and present.any():
                index = np.flatnonzero(present)
                some = slots.take(index)
                self._skip_field(field, some)
                slots.put(index, some)
        if self._flexible:
            self._walk_tags(struct, slots)

    def _skip_field(self, field: Field, slots: Slots) -> None:
        nullable = _within(field.nullable, slots.version)
        if field.is_array:
            counts, _ = self._count(field, slots, nullable)
            width = field.fixed_width
            if width is not None:
                slots.pos = slots.pos + counts * width
            else:
                self._walk_elements(field, slots, counts, None, np.zeros_like(counts))
        elif field.struct is not None:
            if nullable is False:
                self._skip_struct(field.struct, slots)
                return
            index = self._present_structs(field, slots)
            some = slots.take(index)
            self._skip_struct(field.struct, some)
            slots.put(index, some)
        elif field.fixed_width is not None:
            self._advance(field.fixed_width, slots, field.path)
        else:
            self._payload(field, slots, nullable)

    # -- tagged fields --------------------------------------------------------------------------

    def _tagged_fields(self, struct: Struct, slots: Slots) -> Columns:
        targets = self._walk_tags(struct, slots, note=True)
        columns: Columns = {}
        for field in struct.fields:
            if field.tag is None:
                continue
            target = targets.get(field.tag)
            if target is None:
                columns |= _absent(field, len(slots))
                continue
            index = np.flatnonzero(target >= 0)
            some = slots.take(index)
            some.pos = target[index]
            found = self._values(field, some)
            columns |= {name: spread(array, index, len(slots)) for name, array in found.items()}
        return columns

    def _walk_tags(self, struct: Struct, slots: Slots, *, note: bool = False) -> dict[int, Ints]:
        """Pass over tagged fields; by known tag, return where each slot has its value, else -1."""
        # Like Kafka's readers this takes a known field as it lies there, whatever the size before
        # it says, and lets the last of several fields with one tag win.
        count = self._varint(slots, struct.name or "tagged fields")
        # To Java's loop over the tagged fields a count below zero, in 32 bits, is none.
        count = np.maximum(count, 0)
        if not count.any():
            return {}
        too_many = count * 2 > slots.end - slots.pos
        if too_many.any():
            self._fail(slots, too_many, Reason.COUNT, "tagged fields", found=count)
            count = np.where(too_many, 0, count)
        known = {
            field.tag: field
            for field in struct.fields
            if field.tag is not None and _within(field.tagged, slots.version) is not False
        }
        targets = {tag: np.full(len(slots), -1, np.int64) for tag in known}
        unknown = np.zeros(len(slots), np.int64)
        slots.pos = slots.pos.copy()
        active = np.flatnonzero(count)
        while active.size:
            cursor = slots.take(active)
            is_unknown = self._walk_tag(known, cursor, active, targets)
            unknown[active[is_unknown]] += 1
            slots.pos[active] = cursor.pos
            count[active] -= 1
            going = count[active] > 0
            if self.failures.any:
                going &= ~self.failures.mask[slots.row[active]]
            active = active[going]
        if note:
            for slot in np.flatnonzero(unknown):
                text = f"{unknown[slot]} unknown tagged fields in {struct.name or 'the message'}"
                self._note(int(slots.row[slot]), text)
        return {tag: target for tag, target in targets.items() if (target >= 0).any()}

    def _walk_tag(
        self, known: dict[int, Field], cursor: Slots, active: Ints, targets: dict[int, Ints]
    ) -> Mask:
        """Skip one tagged field of each slot; return which were unknown."""
        tag = self._varint(cursor, "tag")
        size = self._varint(cursor, "tag size")
        other = np.ones(active.size, np.bool_)
        for number, field in known.items():
            index = np.flatnonzero(tag == number)
            if not index.size:
                continue
            other[index] = False
            targets[number][active[index]] = cursor.pos[index]
            some = cursor.take(index)
            self._skip_field(field, some)
            cursor.put(index, some)
        beyond = other & ((size < 0) | (cursor.pos + size > cursor.end))
        if beyond.any():
            self._fail(cursor, beyond, Reason.TAG_SIZE, "tagged fields", found=size)
        cursor.pos = np.where(other & ~beyond, cursor.pos + size, cursor.pos)
        return other

    # -- primitives -----------------------------------------------------------------------------

    def _number(self, kind: str, slots: Slots, path: str) -> NDArray[np.signedinteger]:
        start = slots.pos
        self._advance(FIXED_WIDTH[kind], slots, path)
        return self._buffer.numbers(kind, start)

    def _advance(self, width: int, slots: Slots, path: str) -> None:
        behind = slots.pos + width
        short = behind > slots.end
        if short.any():
            self._fail(slots, short, Reason.TRUNCATED, path, found=width)
            behind = np.minimum(behind, slots.end)
        slots.pos = behind

    def _length(self, kind: str, slots: Slots, path: str) -> Ints:
        """Read the length of a string, bytes or array; negative is null."""
        if self._flexible:
            # Java subtracts in 32 bits: the least number becomes the largest, which nothing fits.
            return (self._varint(slots, path) - 1).astype(np.int32).astype(np.int64)
        return self._number(kind, slots, path).astype(np.int64)

    def _payload(
        self, field: Field, slots: Slots, nullable: Which
    ) -> tuple[Ints, Ints, Mask | None]:
        """Pass over a text or bytes; return start, length and, if some are null, which are not."""
        length = self._length("int16" if field.kind == "string" else "int32", slots, field.path)
        length, valid = self._refuse_null(field, slots, length, nullable)
        if field.kind == "string" and self._flexible:
            long = length > _MAX_STRING
            if long.any():
                self._fail(slots, long, Reason.STRING_LENGTH, field.path, found=length)
                length = np.where(long, 0, length)
        start = slots.pos
        behind = start + length
        beyond = behind > slots.end
        if beyond.any():
            self._fail(slots, beyond, Reason.LENGTH, field.path, found=length)
            length = np.where(beyond, 0, length)
            behind = np.where(beyond, slots.end, behind)
        slots.pos = behind
        return start, length, valid

    def _refuse_null(
        self, field: Field, slots: Slots, length: Ints, nullable: Which
    ) -> tuple[Ints, Mask | None]:
        null = length < 0
        if not null.any():
            return length, None
        if nullable is not True:
            refused = null if nullable is False else null & ~nullable
            if refused.any():
                self._fail(slots, refused, Reason.NULL, field.path)
        return np.where(null, 0, length), ~null

    def _varint(self, slots: Slots, path: str) -> Ints:
        """Read an UNSIGNED_VARINT: up to five bytes, into 32 bits that Java reads as signed."""
        start = slots.pos
        self._advance(1, slots, path)
        value = self._buffer.unsigned_bytes(start)
        if not (value >= _MORE).any():
            return value
        slots.pos = slots.pos.copy()
        more = np.flatnonzero(value >= _MORE)
        value &= 0x7F
        for shift in _VARINT_SHIFTS:
            cursor = slots.take(more)
            at = cursor.pos
            self._advance(1, cursor, path)
            octet = self._buffer.unsigned_bytes(at)
            slots.pos[more] = cursor.pos
            value[more] |= (octet & 0x7F) << shift
            further = octet >= _MORE
            if shift == _VARINT_SHIFTS[-1] and further.any():
                self._fail(cursor, further, Reason.VARINT, path)
                slots.pos[more] = cursor.pos
            more = more[further]
            if not more.size:
                break
        return value.astype(np.int32).astype(np.int64)

    def _fail(
        self,
        slots: Slots,
        which: Mask,
        reason: Reason,
        path: str,
        *,
        found: Ints | NDArray[np.signedinteger] | int = 0,
    ) -> None:
        """Note a failure of some slots and move them to their end."""
        index = np.flatnonzero(which)
        rows = slots.row[index]
        pos, end = slots.pos[index], slots.end[index]
        numbers = found if isinstance(found, int) else found[index].astype(np.int64)
        self.failures.add(
            rows, reason, path, at=pos - self._start[rows], found=numbers, left=end - pos
        )
        slots.pos = np.where(which, slots.end, slots.pos)

    def _note(self, row: int, text: str) -> None:
        notes = self.notes.setdefault(row, [])
        if text not in notes:
            notes.append(text)


def _within(versions: Versions, version: int | Ints) -> Which:
    """Return which slots' versions lie in the range: one answer if it is the same for all."""
    if isinstance(version, int):
        return version in versions
    inside = (version >= versions.low) & (version <= versions.high)
    if inside.all():
        return True
    return inside if inside.any() else False


@cache
def _least_width(field: Field, *, flexible: bool) -> int:
    """The fewest bytes that one element of an array can take."""
    if field.fixed_width is not None:
        return field.fixed_width
    if field.struct is None:
        return 1 if flexible else 2
    certain = [f for f in field.struct.fields if f.tag is None and f.versions.holds_all]
    least = 1 if flexible else 0
    least += FIXED_WIDTH["int16"] if field.struct.repeats_version else 0
    for inner in certain:
        if flexible and (inner.is_array or inner.kind in {"bytes", "string"}):
            least += 1
        elif inner.is_array or inner.kind == "bytes":
            least += 4
        elif inner.kind == "string":
            least += 2
        else:
            least += inner.fixed_width or 0
    return max(least, 1)


def _absent(field: Field, count: int) -> Columns:
    return {column.name: pa.nulls(count, column.type.arrow()) for column in field_columns(field)}


def _null_where(array: pa.Array, condition: pa.Array) -> pa.Array:
    return pc.if_else(condition, pa.scalar(None, array.type), array)


def _struct_array(
    struct: Struct, columns: Columns, count: int, *, version: bool = False
) -> pa.Array:
    wanted = struct_columns(struct, version=version)
    if not wanted:
        return pa.nulls(count, pa.struct([]))
    return pa.StructArray.from_arrays(
        [columns[column.name] for column in wanted],
        fields=[pa.field(column.name, column.type.arrow()) for column in wanted],
    )


def _list_array(counts: Ints, values: pa.Array, valid: Mask | None) -> pa.Array:
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    mask = None if valid is None else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def join_notes(notes: dict[int, list[str]], rows: Iterable[int]) -> pa.Array:
    """Make the column of remarks for `rows`: null where there is none."""
    return pa.array([notes.get(int(row)) for row in rows], pa.list_(pa.string()))
