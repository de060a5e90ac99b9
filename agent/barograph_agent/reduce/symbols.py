"""Function names of addresses in executables and libraries, from their ELF symbol tables.

Names are looked up in the sidecar, once per address: `dladdr` takes 15 us in a large library, too long for the shim. An
address in an unreadable file (stripped, truncated, deleted, not ELF, too large, or on a file system that does not
answer) is written as module+offset.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_agent.reduce.elf import SECTIONS, SEGMENTS, Read, parts
from barograph_agent.system.disk import DISK
from barograph_agent.system.threads import THREADS, Threads, ThreadTask

WAIT_SECONDS: Final = 2.0
"""How long rings are not read because a table is. Reading one takes 30 ms, more from a file system of many nodes."""
MAX_TABLES: Final = 4
LARGEST: Final = 64 * 2**20
"""Limit on the size of a symbol table with its names, in bytes. LAMMPS, 28,000 functions: 3 MB in 30 ms."""
NAME_LIMIT: Final = 200
_LOAD: Final = 1
_SYMTAB: Final = 2
_DYNSYM: Final = 11
_FUNCTIONS: Final = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_SYMBOL: Final = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


_CYTHON: Final = re.compile(rb"__pyx_p[wf]_(\d+\w+)")
_PART: Final = re.compile(rb"\d+([A-Za-z]\w*?)(?=_\d|$)")  # after its length or number


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
    table = TABLES.find(module)
    name, begin = table.find(return_address - 1) if table is not None and return_address > 0 else ("", 0)
    return f"{name}+{return_address - begin:#x}" if name else ""


def read_table(module: str) -> SymbolTable | None:
    """The symbols of a file; None if they cannot be read."""
    path = Path(module)
    if not path.is_absolute():
        return None
    try:
        file = DISK.open_regular(path)
    except (OSError, ValueError):
        return None
    try:
        return _read(lambda size, at: os.pread(file, size, at))
    except (OSError, ValueError, struct.error, IndexError, OverflowError):
        return None
    finally:
        os.close(file)


class SymbolTables:
    """The tables of the modules asked for last, read in threads: the sidecar waits for a file system once only.

    read: finds the symbols of a module, as `read_table` does. seconds: how long to wait.
    """

    def __init__(
        self,
        read: Callable[[str], SymbolTable | None] = read_table,
        seconds: float = WAIT_SECONDS,
        threads: Threads = THREADS,
    ) -> None:
        self._read, self._seconds, self._threads = read, seconds, threads
        self._tables: dict[str, ThreadTask] = {}
        self._late: ThreadTask | None = None
        """The table that was waited for in vain: until it is read, no other is begun."""

    def find(self, module: str) -> SymbolTable | None:
        """The symbols of a module; None if they cannot be read, or not yet."""
        is_late = self._late is not None and not self._late.wait(0.0)
        if module not in self._tables and not is_late:
            while len(self._tables) >= MAX_TABLES:
                del self._tables[next(iter(self._tables))]
            self._tables[module] = ThreadTask(self._threads, "symbols", partial(self._read, module))
        if (task := self._tables.get(module)) is None:
            return None
        self._late = self._late if is_late else None if task.wait(self._seconds) else task
        table: SymbolTable | None = task.result
        return table


TABLES: Final = SymbolTables()


def _read(read: Read) -> SymbolTable | None:
    form, segments = parts(read, SEGMENTS)
    loads = [segment.other for segment in segments if segment.kind == _LOAD]
    if form != "<Q" or not loads:
        return None
    base, (_, heads) = np.uint64(min(loads) & ~0xFFF), parts(read, SECTIONS)
    for head in (head for kind in (_SYMTAB, _DYNSYM) for head in heads if head.kind == kind):
        names = heads[head.other]
        if head.size + names.size > LARGEST:
            return None
        table = _functions(read(head.size, head.offset), read(names.size, names.offset), base)
        if len(table.starts):
            return table
    return None


def _functions(entries: bytes, text: bytes, base: np.uint64) -> SymbolTable:
    symbols = np.frombuffer(entries[: len(entries) // _SYMBOL.itemsize * _SYMBOL.itemsize], _SYMBOL)
    kept = np.isin(symbols["info"] & 15, _FUNCTIONS) & (symbols["section"] != 0) & (symbols["size"] > 0)
    kept &= (symbols["value"] >= base) & (symbols["name"] < len(text))
    symbols = symbols[kept]
    symbols = symbols[np.argsort(symbols["value"], kind="stable")]
    return SymbolTable(symbols["value"] - base, symbols["size"].copy(), symbols["name"].copy(), text)


def demangle(name: bytes) -> str:
    """A name of C++ or Cython as in the source, any other one unchanged. Those of C++ need its library."""
    if found := _CYTHON.match(name):
        return ".".join(part.decode(errors="replace") for part in _PART.findall(found[1]))
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
