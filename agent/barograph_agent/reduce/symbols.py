"""Function names of addresses in executables and libraries, from their ELF symbol tables.

Names are looked up in the sidecar, once per address: `dladdr` takes 15 us in a large library, too long for the shim. An
address in an unreadable file (stripped, truncated, deleted, not ELF, too large) is written as module+offset.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

LARGEST: Final = 64 * 2**20
"""Limit on the size of a symbol table with its names, in bytes. LAMMPS, 28,000 functions: 3 MB in 30 ms."""
NAME_LIMIT: Final = 200
_HEADER: Final = struct.Struct("<4s2B10xHHIQQQI6H")
_LOAD: Final = 1
_SYMTAB: Final = 2
_DYNSYM: Final = 11
_FUNCTIONS: Final = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_SEGMENT: Final = np.dtype(
    [("type", "<u4"), ("flags", "<u4"), ("offset", "<u8"), ("address", "<u8"), ("rest", "<u8", (4,))]
)
_SECTION: Final = np.dtype(
    [("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"), ("size", "<u8"),
     ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8")]
)  # fmt: skip
_SYMBOL: Final = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


class SymbolTable(NamedTuple):
    """Functions of one module by ascending start address, relative to the module's load address."""

    starts: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.uint64]
    names: npt.NDArray[np.uint32]
    text: bytes

    def find(self, offset: int) -> tuple[str, int]:
        """Source name and start of the function that contains this offset; "" and 0 if there is none."""
        at = int(np.searchsorted(self.starts, offset, "right")) - 1
        if at < 0 or offset - int(self.starts[at]) >= int(self.sizes[at]):
            return "", 0
        begin = int(self.names[at])
        name = self.text[begin : self.text.find(b"\0", begin)]
        return demangle(name)[:NAME_LIMIT], int(self.starts[at])


def symbol(module: str, return_address: int) -> str:
    """The function of a return address as "name+0x1a", with the offset in the function; "" if unknown."""
    # The call precedes its return address, which may be in the next function.
    table = _table(module)
    name, begin = table.find(return_address - 1) if table is not None and return_address > 0 else ("", 0)
    return f"{name}+{return_address - begin:#x}" if name else ""


@lru_cache(maxsize=4)
def _table(module: str) -> SymbolTable | None:
    """The symbols of a file; None if they cannot be read."""
    try:
        path = Path(module)
        if not path.is_absolute() or not path.is_file():
            return None
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            return _read(memory)
    except (OSError, ValueError, struct.error, IndexError):
        return None


def _read(memory: mmap.mmap) -> SymbolTable | None:
    magic, bits, order, *_, segments_at, sections_at, _, _, _, segments, _, sections, _ = _HEADER.unpack_from(memory)
    if (magic, bits, order) != (b"\x7fELF", 2, 1):
        return None
    loads = np.frombuffer(memory[segments_at : segments_at + segments * _SEGMENT.itemsize], _SEGMENT)
    loads = loads[loads["type"] == _LOAD]
    if not len(loads):
        return None
    base = np.uint64(int(loads["address"].min()) & ~0xFFF)
    heads = np.frombuffer(memory[sections_at : sections_at + sections * _SECTION.itemsize], _SECTION)
    for kind in (_SYMTAB, _DYNSYM):
        for head in heads[heads["type"] == kind]:
            names = heads[int(head["link"])]
            if int(head["size"]) + int(names["size"]) > LARGEST:
                return None
            table = _functions(_bytes(memory, head), _bytes(memory, names), base)
            if len(table.starts):
                return table
    return None


def _bytes(memory: mmap.mmap, section: np.void) -> bytes:
    begin, size = int(section["offset"]), int(section["size"])
    return memory[begin : begin + size]


def _functions(entries: bytes, text: bytes, base: np.uint64) -> SymbolTable:
    symbols = np.frombuffer(entries[: len(entries) // _SYMBOL.itemsize * _SYMBOL.itemsize], _SYMBOL)
    kept = np.isin(symbols["info"] & 15, _FUNCTIONS) & (symbols["section"] != 0) & (symbols["size"] > 0)
    kept &= (symbols["value"] >= base) & (symbols["name"] < len(text))
    symbols = symbols[kept]
    symbols = symbols[np.argsort(symbols["value"], kind="stable")]
    return SymbolTable(symbols["value"] - base, symbols["size"].copy(), symbols["name"].copy(), text)


def demangle(name: bytes) -> str:
    """A C++ name as in the source, demangled by the C++ library if installed; any other name unchanged."""
    if name.startswith(b"_Z") and (library := _cxx()) is not None:
        status = ctypes.c_int()
        memory = library.__cxa_demangle(name, None, None, ctypes.byref(status))
        if memory:
            try:
                return ctypes.string_at(memory).decode(errors="replace")
            finally:
                ctypes.CDLL(None).free(ctypes.c_void_p(memory))
    return name.decode(errors="replace")


@lru_cache(maxsize=1)
def _cxx() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library
