import math
import re
from pathlib import Path

import numpy as np
import pytest

from barograph_alerts.attribution.cause import Cause
from barograph_alerts.detection.evidence import Evidence
from barograph_alerts.detection.level import Level
from barograph_alerts.job.verdict import sentence
from barograph_modeler.pace.pace import Pace, fit_pace
from barograph_modeler.pace.windows import RunPace, Window

ALPHA = 0.01


def window(i, factor, classes=(1,)):
    """The i-th window of a job that began at 1000: 100 intervals per class that should take 10 ms each."""
    return Window(dict.fromkeys(classes, 100), dict.fromkeys(classes, float(factor)), 1000.0 + i, 1001.0 + i)


def noise(rng, length, phi, sd=0.03):
    """A stationary AR(1) series with standard deviation `sd`."""
    shocks = rng.normal(0, sd * math.sqrt(1 - phi * phi), length)
    series = np.empty(length)
    series[0] = rng.normal(0, sd)
    for t in range(1, length):
        series[t] = phi * series[t - 1] + shocks[t]
    return series


def healthy(rng, length, phi):
    """Factors of one run's windows: 2 % between runs, 3 % within."""
    return np.exp(rng.normal(0, 0.02) + noise(rng, length, phi))


def history(rng, runs, length, phi):
    paces = []
    for _ in range(runs):
        run = RunPace()
        run.add(window(i, f) for i, f in enumerate(healthy(rng, length, phi)))
        paces.append(run)
    return fit_pace(paces)


def judged(pace, factors, **settings):
    evidence = Evidence(pace, **settings)
    for i, factor in enumerate(factors):
        evidence.add(window(i, factor))
    return evidence


def known_pace(residuals=240, runs=8, spread=0.0):
    return Pace(runs, residuals, 1.0, spread, {1: 0.01}, np.linspace(-0.03, 0.03, residuals))


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_healthy_jobs_alarm_no_more_often_than_alpha_in_their_whole_life(phi):
    rng = np.random.default_rng(20)
    jobs = 500
    # Without a margin, which could only take alarms away.
    alarms = sum(
        judged(history(rng, 8, 30, phi), healthy(rng, 300, phi), alpha=ALPHA, margin=0.0).state == "slow"
        for _ in range(jobs)
    )
    # Monte Carlo error: three standard deviations of a share of alpha.
    assert alarms / jobs <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / jobs)


@pytest.mark.parametrize(("windows", "sd"), [(20, 0.2), (60, 0.1)])
def test_a_short_history_of_correlated_windows_makes_no_alarms(windows, sd):
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(400):
        residuals = np.sort(noise(rng, windows, 0.5, sd))
        test = Level(Pace(50, windows, 1.0, 0.0, {1: 0.01}, residuals), ALPHA / 4, 0.05)
        for i, log in enumerate(noise(rng, 200, 0.5, sd)):
            test.add(window(i, math.exp(log)))
            if test.slow.score > 1:
                alarms += 1
                break
    # Of so many 0.25 are expected where a sixteenth of alpha is spent; without regard to correlation there were 13.
    assert alarms <= 2


def test_a_test_that_replaces_another_has_no_alpha_of_its_own():
    def delay(evidence, began_at, factor):
        for i in range(began_at, began_at + 60):
            evidence.add(window(i, factor))
        for i in range(began_at + 60, began_at + 100):
            evidence.add(window(i, factor * 1.5))
            if evidence.open is not None:
                return i - began_at - 60
        return math.inf

    excused = judged(None, [1.0] * 200 + [1.5] * 20)
    excused.excuse()
    assert excused.alarms == []
    assert delay(Evidence(None), 0, 1.0) < delay(excused, 220, 1.5) <= 30


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_a_job_twice_as_slow_is_caught_within_a_few_windows_and_its_onset_found(phi):
    rng = np.random.default_rng(4)
    for _ in range(60):
        factors = healthy(rng, 60, phi)
        factors[20:] *= 2
        evidence = judged(history(rng, 8, 30, phi), factors, alpha=ALPHA)
        assert evidence.state == "slow"
        # The slowdown begins at 1020; each window takes a second of this clock.
        assert 1020 < evidence.alarms[-1].detected_at <= 1030
        assert 1017 <= evidence.onset_at <= 1020
        assert evidence.slowdown == pytest.approx(2.0, rel=0.15)


def test_a_slowdown_from_the_first_window_on_is_caught():
    evidence = judged(known_pace(), [1.5] * 10)
    assert evidence.alarms[-1].detected_at is not None
    assert evidence.alarms[-1].detected_at <= 1006
    assert evidence.onset_at == 1000
    assert evidence.slowdown == pytest.approx(1.5)
    assert evidence.basis == "its history"


def test_a_slowdown_too_small_for_the_spread_of_runs_is_caught_as_a_change_of_the_job_itself():
    pace = known_pace(spread=0.1)
    assert judged(pace, [1.2] * 100).state == "healthy"
    evidence = judged(pace, [1.0] * 40 + [1.2] * 40)
    [alarm] = evidence.alarms
    assert (alarm.kind, alarm.basis, alarm.onset_at) == ("slow", "its own first windows", 1040)
    assert alarm.slowdown == pytest.approx(1.2)
    assert alarm.detected_at <= 1055


