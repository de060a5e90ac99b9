"""Delivery of finished runs to the collector: each exactly once, whichever import sends it and how often.

Every run is a stream of its own, named after the run and nothing else: message 1 is its row of `jobs`, message 2 its
row of `runs`. The collector's mark of the stream says which of the two it has, so only what is missing is sent.

A `Link` has one stream, a connection and timers of its own. Thousands of streams of two messages share one connection
and one timer here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

import msgspec
import zmq

from barograph.imports.record import RunRecord
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.protocol import wire

UNDER_WAY: Final = 4096
"""Streams open at once: enough to fill the collector's commits, whose number limits the speed of an import."""
SILENCE_SECONDS: Final = 3.0
"""After this long without a message, every stream under way is opened again and sent from its mark."""
PATIENCE_SECONDS: Final = 30.0
MESSAGES: Final = ("jobs", "runs")


class CollectorUnreachable(Exception):
    """The collector did not answer, or refused to. The text names its address, the timeout and its last refusal."""


class _UnderWay:
    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.known: bool | None = None
        self.refusal = ""


class Delivery:
    """One connection. added, known: runs that the collector has now, and had before. refused: lines and reasons."""

    def __init__(
        self, endpoint: str, key: ClientKey | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.added = 0
        self.known = 0
        self.refused: list[tuple[int, str]] = []
        self._endpoint = endpoint
        self._clock = clock
        self._under_way: dict[str, _UnderWay] = {}
        self._heard_at = clock()
        """When a welcome or an acknowledgement came last."""
        self._refusal = ""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        # UNDER_WAY bounds what is unanswered.
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        if key is not None:
            key.apply(self._socket)
        self._socket.setsockopt(zmq.IPV6, "[" in endpoint)
        self._socket.connect(endpoint)

    def send(self, records: Iterator[RunRecord]) -> Iterator[RunRecord]:
        """Deliver every record; yields each once the collector has stored or refused it. Raises Away."""
        self._heard_at = asked = self._clock()
        exhausted = False
        while True:
            while not exhausted and len(self._under_way) < UNDER_WAY:
                record = next(records, None)
                if record is None:
                    exhausted = True
                else:
                    self._begin(record)
            if not self._under_way:
                return
            if self._socket.poll(int(1000 * SILENCE_SECONDS)):
                asked = self._clock()
                yield from self._receive()
            elif self._clock() - self._heard_at > PATIENCE_SECONDS:
                text = f"no answer from the collector at {self._endpoint} within {PATIENCE_SECONDS:g} s"
                raise CollectorUnreachable(f"{text}, which says: {self._refusal}" if self._refusal else text)
            elif self._clock() - asked >= SILENCE_SECONDS:
                asked = self._clock()
                for stream in self._under_way:
                    self._send(wire.Hello(stream))

    def close(self) -> None:
        """Close the connection. A later import finds out from the marks what was stored of what is under way."""
        self._socket.close()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _begin(self, record: RunRecord) -> None:
        stream = f"{record.job.key}/import"
        self._under_way[stream] = _UnderWay(record)
        self._send(wire.Hello(stream))

    def _receive(self) -> Iterator[RunRecord]:
        while True:
            try:
                message = wire.decode_from_collector(self._socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise CollectorUnreachable(f"{self._endpoint} does not speak the log protocol: {error}") from None
            if (record := self._process(message)) is not None:
                yield record

    def _process(self, message: wire.FromCollector) -> RunRecord | None:
        """Continue the stream of a message; returns its record if that is done."""
        if isinstance(message, wire.Rows | wire.Result) or (one := self._under_way.get(message.stream)) is None:
            return None
        match message:
            case wire.Refuse(reason="version"):
                raise CollectorUnreachable(
                    f"the collector at {self._endpoint} speaks another protocol: {message.detail}"
                )
            case wire.Refuse() if message.reason in wire.CONSUMED:
                one.refusal = message.detail
            case wire.Refuse():  # such as a collector that was restarted: opened again after a silence
                self._refusal = message.detail
            case wire.Welcome():
                one.known = message.acked >= len(MESSAGES) if one.known is None else one.known
                return self._advance(message.stream, one, message.acked, resend=True)
            case wire.Ack():
                return self._advance(message.stream, one, message.seq, resend=False)
        return None

    def _advance(self, stream: str, one: _UnderWay, acked: int, *, resend: bool) -> RunRecord | None:
        self._heard_at, self._refusal = self._clock(), ""
        if acked < len(MESSAGES):
            for seq in range(acked + 1, len(MESSAGES) + 1) if resend else ():
                table = MESSAGES[seq - 1]
                self._send(wire.append(stream, seq, table, 1, one.record.rows[table]))
            return None
        del self._under_way[stream]
        if one.refusal:
            self.refused.append((one.record.line, one.refusal))
        elif one.known:
            self.known += 1
        else:
            self.added += 1
        return one.record

    def _send(self, message: wire.FromClient) -> None:
        # There is no connection after the collector has refused the key, which ends in Away.
        with contextlib.suppress(zmq.Again):
            self._socket.send(wire.encode(message), zmq.NOBLOCK)
