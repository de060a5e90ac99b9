"""Verification of credentials: their user and job, and that each is used only once.

The kinds are described in `barograph_agent.deliver.credential`. A credential is made for one stream,
named `JOB/anything`, and proves the user of that job.
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
from barograph_collector.auth.authorization import Claim, Refused

WINDOW_SECONDS: Final = 60.0
"""The largest difference between the clocks of a node and of this host, in either direction."""
_OUT_OF_TIME: Final = (munge.EXPIRED, munge.REWOUND, munge.REPLAYED)


@dataclass
class Verifier:
    """Verifies credentials, and remembers them. Not thread-safe. MUNGE may block for seconds.

    secret: of the facility, for job tokens. munge_socket: "" for MUNGE's default, None to accept no MUNGE. clock: Unix
    seconds. Proofs that are older than this are refused, since they may have been used already.
    """

    secret: bytes
    munge_socket: str | None
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._since = self.clock()
        self._seen: set[str] = set()
        self._order: deque[tuple[float, str]] = deque()

    def verify(self, stream: str, credential: str) -> Claim:
        """The user and the job of a stream. Raises Refused with the reason `credential` or `replayed`."""
        job = stream.rpartition("/")[0]
        if not job:
            raise Refused("credential", f"stream is {stream!r}, expected JOB/NAME")
        kind, _, text = credential.partition(":")
        match kind:
            case "token":
                return Claim(self._check_proof(stream, job, text), job)
            case "munge" if self.munge_socket is not None:
                return Claim(self._check_munge(stream, text, self.munge_socket), job)
        kinds = "a job token" if self.munge_socket is None else "MUNGE's or a job token"
        raise Refused("credential", f"credential is {kind[:20] or 'none'}, expected {kinds}")

    def _check_munge(self, stream: str, text: str, socket: str) -> str:
        try:
            content, uid = munge.decode(text, socket)
        except munge.MungeError as error:
            raise Refused("replayed" if error.status in _OUT_OF_TIME else "credential", str(error)) from None
        if content != payload(stream):
            raise Refused("credential", f"MUNGE: the credential is for {content[:140]!r}, expected {payload(stream)!r}")
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)

    def _check_proof(self, stream: str, job: str, text: str) -> str:
        try:
            proof = msgspec.json.decode(text, type=Proof)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise Refused("credential", "job token: no proof, expected one as the agent makes it") from None
        key = token_key(self.secret, proof.job, proof.user, proof.expires)
        if not hmac.compare_digest(proof_mac(key, stream, proof.at, proof.nonce).encode(), proof.mac.encode()):
            raise Refused("credential", "job token: the proof is for another stream, or not of this facility")
        if not IDENTIFIER.fullmatch(proof.user):
            raise Refused("credential", f"job token: user is {proof.user[:140]!r}, expected an identifier")
        if not job.startswith(f"{proof.job}."):
            raise Refused("credential", f"job token: job is {job!r}, expected one of {proof.job!r}")
        now = self.clock()
        if now >= proof.expires:
            raise Refused("credential", f"job token: expired {now - proof.expires:.0f} s ago")
        self._check_fresh(proof, now)
        return proof.user

    def _check_fresh(self, proof: Proof, now: float) -> None:
        while self._order and self._order[0][0] < now - 2 * WINDOW_SECONDS:
            self._seen.discard(self._order.popleft()[1])
        if not max(now - WINDOW_SECONDS, self._since) <= proof.at <= now + WINDOW_SECONDS:
            raise Refused("replayed", f"job token: the proof is {now - proof.at:.1f} s old, expected a fresh one")
        if proof.mac in self._seen:
            raise Refused("replayed", "job token: the proof has been used before")
        self._seen.add(proof.mac)
        self._order.append((now, proof.mac))
