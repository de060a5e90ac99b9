"""The scorer: rows in, scores out, no I/O. Everything the alerts daemon knows is here."""

from __future__ import annotations

import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from barograph_agent.wire import Column
from barograph_alerts.evidence import ALPHA, MARGIN, Evidence
from barograph_alerts.verdict import runtime_clause, sentence
from barograph_collector.station import Output
from barograph_modeler.pace import Pace
from barograph_modeler.windows import Windower

JOBS: Final = 20_000
"""Jobs kept at most; those silent for the longest go first."""
REPORT_STEP: Final = 0.25
"""A running job's score is written again once it has moved by this much."""


class Case(NamedTuple):
    """What a running job is judged by, fixed when its first intervals come."""

    pace: Pace | None
    windower: Windower | None
    evidence: Evidence | None


class Job:
    """One job on trial."""

    def __init__(self) -> None:
        self.offset = 0
        self.workload = ""
        self.app = ""
        self.case: Case | None = None
        self.waiting: list[tuple[Any, Any, Any, Any]] = []
        self.runtime_seconds = math.nan
        self.ended = False
        self.written: tuple[str, float] | None = None
        self.changed_at = 0.0

    @property
    def evidence(self) -> Evidence | None:
        """The evidence so far, or None where there is nothing to judge by."""
        return self.case.evidence if self.case else None

    @property
    def state(self) -> str:
        """unknown, healthy or slow."""
        return self.evidence.state if self.evidence else "unknown"


class Scorer:
    """Scores jobs as their intervals come in.

    alpha: bound on the share of healthy jobs that ever alarm. margin: slowdown that does not matter, 0.05 is 5 %.
    `take` rows of `paces`, `bands`, `jobs`, `blocks` and `runs` as the log has them, `step` whenever everything up to
    some offset has been taken.
    """

    def __init__(self, *, alpha: float = ALPHA, margin: float = MARGIN) -> None:
        self.jobs: OrderedDict[str, Job] = OrderedDict()
        self.finished: Counter[str] = Counter()
        self.ended: OrderedDict[str, tuple[Job, float]] = OrderedDict()
        self._alpha = alpha
        self._margin = margin
        self._paces: dict[str, Pace] = {}
        self._runtimes: dict[str, tuple[float, float, float]] = {}
        self._judged: set[str] = set()
        self._last_offset = 0

    @property
    def first_open_offset(self) -> int:
        """No block of a job that has no final verdict stands in the log at or before this offset."""
        return min((job.offset for job in self.jobs.values()), default=self._last_offset)

    def take(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Take rows of one table as the log gives them. now: Unix seconds."""
        match table:
            case "paces":
                self._take_paces(columns)
            case "bands":
                self._take_bands(columns)
            case "scores":
                finals = zip(columns["job"], columns["final"], strict=True)
                self._judged.update(job for job, final in finals if final)
                for job in self._judged & self.jobs.keys():
                    del self.jobs[job]
            case "jobs":
                self._take_jobs(columns)
            case "blocks":
                self._take_blocks(columns)
            case "runs":
                for job, runtime in zip(columns["job"], columns["runtime_seconds"], strict=True):
                    if (entry := self._job(job)) is not None:
                        entry.runtime_seconds, entry.ended = float(runtime), True

    def step(self, now: float) -> list[Output]:
        """Judge what has come in; returns the scores worth writing. now: Unix seconds."""
        scores = []
        for name, job in list(self.jobs.items()):
            if not job.workload:
                continue
            if job.waiting:
                self._judge(job)
                job.changed_at = now
            if job.ended:
                scores.append(self._score(name, job, now))
                self._finish(name, job, now)
            elif self._worth_writing(job):
                scores.append(self._score(name, job, now))
        return scores

    def _take_jobs(self, columns: Mapping[str, Column]) -> None:
        names = ("offset", "job", "workload", "app")
        for offset, name, workload, app in zip(*(columns[column] for column in names), strict=True):
            self._last_offset = max(self._last_offset, int(offset))
            if (job := self._job(name)) is not None:
                job.offset, job.workload, job.app = int(offset), workload, app

    def _take_paces(self, columns: Mapping[str, Column]) -> None:
        for row, workload in enumerate(columns["workload"]):
            self._paces[workload] = Pace.from_row({name: values[row] for name, values in columns.items()})

    def _take_bands(self, columns: Mapping[str, Column]) -> None:
        for row, kind in enumerate(columns["kind"]):
            if kind == "runtime":
                lower, expected, upper = (float(columns[f"{c}_seconds"][row]) for c in ("lower", "expected", "upper"))
                self._runtimes[columns["workload"][row]] = (lower, expected, upper)

    def _take_blocks(self, columns: Mapping[str, Column]) -> None:
        at = 0
        for name, rows in itertools.groupby(columns["job"]):
            stop = at + sum(1 for _ in rows)
            if (job := self._job(name)) is not None:
                counts = np.asarray(columns["count"][at:stop])
                mean = np.asarray(columns["sum_seconds"][at:stop]) / counts
                job.waiting.append((columns["class_id"][at:stop], mean, columns["ended_at"][at:stop], counts))
            at = stop

    def _job(self, name: str) -> Job | None:
        """The job on trial, or None if its trial is over."""
        if name in self._judged:
            return None
        if name not in self.jobs:
            self.jobs[name] = Job()
            if len(self.jobs) > JOBS:
                self.jobs.popitem(last=False)
        self.jobs.move_to_end(name)
        return self.jobs[name]

    def _judge(self, job: Job) -> None:
        if job.case is None:
            pace = self._paces.get(job.workload)
            if pace is None:
                job.case = Case(None, None, None)
            else:
                job.case = Case(pace, Windower(pace.window_seconds), Evidence(pace, self._alpha, self._margin))
        case, waiting, job.waiting = job.case, job.waiting, []
        if case.windower is None or case.evidence is None:
            return
        for batch in waiting:
            for window in case.windower.add(*batch):
                case.evidence.add(window)

    def _worth_writing(self, job: Job) -> bool:
        evidence = job.evidence
        if evidence is None or evidence.state == "unknown":
            return False
        return job.written is None or job.written[0] != job.state or abs(job.written[1] - evidence.score) >= REPORT_STEP

    def _score(self, name: str, job: Job, now: float) -> Output:
        evidence = job.evidence
        pace = job.case.pace if job.case else self._paces.get(job.workload)
        clause = runtime_clause(job.runtime_seconds, self._runtimes.get(job.workload)) if job.ended else ""
        judged = evidence is not None and evidence.state != "unknown"
        job.written = (job.state, evidence.score if evidence else 0.0)
        columns = {
            "job": name,
            "workload": job.workload,
            "state": job.state,
            "score": (evidence.highest if job.ended else evidence.score) if evidence and judged else math.nan,
            "slowdown": evidence.slowdown if evidence and judged else math.nan,
            "onset_at": evidence.onset_at or math.nan if evidence else math.nan,
            "alarmed_at": evidence.alarmed_at or math.nan if evidence else math.nan,
            "windows": evidence.windows if evidence else 0,
            "final": int(job.ended),
            "sentence": sentence(evidence, pace, job.workload, clause),
            "at": now,
        }
        return Output("scores", 1, columns)

    def _finish(self, name: str, job: Job, now: float) -> None:
        self.finished[job.state] += 1
        self._judged.add(name)
        del self.jobs[name]
        self.ended[name] = (job, now)
        if len(self.ended) > JOBS:
            self.ended.popitem(last=False)
