"""Rows of `pressures`: the time that the ranks of a job on this node lose, as the kernel counts it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from barograph_agent.kernel.busy import NOBODY, BusyProcess, BusyProcesses
from barograph_agent.kernel.readings import NodeStat, node_stat, process_stat, schedule, throttles
from barograph_agent.kernel.speed import Speed, SpeedProbe, mixed
from barograph_agent.kernel.transfers import CHANGED as CHANGED_TRANSFER
from barograph_agent.kernel.transfers import Transfers
from barograph_agent.system.clock import Clock
from barograph_agent.system.processes import PROCESSES, Processes, seconds

SAMPLE_SECONDS: Final = 1.0
"""Least time between two looks at ranks and node."""
STATE_SECONDS: Final = 0.25
"""The same of looks at the states of ranks alone."""
SPAN_SECONDS: Final = 4.0
"""Least time in a row that has something to say."""
QUIET_SECONDS: Final = 30.0
"""Least time in a row that has nothing to say."""
LONG_SECONDS: Final = 120.0
"""After so much time in rows with something to say, spans become QUIET_SECONDS long."""
MAX_RANKS: Final = 4
"""Ranks with a row in one span: those that have lost most."""
MAX_THREADS: Final = 256
"""Threads read per span, over all ranks, which share them evenly."""
MAX_CORES: Final = 64
LOOKS: Final = 8
LOOK_SECONDS: Final = 0.004
"""Further looks, so far apart, at a rank that has slept much in a span without having been seen asleep."""
CHANGED: Final = 1.1
"""A change of own work per sync point by this factor makes a row, however quiet the node is: alerts may ask why."""
USUAL_SPANS: Final = 16
"""Quiet spans over which the speed of the node is averaged, the newest with the most weight."""

LOST: Final = 0.05
"""A rank that waits, is stopped or is blocked for this share of its time has something to say."""
FAULTS: Final = 20.0
"""The same of a rank with this many major faults a second."""
STOLEN: Final = 0.02
"""The same of a node whose hypervisor takes this share of its cores' time."""
SWAPPED: Final = 100.0
"""The same of a node that swaps this many pages a second."""
STALLED: Final = 0.1
"""The same of a node on which processes wait for memory for this share of the time."""

NODE: Final = -1
"""The number of the node among ranks."""
_NO_NODE: Final = NodeStat(-1, math.nan, math.nan, math.nan, math.nan, math.nan, -1, -1)
_SLEEPS: Final = "STtD"
"""States in which a process takes no core: interruptible sleep, stopped, traced, uninterruptible sleep."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Loss(NamedTuple):
    """What one rank has lost, or all of them together, in a span. Seconds, NaN if unknown."""

    run_seconds: float = 0.0
    delay_seconds: float = 0.0
    stopped_seconds: float = 0.0
    blocked_seconds: float = 0.0
    major_faults: int = 0
    resident_bytes: int = 0
    core: int = -1

    def is_worth_a_row(self, span: float) -> bool:
        """Whether a rank has lost much."""
        lost = max(self.stopped_seconds, self.blocked_seconds, self.delay_seconds if self.delay_seconds > 0 else 0.0)
        return lost > LOST * span or self.major_faults > FAULTS * span

    @property
    def total(self) -> float:
        """An order of ranks: seconds lost, a fault for a tenth of a millisecond."""
        delay = self.delay_seconds if self.delay_seconds > 0 else 0.0
        return delay + self.stopped_seconds + self.blocked_seconds + 1e-4 * self.major_faults


class _Rank:
    """The counters of one rank's process."""

    def __init__(self, processes: Processes, clock: Clock, pid: int, number: int) -> None:
        self.pid, self.number = pid, number
        self._clock = clock
        self.core = -1
        self.lives = True
        self.runs = False
        """Whether it was running when it was looked at."""
        self._processes = processes
        self._born = -1
        self._faults = self._io_ticks = self._resident = 0
        self._faults_before = self._io_before = 0
        self._threads: dict[int, tuple[float, float]] = {}
        self._count = 1
        self._slept = dict.fromkeys(_SLEEPS, 0.0)
        """Seconds in each state, from looks now and then."""

    def sample(self, passed: float) -> None:
        """Look at its state. passed: seconds since the last look; 0 for the first."""
        stat = process_stat(self._processes, self.pid)
        if stat is None or self._born not in (-1, stat.born):
            self.lives = False  # another process may have its id by now
            return
        if self._born < 0:
            self._born = stat.born
            self._faults_before, self._io_before = stat.major_faults, stat.io_ticks
        if stat.state in self._slept:
            self._slept[stat.state] += passed
        self.core, self._count = stat.core, stat.threads
        self.runs = stat.state == "R"
        self._faults, self._io_ticks, self._resident = stat.major_faults, stat.io_ticks, stat.resident_pages * _PAGE

    def take(self, most_threads: int, span: float) -> Loss:
        """What was lost in the `span` seconds since the last call. most_threads: threads that are read."""
        io = seconds(max(self._io_ticks - self._io_before, 0))
        before = self._threads.get(self.pid)
        run, delay = self._scheduled(most_threads)
        faults = max(self._faults - self._faults_before, 0)
        slept = self._asleep(span, before, self._threads.get(self.pid))
        stopped = slept["T"] + slept["t"]
        loss = Loss(run, delay, stopped, max(slept["D"], io), faults, self._resident, self.core)
        self._faults_before, self._io_before = self._faults, self._io_ticks
        self._slept = dict.fromkeys(_SLEEPS, 0.0)
        return loss

    def _asleep(
        self, span: float, before: tuple[float, float] | None, now: tuple[float, float] | None
    ) -> dict[str, float]:
        """Seconds in each state. How long the main thread slept is counted, only its states are from a few looks.

        before, now: for how long it has run and waited.
        """
        if before is None or now is None or not span > 0:
            return self._slept
        slept = max(span - (now[0] - before[0]) - (now[1] - before[1]), 0.0)
        if slept > LOST * span and not any(self._slept.values()):
            self._look_again()
        looked = math.fsum(self._slept.values())
        return {state: slept * share / looked for state, share in self._slept.items()} if looked else self._slept

    def _look_again(self) -> None:
        """Of a rank that sleeps for milliseconds at a time, looks a second apart may miss all."""
        for _ in range(LOOKS):
            self._clock.sleep(LOOK_SECONDS)
            self.sample(LOOK_SECONDS)

    def _scheduled(self, most: int) -> tuple[float, float]:
        """Seconds that the thread which waited most for a core ran and waited; NaN if unknown."""
        threads = [self.pid] if self._count <= 1 else self._processes.threads(self.pid)[:most] or [self.pid]
        before, self._threads = self._threads, {}
        found = []
        for thread in threads:
            now = schedule(self._processes, self.pid, thread)
            if now is not None:
                self._threads[thread] = now
                was = before.get(thread, now)
                found.append((max(now[1] - was[1], 0.0), max(now[0] - was[0], 0.0)))
        delay, run = max(found, default=(math.nan, math.nan))
        return run, delay


