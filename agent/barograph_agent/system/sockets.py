"""The TCP connections of this node's network namespace, as the kernel shows them to anybody, and how long data is in
flight on them: `connections.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

LIBRARY: Final = Path(__file__).resolve().parents[1] / "libbarograph-reader.so"
CONNECTION: Final = np.dtype([("cookie", "u8"), ("peer", "V16"), ("flight_seconds", "f8"), ("acked_bytes", "u8")])
MAX_CONNECTIONS: Final = 2000
MIN_BYTES: Final = 2**17
"""Bytes to a peer in a span from which on it counts: what a sidecar sends to a collector is less."""
CHANGED_TRANSFER: Final = 2.0
"""Times as long in flight as usual: what is less differs between spans of programs that change nothing."""
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


class Transfers:
    """Compares what the kernel counts with what it had counted before. connections: those of the job's user."""

    def __init__(self, connections: Callable[[], np.ndarray[Any, Any]]) -> None:
        self._connections, self._before = connections, np.empty(0, CONNECTION)

    def take(self) -> float:
        """Seconds in flight per megabyte since the last call, to the peer with the least; NaN if too little was sent.

        A slow link makes all of a node's data slow, and of each other node what goes to that one: the least tells them
        apart, provided that they send to others as well.
        """
        before, self._before = self._before, self._connections()
        arrays = (number for one in (before, self._before) for number in (one.ctypes.data, len(one)))
        return float(load().connections_flight(*arrays, MIN_BYTES))
