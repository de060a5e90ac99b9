"""How long data is in flight from this node to others, which the kernel counts for each TCP connection."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from barograph_agent.system.sockets import SocketInfo

MEGABYTE: Final = 1e6
MIN_BYTES: Final = 2**17
"""Bytes to a peer in a span from which on it counts: what a sidecar sends to a collector is less."""
CHANGED: Final = 2.0
"""Times as long in flight as usual: what is less differs between spans of programs that change nothing."""


class Transfers:
    """Compares what the kernel counts with what it had counted before. connections: those of the job's user."""

    def __init__(self, connections: Callable[[], list[SocketInfo]]) -> None:
        self._connections = connections
        self._before: dict[bytes, SocketInfo] = {}

    def take(self) -> float:
        """Seconds in flight per megabyte since the last call, to the peer with the least; NaN if too little was sent.

        A slow link makes all of a node's data slow, and of each other node what goes to that one: the least tells them
        apart, provided that they send to others as well.
        """
        before, self._before = self._before, {one.cookie: one for one in self._connections()}
        seconds: defaultdict[bytes, float] = defaultdict(float)
        sent: defaultdict[bytes, int] = defaultdict(int)
        for cookie, one in self._before.items():
            was = before.get(cookie)
            if was is not None:
                seconds[one.peer] += max(one.flight_seconds - was.flight_seconds, 0.0)
                sent[one.peer] += max(one.acked_bytes - was.acked_bytes, 0)
        return min((MEGABYTE * seconds[one] / sent[one] for one in sent if sent[one] >= MIN_BYTES), default=math.nan)
