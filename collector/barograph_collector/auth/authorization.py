"""Authorization by the role of a client's key, and for an agent by the job of its credential.

Without a keyring every client may do everything, and the collector listens on loopback addresses only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.auth.keys import Keyring
from barograph_collector.auth.rate_limit import TokenBuckets
from barograph_collector.storage import messages
from barograph_collector.storage.days.retention import DAY_SECONDS
from barograph_collector.storage.layout import DAILY
from barograph_collector.storage.rows import Entry

CONCLUSIONS: Final = frozenset(
    {"assignments", "bands", "paces", "models", "predictions", "outcomes", "scores", "suspects"}
)
EDITS: Final = frozenset({"work_edits"})
OBSERVATIONS: Final = frozenset(TABLES) - CONCLUSIONS - EDITS
WHOLE_JOBS: Final = frozenset({"jobs", "works", "blocks", "runs"})
"""Tables that `barograph import` and `barograph canary` append: ended jobs, and what was asked of them."""
KEPT: Final = OBSERVATIONS - frozenset(DAILY)
"""Tables of agents of which nothing is ever dropped."""
MAX_KEPT_BYTES: Final = 2**30
"""What the agents of one user may append to them in a day."""
JOBS_KEPT: Final = 200_000
"""Limit of the owners of jobs, and of the grants of streams, in memory; the least recently used are evicted."""
SECONDS_PER_EVENT: Final = 60.0
"""For each producer, on average."""
MAX_EVENTS: Final = 40
"""The same at once."""
MAX_UNRECORDED: Final = 100_000
"""Producers whose rows are counted until they get a row again; beyond it the oldest number is lost."""
K = TypeVar("K")
V = TypeVar("V")


class Refused(Exception):
    """A refused message. `reason` is one of `counters.REASONS`; the text says what was expected."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Claim:
    """The verified identity of a producer: a user, and the job whose rows it may append."""

    user: str
    job: str

    def check_owner(self, owner: str) -> None:
        """Raises Refused if the job is another user's."""
        if owner != self.user:
            raise Refused("credential", f"job {self.job!r} is {owner}'s, expected one of {self.user}'s")


@dataclass(frozen=True, slots=True)
class Grant:
    """The tables that one stream may append to with one key. `claim`: whose rows; None for rows of any job."""

    key: str
    tables: frozenset[str]
    claim: Claim | None

    @property
    def user(self) -> str:
        """Whose rows; empty for any."""
        return self.claim.user if self.claim is not None else ""

    def producer(self, stream: str) -> str:
        """Who pays for rows of a stream: the job with all its streams, or a stream without a job."""
        return self.claim.job if self.claim is not None else stream

    def check_table(self, table: str) -> None:
        """Raises Refused for a table that this producer may not append to."""
        if table not in self.tables and table in TABLES:
            raise Refused("forbidden", f"table is {table!r}, expected one of {', '.join(sorted(self.tables))}")

    def check(self, entry: Entry) -> Mapping[str, wire.Wire]:
        """The columns, in `jobs` with the user of the credential. Raises Refused for rows of another job."""
        if self.claim is None:
            return entry.columns
        owner = "source" if entry.table == "events" else "job"
        jobs = entry.columns.get(owner, self.claim.job)
        foreign = next((job for job in (jobs if isinstance(jobs, list) else [jobs]) if job != self.claim.job), None)
        if foreign is not None:
            raise Refused("forbidden", f"column {owner!r} is {str(foreign)[:140]!r}, expected {self.claim.job!r}")
        return {**entry.columns, "user": self.user} if entry.table == "jobs" else entry.columns


EVERYTHING: Final = Grant("", frozenset(TABLES), None)


