"""Requests of clients and the threads that answer them."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barograph_agent.protocol import wire
from barograph_collector.ingest.streams import Reply
from barograph_collector.query.reader import failed

_log = logging.getLogger(__name__)


@dataclass
class Answerer:
    """A bounded queue of requests of one kind. Each thread that calls `run` answers one at a time.

    done: called with each answer. limit: requests that wait.
    """

    answer: Callable[[Any], wire.FromCollector]
    done: Callable[[Reply], None]
    limit: int
    requests: queue.SimpleQueue[Any]

    def put(self, peer: bytes, request: wire.Read | wire.Sql) -> bool:
        """Queue a request; False where the queue is full."""
        if self.requests.qsize() >= self.limit:
            return False
        self.requests.put((peer, request))
        return True

    def run(self) -> None:
        """Answer requests until `end`."""
        while (item := self.requests.get()) is not None:
            peer, request = item
            try:
                reply = self.answer(request)
            except Exception as error:
                # A defect, which one request must not turn into the end of the service.
                _log.warning("a request failed", exc_info=error)
                reply = failed(request, f"the collector failed: {type(error).__name__}")
            self.done(Reply(peer, reply))
        self.requests.put(None)  # for the next thread

    def end(self) -> None:
        """Let `run` return in all threads once the requests before this call are answered."""
        self.requests.put(None)
