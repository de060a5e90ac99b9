"""Requests of clients and the threads that answer them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from barograph_agent.protocol import wire
from barograph_agent.system.threads import THREADS, Threads
from barograph_collector.ingest.streams import Reply

R = TypeVar("R")


class Answerer(Generic[R]):
    """A bounded queue of requests of one kind. Each thread that calls `run` answers one at a time."""

    def __init__(
        self,
        answer: Callable[[R], wire.FromCollector],
        done: Callable[[Reply], None],
        limit: int,
        threads: Threads = THREADS,
    ) -> None:
        """`done` is called with each answer. limit: requests that wait."""
        self._answer = answer
        self._done = done
        self._limit = limit
        self._requests = threads.queue()

    def put(self, peer: bytes, request: R) -> bool:
        """Queue a request; False where the queue is full."""
        if self._requests.qsize() >= self._limit:
            return False
        self._requests.put((peer, request))
        return True

    def run(self) -> None:
        """Answer requests until `end`."""
        while (item := self._requests.get()) is not None:
            peer, request = item
            self._done(Reply(peer, self._answer(request)))
        self._requests.put(None)  # for the next thread

    def end(self) -> None:
        """Let `run` return in all threads once the requests before this call are answered."""
        self._requests.put(None)
