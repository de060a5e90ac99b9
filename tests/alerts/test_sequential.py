"""The mathematics of one sequential test, against what it is defined as."""

import math

import numpy as np
import pytest

from barograph_alerts.detection.sequential import FLOOR, KAPPA, Sequential


def test_score_is_the_mixture_over_all_windows_where_the_change_may_have_begun():
    p_values = [0.8, 0.05, 1.0, 0.3, 0.001, 0.02, 0.4, 0.01, 0.03]
    e = [KAPPA * max(p, FLOOR) ** (KAPPA - 1) for p in p_values]
    t = len(e)
    mixture = sum(math.prod(e[s - 1 :]) / (s * (s + 1)) for s in range(1, t + 1)) + 1 / (t + 1)
    test = Sequential(0.0025)
    for p in p_values:
        test.add(p, 0.0, 1.0, 1.0)
    assert mixture > 1
    assert test.score == pytest.approx(math.log(mixture) / math.log(1 / 0.0025))


def test_independent_uniform_p_values_alarm_no_more_often_than_alpha():
    rng = np.random.default_rng(7)
    alpha, jobs, alarms = 0.05, 1000, 0
    for _ in range(jobs):
        test = Sequential(alpha)
        for p in rng.random(300):
            test.add(p, 0.0, 1.0, 1.0)
            if test.score > 1:
                alarms += 1
                break
    assert alarms / jobs <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / jobs)


def test_the_excursion_begins_where_evidence_last_began_to_grow_and_counts_seconds_up_to_its_peak():
    test = Sequential(0.01)
    for i, p in enumerate([0.9, 0.01, 0.9, 0.9, 0.9, 0.01, 0.01, 0.01, 0.9]):
        test.add(p, float(i), 2.0 if p == 0.01 else 1.0, 1.0)
    assert test.started_at == 5.0
    assert test.slowdown == pytest.approx(2.0)


def test_restlessness_before_a_change_is_not_taken_for_its_onset():
    test = Sequential(0.0025)
    for i, factor in enumerate([1.0] * 20 + [1.1] * 6 + [2.0] * 6):
        test.add(0.01 if factor > 1 else 0.9, float(i), factor, 1.0)
    test.trim()
    assert test.started_at == 26
    assert test.slowdown == pytest.approx(2.0)
