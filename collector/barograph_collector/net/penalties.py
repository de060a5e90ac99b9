"""A rate limit for rejected messages: a connection that exceeds it is ignored until its budget has recovered.

ZeroMQ cannot close one connection of a socket, so messages beyond the limit are received and dropped unread. Dropped
messages look like message loss to a client, which says hello again after a timeout and resends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barograph_collector.auth.rate_limit import TokenBuckets

REJECTED_PER_SECOND: Final = 100.0
"""Rejected and duplicate messages of one connection, on average; `limits.BURST_SECONDS` times that at once."""
HELLO_COST: Final = 0.1
"""What a hello costs, in rejected messages: an import opens thousands of streams, one for each run."""


class RejectionLimiter:
    """A budget for each connection. Belongs to the receive thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic, in seconds."""
        self._budgets = TokenBuckets(REJECTED_PER_SECOND, clock)

    def charge(self, peer: bytes, cost: float = 1.0) -> None:
        """Reduce the budget of a connection; `cost` counts rejected messages."""
        self._budgets.consume(peer, cost)

    def is_exceeded(self, peer: bytes) -> bool:
        """Whether messages of this connection are to be dropped now."""
        return self._budgets.is_empty(peer)
