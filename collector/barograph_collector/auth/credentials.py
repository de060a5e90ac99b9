"""Whether a credential is good: whose it is, for which job, and that nobody has shown it before.

The kinds are described in `barograph_agent.deliver.credential`. A stream is named `JOB/anything`, and a credential is made for
one stream, so it says whose job that stream belongs to.
"""

from __future__ import annotations

import hmac
import pwd
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from barograph_agent.deliver import munge
from barograph_agent.deliver.credential import Proof, payload, proof_mac, token_key
from barograph_agent.protocol.tables import IDENTIFIER

WINDOW_SECONDS: Final = 60.0
"""How far the clocks of a node and of this host may be apart, both ways."""
_OUT_OF_TIME: Final = (munge.EXPIRED, munge.REWOUND, munge.REPLAYED)


class CredentialRejected(Exception):
    """A credential that is not good. `reason` is `credential` or `replayed`; the text says what was expected."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Claim:
    """Who a producer is, proven: a user, and the job whose rows it may append."""

    user: str
    job: str


class Verifier:
    """Checks credentials. Not thread-safe: it remembers what it has seen. MUNGE may keep it waiting for seconds."""

    def __init__(self, secret: bytes, munge_socket: str | None, clock: Callable[[], float]) -> None:
        """`secret` is the facility's, for tokens. `munge_socket` is "" for MUNGE's own, None to take no MUNGE.

        `clock` gives Unix seconds. What was shown before now is not known, so no proof older than now is taken.
        """
        self._secret = secret
        self._munge_socket = munge_socket
        self._clock = clock
        self._since = clock()
        self._seen: set[str] = set()
        self._order: deque[tuple[float, str]] = deque()

    def verify(self, stream: str, credential: str) -> Claim:
        """Who may write this stream. Raises Unproven."""
        job = stream.rpartition("/")[0]
        if not job:
            raise CredentialRejected("credential", f"stream is {stream!r}, expected JOB/NAME")
        kind, _, text = credential.partition(":")
        match kind:
            case "token":
                return Claim(self._check_proof(stream, job, text), job)
            case "munge" if self._munge_socket is not None:
                return Claim(self._check_munge(stream, text, self._munge_socket), job)
        kinds = "a job token" if self._munge_socket is None else "MUNGE's or a job token"
        raise CredentialRejected("credential", f"credential is {kind[:20] or 'none'}, expected {kinds}")

    def _check_munge(self, stream: str, text: str, socket: str) -> str:
        try:
            content, uid = munge.decode(text, socket)
        except munge.MungeError as error:
            raise CredentialRejected("replayed" if error.status in _OUT_OF_TIME else "credential", str(error)) from None
        if content != payload(stream):
            raise CredentialRejected(
                "credential", f"MUNGE: the credential is for {content[:140]!r}, expected {payload(stream)!r}"
            )
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        return user

    def _check_proof(self, stream: str, job: str, text: str) -> str:
        try:
            proof = msgspec.json.decode(text, type=Proof)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise CredentialRejected("credential", "job token: no proof, expected one as the agent makes it") from None
        key = token_key(self._secret, proof.job, proof.user, proof.expires)
        if not hmac.compare_digest(proof_mac(key, stream, proof.at, proof.nonce).encode(), proof.mac.encode()):
            raise CredentialRejected(
                "credential", "job token: the proof is for another stream, or not of this facility"
            )
        if not IDENTIFIER.fullmatch(proof.user):
            raise CredentialRejected("credential", f"job token: user is {proof.user[:140]!r}, expected an identifier")
        if not job.startswith(f"{proof.job}."):
            raise CredentialRejected("credential", f"job token: job is {job!r}, expected one of {proof.job!r}")
        now = self._clock()
        if now >= proof.expires:
            raise CredentialRejected("credential", f"job token: expired {now - proof.expires:.0f} s ago")
        self._check_fresh(proof, now)
        return proof.user

    def _check_fresh(self, proof: Proof, now: float) -> None:
        while self._order and self._order[0][0] < now - 2 * WINDOW_SECONDS:
            self._seen.discard(self._order.popleft()[1])
        if not max(now - WINDOW_SECONDS, self._since) <= proof.at <= now + WINDOW_SECONDS:
            raise CredentialRejected(
                "replayed", f"job token: the proof is {now - proof.at:.1f} s old, expected a fresh one"
            )
        if proof.mac in self._seen:
            raise CredentialRejected("replayed", "job token: the proof has been shown before")
        self._seen.add(proof.mac)
        self._order.append((now, proof.mac))
