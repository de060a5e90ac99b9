"""What Prometheus sees of a running job beside its score: when it will end, and the intervals of its classes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, get_args

from prometheus_client.core import GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric

from barograph_alerts.detection.alarm import State
from barograph_alerts.job.job import WatchedJob
from barograph_alerts.processor import Scorer

CLASSES: Final = 8
"""Classes shown of one job, those with the most time."""
MAX_CLASSES: Final = 4000
"""Classes shown of all jobs: those of the jobs with the highest score first."""


def run_families(jobs: Sequence[tuple[str, WatchedJob]], scorer: Scorer, now: float) -> Iterator[Metric]:
    """When running jobs began and how long they will take. now: Unix seconds."""
    start = GaugeMetricFamily(
        "barograph_job_start_timestamp_seconds", "When the job's first interval began, in Unix seconds", labels=["job"]
    )
    projected = GaugeMetricFamily(
        "barograph_job_runtime_projected_seconds",
        "How long the whole run will take at its pace so far, in seconds",
        labels=["job"],
    )
    for name, job in jobs:
        if job.ended or job.trial is None or math.isnan(job.trial.began_at):
            continue
        start.add_metric([name], job.trial.began_at)
        if math.isfinite(seconds := scorer.projected_seconds(job, now)):
            projected.add_metric([name], seconds)
    yield from (start, projected)


def class_families(jobs: Sequence[tuple[str, WatchedJob]], scorer: Scorer) -> Iterator[Metric]:
    """Intervals of the classes in which the jobs spend most of their time. jobs: those to be shown first come first."""
    intervals = SummaryMetricFamily(
        "barograph_job_interval_seconds",
        "Intervals of the job so far, of the classes in which it spent most of its time, in seconds",
        labels=["job", "class"],
    )
    info = GaugeMetricFamily(
        "barograph_class_info", "1 for each of these classes, with the call sites in words", labels=["class", "site"]
    )
    shown: set[int] = set()
    left, hidden = MAX_CLASSES, 0
    for name, job in jobs:
        if job.trial is None:
            continue
        longest = job.trial.class_times.longest(min(CLASSES, left))
        for class_id, time in longest:
            intervals.add_metric([name, f"{class_id:016x}"], time.intervals, time.seconds)
            shown.add(class_id)
        left -= len(longest)
        hidden += len(job.trial.class_times) - len(longest)
    for class_id in sorted(shown):
        info.add_metric([f"{class_id:016x}", scorer.class_name(class_id)], 1)
    yield from (intervals, info)
    yield GaugeMetricFamily(
        "barograph_alerts_classes_hidden", "Classes of shown jobs left out of this exposition.", hidden
    )


def running_family(jobs: Sequence[tuple[str, WatchedJob]]) -> Metric:
    """Running jobs by state, without any limit."""
    family = GaugeMetricFamily("barograph_alerts_running_jobs", "Jobs that run, by state.", labels=["state"])
    states = Counter(job.state for _, job in jobs if not job.ended)
    for state in get_args(State):
        family.add_metric([state], states[state])
    return family
