"""The main loop of a daemon that follows the log: read new rows, process them, append the results."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from wsgiref.types import WSGIApplication

import numpy as np
import zmq
from prometheus_client.registry import Collector as Exporter

from barograph_agent.protocol.tables import TABLES, Kind
from barograph_agent.protocol.wire import Column
from barograph_agent.settings.sources import Configuration
from barograph_agent.system.clock import CLOCK
from barograph_collector.client.follow import Follower, LogWriter, Rows
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.daemon.notify import Notifier
from barograph_collector.daemon.quarantine import Quarantine, QuarantineExporter
from barograph_collector.daemon.reload import Reload
from barograph_collector.daemon.service import Exit, Frozen, Shutdown, daemon_registry, serve_metrics
from barograph_collector.daemon.settings import FollowerSettings, load_key
from barograph_collector.daemon.source import WAIT_SECONDS, LogSource, SourceExporter

CYCLE_SECONDS: Final = 0.5
"""The pause between cycles while the processor has work that depends on time, or rows are not acknowledged."""
READ_SECONDS: Final = 2.0
STOP_SECONDS: Final = 3.0
"""Wait for the last acknowledgements. Without them no snapshot is kept, and the sync of a busy disk takes time."""
ROWS: Final = 4096
"""Most rows of one message."""
TEXT_ROWS: Final = 64
"""Most rows of a message with text columns, where one value can have 64 kB."""
F = TypeVar("F", bound=FollowerSettings)
_log = logging.getLogger(__name__)


class Output(NamedTuple):
    """Rows for one table."""

    table: str
    rows: int
    columns: Mapping[str, Any]


def merged(outputs: Iterable[Output]) -> Iterator[Output]:
    """The same rows in fewer outputs: those of one table are joined, in their order, up to the size of a message."""
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
    """Turns rows of the log into rows for the log, without I/O and without a clock. Times are Unix seconds."""

    def observe(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Process rows of one table."""
        ...

    def step(self, now: float) -> list[Output]:
        """The rows to write, now that all rows up to some offset of the log are processed."""
        ...

    @property
    def idle(self) -> bool:
        """Whether `step` has nothing to do before there are new rows."""
        ...

    @property
    def quarantine(self) -> Quarantine:
        """The jobs whose data raised an exception."""
        ...


