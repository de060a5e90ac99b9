"""A recorded run in simulated time, through agent, log, modeler and alerts."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

from barograph_agent.job.identity import clean
from barograph_agent.reduce.blocks import Budget, reduce
from barograph_agent.reduce.intervals import Cursor, IntervalReader
from barograph_agent.ring.reader import Ring
from barograph_agent.sidecar.silence import Silence, Silences
from barograph_alerts.main import TABLES as ALERTS_TABLES
from barograph_alerts.processor import Scorer
from barograph_collector.client.follow import Follower
from barograph_collector.daemon.runner import Runner
from barograph_lab.replay.log import ReplayLog
from barograph_lab.replay.members import stretches
from barograph_lab.replay.ring import TraceRing
from barograph_lab.replay.trace import Trace
from barograph_lab.replay.workers import worker_pages
from barograph_modeler.learning.jobs import VERDICT_SECONDS
from barograph_modeler.learning.learner import Learner
from barograph_modeler.main import TABLES as MODELER_TABLES

CYCLE_SECONDS: Final = 1.0
"""Simulated time between reads of the log by the daemons."""
MODELER_CYCLES: Final = 10
"""Cycles between reads by the modeler, whose output during a run does not affect the score of that run."""


class Simulation:
    """One service in one directory, whose clock follows the recorded runs.

    workload: of all runs. alpha, margin, window_seconds, seed: as for the daemons.
    """

    def __init__(
        self,
        log: ReplayLog,
        workload: str,
        *,
        alpha: float,
        margin: float,
        window_seconds: float,
        seed: int = 0,
    ) -> None:
        self.now = 0.0
        self._log = log
        self._workload = workload
        self._runs = 0
        self._budget = Budget()
        self._silences = Silences(Silence(), 0.0)
        self._scorer = Scorer(alpha=alpha, margin=margin)
        learner = Learner(seed=seed, window_seconds=window_seconds)
        self._modeler = Runner(learner, Follower(log, MODELER_TABLES), log, lambda: self.now)
        self._alerts = Runner(self._scorer, Follower(log, ALERTS_TABLES), log, lambda: self.now)

    def learn(self, trace: Trace) -> None:
        """Pass a healthy run through the service in one step: the modeler learns it, the alerts do not score it."""
        job, ring, reader = self._begin(trace)
        self._show(job, ring, reader, ring.last_seconds)
        self._end(job, trace, ring)
        self._modeler.step()
        self.now += VERDICT_SECONDS + 1
        self._modeler.step()

    def judge(self, trace: Trace) -> list[dict[str, Any]]:
        """Pass a run through the service cycle by cycle; returns its rows of `scores`."""
        # The alerts read the history before the run starts.
        self._alerts.step()
        job, ring, reader = self._begin(trace)
        work = stretches(trace)
        workers = deque(worker_pages(trace, ring))
        added = cycle = 0
        while not ring.ended:
            cycle += 1
            elapsed = cycle * CYCLE_SECONDS
            self._show(job, ring, reader, elapsed)
            end = bisect_right(work, self.now, key=lambda stretch: stretch.ended_at)
            self._scorer.add_work(job, work[added:end])
            added = end
            while workers and workers[0].ended_at <= self.now:
                page = workers.popleft()
                self._log.put("workers", page.rows, {"job": job, "host": "replay", **page.columns})
            if cycle % MODELER_CYCLES == 0:
                self._modeler.step()
            self._alerts.step()
        self._end(job, trace, ring)
        self._alerts.step()
        self._modeler.step()
        return self._scores(job)

    def _begin(self, trace: Trace) -> tuple[str, TraceRing, IntervalReader]:
        self._runs += 1
        self._budget = Budget()
        self._silences = Silences(Silence(), 0.0)
        started_at = trace.started_unix_ns * 1e-9
        self.now = max(self.now, started_at) if self._runs == 1 else started_at
        job = f"replay/{self._runs}.0.{clean(trace.file.stem, 'trace')}"
        app = clean(trace.app, "unknown")
        row = {"job": job, "cluster": "replay", "workload": self._workload, "app": app, "user": "replay",
               "params": "{}", "ranks": trace.size, "nodes": 1, "host": "replay", "started_at": started_at,
               "scheduler": "none", "account": "", "unique_id": ""}  # fmt: skip
        self._log.put("jobs", 1, row)
        ring = TraceRing(trace)
        # A TraceRing has every attribute of a Ring that an IntervalReader uses.
        return job, ring, IntervalReader(cast(Ring, ring), Cursor(world=0))

    def _show(self, job: str, ring: TraceRing, reader: IntervalReader, seconds: float) -> None:
        ring.advance(seconds)
        self.now = ring.started_unix_ns * 1e-9 + seconds
        while reader.cursor.position < ring.head:
            intervals, sites = reader.read()
            if sites:
                self._log.put("sites", len(sites["class_id"]), {"job": job, **sites})
            if intervals is not None and len(intervals.class_ids):
                blocks = reduce(intervals, self._budget.allow(float(intervals.ended_at[-1])))
                self._budget.spend(len(blocks["count"]))
                self._log.put("blocks", len(blocks["count"]), {"job": job, "world": 0, **blocks})
        if not ring.ended and self._silences.step(ring.head, reader.ended_at, seconds):
            silence = self._silences.current
            row = {"job": job, "host": "replay", "since": silence.since, "time": silence.at, "ranks": ring.size}
            self._log.put("silences", 1, row)

    def _end(self, job: str, trace: Trace, ring: TraceRing) -> None:
        runtime = ring.last_seconds
        self.now = max(self.now, trace.started_unix_ns * 1e-9 + runtime)
        row = {"job": job, "ended_at": self.now, "runtime_seconds": runtime, "exit_status": 0, "intervals": ring.head,
               "dropped": 0, "imported": 0}  # fmt: skip
        self._log.put("runs", 1, row)

    def _scores(self, job: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = 0
        while (page := self._log.read("scores", after, job=job)).rows:
            found += [dict(zip(page.columns, row, strict=True)) for row in zip(*page.columns.values(), strict=True)]
            after = page.next_offset
        return found


def replay(directory: Path, trace: Trace, history: Sequence[Trace], **settings: Any) -> list[dict[str, Any]]:
    """Learn the history, then score the trace; returns its rows of `scores`.

    directory: empty, for the log. settings: those of `Simulation`.
    """
    workload = f"replay/{clean(trace.app, 'unknown')}@{trace.size}x1"
    with closing(ReplayLog(directory)) as log:
        simulation = Simulation(log, workload, **settings)
        for run in history:
            simulation.learn(run)
        return simulation.judge(trace)
