"""The alerts daemon's metrics: one set of series per job while it runs, and for some time after an alarm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, get_args

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barograph_agent.system.clock import CLOCK
from barograph_alerts.attribution.alignment import Outcome
from barograph_alerts.detection.alarm import State
from barograph_alerts.export.job_metrics import class_families, run_families, running_family
from barograph_alerts.job.cause_words import MEMBERS
from barograph_alerts.job.job import REPORT_STEP, WatchedJob
from barograph_alerts.processor import BLAMING, Scorer
from barograph_collector.daemon.families import counter, gauge
from barograph_modeler.state.fair import first_of_each

MAX_JOBS: Final = 1000
ENDED_SECONDS: Final = 180.0
"""How long an ended job with an alarm stays exposed: three scrapes at intervals of a minute."""
SILENT_SECONDS: Final = 900.0
"""A running job without news for this long is no longer exposed."""


class AlertsExporter(Collector):
    """Metric families of jobs, of nodes, and of the daemon's own state.

    Of more than MAX_JOBS jobs those with the highest scores are exposed, of each user at most a fair share: no number
    of alarms of one user hides those of another.

    clock: Unix seconds. labels: further labels of alarmed jobs, see `AlertsSettings.labels`.
    """

    def __init__(self, scorer: Scorer, clock: Callable[[], float] = CLOCK.now, *, labels: Sequence[str] = ()) -> None:
        self.labels = labels
        self._scorer = scorer
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """All metric families."""
        # The order is stable between scrapes, since each change of the exposed jobs makes new series in Prometheus.
        jobs = sorted(self._exposed(), key=lambda item: (-(item[1].score // REPORT_STEP), item[1].offset))
        shown = first_of_each(((item[1].user, item) for item in jobs), MAX_JOBS)
        yield from self._jobs(shown)
        yield from run_families(shown, self._scorer, self._clock())
        yield from class_families(shown, self._scorer)
        yield running_family(jobs)
        yield from self._fleet()
        finished = (([state], self._scorer.finished[state]) for state in get_args(State))
        yield counter("barograph_alerts_jobs_total", "Jobs that have ended, by verdict.", finished, "state")
        text = "Sync points of nodes that were compared with those of other nodes, and that could not be, by reason."
        outcomes = (([outcome], self._scorer.sync_points[outcome]) for outcome in get_args(Outcome))
        yield counter("barograph_alerts_node_sync_points_total", text, outcomes, "outcome")
        text = "Jobs left out of this exposition."
        yield gauge("barograph_alerts_jobs_hidden", text, max(0, len(jobs) - MAX_JOBS))
        text = "Jobs that are watched no further because there were too many, of the users with most jobs."
        yield counter("barograph_alerts_evicted_jobs_total", text, self._scorer.jobs.evicted)

    def _jobs(self, jobs: Sequence[tuple[str, WatchedJob]]) -> Iterator[Metric]:
        extra = tuple(self.labels)
        score, slowdown, onset, info, alarm, discovered = [], [], [], [], [], []
        for name, job in jobs:
            info.append(([name, job.workload, job.app, job.state], 1))
            if job.monitor is None or job.state == "unknown":
                continue
            evidence = job.monitor.evidence
            score.append(([name], job.score))
            if math.isfinite(evidence.slowdown):
                slowdown.append(([name], evidence.slowdown))
            if evidence.onset_at is not None:
                onset.append(([name], evidence.onset_at))
            discovered.append(([name], int(name in self._scorer.discovered)))
            if job.score > 1:
                cause = job.monitor.cause
                values = [getattr(job, label) for label in extra]
                node = job.host if job.nodes <= 1 else "".join(cause.members[:1] if cause.kind in BLAMING else ())
                named = cause.kind, " ".join(cause.members[:MEMBERS])
                alarm.append(([name, *values, job.state, node, *named, job.sentence], 1))
        text = "Evidence that the job is slower than its history; above 1 alarms"
        yield gauge("barograph_job_score", text, score, "job")
        text = "Actual over expected time, since the onset of an alarm, as a ratio"
        yield gauge("barograph_job_slowdown_ratio", text, slowdown, "job")
        text = "When the slowdown began, in Unix seconds"
        yield gauge("barograph_job_onset_timestamp_seconds", text, onset, "job")
        yield gauge("barograph_job_info", "1 for each job exposed", info, "job", "workload", "app", "state")
        text = "1 if the evidence against the job is significant among all running jobs"
        yield gauge("barograph_job_discovered", text, discovered, "job")
        text = "1 while the job is disturbed, with the cause, the ranks or nodes it is put down to, and the sentence"
        labels = ("job", *extra, "state", "node", "cause", "members", "sentence")
        yield gauge("barograph_job_alarm_info", text, alarm, *labels)

    def _fleet(self) -> Iterator[Metric]:
        found = self._scorer.suspects()
        text = "Evidence that the node delays its jobs, over all of them; above 1 is significant"
        yield gauge("barograph_node_straggler_score", text, (([one.host], one.score) for one in found), "node")
        yield gauge(
            "barograph_node_straggler_jobs",
            "Jobs in which nodes were compared, and those in which the node was the straggler or had the most own work",
            (
                ([one.host, part], count)
                for one in found
                for part, count in (("all", one.record.jobs), ("blamed", one.record.blamed))
            ),
            "node",
            "part",
        )
        text = "Own work over the median of the job's nodes, or what jobs that waited lost, minus 1, as a ratio"
        excess = (([one.host], one.excess) for one in found if math.isfinite(one.excess))
        yield gauge("barograph_node_excess_ratio", text, excess, "node")
        text = "1 if the evidence against the node is significant and its excess large enough to matter"
        yield gauge("barograph_node_suspected", text, (([one.host], 1) for one in found if one.suspected), "node")
        text = "Share of the running jobs that are slow, while they are so many that one cause is likely, as a ratio"
        yield gauge("barograph_facility_slow_ratio", text, self._scorer.facility)

    def _exposed(self) -> Iterator[tuple[str, WatchedJob]]:
        now = self._clock()
        for name, job in self._scorer.jobs.items():
            if job.workload and now - job.changed_at < SILENT_SECONDS:
                yield name, job
        for name, (job, ended_at) in self._scorer.ended.items():
            if job.score > 1 and now - ended_at < ENDED_SECONDS:
                yield name, job
