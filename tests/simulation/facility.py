"""A simulated facility: servers with collectors, their follower, and nodes on which jobs run."""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from barograph_agent.deliver.shards import shard_of
from barograph_agent.deliver.spool import SpoolError
from barograph_agent.job.identity import Job
from barograph_agent.protocol.wire import Column, Result
from barograph_agent.sidecar.main import Orphans, Sidecar, sidecar_of
from barograph_agent.sidecar.plan import END, PLAN, CommandEnd, RunOptions, begin_run, leave, load_plan, load_report
from barograph_agent.sidecar.run import WatchedRun
from barograph_agent.system.processes import Processes
from barograph_agent.system.system import System
from barograph_alerts.main import TABLES as ALERTS_TABLES
from barograph_alerts.processor import Scorer
from barograph_alerts.recall import LAST_COUNTS, WORKLOADS, Recall
from barograph_alerts.restore import NEAR, OF_JOBS, Restore
from barograph_collector.client.follow import LogWriter
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.daemon.quarantine import Quarantine
from barograph_collector.daemon.runner import Output, Runner
from barograph_collector.daemon.service import CannotStart
from barograph_collector.daemon.source import LogSource
from barograph_collector.lake.sealer import Sealer
from barograph_collector.server import Collector
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.days.retention import Retention
from barograph_collector.storage.journal import Journal
from barograph_collector.storage.layout import LOG_COLUMNS
from barograph_collector.storage.store import JOURNAL_SUFFIX, Store
from helpers.answers import answered
from helpers.rings import FakeShim
from simulation.database import SimulatedDatabase, Tables
from simulation.disk import Platters, SimulatedDisk
from simulation.lake import SimulatedLake
from simulation.machine import Machine, Process, SimulatedThreads, VirtualClock
from simulation.network import SimulatedMailbox, SimulatedNetwork, SimulatedRouter, Wire
from simulation.takeover import Loss, taken_over, unpublished

SPOOLS = Path("/spools")
LOG = Path("/log/barograph.duckdb")
JOURNAL_OF_LOG = LOG.with_name(f"{LOG.name}{JOURNAL_SUFFIX}")
SEGMENT_BYTES = 16_384
FOLLOWED = ["jobs", "blocks", "runs"]
PERIOD_SECONDS = 0.5


class Node:
    """A node: its disk, its clock's error, and what runs on it. rings: the real directory of its rings."""

    def __init__(self, facility: Facility, name: str, skew: float, rings: Path) -> None:
        self.facility = facility
        self.name = name
        self.clock = VirtualClock(facility.machine, skew)
        self.platters = Platters(facility.machine.random)
        self.platters.directories.add(SPOOLS)
        self.rings = rings
        self.processes: list[Process] = []
        self.variables: dict[str, Process] = {}
        """Processes by the ring directory in their environment."""
        self.lost_power = False

    def system(self, process: Process) -> System:
        """What a process on this node gets from its operating system."""
        disk = _NodeDisk(process, self.platters)
        network = SimulatedNetwork(self.facility.wire, process, self.name)
        return System(
            self.clock,
            disk,
            network,
            SimulatedThreads(process),
            _NodeProcesses(self, process),
            self.facility.machine.random,
        )

    def start(self, name: str, work: Callable[[System], None], *, dies_at: int = 0) -> Process:
        """Start a process. dies_at: see SimulatedDisk."""
        process = self.facility.machine.process(f"{name} on {self.name}")
        system = self.system(process)
        system.disk.dies_at = dies_at  # type: ignore[attr-defined]
        self.facility.disturb(system.disk)
        self.processes.append(process)
        self.facility.machine.start(process, "main", partial(work, system))
        return process

    def lose_power(self) -> None:
        """All processes die, and memory is lost: rings, and what was written and not synced."""
        for process in self.processes:
            process.kill()
        self.processes.clear()
        self.variables.clear()
        self.platters.lose_power()
        shutil.rmtree(self.rings, ignore_errors=True)
        self.lost_power = True


