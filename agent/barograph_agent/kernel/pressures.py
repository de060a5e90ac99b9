"""Rows of `pressures`: the time that the ranks of a job on this node lose, as the kernel counts it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from barograph_agent.kernel.busy import NOBODY, BusyProcess, BusyProcesses
from barograph_agent.kernel.hardware.amd import AmdSource
from barograph_agent.kernel.hardware.links import LinkSource
from barograph_agent.kernel.hardware.nvidia import NvidiaSource
from barograph_agent.kernel.hardware.processor import CoreSource
from barograph_agent.kernel.hardware.source import COUNTS, MEMORY_ERRORS, CounterSource, Figures, HardwareSource, joined
from barograph_agent.kernel.readings import NodeStat, ProcessStat, node_stat, process_stat, schedule
from barograph_agent.protocol.rows import TableRows
from barograph_agent.protocol.tables import TABLES, Kind
from barograph_agent.system.clock import Clock
from barograph_agent.system.processes import PROCESSES, Processes, seconds
from barograph_agent.system.sockets import CHANGED_TRANSFER, Transfers

SAMPLE_SECONDS: Final = 0.5
"""Least time between two samples of ranks."""
MAX_SAMPLE_SECONDS: Final = 2.0
"""The longest time for which a sample counts."""
SPAN_SECONDS: Final = 3.5
"""Least time between two snapshots: the span of a row with losses."""
QUIET_SECONDS: Final = 30.0
"""Least span of a row without losses."""
LONG_SECONDS: Final = 120.0
"""After so much time with losses, their rows become as rare as those without."""
MAX_RANKS: Final = 4
"""Ranks with a row in a span: those that have lost most."""
MAX_THREADS: Final = 256
"""Threads read for a snapshot, over all ranks, which share them evenly."""
MIN_WORK_CHANGE: Final = 1.1
"""Factor by which own work per sync point changes, after which a node reports: alerts may ask why."""
HARDWARE_SECONDS: Final = 10.0
"""Time between two reads of the hardware of a node where nothing is suspected."""
LOWER: Final = ("clock_hz", "link_rate", "accelerator_clock_hz")
MIN_SLOWER: Final = 1.1
"""Factor by which one of these is lower than usual in a row with losses."""
USUAL_SPANS: Final = 16
"""Spans without losses over which what is usual is averaged, the newest with the most weight."""

MIN_LOST: Final = 0.05
"""Share of its time that a rank waits, is stopped or is blocked in a row with losses."""
MIN_FAULTS: Final = 20.0
"""Major faults a second of a rank in a row with losses."""
MIN_STOLEN: Final = 0.02
"""Share of its cores' time that the hypervisor takes from a node in a row with losses."""
MIN_SWAPPED: Final = 100.0
"""Pages a second that such a node swaps."""
MIN_STALLED: Final = 0.1
"""Share of the time for which processes of such a node wait for memory."""

NODE: Final = -1
"""The number of the node among ranks."""
_NO_PROCESS: Final = ProcessStat("", "", -1, 0, 0, 1, -1, 0, -1, 0)
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_COLUMNS: Final = TABLES["pressures"].columns
_UNKNOWN: Final = {name: math.nan if kind is Kind.F64 else -1 for name, kind in _COLUMNS.items()}


class Loss(NamedTuple):
    """Losses of a rank, or of all ranks together, in a span. Seconds, NaN if unknown."""

    run_seconds: float = 0.0
    delay_seconds: float = 0.0
    stopped_seconds: float = 0.0
    blocked_seconds: float = 0.0
    major_faults: int = 0
    resident_bytes: int = 0
    core: int = -1

    def is_large(self, span: float) -> bool:
        """Whether a rank has lost much."""
        lost = max(self.stopped_seconds, self.blocked_seconds, self.waited_seconds)
        return lost > MIN_LOST * span or self.major_faults > MIN_FAULTS * span

    @property
    def waited_seconds(self) -> float:
        """The delay; 0 if unknown."""
        return self.delay_seconds if self.delay_seconds > 0 else 0.0

    @property
    def total(self) -> float:
        """An order of ranks: seconds lost, a fault for a tenth of a millisecond."""
        return self.waited_seconds + self.stopped_seconds + self.blocked_seconds + 1e-4 * self.major_faults


