"""A watched run: the rows of its sources in a spool, which a link delivers."""

from __future__ import annotations

import contextlib
import math
import os
import resource
from pathlib import Path
from typing import Any, Final

import msgspec

from barograph_agent.deliver import credential, keys
from barograph_agent.deliver.link import Link
from barograph_agent.deliver.spool import Spool
from barograph_agent.feature_files.stable import StableFeatures
from barograph_agent.kernel.pressures import Pressures
from barograph_agent.loops.call_trace import MAX_RECORD_RATE
from barograph_agent.protocol import wire
from barograph_agent.protocol.rows import RowSource, TableRows
from barograph_agent.reduce.blocks import ROW_BYTES
from barograph_agent.reduce.intervals import BATCH
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.ring.reader import Ring
from barograph_agent.settings import agent
from barograph_agent.sidecar.job_rows import JobRows
from barograph_agent.sidecar.nodes import READ_EVERY_SECONDS, UNSEEN_SECONDS, NodeRows, OtherNodes, Steady
from barograph_agent.sidecar.plan import (
    PLAN,
    TOKEN,
    VERDICT_SECONDS,
    CommandEnd,
    DeliveryReport,
    Earlier,
    RunPlan,
    delete_rings,
    load_end,
)
from barograph_agent.sidecar.silence import Silence, SilenceRows
from barograph_agent.system.system import SYSTEM, System

VERDICT_POLL_SECONDS: Final = 0.2
"""Most time between two reads of it; the first ones follow each other faster."""
HOLD_SHARE: Final = 0.75
"""Beyond this share of the spool's cap, intervals stay in the rings while these have room."""
STRAGGLERS_SECONDS: Final = 2.0
"""How long ranks are waited for that outlive the command: those of a killed mpiexec end shortly after it."""
LINGER_SECONDS: Final = 1.0
"""How long further ranks may follow the last rank on a node without the launcher; the next program has a sidecar of its
own, which continues the count of worlds."""
MAX_INIT_SECONDS: Final = 3600.0
"""Limit on the time until the first rank there records."""
UNKNOWN_STATUS: Final = -1
"""Exit status of a program that has recorded none: a signal or _exit() has ended it."""
TOO_FAST: Final = "iterations-too-fast"
"""Kind of the event of ranks without iterations."""
STARTED_BEFORE_SECONDS: Final = 1.0
"""How much earlier than in its plan a run's first process may start: the two times come from different clocks."""
RINGS: Final = "rings"
"""The source whose failure ends the run: its read position may have passed rows that are not in the spool."""


class SourceCost(msgspec.Struct):
    """Cost of a source since the sidecar began: rows, time, calls that have failed."""

    source: str
    rows: int = 0
    microseconds: int = 0
    failures: int = 0


class State(msgspec.Struct):
    """Read position of a run; the spool's mark."""

    progress: Progress = msgspec.field(default_factory=Progress)
    has_job: bool = False
    has_work: bool = False
    """Whether the rows of `jobs` and `works` are written."""
    events: set[str] = set()
    """What is reported: names of unreadable rings and of sources that have failed, and TOO_FAST."""
    ended: bool = False
    seen: int = 0
    """Intervals counted by the shim; set at the end of the run, as is `dropped`."""
    dropped: int = 0
    silence: Silence = msgspec.field(default_factory=Silence)
    """As last reported."""
    reported: dict[int, int] = {}
    """Ranks here of each world, by number, as in its row of `nodes`."""
    others: OtherNodes = msgspec.field(default_factory=OtherNodes)
    unknown: bool = False
    """Whether ranks were launched on other nodes, of which nothing is known; set at the end."""


