"""The generalised law and the three estimates of the parallel share: examples by hand and invariants."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph_lab.studies.greybox.fraction import TooFewRuns, aggregate, estimate_share, optimal, serial_time
from barograph_lab.studies.greybox.speedup import corrected_time, estimated_time, overhead, speedup
from barograph_modeler.scaling.history import Runs

processes = st.integers(1, 10**6)
ratios = st.floats(1e-6, 1.0)
shares = st.floats(0, 1)
times = st.floats(1e-3, 1e6)


def test_a_worked_example_of_the_law_its_time_its_overhead_and_back():
    # p = 0.9 on 10 processes: 1 / (0.1 + 0.09) = 1 / 0.19.
    assert speedup(10, 1, 0.9) == pytest.approx(1 / 0.19)
    # Five times the work, w = 0.2: 0.2 / 0.19; from 38 s, 38 * 0.19 / 0.2 = 36.1 s.
    assert speedup(10, 0.2, 0.9) == pytest.approx(0.2 / 0.19)
    assert estimated_time(38, 10, 0.2, 0.9) == pytest.approx(36.1)
    # It took 72.2 s: half of the speedup remains. That factor gives the time and the speedup over 38 s.
    tau = overhead(72.2, 38, 10, 0.2, 0.9)
    assert tau == pytest.approx(0.5)
    assert corrected_time(38, 10, 0.2, 0.9, tau) == pytest.approx(72.2)
    assert speedup(10, 0.2, 0.9) * tau == pytest.approx(38 / 72.2)


def test_strong_scaling_has_w_1_and_weak_scaling_on_two_processes_one_half():
    assert speedup(2, 1, 1) == 2
    assert speedup(2, 1 / 2, 1) == 1


@given(ratios, shares)
def test_one_process_has_the_speedup_w(w, p):
    assert speedup(1, w, p) == pytest.approx(w)


@given(processes, processes, ratios, shares)
def test_more_processes_are_never_slower_and_never_faster_than_their_number(n, m, w, p):
    few, many = sorted([n, m])
    assert speedup(few, w, p) <= speedup(many, w, p) * (1 + 1e-12)
    assert speedup(many, w, p) <= w * many * (1 + 1e-9)


@given(processes, ratios, shares, st.floats(0.01, 100))
def test_speedup_is_proportional_to_w(n, w, p, factor):
    assert speedup(n, w * factor, p) == pytest.approx(factor * speedup(n, w, p))


@given(times, processes, ratios, shares)
def test_the_overhead_is_1_where_the_law_is_exact(serial, n, w, p):
    assert overhead(estimated_time(serial, n, w, p), serial, n, w, p) == pytest.approx(1)


@given(times, times, processes, ratios, shares)
def test_the_time_follows_from_its_overhead(serial, observed, n, w, p):
    assert corrected_time(serial, n, w, p, overhead(observed, serial, n, w, p)) == pytest.approx(observed)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: speedup(0, 1, 0.5), "processes: 0, expected a finite number from 1"),
        (lambda: speedup([1, np.nan], 1, 0.5), "processes: nan, expected a finite number from 1"),
        (lambda: speedup(2, 0, 0.5), "w: 0, expected a finite number above 0"),
        (lambda: speedup(2, 1, 1.2), "p: 1.2, expected a finite number from 0 to 1"),
        (lambda: overhead(-3, 1, 2, 1, 0.5), "observed time: -3, expected a finite number above 0"),
        (lambda: corrected_time(1, 2, 1, 0.5, 0), "tau: 0, expected a finite number above 0"),
    ],
)
def test_values_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()


def measured(shares_by_size, scales, noise=0.0):
    """Runs of each size m with serial time m and its own parallel share."""
    rng = np.random.default_rng(1)
    n, m = (grid.ravel() for grid in np.meshgrid(scales, list(shares_by_size)))
    p = np.array([shares_by_size[size] for size in m])
    return Runs.of(n, m * (1 - p + p / n) * np.exp(noise * rng.standard_normal(n.size)), size=m)


@given(shares, st.lists(st.integers(2, 5000), min_size=1, max_size=6), ratios)
def test_the_estimate_recovers_the_share_of_the_speedups(p, scales, w):
    found = estimate_share(scales, np.full(len(scales), w), speedup(scales, w, p))
    assert speedup(scales, w, found) == pytest.approx(speedup(scales, w, p), rel=1e-4)


def test_the_three_estimates_differ_by_their_runs():
    truth = {10.0: 0.9, 20.0: 0.98, 40.0: 0.999}
    runs = measured(truth, [1, 2, 4, 8, 16])
    slow = np.where(runs.ranks > 4, 2.0, 1.0)  # beyond c_f everything takes twice as long
    runs = Runs.of(runs.ranks, runs.seconds * slow, size=runs.size)
    serial = {m: m for m in truth}
    # Size 10 alone is within w_f, and N <= 4 within c_f.
    assert aggregate(runs, serial, None, 4, 10) == pytest.approx(0.9, abs=1e-6)
    assert 0.9 < aggregate(runs, serial, None, 4, 40) < 0.999
    # Per size, including sizes beyond w_f, but without the slow runs.
    assert optimal(runs, serial, None, 4) == pytest.approx(truth, abs=1e-6)
    # Full data: the slow runs reduce every share.
    assert all(found < truth[m] - 0.01 for m, found in optimal(runs, serial, None, np.inf).items())


def test_hybrid_speedups_are_over_the_serial_run_of_the_original_size():
    truth = dict.fromkeys((10.0, 20.0, 40.0), 0.95)
    runs = measured(truth, [1, 2, 4, 8])
    assert aggregate(runs, {10.0: 10.0}, 10.0, 8, 40) == pytest.approx(0.95, abs=1e-6)


def test_without_a_serial_run_its_time_is_that_of_amdahls_law_fitted_to_the_others():
    runs = Runs.of([2, 4, 8], [1 + 99 / 2, 1 + 99 / 4, 1 + 99 / 8])
    assert serial_time(runs) == pytest.approx(100)
    assert serial_time(runs.joined(Runs.of([1, 1], [102.0, 104.0]))) == 103


def test_one_scale_without_a_serial_run_and_serial_runs_alone_are_refused():
    with pytest.raises(TooFewRuns, match="no serial run and 1 scale, expected a run on 1 process or two scales"):
        serial_time(Runs.of([4, 4, 4], [1.0, 2.0, 3.0]))
    with pytest.raises(TooFewRuns, match="no run on more than 1 process"):
        estimate_share([1, 1], [1, 1], [1.0, 1.0])