class _Counters(NamedTuple):
    """Counters of a rank's process since it was found, and of its threads: seconds that each ran, and waited."""

    stat: ProcessStat
    stopped: float
    uninterruptible: float
    threads: dict[int, tuple[float, float]]

    def since(self, before: _Counters) -> Loss:
        """The loss since earlier counters: of the thread that waited most for a core."""
        now, was = self.stat, before.stat
        pairs = [(both, before.threads.get(thread, both)) for thread, both in self.threads.items()]
        waits = [(max(now[1] - was[1], 0.0), max(now[0] - was[0], 0.0)) for now, was in pairs]
        delay, run = max(waits, default=(math.nan, math.nan))
        blocked = max(self.uninterruptible - before.uninterruptible, seconds(max(now.io_ticks - was.io_ticks, 0)))
        faults = max(now.major_faults - was.major_faults, 0)
        return Loss(run, delay, self.stopped - before.stopped, blocked, faults, now.resident_pages * _PAGE, now.core)


class _Rank:
    """The process of a rank."""

    def __init__(self, processes: Processes, pid: int, number: int) -> None:
        self.pid, self.number = pid, number
        self.lives = True
        self.stat = _NO_PROCESS
        """As of the last sample."""
        self._processes = processes
        self._stopped = self._uninterruptible = 0.0
        self._files = [f"/proc/{pid}/stat", f"/proc/{pid}/task/{pid}/schedstat"]
        for file in self._files:
            processes.keep(file)

    def forget(self) -> None:
        """Close its files."""
        for file in self._files:
            self._processes.forget(file)

    def sample(self, passed: float) -> None:
        """Sample its state. passed: seconds since the last sample; 0 for the first."""
        stat = process_stat(self._processes, self.pid)
        if stat is None or self.stat.born not in (-1, stat.born):
            self.lives = False  # another process may have its id by now
            return
        self.stat = stat
        self._stopped += passed * (stat.state in "Tt")
        self._uninterruptible += passed * (stat.state == "D")

    def counters(self, max_threads: int) -> _Counters:
        """Counters now. max_threads: threads that are read."""
        threads = [self.pid]
        if self.stat.threads > 1:
            threads = self._processes.threads(self.pid)[:max_threads] or threads
        times = ((thread, schedule(self._processes, self.pid, thread)) for thread in threads)
        known = {thread: both for thread, both in times if both is not None}
        return _Counters(self.stat, self._stopped, self._uninterruptible, known)


class _Snapshot(NamedTuple):
    """Counters of the node and of its ranks, by process, at a time in monotonic seconds."""

    at: float
    node: NodeStat
    ranks: dict[int, _Counters]


