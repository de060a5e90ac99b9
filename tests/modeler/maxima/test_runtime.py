import math

import numpy as np
import pytest
from scipy.stats import t

from barograph_modeler.maxima.runtime import p_value, runtime_band, runtime_limits, runtime_scale


def test_three_runs_give_the_band_of_the_textbook():
    band = runtime_band([100.0, 110.0, 121.0])
    # Logarithms 4.605, 4.700, 4.796: s = ln 1.1, t(2, 0.975) = 4.302653.
    reach = 4.302653 * math.log(1.1) * math.sqrt(4 / 3)
    assert (band.method, band.samples) == ("log-t", 3)
    assert (band.lower, band.expected, band.upper) == pytest.approx(
        (110 * math.exp(-reach), 110.0, 110 * math.exp(reach)), rel=1e-6
    )


def test_two_runs_are_too_few():
    assert runtime_band([100.0, 110.0]) is None
    assert runtime_band([]) is None


@pytest.mark.parametrize("n", [3, 8])
def test_the_next_runtime_falls_inside_as_often_as_the_level_says(n):
    runtimes = np.random.default_rng(n).lognormal(5.0, 0.03, size=(4000, n + 1))
    inside = 0
    for *past, following in runtimes:
        band = runtime_band(past, 0.9)
        inside += band.lower <= following <= band.upper
    # Standard error 0.0047.
    assert inside / 4000 == pytest.approx(0.9, abs=0.015)


@pytest.mark.parametrize("bad", [0.0, -3.0])
def test_a_runtime_that_cannot_be_is_refused(bad):
    with pytest.raises(ValueError, match=f"^runtime 1 is {bad} seconds, expected more than 0$"):
        runtime_band([1.0, bad])


def test_a_runtime_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match=r"^sample value 0 is nan, expected finite numbers$"):
        runtime_band([math.nan, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"^level is 0, expected a number between 0 and 1, both excluded$"):
        runtime_band([1.0, 1.0, 1.0], 0)


def test_short_runs_may_differ_by_what_starting_them_takes():
    short, long = runtime_limits([2.0]), runtime_limits([200.0])
    assert short is not None
    assert long is not None
    assert long.upper / long.expected == pytest.approx(math.exp(t.ppf(0.975, 2) * 0.06 * math.sqrt(2)), rel=1e-3)
    wider = math.hypot(0.06, math.log(1 + 4 * 0.1 / 2) / 4)
    assert short.upper / short.expected == pytest.approx(math.exp(t.ppf(0.975, 2) * wider * math.sqrt(2)))
    assert p_value(2.4, 2.0, short.upper, 1) > 2 * p_value(240.0, 200.0, long.upper, 1)


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.08, 0.3])
def test_limits_hold_95_of_100_runs_whatever_the_noise(noise):
    """After three runs or twenty; after one or two, on average over programs that differ as much as these."""
    rng = np.random.default_rng(1)
    for runs in (1, 2, 3, 4, 8, 20):
        noises = [noise] * 600 if runs > 2 else np.exp(rng.uniform(math.log(0.005), math.log(0.3), 600))
        logs, later = rng.normal(5, noises, (runs, 600)).T, rng.normal(5, noises)
        bands = [runtime_limits(np.exp(one)) for one in logs]
        inside = [math.log(one.lower) <= log <= math.log(one.upper) for one, log in zip(bands, later, strict=True)]
        assert 0.92 < np.mean(inside) <= (1.0 if noise < 0.02 and runs < 8 else 0.985), runs


def test_one_run_allows_gross_statements_only_and_more_runs_finer_ones():
    found = []
    for runs in ([100.0], [100.0, 100.0], [100.0, 101.0, 99.0], [100.0, 101.0, 99.0] * 3):
        band = runtime_limits(runs)
        assert band is not None
        ratios = (ratio / 100 for ratio in range(100, 200))
        found.append(
            next(one for one in ratios if p_value(one * band.expected, band.expected, band.upper, len(runs)) < 0.00125)
        )
    assert found == [1.62, 1.36, 1.27, 1.13]


def reach(runs):
    band = runtime_limits(runs)
    assert band is not None
    return math.log(band.upper / band.expected)


def test_runs_that_agree_by_chance_leave_room_for_the_next_one():
    assert reach([100.0] * 3) > 0.01
    assert reach([100.0] * 30) < 0.005


@pytest.mark.parametrize("runs", [[100.0], [100.0, 104.0], [100.0, 104.0, 101.0], [100.0, 104.0, 101.0, 90.0]])
def test_the_spread_of_the_runs_is_read_from_their_limits(runs):
    band = runtime_limits(runs)
    assert band is not None
    scale, freedom = runtime_scale(band.expected, band.upper, len(runs), prior=0.0)
    logs = np.log(runs)
    own = ((logs - logs.mean()) ** 2).sum()
    # With a prior of 0.1 s and no spread: what is left are the runs' own squares.
    starting = math.log1p(0.4 / band.expected) / 4
    n = len(runs)
    assert freedom == n + 3
    assert scale == pytest.approx(math.sqrt((4 * starting**2 + own) / (n + 3)) * math.sqrt(1 + 1 / n), rel=1e-6)
