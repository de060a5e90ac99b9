"""What Prometheus sees of jobs beside their scores: limits hold, and nothing is left out silently."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from barograph_alerts.export import exporter
from barograph_alerts.export.exporter import AlertsExporter
from barograph_alerts.export.job_metrics import CLASSES, MAX_CLASSES
from barograph_alerts.processor import Scorer
from barograph_modeler.learning.learner import Learner
from helpers.jobs import CLASSES as SIMULATED
from helpers.jobs import Columns, Simulation, part, verdict

Samples = dict[str, dict[tuple[str, ...], float]]


def exposed(scorer: Scorer, now: float) -> Samples:
    """Values by sample name and label values."""
    found: Samples = defaultdict(dict)
    for metric in AlertsExporter(scorer, lambda: now).collect():
        for sample in metric.samples:
            found[sample.name][tuple(sample.labels.values())] = sample.value
    return found


def blocks(job: str, class_ids: list[int], seconds: float, ended_at: float) -> Columns:
    """One interval of each class."""
    n = len(class_ids)
    column = np.full(n, seconds)
    return {"job": [job] * n, "world": np.zeros(n, np.int64), "first_index": np.arange(n),
            "class_id": np.array(class_ids, np.uint64), "count": np.ones(n, np.int64),
            "sum_seconds": column, "sum_squares": column**2, "sum_cubes": column**3, "min_seconds": column,
            "max_seconds": column, "ended_at": ended_at + np.cumsum(column)}  # fmt: skip


def begin(scorer: Scorer, number: int, now: float, user: str = "u") -> str:
    name = f"lab/{number}.0.0"
    scorer.observe("jobs", {"log_offset": [number], "job": [name], "workload": ["lab/app@2x1"], "app": ["app"],
                         "user": [user], "nodes": [1], "cluster": ["lab"], "params": ["{}"], "ranks": [2],
                         "host": ["n1"], "started_at": [now]}, now)  # fmt: skip
    return name


def test_the_intervals_shown_are_those_of_the_full_windows_by_class():
    simulation, scorer = Simulation(), Scorer()
    job = simulation.job()
    for table in ("jobs", "blocks"):
        scorer.observe(table, job[table], simulation.now)
    scorer.step(simulation.now)
    seen = exposed(scorer, simulation.now)
    name = job["jobs"]["job"][0]
    for class_id, share in zip(SIMULATED, (0.8, 0.2), strict=True):
        label = (name, f"{class_id:016x}")
        whole = job["blocks"]["sum_seconds"][job["blocks"]["class_id"] == class_id]
        count, seconds = (seen[f"barograph_job_interval_seconds_{part}"][label] for part in ("count", "sum"))
        assert seconds == pytest.approx(whole[: int(count)].sum())
        assert 0 <= whole.sum() - seconds <= 1.1 * share  # what the open window holds
    assert set(seen["barograph_class_info"]) == {(name, f"{c:016x}", f"class {c:016x}") for c in SIMULATED}


def test_a_class_has_the_name_that_its_own_job_gives_it():
    scorer = Scorer()
    first, second = (begin(scorer, number, 1e6) for number in (1, 2))
    for window in range(3):
        for name in (first, second):
            scorer.observe("blocks", blocks(name, [7], 1.1, 1e6 + window), 1e6)
    for name, at in ((first, "solve < main"), (second, "forged < main")):
        scorer.observe("sites", {"job": [name], "class_id": [7], "from_site": ["start < main"], "to_site": [at]}, 1e6)
    scorer.step(1e6)
    expected = {(first, f"{7:016x}", "start -> solve"), (second, f"{7:016x}", "start -> forged")}
    assert set(exposed(scorer, 1e6)["barograph_class_info"]) == expected


def test_a_job_that_goes_as_ever_is_projected_to_end_as_ever_and_a_slow_one_later():
    simulation, learner = Simulation(), Learner()
    scorers = Scorer(), Scorer()
    for _ in range(4):
        job = simulation.job()
        for table, columns in job.items():
            learner.observe(table, columns, simulation.now)
        learner.observe("scores", verdict(job, 0.0), simulation.now)
        for output in learner.step(simulation.now):
            for scorer in scorers if output.table in ("paces", "bands") else ():
                columns = {name: np.broadcast_to(value, output.rows) for name, value in output.columns.items()}
                scorer.observe(output.table, columns, simulation.now)
    projected = []
    for scorer, factor in zip(scorers, (1.0, 2.0), strict=True):
        job = simulation.job(slow_from=0, factor=factor)
        half = part(job["blocks"], 0, simulation.intervals // 2)
        now = float(half["ended_at"][-1])
        scorer.observe("jobs", job["jobs"], now)
        scorer.observe("blocks", half, now)
        scorer.step(now)
        seen, name = exposed(scorer, now), (job["jobs"]["job"][0],)
        assert seen["barograph_job_start_timestamp_seconds"][name] == pytest.approx(job["jobs"]["started_at"][0])
        projected.append(seen["barograph_job_runtime_projected_seconds"][name])
    assert projected == pytest.approx([20.0, 40.0], rel=0.05)


def test_a_job_of_many_call_sites_shows_the_longest_and_counts_the_rest():
    scorer = Scorer()
    name = begin(scorer, 1, 1e6)
    for round_ in range(20):
        for class_id in range(1, 31):
            scorer.observe("blocks", blocks(name, [class_id], 0.01 * class_id, 1e6 + 5 * round_), 1e6)
    scorer.step(1e6)
    seen = exposed(scorer, 1e6)
    assert {label[1] for label in seen["barograph_job_interval_seconds_sum"]} == {
        f"{class_id:016x}" for class_id in range(31 - CLASSES, 31)
    }
    assert seen["barograph_alerts_classes_hidden"] == {(): 30 - CLASSES}


def test_of_five_thousand_jobs_a_thousand_are_shown_and_all_are_counted():
    scorer, jobs, classes = Scorer(), 5000, list(range(1, 11))
    for number in range(jobs):
        name = begin(scorer, number, 1e6)
        scorer.observe("blocks", blocks(name, classes, 0.2, 1e6), 1e6)
    scorer.step(1e6)
    seen = exposed(scorer, 1e6)
    assert len(seen["barograph_job_info"]) == 1000
    assert seen["barograph_alerts_jobs_hidden"] == {(): jobs - 1000}
    assert sum(seen["barograph_alerts_running_jobs"].values()) == jobs
    assert len(seen["barograph_job_interval_seconds_sum"]) == MAX_CLASSES
    assert seen["barograph_alerts_classes_hidden"] == {(): 1000 * len(classes) - MAX_CLASSES}


def test_jobs_of_equal_score_do_not_take_turns_from_scrape_to_scrape():
    scorer, rng, jobs = Scorer(), np.random.default_rng(1), 1200
    names = [begin(scorer, number, 1e6) for number in range(jobs)]
    for window in range(3):
        for name in rng.permutation(names):
            scorer.observe("blocks", blocks(str(name), [1], 1.1, 1e6 + window), 1e6 + window)
        scorer.step(1e6 + window)
        shown = {job for job, *_ in exposed(scorer, 1e6 + window)["barograph_job_info"]}
        assert shown == set(names[:1000])


def test_alarms_of_one_user_however_many_and_high_do_not_hide_those_of_another(monkeypatch):
    monkeypatch.setattr(exporter, "MAX_JOBS", 10)
    scorer = Scorer()
    for number in range(40):
        name = begin(scorer, number, 1e6, user="amara" if number == 39 else "mallory")
        scorer.jobs[name].changed_at = 1e6
        # The highest scores are the first user's.
        monkeypatch.setattr(type(scorer.jobs[name]), "score", property(lambda job: 100.0 - job.offset), raising=True)
    seen = exposed(scorer, 1e6)
    shown = {labels[0] for labels in seen["barograph_job_info"]}
    assert len(shown) == 10
    assert "lab/39.0.0" in shown
    assert seen["barograph_alerts_jobs_hidden"][()] == 30
