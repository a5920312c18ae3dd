"""Why a record could not be decoded: the first thing wrong with each record of a batch."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from decoders.buffers import Ints, Mask


class Reason(IntEnum):
    """What can be wrong with bytes; the text takes what was `found` and the bytes `left`."""

    TRUNCATED = 1
    NULL = 2
    LENGTH = 3
    STRING_LENGTH = 4
    COUNT = 5
    VARINT = 6
    TRAILING = 7
    VERSION = 8
    TAG_SIZE = 9


_TEXTS = {
    Reason.TRUNCATED: "needs {found} bytes, {left} left",
    Reason.NULL: "is null, which this field cannot be",
    Reason.LENGTH: "a length of {found} with {left} bytes left",
    Reason.STRING_LENGTH: "a string of {found} bytes, more than the 32767 that Kafka allows",
    Reason.COUNT: "an array of {found} elements with {left} bytes left",
    Reason.VARINT: "a varint longer than 5 bytes",
    Reason.TRAILING: "{left} bytes left over after the last field",
    Reason.VERSION: "version {found} is not known",
    Reason.TAG_SIZE: "a tagged field of {found} bytes with {left} bytes left",
}


class Failures:
    """The first failure of each of `count` records; ``reason == 0`` is a record without one."""

    def __init__(self, count: int) -> None:
        self.reason = np.zeros(count, np.uint8)
        self.any = False
        self._path = np.zeros(count, np.int32)
        self._at = np.zeros(count, np.int64)
        self._found = np.zeros(count, np.int64)
        self._left = np.zeros(count, np.int64)
        self._paths: list[str] = []

    @property
    def mask(self) -> Mask:
        """Which records failed."""
        failed: Mask = self.reason != 0
        return failed

    def add(
        self, rows: Ints, reason: Reason, path: str, *, at: Ints, found: Ints | int, left: Ints
    ) -> None:
        """Note `reason` for those of `rows`, each there once, that have not failed before.

        The field `path` starts `at` a byte of each record, `left` bytes before its end; `found` is
        the offending number.
        """
        fresh = np.flatnonzero(self.reason[rows] == 0)
        if not fresh.size:
            return
        self.any = True
        rows = rows[fresh]
        self.reason[rows] = reason
        self._path[rows] = len(self._paths)
        self._paths.append(path)
        self._at[rows] = at[fresh]
        self._found[rows] = found if isinstance(found, int) else found[fresh]
        self._left[rows] = left[fresh]

    def text(self, row: int) -> str:
        """Say what is wrong with the record `row`, where: ``members[].memberId at byte 57: …``."""
        reason = Reason(int(self.reason[row]))
        detail = _TEXTS[reason].format(found=self._found[row], left=self._left[row])
        return f"{self._paths[self._path[row]]} at byte {self._at[row]}: {detail}"