class Pressures:
    """Source of rows of `pressures` of one job on this node. Never raises for files that are missing or strange.

    ranks: number of each rank by process. belongs: whether a process is one of this job; ids in rings may be those of
    another container. hides_others: whether names of processes of other users are left out. spans_nodes: whether ranks
    are on other nodes: only then connections are read, 1 ms.
    """

    def __init__(
        self,
        clock: Clock,
        processes: Processes = PROCESSES,
        *,
        ranks: Callable[[], Mapping[int, int]],
        belongs: Callable[[int], bool] = lambda pid: True,
        hides_others: bool = False,
        spans_nodes: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = clock
        self._processes = processes
        self._pids, self._belongs, self._spans_nodes = ranks, belongs, spans_nodes
        self._busy = BusyProcesses(processes, hides_others=hides_others)
        memory = CounterSource(processes, "memory_errors", MEMORY_ERRORS)
        self._hardware: list[HardwareSource] = [
            CoreSource(processes), memory, LinkSource(processes), AmdSource(processes), NvidiaSource(processes.root)
        ]  # fmt: skip
        self._transfers = Transfers(processes.connections)
        self._usual: Figures = {}
        self._spans = 0
        self._own_work = np.zeros(2)
        """Seconds of the rank of the node with most, and sync points, since the last snapshot."""
        self._usual_work = math.nan
        """Own work per sync point when it changed last."""
        self._ranks: dict[int, _Rank] = {}
        self._homes: set[int] = set()
        """Cores on which ranks were seen."""
        self._seen: set[int] = set()
        self._sampled_at = self._loud_since = self._hardware_at = -math.inf
        self._last_at = math.inf
        """Monotonic time of the last snapshot; infinite without one."""
        self._first = self._last = _Snapshot(math.nan, node_stat(processes), {})
        """At the end of the last row, and the newest one."""
        self._figures: Figures = {}
        """Of the time between both."""

    def add_work(self, columns: Mapping[str, Any]) -> None:
        """Add own work of ranks. columns: of rows of `node_blocks`."""
        self._own_work += np.sum(columns["own_rank_seconds"]), np.sum(columns["count"])

    def read(self, now: float, *, final: bool) -> Iterator[TableRows]:
        """New rows, none most of the time. now: monotonic seconds. final: the job ends."""
        if rows := self._due(now, final=final):
            names = [name for name in _COLUMNS if name not in ("job", "host")]
            yield TableRows("pressures", len(rows), {name: [row[name] for row in rows] for name in names})

    def _due(self, now: float, *, final: bool) -> list[dict[str, Any]]:
        passed, pids = now - self._sampled_at, self._pids()
        if passed < SAMPLE_SECONDS and not final:
            return []
        self._sampled_at = now
        # After a pause of the sidecar itself the states in between are unknown.
        self._sample(pids, min(passed, MAX_SAMPLE_SECONDS) if passed < math.inf else 0.0)
        if not self._ranks:
            self._last_at = math.inf
            return self._quiet_rows() if final else []
        self._busy.compare(now, {pid: rank.number for pid, rank in self._ranks.items()})
        if self._last_at == math.inf:
            self._last_at, self._first = now, self._snapshot(now)
            self._last = self._first
            self._read_hardware(now, suspected=True)
            return []
        is_long = -math.inf < self._loud_since <= now - LONG_SECONDS
        span = now - self._last_at
        if span < (QUIET_SECONDS if is_long else SPAN_SECONDS) and not final:
            return []
        return self._rows(now, final=final) if span >= SAMPLE_SECONDS else self._quiet_rows()

    def _sample(self, pids: Mapping[int, int], passed: float) -> None:
        """Sample all ranks. New ones are added, and those that have ended removed."""
        for rank in self._ranks.values():
            rank.sample(passed)
        for pid, number in pids.items():
            if pid not in self._seen:
                self._seen.add(pid)  # each is added once: its id may later be another process's
                if pid > 0 and self._belongs(pid):
                    self._ranks[pid] = rank = _Rank(self._processes, pid, number)
                    rank.sample(0.0)
                    self._first.ranks[pid] = self._last.ranks[pid] = rank.counters(self._max_threads)
        for pid in [pid for pid, rank in self._ranks.items() if not rank.lives or pid not in pids]:
            self._ranks.pop(pid).forget()
        self._homes.update(rank.stat.core for rank in self._ranks.values())

    @property
    def _max_threads(self) -> int:
        return max(MAX_THREADS // max(len(self._ranks), 1), 1)

    def _snapshot(self, now: float) -> _Snapshot:
        ranks = {pid: rank.counters(self._max_threads) for pid, rank in self._ranks.items()}
        return _Snapshot(now, node_stat(self._processes), ranks)

    def _losses(self, first: _Snapshot, last: _Snapshot) -> dict[int, Loss]:
        """Losses of ranks that live, by process."""
        ranks = [pid for pid in last.ranks if pid in self._ranks and pid in first.ranks]
        return {pid: last.ranks[pid].since(first.ranks[pid]) for pid in ranks}

    def _rows(self, now: float, *, final: bool) -> list[dict[str, Any]]:
        """Rows of the span since the last snapshot, if there are losses, after that of the time before it."""
        before, self._last, self._last_at = self._last, self._snapshot(now), now
        losses, span = self._losses(before, self._last), self._last.at - before.at
        has_changed = self._has_changed()
        loud = {pid: loss for pid, loss in losses.items() if loss.is_large(span)}
        suspected = has_changed or bool(loud) or self._loud_since > -math.inf
        figures = self._read_hardware(now, suspected=suspected or final)
        usual, found = _UNKNOWN | self._usual, _UNKNOWN | figures
        row = self._node_row(before, self._last, figures)
        is_slower = any(MIN_SLOWER * found[name] < usual[name] for name in LOWER)
        is_loud = bool(loud) or is_slower or _is_pressed(row, span)
        if not is_loud:
            self._loud_since = -math.inf
            self._spans = min(self._spans + 1, USUAL_SPANS)
            self._usual = joined(self._usual, figures, 1 / self._spans)
        is_late = found["transfer_seconds"] > CHANGED_TRANSFER * usual["transfer_seconds"]
        if not (is_loud or has_changed or is_late):
            self._figures = joined(self._figures, figures, span / (self._last.at - self._first.at))
            is_due = final or self._last.at - self._first.at >= QUIET_SECONDS
            return self._quiet_rows() if is_due else []
        rows = [*self._quiet_rows(before), row]
        self._first = self._last
        if is_loud:
            self._loud_since = now if self._loud_since == -math.inf else self._loud_since
            rows += self._rank_rows(row, loud, now)
        return rows

    def _rank_rows(self, row: Mapping[str, Any], loud: Mapping[int, Loss], now: float) -> list[dict[str, Any]]:
        """Rows of the ranks that have lost most. row: of the node."""
        least = MIN_LOST * (row["ended_at"] - row["began_at"])
        if any(loss.delay_seconds > least for loss in loud.values()):
            self._busy.sample(now)
        rows = []
        for pid in sorted(loud, key=lambda pid: -loud[pid].total)[:MAX_RANKS]:
            core, waits = self._ranks[pid].stat.core, loud[pid].delay_seconds > least
            competitor = self._busy.competitor(pid, core, self._homes, now) if waits else NOBODY
            rows.append(_row(self._ranks[pid].number, row["began_at"], row["ended_at"], loud[pid], competitor))
        return rows

    def _has_changed(self) -> bool:
        """Whether own work per sync point has changed since the last snapshot."""
        total, count = self._own_work
        self._own_work = np.zeros(2)
        usual, now = self._usual_work, total / count if count else 0.0
        if not now > 0 or usual / MIN_WORK_CHANGE < now < usual * MIN_WORK_CHANGE:
            return False
        self._usual_work = now
        return usual > 0

    def _quiet_rows(self, until: _Snapshot | None = None) -> list[dict[str, Any]]:
        """The row of the time without losses until a snapshot, by default the last; none if it has no length."""
        first, last, figures = self._first, until or self._last, self._figures
        self._first, self._figures = last, {}
        return [self._node_row(first, last, figures)] if last.at > first.at else []

    def _node_row(self, first: _Snapshot, last: _Snapshot, figures: Figures) -> dict[str, Any]:
        span, before, after = last.at - first.at, first.node, last.node
        unix = self._clock.now() - self._clock.monotonic()
        names = ("busy_seconds", "steal_seconds", "cpu_pressure", "memory_pressure", "io_pressure")
        grown = {name: _grown(getattr(before, name), getattr(after, name)) for name in names}
        swapped = min(before.swapped_pages, after.swapped_pages) >= 0
        return {
            **_row(NODE, unix + first.at, unix + last.at, _sum(list(self._losses(first, last).values())), NOBODY),
            **{name: growth / span if name.endswith("pressure") else growth for name, growth in grown.items()},
            "cores": after.cores,
            "swapped_pages": max(after.swapped_pages - before.swapped_pages, 0) if swapped else -1,
            "available_bytes": after.available_bytes,
            **figures,
        }

    def _read_hardware(self, now: float, *, suspected: bool) -> Figures:
        """Figures of the hardware; only of connections where it is not time. suspected: whether the job may be slow."""
        figures = {"transfer_seconds": self._transfers.take()} if self._spans_nodes() else {}
        if not suspected and now - self._hardware_at < HARDWARE_SECONDS:
            return figures
        self._hardware_at = now
        cores = sorted({rank.stat.core for rank in self._ranks.values() if rank.stat.state == "R"})
        for source in self._hardware:
            figures |= source.read(cores)
        return figures


def _is_pressed(row: Mapping[str, Any], span: float) -> bool:
    """Whether the node has taken much from its ranks, by its row."""
    return (
        row["steal_seconds"] > MIN_STOLEN * max(row["cores"], 1) * span
        or row["swapped_pages"] > MIN_SWAPPED * span
        or row["memory_pressure"] > MIN_STALLED
        or any(row[name] > 0 for name in COUNTS)
    )


def _grown(before: float, after: float) -> float:
    """How much a counter has grown, NaN if unknown."""
    return after - before if math.isnan(after - before) else max(after - before, 0.0)


def _sum(losses: list[Loss]) -> Loss:
    """All together."""
    *times, faults, size, _ = (math.fsum(column) for column in zip(*losses, strict=True)) if losses else Loss()
    return Loss._make([*times, int(faults), int(size), -1])


def _row(number: int, began_at: float, ended_at: float, loss: Loss, competitor: BusyProcess) -> dict[str, Any]:
    """A row in which all that is of a node is unknown."""
    return _UNKNOWN | {
        "rank": number,
        "began_at": began_at,
        "ended_at": ended_at,
        **loss._asdict(),
        "process": competitor.name,
        "process_of": competitor.owner,
        "process_core": competitor.core,
        "process_seconds": competitor.share * (ended_at - began_at),
    }
