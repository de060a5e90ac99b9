"""Delivery of finished runs to the collector, each exactly once, however often it is imported.

Each run is a stream, named after the run alone: message 1 is its row of `jobs`, message 2 its row of `runs`. Only
messages beyond the collector's mark of the stream are sent. A row of `works` precedes them, in a stream of its own: so
marks of runs that were imported without one keep their meaning, and nothing is added to a run that is stored.

Of several shards, a run goes to the one that has a part of it: all are asked, since the list may have been another one
when the run was imported before. A run that none has goes to the shard of its user.

Unlike streams of a `Link`, which has a connection and timers of its own, thousands of streams of two messages share one
connection and one timer.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec
import zmq

from barograph.imports.record import RunRecord
from barograph.imports.works import WorkDigests
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.deliver.shards import shard_of
from barograph_agent.protocol import wire
from barograph_agent.settings import places
from barograph_agent.system.clock import CLOCK

PENDING_LIMIT: Final = 4096
"""Streams open at once: enough to fill the collector's commits, whose rate limits an import."""
RETRY_SECONDS: Final = 3.0
"""After this time without a message, each stream under way is opened again and sent from its mark."""
TIMEOUT_SECONDS: Final = 30.0
MESSAGES: Final = ("jobs", "runs")
WORK: Final = "/work"
"""The end of the name of a stream with the row of `works` of a run."""


class CollectorUnreachable(Exception):
    """The collector did not answer, or refused. The text names its address, the timeout and the last refusal."""


@dataclass
class _Pending:
    record: RunRecord
    known: bool | None = None
    """Whether the run was stored before; None before the welcome."""
    refusal: str = ""
    work: dict[str, Any] | None = None
    """The row of `works`, while it is not stored."""
    is_new: bool = False
    """Whether nothing of the run is stored, so that its row of `works` comes first."""
    marks: dict[str, int] = field(default_factory=dict)
    """The last message that each collector has, of those that have answered."""
    place: str = ""
    """The run's collector; empty until all have answered."""


