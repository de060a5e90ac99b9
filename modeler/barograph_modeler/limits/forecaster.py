"""Predicts runtime and time limits of a job at its submission, from the jobs that have ended by then."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.limits.bounds import LimitBounds
from barograph_modeler.limits.candidates import Candidates, candidates
from barograph_modeler.limits.columns import COLUMNS, Column
from barograph_modeler.limits.deadlines import Deadlines
from barograph_modeler.limits.density import RuntimeDensity, quantile, tail_at
from barograph_modeler.limits.in_flight import JobsInFlight
from barograph_modeler.limits.job import SubmittedJob
from barograph_modeler.limits.kill_share import KillShare
from barograph_modeler.limits.recent_jobs import MAX_LOG_SECONDS, PROGRAM, USER, RecentJobs
from barograph_modeler.limits.weights import CandidateWeights
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.tails import RecentTails

RISKS: Final = (0.01, 0.05, 0.1)
MAX_WAITING: Final = 5000
"""Jobs in flight from whose end the weights learn, 30 kB each; of more, the newest."""
REMEMBERED: Final = 2000
"""Ended jobs from which the weights learn again, 30 kB each."""
REPEATS: Final = 2
"""Of them, per ended job."""


@dataclass(frozen=True, slots=True)
class RuntimeForecast:
    """seconds: the runtime of the largest expected accuracy. limits: seconds, by risk, in whole seconds."""

    seconds: float
    limits: tuple[float, ...]


@dataclass(slots=True)
class _Waiting:
    """A job in flight. candidates, log_tail: None if too many are in flight."""

    row: Floats
    user: int
    limits: tuple[float, ...]
    candidates: Candidates | None
    log_tail: npt.NDArray[np.float32] | None


class LimitForecaster:
    """Jobs are submitted, start and end, in order of time; each is predicted when it is submitted.

    risks: shares of jobs that may exceed the limits, between 0 and 1. seed: of the initial weights and of what is
    learned again. About 0.7 ms a job; at most 400 MB.
    """

    def __init__(self, risks: Sequence[float] = RISKS, seed: int = 0) -> None:
        self.risks = tuple(risks)
        self._shares = [KillShare(risk) for risk in self.risks]
        self._tails = RecentTails()
        self._bounds = LimitBounds()
        self._jobs = RecentJobs()
        self._in_flight = JobsInFlight()
        self._deadlines = Deadlines()
        self._weights = CandidateWeights(seed)
        self._waiting: dict[Hashable, _Waiting] = {}
        self._trainable: dict[Hashable, None] = {}
        self._remembered: list[tuple[Candidates, int, float]] = []
        self._ended = 0
        self._rng = np.random.default_rng(seed)

    def submit(self, key: Hashable, job: SubmittedJob) -> RuntimeForecast:
        """The forecast for a new job. Raises ValueError if a job with this key is in flight."""
        if key in self._waiting:
            raise ValueError(f"job {key} is in flight already, expected a new one")
        for number in self._deadlines.passed(job.submitted):
            self._shares[number].learn(True)
        row = self._row(job)
        running = self._in_flight.log_elapsed((job.user, job.executable), job.submitted)
        those = candidates(row, self._jobs, running, job.submitted)
        density = RuntimeDensity(those.log_seconds, self._weights(those.features, job.user))
        log_tail = density.log_tail()
        batch = self._in_flight.batch(job.user)
        limits = tuple(self._limit(one, batch, log_tail, job.requested) for one in self._shares)
        kept = Candidates(those.log_seconds, those.features.astype(np.float32))
        self._waiting[key] = _Waiting(row, job.user, limits, kept, log_tail.astype(np.float32))
        self._trainable[key] = None
        if len(self._trainable) > MAX_WAITING:
            oldest = next(iter(self._trainable))
            del self._trainable[oldest]
            self._waiting[oldest].candidates = self._waiting[oldest].log_tail = None
        self._in_flight.submit(key, (job.user, job.executable), job.submitted)
        return RuntimeForecast(math.exp(density.best()), limits)

    def start(self, key: Hashable, now: float) -> None:
        """A job in flight starts. Raises KeyError if it is not in flight."""
        self._in_flight.start(key, now)
        self._deadlines.start(key, now, self._waiting[key].limits)

    def end(self, key: Hashable, now: float, seconds: float, failed: bool = False) -> None:
        """A job in flight has ended after so many seconds, above 0. Raises KeyError if it is not in flight."""
        waiting = self._waiting.pop(key)
        self._trainable.pop(key, None)
        self._in_flight.end(key)
        log_seconds = min(max(math.log(seconds), 0.0), MAX_LOG_SECONDS)
        ahead = self._deadlines.end(key)
        for number, (share, limit) in enumerate(zip(self._shares, waiting.limits, strict=True)):
            if ahead is None or number in ahead:
                share.learn(seconds > limit)
        if waiting.candidates is not None and waiting.log_tail is not None:
            self._tails.add(tail_at(waiting.log_tail, log_seconds))
            self._learn(waiting.candidates, waiting.user, log_seconds)
        row = waiting.row
        self._bounds.add(seconds, float(row[Column.REQUESTED]))
        row[[Column.FAILED, Column.LOG_SECONDS, Column.ENDED]] = failed, log_seconds, now
        self._jobs.add(row)

    def discard(self, key: Hashable) -> None:
        """A job in flight was cancelled before it started, or is lost. Raises KeyError if it is not in flight."""
        del self._waiting[key]
        self._deadlines.end(key)
        self._trainable.pop(key, None)
        self._in_flight.remove(key)

    def _limit(self, share: KillShare, batch: int, log_tail: Floats, requested: float) -> float:
        seconds = math.exp(quantile(log_tail, self._tails.quantile(share.share(batch))))
        return float(math.ceil(min(seconds, self._bounds.bound(share.risk, requested))))

    def _learn(self, those: Candidates, user: int, log_seconds: float) -> None:
        self._weights.learn(those, user, log_seconds)
        if len(self._remembered) < REMEMBERED:
            self._remembered.append((those, user, log_seconds))
        else:
            self._remembered[self._ended % REMEMBERED] = (those, user, log_seconds)
        self._ended += 1
        for one in self._rng.integers(0, len(self._remembered), REPEATS):
            self._weights.learn(*self._remembered[one])

    def _row(self, job: SubmittedJob) -> Floats:
        """The columns that are known at the submission."""
        row = np.zeros(COLUMNS)
        row[: Column.LOG_PROCESSORS] = (
            job.user,
            job.executable,
            job.processors,
            job.requested,
            job.queue,
            job.group,
            job.memory,
        )
        now, program = job.submitted, (job.user, job.executable)
        row[Column.LOG_PROCESSORS : Column.FAILED] = (
            math.log(max(job.processors, 1.0)),
            min(math.log(max(job.requested, 1.0)), MAX_LOG_SECONDS),
            self._jobs.last_log_seconds(PROGRAM, row),
            self._jobs.last_log_seconds(USER, row),
            self._in_flight.since(program[:1], now),
            self._in_flight.since(program, now),
            self._in_flight.longest_running(program, now),
            self._in_flight.count(program),
            now % 86_400 / 3600,
        )
        return row