class _NodeDisk(SimulatedDisk):
    """Rings are real files in memory."""

    def remove_marked(self, path: Path, mark: str, content: bytes, left: Set[str] = frozenset()) -> None:
        self._change()
        if path.is_dir():
            assert (path / mark).read_bytes() == content
            super().remove_marked(path, mark, content, left)

    def read_own(self, path: Path) -> bytes:
        return path.read_bytes() if path.is_file() else super().read_own(path)

    def unlink(self, path: Path, *, missing_ok: bool = False) -> None:
        super().unlink(path, missing_ok=missing_ok or path.is_file())
        path.unlink(missing_ok=True)

    def replace(self, path: Path, data: bytes) -> None:
        if path.parent.is_dir():
            path.write_bytes(data)
        else:
            super().replace(path, data)


class _NodeProcesses(Processes):
    root = "/nonexistent"

    def __init__(self, node: Node, process: Process) -> None:
        super().__init__()
        self._node, self._process = node, process

    def own(self) -> int:
        return self._process.pid

    def born(self, pid: int) -> int:
        return 1 if any(one.pid == pid and one.lives for one in self._node.processes) else -1

    def show(self, file: str, most: int = 0) -> bytes:
        return b""

    def ids(self) -> list[int]:
        return [one.pid for one in self._node.processes if one.lives]

    def environment(self, pid: int) -> dict[str, str]:
        return {}

    def any_with(self, variable: str, value: str) -> bool:
        process = self._node.variables.get(value)
        return process is not None and process.lives


class SimulatedJob:
    """A program that synchronizes its ranks, and its launcher, which keeps a sidecar running."""

    def __init__(self, node: Node, name: str, *, ranks: int, seconds: float, per_second: float, capacity: int) -> None:
        self.node = node
        self.job = Job("sim", name, 0, "0", name, node.name, "app", {})
        self.key = self.job.key
        self.directory = SPOOLS / name
        self.rings = node.rings / name
        self.seconds, self._per_second = seconds, per_second
        self.sidecar: Process | None = None
        self.shims: list[FakeShim] = []
        self._ranks, self._capacity = ranks, capacity
        self.seen = 0
        self.silent_seconds = 0.0
        """How long it has no sync point once, in its middle."""
        self.stream = ""
        self.spool_bytes = 2**20
        self.launcher = node.start(f"launcher of {name}", self._launch)
        self.dies_at = 0

    @property
    def longest_silence(self) -> float:
        """Limit on the time between two of its sync points, eight of which become visible at once."""
        return self.silent_seconds + 1.5 * 8 / self._per_second

    def _launch(self, system: System) -> None:
        clock = system.clock
        self.rings.mkdir(parents=True)
        options = RunOptions(self.node.facility.collectors, drain_seconds=5.0, spool_bytes=self.spool_bytes)
        stream = f"{self.key}/{system.processes.own():x}"
        try:
            self.plan = begin_run(self.directory, self.job, self.rings, options, system, stream=stream)
        except OSError:
            system.disk.remove_tree(self.directory)
            return  # the program runs unwatched
        self.stream = stream
        began = clock.monotonic()
        program = self.node.start("program", self._run)
        self.node.variables[str(self.rings)] = program
        self._start_sidecar()
        started = clock.monotonic()
        while not all(thread.done for thread in program.threads):
            clock.sleep(0.25)
            started = self._check(started, system)
        with contextlib.suppress(OSError):
            end = CommandEnd(clock.now(), clock.monotonic() - began, 0)
            leave(self.directory, END, end, self.plan, system.disk)
        deadline = clock.monotonic() + 25.0
        while (report := load_report(self.directory, self.plan, system.disk)) is None and clock.monotonic() < deadline:
            clock.sleep(0.1)
            started = self._check(started, system)
        if report is not None and report.delivered:
            system.disk.unlink(self.directory / PLAN, missing_ok=True)
            system.disk.remove_tree(self.directory)

    def _check(self, started: float, system: System) -> float:
        """Start the sidecar again if it died, as `SidecarGuard.check` does."""
        assert self.sidecar is not None
        over = all(thread.done for thread in self.sidecar.threads)
        now = system.clock.monotonic()
        if not over or now - started <= 1.0 or load_report(self.directory, self.plan, system.disk) is not None:
            return started
        self._start_sidecar()
        return now

    def _start_sidecar(self) -> None:
        dies_at, self.dies_at = self.dies_at, 0
        self.sidecar = self.node.start(f"sidecar of {self.key}", self._watch, dies_at=dies_at)

    def _watch(self, system: System) -> None:
        try:
            plan = load_plan(self.directory, system.disk)
            run = WatchedRun(self.directory, plan, system=system)
        except (SpoolError, OSError):
            return  # its process would end with a message
        self.node.facility.runs[self.key] = run
        sidecar_of(run, system).run()

    def _run(self, system: System) -> None:
        """The program: sync points in all ranks, which take their time."""
        machine = self.node.facility.machine
        began = machine.seconds
        for rank in range(self._ranks):
            shim = FakeShim(self.rings / f"{rank}.tmp", self._capacity, pid=system.processes.own())
            shim.set(rank=rank, size=self._ranks, started_unix_ns=system.clock.now_ns())
            shim.site(0x10)
            shim.path.rename(self.rings / f"{rank}.ring")
            self.shims.append(shim)
        silent = 0.0
        while (passed := machine.seconds - began) < self.seconds + silent:
            if passed > self.seconds / 2 and silent < self.silent_seconds:
                silent = self.silent_seconds
                system.clock.sleep(silent)
                passed += silent
            system.clock.sleep((0.5 + machine.random.random()) * 8 / self._per_second)
            now = machine.seconds - began
            for number in range(8):
                at = int((passed + (now - passed) * (number + 1) / 8) * 1e9)
                for shim in self.shims:
                    shim.put(at)
            self.seen = self.shims[0].seen


