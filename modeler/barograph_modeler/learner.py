"""The learner: rows in, rows out, no I/O. Everything the modeler daemon knows is here."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import numpy as np

from barograph_agent.wire import Column
from barograph_collector.station import Output
from barograph_modeler.maxima.band import Band
from barograph_modeler.pace import Pace
from barograph_modeler.pending import Batch, End, Pending
from barograph_modeler.windows import WINDOW_SECONDS
from barograph_modeler.workload import Workload

HOLD_SECONDS: Final = 60.0
"""How long intervals of a running job wait before they are learned: an alarm by then keeps them out."""
VERDICT_SECONDS: Final = 10.0
"""How long the end of a run waits for its final score; after that no alerts daemon is taken to be running."""
JOBS: Final = 20_000
WORKLOADS: Final = 5_000


class Learner:
    """Learns from healthy runs and says what it has learned.

    `take` rows of `jobs`, `blocks`, `runs` and `scores` as the log has them, `step` whenever everything up to some
    offset has been taken.
    """

    def __init__(self, *, seed: int = 0, window_seconds: float = WINDOW_SECONDS) -> None:
        self.workloads: OrderedDict[str, Workload] = OrderedDict()
        self.withheld_intervals = 0
        self.learned_intervals = 0
        self.learned_runs = 0
        self._seed = seed
        self._window_seconds = window_seconds
        self._pending: OrderedDict[str, Pending] = OrderedDict()

    @property
    def held_jobs(self) -> int:
        """Jobs that have begun and are not learned yet."""
        return len(self._pending)

    def take(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Take rows of one table as the log gives them. now: Unix seconds."""
        match table:
            case "jobs":
                for job, workload in zip(columns["job"], columns["workload"], strict=True):
                    self._job(job).workload = workload
            case "blocks":
                self._take_blocks(columns, now)
            case "runs":
                for job, runtime, status in zip(
                    columns["job"], columns["runtime_seconds"], columns["exit_status"], strict=True
                ):
                    self._job(job).end = End(float(runtime), int(status), now)
            case "scores":
                for job, score, final in zip(columns["job"], columns["score"], columns["final"], strict=True):
                    if job in self._pending:
                        self._pending[job].score = max(self._pending[job].score, float(score))
                        self._pending[job].final |= bool(final)

    def step(self, now: float) -> list[Output]:
        """Learn what may be learned by now and return what came of it. now: Unix seconds."""
        touched: dict[str, set[str]] = {}
        for job, pending in list(self._pending.items()):
            if not pending.workload:
                continue
            over = pending.end is not None and (pending.final or now - pending.end.seen_at > VERDICT_SECONDS)
            batches = pending.release(math.inf if over or pending.suspect else now - HOLD_SECONDS)
            if pending.suspect:
                self.withheld_intervals += sum(len(batch.seconds) for batch in batches)
            elif batches or over:
                touched.setdefault(pending.workload, set())
                self._learn(self._workload(pending.workload), batches)
            if over:
                self.withheld_intervals += pending.forgotten
                if not pending.suspect and self._learn_run(pending):
                    touched[pending.workload].add("run")
                del self._pending[job]
        return [output for name, what in touched.items() for output in self._outputs(name, "run" in what, now)]

    def _take_blocks(self, columns: Mapping[str, Column], now: float) -> None:
        at = 0
        for job, rows in itertools.groupby(columns["job"]):
            stop = at + sum(1 for _ in rows)
            count = np.asarray(columns["count"][at:stop])
            batch = Batch(
                np.asarray(columns["class_id"][at:stop]),
                np.asarray(columns["sum_seconds"][at:stop]) / count,
                np.asarray(columns["ended_at"][at:stop]),
            )
            pending = self._job(job)
            pending.add(batch, now)
            if pending.workload in self.workloads:
                self.workloads[pending.workload].judge(batch)
            at = stop

    def _job(self, job: str) -> Pending:
        if job not in self._pending:
            self._pending[job] = Pending(self._window_seconds)
            if len(self._pending) > JOBS:
                self._pending.popitem(last=False)
        return self._pending[job]

    def _workload(self, name: str) -> Workload:
        if name not in self.workloads:
            self.workloads[name] = Workload(self._seed)
            if len(self.workloads) > WORKLOADS:
                self.workloads.popitem(last=False)
        self.workloads.move_to_end(name)
        return self.workloads[name]

    def _learn(self, workload: Workload, batches: list[Batch]) -> None:
        for batch in batches:
            workload.learn_intervals(batch)
            self.learned_intervals += len(batch.seconds)

    def _learn_run(self, pending: Pending) -> bool:
        end = pending.end
        if end is None or end.exit_status != 0:
            return False  # how long a failed run took says nothing about the next one
        runtime = end.runtime_seconds if math.isfinite(end.runtime_seconds) and end.runtime_seconds > 0 else None
        self._workload(pending.workload).learn_run(runtime, pending.pace)
        self.learned_runs += 1
        return True

    def _outputs(self, name: str, new_run: bool, now: float) -> list[Output]:
        workload = self.workloads[name]
        bands: list[tuple[int, str, Band]] = []
        for class_id in workload.refit():
            bands += [(class_id, "interval", band) for band in workload.intervals[class_id].bands]
        if new_run and workload.runtime is not None:
            bands.append((0, "runtime", workload.runtime))
        outputs = []
        if bands:
            outputs.append(_bands_output(name, bands, len(workload.runs), now))
        if new_run and workload.pace is not None:
            outputs.append(_pace_output(name, workload.pace, now))
        return outputs


def _bands_output(workload: str, bands: list[tuple[int, str, Band]], runs: int, now: float) -> Output:
    gevs = [band.gev for _, _, band in bands]
    columns = {
        "workload": workload,
        "class_id": np.array([class_id for class_id, _, _ in bands], dtype=np.uint64),
        "kind": [kind for _, kind, _ in bands],
        "method": [band.method for _, _, band in bands],
        "samples": np.array([band.samples for _, _, band in bands]),
        "runs": runs,
        "lower_seconds": np.array([band.lower for _, _, band in bands]),
        "expected_seconds": np.array([band.expected for _, _, band in bands]),
        "upper_seconds": np.array([band.upper for _, _, band in bands]),
        "shape": np.array([gev.shape if gev else math.nan for gev in gevs]),
        "location_seconds": np.array([gev.location if gev else math.nan for gev in gevs]),
        "scale_seconds": np.array([gev.scale if gev else math.nan for gev in gevs]),
        "fitted_at": now,
    }
    return Output("bands", len(bands), columns)


def _pace_output(workload: str, pace: Pace, now: float) -> Output:
    columns = {
        "workload": workload,
        "runs": pace.runs,
        "windows": pace.windows,
        "window_seconds": pace.window_seconds,
        "spread": pace.spread,
        "means": pace.means_text(),
        "residuals": pace.residuals_text(),
        "fitted_at": now,
    }
    return Output("paces", 1, columns)
