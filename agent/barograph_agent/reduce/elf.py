"""Segments and sections of an ELF file of any class and byte order."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

MAX_PARTS: Final = 512
SEGMENTS, SECTIONS = 0, 1
_NOTE, _BUILD_ID, _MAX_NOTES_BYTES = 4, 3, 65536
_FORMS: Final = {("I", 0): "III4xI", ("Q", 0): "I4xQQ8xQ", ("I", 1): "4xI8xIII", ("Q", 1): "4xI16xQQI"}

Read = Callable[[int, int], bytes]
"""Reads so many bytes at an offset. Not a mapping: a file that is cut off meanwhile would be a SIGBUS."""


class ElfPart(NamedTuple):
    """A segment or section. other: address of a segment; index of the section that has the names of a symbol table."""

    kind: int
    offset: int
    size: int
    other: int


def parts(read: Read, table: int) -> tuple[str, list[ElfPart]]:
    """Format of an address as of `struct`, such as "<Q", and segments or sections; empty for a file that is not ELF.

    Raises struct.error, IndexError, OverflowError or OSError if the file is damaged.
    """
    header = read(64, 0)
    if header[:4] != b"\x7fELF" or header[4] not in (1, 2) or header[5] not in (1, 2):
        return "", []
    order, word = "<>"[header[5] - 1], "IQ"[header[4] - 1]
    at = struct.unpack_from(order + 2 * word, header, 28 if word == "I" else 32)[table]
    size, count = struct.unpack_from(order + "HHHH", header, 42 if word == "I" else 54)[2 * table : 2 * table + 2]
    length = size * min(count, MAX_PARTS)
    entries, form = read(length, at), order + _FORMS[word, table]
    rows = [struct.unpack_from(form, entries, start) for start in range(0, length, size or 1)]
    if table == SEGMENTS:
        rows = [(kind, offset, length, address) for kind, offset, address, length in rows]
    return order + word, [ElfPart(*row) for row in rows]


def build_id(read: Read) -> bytes:
    """The id that a linker has put into an ELF executable; empty if it has none."""
    try:
        form, segments = parts(read, SEGMENTS)
        notes = (read(min(one.size, _MAX_NOTES_BYTES), one.offset) for one in segments if one.kind == _NOTE)
        return next(filter(None, (_id_in(note, form[0]) for note in notes)), b"")
    except (struct.error, IndexError, OverflowError, OSError):
        return b""  # damaged


def _id_in(notes: bytes, order: str) -> bytes:
    at = 0
    while at + 12 <= len(notes):
        name_bytes, id_bytes, kind = struct.unpack_from(order + "III", notes, at)
        begin = at + 12 + (name_bytes + 3) // 4 * 4
        if kind == _BUILD_ID and notes[at + 12 : at + 12 + name_bytes] == b"GNU\0" and id_bytes:
            return notes[begin : begin + id_bytes]
        at = begin + (id_bytes + 3) // 4 * 4
    return b""