class WatchedRun:
    """A run on this node. After a crash, a new object of the same directory continues from the spool's last mark.

    A run ends in one of two ways. The launcher writes how the command has ended, or dies with all processes of the run.
    Where hooks or a rank have started the sidecar, the run ends when no process of it is left. Raises SpoolError if
    another process watches this run.
    """

    def __init__(self, directory: Path, plan: RunPlan, *, system: System = SYSTEM) -> None:
        self.plan = plan
        self.directory = directory
        self.notes: list[str] = []
        self.filled = 0.0
        """Share of the fullest ring that was filled before the last step."""
        self.is_stuck = False
        """Whether the run has ended, and the disk had no room for what is left of it."""
        self.is_hurried = False
        """True while its processes or other nodes are waited for at its end."""
        self.left: frozenset[str] = frozenset()
        """Rings of a program that has begun while this one ended."""
        self.may_end = True
        """Whether the launcher may have ended or written the end of the command."""
        self.steps = 0
        """Number of steps."""
        self._system = system
        self._created_at = system.clock.monotonic()
        self._longest = 0.0
        self._nodes_read_at, self._waits_since = -math.inf, math.inf
        self._gone = Steady()
        self._costs: dict[str, SourceCost] = {}
        self._spool = Spool(directory, plan.spool_bytes, system.disk)
        self._environment, complaint = agent.environment_or_complaint(os.environ)
        if complaint:
            self._note(complaint)
        self._own: dict[tuple[int, int], bool] = {}
        """Whether processes are of the run, by id and start time."""
        self._pressures = Pressures(
            system.clock,
            system.processes,
            ranks=lambda: self._rings.ranks,
            belongs=self._belongs,
            hides_others=agent.value_or_default("processes", self._environment) == "own",
            spans_nodes=lambda: self._state.progress.ranks > len(self._state.progress.cursors),
        )
        self._load()
        self.link = self._connect()
        if plan.step_directory:
            self.find()

    @property
    def ended(self) -> bool:
        """True once the last message of the run is in the spool."""
        return self._state.ended

    @property
    def delivered(self) -> bool:
        """True once the collector has acknowledged everything."""
        return self.ended and self.link.idle

    @property
    def reports_job(self) -> bool:
        """True on the node of rank 0, and under a launcher whose run has one sidecar."""
        return self._job.is_here

    @property
    def is_gone(self) -> bool:
        """Whether all processes of the run on this node have ended, as its rings tell; before the first, whether none
        will come."""
        processes, ranks = self._system.processes, self._rings.ranks_here.values()
        if not self._rings.is_complete or any(rank.lives(processes) for rank in ranks):
            return False
        # In a container that hides process ids, a process without a recorded end may still run.
        if any(rank.born < 0 and rank.ring.exit_status is None for rank in ranks) or not ranks:
            late = not ranks and self._system.clock.monotonic() - self._created_at > MAX_INIT_SECONDS
            return late or not self.plan.command_lives(processes)
        return True

    def accepts(self, ring: Ring) -> bool:
        """Whether a ring may belong to one more rank, not to the next program in the same step."""
        ranks = {rank.ring.rank for rank in self._rings.ranks_here.values()}
        return not self.ended and (ring.rank not in ranks or not self.is_gone)

    def has(self, pid: int) -> bool:
        """Whether a recording process belongs to the run, which has not ended."""
        return not self.ended and any(rank.ring.pid == pid for rank in self._rings.ranks_here.values())

    def find(self) -> None:
        """Open the rings that have appeared. Raises OSError."""
        self._rings.find()

    def step(self) -> None:
        """Read all sources into the spool, and append the run's end if it has ended.

        Does not raise for unreadable rings and disk errors: they are noted, and the next step retries.
        """
        self.steps += 1
        if self._state.ended:
            return
        began = self._system.clock.thread_seconds()
        self._step(self._system.clock.monotonic())
        self._longest = max(self._longest, self._system.clock.thread_seconds() - began)

    def _step(self, now: float) -> None:
        self.is_hurried = False
        end = self._end(now)
        self.is_stuck = self.is_stuck and end is not None
        try:
            if end is None or not self.plan.step_directory:
                self.find()
            self.filled = self._rings.filled
            if self._must_hold():
                return
            while self._read_batch(now, final=end is not None):
                pass
            if end is not None and self._other_nodes_have_ended(now):
                self._append_end(end, now)
        except OSError as error:
            # The disk is full or has failed. The rings still hold everything since the last commit.
            self._note(f"spool {self.directory}: {error.strerror}; holding intervals in memory rings")
            self.is_stuck = end is not None
            self._spool.rollback()
            self._rings.close()
            self._load()

    def report(self) -> DeliveryReport:
        """Counts of the intervals so far, and the verdict if there is one."""
        state = self._state
        if self.is_stuck:
            with contextlib.suppress(OSError):
                self.find()  # what the rings hold is in no spool
        seen, lost = (state.seen, state.dropped) if state.ended else self._rings.counted()
        spooled = self._spool.rows
        dropped = self.link.dropped_rows.total() + (self._spool.dropped.rows if self._spool.dropped else 0)
        others, here = state.others, self._rings.worlds()
        elsewhere = others.counted
        unseen = others.unseen_ranks(here) if self.plan.has_companions else 0
        return DeliveryReport(
            ranks=max(state.progress.ranks, others.ranks),
            seen=seen,
            stored=max(self._rings.rows - spooled - dropped, 0) + elsewhere[0] - elsewhere[1],
            spooled=spooled,
            dropped=lost + dropped,
            reached=self.link.connected,
            verdict=self.verdict() if self.delivered else "",
            notes=self.notes + self._refusals(),
            delivered=self.delivered,
            unknown=state.unknown or (unseen > 0 and not others.answered),
            trouble=self.link.trouble if self.link.is_withheld else "",
            nodes=others.hosts + bool(here),
            unseen_ranks=unseen,
        )

    def verdict(self) -> str:
        """Wait for the sentence of the final score; empty where none comes within VERDICT_SECONDS."""
        monotonic = self._system.clock.monotonic
        deadline, pause = monotonic() + min(VERDICT_SECONDS, self.plan.drain_seconds), 0.02
        while (left := deadline - monotonic()) > 0:
            # Time is left for another read, which a collector that has been restarted meanwhile receives.
            answer = self.link.read("scores", -1, 1, self.plan.job.key, 0.75 * left, 0.5 * left)
            if answer is not None and answer.rows:
                columns = wire.unpack(answer.columns, wire.READ_KINDS["scores"], answer.rows, strict=False)
                if columns["final"][0]:
                    return str(columns["sentence"][0])
            self.link.pump(pause)
            pause = min(2.0 * pause, VERDICT_POLL_SECONDS)
        return ""

    def close(self) -> None:
        """Close; undelivered messages stay on disk for the next sidecar."""
        self.link.close()
        self._rings.close()
        self._spool.close()

    def delete(self) -> None:
        """Close, and delete rings and spool."""
        self.link.close()
        self._rings.close()
        delete_rings(self.plan, self._system.disk)
        # Before the database: a plan without it would be the plan of a run that has not begun.
        with contextlib.suppress(OSError):
            self._system.disk.unlink(self.directory / PLAN)
        self._spool.remove()

    def _connect(self) -> Link:
        key = maker = None
        try:
            key = keys.from_environment(self._environment)
        except keys.KeyFileError as error:
            self._note(str(error))
        if key is not None and key.role == "agent":
            kept = self.directory / TOKEN
            credential.keep_token(self._environment, self.plan.job.key, kept)
            maker = credential.maker(self._environment, kept)
        return Link(self.plan.endpoint, self.plan.stream, self._spool, key=key, credential=maker, system=self._system)

    def _load(self) -> None:
        """Continue from the last commit."""
        plan, system, mark = self.plan, self._system, self._spool.mark
        self._state = state = msgspec.json.decode(mark, type=State) if mark else _first_state(plan)
        now, folder = system.clock.monotonic(), Path(plan.ring_directory)
        self._rings = rings = RingSet(
            folder, state.progress, plan.rows_per_second, claims=plan.has_companions, processes=system.processes
        )
        self._job = JobRows(plan, rings, state, self._environment, system, self._belongs, self._note)
        began = now - (system.clock.now() - plan.started_at) - STARTED_BEFORE_SECONDS
        self._sources: dict[str, RowSource] = {
            "work": self._job,
            "nodes": NodeRows(rings, state.reported, is_companion=plan.is_companion),
            RINGS: rings,
            "features": StableFeatures(Path(plan.feature_directory) if plan.feature_directory else folder, began),
            "kernel": self._pressures,
            "silence": SilenceRows(rings, state.silence, now),
        }

    def _belongs(self, pid: int) -> bool:
        """Whether a process is one of the run."""
        processes = self._system.processes
        process = pid, processes.born(pid)
        if process not in self._own:
            self._own[process] = self.plan.has(pid, processes)
        return self._own[process]

    def _must_hold(self) -> bool:
        """True while the spool is nearly full, the collector answers and the rings have room."""
        filled = self._spool.size + self._rings.backlog * ROW_BYTES
        full = filled > self.plan.spool_bytes * HOLD_SHARE and self._spool.rows > 0
        return full and self.link.connected and not self._rings.half_full

    def _read_batch(self, now: float, *, final: bool) -> bool:
        """Read one batch of every ring into the spool, and what else is due; True if there may be more."""
        before = self._rings.position
        self._read("work", "nodes", now=now)
        for rows in self._read(RINGS, now=now, final=final):
            if rows.table == "node_blocks":
                self._pressures.add_work(rows.values)
        self._report_rings()
        if not final:
            self._read("features", "kernel", *(() if self.is_hurried else ("silence",)), now=now)
        moved = self._rings.position > before
        if moved or self._rings.retires or self._spool.next_seq > self._spool.last_seq + 1:
            self._commit()
            self._rings.release()
        # After a partial batch, the next step reads the few records written since.
        return moved and (final or self._rings.half_full or self._rings.backlog >= BATCH)

    def _read(self, *sources: str, now: float, final: bool = False) -> list[TableRows]:
        """Spool what is due of sources, by name. A failure of one is reported, and ends none but that of RINGS."""
        monotonic, read = self._system.clock.monotonic, list[TableRows]()
        for name in sources:
            cost, began = self._costs.setdefault(name, SourceCost(name)), monotonic()
            try:
                found = list(self._sources[name].read(now, final=final))
            except Exception as error:  # a defect, or what nobody has foreseen in a file of this node
                if name == RINGS:
                    raise
                cost.failures += 1
                self._report(name, "source-failed", f"{name}: {error!r}")
                continue
            for rows in found:
                self._append(rows)
            cost.rows += sum(rows.length for rows in found)
            cost.microseconds += round(1e6 * (monotonic() - began))
            read += found
        return read

    def _end(self, now: float) -> CommandEnd | None:
        """How the run ended; None while it runs. Read before the rings, which are complete if it has ended."""
        if self.plan.step_directory:
            return self._end_of_processes(now)
        if not self.may_end:
            return None
        processes, unix = self._system.processes, self._system.clock.now()
        end = load_end(self.directory, self.plan, self._system.disk)
        if end is None:
            if self.plan.launcher_lives(processes) or self.plan.command_lives(processes):
                return None
            return CommandEnd(unix, math.nan, UNKNOWN_STATUS)
        self.is_hurried = 0 <= unix - end.ended_at < STRAGGLERS_SECONDS and self.plan.command_lives(processes)
        return None if self.is_hurried else end

    def _end_of_processes(self, now: float) -> CommandEnd | None:
        """The end of a run without a launcher: no process is left, twice in a row, and no ring has come between.

        An orphan, for which nobody looks for rings, ends at once.
        """
        is_gone, is_orphan = self.is_gone, self.plan.launcher != self._system.processes.own()
        gone_seconds = self._gone.seconds((is_gone, len(self._rings.ranks_here)), now)
        has_lingered = gone_seconds > (LINGER_SECONDS if self.plan.is_companion else 0.0)
        if not (is_gone and (has_lingered or is_orphan)):
            self.is_hurried = is_gone
            return None
        rings = [rank.ring for rank in self._rings.ranks_here.values()]
        exited = [ring for ring in rings if ring.exit_status is not None]
        has_all, ended_at = bool(exited) and len(exited) == len(rings), self._system.clock.now()
        if has_all:
            ended_at = min(max(ring.exited_unix_ns for ring in exited) * 1e-9, ended_at)
        status = max((ring.exit_status or 0 for ring in exited), default=0) or (0 if has_all else UNKNOWN_STATUS)
        seconds = math.nan if is_orphan and not has_all else max(ended_at - self.plan.started_at, 0.0)
        return CommandEnd(ended_at, seconds, status)

    def _other_nodes_have_ended(self, now: float) -> bool:
        """Whether the run's other nodes have reported their ends, or have been waited for long enough.

        The end of the run follows their rows in the log, and counts what they have.
        """
        others, here = self._state.others, self._rings.worlds()
        if others.is_final or not self.plan.has_companions:
            return True
        if here and self._rings.launched <= here.keys() and not OtherNodes().unseen_ranks(here):
            return True  # there are none
        self.is_hurried = True
        self._waits_since = min(self._waits_since, now)
        if now - self._nodes_read_at < READ_EVERY_SECONDS:
            return False
        self._nodes_read_at = now
        answered = self.link.connected and others.read(self.link.read, self.plan.job.key, self.plan.job.host)
        may_come = others.unfinished or self._job.is_unknown
        patience = self.plan.drain_seconds if may_come else min(UNSEEN_SECONDS, self.plan.drain_seconds)
        is_complete = answered and not others.unfinished and not others.unseen_ranks(here)
        others.is_final = is_complete or now - self._waits_since >= patience
        if others.is_final and others.unfinished:
            self._note(f"no end reported by {', '.join(others.unfinished[:8])}")
        return others.is_final

    def _append_end(self, end: CommandEnd, now: float) -> None:
        state = self._state
        state.unknown = self._job.is_unknown
        self._read("work", "features", "kernel", "nodes", now=now, final=True)
        counted = zip(self._rings.counted(), state.others.counted, strict=True)
        state.seen, state.dropped = (here + elsewhere for here, elsewhere in counted)
        if self.plan.has_companions or (self.reports_job and not self.plan.is_companion):
            values = msgspec.structs.asdict(end) | {"intervals": state.seen, "dropped": state.dropped, "imported": 0}
            self._append(TableRows("runs", 1, values))
        self._append(TableRows("sidecars", 1, self._cost()))
        if self.plan.is_companion:
            numbers = {cursor.world for cursor in state.progress.cursors.values()} | set(state.progress.taken)
            done = Earlier(sorted(numbers), announced=state.has_job)
            done.leave(Path(self.plan.ring_directory), self._system.disk)
        state.ended = True
        self._commit()
        # Rings occupy memory, and their content is on disk now.
        self.left = frozenset(self._rings.fresh() if self.plan.is_companion else ())
        self._rings.close()
        delete_rings(self.plan, self._system.disk, self.left)

    def _cost(self) -> dict[str, Any]:
        """The row of `sidecars`."""
        return {
            "cpu_seconds": self._system.clock.processor_seconds(),
            "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "lived_seconds": self._system.clock.monotonic() - self._created_at,
            "steps": self.steps,
            "longest_step_seconds": self._longest,
            "clock_error_seconds": self._system.clock.error_seconds(),
            "sources": msgspec.json.encode(list(self._costs.values())).decode(),
        }

    def _report_rings(self) -> None:
        """Report what is wrong with rings."""
        for name, error in sorted(self._rings.unreadable.items()):
            self._report(name, "ring-unreadable", str(error))
        if ranks := self._rings.too_fast:
            which = ", ".join(map(str, ranks[:8]))
            rate = f"a call comes more than {MAX_RECORD_RATE:,.0f} times a second, iterations are not recorded"
            self._report(TOO_FAST, TOO_FAST, f"rank {which}: {rate}")

    def _report(self, name: str, kind: str, detail: str) -> None:
        """Note a problem and append a row of `events`, once for each name."""
        if name not in self._state.events:
            self._note(detail)
            self._append(TableRows("events", 1, {"kind": kind, "rows": 0, "detail": detail}))
            self._state.events.add(name)

    def _append(self, rows: TableRows) -> None:
        """Spool rows. Columns job, host, source and time, if the table has them, have defaults."""
        job = self.plan.job
        own: dict[str, Any] = {"job": job.key, "host": job.host, "source": job.key, "time": self._system.clock.now()}
        message = wire.append(self.plan.stream, self._spool.next_seq, rows.table, rows.length, own | rows.values)
        # The spool counts intervals, so that stored, spooled and dropped ones add up to those seen by the shim.
        self._spool.put(rows.intervals, wire.encode(message))

    def _commit(self) -> None:
        self._spool.commit(msgspec.json.encode(self._state))

    def _refusals(self) -> list[str]:
        if self.link.trouble and not self.link.is_withheld and not self.link.refusals:
            return [f"not admitted by the collector: {self.link.trouble}"]
        return list(dict.fromkeys(f"refused by the collector: {refusal.detail}" for refusal in self.link.refusals))

    def _note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)


def _first_state(plan: RunPlan) -> State:
    announced = plan.earlier.announced
    return State(Progress(taken=plan.earlier.numbers), has_job=announced, has_work=announced)
