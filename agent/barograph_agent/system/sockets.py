"""The TCP connections of this node's network namespace, as the kernel shows them to anybody: `connections.h`."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

LIBRARY: Final = Path(__file__).resolve().parents[1] / "libbarograph-reader.so"
CONNECTION: Final = np.dtype([("cookie", "u8"), ("peer", "V16"), ("flight_seconds", "f8"), ("acked_bytes", "u8")])
MAX_CONNECTIONS: Final = 2000
NONE: Final = np.empty(0, CONNECTION)


@cache
def load() -> ctypes.CDLL:
    """The functions of `connections.h`. Raises OSError where they are not installed."""
    found, size, place = ctypes.CDLL(str(LIBRARY)), ctypes.c_uint64, ctypes.c_void_p
    found.connections_of.argtypes, found.connections_of.restype = [ctypes.c_uint32, ctypes.c_int, place], size
    found.connections_flight.argtypes = [place, size, place, size, size]
    found.connections_flight.restype = ctypes.c_double
    return found


def established(user: int, *, keeps_loopback: bool = False) -> np.ndarray[Any, Any]:
    """Those of a user to other machines, of CONNECTION. Empty where the kernel does not tell."""
    found = np.empty(MAX_CONNECTIONS, CONNECTION)
    return found[: load().connections_of(user, keeps_loopback, found.ctypes.data)].copy()
