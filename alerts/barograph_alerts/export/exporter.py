"""What the alerts daemon shows Prometheus: one set of series per job while it runs, or while its alarm is news."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barograph_alerts.detection.alarm import State
from barograph_alerts.export.job_metrics import class_families, run_families, running_family
from barograph_alerts.job.job import REPORT_STEP, WatchedJob
from barograph_alerts.processor import Scorer

MAX_JOBS: Final = 1000
MAX_NODES: Final = 100
ENDED_SECONDS: Final = 180.0
"""How long an ended job that was slow stays exposed: three scrapes a minute apart."""
SILENT_SECONDS: Final = 900.0
"""A running job that has said nothing for this long is no longer exposed."""


class AlertsExporter(Collector):
    """Scores of jobs, slow ones first, and the daemon's own counts.

    clock: Unix seconds. labels: what is told of alarmed jobs besides, out of `settings.LABELS`.
    """

    def __init__(self, scorer: Scorer, clock: Callable[[], float] = time.time, *, labels: Sequence[str] = ()) -> None:
        self.labels = labels
        self._scorer = scorer
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """Build families, add samples, return."""
        score = GaugeMetricFamily(
            "barograph_job_score", "Evidence that the job is slower than its history; above 1 alarms", labels=["job"]
        )
        slowdown = GaugeMetricFamily(
            "barograph_job_slowdown_ratio",
            "Actual over expected time, since the onset of an alarm, as a ratio",
            labels=["job"],
        )
        onset = GaugeMetricFamily(
            "barograph_job_onset_timestamp_seconds", "When the slowdown began, in Unix seconds", labels=["job"]
        )
        info = GaugeMetricFamily(
            "barograph_job_info", "1 for each job exposed", labels=["job", "workload", "app", "state"]
        )
        extra = tuple(self.labels)
        alarm = GaugeMetricFamily(
            "barograph_job_alarm_info",
            "1 while the job is disturbed, with the cause, the ranks or nodes it is put down to, and the sentence",
            labels=["job", *extra, "state", "cause", "members", "sentence"],
        )
        discovered = GaugeMetricFamily(
            "barograph_job_discovered",
            "1 where the evidence against the job stands up among that of all running jobs",
            labels=["job"],
        )
        # Healthy jobs must not take turns with every scrape: each turn is a new series for Prometheus.
        jobs = sorted(self._exposed(), key=lambda item: (-(item[1].score // REPORT_STEP), item[1].offset))
        for name, job in jobs[:MAX_JOBS]:
            info.add_metric([name, job.workload, job.app, job.state], 1)
            if job.trial is None or job.state == "unknown":
                continue
            evidence = job.trial.evidence
            score.add_metric([name], job.score)
            if math.isfinite(evidence.slowdown):
                slowdown.add_metric([name], evidence.slowdown)
            if evidence.onset_at is not None:
                onset.add_metric([name], evidence.onset_at)
            discovered.add_metric([name], int(name in self._scorer.discovered or (job.ended and job.score > 1)))
            if job.score > 1:
                cause = job.trial.cause
                told = [getattr(job, label) for label in extra]
                alarm.add_metric([name, *told, job.state, cause.kind, " ".join(cause.members), job.sentence], 1)
        yield from (score, slowdown, onset, info, discovered, alarm)
        yield from run_families(jobs[:MAX_JOBS], self._scorer, self._clock())
        yield from class_families(jobs[:MAX_JOBS], self._scorer)
        yield running_family(jobs)
        yield from self._fleet()
        finished = CounterMetricFamily(
            "barograph_alerts_jobs_total", "Jobs that have ended, by verdict.", labels=["state"]
        )
        for state in get_args(State):
            finished.add_metric([state], self._scorer.finished[state])
        yield finished
        yield GaugeMetricFamily(
            "barograph_alerts_jobs_hidden", "Jobs left out of this exposition.", max(0, len(jobs) - MAX_JOBS)
        )

    def _fleet(self) -> Iterator[Metric]:
        straggler = GaugeMetricFamily(
            "barograph_node_straggler_score",
            "Evidence that the node holds up its jobs, over all of them; above 1 it does",
            labels=["node"],
        )
        blamed = GaugeMetricFamily(
            "barograph_node_straggler_jobs",
            "Jobs with a straggler that the node took part in, and those where it was the one",
            labels=["node", "part"],
        )
        for node, record, score in self._scorer.nodes.ranking(MAX_NODES):
            straggler.add_metric([node], score)
            blamed.add_metric([node, "all"], record.jobs)
            blamed.add_metric([node, "blamed"], record.blamed)
        yield from (straggler, blamed)
        yield GaugeMetricFamily(
            "barograph_facility_slow_ratio",
            "Share of the running jobs that are slow, while they are so many that one cause is likely, as a ratio",
            self._scorer.facility,
        )

    def _exposed(self) -> Iterator[tuple[str, WatchedJob]]:
        now = self._clock()
        # The scorer runs in another thread: lists are taken in one step each.
        for name, job in list(self._scorer.jobs.items()):
            if job.workload and now - job.changed_at < SILENT_SECONDS:
                yield name, job
        for name, (job, ended_at) in list(self._scorer.ended.items()):
            if job.score > 1 and now - ended_at < ENDED_SECONDS:
                yield name, job
