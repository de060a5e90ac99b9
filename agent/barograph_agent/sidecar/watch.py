"""One watched run: reads its rings into its spool and delivers the spool by a link."""

from __future__ import annotations

import contextlib
import math
import os
import resource
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from barograph_agent.deliver import credential, keys
from barograph_agent.deliver.link import Link
from barograph_agent.deliver.spool import SEGMENT_BYTES, Spool
from barograph_agent.feature_files.stable import StableFeatures
from barograph_agent.job.rules import RulesError
from barograph_agent.kernel.pressures import Pressures
from barograph_agent.loops.loop import MAX_RECORD_RATE
from barograph_agent.protocol import wire
from barograph_agent.reduce.blocks import ROW_BYTES
from barograph_agent.reduce.intervals import BATCH
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.settings import agent
from barograph_agent.sidecar import earlier
from barograph_agent.sidecar.others import POLL_SECONDS, UNKNOWN_SECONDS, OtherNodes
from barograph_agent.sidecar.plan import (
    PLAN,
    TOKEN,
    VERDICT_SECONDS,
    CommandEnd,
    DeliveryReport,
    RunPlan,
    load_end,
)
from barograph_agent.sidecar.silence import Silence, Silences
from barograph_agent.system.system import SYSTEM, System
from barograph_agent.work import investigation
from barograph_agent.work.command import script_of
from barograph_agent.work.inquiry import Inquiry
from barograph_agent.work.planned import Launcher, PlannedCommand, investigate_ended, parse_planned

VERDICT_POLL_SECONDS = 0.2
"""Most time between two reads of it; the first ones follow each other faster."""
HOLD_SHARE = 0.75
"""Beyond this share of the spool's cap, intervals stay in the rings while these have room."""
STRAGGLERS_SECONDS = 2.0
"""How long to wait for ranks that outlive the command: those of a killed mpiexec end shortly after it."""
SETTLED_SECONDS = 1.0
"""How long no further rank has been found on this node when its ranks are counted."""
FIRST_RANK_SECONDS = 0.5
"""How long to wait for the ring of rank 0 once there is one of another rank."""
DIGESTS = "digests.json"
"""Digests of files, in the user's directory of spools: files that have not changed are not read in every run."""
STARTED_BEFORE_SECONDS = 1.0
"""How much earlier than in its plan a run's first process may start: the two times come from different clocks."""


class State(msgspec.Struct):
    """Read position of a run; the spool's mark."""

    progress: Progress = msgspec.field(default_factory=Progress)
    announced: bool = False
    asked: bool = False
    """Whether the row of `works` is written."""
    unreadable: set[str] = set()
    """Names of rings reported as unreadable."""
    ended: bool = False
    seen: int = 0
    """Intervals counted by the shim; set at the end of the run, as is `dropped`."""
    dropped: int = 0
    silence: Silence = msgspec.field(default_factory=Silence)
    """As last reported."""
    reported: dict[int, int] = {}
    """Ranks here of each world, by number, as in its row of `nodes`."""
    others: OtherNodes = msgspec.field(default_factory=OtherNodes)
    loops: list[int] = []
    """Passes of the program's loops, set at the end of the run."""
    too_fast: bool = False
    """Whether it is reported that iterations are too short to be recorded."""


