"""Requests of clients and the threads that answer them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import Generic, TypeVar

from barograph_agent.protocol import wire
from barograph_agent.system.threads import THREADS, Threads
from barograph_collector.ingest.streams import Reply

R = TypeVar("R")
_log = logging.getLogger(__name__)


@dataclass
class Answerer(Generic[R]):
    """A bounded queue of requests of one kind. Each thread that calls `run` answers one at a time.

    done: called with each answer. limit: requests that wait. failed: the answer to a request that raises.
    """

    answer: Callable[[R], wire.FromCollector]
    done: Callable[[Reply], None]
    limit: int
    failed: Callable[[R, str], wire.FromCollector]
    threads: InitVar[Threads] = THREADS

    def __post_init__(self, threads: Threads) -> None:
        self._requests = threads.queue()

    def put(self, peer: bytes, request: R) -> bool:
        """Queue a request; False where the queue is full."""
        if self._requests.qsize() >= self.limit:
            return False
        self._requests.put((peer, request))
        return True

    def run(self) -> None:
        """Answer requests until `end`."""
        while (item := self._requests.get()) is not None:
            peer, request = item
            try:
                reply = self.answer(request)
            except Exception as error:
                # A defect, which one request must not turn into the end of the service.
                _log.warning("a request failed", exc_info=error)
                reply = self.failed(request, f"the collector failed: {type(error).__name__}")
            self.done(Reply(peer, reply))
        self._requests.put(None)  # for the next thread

    def end(self) -> None:
        """Let `run` return in all threads once the requests before this call are answered."""
        self._requests.put(None)
