"""The learner: what it learns, when, and what it keeps out."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest

from barograph_collector.daemon.runner import Output
from barograph_modeler.bands.class_model import fit_gevs
from barograph_modeler.bands.coverage import Coverage
from barograph_modeler.learning import jobs as held
from barograph_modeler.learning import learner as module
from barograph_modeler.learning import workload
from barograph_modeler.learning.jobs import VERDICT_SECONDS
from barograph_modeler.learning.learner import Learner
from helpers.jobs import CLASSES, Simulation, part, verdict
from helpers.refits import learner as many
from helpers.works import new_modeler


def unhurried(**options: Any) -> Learner:
    """A learner whose fits may take as long as a busy machine needs."""
    return Learner(refit_seconds=math.inf, **options)


def feed(learner: Learner, job: dict, now: float, score: float | None = 0.0) -> list[Output]:
    if score is not None:
        learner.observe("scores", verdict(job, score), now)  # unknown to the learner yet: must not matter
    for table in ("runs", "jobs", "blocks"):
        learner.observe(table, job[table], now)
    if score is not None:
        learner.observe("scores", verdict(job, score), now)
    return learner.step(now)


def feed_state(learner: Learner, job: dict, now: float, state: str) -> list[Output]:
    for table in ("runs", "jobs", "blocks"):
        learner.observe(table, job[table], now)
    learner.observe("scores", verdict(job, 0.5, state=state), now)
    return learner.step(now)


def bands(outputs: list[Output]) -> dict[tuple[int, str], dict]:
    found = {}
    for output in outputs:
        if output.table == "bands":
            for row in range(output.rows):
                values = {k: v if np.isscalar(v) else v[row] for k, v in output.columns.items()}
                found[int(values["class_id"]), values["method"]] = values
    return found


def paces(outputs: list[Output]) -> list[dict]:
    return [dict(output.columns) for output in outputs if output.table == "paces"]


def test_a_healthy_run_gives_bands_of_each_class_that_hold_new_intervals():
    learner, simulation = unhurried(), Simulation()
    found = bands(feed(learner, simulation.job(), simulation.now))
    for class_id, seconds in zip(CLASSES, (0.004, 0.001), strict=True):
        fresh = seconds * np.random.default_rng(9).lognormal(0, 0.03, 20_000)
        for method in ("tracked", "gev", "bootstrap"):
            band = found[class_id, method]
            inside = np.mean((fresh >= band["lower_seconds"]) & (fresh <= band["upper_seconds"]))
            assert inside == pytest.approx(0.95, abs=0.03)
            assert band["expected_seconds"] == pytest.approx(seconds, rel=0.02)


def test_every_run_gives_a_runtime_band_and_five_a_pace_that_rests_on_five():
    learner, simulation = unhurried(), Simulation()
    seen = [feed(learner, simulation.job(), simulation.now) for _ in range(5)]
    assert [any(key[1] == "log-t" for key in bands(outputs)) for outputs in seen] == [True] * 5
    pace = paces(seen[-1])[0]
    assert pace["runs"] == 5
    means = {int(key): value for key, value in json.loads(pace["means"]).items()}
    assert means == {11: pytest.approx(0.004, rel=0.01), 22: pytest.approx(0.001, rel=0.01)}


def test_a_job_that_alarmed_teaches_nothing():
    learner, simulation = unhurried(), Simulation()
    for _ in range(3):
        feed(learner, simulation.job(), simulation.now)
    before = learner.workloads["lab/app@2x1"].pace.columns()["means"]
    assert feed(learner, simulation.job(slow_from=0, factor=3.0), simulation.now, score=1.2) == []
    assert learner.workloads["lab/app@2x1"].pace.columns()["means"] == before
    assert learner.withheld_intervals == simulation.intervals
    assert len(learner.workloads["lab/app@2x1"].runtimes) == 3


def test_a_longer_run_teaches_its_pace_but_no_runtime_until_as_many_are_as_long():
    learner, simulation = unhurried(), Simulation()
    expected = []
    for intervals in (8000, 8000, 16000, 8000, 16000, 16000):
        simulation.intervals = intervals
        feed(learner, simulation.job(), simulation.now)
        band = learner.workloads["lab/app@2x1"].runtime
        assert band is not None
        expected.append(band.expected)
    assert expected == pytest.approx([20, 20, 20, 20, 20, 40], rel=0.01)
    assert learner.workloads["lab/app@2x1"].pace.runs == 6


def test_a_run_shorter_than_one_or_two_is_learned_and_one_shorter_than_three_or_longer_is_learned_at_the_limit():
    learner, simulation = unhurried(), Simulation()
    samples, limits = [], []
    for factor in (1.5, 1.0, 1.0, 1.0, 0.5):
        job = simulation.job(slow_from=0, factor=factor)
        outputs = feed_state(learner, job, simulation.now, "healthy" if factor == 1.5 else "inconclusive")
        band = learner.workloads["lab/app@2x1"].runtime
        assert band is not None
        assert any(key[1] == "log-t" for key in bands(outputs)), "the limits are told"
        samples.append(learner.learned_runs)
        limits.append(band.lower)
    assert samples == [1, 2, 3, 3, 3]
    assert limits[3] > 10


def test_an_alarm_that_was_taken_back_does_not_keep_a_run_from_being_learned():
    learner, simulation = unhurried(), Simulation()
    job = simulation.job()
    learner.observe("jobs", job["jobs"], simulation.now)
    learner.observe("scores", verdict(job, 1.5, final=0), simulation.now)
    feed(learner, job, simulation.now, score=0.4)
    assert learner.learned_runs == 1


def test_a_failed_run_teaches_its_intervals_but_not_its_runtime():
    learner, simulation = unhurried(), Simulation()
    found = bands(feed(learner, simulation.job(status=137), simulation.now))
    assert (11, "tracked") in found
    assert not learner.workloads["lab/app@2x1"].runtimes
    assert learner.learned_runs == 0


@pytest.mark.parametrize("late", [0.0, 1e6])
def test_intervals_of_a_running_job_are_held_back_from_their_arrival_however_late_they_come(late):
    learner, simulation = unhurried(), Simulation()
    job = simulation.job()
    came = job["jobs"]["started_at"][0] + 5 + late
    learner.observe("jobs", job["jobs"], came)
    learner.observe("blocks", part(job["blocks"], 0, 2000), came)
    learned_at = came + module.HOLD_SECONDS + module.LEARN_SECONDS
    assert learner.step(learned_at - 1) == []
    assert learner.learned_intervals == 0
    assert bands(learner.step(learned_at + 1))
    assert learner.learned_intervals == 2000


def test_the_end_of_a_run_waits_for_its_verdict_but_not_for_ever():
    learner, simulation = unhurried(), Simulation()
    assert feed(learner, simulation.job(), 50.0, score=None) == []
    assert learner.step(50.0 + VERDICT_SECONDS - 1) == []
    assert learner.step(50.0 + VERDICT_SECONDS + 1) != []
    assert learner.held_jobs == 0


@pytest.mark.parametrize(("score", "learned"), [(None, 3), (0.0, 4)])
def test_a_run_whose_verdict_has_left_the_log_is_what_its_outcome_says(score, learned):
    learner, simulation = unhurried(), Simulation()
    for _ in range(3):
        feed(learner, simulation.job(), simulation.now)
    job = slow(simulation, 1.5)
    feed(learner, job, simulation.now, score=None)
    if score is not None:
        learner.observe("scores", verdict(job, score), simulation.now)
    learner.observe("outcomes", {"job": job["jobs"]["job"], "result": ["withheld"]}, simulation.now)
    learner.step(simulation.now)
    assert [ended.verdict for ended in learner.ended][3:] == ["withheld" if score is None else "healthy"]
    assert learner.learned_runs == learned
    assert learner.held_jobs == 0


def test_the_order_and_cut_of_pages_does_not_matter():
    first, second = unhurried(seed=3), unhurried(seed=3)
    jobs = [Simulation(seed=7).job()]
    whole = bands(feed(first, jobs[0], 99.0))
    for start in range(0, 8000, 333):
        second.observe("blocks", part(jobs[0]["blocks"], start, start + 333), 99.0)
    second.observe("jobs", jobs[0]["jobs"], 99.0)
    second.observe("runs", jobs[0]["runs"], 99.0)
    second.observe("scores", verdict(jobs[0], 0.0), 99.0)
    cut = bands(second.step(99.0))
    assert {k: (b["lower_seconds"], b["upper_seconds"]) for k, b in whole.items()} == {
        k: (b["lower_seconds"], b["upper_seconds"]) for k, b in cut.items()
    }


def test_coverage_is_counted_on_intervals_before_they_are_learned():
    learner, simulation = unhurried(), Simulation()
    feed(learner, simulation.job(), simulation.now)
    coverage = learner.workloads["lab/app@2x1"].interval_coverage
    assert coverage == Coverage()
    feed(learner, simulation.job(), simulation.now)
    assert coverage.inside + coverage.outside == simulation.intervals
    assert coverage.ratio == pytest.approx(0.95, abs=0.03)


def test_the_runtime_band_is_judged_by_each_run_before_it_learns_it_and_alarmed_jobs_stand_apart():
    learner, simulation = unhurried(), Simulation(intervals=400)
    for _ in range(5):
        feed(learner, simulation.job(), simulation.now)
    workload = learner.workloads["lab/app@2x1"]
    seen = workload.runtime_coverage
    assert seen.inside + seen.outside == 4  # one run for the first band
    before = workload.interval_coverage.inside, workload.interval_coverage.outside
    feed(learner, simulation.job(slow_from=0, factor=3.0), simulation.now, score=2.0)
    assert (seen.inside + seen.outside, seen.withheld_outside) == (4, 1)
    assert (workload.interval_coverage.inside, workload.interval_coverage.outside) == before
    assert workload.interval_coverage.withheld_outside == 400


def slow(simulation: Simulation, factor: float) -> dict:
    return simulation.job(slow_from=0, factor=factor)


def test_runs_that_alarm_one_after_the_other_and_agree_become_the_history():
    learner, simulation = unhurried(accept=4), Simulation(intervals=2000)
    for _ in range(3):
        feed(learner, simulation.job(), simulation.now)
    outputs = []
    for _ in range(4):
        assert not outputs
        outputs = feed(learner, slow(simulation, 1.5), simulation.now, score=2.0)
    event = next(dict(output.columns) for output in outputs if output.table == "events")
    assert (event["source"], event["kind"], event["rows"]) == ("lab/app@2x1", "regime-closed", 3)
    detail = json.loads(event["detail"])
    assert detail["new_mean_seconds"] / detail["old_mean_seconds"] == pytest.approx(1.5, rel=0.02)
    assert paces(outputs)[0]["runs"] == 4
    means = json.loads(paces(outputs)[0]["means"])
    assert means["11"] == pytest.approx(0.006, rel=0.01)
    assert bands(outputs)[11, "tracked"]["expected_seconds"] == pytest.approx(0.006, rel=0.02)
    assert bands(outputs)[0, "log-t"]["runs"] == 4
    interval = learner.workloads["lab/app@2x1"].intervals[11]
    assert [regime.moments.count for regime in interval.regimes] == [3000]
    assert interval.regimes[0].moments.mean == pytest.approx(0.004, rel=0.01)
    assert interval.moments.count == 1000  # of the last one: the intervals of the others are gone


@pytest.mark.parametrize(
    "runs", [[1.5, 1.5, 2.5, 1.5], [1.5, 1.5, None, 1.5, 1.5]], ids=["one differs", "a healthy one between"]
)
def test_runs_that_alarm_but_do_not_agree_or_not_in_a_row_are_not_learned(runs):
    learner, simulation = unhurried(accept=4), Simulation(intervals=2000)
    for _ in range(3):
        feed(learner, simulation.job(), simulation.now)
    for factor in runs:
        job = simulation.job() if factor is None else slow(simulation, factor)
        outputs = feed(learner, job, simulation.now, score=0.0 if factor is None else 2.0)
        assert not [output for output in outputs if output.table == "events"]
    assert learner.closed_regimes.total() == 0
    assert learner.withheld_intervals == 2000 * sum(factor is not None for factor in runs)


@pytest.mark.parametrize(
    ("blamed", "hosts", "accepted"),
    [
        (['["n2"]'] * 4, '["n1", "n2", "n3"]', False),
        (['["n2"]', '["n2", "n3"]', '["n1", "n2"]', '["n2"]'], '["n1", "n2", "n3"]', False),
        (['["n2"]', '["n2"]', '["n3"]', '["n2"]'], '["n1", "n2", "n3"]', True),
        (['["n1", "n2"]'] * 4, '["n1", "n2"]', True),
        (['["n1"]'] * 4, '["n1"]', True),
        (['["rank 1"]'] * 4, '["n1"]', True),
        (['["all"]'] * 4, '["n1", "n2"]', True),
        (['["n2"]', "n2", '["n2"]', '["n2"]'], '["n1", "n2"]', True),
    ],
    ids=["a node", "with others", "different nodes", "all nodes", "the only node", "a rank", "network", "no list"],
)
def test_runs_in_which_one_node_is_to_blame_do_not_become_the_history(blamed, hosts, accepted):
    learner, simulation = unhurried(accept=4), Simulation(intervals=2000)
    for _ in range(3):
        feed(learner, simulation.job(), simulation.now)
    for members in blamed:
        job = slow(simulation, 1.5)
        for table in ("runs", "jobs", "blocks"):
            learner.observe(table, job[table], simulation.now)
        learner.observe("scores", verdict(job, 2.0) | {"members": [members], "hosts": [hosts]}, simulation.now)
        learner.step(simulation.now)
    assert learner.closed_regimes["accepted"] == accepted


@pytest.mark.quarantine
def test_a_class_that_cannot_be_fitted_leaves_out_none_of_those_that_are_fitted_with_it(monkeypatch):
    learner = many(5, None)
    broken = learner.workloads["3"].intervals[1].history.values

    def fit(windows, seed):
        if any((one == broken).all() for one in windows):
            raise ArithmeticError("no fit")
        return fit_gevs(windows, seed)

    for place in ("learning.learner", "bands.class_model"):
        monkeypatch.setattr(f"barograph_modeler.{place}.fit_gevs", fit)
    learner.step(0.0)
    bands = [len(one.intervals[1].bands) for one in learner.workloads.values()]
    assert bands == [3, 3, 3, 0, 3]
    assert learner.fitted_here == 4
    assert learner.quarantine.failures == {"refit": 1}


def test_accept_0_never_learns_from_a_job_that_alarmed():
    learner, simulation = unhurried(accept=0), Simulation(intervals=2000)
    for _ in range(3):
        feed(learner, simulation.job(), simulation.now)
    assert not any(feed(learner, slow(simulation, 1.5), simulation.now, score=2.0) for _ in range(7))


def test_fits_stop_at_the_budget_and_what_waits_is_fitted_by_later_steps(monkeypatch):
    monkeypatch.setattr("barograph_modeler.learning.learner.TOGETHER", 1)
    ticks = itertools.count()
    learner = Learner(refit_seconds=1.0, clock=lambda: float(next(ticks)))  # each look at the clock costs a second
    first = feed(learner, Simulation(intervals=2000).job(), 50.0)
    assert {class_id for class_id, _ in bands(first)} == {0, 11}  # the runtime, and 4 of every 5 seconds
    assert len(learner.backlog) == 1
    assert {class_id for class_id, _ in bands(learner.step(50.5))} == {22}
    assert len(learner.backlog) == 0
    assert learner.step(51.0) == []


def test_classes_beyond_the_limit_go_the_least_recently_learned_first_whatever_their_workload():
    learner = unhurried(classes=3)
    simulations = [Simulation(workload=f"lab/{name}@2x1", intervals=100) for name in "ab"]
    for number, simulation in enumerate(simulations):
        simulation._made = 10 * number
        feed(learner, simulation.job(), simulation.now)
    assert learner.classes == 3
    assert list(learner.workloads["lab/a@2x1"].intervals) == [22]
    assert list(learner.workloads["lab/b@2x1"].intervals) == [11, 22]
    feed(learner, simulations[0].job(), simulations[0].now)
    assert list(learner.workloads["lab/a@2x1"].intervals) == [11, 22]
    assert list(learner.workloads["lab/b@2x1"].intervals) == [22]


def test_a_runtime_that_is_not_a_number_is_not_learned():
    learner, simulation = unhurried(), Simulation()
    job = simulation.job()
    job["runs"]["runtime_seconds"] = [math.nan]
    feed(learner, job, simulation.now)
    assert not learner.workloads["lab/app@2x1"].runtimes
    assert learner.learned_runs == 1


def test_jobs_beyond_the_limit_are_forgotten_oldest_first(monkeypatch):
    monkeypatch.setattr(held, "MAX_JOBS", 2)
    learner, simulation = unhurried(), Simulation(intervals=10)
    jobs = [simulation.job() for _ in range(3)]
    for job in jobs:
        learner.observe("jobs", job["jobs"], 0.0)
    assert learner.held_jobs == 2


def test_jobs_of_one_user_displace_no_running_job_of_another(monkeypatch):
    monkeypatch.setattr(held, "MAX_JOBS", 3)
    processor, simulation = new_modeler(), Simulation(intervals=400)
    long, *others = [simulation.job() for _ in range(20)]
    for job in (long, *others):
        user = "amara" if job is long else "mallory"
        processor.observe("jobs", {**job["jobs"], "user": [user]}, simulation.now)
        processor.step(simulation.now)
    for table in ("blocks", "runs"):
        processor.observe(table, long[table], simulation.now)
    processor.observe("scores", verdict(long, 0.0), simulation.now)
    processor.step(simulation.now)
    assert processor.learner.learned_runs == 1
    assert processor.learner.evicted_jobs == 17


def test_the_memory_of_all_jobs_is_bounded_and_the_user_of_whom_most_is_held_loses(monkeypatch):
    monkeypatch.setattr(held, "MAX_HELD_BLOCKS", 1000)
    learner, simulation = unhurried(), Simulation(intervals=400)
    small, *large = [simulation.job() for _ in range(6)]
    for job in (small, *large):
        learner.expect(job["jobs"]["job"], ["amara" if job is small else "mallory"])
        for start in range(0, 400, 50):
            learner.observe("blocks", part(job["blocks"], start, start + 50), simulation.now)
    learner.step(simulation.now)
    blocks = {job["jobs"]["job"][0]: learner._jobs._job(job["jobs"]["job"][0]).held for job in (small, *large)}
    assert sum(blocks.values()) <= 1000
    assert blocks[small["jobs"]["job"][0]] == 400
    for job in (small, *large):
        learner.observe("jobs", job["jobs"], simulation.now)
        learner.observe("runs", job["runs"], simulation.now)
        learner.observe("scores", verdict(job, 0.0), simulation.now)
    learner.step(simulation.now)
    assert learner.learned_intervals + learner.withheld_intervals == 6 * 400


def test_the_pace_of_a_workload_is_fitted_once_for_all_runs_of_a_step(monkeypatch):
    """As when a log is read again."""
    fits = []
    fitted = workload.fit_pace
    monkeypatch.setattr(workload, "fit_pace", lambda runs: fits.append(len(runs)) or fitted(runs))
    simulation, learner = Simulation(intervals=800), unhurried()
    for _ in range(12):
        job = simulation.job()
        for table in ("jobs", "blocks", "runs"):
            learner.observe(table, job[table], simulation.now)
        learner.observe("scores", verdict(job, 0.1), simulation.now)
    (pace,) = paces(learner.step(simulation.now))
    assert (learner.learned_runs, pace["runs"], fits) == (12, 12, [12])
    assert not paces(learner.step(simulation.now))
    assert fits == [12]