class Watch:
    """Converts the rings of one run into messages and delivers them.

    After a crash, a new Watch on the same directory continues from the spool's last mark.
    Raises SpoolError if another process watches this run.
    """

    def __init__(
        self,
        directory: Path,
        plan: RunPlan,
        *,
        system: System = SYSTEM,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.plan = plan
        self.directory = directory
        self.notes: list[str] = []
        self._system = system
        self._clock = system.clock.now
        self._created_at = system.clock.monotonic()
        self._fills = False
        self._has_stragglers = False
        self._spool = Spool(directory, plan.spool_bytes, segment_bytes, system.disk)
        self._load()
        self._environment, complaint = agent.environment_or_complaint(os.environ)
        if complaint:
            self._note(complaint)
        self._pressures = Pressures(
            system.clock,
            system.processes,
            belongs=lambda pid: plan.has(pid, system.processes),
            hides_others=agent.value_or_default("processes", self._environment) == "own",
        )
        self._work = agent.value_or_default("work", self._environment)
        self._inquiry: Inquiry | None = None
        self._known_at = math.inf
        self._asked_others_at, self._waits_since = -math.inf, math.inf
        self._asked_first_at = -math.inf
        self._counted, self._counted_at = 0, -math.inf
        self._world_ranks: dict[int, tuple[int, float]] = {}
        """Ranks here of each world, and since when there are so many."""
        self._reported_rings = -1
        """Rings whose worlds all have their row of `nodes`."""
        self._is_first: bool | None = None
        self.link = self._connect()

    @property
    def ended(self) -> bool:
        """True once the last message of the run is in the spool."""
        return self._state.ended

    @property
    def is_busy(self) -> bool:
        """True while the next step should not be late: rings fill fast, the command has left processes behind, or
        other nodes are waited for."""
        return self._fills or self._has_stragglers or self._asked_others_at > -math.inf

    @property
    def delivered(self) -> bool:
        """True once the collector has acknowledged everything."""
        return self.ended and self.link.idle

    def step(self) -> None:
        """Read the rings into the spool, and append the run's end if it has ended.

        Does not raise for unreadable rings and disk errors: they are noted, and the next step retries.
        """
        if self._state.ended:
            return
        end = self._end()
        try:
            self._ring_set.find()
            self._fills = self._ring_set.fills
            if self._must_hold():
                return
            while self._read_batch(final=end is not None):
                pass
            if end is not None:
                if self._others_are_settled():
                    self._append_run(end)
            elif not self._has_stragglers:
                self._append_silence()
        except OSError as error:
            # The disk is full or has failed. The rings still hold everything since the last commit.
            self._note(f"spool {self.directory}: {error.strerror}; holding intervals in memory rings")
            self._spool.rollback()
            self._ring_set.close()
            self._load()

    def report(self) -> DeliveryReport:
        """Counts of the intervals so far, and the verdict if there is one."""
        state = self._state
        seen, lost = (state.seen, state.dropped) if state.ended else self._ring_set.counted()
        spooled = self._spool.rows
        dropped = self.link.dropped_rows.total() + (self._spool.dropped.rows if self._spool.dropped else 0)
        others, here = state.others, self._ring_set.worlds()
        ranks = max(state.progress.ranks, others.world)
        return DeliveryReport(
            ranks=ranks,
            seen=seen,
            stored=max(self._ring_set.rows - spooled - dropped, 0) + others.seen - others.lost,
            spooled=spooled,
            dropped=lost + dropped,
            loops=state.loops,
            reached=self.link.connected,
            verdict=self.verdict() if self.delivered else "",
            notes=self.notes + self._refusals(),
            delivered=self.delivered,
            trouble=self.link.trouble if self.link.is_withheld else "",
            nodes=len(others.hosts) + bool(here),
            unseen_ranks=others.unseen_ranks(here) if self.plan.has_companions else 0,
        )

    def verdict(self) -> str:
        """Wait for the sentence of the final score; empty where none comes within VERDICT_SECONDS."""
        monotonic = self._system.clock.monotonic
        deadline, pause = monotonic() + min(VERDICT_SECONDS, self.plan.drain_seconds), 0.02
        while (left := deadline - monotonic()) > 0:
            # Time is left for another one, which a collector that has been restarted meanwhile receives.
            answer = self.link.read("scores", -1, 1, self.plan.job.key, 0.75 * left, 0.5 * left)
            if answer is not None and answer.rows:
                columns = wire.unpack(answer.columns, wire.READ_KINDS["scores"], answer.rows, strict=False)
                if columns["final"][0]:
                    return str(columns["sentence"][0])
            self.link.pump(pause)
            pause = min(2.0 * pause, VERDICT_POLL_SECONDS)
        return ""

    def close(self) -> None:
        """Close; undelivered messages stay on disk for the next watch."""
        self.link.close()
        self._ring_set.close()
        self._spool.close()

    def delete(self) -> None:
        """Close, and delete rings and spool."""
        self.link.close()
        self._ring_set.close()
        self._system.disk.remove_tree(Path(self.plan.ring_directory))
        # Before the segments: a plan without them would be the plan of a run that has not begun.
        with contextlib.suppress(OSError):
            self._system.disk.unlink(self.directory / PLAN)
        self._spool.remove()

    def _connect(self) -> Link:
        key = None
        try:
            key = keys.from_environment(self._environment)
        except keys.KeyFileError as error:
            self._note(str(error))
        maker = None
        if key is not None and key.role == "agent":
            kept = self.directory / TOKEN
            credential.keep_token(self._environment, self.plan.job.key, kept)
            maker = credential.maker(self._environment, kept)
        return Link(self.plan.endpoint, self.plan.stream, self._spool, key=key, credential=maker, system=self._system)

    def _must_hold(self) -> bool:
        """True while the spool is nearly full, the collector answers and the rings have room."""
        filled = self._spool.size + self._ring_set.backlog * ROW_BYTES
        full = filled > self.plan.spool_bytes * HOLD_SHARE and self._spool.rows > 0
        return full and self.link.connected and not self._ring_set.half_full

    def _load(self) -> None:
        """Continue from the last commit."""
        mark = self._spool.mark
        self._state = msgspec.json.decode(mark, type=State) if mark else self._first_state()
        rate = self.plan.rows_per_second
        directory, claims = Path(self.plan.ring_directory), self.plan.has_companions
        self._ring_set = RingSet(directory, self._state.progress, rate, claims=claims)
        self._silences = Silences(self._state.silence, self._system.clock.monotonic())
        began = self._system.clock.monotonic() - (self._clock() - self.plan.started_at) - STARTED_BEFORE_SECONDS
        features = Path(self.plan.feature_directory) if self.plan.feature_directory else directory
        self._features = StableFeatures(features, began, self._system.clock)

    def _first_state(self) -> State:
        before = self.plan.earlier
        progress = Progress(ranks=before.size, program=before.program, taken=before.numbers)
        return State(progress, announced=before.announced, asked=before.asked)

    def _leave(self) -> None:
        """Leave to the next companion of the run on this node what it has to continue."""
        state = self._state
        done = earlier.Earlier(
            numbers=sorted({cursor.world for cursor in state.progress.cursors.values()} | set(state.progress.taken)),
            size=state.progress.ranks,
            ranks=self._ranks_here,
            announced=state.announced,
            asked=state.asked,
            program=state.progress.program,
        )
        earlier.leave(Path(self.plan.ring_directory), done, self._system.disk)

    def _read_batch(self, *, final: bool) -> bool:
        """Read one batch of every ring into the spool; True if there may be more."""
        if self._ring_set.known:
            self._append_work(final=final)
            self._append_job()
            self._append_nodes(ended=False)
        before = self._ring_set.position
        self._report_unreadable()
        for rows in self._ring_set.read(final=final, now=self._system.clock.monotonic()):
            self._append(rows.table, rows.length, rows.values, rows.intervals)
            if rows.table == "node_blocks":
                self._pressures.add_work(rows.values)
        self._report_unreadable()
        self._report_too_fast()
        if not final:
            self._append_features(final=False)
            self._append_pressures(final=False)
        moved = self._ring_set.position > before
        if moved or self._spool.next_seq > self._spool.last_seq + 1:
            self._commit()
            self._ring_set.release()
        # After a partial batch, the next step reads the few records written since.
        return moved and (final or self._ring_set.half_full or self._ring_set.backlog >= BATCH)

    def _end(self) -> CommandEnd | None:
        """How the run ended; None while it runs. Read before the rings, which are complete if it has ended."""
        processes = self._system.processes
        end = load_end(self.directory, self._system.disk)
        if end is None:
            if self.plan.launcher_lives(processes) or self.plan.command_lives(processes):
                return None
            return CommandEnd(ended_at=self._clock(), runtime_seconds=math.nan, exit_status=-1)
        waited = self._clock() - end.ended_at
        self._has_stragglers = 0 <= waited < STRAGGLERS_SECONDS and self.plan.command_lives(processes)
        return None if self._has_stragglers else end

    def _others_are_settled(self) -> bool:
        """Whether the other nodes of the run have ended, or have been waited for long enough: their rows come first."""
        others = self._state.others
        if others.settled or not self.plan.has_companions:
            return True
        here = self._ring_set.worlds()
        if here and self._ring_set.launched <= here.keys() and not OtherNodes().unseen_ranks(here):
            return True  # there are none
        now = self._system.clock.monotonic()
        if now - self._asked_others_at < POLL_SECONDS:
            return False
        self._waits_since, self._asked_others_at = min(self._waits_since, now), now
        answered = self.link.connected and others.read(self.link.read, self.plan.job.key, self.plan.job.host)
        patience = self.plan.drain_seconds if others.unfinished else min(UNKNOWN_SECONDS, self.plan.drain_seconds)
        others.settled = (answered and others.is_complete(here)) or now - self._waits_since >= patience
        if others.settled and others.unfinished:
            self._note(f"no end reported by {', '.join(others.unfinished[:8])}")
        return others.settled

    def _append_nodes(self, *, ended: bool) -> None:
        """Append a row for each world on this node that has ended, or of which there are other ranks than reported."""
        reported, rings = self._state.reported, len(self._state.progress.cursors)
        if not ended and self._reported_rings == rings:
            return
        due, all_settled, now = [], True, self._system.clock.monotonic()
        for number, world in self._ring_set.worlds().items():
            ranks, since = self._world_ranks.get(number, (0, now))
            if world.ranks != ranks:
                self._world_ranks[number] = world.ranks, (since := now)
            is_settled = world.ranks >= world.size or now - since >= SETTLED_SECONDS
            all_settled = all_settled and is_settled
            # The launcher's waits for nodes of which it knows; so a companion does not wait for further ranks.
            is_due = (is_settled and world.ranks < world.size) or (self.plan.is_companion and number not in reported)
            if ended or ((is_due or (is_settled and number in reported)) and world.ranks != reported.get(number)):
                due.append((number, world))
                reported[number] = world.ranks
        self._reported_rings = rings if all_settled else -1
        if due:
            columns = {
                "world": [world.size for _, world in due],
                "ranks": [world.ranks for _, world in due],
                "first": [int(world.lowest == 0) for _, world in due],
                "intervals": [world.seen for _, world in due],
                "dropped": [world.lost for _, world in due],
                "number": [number for number, _ in due],
                "lowest": [world.lowest for _, world in due],
            }
            self._append("nodes", len(due), columns | {"ended": int(ended)})

    def _has_all_ranks(self) -> bool:
        """Whether the ranks on this node are counted, where the number of nodes follows from that.

        They are once all of the world are here, or no further one was found for SETTLED_SECONDS.
        """
        if not self._counts_nodes:
            return True
        here, now = self._ranks_here, self._system.clock.monotonic()
        if here != self._counted:
            self._counted, self._counted_at = here, now
        return here >= self._state.progress.ranks or now - self._counted_at >= SETTLED_SECONDS

    @property
    def _counts_nodes(self) -> bool:
        return self.plan.job.nodes == 1 and (self.plan.is_companion or self.plan.has_companions)

    @property
    def _nodes(self) -> int:
        """Nodes of the run: of the allocation, or as many as have room for all ranks like this one."""
        if not self._counts_nodes:
            return self.plan.job.nodes
        return -(-self._state.progress.ranks // max(self._ranks_here, 1)) or 1

    @property
    def _ranks_here(self) -> int:
        """Ranks on this node of the first world that has any here."""
        return self.plan.earlier.ranks or next((one.ranks for one in self._ring_set.worlds().values()), 0)

    def _append_run(self, end: CommandEnd) -> None:
        self._append_command()
        self._append_job(final=True)
        self._append_features(final=True)
        self._append_pressures(final=True)
        self._append_nodes(ended=True)
        seen, lost = self._ring_set.counted()
        seen, lost = seen + self._state.others.seen, lost + self._state.others.lost
        if self.plan.has_companions or (self.reports_job and not self.plan.is_companion):
            values = {
                "ended_at": end.ended_at,
                "runtime_seconds": end.runtime_seconds,
                "exit_status": end.exit_status,
                "intervals": seen,
                "dropped": lost,
                "imported": 0,
            }
            self._append("runs", 1, values)
        cost = {
            "cpu_seconds": self._system.clock.processor_seconds(),
            "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "lived_seconds": self._system.clock.monotonic() - self._created_at,
        }
        self._append("sidecars", 1, cost)
        if self.plan.is_companion:
            self._leave()
        self._state.ended, self._state.seen, self._state.dropped = True, seen, lost
        self._state.loops = self._ring_set.passes()
        self._commit()
        # Rings occupy memory, and their content is on disk now.
        self._ring_set.close()
        self._system.disk.remove_tree(Path(self.plan.ring_directory))

    @property
    def reports_job(self) -> bool:
        """True on the node of rank 0, and under a launcher whose run has one sidecar."""
        if self._ring_set.has_first_rank:
            return True
        return not (self.plan.step_directory or self.plan.has_companions)

    def _announces(self, *, final: bool) -> bool:
        """Whether the job's rows of `jobs` and `works` are this sidecar's: it has rank 0 of the first of its worlds.

        That is in the log where it is not the first that was launched. final: without an answer, it is the first.
        """
        if not self.reports_job:
            return False
        number = self._ring_set.first_number
        if not number or not (self.plan.is_companion or self.plan.has_companions):
            return True
        now = self._system.clock.monotonic()
        if self._is_first is None and self.link.connected and (final or now - self._asked_first_at >= POLL_SECONDS):
            self._asked_first_at = now
            before = OtherNodes()
            if before.read(self.link.read, self.plan.job.key, self.plan.job.host):
                self._is_first = not before.has_first_below(number)
        return final if self._is_first is None else self._is_first

    def _append_features(self, *, final: bool) -> None:
        for rows in self._features.read(final=final):
            self._append(rows.table, rows.length, rows.values)
        for reason, count in self._features.lost.items():
            if final and count:
                self._append("events", 1, {"kind": f"features-{reason}", "rows": count, "detail": ""})

    def _append_pressures(self, *, final: bool) -> None:
        if columns := self._pressures.read(self._ring_set.ranks(), final=final):
            self._append("pressures", len(columns["rank"]), columns)

    def _append_work(self, *, final: bool) -> None:
        """Append the row of `works`, once per run, when it is known what was asked for."""
        first = self._ring_set.first
        if self._state.asked or self._work == "none" or first is None or not self._announces(final=final):
            return
        now = self._system.clock.monotonic()
        self._known_at = min(self._known_at, now)
        has_waited = now - self._known_at >= FIRST_RANK_SECONDS or final
        if not (final or self._has_all_ranks()):
            return
        if self._inquiry is None and (self._ring_set.has_first_rank or has_waited):
            self._inquiry = self._inquire(*first)
        if self._inquiry is not None and (columns := self._inquiry.columns(final=final)):
            self._append_evidence(columns)

    def _append_evidence(self, columns: dict[str, Any]) -> None:
        ranks, nodes = self._told_ranks, self._nodes
        own = {"ranks": ranks, "nodes": nodes, "ranks_per_node": -(-ranks // max(nodes, 1))}
        self._append("works", 1, own | columns)
        self._state.asked = True

    def _append_command(self) -> None:
        """Append the row of `works` of a run that has ended and was not seen: its command tells what was asked for."""
        if self._state.asked or self._work == "none" or (command := self._command) is None:
            return
        launcher = Launcher(self.plan.launcher, self.plan.started_at)
        ask = partial(investigate_ended, command, launcher, self._environment, self._rules, self._system)
        self._append_evidence(Inquiry(self._system, ask).columns(final=True))

    def _inquire(self, pid: int, program: str) -> Inquiry:
        system = self._system
        subject = investigation.Subject(pid, program, lambda one: self.plan.has(one, system.processes))
        return Inquiry(system, partial(investigation.investigate, subject, self._rules, system))

    @property
    def _rules(self) -> investigation.WorkRules:
        salt = self._environment.get("BAROGRAPH_SALT")
        return investigation.WorkRules(
            self.plan.job.cluster,
            Path(salt) if salt else None,
            self.directory.parent / DIGESTS,
            plain=self._work == "plain",
            numbers=self._work in ("numbers", "plain"),
        )

    @cached_property
    def _command(self) -> PlannedCommand | None:
        """What the launcher of a run that has ended had started, while it lives, if no rank was seen on any node."""
        unseen = self._ring_set.first is None and not self._state.others.has_first
        if not unseen or not self.plan.command or not self.plan.launcher_lives(self._system.processes):
            return None
        return parse_planned(self.plan.command, self._environment)

    @property
    def _told_ranks(self) -> int:
        """Ranks of the run; of one that was not seen those that a launcher was told to start, 0 without one."""
        told = None if self._ring_set.known or self._command is None else self._command.ranks
        return told if told is not None and told > 1 else self._state.progress.ranks

    def _append_job(self, *, final: bool = False) -> None:
        """Append the row of `jobs`, once per run and by one of its sidecars. final: if no other has done it."""
        is_left = final and self.plan.has_companions and not self._state.others.has_first
        if self._state.announced:
            return
        if not is_left and not ((final or self._has_all_ranks()) and self._announces(final=final)):
            return
        progress, job = self._state.progress, self.plan.job
        if (first := self._ring_set.first) is not None and self.plan.has(first[0], self._system.processes):
            job = job.named_by(script_of(first[1], self._system.processes.command(first[0])))
        try:
            job = self.plan.findings.apply_to(job, progress.program)
        except RulesError as error:
            job = job.named_by(progress.program)
            self._note(str(error))
        self._append("jobs", 1, job.row(self._told_ranks, self._nodes, self.plan.started_at))
        self._state.announced = True

    def _append(self, table: str, rows: int, values: dict[str, Any], intervals: int = 0) -> None:
        """Spool rows. Columns job, host, source and at, if the table has them, have defaults."""
        job = self.plan.job
        own: dict[str, Any] = {"job": job.key, "host": job.host, "source": job.key, "at": self._clock()}
        message = wire.append(self.plan.stream, self._spool.next_seq, table, rows, own | values)
        # The spool counts intervals, so that stored, spooled and dropped ones add up to those seen by the shim.
        self._spool.put(intervals, wire.encode(message))

    def _append_silence(self) -> None:
        """Report that no interval has ended for some time, if so: what is late in the log says nothing about it."""
        if (silence := self._ring_set.silence) is None:
            return
        due = self._silences.step(*silence, self._system.clock.monotonic())
        if due and (ranks := self._ring_set.living(self._system.processes)):
            self._state.silence = msgspec.structs.replace(self._silences.current)
            values = {"since": self._state.silence.since, "at": self._state.silence.at, "ranks": ranks}
            self._append("silences", 1, values)
            self._commit()

    def _commit(self) -> None:
        self._spool.commit(msgspec.json.encode(self._state))

    def _report_too_fast(self) -> None:
        """Report, once, that there are no iterations of some ranks."""
        if self._state.too_fast or not (ranks := self._ring_set.too_fast):
            return
        self._state.too_fast = True
        which = ", ".join(map(str, ranks[:8]))
        detail = (
            f"rank {which}: a call comes more than {MAX_RECORD_RATE:,.0f} times a second, iterations are not recorded"
        )
        self._note(detail)
        self._append("events", 1, {"kind": "iterations-too-fast", "rows": 0, "detail": detail})

    def _report_unreadable(self) -> None:
        for name, error in self._ring_set.unreadable.items():
            if name not in self._state.unreadable:
                self._note(str(error))
                self._append("events", 1, {"kind": "ring-unreadable", "rows": 0, "detail": str(error)})
                self._state.unreadable.add(name)

    def _refusals(self) -> list[str]:
        if self.link.trouble and not self.link.is_withheld and not self.link.refusals:
            return [f"not admitted by the collector: {self.link.trouble}"]
        return list(dict.fromkeys(f"refused by the collector: {refusal.detail}" for refusal in self.link.refusals))

    def _note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)
