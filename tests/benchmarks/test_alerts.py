"""False alarms, detections and delay of the score beside rivals on the same series; its speed and memory.

The series are log ratios of windows to the mean of their workload, one a second. A workload draws how restless it is:
standard deviation within runs 1 to 4 %, heavy-tailed (Student's t, 5 degrees of freedom), lag-1 correlation 0 to 0.9;
between runs 0.5 to 4 %. History: 1, 3 or 8 runs of 60 windows, or none. Jobs last 200 windows.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from river import anomaly, drift
from scipy.stats import beta

from barograph_alerts.evidence import ALPHA, Evidence
from barograph_alerts.scorer import Scorer
from barograph_modeler.pace import Pace, fit_pace
from barograph_modeler.windows import RunPace, Window
from helpers.jobs import Simulation

Floats = npt.NDArray[np.float64]
WORKLOADS, JOBS_EACH, LENGTH, HISTORY = 500, 20, 200, 60
RIVAL_WORKLOADS = 50
FACTORS = (1.1, 1.2, 1.5)
BANDS, RUN = 3.0, 5
"""The rule of bands: so many deviations above the median, for so many windows in a row, as `for: 5s` would."""


@dataclass
class Workload:
    """How restless one workload is, its history and its healthy jobs, as log ratios."""

    history: list[Floats]
    jobs: list[Floats]
    onsets: list[int]

    @property
    def pace(self) -> Pace | None:
        runs = []
        for series in self.history:
            run = RunPace()
            run.add(windows(series))
            runs.append(run)
        return fit_pace(runs) if runs else None


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


def windows(series: Floats) -> Iterator[Window]:
    for i, seconds in enumerate(np.exp(series).tolist()):
        yield Window({1: 100}, {1: seconds}, float(i), i + 1.0)


Detector = Callable[[Workload, Floats], list[int]]
"""Windows at which a series alarmed, of the first disturbance on."""


def score(workload: Workload, series: Floats, pace: Pace | None) -> list[int]:
    evidence = Evidence(pace)
    for window in windows(series):
        evidence.add(window)
    return [int(alarm.detected_at) for alarm in evidence.alarms if alarm.kind == "slow"]


def bands(workload: Workload, series: Floats) -> list[int]:
    """Median + 3 * 1.4826 MAD of the history (of the job's own first 30 windows without one), 5 windows in a row."""
    known = np.concatenate(workload.history) if workload.history else series[:30]
    limit = np.median(known) + BANDS * 1.4826 * np.median(np.abs(known - np.median(known)))
    over = np.convolve(series > limit, np.ones(RUN), "valid")
    return [int(np.argmax(over == RUN)) + RUN] if (over == RUN).any() else []


def half_space_trees(workload: Workload, series: Floats) -> list[int]:
    """river's HalfSpaceTrees above the 99.9 % quantile of its scores, 5 windows in a row and slower than the median."""
    trees = anomaly.HalfSpaceTrees(n_trees=10, height=6, window_size=30, limits={"x": (-1, 1)}, seed=1)
    guard = anomaly.QuantileFilter(trees, q=0.999)
    known = np.concatenate(workload.history) if workload.history else series[:30]
    for x in known.tolist():
        guard.learn_one({"x": x})
    middle, run = float(np.median(known)), 0
    for i, x in enumerate(series.tolist()):
        run = run + 1 if x > middle and guard.classify(guard.score_one({"x": x})) else 0
        guard.learn_one({"x": x})
        if run == RUN:
            return [i + 1]
    return []


def adwin(workload: Workload, series: Floats) -> list[int]:
    """river's ADWIN on history and job: a change to slower."""
    detector = drift.ADWIN(delta=0.002)
    for x in (np.concatenate(workload.history) if workload.history else np.empty(0)).tolist():
        detector.update(x)
    for i, x in enumerate(series.tolist()):
        before = detector.estimation
        detector.update(x)
        if detector.drift_detected and detector.estimation > before:
            return [i + 1]
    return []


@dataclass
class Tally:
    """What one detector did."""

    healthy: int = 0
    false: int = 0
    disturbed: int = 0
    found: int = 0
    delays: list[int] | None = None

    def count_healthy(self, alarms: list[int]) -> None:
        self.healthy += 1
        self.false += bool(alarms)

    def count_disturbed(self, alarms: list[int], onset: int) -> None:
        self.disturbed += 1
        if after := [at for at in alarms if at > onset]:
            self.found += 1
            self.delays = [*(self.delays or []), after[0] - onset]

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of Clopper and Pearson for the share of healthy jobs that ever alarm."""
        k, n = self.false, self.healthy
        low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
        return low, float(beta.ppf(0.975, k + 1, n - k))


@pytest.mark.timeout(3600)
def test_healthy_jobs_ever_alarm_in_at_most_alpha_and_slow_ones_are_found_sooner_than_by_rivals():
    ours: dict[str, Tally] = {}
    slow = {f: Tally() for f in FACTORS}
    rivals: dict[str, tuple[Detector, int]] = {
        "median +- 3 MAD, 5 in a row": (bands, WORKLOADS),
        "river HalfSpaceTrees": (half_space_trees, RIVAL_WORKLOADS),
        "river ADWIN": (adwin, RIVAL_WORKLOADS),
    }
    rival_healthy = {name: Tally() for name in rivals}
    rival_slow = {(name, f): Tally() for name in rivals for f in FACTORS}
    for seed in range(WORKLOADS):
        workload = draw(seed)
        pace, kind = workload.pace, f"{len(workload.history)} runs"
        for number, (series, onset) in enumerate(zip(workload.jobs, workload.onsets, strict=True)):
            alarms = score(workload, series, pace)
            ours.setdefault(kind, Tally()).count_healthy(alarms)
            ours.setdefault("all", Tally()).count_healthy(alarms)
            disturbed = {f: series + math.log(f) * (np.arange(LENGTH) >= onset) for f in FACTORS}
            for f in FACTORS if number < 2 else ():
                slow[f].count_disturbed(score(workload, disturbed[f], pace), onset)
            for name, (detector, workloads) in rivals.items():
                if seed >= workloads:
                    continue
                rival_healthy[name].count_healthy(detector(workload, series))
                for f in FACTORS if number < 2 else ():
                    rival_slow[name, f].count_disturbed(detector(workload, disturbed[f]), onset)
    print(
        f"\nhealthy jobs that ever alarm (alpha {ALPHA:g}); of those slower by 10, 20, 50 % found, windows until then"
    )
    for name, tally in sorted(ours.items()):
        _line(f"score, {name}", tally, slow if name == "all" else {})
    for name, tally in rival_healthy.items():
        _line(name, tally, {f: rival_slow[name, f] for f in FACTORS})
    assert ours["all"].healthy == WORKLOADS * JOBS_EACH
    assert ours["all"].interval[1] <= ALPHA
    for f in (1.2, 1.5):
        assert slow[f].found >= 0.9 * slow[f].disturbed
        assert np.median(slow[f].delays or [math.inf]) <= 30


def _line(name: str, tally: Tally, slow: dict[float, Tally]) -> None:
    low, high = tally.interval
    parts = [
        f"{one.found / one.disturbed:4.0%} after {np.median(one.delays):3.0f}" if one.delays else "  0 %          "
        for one in slow.values()
    ]
    share = f"{tally.false:5d} of {tally.healthy:6d} = {tally.false / tally.healthy:7.3%} [{low:.3%}, {high:.3%}]"
    print(f"  {name:30s} {share}  {'   '.join(parts)}")


def test_a_core_scores_a_hundred_thousand_blocks_a_second():
    simulation = Simulation(intervals=20_000)
    scorer = Scorer()
    jobs = [simulation.job() for _ in range(20)]
    for job in jobs:
        scorer.take("jobs", job["jobs"], 0.0)
    began = time.process_time()
    for job in jobs:
        scorer.take("blocks", job["blocks"], 0.0)
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
        scorer.take("jobs", {**job["jobs"], "job": [name]}, 0.0)
        scorer.take("blocks", rows, 0.0)
        del rows
        scorer.step(0.0)
    each = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    print(f"\n{each / 1000:.1f} kB for a job of {len(job['blocks']['job']):,} blocks")
    assert each < 50_000