class _OwnWork:
    """Own work per sync point, of the rank of the node with most."""

    def __init__(self) -> None:
        self._seconds, self._count = 0.0, 0
        self._usual = math.nan
        """Seconds when it changed last."""

    def add(self, seconds: float, count: int) -> None:
        """Add what was done in so many sync points."""
        self._seconds, self._count = self._seconds + seconds, self._count + count

    def take(self) -> bool:
        """Begin a new span; whether the work has changed in the one that ends."""
        seconds, count, self._seconds, self._count = self._seconds, self._count, 0.0, 0
        if not count or not seconds > 0:
            return False
        usual, now = self._usual, seconds / count
        if usual / CHANGED < now < usual * CHANGED:
            return False
        self._usual = now
        return usual > 0


class Pressures:
    """Turns what the kernel shows into rows. Never raises for files that are missing or strange.

    belongs: whether a process is one of this job; the numbers in rings may be those of another container.
    hides_others: whether names of processes of other users are left out.
    """

    def __init__(
        self,
        clock: Clock,
        processes: Processes = PROCESSES,
        *,
        belongs: Callable[[int], bool] = lambda pid: True,
        hides_others: bool = False,
        probe: SpeedProbe | None = None,
    ) -> None:
        self._clock = clock
        self._processes = processes
        self._belongs = belongs
        self._busy = BusyProcesses(processes, hides_others=hides_others)
        self._probe = probe or SpeedProbe(clock, processes)
        self._turn = 0
        self._transfers = Transfers(processes.connections)
        self._usual, self._spans = Speed(), 0
        self._usual_transfer = math.nan
        self._work = _OwnWork()
        self._ranks: dict[int, _Rank] = {}
        self._homes: set[int] = set()
        """Cores on which ranks were seen."""
        self._foreign: set[int] = set()
        self._sampled_at = self._seen_at = self._began_at = self._loud_since = -math.inf
        self._node = _NO_NODE
        self._throttles: dict[int, int] | None = None
        self._quiet: _Span | None = None

    def add_work(self, columns: Mapping[str, Any]) -> None:
        """Add what the ranks did. columns: of rows of `node_blocks`."""
        self._work.add(float(np.sum(columns["own_rank_seconds"])), int(np.sum(columns["count"])))

    def read(self, pids: Mapping[int, int], *, final: bool = False) -> dict[str, Any]:
        """Columns of new rows, empty most of the time. pids: number of each rank by process. final: the job ends."""
        now = self._clock.monotonic()
        passed = now - self._seen_at
        if now - self._sampled_at < SAMPLE_SECONDS and not final:
            if passed >= STATE_SECONDS:
                self._see(now, passed)
            return {}
        self._sampled_at = now
        self._follow(pids)
        self._see(now, passed)
        self._homes.update(rank.core for rank in self._ranks.values())
        self._ranks = {pid: rank for pid, rank in self._ranks.items() if rank.lives}
        if not self._ranks:
            self._began_at = -math.inf
            return _columns(self._take_quiet()) if final else {}
        if running := [rank.core for rank in self._ranks.values() if rank.runs]:
            self._turn += 1
            self._probe.measure(running[self._turn % len(running)])
        self._busy.compare(now, {pid: rank.number for pid, rank in self._ranks.items()})
        if self._began_at == -math.inf:
            self._begin(now)
            return {}
        span = now - self._began_at
        is_long = now - self._loud_since >= LONG_SECONDS and self._loud_since > -math.inf
        if span < (QUIET_SECONDS if is_long else SPAN_SECONDS) and not final:
            return {}
        if span < SAMPLE_SECONDS:
            return _columns(self._take_quiet())
        return _columns(self._end_span(now, span, final=final))

    def _see(self, now: float, passed: float) -> None:
        """Look at the states of ranks. passed: seconds since the last look."""
        self._seen_at = now
        for rank in self._ranks.values():
            # After a pause of the sidecar itself the states in between are unknown.
            rank.sample(min(passed, 2 * SAMPLE_SECONDS) if passed < math.inf else 0.0)

    def _follow(self, pids: Mapping[int, int]) -> None:
        """Add the processes of new ranks, and forget those that have ended."""
        for pid, number in pids.items():
            if pid not in self._ranks and pid not in self._foreign:
                self._foreign.add(pid)  # each is added once: its id may later be another process's
                if pid > 0 and self._belongs(pid):
                    self._ranks[pid] = rank = _Rank(self._processes, self._clock, pid, number)
                    rank.sample(0.0)
                    rank.take(self._threads_each(), 0.0)
        self._ranks = {pid: rank for pid, rank in self._ranks.items() if rank.lives and pid in pids}

    def _threads_each(self) -> int:
        return max(MAX_THREADS // max(len(self._ranks), 1), 1)

    def _begin(self, now: float) -> None:
        self._began_at = now
        self._node = node_stat(self._processes)
        for rank in self._ranks.values():
            rank.take(self._threads_each(), 0.0)
        self._throttled()
        self._probe.take()
        self._transfers.take()

    def _end_span(self, now: float, span: float, *, final: bool) -> list[dict[str, Any]]:
        """The rows of the span that ends now, after those of the quiet time before it."""
        losses = {pid: rank.take(self._threads_each(), span) for pid, rank in self._ranks.items()}
        before, self._node = self._node, node_stat(self._processes)
        whole = _Span(
            began_at=self._clock.now() - span,
            seconds=span,
            loss=_sum(list(losses.values())),
            before=before,
            after=self._node,
            throttled=self._throttled(),
            speed=self._probe.take(),
            transfer=self._transfers.take(),
        )
        self._began_at = now
        has_changed = self._work.take() or whole.transfer > CHANGED_TRANSFER * self._usual_transfer
        loud = {pid: loss for pid, loss in losses.items() if loss.is_worth_a_row(span)}
        if not loud and not whole.is_worth_a_row and not whole.speed.differs_from(self._usual):
            self._loud_since = -math.inf
            self._spans = min(self._spans + 1, USUAL_SPANS)
            self._usual = self._usual.mixed(whole.speed, 1 / self._spans)
            self._usual_transfer = mixed(self._usual_transfer, whole.transfer, 1 / self._spans)
            if has_changed:
                return [*self._take_quiet(), whole.row()]
            self._quiet = whole if self._quiet is None else self._quiet.joined(whole)
            return self._take_quiet() if final or self._quiet.seconds >= QUIET_SECONDS else []
        if self._loud_since == -math.inf:
            self._loud_since = now
        if any(loss.delay_seconds > LOST * span for loss in loud.values()):
            self._busy.look(now)
        rows = [*self._take_quiet(), whole.row()]
        for pid in sorted(loud, key=lambda pid: -loud[pid].total)[:MAX_RANKS]:
            beside = NOBODY
            if loud[pid].delay_seconds > LOST * span:
                beside = self._busy.beside(pid, self._ranks[pid].core, self._homes, now)
            rows.append(_row(self._ranks[pid].number, whole, loud[pid], beside))
        return rows

    def _take_quiet(self) -> list[dict[str, Any]]:
        quiet, self._quiet = self._quiet, None
        return [quiet.row()] if quiet is not None else []

    def _throttled(self) -> int:
        """How often the cores of ranks were throttled since the last call; -1 if unknown."""
        cores = sorted({rank.core for rank in self._ranks.values()})[:MAX_CORES]
        if self._throttles == {}:
            return -1  # this machine does not tell
        before = self._throttles or {}
        self._throttles = {core: n for core in cores if (n := throttles(self._processes, core)) >= 0}
        if not self._throttles:
            return -1
        return sum(max(n - before.get(core, n), 0) for core, n in self._throttles.items())


class _Span:
    """What the node and all its ranks together have lost from `began_at` (Unix seconds) on."""

    def __init__(
        self,
        *,
        began_at: float,
        seconds: float,
        loss: Loss,
        before: NodeStat,
        after: NodeStat,
        throttled: int,
        speed: Speed,
        transfer: float,
    ) -> None:
        self.began_at, self.seconds = began_at, seconds
        self.loss, self.throttled, self.speed, self.transfer = loss, throttled, speed, transfer
        self._before, self._after = before, after

    @property
    def is_worth_a_row(self) -> bool:
        """Whether the node has taken much from its ranks."""
        cores = max(self._after.cores, 1) * self.seconds
        return (
            self._grown("steal_seconds") > STOLEN * cores
            or self._swapped() > SWAPPED * self.seconds
            or self._grown("memory_pressure") > STALLED * self.seconds
            or self.throttled > 0
        )

    def joined(self, later: _Span) -> _Span:
        """This span and the one after it."""
        throttled = self.throttled + later.throttled if min(self.throttled, later.throttled) >= 0 else -1
        whole = later.began_at + later.seconds - self.began_at
        return _Span(
            began_at=self.began_at,
            seconds=whole,
            loss=_sum([self.loss, later.loss], later.loss),
            before=self._before,
            after=later._after,
            throttled=throttled,
            speed=self.speed.mixed(later.speed, later.seconds / whole),
            transfer=mixed(self.transfer, later.transfer, later.seconds / whole),
        )

    def row(self) -> dict[str, Any]:
        """The row of the node."""
        return _row(NODE, self, self.loss, NOBODY) | {
            "cores": self._after.cores,
            "busy_seconds": self._grown("busy_seconds"),
            "steal_seconds": self._grown("steal_seconds"),
            "cpu_pressure": self._grown("cpu_pressure") / self.seconds,
            "memory_pressure": self._grown("memory_pressure") / self.seconds,
            "io_pressure": self._grown("io_pressure") / self.seconds,
            "swapped_pages": self._swapped(),
            "available_bytes": self._after.available_bytes,
            "throttles": self.throttled,
            **self.speed._asdict(),
            "transfer_seconds": self.transfer,
        }

    def _grown(self, name: str) -> float:
        growth: float = getattr(self._after, name) - getattr(self._before, name)
        return growth if math.isnan(growth) else max(growth, 0.0)

    def _swapped(self) -> int:
        before, after = self._before.swapped_pages, self._after.swapped_pages
        return max(after - before, 0) if min(before, after) >= 0 else -1


def _sum(losses: list[Loss], resident: Loss | None = None) -> Loss:
    """All together. resident: whose memory to take, unless the sum."""
    return Loss(
        run_seconds=math.fsum(loss.run_seconds for loss in losses),
        delay_seconds=math.fsum(loss.delay_seconds for loss in losses),
        stopped_seconds=math.fsum(loss.stopped_seconds for loss in losses),
        blocked_seconds=math.fsum(loss.blocked_seconds for loss in losses),
        major_faults=sum(loss.major_faults for loss in losses),
        resident_bytes=resident.resident_bytes if resident else sum(loss.resident_bytes for loss in losses),
    )


def _row(number: int, span: _Span, loss: Loss, beside: BusyProcess) -> dict[str, Any]:
    return {
        "rank": number,
        "began_at": span.began_at,
        "ended_at": span.began_at + span.seconds,
        **loss._asdict(),
        "process": beside.name,
        "process_of": beside.owner,
        "process_core": beside.core,
        "process_seconds": beside.share * span.seconds,
        "cores": -1,
        "busy_seconds": math.nan,
        "steal_seconds": math.nan,
        "cpu_pressure": math.nan,
        "memory_pressure": math.nan,
        "io_pressure": math.nan,
        "swapped_pages": -1,
        "available_bytes": -1,
        "throttles": -1,
        **Speed()._asdict(),
        "transfer_seconds": math.nan,
    }


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        return {}
    texts = ("process", "process_of")
    return {
        name: [row[name] for row in rows] if name in texts else np.array([row[name] for row in rows])
        for name in rows[0]
    }
