"""Which collector has the rows of a job, and so gets those that daemons write about it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import zmq

from barograph_agent.deliver.keys import ClientKey
from barograph_agent.deliver.shards import shard_of
from barograph_agent.protocol.tables import TABLES
from barograph_agent.protocol.wire import Column
from barograph_agent.system.system import SYSTEM, System
from barograph_collector.auth.authorization import OBSERVATIONS
from barograph_collector.client.follow import LogWriter

MAX_ELSEWHERE: Final = 200_000
"""Jobs that are not where their names say; the least recently seen are evicted."""
WRITTEN_BY_AGENTS: Final = frozenset(name for name in OBSERVATIONS if "job" in TABLES[name].columns)


class JobPlaces:
    """The collectors of jobs: by their names, unless rows of their agents have come from another one.

    That is so for jobs that began when the list of collectors was another one.
    """

    def __init__(self, collectors: Sequence[str]) -> None:
        """collectors: addresses. The first one has all rows that are about no job."""
        self.collectors = tuple(collectors)
        self._elsewhere: OrderedDict[str, str] = OrderedDict()

    @property
    def first(self) -> str:
        """The collector of rows that are about no job."""
        return self.collectors[0]

    def of(self, job: str) -> str:
        """The collector of a job."""
        return self._elsewhere.get(job) or shard_of(job, self.collectors)

    def note(self, collector: str, table: str, columns: Mapping[str, Column]) -> None:
        """Note that a collector has these rows."""
        if len(self.collectors) == 1 or table not in WRITTEN_BY_AGENTS:
            return
        for job in set(columns["job"]):
            if shard_of(job, self.collectors) == collector:
                self._elsewhere.pop(job, None)
                continue
            self._elsewhere[job] = collector
            self._elsewhere.move_to_end(job)
            if len(self._elsewhere) > MAX_ELSEWHERE:
                self._elsewhere.popitem(last=False)


class PlacedWriter:
    """A writer for each collector: rows about a job go to the job's, all others to the first.

    Rows for a collector that is away stay in memory, and those for the others are written meanwhile.
    """

    def __init__(self, places: JobPlaces, stream: str, key: ClientKey | None = None, system: System = SYSTEM) -> None:
        """stream: its name in each of the logs."""
        self.writers = {one: LogWriter(one, stream, key, system) for one in places.collectors}
        self._places = places
        self._clock = system.clock

    def put(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        """Queue rows; `pump` sends them."""
        for collector, count, values in self._parted(table, rows, columns):
            self.writers[collector].put(table, count, values)

    def pump(self) -> None:
        """Send and receive what is possible without waiting."""
        for writer in self.writers.values():
            writer.pump()

    @property
    def idle(self) -> bool:
        """True once all rows are acknowledged."""
        return all(writer.idle for writer in self.writers.values())

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for acknowledgements."""
        for writer in self.writers.values():
            writer.link.register(poller)

    def close(self, seconds: float) -> bool:
        """Wait at most `seconds` until all rows are acknowledged, and disconnect. Returns whether they are."""
        deadline = self._clock.monotonic() + seconds
        # One that does not answer takes all the time that there is.
        answering_first = sorted(self.writers.values(), key=lambda writer: not writer.link.connected)
        closed = [writer.close(max(deadline - self._clock.monotonic(), 0.0)) for writer in answering_first]
        return all(closed)

    def _parted(
        self, table: str, rows: int, columns: Mapping[str, Any]
    ) -> Iterable[tuple[str, int, Mapping[str, Any]]]:
        """The rows of each collector: its address, their number, and their columns."""
        if len(self.writers) == 1 or "job" not in TABLES[table].columns:
            return [(self._places.first, rows, columns)]
        jobs = columns["job"]
        if isinstance(jobs, str):
            return [(self._places.of(jobs), rows, columns)]
        found: dict[str, list[int]] = {}
        for row, job in enumerate(jobs):
            found.setdefault(self._places.of(job), []).append(row)
        return [
            (collector, len(chosen), {name: _at(value, chosen) for name, value in columns.items()})
            for collector, chosen in found.items()
        ]


def _at(value: Any, rows: Sequence[int]) -> Any:
    """The values of some rows of a column; one value stands for all rows."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return [value[row] for row in rows]
    array = np.asarray(value)
    return array[rows] if array.ndim else value
