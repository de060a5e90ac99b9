"""The segments of an executable, and the build id that a linker has put into one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

_NOTE: Final = 4
_BUILD_ID: Final = 3
_MOST_SEGMENTS: Final = 128
_MOST_BYTES: Final = 65536


def build_id(read: Callable[[int, int], bytes]) -> bytes:
    """The id of an ELF executable; empty if it has none. read: bytes of the file, by their number and offset."""
    try:
        return _find(read)
    except (struct.error, IndexError, OverflowError, OSError):
        return b""  # no ELF file, or a damaged one


def segments(read: Callable[[int, int], bytes]) -> Iterator[tuple[int, int, int]]:
    """Type, offset and bytes of each segment of an ELF executable; none of another file.

    Raises struct.error, IndexError, OverflowError or OSError if it is damaged.
    """
    header = read(64, 0)
    if header[:4] != b"\x7fELF" or header[4:5] not in b"\1\2" or header[5:6] not in b"\1\2":
        return
    order = "<" if header[5] == 1 else ">"
    if header[4] == 2:
        (at,), (size, count) = struct.unpack_from(order + "Q", header, 32), struct.unpack_from(order + "HH", header, 54)
        places = order + "4xQ16xQ"
    else:
        (at,), (size, count) = struct.unpack_from(order + "I", header, 28), struct.unpack_from(order + "HH", header, 42)
        places = order + "I8xI"
    table = read(size * min(count, _MOST_SEGMENTS), at)
    for start in range(0, size * min(count, _MOST_SEGMENTS), size or 1):
        (kind,) = struct.unpack_from(order + "I", table, start)
        yield (kind, *struct.unpack_from(places, table, start + 4))


def _find(read: Callable[[int, int], bytes]) -> bytes:
    for kind, offset, length in segments(read):
        if kind == _NOTE and (found := _in_notes(read(min(length, _MOST_BYTES), offset), _order(read))):
            return found
    return b""


def _order(read: Callable[[int, int], bytes]) -> str:
    return "<" if read(6, 0)[5] == 1 else ">"


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
