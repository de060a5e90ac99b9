"""The build id that a linker has put into an executable."""

from __future__ import annotations

import struct
from typing import Final

from barograph_agent.reduce.elf import SEGMENTS, Read, parts

_NOTE: Final = 4
_BUILD_ID: Final = 3
_MAX_BYTES: Final = 65536


def build_id(read: Read) -> bytes:
    """The id of an ELF executable; empty if it has none."""
    try:
        form, segments = parts(read, SEGMENTS)
        notes = (read(min(one.size, _MAX_BYTES), one.offset) for one in segments if one.kind == _NOTE)
        return next(filter(None, (_in_notes(note, form[0]) for note in notes)), b"")
    except (struct.error, IndexError, OverflowError, OSError):
        return b""  # damaged


def _in_notes(notes: bytes, order: str) -> bytes:
    at = 0
    while at + 12 <= len(notes):
        name_bytes, id_bytes, kind = struct.unpack_from(order + "III", notes, at)
        name = notes[at + 12 : at + 12 + name_bytes]
        begin = at + 12 + (name_bytes + 3) // 4 * 4
        if kind == _BUILD_ID and name == b"GNU\0" and id_bytes:
            return notes[begin : begin + id_bytes]
        at = begin + (id_bytes + 3) // 4 * 4
    return b""
