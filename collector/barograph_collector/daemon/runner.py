"""A daemon that lives on the log: reads what is new, thinks, writes back what came of it: modeler and alerts."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from wsgiref.types import WSGIApplication

import numpy as np
from prometheus_client.registry import Collector as Exporter

from barograph_agent.deliver import keys
from barograph_agent.protocol.tables import TABLES, Kind
from barograph_agent.protocol.wire import Column
from barograph_agent.settings.sources import Configuration
from barograph_collector.client.follow import Follower, LogWriter
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.daemon.logs import log_to_stderr
from barograph_collector.daemon.notify import Notifier
from barograph_collector.daemon.reload import Reload
from barograph_collector.daemon.service import CannotListen, Exit, Shutdown, daemon_registry, serve_metrics
from barograph_collector.settings import FollowerSettings

CYCLE_SECONDS: Final = 0.5
READ_SECONDS: Final = 2.0
STOP_SECONDS: Final = 3.0
"""For what has been said and is not acknowledged, without which no snapshot is kept: a sync of a busy disk."""
ROWS: Final = 4096
"""Rows of one message at most."""
TEXT_ROWS: Final = 64
"""Rows at most where there is text, of which one can take 64 kB."""
F = TypeVar("F", bound=FollowerSettings)
_log = logging.getLogger(__name__)


class Output(NamedTuple):
    """Rows for one table."""

    table: str
    rows: int
    columns: Mapping[str, Any]


def merged(outputs: Iterable[Output]) -> Iterator[Output]:
    """The same rows in fewer outputs, those of one table together in their order: a message carries many as one."""
    waiting: dict[str, list[Output]] = {}
    for output in outputs:
        same = waiting.setdefault(output.table, [])
        most = TEXT_ROWS if Kind.TEXT in TABLES[output.table].columns.values() else ROWS
        if same and sum(one.rows for one in same) + output.rows > most:
            yield _joined(waiting.pop(output.table))
            same = waiting[output.table] = []
        same.append(output)
    for same in waiting.values():
        yield _joined(same)


def _joined(outputs: list[Output]) -> Output:
    if len(outputs) == 1:
        return outputs[0]
    table = TABLES[outputs[0].table]
    columns: dict[str, Any] = {}
    for name, kind in table.columns.items():
        parts = [(output.columns[name], output.rows) for output in outputs]
        columns[name] = (
            [text for value, rows in parts for text in ([value] * rows if isinstance(value, str) else value)]
            if kind.is_text
            else np.concatenate([np.broadcast_to(np.asarray(value, kind.dtype), rows) for value, rows in parts])
        )
    return Output(table.name, sum(output.rows for output in outputs), columns)


class Processor(Protocol):
    """What a station thinks with: no I/O, no clock of its own. Times are Unix seconds."""

    def take(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Take a page of one table."""
        ...

    def step(self, now: float) -> list[Output]:
        """Everything up to some offset of the log has been taken; what is to be written?"""
        ...


class RowSink(Protocol):
    """The appending verb, as Writer has it."""

    def put(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        """Append rows, soon."""
        ...

    def pump(self) -> None:
        """Send and receive what can be without waiting."""
        ...


class Runner:
    """Moves rows between the log and a mind."""

    def __init__(
        self,
        mind: Processor,
        follower: Follower,
        writer: RowSink,
        clock: Callable[[], float] = time.time,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """clock: Unix seconds. beat: called each time some pages have been taken."""
        self._beat = beat
        self._mind = mind
        self._follower = follower
        self._writer = writer
        self._clock = clock
        self._away = False

    def step(self) -> None:
        """One cycle. While the collector is away nothing is taken, and nothing is lost."""
        try:
            for round_ in self._follower.poll():
                for table, columns in round_:
                    self._mind.take(table, columns, self._clock())
                self._think()
                # One cycle may read months of log.
                self._beat()
        except (LogUnavailable, ReadRefused) as error:
            if not self._away:
                _log.warning("%s; going on when it is back", error)
            self._away = True
            return
        if self._away:
            _log.info("the collector is back")
        self._away = False
        self._think()

    def _think(self) -> None:
        for output in merged(self._mind.step(self._clock())):
            self._writer.put(*output)
        self._writer.pump()


def serve(
    mind: Processor,
    tables: list[str],
    exporter: Exporter,
    configuration: Configuration[F],
    *,
    apply: Callable[[], None] = lambda: None,
    prepare: Callable[[Follower, LogReader], None] | None = None,
    keep: Callable[[Mapping[str, int], bool], None] | None = None,
    pages: Mapping[str, WSGIApplication] | None = None,
    each_cycle: Callable[[], None] = lambda: None,
) -> int:
    """Run a station until SIGTERM or SIGINT; returns an `Exit`. `tables` in the order a mind wants them.

    apply: called when the configuration has been read again.
    prepare: called once before the first cycle, for a mind that need not read all of the past; it may be called again
    where the collector was away.
    keep: called between cycles with the offsets that the mind has taken and True at the end, for a mind that keeps a
    snapshot; only while everything it has said is in the log, for a snapshot will not say it again.
    pages: what is served beside /metrics, by path.
    """
    name, settings = configuration.section.table, configuration.settings
    log_to_stderr(name, settings.log_format)
    notifier = Notifier(os.environ)
    try:
        key = keys.load(settings.key) if settings.key else None
    except keys.KeyFileError as error:
        print(f"barograph {name}: {error}", file=sys.stderr)
        return Exit.DATA
    registry, heartbeat = daemon_registry(name)
    registry.register(exporter)
    reload = Reload(configuration, apply, notifier, registry)

    def beat() -> None:
        heartbeat()
        notifier.alive()

    with Shutdown() as shutdown, LogReader(settings.collector, READ_SECONDS, key) as reader:
        try:
            host, port = settings.metrics
            exposition = serve_metrics(registry, host, port, pages)
        except CannotListen as error:
            print(f"barograph {name}: {error}", file=sys.stderr)
            return Exit.UNAVAILABLE
        _log.info("following the log at %s, metrics on %s", settings.collector, exposition.url)
        notifier.ready()
        follower = Follower(reader, tables)
        # Each life of a daemon is a stream of its own: what the last one had not delivered is computed again.
        writer = LogWriter(settings.collector, f"{key.name if key else name}/{time.time_ns()}", key)
        station = Runner(mind, follower, writer, beat=beat)
        prepared = prepare is None
        while not shutdown.wait(CYCLE_SECONDS):
            beat()
            each_cycle()
            if shutdown.hung_up():
                reload.run()
            try:
                if not prepared and prepare is not None:
                    prepare(follower, reader)
                    prepared = True
            except LogUnavailable:
                continue
            station.step()
            if keep is not None and writer.idle:
                keep(follower.delivered, False)
        notifier.stopping()
        delivered = writer.close(STOP_SECONDS)
        if keep is not None and prepared and delivered:
            keep(follower.delivered, True)
        exposition.stop()
    return Exit.OK