def deliver(collectors: str, system: System) -> None:
    """Deliver what is left on a node, as `barograph spool --send`."""
    sidecar = Sidecar(SPOOLS, collectors, 60.0, system=system)
    sidecar.adopted = Orphans(SPOOLS, collectors, system)
    sidecar.run()


class NoQuarantine(Quarantine):
    """An exception of a tally is a defect, and ends its process."""

    def add(self, place: str, job: str, error: Exception) -> None:
        raise error


class Start(NamedTuple):
    """How a daemon has begun with a log.

    offsets: after which its tables are followed. judged: jobs that had their verdicts.
    """

    offsets: Mapping[str, int]
    judged: Set[str]


class Tally:
    """A processor that counts what it reads, and writes a final score for each run, as the scorer does.

    It holds the follower to what it promises.
    """

    tables: Sequence[str] = FOLLOWED

    def __init__(self, may_resend: Callable[[str], bool] = lambda job: False) -> None:
        """may_resend: whether rows of a job may come again, since the log that had them is lost."""
        self.quarantine = NoQuarantine()
        self._may_resend = may_resend
        self._judged: set[str] = set()
        self._due: list[str] = []
        self.last: dict[tuple[str, str], int] = {}
        """The last offset that was read, by the name of the log and table."""
        self.read: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        """All of them."""
        self.starts: dict[str, Start] = {}
        """How it has begun with logs, by their names, where it does not read them from their begins."""
        self.skipped: dict[tuple[str, str], int] = {}
        """Up to where rows need not be read."""
        self._source = ""
        self.intervals: dict[str, int] = {}
        self.wrong: list[str] = []
        self._ended: list[str] = []
        self._lasts: dict[tuple[str, str, str], int] = {}
        """The same by job where rows have an order within a job only."""

    def observe(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        for job, offsets in self._ordered(columns):
            last = self._lasts.get((self._source, table, job), 0)
            if (np.diff(offsets, prepend=last) <= 0).any():
                self.wrong.append(f"{table}: offsets {offsets} of {job or 'all'} after {last}")
            self._lasts[self._source, table, job] = offsets[-1]
        self.read[self._source, table].update(np.asarray(columns["log_offset"]).tolist())
        self.last[self._source, table] = max(self.last.get((self._source, table), 0), int(columns["log_offset"][-1]))
        if table == "blocks":
            for job, count in zip(columns["job"], np.asarray(columns["count"]).tolist(), strict=True):
                if job in self._ended and not self._may_resend(job):
                    self.wrong.append(f"intervals of {job} after its end")
                self.intervals[job] = self.intervals.get(job, 0) + count
        if table == "runs":
            self._ended += list(columns["job"])
            self._due += [job for job in columns["job"] if job not in self._judged]

    def _ordered(self, columns: Mapping[str, Column]) -> list[tuple[str, list[int]]]:
        """Rows that have an order among themselves."""
        return [("", np.asarray(columns["log_offset"]).tolist())]

    def watch(self, source: LogSource) -> None:
        """Note whose rows are read from now on."""

        def noted(read: Callable[..., Any]) -> Callable[..., Any]:
            def of_source(*arguments: Any, **options: Any) -> Any:
                found = read(*arguments, **options)
                self._source = source.name
                return found

            return of_source

        reader = source.reader
        reader.read, reader.follow = noted(reader.read), noted(reader.follow)  # type: ignore[method-assign]

    def prepare(self, source: LogSource, now: float) -> None:
        """Read final scores that an earlier process has written."""
        for page in source.reader.read_all("scores"):
            self._judged |= set(page.columns["job"])

    def cycle(self) -> Sequence[Output]:
        """Called before each cycle; rows to write."""
        return ()

    def must_read(self, job: str, *, has_begun: bool) -> bool:
        """Whether all intervals of a job are to be read, also those from before the start.

        has_begun: whether its row of `jobs` is in the log.
        """
        return True

    def step(self, now: float) -> list[Output]:
        due, self._due = self._due, []
        self._judged |= set(due)
        return [Output("scores", 1, SCORE | {"job": job, "time": now}) for job in due]

    @property
    def idle(self) -> bool:
        return not self._due


class JudgingTally(Tally):
    """The alerts daemon's scorer and how that begins, with the same counts."""

    tables = ALERTS_TABLES

    def __init__(
        self,
        may_resend: Callable[[str], bool],
        connect: Callable[[], LogReader],
        system: System,
        chance: random.Random,
    ) -> None:
        """connect: a reader of its own."""
        super().__init__(may_resend)
        self.scorer = Scorer()
        self.open_jobs, self.begun, self.begin_log = self.scorer.open_jobs, self.scorer.begun, self.scorer.begin_log
        self.forget_before, self.give_up_before = self.scorer.forget_before, self.scorer.give_up_before
        self.first_paces: dict[str, int] = {}
        """Offsets of the paces that jobs are compared with from their begin on."""
        self._restore = Restore(self, chance.choice([3, NEAR]))  # type: ignore[arg-type]
        self._recall = Recall(self, connect, system.clock.monotonic, chance.choice([1, WORKLOADS]))  # type: ignore[arg-type]
        self._pages = chance.choice([1, 5, 10_000])
        """Most rows of a table in a round."""
        self.recalled = 0
        """How often what was learned was read."""
        self.predicts = True
        """Whether rows of `predictions` are written: of a job whose end was lost with a disk they never end."""

    def observe(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        if table == "scores":
            self._judged |= {job for job, final in zip(columns["job"], columns["final"], strict=True) if final}
        else:
            super().observe(table, columns, now)
        self.scorer.observe(table, columns, now)

    def close(self, names: Sequence[str]) -> None:
        """Note jobs that have their verdicts."""
        self._judged |= set(names)
        self.scorer.close(names)

    def begin_with(self, name: str, row: Mapping[str, Any]) -> None:
        """Note the pace of a job's begin."""
        self.first_paces[name] = int(row["log_offset"])
        self.scorer.begin_with(name, row)

    def _ordered(self, columns: Mapping[str, Column]) -> list[tuple[str, list[int]]]:
        found: dict[str, list[int]] = {}
        for job, offset in zip(
            columns.get("job", [""] * len(columns["log_offset"])), columns["log_offset"], strict=True
        ):
            found.setdefault(job, []).append(int(offset))
        return list(found.items())

    def prepare(self, source: LogSource, now: float) -> None:
        self._restore(source, now)
        source.follower._page = self._pages
        # What is before is a backfill's, or of jobs that are not judged, or does not count.
        self.starts[source.name] = Start(dict(source.follower.offsets), self._judged.copy())
        partly = (*OF_JOBS, *LAST_COUNTS)
        self.skipped |= {(source.name, one): at for one, at in source.follower.offsets.items() if one in partly}
        for backfill in source.backfills:
            backfill.follower._page = self._pages
        self._recall.begin(source)

    def cycle(self) -> Sequence[Output]:
        self._recall.poll(threading.Lock())
        return ()

    @property
    def wanted(self) -> dict[str, None]:
        """Workloads that the scorer waits for."""
        return self.scorer.wanted

    def learn(self, workloads: Collection[str], rows: Sequence[tuple[str, Mapping[str, Column]]]) -> None:
        """Note rows of what was learned."""
        self.recalled += 1
        for table, columns in rows:
            self.read[next(iter(self.starts)), table].update(np.asarray(columns["log_offset"]).tolist())
        self.scorer.learn(workloads, rows)

    def must_read(self, job: str, *, has_begun: bool) -> bool:
        return has_begun and job not in self._judged

    def step(self, now: float) -> list[Output]:
        return [one for one in self.scorer.step(now) if self.predicts or one.table != "predictions"]

    @property
    def idle(self) -> bool:
        return self.scorer.idle


SCORE = {
    "workload": "sim/app", "state": "healthy", "score": 0.0, "slowdown": 1.0, "onset_at": 0.0, "alarmed_at": 0.0,
    "windows": 0, "final": 1, "sentence": "healthy", "cause": "none", "members": "[]", "evidence": "{}",
    "basis": "history", "recovered_at": 0.0, "hosts": "[]",
}  # fmt: skip


class NamedReader(LogReader):
    """A reader that has the name of its log from the facility: the stand-in for the database has no SQL."""

    def __init__(self, shard: Shard, system: System) -> None:
        super().__init__(shard.endpoint, 2.0, system=system)
        self._shard = shard

    def identity(self) -> str:
        self.read("jobs", 2**62, 1)  # over the connection, as SQL is
        return self._shard.name

    def query(self, text: str, limit: int = 1000, seconds: float = 10.0) -> Result:
        """No day is long ago. Raises LogUnavailable as often as the facility has it."""
        if self._shard.facility.fails_query():
            raise LogUnavailable("no answer")
        self.read("jobs", 2**62, 1)
        return answered(text, {name: self._shard.tables.sorted(name).rows for name in LOG_COLUMNS if name in text})


class Shard:
    """A collector, its host, and what is in its database. number: 0 is the first of the list."""

    def __init__(self, facility: Facility, number: int) -> None:
        name = f"server{number or ''}"
        self.endpoint = f"tcp://collector{number or ''}:7777"
        self.facility = facility
        self.server = Node(facility, name, 0.0, facility.root / name)
        self._logs = 0
        self._begin_log()
        self.collector: Collector | None = None
        self.dies_at = 0
        self.is_kept_running = True
        self.is_apart = False
        """Whether its journal is on storage that outlives its disk."""
        self.restoring: Process | None = None
        """`barograph restore`, while the log is made again from the lake."""
        self.loses_rows = False
        """Whether what it had acknowledged may be lost with its disk."""
        self.follower: Process
        self.tally: Tally
        self.runner: Runner | None = None
        self.source: LogSource | None = None
        """What follows the log."""
        self.restored: set[tuple[str, int]] = set()
        """Table and last offset of it, when the log was made again: the lost log may have had later ones."""
        self._stopping: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start the collector."""
        dies_at, self.dies_at = self.dies_at, 0
        self.process = self.server.start("collector", self._collect, dies_at=dies_at)

    def stop(self) -> None:
        """Ask the collector to stop, as SIGTERM does."""
        self._stopping()

    def lose(self) -> None:
        """Its host is lost with its disks. A collector without rows is at its address afterwards."""
        self.process.kill()
        self.server.platters = Platters(self.facility.machine.random)
        self._begin_log()

    def put_journal_apart(self) -> None:
        """Before it is started first."""
        self.is_apart = True
        self.server.platters.links.add(JOURNAL_OF_LOG)

    def lose_disk(self, seconds: float) -> None:
        """Its host is lost with its disk, and the log is made again from the lake, so many seconds later."""
        lake = self.facility.lake
        assert lake is not None
        self.process.kill()
        self.collector, self.is_kept_running = None, False
        if self.is_apart:
            self.server.platters = self.server.platters.keep(JOURNAL_OF_LOG)
        else:
            reader = self.server.system(self.facility.machine.process("reader"))
            journal = Journal(JOURNAL_OF_LOG, SEGMENT_BYTES, reader)
            position = lake.position(self.tables.name)
            self.facility.loss.add(unpublished(self.tables, journal, position))
            self.loses_rows = True
            self.server.platters = Platters(self.facility.machine.random)
        self.server.platters.directories.add(LOG.parent)
        self.facility.machine.at(seconds, self.restore)

    def restore(self) -> None:
        """Start `barograph restore --log`."""
        self.restoring = self.server.start("restore", self._restore)

    def _restore(self, system: System) -> None:
        lake = self.facility.lake
        assert lake is not None
        while True:
            try:
                journal = Journal(JOURNAL_OF_LOG, SEGMENT_BYTES, system) if self.is_apart else None
                found = taken_over(lake, self.tables.name, journal, system)
                break
            except (LakeError, OSError):  # it is typed again
                system.clock.sleep(1.0)
        if found is None:
            self._begin_log()
        else:
            self.tables = found
            self.restored = {
                (table, parts[-1]["log_offset"][-1].as_py()) for table, parts in found.rows.items() if parts
            }
        self.restoring, self.is_kept_running = None, True
        self.start()

    def _begin_log(self) -> None:
        self._logs += 1
        self.name = f"log {self._logs} of {self.endpoint}"
        self.tables = Tables(f"{self.server.name}.{self._logs}")
        self.server.platters.directories.add(LOG.parent)

    def _collect(self, system: System) -> None:
        facility = self.facility
        process = facility.machine.current.process  # type: ignore[union-attr]
        store = Store(
            LOG,
            system=system,
            open_database=lambda path: SimulatedDatabase(  # type: ignore[arg-type,return-value]
                self.tables, has_lake=facility.lake is not None
            ),
            segment_bytes=SEGMENT_BYTES,
            lake=None if facility.lake is None else facility.lake.lake().data,
            period_seconds=PERIOD_SECONDS,
        )
        # Days of the stand-in are those of its rows: files are deleted only where no clock is in doubt.
        store.calendar.confirm()
        assert store.today > 0
        assert not store.calendar.held
        stopping = system.threads.event()
        self._stopping = stopping.set
        sealer = None
        if facility.lake is not None:
            sealer = Sealer(store, facility.lake.lake(), system, **facility.lake.parts())
        collector = Collector(
            store,
            self.endpoint,
            sealer=sealer,
            system=system,
            # Files of the stand-in have no columns to describe: no day leaves the database.
            retention=Retention(hot_days=sys.maxsize),
            on_failure=stopping.set,
            mailbox=SimulatedMailbox(facility.machine),  # type: ignore[arg-type]
            open_socket=lambda *_: SimulatedRouter(  # type: ignore[arg-type,return-value]
                facility.wire, process, self.server.name, self.endpoint
            ),
        )
        collector.start()
        self.collector = collector
        stopping.wait()
        if collector.failure is not None:
            facility.failures.append(f"collector: {collector.failure!r}")
        if collector.stop():
            store.close()


class Facility:
    """All nodes of a schedule. root: a real directory for rings."""

    def __init__(self, seed: int, root: Path, shards: int = 1, lake: bool = False) -> None:
        self.machine = Machine(seed)
        self.lake = SimulatedLake(self.machine) if lake else None
        self.wire = Wire(self.machine)
        self.root = root
        self.disturb: Callable[[Any], None] = lambda disk: None
        """Called with the disk of each new process."""
        self.shards = [Shard(self, number) for number in range(shards)]
        self.collectors = ",".join(shard.endpoint for shard in self.shards)
        self.nodes = [shard.server for shard in self.shards]
        self.watcher = self.server
        if self.machine.random.random() < 0.5:
            self.watcher = self.node(0.0)
        self.jobs: list[SimulatedJob] = []
        self.runs: dict[str, WatchedRun] = {}
        self.tallies: list[Tally] = []
        """What has followed any of the logs."""
        self.judged = False
        """Whether the alerts daemon follows the log in place of a tally."""
        self.make_tally: Callable[[System], Tally] | None = None
        """Makes what follows the log, where that is something else."""
        self.failures: list[str] = []
        self.failed_queries = 0.0
        """The share of the questions in SQL that daemons have no answer to."""
        self._chance = random.Random(seed)
        self.loss = Loss()
        for shard in self.shards:
            shard.start()
        for shard in self.shards:
            self._start_follower(shard)
        self.kept_running = True
        self.machine.at(0.5, self._supervise)

    @property
    def server(self) -> Node:
        """The host of the first collector."""
        return self.shards[0].server

    @property
    def tables(self) -> Tables:
        """What is in the database of the first collector."""
        return self.shards[0].tables

    def all(self, table: str) -> dict[str, list[Any]]:
        """All rows of a table in all logs, as columns."""
        parts = [shard.tables.all(table) for shard in self.shards]
        return {name: [value for part in parts for value in part[name]] for name in parts[0]}

    def fails_query(self) -> bool:
        """Whether there is no answer to the next question in SQL."""
        return self.failed_queries > 0 and self._chance.random() < self.failed_queries

    def end(self) -> None:
        """End all processes."""
        self.kept_running = False
        for run in self.runs.values():
            run._rings.close()
        for node in self.nodes:
            for process in node.processes:
                process.kill()
        self.machine.run(0.0, most_steps=10**9)

    def node(self, skew: float) -> Node:
        """One more node."""
        node = Node(self, f"node{len(self.nodes)}", skew, self.root / f"node{len(self.nodes)}")
        self.nodes.append(node)
        return node

    def _start_follower(self, shard: Shard) -> None:
        shard.follower = self.watcher.start(f"follower of {shard.endpoint}", partial(self._follow, shard))

    def _follow(self, shard: Shard, system: System) -> None:
        tally = Tally(self.may_resend)
        if self.judged:
            connect = partial(NamedReader, shard, system)
            tally = JudgingTally(self.may_resend, connect, system, self.machine.random)
        elif self.make_tally is not None:
            tally = self.make_tally(system)
        self.tallies.append(tally)
        shard.tally = tally
        source = shard.source = LogSource(NamedReader(shard, system), tally.tables)
        writer = LogWriter(shard.endpoint, f"tally/{system.clock.now_ns()}", system=system)
        tally.watch(source)
        runner = shard.runner = Runner(tally, source, writer, system.clock.now)

        def prepare(source: LogSource) -> None:
            tally.prepare(source, system.clock.now())

        while True:
            seconds = 7.0 if source.is_ready and runner.idle else 0.5
            system.network.wait([source, writer], 0.01 if source.is_behind else seconds)
            try:
                source.prepare(prepare)
            except (LogUnavailable, ReadRefused):
                continue
            except CannotStart:
                return  # its process would end with a message
            if source.is_ready:
                runner.write(tally.cycle())
                runner.step()

    def may_resend(self, job: str) -> bool:
        return any(one.loses_rows and self.home(job) is one for one in self.shards)

    def home(self, job: str) -> Shard:
        """The shard of a job, of which each has its own user."""
        endpoint = shard_of("sim", job.split("/")[1].split(".", maxsplit=1)[0], [one.endpoint for one in self.shards])
        return next(one for one in self.shards if one.endpoint == endpoint)

    def _supervise(self) -> None:
        """Start again what died, as systemd does."""
        for shard in self.shards:
            if shard.restoring is not None and not shard.restoring.lives and self.kept_running:
                self._note(shard.restoring)
                shard.restore()
            if not shard.process.lives and shard.is_kept_running and self.kept_running:
                self._note(shard.process)
                shard.start()
            has_ended = all(thread.done for thread in shard.follower.threads)
            if (has_ended or not shard.follower.lives) and self.kept_running:
                self._note(shard.follower)
                self._start_follower(shard)
        self.machine.at(0.5, self._supervise)

    def _note(self, process: Process) -> None:
        if process.failure is not None:
            self.failures.append(f"{process.name}: {process.failure!r}")