class RowSink(Protocol):
    """What appends rows to the log, such as LogWriter."""

    def put(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        """Queue rows to append."""
        ...

    def pump(self) -> None:
        """Send and receive without blocking."""
        ...

    @property
    def idle(self) -> bool:
        """True once all rows are acknowledged."""
        ...


@dataclass
class Runner:
    """Moves rows between the log and a processor.

    An exception of the processor ends in its quarantine, and is reported as a row of `events`.

    clock: Unix seconds. beat: called after each round of rows. still: held while the processor changes. name: the
    source of events that are about no job.
    """

    processor: Processor
    follower: Follower | LogSource
    writer: RowSink
    clock: Callable[[], float] = CLOCK.now
    beat: Callable[[], None] = lambda: None
    still: threading.Lock = field(default_factory=threading.Lock)
    name: str = "follower"
    _away: bool = False

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do before something is received."""
        return not self._away and self.processor.idle and self.writer.idle

    def step(self) -> None:
        """One cycle. While the collector cannot be reached no row is read, and none is lost."""
        self.writer.pump()
        stepped = False
        try:
            for round_ in self.follower.poll():
                self._process(round_)
                stepped = True
                # One cycle can read months of the log.
                self.beat()
        except (LogUnavailable, ReadRefused):
            self._away = True
            return
        self._away = False
        if not stepped:
            self._process([])

    def _process(self, rows: Sequence[Rows]) -> None:
        with self.still:
            for table, columns in rows:
                observe(self.processor, table, columns, self.clock())
            outputs = self._step()
        self.write(outputs)

    def _step(self) -> list[Output]:
        quarantine, now = self.processor.quarantine, self.clock()
        outputs: list[Output] = []
        with quarantine.guard("step"):
            outputs = self.processor.step(now)
        for failure in quarantine.take_unreported():
            row = {"source": failure.job or self.name, "kind": "quarantine", "rows": 0, "time": now}
            outputs.append(Output("events", 1, {**row, "detail": f"{self.name}: {failure.place}: {failure.detail}"}))
        return outputs

    def write(self, outputs: Iterable[Output]) -> None:
        """Append rows."""
        for output in merged(outputs):
            with self.processor.quarantine.guard(f"append {output.table}"):
                self.writer.put(*output)
        self.writer.pump()


def observe(processor: Processor, table: str, columns: Mapping[str, Column], now: float) -> None:
    """Process rows of one table, but those of jobs in quarantine. now: Unix seconds."""
    processor.quarantine.observe(table, columns, lambda name, part: processor.observe(name, part, now))


def serve(
    processor: Processor,
    tables: list[str],
    exporter: Exporter,
    configuration: Configuration[F],
    *,
    apply: Callable[[], None] = lambda: None,
    prepare: Callable[[LogSource], None] = lambda source: None,
    keep: Callable[[str, Mapping[str, int], bool], None] | None = None,
    pages: Mapping[str, WSGIApplication] | None = None,
    each_cycle: Callable[[], Iterable[Output]] = lambda: (),
    still: threading.Lock | None = None,
) -> int:
    """Run a daemon until SIGTERM or SIGINT; returns an `Exit`. Raises CannotStart.

    tables: to read, in the order of the rows of a round.
    apply: called after a reload of the configuration.
    prepare: called once before rows are read, to set the offsets to read from; repeated after LogUnavailable.
    keep: writes a snapshot; called after a cycle with the name of the log and the offsets of the rows that were
    processed, by table, and with True at the end, only while all outputs are acknowledged: a restored processor does
    not write them again.
    pages: applications that are served beside /metrics, by path.
    each_cycle: called before each cycle; what it returns is written first.
    still: held while the state of the processor changes. A scrape, and a page that reads this state, holds it too.
    """
    name, settings = configuration.section.table, configuration.settings
    notifier = Notifier(os.environ)
    key = load_key(settings.key)
    registry, heartbeat = daemon_registry(name)
    still = still or threading.Lock()
    registry.register(Frozen(exporter, still))
    registry.register(Frozen(QuarantineExporter(processor.quarantine), still))
    reload = Reload(configuration, apply, notifier, registry)

    def beat() -> None:
        heartbeat()
        notifier.alive()

    source = LogSource(LogReader(settings.collector, READ_SECONDS, key), tables)
    # Each process writes a stream of its own: rows that the former one did not deliver are computed again.
    writer = LogWriter(settings.collector, f"{key.name if key else name}/{CLOCK.now_ns()}", key)
    registry.register(SourceExporter(name, source, writer))
    with Shutdown() as shutdown, closing(source):
        exposition = serve_metrics(registry, *settings.metrics, pages)
        _log.info("following the log at %s, metrics on %s", settings.collector, exposition.url)
        notifier.ready()
        runner = Runner(processor, source, writer, beat=beat, still=still, name=name)

        def seconds() -> float:
            return 0.0 if source.is_behind else WAIT_SECONDS + READ_SECONDS if runner.idle else CYCLE_SECONDS

        while not _wait(shutdown, source, writer, seconds()):
            beat()
            runner.write(each_cycle())
            if shutdown.hung_up():
                with still:
                    reload.run()
            with suppress(LogUnavailable), still:
                source.prepare(prepare)
            if not source.is_ready:
                continue
            runner.step()
            if keep is not None and writer.idle:
                keep(source.name, source.delivered, False)
        notifier.stopping()
        delivered = writer.close(STOP_SECONDS)
        if keep is not None and source.is_ready and delivered:
            keep(source.name, source.delivered, True)
        exposition.stop()
    return Exit.OK


def _wait(shutdown: Shutdown, source: LogSource, writer: LogWriter, seconds: float) -> bool:
    """Wait at most `seconds` for a message of a collector or a signal; whether the shutdown is requested."""
    poller = zmq.Poller()
    poller.register(shutdown.fileno(), zmq.POLLIN)
    source.register(poller)
    writer.register(poller)
    poller.poll(int(1000 * seconds))
    return shutdown.wait(0.0)