def test_a_job_is_not_compared_for_long_by_a_mean_of_a_moment():
    """A program that balances its load may do all run long what its history did for less than a window."""
    usual = [window(i, 1.0) for i in range(40)]
    moment = Window({2: 20}, {2: 0.2}, 1040.0, 1040.2)
    run = RunPace()
    run.add([*usual, moment, *usual])
    evidence = Evidence(fit_pace([run]))
    for i in range(100):
        evidence.add(Window({2: 100}, {2: 2.0 + 0.01 * (i % 7)}, 1000.0 + 2 * i, 1002.0 + 2 * i))
    assert (evidence.state, evidence.basis) == ("healthy", "its own first windows")
    for i in range(100, 140):
        evidence.add(Window({2: 100}, {2: 4.0}, 1000.0 + 4 * i, 1004.0 + 4 * i))
    assert (evidence.state, evidence.slowdown) == ("slow", pytest.approx(2.0, rel=0.1))


def test_a_run_that_begins_fast_and_comes_back_to_its_history_is_not_slow():
    assert judged(known_pace(spread=0.1), [0.75] * 40 + [1.0] * 60).state == "healthy"


def test_a_job_exactly_like_a_history_without_any_scatter_is_healthy():
    pace = Pace(8, 30, 1.0, 0.0, {1: 0.01}, np.zeros(30))
    assert judged(pace, [1.0] * 500, margin=0.0).highest == 0


def test_within_the_margin_nothing_grows():
    evidence = judged(known_pace(), [1.04] * 2000)
    assert evidence.state == "healthy"
    assert evidence.highest < 0.5
    assert evidence.slowdown == pytest.approx(1.04)
    assert evidence.onset_at is None


def test_certainty_about_less_than_the_margin_is_no_alarm():
    evidence = judged(known_pace(), [1.0] * 30 + [1.048] * 2000)
    assert (evidence.state, evidence.alarms) == ("healthy", [])
    assert evidence.highest <= 1


def test_each_disturbance_of_a_job_is_an_alarm_of_its_own_that_ends_when_the_job_recovers():
    evidence = judged(known_pace(), [1.0] * 30 + [1.34] * 20 + [1.0] * 40 + [2.0] * 20 + [1.0] * 20)
    assert [(a.kind, a.onset_at, a.ended_at) for a in evidence.alarms] == [("slow", 1030, 1050), ("slow", 1090, 1110)]
    assert [a.slowdown for a in evidence.alarms] == pytest.approx([1.34, 2.0])
    assert all(a.detected_at <= a.onset_at + 11 for a in evidence.alarms)
    assert evidence.state == "slow"
    assert evidence.score < 1 < evidence.highest


def test_a_job_twice_as_fast_is_no_alarm_and_its_end_says_so():
    evidence = judged(known_pace(), [0.5] * 30)
    assert (evidence.state, evidence.alarms) == ("healthy", [])
    evidence.over = True
    assert sentence(evidence, "lab/app", Cause()).startswith(
        "inconclusive: 0.50x the time per interval of its history, faster than its runs differ"
    )
    evidence.is_within_limits = True
    assert evidence.state == "healthy"


def test_one_run_of_history_judges_with_the_spread_of_the_population():
    pace = known_pace(runs=1, spread=math.nan)
    assert judged(pace, [1.25] * 12).state == "healthy"
    assert judged(pace, [1.6] * 12).state == "slow"


@pytest.mark.parametrize("pace", [None, known_pace(runs=0), known_pace(residuals=19)])
def test_without_a_history_a_job_is_judged_by_its_own_first_windows_with_a_wider_margin(pace):
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 0.01, 100)
    assert judged(pace, np.exp(noise[:14])).state == "unknown"
    healthy = judged(pace, np.exp(noise) * np.repeat([1.0, 1.06], 50))
    assert (healthy.state, healthy.basis, healthy.alarms) == ("healthy", "its own first windows", [])
    [alarm] = judged(pace, np.exp(noise) * np.repeat([1.0, 1.3], 50)).alarms
    assert (alarm.basis, alarm.kind) == ("its own first windows", "slow")
    assert 1048 <= alarm.onset_at <= 1050
    assert alarm.detected_at <= 1065
    assert alarm.slowdown == pytest.approx(1.3, rel=0.02)


def test_a_job_whose_classes_the_history_does_not_know_is_judged_by_itself():
    evidence = Evidence(known_pace())
    for i in range(60):
        evidence.add(Window({1: 1, 2: 1}, {1: 0.4, 2: 0.6 if i < 30 else 1.6}, 1000.0 + i, 1001.0 + i))
    assert evidence.basis == "its own first windows"
    assert [alarm.onset_at for alarm in evidence.alarms] == [1030]


def test_work_that_comes_once_is_not_what_a_job_is_measured_with():
    evidence = Evidence(None)
    for i in range(20):
        evidence.add(Window({100 + i: 1}, {100 + i: 1.0}, float(i), i + 1.0))
    assert (evidence.state, evidence.windows) == ("unknown", 0)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"^alpha is 0, expected a number between 0 and 1, both excluded$"):
        Evidence(known_pace(), alpha=0)
    with pytest.raises(ValueError, match=r"^margin is nan, expected a finite number of at least 0$"):
        Evidence(known_pace(), margin=math.nan)


def test_the_shares_of_alpha_in_the_documentation_add_up_to_alpha():
    page = (Path(__file__).resolve().parents[2] / "docs/engineer/alerts.md").read_text()
    words = {"an eighth": 1 / 8, "a quarter": 1 / 4}
    rows = re.findall(r"^\| [^|]*\(`(\w+)`\) \| (an eighth|a quarter|a half)", page, re.MULTILINE)
    shares = {test: words[share] for test, share in rows if test != "scaling"}
    assert "| on several nodes an eighth, of that of `change`: half for" in page
    assert shares.keys() == {"level", "delay", "change", "runtime", "stall"}
    assert sum(shares.values()) == 1
