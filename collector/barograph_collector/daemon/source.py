"""The log that a daemon follows, and whether its collector answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import zmq
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector as Exporter

from barograph_collector.client.backfill import Backfill
from barograph_collector.client.follow import Follower, LogWriter, Rows
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.daemon.families import gauge
from barograph_collector.daemon.service import CannotStart, Exit

WAIT_SECONDS: Final = 5.0
"""How long a read waits for rows. A daemon that has nothing to do completes a cycle as often."""
_BEYOND: Final = 2**62
"""No log has an offset beyond it."""
_PROBE_SECONDS: Final = 0.05
_log = logging.getLogger(__name__)


class LogSource:
    """A log, read in rounds.

    is_ready: whether the daemon is prepared for its rows. name: of the log, once the collector has answered. trouble:
    why the collector does not answer. backfills: of older rows, which are read after new ones, one after the other.
    """

    def __init__(self, reader: LogReader, tables: Sequence[str]) -> None:
        """tables: in the order of the rows of a round."""
        self.reader = reader
        self.follower = Follower(reader, tables)
        self.is_ready = False
        self.name = ""
        self.trouble = ""
        self.backfills: list[Backfill] = []
        self._must_check = False
        """Whether the collector was away, and may have come back with another log."""
        self._connections = 1
        """Connections that there had been when the name of the log was read."""

    @property
    def endpoint(self) -> str:
        """The address of the collector."""
        return self.reader.endpoint

    @property
    def delivered(self) -> dict[str, int]:
        """Offsets of the last rows that were returned, by table; empty while the source is not ready."""
        return dict(self.follower.delivered) if self.is_ready else {}

    @property
    def is_behind(self) -> bool:
        """Whether there are older rows to be read at once."""
        return self.is_ready and bool(self.backfills) and not self.trouble

    def prepare(self, prepare: Callable[[LogSource], None]) -> None:
        """Prepare the daemon for the rows of the log, once the collector answers; nothing where it is prepared.

        Raises LogUnavailable, and CannotStart where the collector has another log than before: what the daemon has
        is of that one, and the next process begins with this one.
        """
        if (self.is_ready and not self._is_in_doubt()) or not self._probe():
            return
        connections = self.reader.connections
        name = self.reader.identity()
        # One that is made from here on may be to another log.
        self._connections = max(connections, 1)
        if self.name and self.name != name:
            text = f"the collector at {self.endpoint} has another log than before: the daemon begins anew with it"
            raise CannotStart(text, Exit.FAILED)
        self.name = name
        if not self.is_ready:
            try:
                prepare(self)
            except ReadRefused as error:  # whose key may not read, for one
                self._fail(error)
                return
            self.is_ready = True
        if self.trouble:
            _log.info("the collector at %s is back", self.endpoint)
        self.trouble, self._must_check = "", False

    def poll(self) -> Iterator[list[Rows]]:
        """Rounds of new rows up to the present end, and then one of older rows. Raises LogUnavailable."""
        self._check_answers()
        while round_ := self._read_new():
            yield round_
        if self.backfills and (older := self._read_older()):
            yield older
        self._check_answers()

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for answers."""
        self.reader.register(poller)

    def close(self) -> None:
        """Close the connection."""
        self.reader.close()

    def _probe(self) -> bool:
        """Ask whether the collector answers, without waiting: to be called until it has."""
        try:
            # Of a table that the daemon may read, rows that there are not.
            return self.reader.follow({next(iter(self.follower.offsets)): _BEYOND}, 1, _PROBE_SECONDS) is not None
        except (LogUnavailable, ReadRefused) as error:
            self._fail(error)
            return False

    def _is_in_doubt(self) -> bool:
        """Whether the collector may have another log than before, which is to be checked before it is read on."""
        self._must_check = self._must_check or self.reader.connections > self._connections
        return self._must_check

    def _check_answers(self) -> None:
        if self._is_in_doubt():
            raise LogUnavailable(self.trouble or f"the collector at {self.endpoint} was started again")

    def _read_new(self) -> list[Rows] | None:
        """The next round of new rows; nothing where there is none yet, or the collector does not answer."""
        # While there are older rows to be read, nothing waits.
        seconds = 0.0 if self.backfills else WAIT_SECONDS
        found = self._read(lambda: self.follower.read(seconds))
        if found == [] and seconds:
            # Its time is over. The daemon waits for the answer to another one, not for the next cycle.
            found = self._read(lambda: self.follower.read(seconds))
        if found and self.backfills:
            for backfill in self.backfills:
                found = backfill.others(found)
            self._end_backfills()
        return found

    def _read_older(self) -> list[Rows] | None:
        # One that has all its rows waits for the follower only.
        backfill = next((one for one in self.backfills if not one.is_complete), self.backfills[0])
        found = self._read(lambda: backfill.read(max(self.follower.offsets.values())))
        self._end_backfills()
        return found

    def _end_backfills(self) -> None:
        self.backfills = [one for one in self.backfills if not one.is_over(self.follower.offsets)]

    def _read(self, read: Callable[[], list[Rows] | None]) -> list[Rows] | None:
        if self._is_in_doubt():
            return None
        try:
            return read()
        except (LogUnavailable, ReadRefused) as error:
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        """Note that the collector does not answer, with a line in the log for the first time."""
        if not self.trouble:
            _log.warning("%s; retrying", error)
        self.trouble, self._must_check = str(error), True


class SourceExporter(Exporter):
    """Whether the collector answers a daemon, and what the daemon has for it."""

    def __init__(self, daemon: str, source: LogSource, writer: LogWriter) -> None:
        self._labels = daemon, source.endpoint
        self._source = source
        self._writer = writer

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics."""
        labels = ("daemon", "collector")
        text = "1 while the collector answers reads of this daemon, else 0."
        is_up = float(self._source.is_ready and not self._source.trouble)
        yield gauge("barograph_followed_collector_up", text, [(self._labels, is_up)], *labels)
        text = "Rows of this daemon in memory that the collector has not acknowledged."
        rows = [(self._labels, float(self._writer.rows))]
        yield gauge("barograph_followed_collector_unacknowledged_rows", text, rows, *labels)
