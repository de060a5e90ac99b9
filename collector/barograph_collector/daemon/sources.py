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
from barograph_collector.client.backfill import Backfill
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
    with another log. name: of its log, once it has answered. trouble: why it does not answer. backfills: of older rows,
    which are read after new ones, those of one backfill after the other.
    """

    def __init__(self, reader: LogReader, follower: Follower, places: JobPlaces) -> None:
        self.reader = reader
        self.follower = follower
        self.is_ready = self.must_check = False
        self.name = ""
        self.trouble = ""
        self.backfills: list[Backfill] = []
        self._places = places
        self._checked = 1
        """Connections that there had been when the name of the log was read."""
        self._is_only = len(places.collectors) == 1

    @property
    def endpoint(self) -> str:
        """Its address."""
        return self.reader.endpoint

    def identity(self) -> str:
        """The name of its log. Raises LogUnavailable and ReadRefused."""
        connections = self.reader.connections
        name = self.reader.identity()
        # One that is made from here on may be to another log.
        self._checked = max(connections, 1)
        return name

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

    def read(self) -> list[Rows] | None:
        """The next round of new rows; None where there is none yet, or the collector does not answer."""
        # While there are older rows to be read, nothing waits.
        seconds = 0.0 if self.backfills else WAIT_SECONDS
        found = self._read(lambda: self.follower.read(seconds))
        if found == [] and seconds:
            # Its time is over. The daemon waits for the answer to another one, not for the next cycle.
            found = self._read(lambda: self.follower.read(seconds))
        if not found or not self.backfills:
            return found or None
        for backfill in self.backfills:
            found = backfill.others(found)
        self._end_backfills()
        return found

    def read_older(self) -> list[Rows] | None:
        """The next round of older rows, to be read where `read` has found nothing; None like there."""
        if not self.backfills:
            return None
        # One that has all its rows waits for the follower only.
        backfill = next((one for one in self.backfills if not one.is_complete), self.backfills[0])
        found = self._read(lambda: backfill.read(max(self.follower.offsets.values())))
        self._end_backfills()
        return found or None

    def _end_backfills(self) -> None:
        self.backfills = [one for one in self.backfills if not one.is_over(self.follower.offsets)]

    def _read(self, read: Callable[[], list[Rows] | None]) -> list[Rows] | None:
        if self.is_in_doubt():
            return None
        try:
            found = read()
        except (LogUnavailable, ReadRefused) as error:
            self.fail(error)
            return None
        for table, columns in found or []:
            self.note(table, columns)
        return found

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


class Sources:
    """All collectors of a daemon: `poll` returns the rounds of each in the order of its log.

    One that does not answer holds up no other.
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
        self._former: dict[str, tuple[dict[str, int], list[Backfill]]] = {}
        """What `delivered` has of logs in whose place others have come, and the backfills that had not ended."""

    @property
    def delivered(self) -> dict[str, dict[str, int]]:
        """Offsets of the last rows that were returned, by the name of the log and table, of those that are read."""
        read = {source.name: dict(source.follower.delivered) for source in self.all if source.is_ready}
        return {**{name: delivered for name, (delivered, _) in self._former.items()}, **read}

    @property
    def is_behind(self) -> bool:
        """Whether there are older rows to be read at once."""
        return any(source.backfills and not source.trouble for source in self.all if source.is_ready)

    def prepare(self, prepare: Callable[[Sequence[FollowedCollector]], None]) -> None:
        """Prepare the daemon for the collectors that it does not read yet and that answer.

        One that was away is read on if it has the same log, and from the beginning if it has another one. The first
        collector is among those that are prepared for first: it has what was learned. Raises LogUnavailable, and
        CannotStart for two addresses of one log.
        """
        if found := self._answering():
            self._known.clear()
            ready = []
            for source in found:
                if self._continues(source, source.identity()):
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
        if before and before != name:
            _log.warning("the collector at %s has another log than before: it is read anew", source.endpoint)
            if source.is_ready:
                self._former[before] = dict(source.follower.delivered), source.backfills
            source.is_ready, source.backfills = False, []
            source.follower.restart()
        if not source.is_ready and (known := self._former.pop(name, None)) is not None:
            delivered, source.backfills = known
            source.follower.resume(delivered)
            source.is_ready = True
        return source.is_ready

    def _check_names(self) -> None:
        addresses: dict[str, str] = {}
        for source in self.all:
            if source.name and (other := addresses.setdefault(source.name, source.endpoint)) != source.endpoint:
                text = f"{other} and {source.endpoint} are one collector, expected one address of each"
                raise CannotStart(text, Exit.USAGE)

    def _answering(self) -> list[FollowedCollector]:
        """Those to prepare for now."""
        first = self.all[0]
        unread = [source for source in self.all if source.is_in_doubt() or not source.is_ready]
        self._known |= {source.endpoint for source in unread if source.endpoint not in self._known and source.answers()}
        found = [source for source in unread if source.endpoint in self._known]
        is_late = self._clock() - self._began_at >= START_SECONDS
        begins = len(found) == len(unread) or (is_late and first in found)
        return found if first.is_ready or begins else []

    def poll(self) -> Iterator[list[Rows]]:
        """Rounds of new rows of the collectors in turn, up to the present end, and then one of older rows of each.

        Raises LogUnavailable where none of those that were read answers.
        """
        self._check_answers()
        found = True
        while found:
            found = False
            for source in self.all:
                if source.is_ready and (round_ := source.read()) is not None:
                    found = True
                    yield round_
        for source in self.all:
            if source.is_ready and (older := source.read_older()) is not None:
                yield older
        self._check_answers()

    def _check_answers(self) -> None:
        read = [source for source in self.all if source.is_ready]
        if read and all(source.is_in_doubt() for source in read):
            raise LogUnavailable(read[0].trouble or f"the collector at {read[0].endpoint} was started again")

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
