"""The collectors that a daemon follows, as one log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import zmq
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector as Exporter

from barograph_agent.protocol.tables import TABLES
from barograph_agent.protocol.wire import Column
from barograph_collector.auth.authorization import CONCLUSIONS, EDITS
from barograph_collector.client.follow import Follower, Rows
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.daemon.families import gauge
from barograph_collector.daemon.places import JobPlaces, PlacedWriter
from barograph_collector.daemon.service import CannotStart, Exit

WAIT_SECONDS: Final = 5.0
"""How long a read waits for rows. A daemon that has nothing to do completes a cycle as often."""
START_SECONDS: Final = 5.0
"""How long the first collector waits at the start for the others. Those that answer later are added then."""
OF_NO_JOB: Final = frozenset(name for name in CONCLUSIONS | EDITS if "job" not in TABLES[name].columns)
"""Tables that daemons and people write to the first collector alone. The last row counts, so it is read from there."""
_BEYOND: Final = 2**62
"""No log has an offset beyond it."""
_PROBE_SECONDS: Final = 0.05
_log = logging.getLogger(__name__)


class FollowedCollector:
    """One collector that is followed.

    is_ready: whether the daemon is prepared for its rows. must_check: whether it was away since, and may have come back
    with another log. name: of its log, once it has answered. trouble: why it does not answer.
    """

    def __init__(self, reader: LogReader, follower: Follower, places: JobPlaces) -> None:
        self.reader = reader
        self.follower = follower
        self.is_ready = self.must_check = False
        self.name = ""
        self.trouble = ""
        self._places = places
        self._checked = 1
        """Connections that there had been when the name of the log was read."""
        self._is_only = len(places.collectors) == 1

    @property
    def endpoint(self) -> str:
        """Its address."""
        return self.reader.endpoint

    def note(self, table: str, columns: Mapping[str, Column]) -> None:
        """Note whose rows it has, where these are not read by `Sources.poll`."""
        self._places.note(self.endpoint, table, columns)

    def answers(self) -> bool:
        """Ask whether the collector answers, without waiting: to be called until it has."""
        try:
            # Of a table that the daemon may read, rows that there are not.
            return self.reader.follow({next(iter(self.follower.offsets)): _BEYOND}, 1, _PROBE_SECONDS) is not None
        except (LogUnavailable, ReadRefused) as error:
            self.fail(error)
            return False

    def is_in_doubt(self) -> bool:
        """Whether it may have another log than before, which is to be checked before it is read on."""
        self.must_check = self.must_check or self.reader.connections > self._checked
        return self.must_check

    def read(self) -> list[Rows]:
        """The next round; empty where there is none yet, or the collector does not answer."""
        if self.is_in_doubt():
            return []
        try:
            found = self.follower.read(WAIT_SECONDS)
        except (LogUnavailable, ReadRefused) as error:
            self.fail(error)
            return []
        for table, columns in found or []:
            self.note(table, columns)
        return found or []

    def fail(self, error: Exception) -> None:
        """Note that the collector does not answer, with a line in the log for the first time."""
        if not self.trouble:
            others = "" if self._is_only else ", the other collectors are followed meanwhile"
            _log.warning("%s; retrying%s", error, others)
        self.trouble, self.must_check = str(error), True

    def succeed(self) -> None:
        """Note that it answers."""
        if self.trouble:
            _log.info("the collector at %s is back", self.endpoint)
        self.trouble, self.must_check = "", False
        self._checked = max(self.reader.connections, 1)


class Sources:
    """All collectors of a daemon: `poll` returns the rounds of each in the order of its log.

    One that does not answer holds up no other. Where there is only one, its follower's errors are raised.
    """

    def __init__(
        self, readers: Sequence[LogReader], tables: Sequence[str], places: JobPlaces, clock: Callable[[], float]
    ) -> None:
        """readers: in the order of the list of collectors. clock: monotonic, in seconds."""
        self.all = [
            FollowedCollector(
                reader,
                Follower(
                    reader,
                    [table for table in tables if number == 0 or table not in OF_NO_JOB],
                    wait_seconds=WAIT_SECONDS,
                ),
                places,
            )
            for number, reader in enumerate(readers)
        ]
        self._clock = clock
        self._began_at = clock()
        self._known: set[str] = set()
        """Those that have answered and are not read yet."""
        self._former: dict[str, dict[str, int]] = {}
        """What `delivered` has of logs in whose place others have come."""

    @property
    def delivered(self) -> dict[str, dict[str, int]]:
        """Offsets of the last rows that were returned, by the name of the log and table, of those that are read."""
        read = {source.name: dict(source.follower.delivered) for source in self.all if source.is_ready}
        return {**self._former, **read}

    def prepare(self, prepare: Callable[[Sequence[FollowedCollector]], None]) -> None:
        """Prepare the daemon for the collectors that it does not read yet and that answer.

        One that was away is read on if it has the same log, and from the beginning if it has another one. The first
        collector is among those that are prepared for first: it has what was learned. Raises LogUnavailable, and
        CannotStart for two addresses of one log.
        """
        if found := self._answering() if len(self.all) > 1 else self._unread():
            self._known.clear()
            ready = []
            for source in found:
                if self._continues(source, source.reader.identity()):
                    source.succeed()
                else:
                    ready.append(source)
            self._check_names()
            try:
                if ready:
                    prepare(ready)
            except ReadRefused as error:  # whose key may not read, for one
                for source in ready:
                    source.fail(error)
                return
            for source in ready:
                source.is_ready = True
                source.succeed()

    def _continues(self, source: FollowedCollector, name: str) -> bool:
        """Whether a log that has this name is read on where it was read by this process."""
        before, source.name = source.name, name
        if source.is_ready and before != name:
            _log.warning("the collector at %s has another log than before: it is read anew", source.endpoint)
            self._former[before] = dict(source.follower.delivered)
            source.is_ready = False
            source.follower.restart()
        if not source.is_ready and (known := self._former.pop(name, None)) is not None:
            source.follower.resume(known)
            source.is_ready = True
        return source.is_ready

    def _check_names(self) -> None:
        addresses: dict[str, str] = {}
        for source in self.all:
            if source.name and (other := addresses.setdefault(source.name, source.endpoint)) != source.endpoint:
                text = f"{other} and {source.endpoint} are one collector, expected one address of each"
                raise CannotStart(text, Exit.USAGE)

    def _unread(self) -> list[FollowedCollector]:
        return [source for source in self.all if source.is_in_doubt() or not source.is_ready]

    def _answering(self) -> list[FollowedCollector]:
        """Those to prepare for now."""
        first, unread = self.all[0], self._unread()
        self._known |= {source.endpoint for source in unread if source.endpoint not in self._known and source.answers()}
        found = [source for source in unread if source.endpoint in self._known]
        is_late = self._clock() - self._began_at >= START_SECONDS
        begins = len(found) == len(unread) or (is_late and first in found)
        return found if first.is_ready or begins else []

    def poll(self) -> Iterator[list[Rows]]:
        """Rounds of new rows, of the collectors in turn."""
        if len(self.all) == 1:
            yield from self._poll(self.all[0])
            return
        found = True
        while found:
            found = False
            for source in self.all:
                if source.is_ready and (round_ := source.read()):
                    found = True
                    yield round_

    def _poll(self, source: FollowedCollector) -> Iterator[list[Rows]]:
        if source.is_in_doubt():
            raise LogUnavailable(source.trouble or f"the collector at {source.endpoint} was started again")
        try:
            for found in source.follower.poll():
                source.trouble = ""
                yield found
        except (LogUnavailable, ReadRefused) as error:
            source.trouble, source.must_check = str(error), True
            raise
        source.trouble = ""

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for answers."""
        for source in self.all:
            # Of one that has answered, and waits for the first collector, nothing is received meanwhile.
            if source.endpoint not in self._known:
                source.reader.register(poller)

    def close(self) -> None:
        """Close the connections."""
        for source in self.all:
            source.reader.close()


class SourcesExporter(Exporter):
    """Which collectors answer a daemon, and what it has for each of them."""

    def __init__(self, daemon: str, sources: Sources, writer: PlacedWriter) -> None:
        self._daemon = daemon
        self._sources = sources
        self._writer = writer

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics."""
        labels = ("daemon", "collector")
        yield gauge(
            "barograph_followed_collector_up",
            "1 while the collector answers reads of this daemon, else 0.",
            [
                ((self._daemon, source.endpoint), float(source.is_ready and not source.trouble))
                for source in self._sources.all
            ],
            *labels,
        )
        yield gauge(
            "barograph_followed_collector_unacknowledged_rows",
            "Rows of this daemon in memory that the collector has not acknowledged.",
            [((self._daemon, one), float(writer.rows)) for one, writer in self._writer.writers.items()],
            *labels,
        )