class Authorization:
    """Decides what clients may do. Belongs to the receive thread. All checks raise Refused."""

    def __init__(self, keyring: Keyring | None, rows_per_second: float, clock: Callable[[], float]) -> None:
        """clock: monotonic, in seconds."""
        self._keyring = keyring
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._jobs: OrderedDict[bytes, str] = OrderedDict()
        self._grants: OrderedDict[str, Grant] = OrderedDict()
        self._buckets = TokenBuckets(rows_per_second, clock)
        self._kept = TokenBuckets(MAX_KEPT_BYTES / DAY_SECONDS, clock, DAY_SECONDS)

    def unknown(self, jobs: Iterable[str]) -> list[str]:
        """Those of the jobs whose owners are not in memory. From any thread."""
        return [job for job in jobs if job not in self._owners]

    def needs_credential(self, key: str) -> bool:
        """Whether a hello with this key must have a credential."""
        return self._keyring is not None and self._role(key) == "agent"

    def open(self, peer: bytes, key: str, stream: str, claim: Claim | None) -> None:
        """Grant a stream to a client."""
        if self._keyring is None:
            return
        if claim is not None:
            claim.check_owner(self._owners.get(claim.job, claim.user))
            _put(self._owners, claim.job, claim.user)
            _put(self._jobs, peer, claim.job)
            _put(self._grants, stream, Grant(key, OBSERVATIONS, claim))
            return
        client = self._keyring.get(key)
        if client is not None and client.role == "importer":
            _put(self._grants, stream, Grant(key, WHOLE_JOBS, None))
            return
        if client is None or client.role not in ("writer", "editor"):
            role = client.role if client else "none"
            raise Refused("role", f"role is {role}, expected agent, importer, writer or editor to append")
        if not stream.startswith(f"{client.name}/"):
            raise Refused("role", f"stream is {stream!r}, expected {client.name}/... with this key")
        tables = EDITS if client.role == "editor" else CONCLUSIONS | {"events"}
        _put(self._grants, stream, Grant(key, tables, None))

    def grant(self, key: str, stream: str) -> Grant:
        """What a client may append to a stream. Raises Refused."""
        if self._keyring is None:
            return EVERYTHING
        self._role(key)
        grant = self._grants.get(stream)
        if grant is None or grant.key != key:
            text = f"stream {stream[:140]!r} was not opened with this key, expected hello first"
            raise Refused("unknown-stream", text)
        return grant

    def check_read(self, peer: bytes, key: str, request: wire.Read | wire.Sql) -> None:
        """Check a request of a client. An agent may read the scores and the nodes of its own job."""
        if self._keyring is None or self._role(key) != "agent":
            return
        own = self._jobs.get(peer)
        asked = (request.table, request.job, request.tables) if isinstance(request, wire.Read) else None
        if own is None or asked not in (("scores", own, None), ("nodes", own, None)):
            text = f"an agent may read scores and nodes of its own job, {own or 'none yet'}, and nothing else"
            raise Refused("role", text)

    def set_rate(self, rows_per_second: float) -> None:
        """Change the rate limit of each producer."""
        self._buckets.set_rate(rows_per_second)

    def check_rate(self, grant: Grant, stream: str, rows: int) -> None:
        """Check the rate limit of a producer."""
        if not self._buckets.consume(grant.producer(stream), min(max(rows, 1), wire.MAX_ROWS)):
            raise Refused("rate", "more rows than this producer's limit, expected a pause")

    def check_kept(self, grant: Grant, table: str, size: int) -> None:
        """Check what a user's agents append to tables that are never dropped. size: bytes."""
        if grant.user and table in KEPT and not self._kept.consume(grant.user, size):
            text = f"table {table!r} is kept for ever, expected at most {MAX_KEPT_BYTES} bytes of a user a day"
            raise Refused("forbidden", text)

    def _role(self, key: str) -> str:
        client = None if self._keyring is None else self._keyring.get(key)
        if client is None:
            raise Refused("key", "this key is unknown, or was revoked")
        return client.role


class EventLimit:
    """Limit of the rows of `events`, which are never dropped, that refused and dropped messages get."""

    def __init__(self, admission: Authorization, clock: Callable[[], float]) -> None:
        """clock: monotonic, in seconds."""
        self._admission = admission
        self._buckets = TokenBuckets(1 / SECONDS_PER_EVENT, clock, MAX_EVENTS * SECONDS_PER_EVENT)
        self._unrecorded: OrderedDict[tuple[str, str], int] = OrderedDict()

    def limited(self, grant: Grant, entry: Entry) -> Entry:
        """The record of a message: without a row where its producer has had too many, whose next one counts it too."""
        producer, columns = grant.producer(entry.stream), dict[str, Any](entry.columns)
        key, rows = (producer, columns["kind"]), columns["rows"]
        rows = min(self._unrecorded.pop(key, 0) + rows, 2**62)
        try:
            if self._buckets.consume(producer, 1):
                self._admission.check_kept(grant, entry.table, len(entry.frame))
                return messages.with_rows(entry, rows)
        except Refused:
            pass
        self._unrecorded[key] = rows
        if len(self._unrecorded) > MAX_UNRECORDED:
            self._unrecorded.popitem(last=False)
        return messages.with_rows(entry, None)


def _put(kept: OrderedDict[K, V], key: K, value: V) -> None:
    """Make a key the most recently used one, and evict the least recently used one beyond JOBS_KEPT."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > JOBS_KEPT:
        kept.popitem(last=False)
