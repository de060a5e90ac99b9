"""The gatekeeper thread's work: check credentials, which may mean waiting for MUNGE, so that reception need not."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import NamedTuple

from barograph_agent import wire
from barograph_collector.credentials import Claim, Unproven, Verifier


class Greeting(NamedTuple):
    """A hello, and what came with it: the peer it is from and the public key of its connection."""

    peer: bytes
    key: str
    hello: wire.Hello


class Judged(NamedTuple):
    """A greeting whose credential has been looked at."""

    greeting: Greeting
    claim: Claim | Unproven


class Gatekeeper:
    """Judges greetings one after the other; a None in the queue ends it."""

    def __init__(
        self, verifier: Verifier, greetings: queue.SimpleQueue[Greeting | None], post: Callable[[Judged], None]
    ) -> None:
        self._verifier = verifier
        self._greetings = greetings
        self._post = post

    def run(self) -> None:
        """Work until told to end."""
        while (greeting := self._greetings.get()) is not None:
            self._post(Judged(greeting, self._judge(greeting.hello)))

    def _judge(self, hello: wire.Hello) -> Claim | Unproven:
        try:
            return self._verifier.verify(hello.stream, hello.credential)
        except Unproven as error:
            return error
