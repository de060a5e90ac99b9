"""Who may do what. The key a client comes with gives it a role; an agent's credential gives it a job.

Without a keyring everybody may do everything: then only this host can connect.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.auth.credentials import Claim
from barograph_collector.auth.keys import Keyring
from barograph_collector.auth.rate_limit import TokenBuckets

CONCLUSIONS: Final = frozenset({"bands", "paces", "models", "predictions", "outcomes", "scores"})
OBSERVATIONS: Final = frozenset(TABLES) - CONCLUSIONS
WHOLE_JOBS: Final = frozenset({"jobs", "blocks", "runs"})
"""What `barograph import` and `barograph canary` append, of jobs that have ended, in streams named after these jobs."""
JOBS_KEPT: Final = 200_000
"""Jobs whose owner is remembered, and streams whose grant is; the longest unused go first."""


class Refused(Exception):
    """Something that this client may not do. `reason` is one of `counters.REASONS`; the text says what it may."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Grant:
    """What may be appended to one stream, and by whose key. `claim` is None where rows of any job may be."""

    key: str
    tables: frozenset[str]
    claim: Claim | None

    @property
    def producer(self) -> str | None:
        """Who shares one limit: all streams of a job; None where each stream is a producer."""
        return self.claim.job if self.claim else None

    def check(self, message: wire.Append) -> bool:
        """Raises Refused for rows that are not this producer's; says whether the message had to be put right.

        The user in `jobs` becomes the one of the credential, whatever the agent took it for.
        """
        if message.table not in self.tables and message.table in TABLES:
            raise Refused("forbidden", f"table is {message.table!r}, expected one of {', '.join(sorted(self.tables))}")
        if self.claim is None:
            return False
        owner = "source" if message.table == "events" else "job"
        named = message.columns.get(owner, self.claim.job)
        strange = next((job for job in _values(named) if job != self.claim.job), None)
        if strange is not None:
            raise Refused("forbidden", f"column {owner!r} is {str(strange)[:140]!r}, expected {self.claim.job!r}")
        if message.table != "jobs":
            return False
        message.columns["user"] = self.claim.user
        return True


EVERYTHING: Final = Grant("", frozenset(TABLES), None)


class Authorization:
    """Says what each client of the receive thread may do. Raises Refused where it may not."""

    def __init__(
        self,
        keyring: Keyring | None,
        *,
        owners: Mapping[str, str],
        rows_per_second: float,
        clock: Callable[[], float],
    ) -> None:
        """`owners` maps jobs to users, as the log has them; `clock` gives seconds that only grow."""
        self._keyring = keyring
        self._owners = OrderedDict(owners)
        self._jobs: OrderedDict[bytes, str] = OrderedDict()
        self._grants: OrderedDict[str, Grant] = OrderedDict()
        self._buckets = TokenBuckets(rows_per_second, clock)

    def needs_proof(self, key: str) -> bool:
        """Whether a hello with this key must come with a credential."""
        return self._keyring is not None and self._role(key) == "agent"

    def open(self, peer: bytes, key: str, stream: str, claim: Claim | None) -> None:
        """Let a client have a stream."""
        if self._keyring is None:
            return
        if claim is not None:
            if (owner := self._owners.setdefault(claim.job, claim.user)) != claim.user:
                raise Refused("credential", f"job {claim.job!r} is {owner}'s, expected one of {claim.user}'s")
            _touch(self._owners, claim.job)
            self._jobs[peer] = claim.job
            _touch(self._jobs, peer)
            self._give(stream, Grant(key, OBSERVATIONS, claim))
            return
        client = self._keyring.get(key)
        if client is not None and client.role == "importer":
            self._give(stream, Grant(key, WHOLE_JOBS, None))
            return
        if client is None or client.role != "writer":
            role = client.role if client else "none"
            raise Refused("role", f"role is {role}, expected agent, importer or writer to append")
        if not stream.startswith(f"{client.name}/"):
            raise Refused("role", f"stream is {stream!r}, expected {client.name}/... with this key")
        self._give(stream, Grant(key, CONCLUSIONS | {"events"}, None))

    def grant(self, key: str, stream: str) -> Grant:
        """What this client may append to this stream."""
        if self._keyring is None:
            return EVERYTHING
        self._role(key)
        grant = self._grants.get(stream)
        if grant is None or grant.key != key:
            raise Refused(
                "unknown-stream", f"stream {stream[:140]!r} was not opened with this key, expected hello first"
            )
        return grant

    def check_read(self, peer: bytes, key: str, request: wire.Read | wire.Sql) -> None:
        """Whether this client may read that: an agent sees the scores of its own job."""
        if self._keyring is None or self._role(key) != "agent":
            return
        own = self._jobs.get(peer)
        if not isinstance(request, wire.Read) or request.table != "scores" or own is None or request.job != own:
            raise Refused("role", f"an agent may read the scores of its own job, {own or 'none yet'}, and nothing else")

    def limit(self, rows_per_second: float) -> None:
        """Let each producer append so many rows from now on."""
        self._buckets.fill_at(rows_per_second)

    def check_rate(self, grant: Grant, stream: str, rows: int) -> None:
        """Whether a producer goes no faster than it may."""
        if not self._buckets.take(grant.producer or stream, min(max(rows, 1), wire.MAX_ROWS)):
            raise Refused("rate", "more rows than this producer's limit, expected a pause")

    def _give(self, stream: str, grant: Grant) -> None:
        self._grants[stream] = grant
        _touch(self._grants, stream)

    def _role(self, key: str) -> str:
        client = None if self._keyring is None else self._keyring.get(key)
        if client is None:
            raise Refused("key", "this key is not let in, or no longer")
        return client.role


def _values(column: Any) -> list[Any]:
    return column if isinstance(column, list) else [column]


def _touch(held: OrderedDict[Any, Any], name: Any) -> None:
    held.move_to_end(name)
    if len(held) > JOBS_KEPT:
        held.popitem(last=False)