class Delivery:
    """One connection to each collector. added, known: number of runs stored now, and before.

    refused: lines and reasons. work_refusal: the last refusal of a row of `works`; the run is stored without it.
    """

    def __init__(
        self,
        collectors: str,
        key: ClientKey | None = None,
        clock: Callable[[], float] = CLOCK.monotonic,
        works: WorkDigests | None = None,
    ) -> None:
        """collectors: addresses with commas between. works: makes the rows of `works`; without it there are none."""
        self.added = 0
        self.known = 0
        self.refused: list[tuple[int, str]] = []
        self.work_refusal = ""
        self._works = works or WorkDigests(is_enabled=False)
        self._clock = clock
        self._pending: dict[str, _Pending] = {}
        self._received_at = clock()
        """Time of the last welcome or acknowledgement."""
        self._refusal = ""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets = {endpoint: self._connect(endpoint, key) for endpoint in places.endpoints(collectors)}

    def send(self, records: Iterator[RunRecord]) -> Iterator[RunRecord]:
        """Deliver records; yields each once the collector has stored or refused it. Raises CollectorUnreachable."""
        self._received_at = active_at = self._clock()
        poller = zmq.Poller()
        for socket in self._sockets.values():
            poller.register(socket, zmq.POLLIN)
        while True:
            for record in itertools.islice(records, PENDING_LIMIT - len(self._pending)):
                stream = f"{record.job.key}/import"
                self._pending[stream] = _Pending(record, work=self._works.row(record))
                for endpoint in self._sockets:
                    self._send(endpoint, wire.Hello(stream))
            if not self._pending:
                return
            if ready := dict(poller.poll(int(1000 * RETRY_SECONDS))):
                active_at = self._clock()
                for endpoint, socket in self._sockets.items():
                    if socket in ready:
                        yield from self._receive(endpoint, socket)
            elif self._clock() - self._received_at > TIMEOUT_SECONDS:
                text = f"no answer from the collector at {self._awaited()} within {TIMEOUT_SECONDS:g} s"
                raise CollectorUnreachable(f"{text}, last refusal: {self._refusal}" if self._refusal else text)
            elif self._clock() - active_at >= RETRY_SECONDS:
                active_at = self._clock()
                for stream, run in self._pending.items():
                    for endpoint in self._asked(run):
                        name = stream + WORK if run.is_new and run.work is not None else stream
                        self._send(endpoint, wire.Hello(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # A later import continues at the marks of the streams under way.
        self._context.destroy(linger=0)

    def _connect(self, endpoint: str, key: ClientKey | None) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        socket.set_hwm(0)  # PENDING_LIMIT bounds the unanswered messages
        if key is not None:
            key.apply(socket)
        socket.setsockopt(zmq.IPV6, "[" in endpoint)
        socket.connect(endpoint)
        return socket

    def _asked(self, run: _Pending) -> list[str]:
        """The collectors that have not answered about a run."""
        return [run.place] if run.place else [one for one in self._sockets if one not in run.marks]

    def _awaited(self) -> str:
        """The collectors that have not answered about some run."""
        found = {endpoint for run in self._pending.values() for endpoint in self._asked(run)}
        return " and ".join(endpoint for endpoint in self._sockets if endpoint in found)

    def _receive(self, endpoint: str, socket: zmq.Socket[bytes]) -> Iterator[RunRecord]:
        while True:
            try:
                message = wire.decode_from_collector(socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise CollectorUnreachable(f"{endpoint} does not speak the log protocol: {error}") from None
            if (record := self._process(endpoint, message)) is not None:
                yield record

    def _process(self, endpoint: str, message: wire.FromCollector) -> RunRecord | None:
        """Continue the stream of a message; returns its record once that is complete."""
        if isinstance(message, wire.Rows | wire.Result):
            return None
        stream = message.stream.removesuffix(WORK)
        # Late answers are of a collector that has nothing of the run, or after its end.
        if (run := self._pending.get(stream)) is None or run.place not in ("", endpoint):
            return None
        of_work = stream != message.stream
        match message:
            case wire.Refuse(reason="version"):
                text = f"the collector at {endpoint} speaks another protocol: {message.detail}"
                raise CollectorUnreachable(text)
            case wire.Refuse() if message.reason in wire.CONSUMED:
                if of_work:
                    self.work_refusal = message.detail
                else:
                    run.refusal = message.detail
            case wire.Refuse():  # as by a restarted collector: opened again after RETRY_SECONDS
                self._refusal = message.detail
            case wire.Welcome() | wire.Ack() if of_work:
                return self._advance_work(stream, run, message)
            case wire.Welcome():
                return self._open(stream, run, endpoint, message.acked)
            case wire.Ack():
                return self._advance(message.stream, run, message.seq, resend=False)
        return None

    def _open(self, stream: str, run: _Pending, endpoint: str, acked: int) -> RunRecord | None:
        """Continue a run at the mark of its collector, which is known once all have answered."""
        self._received_at, self._refusal = self._clock(), ""
        run.marks[endpoint] = acked
        if len(run.marks) < len(self._sockets):
            return None
        if not run.place:
            most = max(run.marks, key=lambda one: run.marks[one])
            run.place = (
                most if run.marks[most] else shard_of(run.record.job.cluster, run.record.job.user, list(self._sockets))
            )
        mark = run.marks[run.place]
        if run.work is not None and not mark:
            run.is_new = True
            self._send(run.place, wire.Hello(stream + WORK))
            return None
        run.known = mark >= len(MESSAGES) if run.known is None else run.known
        return self._advance(stream, run, mark, resend=True)

    def _advance_work(self, stream: str, run: _Pending, message: wire.Welcome | wire.Ack) -> RunRecord | None:
        """Send the row of `works`, or, once that is stored, the run, whose stream is open."""
        self._received_at, self._refusal = self._clock(), ""
        if run.work is None:
            return None  # answered before
        if isinstance(message, wire.Welcome) and not message.acked:
            self._send(run.place, wire.append(stream + WORK, 1, "works", 1, run.work))
            return None
        run.work, run.known = None, False
        return self._advance(stream, run, 0, resend=True)

    def _advance(self, stream: str, run: _Pending, acked: int, *, resend: bool) -> RunRecord | None:
        self._received_at, self._refusal = self._clock(), ""
        if acked < len(MESSAGES):
            for seq, table in enumerate(MESSAGES, 1):
                if resend and seq > acked:
                    self._send(run.place, wire.append(stream, seq, table, 1, run.record.rows[table]))
            return None
        del self._pending[stream]
        if run.refusal:
            self.refused.append((run.record.line, run.refusal))
        elif run.known:
            self.known += 1
        else:
            self.added += 1
        return run.record

    def _send(self, endpoint: str, message: wire.FromClient) -> None:
        # Without a connection, as after a refused key, `send` gives up after TIMEOUT_SECONDS.
        with contextlib.suppress(zmq.Again):
            self._sockets[endpoint].send(wire.encode(message), zmq.NOBLOCK)
