"""The authenticator thread: the steps of a hello that may block.

It verifies credentials, for which MUNGE may take seconds, and looks up the marks of streams and the owners of jobs in
the database.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barograph_agent.protocol import wire
from barograph_collector.auth.authorization import Claim, Refused
from barograph_collector.auth.credentials import Verifier
from barograph_collector.ingest.appender import gathered

UNAVAILABLE: Final = Refused("unavailable", "the collector cannot answer this now, expected another hello later")
_BATCH: Final = 1000  # hellos
_log = logging.getLogger(__name__)


class HelloRequest(NamedTuple):
    """A hello with its peer, the public key of the connection, and whether that key requires a credential."""

    peer: bytes
    key: str
    hello: wire.Hello
    needs_credential: bool


@dataclass
class Authenticator:
    """Authenticates hellos in their order; a None in the queue ends it."""

    verifier: Verifier
    marks: Callable[[Collection[str]], Mapping[str, int]]
    """Gives the highest stored number of each known stream; may raise duckdb.Error."""
    owners: Callable[[Collection[str]], Mapping[str, str]]
    """Gives the users of jobs that are in the database; may raise duckdb.Error."""
    hellos: queue.SimpleQueue[HelloRequest | None]
    done: Callable[[HelloRequest, Claim | Refused | None, int], None]
    """Called with each hello, the claim of its credential, or the refusal, or None where no credential is required, and
    the highest stored number of its stream."""

    def run(self) -> None:
        """Work until the end of the queue."""
        while requests := gathered(self.hellos, _BATCH):
            claims = [self._verify(request) for request in requests]
            try:
                # One query for all costs hardly more than one for a single stream or job.
                marks = self.marks({request.hello.stream for request in requests})
                owners = self.owners({claim.job for claim in claims if isinstance(claim, Claim)})
            except Exception as error:
                _log.warning("cannot look up streams and jobs", exc_info=error)
                for request in requests:
                    self.done(request, UNAVAILABLE, 0)
                continue
            for request, claim in zip(requests, claims, strict=True):
                checked = _of_owner(claim, owners) if isinstance(claim, Claim) else claim
                self.done(request, checked, marks.get(request.hello.stream, 0))

    def _verify(self, request: HelloRequest) -> Claim | Refused | None:
        if not request.needs_credential:
            return None
        try:
            return self.verifier.verify(request.hello.stream, request.hello.credential)
        except Refused as refusal:
            return refusal
        except Exception as error:
            # A defect, which one hello must not turn into the end of the service.
            _log.warning("a hello failed", exc_info=error)
            return UNAVAILABLE


def _of_owner(claim: Claim, owners: Mapping[str, str]) -> Claim | Refused:
    """The claim, or its refusal if the job is stored as another user's."""
    try:
        claim.check_owner(owners.get(claim.job, claim.user))
    except Refused as refusal:
        return refusal
    return claim
