"""The scorer: rows in, scores out, no I/O. Everything the alerts daemon knows is here."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from barograph_agent.protocol.wire import Column
from barograph_alerts.attribution.cause import Cause
from barograph_alerts.attribution.coincidence import Neighbour, Surroundings
from barograph_alerts.attribution.fleet import Nodes, e_bh, facility_share
from barograph_alerts.attribution.work import Stretch
from barograph_alerts.detection.evidence import ALPHA, MARGIN
from barograph_alerts.detection.runtime_prior import FROM_FEATURES, RuntimePrior
from barograph_alerts.job.job import WatchedJob
from barograph_alerts.job.monitor import JobMonitor
from barograph_alerts.job.progress import ProgressHistory
from barograph_alerts.job.references import References, accepted_workloads, changed_workloads
from barograph_alerts.job.rows import JobVerdict, score_output, verdicts
from barograph_collector.daemon.runner import Output
from barograph_modeler.pace.windows import blocks_by_job

JOBS: Final = 20_000
"""Jobs kept at most; those silent for the longest go first."""


class Scorer:
    """Scores jobs as their intervals come in.

    alpha: bound on the share of healthy jobs that ever alarm. margin: slowdown that does not matter, 0.05 is 5 %.
    applications: `alpha` and `margin` of single applications by name, where they are otherwise.
    `take` rows of the tables of `daemon.TABLES` as the log has them, `step` whenever everything up to some offset has
    been taken. At the start, rows of `scores` say which jobs are over and what was found out about their nodes.
    """

    def __init__(
        self,
        *,
        alpha: float = ALPHA,
        margin: float = MARGIN,
        applications: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        self.jobs: OrderedDict[str, WatchedJob] = OrderedDict()
        self.finished: Counter[str] = Counter()
        self.ended: OrderedDict[str, tuple[WatchedJob, float]] = OrderedDict()
        self.nodes = Nodes(alpha)
        self.discovered: frozenset[str] = frozenset()
        """Running jobs whose evidence stands up among that of all running jobs."""
        self.facility = 0.0
        """Share of the running jobs that are slow, while that is so many that they have one cause."""
        self.judge_by(alpha=alpha, margin=margin, applications=applications or {})
        self._known = References()
        self._extents = ProgressHistory()
        self._surroundings = Surroundings()
        self._judged: set[str] = set()
        self._last_offset = 0

    @property
    def first_open_offset(self) -> int:
        """No block of a job that has no final verdict stands in the log at or before this offset."""
        return min((job.offset for job in self.jobs.values()), default=self._last_offset)

    def judge_by(self, *, alpha: float, margin: float, applications: Mapping[str, Mapping[str, float]]) -> None:
        """Judge jobs that begin from now on by this. Those on trial keep the bound that they were promised."""
        self.alpha = self.nodes.alpha = alpha
        self._margin = margin
        self._applications = applications

    def observe(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Read rows of one table as the log gives them. now: Unix seconds."""
        match table:
            case "paces" | "bands" | "sites":
                self._known.read(table, columns)
            case "events":
                self._read_events(columns)
            case "scores":
                for verdict in verdicts(columns):
                    self._judged.add(verdict.job)
                    self.jobs.pop(verdict.job, None)
                    self._remember(verdict)
            case "jobs":
                self._read_jobs(columns)
            case "blocks":
                self._read_blocks(columns, now)
            case "node_blocks":
                self._read_node_blocks(columns)
            case "predictions":
                self._read_predictions(columns)
            case "runs":
                self._extents.read_runs(columns)
                for job, runtime in zip(columns["job"], columns["runtime_seconds"], strict=True):
                    if (entry := self._job(job)) is not None:
                        entry.runtime_seconds, entry.ended = float(runtime), True

    def add_work(self, name: str, stretches: Sequence[Stretch]) -> None:
        """Add what the ranks or nodes of a job did, in the order of time."""
        if (job := self._job(name)) is not None:
            job.work += stretches

    def projected_seconds(self, job: WatchedJob, now: float) -> float:
        """How long the whole run of a job will take; NaN if unknown. now: Unix seconds."""
        if job.trial is None:
            return math.nan
        return job.trial.projected_seconds(self._known.runtimes.get(job.workload), now)

    def class_name(self, class_id: int) -> str:
        """A class in words."""
        return self._known.name(class_id)

    @property
    def idle(self) -> bool:
        """Whether no job is watched: the silence of a job is judged as time passes."""
        return not self.jobs

    def step(self, now: float) -> list[Output]:
        """Judge what has come in; returns the scores worth writing. now: Unix seconds."""
        scores = []
        for name, job in list(self.jobs.items()):
            if not job.workload:
                continue
            if job.waiting or (job.work and job.trial is not None):
                self._judge(job)
                job.changed_at = now
            if job.trial is not None:
                self._look_at_total(job, job.trial)
                job.trial.step(now)
            if job.ended:
                scores.append(self._score(name, job, now))
                self._finish(name, job, now)
            elif (said := job.said) != job.written and said is not None:
                job.written = said
                scores.append(self._score(name, job, now))
        self._look_at_all()
        return scores

    def _look_at_total(self, job: WatchedJob, trial: JobMonitor) -> None:
        if job.foretold is None:
            return
        trial.evidence.foretell(job.foretold)
        runtime = job.runtime_seconds if job.ended else math.nan
        points = self._extents.sync_points(job.problem) if job.problem is not None else 0
        share = sum(job.reached.values()) / points if points else math.nan
        trial.last(job.started_at, share, runtime)

    def _look_at_all(self) -> None:
        evidence = {
            name: job.trial.evidence for name, job in self.jobs.items() if job.trial is not None and job.score >= 0
        }
        self.discovered = e_bh({name: one.log_e for name, one in evidence.items()})
        slow = sum(one.open is not None and one.open.kind == "slow" for one in evidence.values())
        self.facility = facility_share(slow, len(evidence))

    def _read_jobs(self, columns: Mapping[str, Column]) -> None:
        self._extents.read_jobs(columns)
        for row in range(len(columns["job"])):
            offset = int(columns["offset"][row])
            self._last_offset = max(self._last_offset, offset)
            if (job := self._job(columns["job"][row])) is not None:
                job.offset = offset
                job.begin({name: values[row] for name, values in columns.items()})

    def _read_events(self, columns: Mapping[str, Column]) -> None:
        """Where alarmed runs were accepted as the history, those that still run are judged by that, from now on."""
        for workload, at in changed_workloads(columns):
            self._surroundings.changed(workload, at)
        accepted = accepted_workloads(columns)
        for job in self.jobs.values():
            if job.workload in accepted:
                job.trial, job.written = None, ()

    def _read_blocks(self, columns: Mapping[str, Column], now: float) -> None:
        for name, rows, blocks in blocks_by_job(columns):
            if (job := self._job(name)) is not None:
                ends = np.asarray(columns["first_index"][rows]) + np.asarray(columns["count"][rows])
                job.reach(np.asarray(columns["world"][rows]), ends)
                job.waiting.append((blocks, float(np.max(columns["max_seconds"][rows])), now))

    def _read_predictions(self, columns: Mapping[str, Column]) -> None:
        names = ("job", "method", "lower_seconds", "expected_seconds", "upper_seconds", "runs", "scales")
        for name, method, lower, expected, upper, runs, scales in zip(*(columns[c] for c in names), strict=True):
            # What was foretold from the run's own features came after it began: it is no yardstick for the run.
            if method == FROM_FEATURES:
                continue
            if (job := self._job(name)) is not None and 0 < expected <= upper < math.inf:
                job.foretold = RuntimePrior(float(lower), float(expected), float(upper), int(runs), int(scales))

    def _read_node_blocks(self, columns: Mapping[str, Column]) -> None:
        names = list(columns)
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(names, values, strict=True))
            job = self._job(row["job"])
            if job is not None and job.node_work is not None and (stretch := job.node_work.add(row)) is not None:
                job.work.append(stretch)

    def _job(self, name: str) -> WatchedJob | None:
        """The job on trial, or None if its trial is over."""
        if name in self._judged:
            return None
        if name not in self.jobs:
            self.jobs[name] = WatchedJob()
            if len(self.jobs) > JOBS:
                self.jobs.popitem(last=False)
        self.jobs.move_to_end(name)
        return self.jobs[name]

    def _judge(self, job: WatchedJob) -> None:
        if job.trial is None:
            job.trial = self._new_trial(job)
        work, job.work = job.work, []
        job.trial.add_work(work)
        waiting, job.waiting = job.waiting, []
        for batch in waiting:
            job.trial.add(*batch)

    def _new_trial(self, job: WatchedJob) -> JobMonitor:
        longest = self._known.longest_seconds(job.workload)
        own = self._applications.get(job.app, {})
        alpha, margin = own.get("alpha", self.alpha), own.get("margin", self._margin)
        return JobMonitor(self._known.paces.get(job.workload), alpha, margin, longest)

    def _score(self, name: str, job: WatchedJob, now: float) -> Output:
        job.trial = trial = job.trial or self._new_trial(job)
        if job.ended:
            self._look_at_total(job, trial)
        self._look_around(name, job, trial)
        return score_output(name, job, trial, self._known, now)

    def _look_around(self, name: str, job: WatchedJob, trial: JobMonitor) -> None:
        """See what coincides with the latest alarm: once, and again where others are to blame."""
        alarms, blamed = trial.evidence.alarms, trial.cause.members
        if not alarms or job.explained == (len(alarms), blamed):
            return
        job.explained = len(alarms), blamed
        near = (
            Neighbour(other, frozenset(one.hosts), one.started_at) for other, one in self.jobs.items() if other != name
        )
        onset_at = alarms[-1].onset_at
        job.coincidences = self._surroundings.coincidences(job.workload, job.hosts, blamed, onset_at, near)

    def _finish(self, name: str, job: WatchedJob, now: float) -> None:
        cause = job.trial.cause if job.trial is not None else Cause("unknown")
        self._remember(JobVerdict(name, job.workload, cause.kind, cause.members, job.hosts, now))
        self.finished[job.state] += 1
        self._judged.add(name)
        del self.jobs[name]
        self.ended[name] = (job, now)
        if len(self.ended) > JOBS:
            self.ended.popitem(last=False)

    def _remember(self, verdict: JobVerdict) -> None:
        """Keep what a job that is over says of its nodes."""
        # On one node the members are ranks, and a rank is another one in every job.
        if verdict.cause == "straggler" and len(verdict.hosts) > 1:
            self.nodes.add(verdict.hosts, verdict.members)
        self._surroundings.ended(verdict.workload, verdict.hosts, verdict.at)
