"""How long data is in flight from this node to others, which the kernel counts for each TCP connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from barograph_agent.system.sockets import CONNECTION, load

MIN_BYTES: Final = 2**17
"""Bytes to a peer in a span from which on it counts: what a sidecar sends to a collector is less."""
CHANGED: Final = 2.0
"""Times as long in flight as usual: what is less differs between spans of programs that change nothing."""


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
