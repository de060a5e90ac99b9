"""`barograph backtest alerts`: jobs from the runs of a file, counts, and errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from barograph.cli import main
from barograph_lab.studies.alerts.detectors import JobCase, detector
from barograph_lab.studies.alerts.pairs import MeasuredRun, cases
from barograph_lab.studies.alerts.tally import DetectorTally

COLUMNS = ["--value", "us", "--by", "system,p", "--run", "day"]


def measured(seed: int, factor: float = 1.0, count: int = 1200) -> np.ndarray:
    return factor * 5 * np.random.default_rng(seed).lognormal(0, 0.05, count)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two systems: quiet has three healthy days, noisy two of which the second is 1.5 times as slow, and one short."""
    days = {("quiet", 4, "mon"): 1.0, ("quiet", 4, "tue"): 1.0, ("quiet", 4, "wed"): 1.0,
            ("noisy", 8, "mon"): 1.0, ("noisy", 8, "tue"): 1.5}  # fmt: skip
    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["system", "p", "day", "iter", "us"])
        for seed, (key, factor) in enumerate(days.items()):
            # In reverse: --order determines the sequence.
            for i, value in reversed(list(enumerate(measured(seed, factor)))):
                writer.writerow([*key, i, value])
        writer.writerows(["noisy", 8, "short", i, 5.0] for i in range(50))
    return path


def summary(found: dict, task: str) -> dict:
    [row] = [row for row in found["summary"] if row["task"] == task]
    return row


def test_healthy_runs_raise_no_alarm_and_the_disturbed_one_does_from_its_onset_on(file, capsys):
    assert (
        main(["backtest", "alerts", str(file), *COLUMNS, "--order", "iter", "--disturbed", "noisy=tue", "--json"]) == 0
    )
    out, err = capsys.readouterr()
    assert "1 run has fewer than 30 windows of 20 values: left out" in err
    found = json.loads(out)
    runs, halves = summary(found, "healthy-run"), summary(found, "healthy-half")
    assert (runs["healthy"], halves["healthy"], halves["disturbed"]) == (3, 4, 0)
    assert (runs["false_alarms"], halves["false_alarms"]) == (0, 0)
    onset = summary(found, "onset")
    assert (onset["disturbed"], onset["found"], onset["alarmed_before_onset"]) == (1, 1, 0)
    assert onset["median_delay_windows"] <= 30
    [job] = [job for job in found["jobs"] if job["task"] == "onset"]
    assert (job["run"], job["windows"], job["onset"]) == ("mon > tue", 90, 30)
    assert job["alarms"][0] == 30 + onset["median_delay_windows"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--run", "week"], "has no column 'week', expected one of system, p, day, iter, us"),
        (["--disturbed", "sun"], "--disturbed: no run's day begins with 'sun'"),
        (["--value", "iter"], "iter of quiet, 4, mon is 0, expected a number above 0"),
        (["--window", "500"], "none of 6 runs by system,p,day has 30 windows of 500 values (--window asks for shorter"),
    ],
)
def test_invalid_input_is_refused_in_one_line(file, capsys, change, said):
    assert main(["backtest", "alerts", str(file), *COLUMNS, *change]) == 65
    err = capsys.readouterr().err
    assert err.startswith("barograph backtest: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_run_twice_as_slow_is_found_and_the_input_is_not_modified():
    detect = detector()
    runs = [
        MeasuredRun("w", name, measured(seed, factor), factor > 1)
        for seed, (name, factor) in enumerate([("a", 1), ("b", 2)])
    ]
    for case in cases(runs, 10):
        before = case.job.windows.copy()
        alarms = detect(case.job)
        np.testing.assert_array_equal(case.job.windows, before)
        assert alarms == detect(case.job)
        if case.task == "onset":
            assert any(at > case.job.onset for at in alarms)


def test_a_tally_counts_jobs_not_alarms_and_its_interval_is_that_of_clopper_and_pearson():
    tally = DetectorTally()
    for alarms in ([], [3, 9], []):
        tally.add(None, alarms)
    tally.add(10, [4, 15, 20])
    tally.add(10, [4])
    assert (tally.healthy, tally.false, tally.disturbed, tally.found, tally.early, tally.delay) == (3, 1, 2, 1, 2, 5)
    # 1 of 3, from tables.
    assert tally.interval == pytest.approx((0.0084, 0.9057), abs=1e-4)
    assert DetectorTally(healthy=3, false=3).interval[1] == 1.0


def test_ratios_are_to_the_history_and_the_onset_is_where_the_disturbed_run_begins():
    found = list(
        cases([MeasuredRun("w", "a", np.full(80, 2.0), False), MeasuredRun("w", "b", np.full(80, 4.0), True)], 4)
    )
    assert [(case.task, case.run) for case in found] == [
        ("disturbed-run", "b"),
        ("healthy-half", "a"),
        ("onset", "a > b"),
    ]
    job: JobCase = found[2].job
    assert job.onset == 10
    np.testing.assert_allclose(np.exp(job.windows), np.repeat([1.0, 2.0], [10, 20]))
