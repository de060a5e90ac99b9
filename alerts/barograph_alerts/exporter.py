"""What the alerts daemon shows Prometheus: one set of series per job while it runs, or while its alarm is news."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barograph_alerts.scorer import Job, Scorer

MAX_JOBS: Final = 1000
ENDED_SECONDS: Final = 180.0
"""How long an ended job that was slow stays exposed: three scrapes a minute apart."""
SILENT_SECONDS: Final = 900.0
"""A running job that has said nothing for this long is no longer exposed."""


class AlertsExporter(Collector):
    """Scores of jobs, slow ones first, and the daemon's own counts. clock: Unix seconds."""

    def __init__(self, scorer: Scorer, clock: Callable[[], float] = time.time) -> None:
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
        jobs = sorted(self._exposed(), key=lambda item: -(item[1].evidence.score if item[1].evidence else -1.0))
        for name, job in jobs[:MAX_JOBS]:
            info.add_metric([name, job.workload, job.app, job.state], 1)
            if (evidence := job.evidence) is None or job.state == "unknown":
                continue
            # After the end the alarm stands as it was: the score it reached, not the one it would decay to.
            score.add_metric([name], evidence.highest if job.ended else evidence.score)
            slowdown.add_metric([name], evidence.slowdown)
            if evidence.onset_at is not None:
                onset.add_metric([name], evidence.onset_at)
        yield from (score, slowdown, onset, info)
        finished = CounterMetricFamily(
            "barograph_alerts_jobs_total", "Jobs that have ended, by verdict.", labels=["state"]
        )
        for state in ("healthy", "slow", "unknown"):
            finished.add_metric([state], self._scorer.finished[state])
        yield finished
        yield GaugeMetricFamily(
            "barograph_alerts_jobs_hidden", "Jobs left out of this exposition.", max(0, len(jobs) - MAX_JOBS)
        )

    def _exposed(self) -> Iterator[tuple[str, Job]]:
        now = self._clock()
        # The scorer runs in another thread: lists are taken in one step each.
        for name, job in list(self._scorer.jobs.items()):
            if job.workload and now - job.changed_at < SILENT_SECONDS:
                yield name, job
        for name, (job, ended_at) in list(self._scorer.ended.items()):
            if job.state == "slow" and now - ended_at < ENDED_SECONDS:
                yield name, job
