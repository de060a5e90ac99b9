"""The learner of bands, runtimes and paces: rows in, rows out, no I/O."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from barograph_agent.protocol.wire import Column
from barograph_agent.system.clock import CLOCK
from barograph_collector.daemon.quarantine import Quarantine
from barograph_collector.daemon.runner import Output
from barograph_modeler.bands.class_model import ClassModel, GevFit, fit_gevs
from barograph_modeler.learning.backlog import Backlog, Key
from barograph_modeler.learning.jobs import PendingJobs
from barograph_modeler.learning.pending import BlockBatch, EndedJob, PendingJob
from barograph_modeler.learning.rows import accepted_output, bands_output, drift_output, pace_output
from barograph_modeler.learning.workload import CLASSES as WORKLOAD_CLASSES
from barograph_modeler.learning.workload import EndedRun, Workload
from barograph_modeler.maxima.band import Band
from barograph_modeler.pace.windows import WINDOW_SECONDS
from barograph_modeler.state.stateful import Stateful
from barograph_modeler.workers import Workers

TOGETHER: Final = 32
"""Classes that are fitted together, in about a twentieth of a second."""
BATCH: Final = 100
"""Fits of a task of workers: a tenth of a second, beside which sending 200 kB counts for little."""
MIN_WAITING: Final = 1000
"""Workers begin when so many classes wait. Fewer take the modeler itself some seconds."""
HOLD_SECONDS: Final = 60.0
"""How long intervals of a running job are held before they are learned; an alarm within that time excludes them."""
LEARN_SECONDS: Final = 10.0
"""A running job is learned in parts of this length: each may refit all of its classes."""
WORKLOADS: Final = 5_000
CLASSES: Final = 100_000
ACCEPT: Final = 5
REFIT_SECONDS: Final = 0.2


class _SentFit(NamedTuple):
    """A class that is fitted elsewhere, and the regime and the bands that it had: a later fit is newer."""

    key: Key
    regime: object
    bands: tuple[Band, ...]


class Learner(Stateful):
    """Learns from healthy runs, and returns bands, paces and events as rows.

    Call `observe` with rows of `jobs`, `blocks`, `runs` and `scores`, and `step` whenever everything up to some offset
    has been read.

    classes: limit on classes over all workloads, at least 1; the least recently learned are evicted. accept: number of
    consecutive alarmed runs that, if they agree with each other, replace the history; 0: never. refit_seconds: limit
    on `clock` per step for fits; each step fits at least one class. seed: of the bootstraps. workers: other processes
    for fits, when many classes wait.
    """

    STATE = (
        "workloads",
        "backlog",
        "withheld_intervals",
        "learned_intervals",
        "learned_runs",
        "closed_regimes",
        "_jobs",
        "_recent",
    )

    def __init__(
        self,
        *,
        seed: int = 0,
        window_seconds: float = WINDOW_SECONDS,
        classes: int = CLASSES,
        accept: int = ACCEPT,
        refit_seconds: float = REFIT_SECONDS,
        clock: Callable[[], float] = CLOCK.thread_seconds,
        workers: Workers[int] | None = None,
    ) -> None:
        self.workloads: OrderedDict[str, Workload] = OrderedDict()
        self.backlog = Backlog()
        self.withheld_intervals = 0
        self.learned_intervals = 0
        self.learned_runs = 0
        self.closed_regimes: Counter[str] = Counter()
        self.ended: list[EndedJob] = []
        """Jobs that have ended since the list was last cleared."""
        self.accepted: list[tuple[str, list[float]]] = []
        """Workloads whose withheld runs became their history, with the runtimes, since the list was last cleared."""
        self.quarantine = Quarantine(self.forget)
        """The owner of several processors replaces it with the one that they share."""
        self.fitted_here = self.fitted_elsewhere = 0
        """Classes fitted by this process, and by workers, since it started."""
        self._sent: dict[int, list[_SentFit]] = {}
        """By the number of the task."""
        self._tasks = 0
        self.workers = workers
        self._seed = seed
        self._classes = classes
        self._accept = accept
        self._refit_seconds = refit_seconds
        self._clock = clock
        self._jobs = PendingJobs(window_seconds)
        self._recent: OrderedDict[Key, None] = OrderedDict()

    @property
    def held_jobs(self) -> int:
        """Number of jobs that are not learned yet."""
        return len(self._jobs)

    @property
    def evicted_jobs(self) -> int:
        """Number of jobs that were given up, since there were too many."""
        return self._jobs.evicted

    @property
    def idle(self) -> bool:
        """Whether no job is held and no class waits to be fitted."""
        return not self._jobs and not self.waiting

    @property
    def waiting(self) -> int:
        """Number of classes that wait for a fit or are being fitted elsewhere."""
        return len(self.backlog) + sum(map(len, self._sent.values()))

    @property
    def classes(self) -> int:
        """Number of classes, over all workloads."""
        return len(self._recent)

    def observe(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Read rows of one table as the log gives them. now: Unix seconds."""
        self._jobs.read(table, columns, now)

    def expect(self, jobs: Iterable[str], users: Iterable[str]) -> None:
        """Hold what is read of these jobs of these users; their workloads are not known yet."""
        self._jobs.expect(jobs, users)

    def begin(self, job: str, workload: str) -> None:
        """Set the workload of a job, without a row of `jobs`."""
        self._jobs.begin(job, workload)

    def forget(self, job: str) -> None:
        """Forget a job that is not learned yet."""
        self._jobs.forget(job)

    def step(self, now: float) -> list[Output]:
        """Learn from jobs whose health is known, refit classes, and return the rows to write. now: Unix seconds."""
        events: list[Output] = []
        new_runs: dict[str, None] = {}
        for job, pending, ended in self._jobs.poll(now):
            with self.quarantine.guard("learn", job):
                learn = self._learn_suspect if pending.suspect and self._is_comparable(pending) else self._learn_healthy
                events += learn(pending, ended is not None, new_runs, now)
            if ended is not None:
                self.ended.append(ended)
                self.withheld_intervals += pending.dropped
        return [*events, *self._outputs(new_runs, now)]

    def are_alike(self, workload: str, other: str) -> bool:
        """Whether the runs of two workloads do the same at the same pace."""
        known = self.workloads
        return workload in known and other in known and known[workload].is_like(known[other])

    def is_as_long(self, workload: str, points: int) -> bool:
        """Whether a run of so many sync points is as long as those of a workload, as far as is known."""
        known = self.workloads.get(workload)
        return known is None or known.is_as_long(points)

    def is_doubtful(self, job: str, points: int) -> bool:
        """Whether a job that has ended after so many sync points is suspect, and not as long as its workload's runs."""
        pending = self._jobs.get(job)
        return pending is not None and pending.suspect and not self.is_as_long(pending.workload, points)

    def merge(self, gone: str, into: str, now: float) -> list[Output]:
        """Make the runs of one workload those of another; returns the rows to write. now: Unix seconds."""
        self._jobs.rename(gone, into)
        if (other := self.workloads.get(gone)) is None:
            return []
        for class_id in list(other.intervals):
            self._evict((gone, class_id))
        del self.workloads[gone]
        self._workload(into).absorb(other)
        return self._outputs({into: None}, now)

    def _is_comparable(self, pending: PendingJob) -> bool:
        """Whether the job's workload has runs, so that a verdict on it counts.

        An alarm of a job judged by its own first windows does not; nor does that a run was shorter than one or two: the
        first is often longer than all that follow, since its files are not in memory yet.
        """
        workload = self.workloads.get(pending.workload)
        if workload is None or (not workload.has_pace and workload.runtime is None):
            return False
        run = _run(pending)
        return not (pending.score <= 1 and run is not None and workload.is_short_of_few(run))

    def _learn_healthy(self, pending: PendingJob, over: bool, new_runs: dict[str, None], now: float) -> list[Output]:
        if not over and pending.held_since > now - HOLD_SECONDS - LEARN_SECONDS:
            return []
        batches = pending.release(math.inf if over else now - HOLD_SECONDS)
        name, workload = pending.workload, self._workload(pending.workload)
        events = []
        for batch in batches:
            workload.judge(batch, healthy=True)
            events += self._learn_batch(name, workload, batch, now)
        if over and (run := _run(pending)) is not None:
            workload.judge_run(run, healthy=True)
            workload.learn_run(run)
            self.learned_runs += 1
            new_runs[name] = None
        return events

    def _learn_batch(self, name: str, workload: Workload, batch: BlockBatch, now: float) -> list[Output]:
        events: list[Output] = []
        for class_id, closed in workload.learn_intervals(batch):
            key, interval = (name, class_id), workload.intervals[class_id]
            self._recent[key] = None
            self._recent.move_to_end(key)
            self.closed_regimes["drift"] += len(closed)
            events += [drift_output(name, class_id, one, now) for one in closed]
            if interval.due:
                importance = interval.seconds / workload.seconds if workload.seconds else 0.0
                self.backlog.add(key, interval.staleness * importance)
        while len(workload.intervals) > WORKLOAD_CLASSES:
            self._evict((name, next(iter(workload.intervals))))
        while len(self._recent) > self._classes:
            self._evict(next(iter(self._recent)))
        self.learned_intervals += batch.total
        return events

    def _learn_suspect(self, pending: PendingJob, over: bool, new_runs: dict[str, None], now: float) -> list[Output]:
        """Withhold the job, unless it completes a series of withheld runs that agree."""
        name, workload = pending.workload, self._workload(pending.workload)
        if not over and 0 < self._accept <= len(workload.withheld) + 1:
            return []  # held, since it may still be learned
        batches = pending.release(math.inf)
        for batch in batches:
            workload.judge(batch, healthy=False)
        if over and (run := _run(pending)) is not None:
            workload.judge_run(run, healthy=False)
            if workload.withhold(run, self._accept):
                new_runs[name] = None
                return self._accept_runs(name, workload, batches, now)
            if pending.score <= 1:
                workload.learn_at_limit(run)
                new_runs[name] = None
        self.withheld_intervals += sum(batch.total for batch in batches)
        return []

    def _accept_runs(self, name: str, workload: Workload, batches: list[BlockBatch], now: float) -> list[Output]:
        old = workload.runtimes
        for class_id in workload.accept():
            self.backlog.discard((name, class_id))
        self.closed_regimes["accepted"] += 1
        self.learned_runs += self._accept
        self.accepted.append((name, workload.runtimes))
        events = [accepted_output(name, old, workload.runtimes, now)]
        for batch in batches:
            events += self._learn_batch(name, workload, batch, now)
        return events

    def _outputs(self, new_runs: Mapping[str, None], now: float) -> list[Output]:
        bands = self._refit()
        paces = []
        for name in (name for name in new_runs if name in self.workloads):
            workload = self.workloads[name]
            if workload.runtime is not None:
                bands.setdefault(name, []).append((0, "runtime", workload.runtime))
            with self.quarantine.guard("pace"):
                if (pace := workload.pace) is not None:
                    paces.append(pace_output(name, pace, now))
        return [
            *(bands_output(name, rows, len(self.workloads[name].runs), now) for name, rows in bands.items()),
            *paces,
        ]

    def _refit(self) -> dict[str, list[tuple[int, str, Band]]]:
        fitted: dict[Key, None] = {}
        if self.workers is not None:
            with self.quarantine.guard("refit"):
                fitted.update(dict.fromkeys(self._exchange(self.workers)))
        began = self._clock()
        while keys := list(islice(iter(self.backlog.pop, None), TOGETHER)):
            done = self._fit(keys)
            self.fitted_here += len(done)
            fitted.update(dict.fromkeys(done))
            if self._clock() - began >= self._refit_seconds:
                break
        bands: dict[str, list[tuple[int, str, Band]]] = {}
        for name, class_id in fitted:
            of_class = self.workloads[name].intervals[class_id].bands
            bands.setdefault(name, []).extend((class_id, "interval", band) for band in of_class)
        return {name: rows for name, rows in bands.items() if rows}

    def _fit(self, keys: Sequence[Key]) -> list[Key]:
        """Fit classes together; returns those that could be fitted."""
        try:
            models = [self.workloads[name].intervals[class_id] for name, class_id in keys]
            for model, fit in zip(models, fit_gevs([one.window() for one in models], self._seed), strict=True):
                model.publish(fit)
            return list(keys)
        except Exception:  # of one of them, for which no other goes without its fit
            fitted = []
            for name, class_id in keys:
                with self.quarantine.guard("refit"):
                    self.workloads[name].intervals[class_id].refit(self._seed)
                    fitted.append((name, class_id))
            return fitted

    def _exchange(self, workers: Workers[int]) -> list[Key]:
        """Publish what workers have fitted, and send them what waits; returns the classes that were published."""
        published = []
        for number, fits in workers.poll():
            sent: list[_SentFit] = self._sent.pop(number)
            found: list[GevFit | None] = [None] * len(sent) if fits is None else fits
            for (key, regime, bands), fit in zip(sent, found, strict=True):
                interval = self._interval(key)
                if interval is not None and fit is None:
                    self.backlog.add(key, 0.0)
                elif interval is not None and fit and interval.history is regime and interval.bands is bands:
                    interval.publish(fit)
                    published.append(key)
            self.fitted_elsewhere += len(sent) if fits is not None else 0
        while workers.free and len(self.backlog) >= (BATCH if self._sent else MIN_WAITING):
            keys = list(islice(iter(self.backlog.pop, None), BATCH))
            models = [self.workloads[name].intervals[class_id] for name, class_id in keys]
            self._tasks += 1
            self._sent[self._tasks] = [
                _SentFit(key, model.history, model.bands) for key, model in zip(keys, models, strict=True)
            ]
            workers.send(self._tasks, fit_gevs, [model.window() for model in models], self._seed)
        return published

    def _interval(self, key: Key) -> ClassModel | None:
        workload = self.workloads.get(key[0])
        return None if workload is None else workload.intervals.get(key[1])

    def state(self) -> dict[str, Any]:
        """The whole state. What is being fitted elsewhere waits again."""
        for sent in self._sent.values():
            for key in (one.key for one in sent if self._interval(one.key) is not None):
                self.backlog.add(key, 0.0)
        return super().state()

    def _evict(self, key: Key) -> None:
        name, class_id = key
        del self.workloads[name].intervals[class_id]
        del self._recent[key]
        self.backlog.discard(key)

    def _workload(self, name: str) -> Workload:
        if name not in self.workloads:
            self.workloads[name] = Workload()
            if len(self.workloads) > WORKLOADS:
                oldest = next(iter(self.workloads))
                for class_id in list(self.workloads[oldest].intervals):
                    self._evict((oldest, class_id))
                del self.workloads[oldest]
        self.workloads.move_to_end(name)
        return self.workloads[name]


def _run(pending: PendingJob) -> EndedRun | None:
    end = pending.end
    if end is None or end.exit_status != 0:
        return None  # the runtime of a failed run does not predict the next one
    usable = math.isfinite(end.runtime_seconds) and end.runtime_seconds > 0
    seconds = end.runtime_seconds if usable else None
    return EndedRun(
        seconds, end.intervals, pending.pace.packed(), pending.timeline().packed(end.ended_at), pending.blamed
    )
