"""A run being watched: reads its rings into its spool and delivers that by its link, step by step."""

from __future__ import annotations

import math
import os
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from barograph_agent.deliver import credential, keys
from barograph_agent.deliver.link import Link
from barograph_agent.deliver.spool import SEGMENT_BYTES, Spool
from barograph_agent.feature_files.stable import StableFeatures
from barograph_agent.job.rules import RulesError
from barograph_agent.protocol import wire
from barograph_agent.reduce.blocks import ROW_BYTES
from barograph_agent.reduce.intervals import BATCH
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.settings import agent
from barograph_agent.sidecar.plan import TOKEN, CommandEnd, DeliveryReport, RunPlan, load_end

VERDICT_SECONDS = 4.0
"""How long to wait at the end of a run for the final score, within the time for delivery of the plan."""
HOLD_SHARE = 0.75
"""Beyond this share of the spool's cap intervals stay in the rings as long as these have room."""
STRAGGLERS_SECONDS = 2.0
"""How long to wait for ranks that outlive the command: those of a killed mpiexec end a moment after it."""
STARTED_BEFORE_SECONDS = 1.0
"""How much earlier than its plan says a run's first process may begin: the two are read from different clocks."""


class State(msgspec.Struct):
    """How far a run has been turned into messages; the spool's mark."""

    progress: Progress = msgspec.field(default_factory=Progress)
    announced: bool = False
    unreadable: set[str] = set()
    """Names of rings that were reported."""
    ended: bool = False
    seen: int = 0
    dropped: int = 0
    """`seen` and `dropped` are as they were when the run ended."""


