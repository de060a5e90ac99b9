"""How much each connection may say that comes to nothing, before it is not listened to for a while.

ZeroMQ cannot close one connection of many, so what comes beyond that is taken off the socket and not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barograph_collector.auth.rate_limit import TokenBuckets

IN_VAIN_PER_SECOND: Final = 100.0
"""Duplicates and messages not taken, of one connection over time; `limits.BURST_SECONDS` times that at once."""
HELLO: Final = 0.1
"""What a hello counts as: an import opens a stream for each run, thousands of them, and none is in vain."""


class RejectionLimiter:
    """With each connection apart. Belongs to the receive thread.

    Who is not listened to is in the place of one whose messages are lost: he says hello after a while and sends again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that only grow."""
        self._left = TokenBuckets(IN_VAIN_PER_SECOND, clock)

    def spend(self, peer: bytes, amount: float = 1.0) -> None:
        """Take note of a message that came to nothing, or of a hello as the part of one that it counts as."""
        self._left.take(peer, amount)

    def is_over(self, peer: bytes) -> bool:
        """Whether nothing is to be taken from this connection now."""
        return self._left.is_empty(peer)
