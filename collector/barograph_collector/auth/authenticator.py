"""The gatekeeper thread's work: what a hello has to wait for, so that reception need not.

Credentials are checked, which may mean waiting for MUNGE, and the database is asked how far streams have come.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import duckdb

from barograph_agent.protocol import wire
from barograph_collector.auth.credentials import Claim, CredentialRejected, Verifier
from barograph_collector.storage.database import first_line

_AT_ONCE: Final = 1000
_log = logging.getLogger(__name__)


class HelloRequest(NamedTuple):
    """A hello, and what came with it: the peer it is from, the public key of its connection, and what that asks for."""

    peer: bytes
    key: str
    hello: wire.Hello
    needs_proof: bool


class HelloRejected(NamedTuple):
    """Why a hello is refused: `reason` is one of `counters.REASONS`."""

    reason: str
    text: str


_NO_ANSWER: Final = HelloRejected("unavailable", "the database does not answer, say it again later")


class AuthResult(NamedTuple):
    """A greeting that has been looked at: who it is from, None where nobody asks, and how far the database has it."""

    greeting: HelloRequest
    claim: Claim | HelloRejected | None
    stored: int


class Authenticator:
    """Judges greetings in their order; a None in the queue ends it."""

    def __init__(
        self,
        verifier: Verifier,
        marks: Callable[[Collection[str]], Mapping[str, int]],
        greetings: queue.SimpleQueue[HelloRequest | None],
        post: Callable[[AuthResult], None],
    ) -> None:
        """`marks` says how far the database has those of some streams that it knows; it may raise duckdb.Error."""
        self._verifier = verifier
        self._marks = marks
        self._greetings = greetings
        self._post = post
        self._last = False

    def run(self) -> None:
        """Work until told to end."""
        while not self._last:
            greetings = self._gather()
            try:
                # Asked for all at once: it costs hardly more than for one of them.
                marks = self._marks({greeting.hello.stream for greeting in greetings})
            except duckdb.Error as error:
                _log.warning("cannot look up how far streams have come: %s", first_line(error))
                for greeting in greetings:
                    self._post(AuthResult(greeting, _NO_ANSWER, 0))
                continue
            for greeting in greetings:
                self._post(AuthResult(greeting, self._judge(greeting), marks.get(greeting.hello.stream, 0)))

    def _gather(self) -> list[HelloRequest]:
        """Everything there is, at least one, but for the end."""
        found: list[HelloRequest] = []
        while len(found) < _AT_ONCE and (not found or not self._greetings.empty()):
            greeting = self._greetings.get()
            if greeting is None:
                self._last = True
                break
            found.append(greeting)
        return found

    def _judge(self, greeting: HelloRequest) -> Claim | HelloRejected | None:
        if not greeting.needs_proof:
            return None
        try:
            return self._verifier.verify(greeting.hello.stream, greeting.hello.credential)
        except CredentialRejected as error:
            return HelloRejected(error.reason, str(error))
