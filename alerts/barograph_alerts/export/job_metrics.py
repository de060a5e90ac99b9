"""Metric families of a running job beside its score: projected runtime, and intervals of its classes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, get_args

from prometheus_client.core import SummaryMetricFamily
from prometheus_client.metrics_core import Metric

from barograph_alerts.detection.alarm import State
from barograph_alerts.job.job import WatchedJob
from barograph_alerts.processor import Scorer
from barograph_collector.daemon.families import gauge

CLASSES: Final = 8
"""Classes exposed per job, those with the most time."""
MAX_CLASSES: Final = 4000
"""Classes exposed over all jobs, those of the jobs with the highest scores first."""


def run_families(jobs: Sequence[tuple[str, WatchedJob]], scorer: Scorer, now: float) -> Iterator[Metric]:
    """Start, projected runtime and remaining time of running jobs. now: Unix seconds."""
    began, projected, left = [], [], []
    for name, job in jobs:
        if job.ended or job.monitor is None or math.isnan(job.monitor.began_at):
            continue
        began.append(([name], job.monitor.began_at))
        elapsed = now - job.monitor.began_at
        if (found := scorer.remaining(job, now)) is not None:
            projected.append(([name], elapsed + found.left.expected_seconds))
            left += [([name, p], seconds) for p, seconds in zip(("0.025", "0.5", "0.975"), found.left, strict=True)]
        elif scorer.has_run(job):
            projected.append(([name], elapsed))
    text = "When the job's first interval began, in Unix seconds"
    yield gauge("barograph_job_start_timestamp_seconds", text, began, "job")
    text = "How long the whole run will take by its progress and its pace so far, in seconds"
    yield gauge("barograph_job_runtime_projected_seconds", text, projected, "job")
    text = "The time that the job has left, which it stays below with this probability, in seconds"
    yield gauge("barograph_job_remaining_seconds", text, left, "job", "probability")


def class_families(jobs: Sequence[tuple[str, WatchedJob]], scorer: Scorer) -> Iterator[Metric]:
    """Intervals of the classes in which the jobs spend most of their time. jobs: in order of priority."""
    intervals = SummaryMetricFamily(
        "barograph_job_interval_seconds",
        "Intervals of the job so far, of the classes in which it spent most of its time, in seconds",
        labels=["job", "class"],
    )
    sites: list[tuple[list[str], float]] = []
    left, hidden = MAX_CLASSES, 0
    for name, job in jobs:
        if job.monitor is None:
            continue
        longest = job.monitor.class_times.longest(min(CLASSES, left))
        for class_id, time in longest:
            intervals.add_metric([name, f"{class_id:016x}"], time.intervals, time.seconds)
            sites.append(([name, f"{class_id:016x}", job.class_name(class_id)], 1))
        left -= len(longest)
        hidden += len(job.monitor.class_times) - len(longest)
    yield intervals
    text = "1 for each of these classes of a job, with the call sites in words"
    yield gauge("barograph_class_info", text, sites, "job", "class", "site")
    yield gauge("barograph_alerts_classes_hidden", "Classes of shown jobs left out of this exposition.", hidden)


def running_family(jobs: Sequence[tuple[str, WatchedJob]]) -> Metric:
    """Number of running jobs by state, including hidden ones."""
    states = Counter(job.state for _, job in jobs if not job.ended)
    by_state = (([state], states[state]) for state in get_args(State))
    return gauge("barograph_alerts_running_jobs", "Jobs that run, by state.", by_state, "state")
