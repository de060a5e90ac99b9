import math

import numpy as np
import pytest

from barograph_alerts.evidence import KAPPA, Evidence
from barograph_modeler.pace import Pace, fit_pace
from barograph_modeler.windows import RunPace, Window

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


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_a_job_twice_as_slow_is_caught_within_a_few_windows_and_its_onset_found(phi):
    rng = np.random.default_rng(4)
    for _ in range(60):
        factors = healthy(rng, 60, phi)
        factors[20:] *= 2
        evidence = judged(history(rng, 8, 30, phi), factors, alpha=ALPHA)
        assert evidence.state == "slow"
        # The slowdown begins at 1020; each window takes a second of this clock.
        assert 1020 < evidence.alarmed_at <= 1025
        assert 1018 <= evidence.onset_at <= 1020
        assert evidence.slowdown == pytest.approx(2.0, rel=0.15)


def test_a_slowdown_from_the_first_window_on_is_caught():
    evidence = judged(known_pace(), [1.5] * 10)
    assert evidence.alarmed_at is not None
    assert evidence.alarmed_at <= 1005
    assert evidence.onset_at == 1000
    assert evidence.slowdown == pytest.approx(1.5)


def test_score_is_the_mixture_over_all_windows_where_the_slowdown_may_have_begun():
    pace = known_pace(residuals=20)
    factors = [1.0, 1.09, 0.98, 1.07, 1.2, 1.2, 1.06, 1.2, 1.2]
    tolerance = math.log(1.05)
    e = []
    for factor in factors:
        p = (1 + sum(r >= math.log(factor) - tolerance for r in pace.residuals)) / 21
        e.append(KAPPA * p ** (KAPPA - 1))
    t = len(e)
    mixture = sum(math.prod(e[s - 1 :]) / (s * (s + 1)) for s in range(1, t + 1)) + 1 / (t + 1)
    expected = math.log(mixture) / math.log(2 / ALPHA)
    assert expected > 0
    assert judged(pace, factors).score == pytest.approx(expected)


@pytest.mark.parametrize("n", [20, 100, 512])
def test_a_bet_on_conformal_p_values_is_fair_or_worse(n):
    # Under exchangeability p is uniform on 1/(n+1) ... 1, so this is the exact expectation of e.
    p = np.arange(1, n + 2) / (n + 1)
    assert 0.5 < np.mean(KAPPA * p ** (KAPPA - 1)) <= 1


def test_a_job_exactly_like_a_history_without_any_scatter_is_healthy():
    pace = Pace(8, 30, 1.0, 0.0, {1: 0.01}, np.zeros(30))
    assert judged(pace, [1.0] * 500, margin=0.0).highest == 0


def test_within_the_margin_nothing_grows():
    evidence = judged(known_pace(), [1.04] * 2000)
    assert evidence.state == "healthy"
    assert evidence.highest < 0.5
    assert evidence.slowdown == pytest.approx(1.04)
    assert evidence.onset_at is None


def test_a_job_that_has_alarmed_stays_slow_and_keeps_onset_and_slowdown_when_it_recovers():
    evidence = judged(known_pace(), [1.0] * 30 + [1.34] * 15 + [1.0] * 200)
    assert evidence.state == "slow"
    assert evidence.alarmed_at == pytest.approx(1037, abs=3)
    assert evidence.onset_at == 1030
    assert evidence.slowdown == pytest.approx(1.34)
    assert evidence.score < 1 < evidence.highest


def test_an_endless_slowdown_does_not_overflow():
    evidence = judged(known_pace(residuals=512), [5.0] * 3000)
    assert math.isfinite(evidence.score)
    assert evidence.score > 1000


def test_too_little_history_is_unknown_and_never_alarms():
    for pace in (known_pace(runs=2), known_pace(residuals=19)):
        evidence = judged(pace, [10.0] * 100)
        assert (evidence.state, evidence.score, evidence.alarmed_at) == ("unknown", 0.0, None)
        assert math.isnan(evidence.slowdown)


def test_windows_of_mostly_unknown_classes_are_passed_over():
    evidence = Evidence(known_pace())
    for i in range(50):
        evidence.add(Window({1: 1, 2: 1}, {1: 0.4, 2: 0.6}, float(i), i + 1.0))
    assert (evidence.state, evidence.windows) == ("unknown", 0)
    evidence.add(window(50, 1.0))
    assert (evidence.state, evidence.windows) == ("healthy", 1)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"^alpha is 0, expected a number between 0 and 1, both excluded$"):
        Evidence(known_pace(), alpha=0)
    with pytest.raises(ValueError, match=r"^margin is nan, expected a finite number of at least 0$"):
        Evidence(known_pace(), margin=math.nan)
