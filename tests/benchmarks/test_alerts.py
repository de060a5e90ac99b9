"""False alarms, detections and delay of the score on series; its speed and memory.

The series are log ratios of windows to the mean of their workload, one per second. Variability is drawn per workload:
standard deviation within runs 1 to 4 %, heavy-tailed (Student's t, 5 degrees of freedom), lag-1 correlation 0 to 0.9;
between runs 0.5 to 4 %. History: 1, 3 or 8 runs, or none. All last 200 windows.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from barograph_alerts.detection.alarm import ALPHA
from barograph_alerts.processor import Scorer
from barograph_lab.studies.alerts.detectors import JobCase, detector
from barograph_lab.studies.alerts.tally import DetectorTally
from helpers.jobs import Simulation

Floats = npt.NDArray[np.float64]
WORKLOADS, JOBS_EACH, LENGTH, HISTORY = 500, 20, 200, 200
FACTORS = (1.1, 1.2, 1.5)


@dataclass
class Workload:
    """The history and the healthy jobs of one workload as log ratios, and the onsets of disturbances."""

    history: list[Floats]
    jobs: list[Floats]
    onsets: list[int]


def draw(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    sd, phi, between = rng.uniform(0.01, 0.04), rng.uniform(0, 0.9), rng.uniform(0.005, 0.04)

    def series(length: int) -> Floats:
        shocks = rng.standard_t(5, length + 100) / math.sqrt(5 / 3) * sd * math.sqrt(1 - phi * phi)
        for t in range(1, len(shocks)):
            shocks[t] += phi * shocks[t - 1]
        return rng.normal(0, between) + shocks[100:]

    history = [series(HISTORY) for _ in range(rng.choice([0, 1, 3, 8]))]
    jobs = [series(LENGTH) for _ in range(JOBS_EACH)]
    return Workload(history, jobs, rng.integers(30, 120, JOBS_EACH).tolist())


@pytest.mark.timeout(3600)
def test_healthy_jobs_ever_alarm_in_at_most_alpha_and_slow_ones_are_found():
    ours: dict[str, DetectorTally] = {}
    slow = {f: DetectorTally() for f in FACTORS}
    detect = detector()
    for seed in range(WORKLOADS):
        workload = draw(seed)
        for number, (series, onset) in enumerate(zip(workload.jobs, workload.onsets, strict=True)):
            job = JobCase(workload.history, series)
            alarms = detect(job)
            for name in (f"{len(workload.history)} runs", "all"):
                ours.setdefault(name, DetectorTally()).add(None, alarms)
            factors = FACTORS if number < 2 else ()
            disturbed = {f: JobCase(workload.history, series + math.log(f) * (np.arange(LENGTH) >= onset), onset)
                         for f in factors}  # fmt: skip
            for f, one in disturbed.items():
                slow[f].count(detect, one)
    print(
        f"\nhealthy jobs that ever alarm (alpha {ALPHA:g}); of those slower by 10, 20, 50 % found, windows until then"
    )
    for name, tally in sorted(ours.items()):
        _line(f"score, {name}", tally, slow if name == "all" else {})
    assert ours["all"].healthy == WORKLOADS * JOBS_EACH
    assert ours["all"].interval[1] <= ALPHA
    for f in (1.2, 1.5):
        assert slow[f].found >= 0.9 * slow[f].disturbed
        assert (slow[f].delay or math.inf) <= 30


def _line(name: str, tally: DetectorTally, slow: dict[float, DetectorTally]) -> None:
    low, high = tally.interval
    parts = [
        f"{one.found / one.disturbed:4.0%} after {one.delay:3.0f}" if one.delays else "  0 %          "
        for one in slow.values()
    ]
    share = f"{tally.false:5d} of {tally.healthy:6d} = {tally.false / tally.healthy:7.3%} [{low:.3%}, {high:.3%}]"
    print(f"  {name:30s} {share}  {'   '.join(parts)}")


def test_a_core_scores_a_hundred_thousand_blocks_a_second():
    simulation = Simulation(intervals=20_000)
    scorer = Scorer()
    jobs = [simulation.job() for _ in range(20)]
    for job in jobs:
        scorer.observe("jobs", job["jobs"], 0.0)
    began = time.process_time()
    for job in jobs:
        scorer.observe("blocks", job["blocks"], 0.0)
        scorer.step(0.0)
    blocks = sum(len(job["blocks"]["job"]) for job in jobs)
    rate = blocks / (time.process_time() - began)
    seconds = sum(job["runs"]["runtime_seconds"][0] for job in jobs)
    print(f"\n{rate:,.0f} blocks/s of CPU time, {blocks / seconds:.0f} blocks a window")
    assert rate > 100_000


def test_a_running_job_takes_less_than_50_kilobytes():
    simulation = Simulation(intervals=100_000)
    job = simulation.job()
    scorer = Scorer()
    tracemalloc.start()
    before, count = tracemalloc.get_traced_memory()[0], 20
    for number in range(count):
        name = f"lab/{number}.0.0"
        rows = {**job["blocks"], "job": [name] * len(job["blocks"]["job"])}
        scorer.observe("jobs", {**job["jobs"], "job": [name]}, 0.0)
        scorer.observe("blocks", rows, 0.0)
        del rows
        scorer.step(0.0)
    each = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    print(f"\n{each / 1000:.1f} kB for a job of {len(job['blocks']['job']):,} blocks")
    assert each < 50_000