class Watch:
    """Turns the rings of one run into messages and delivers them.

    After a crash, a new one of the same directory continues from the spool's last mark.
    Raises SpoolError where another process watches this run.
    """

    def __init__(
        self,
        directory: Path,
        plan: RunPlan,
        *,
        clock: Callable[[], float] = time.time,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.plan = plan
        self.directory = directory
        self.notes: list[str] = []
        self._clock = clock
        self._made_at = time.monotonic()
        self._spool = Spool(directory, plan.spool_bytes, segment_bytes)
        self._load()
        self.link = self._connect()

    @property
    def ended(self) -> bool:
        """True once the run's last message is in the spool."""
        return self._state.ended

    @property
    def delivered(self) -> bool:
        """True once the collector has everything."""
        return self.ended and self.link.idle

    def step(self) -> None:
        """Read the rings into the spool, and end the run if it has ended. A bad ring or disk does not raise."""
        if self._state.ended:
            return
        end = self._end()
        try:
            self._worlds.find()
            if self._waits():
                return
            while self._gather(final=end is not None):
                pass
            if end is not None:
                self._append_run(end)
        except OSError as error:
            # The disk is full or gone. The rings still hold what was not committed; the next step tries again.
            self._note(f"spool {self.directory}: {error.strerror}; holding intervals in memory rings")
            self._spool.rollback()
            self._worlds.close()
            self._load()

    def report(self) -> DeliveryReport:
        """Where the intervals so far are, and the verdict where there is one."""
        state = self._state
        seen, missing = (state.seen, state.dropped) if state.ended else self._worlds.counted()
        spooled = self._spool.rows
        gone = self.link.dropped_rows.total() + (self._spool.dropped.rows if self._spool.dropped else 0)
        return DeliveryReport(
            ranks=state.progress.ranks,
            seen=seen,
            stored=max(self._worlds.rows - spooled - gone, 0),
            spooled=spooled,
            dropped=missing + gone,
            reached=self.link.connected,
            verdict=self._verdict() if self.delivered else "",
            notes=self.notes + self._refusals(),
            delivered=self.delivered,
        )

    def close(self) -> None:
        """Close; what is undelivered stays on disk for the next watch."""
        self.link.close()
        self._worlds.close()
        self._spool.close()

    def forget(self) -> None:
        """Close, and delete rings and spool."""
        self.link.close()
        self._worlds.close()
        shutil.rmtree(self.plan.ring_directory, ignore_errors=True)
        self._spool.remove()

    def _connect(self) -> Link:
        key = None
        environment, complaint = agent.environment_or_complaint(os.environ)
        if complaint:
            self._note(complaint)
        try:
            key = keys.from_environment(environment)
        except keys.KeyFileError as error:
            self._note(str(error))
        maker = None
        if key is not None and key.role == "agent":
            kept = self.directory / TOKEN
            credential.keep_token(environment, self.plan.job.key, kept)
            maker = credential.maker(environment, kept)
        return Link(self.plan.endpoint, self.plan.stream, self._spool, key=key, credential=maker)

    def _waits(self) -> bool:
        """True while the spool is nearly full, the collector answers and the rings have room."""
        filled = self._spool.size + self._worlds.backlog * ROW_BYTES
        full = filled > self.plan.spool_bytes * HOLD_SHARE and self._spool.rows > 0
        return full and self.link.connected and not self._worlds.half_full

    def _load(self) -> None:
        """Continue from the last commit."""
        mark = self._spool.mark
        self._state = msgspec.json.decode(mark, type=State) if mark else State()
        rate = self.plan.rows_per_second
        self._worlds = RingSet(Path(self.plan.ring_directory), self._state.progress, rate)
        began = time.monotonic() - (self._clock() - self.plan.started_at) - STARTED_BEFORE_SECONDS
        self._settled = StableFeatures(Path(self.plan.feature_directory or self.plan.ring_directory), began)

    def _gather(self, *, final: bool) -> bool:
        """Read one batch of every ring into the spool; True where there may be more."""
        if self._worlds.known and not self._state.announced and self._speaks_for_job:
            self._append_job()
        before = self._worlds.position
        self._report_unreadable()
        for rows in self._worlds.read(final=final):
            self._append(rows.table, rows.length, rows.values, rows.intervals)
        self._report_unreadable()
        if not final:
            self._append_features(final=False)
        moved = self._worlds.position > before
        if moved or self._spool.next_seq > self._spool.last_seq + 1:
            self._commit()
            self._worlds.release()
        # After a batch that was not full, the next step reads the few records that have come meanwhile.
        return moved and (final or self._worlds.half_full or self._worlds.backlog >= BATCH)

    def _end(self) -> CommandEnd | None:
        """How the run ended, or None while it goes on. To be read before the rings: they are complete then."""
        end = load_end(self.directory)
        if end is None:
            if self.plan.launcher_lives or self.plan.command_lives:
                return None
            return CommandEnd(ended_at=self._clock(), runtime_seconds=math.nan, exit_status=-1)
        waited = self._clock() - end.ended_at
        return None if 0 <= waited < STRAGGLERS_SECONDS and self.plan.command_lives else end

    def _append_run(self, end: CommandEnd) -> None:
        if self._speaks_for_job and not self._state.announced:
            self._append_job()
        self._append_features(final=True)
        seen, missing = self._worlds.counted()
        if self._speaks_for_job:
            values = {
                "ended_at": end.ended_at,
                "runtime_seconds": end.runtime_seconds,
                "exit_status": end.exit_status,
                "intervals": seen,
                "dropped": missing,
            }
            self._append("runs", 1, values)
        cost = {
            "cpu_seconds": time.process_time(),
            "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "lived_seconds": time.monotonic() - self._made_at,
        }
        self._append("sidecars", 1, cost)
        self._state.ended, self._state.seen, self._state.dropped = True, seen, missing
        self._commit()
        # Rings take memory, and all of their content is on disk now.
        self._worlds.close()
        shutil.rmtree(self.plan.ring_directory, ignore_errors=True)

    @property
    def _speaks_for_job(self) -> bool:
        """True on the node of rank 0, and under a launcher, whose run has one sidecar."""
        return not self.plan.step_directory or self._worlds.has_first_rank

    def _append_features(self, *, final: bool) -> None:
        for rows in self._settled.read(final=final):
            self._append(rows.table, rows.length, rows.values)
        for reason, count in self._settled.lost.items():
            if final and count:
                self._append("events", 1, {"kind": f"features-{reason}", "rows": count, "detail": ""})

    def _append_job(self) -> None:
        try:
            job = self.plan.findings.settle(self.plan.job, self._state.progress.program)
        except RulesError as error:
            job = self.plan.job.seen_as(self._state.progress.program)
            self._note(str(error))
        values = {
            "cluster": job.cluster,
            "workload": job.workload(self._state.progress.ranks, job.nodes),
            "app": job.app,
            "user": job.user,
            "params": msgspec.json.encode(job.params).decode(),
            "ranks": self._state.progress.ranks,
            "nodes": job.nodes,
            "started_at": self.plan.started_at,
            "scheduler": job.scheduler,
            "account": job.account,
            "unique_id": job.unique_id,
        }
        self._append("jobs", 1, values)
        self._state.announced = True

    def _append(self, table: str, rows: int, values: dict[str, Any], intervals: int = 0) -> None:
        """Spool rows; columns that say whose they are, as far as the table has them, need not be in `values`."""
        job = self.plan.job
        own: dict[str, Any] = {"job": job.key, "host": job.host, "source": job.key, "at": self._clock()}
        message = wire.append(self.plan.stream, self._spool.next_seq, table, rows, own | values)
        # Counted in intervals: those spooled and dropped are to add up to those that the shim has seen.
        self._spool.put(intervals, wire.encode(message))

    def _commit(self) -> None:
        self._spool.commit(msgspec.json.encode(self._state))

    def _report_unreadable(self) -> None:
        for name, error in self._worlds.unreadable.items():
            if name not in self._state.unreadable:
                self._note(str(error))
                self._append("events", 1, {"kind": "ring-unreadable", "rows": 0, "detail": str(error)})
                self._state.unreadable.add(name)

    def _refusals(self) -> list[str]:
        if self.link.trouble and not self.link.refusals:
            return [f"not let in by the collector: {self.link.trouble}"]
        return list(dict.fromkeys(f"refused by the collector: {refusal.detail}" for refusal in self.link.refusals))

    def _note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)

    def _verdict(self) -> str:
        deadline = time.monotonic() + min(VERDICT_SECONDS, self.plan.drain_seconds)
        while (left := deadline - time.monotonic()) > 0:
            answer = self.link.read("scores", -1, 1, self.plan.job.key, min(left, 1.0))
            if answer is not None and answer.rows:
                columns = wire.unpack(answer.columns, wire.READ_KINDS["scores"], answer.rows, strict=False)
                if columns["final"][0]:
                    return str(columns["sentence"][0])
            self.link.pump(0.1)
        return ""
