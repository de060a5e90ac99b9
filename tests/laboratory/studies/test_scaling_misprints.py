"""The papers on scaling contain errors; the implementation follows the corrected statements.

Alasandagutti et al. (2024), Grey-Box Machine Learning Prediction of Parallel Application Scaling; Mokrov (2020), on
weak scaling. Each test fails with the formula as printed.
"""

import numpy as np
import pytest

from barograph_lab.studies.greybox.fraction import estimate_share, optimal
from barograph_lab.studies.greybox.samples import Points, contexts, vectors
from barograph_lab.studies.greybox.speedup import speedup
from barograph_lab.studies.weak.complexity import Complexity
from barograph_lab.studies.weak.planner import rounding
from barograph_lab.studies.weak.weak import LogBilinear, relative_error
from barograph_modeler.scaling.history import Runs

SHARE = 0.9


def test_speedups_over_the_same_size_go_with_w_1_not_with_w_of_the_size():
    """Grey-box paper, section 2.2: "relative speedup for runs of the same problem size", then S(N, w, p)."""
    n, m = np.array([2, 4, 8] * 2), np.repeat([1.0, 4.0], 3)
    seconds = m * (1 - SHARE + SHARE / n)
    same, original = m / seconds, 1 / seconds
    assert estimate_share(n, np.ones(6), same) == pytest.approx(SHARE, abs=1e-6)
    assert estimate_share(n, 1 / m, original) == pytest.approx(SHARE, abs=1e-6)
    assert abs(estimate_share(n, 1 / m, same) - SHARE) > 0.03


def test_w_is_a_ratio_of_work_not_of_edges():
    """Section 2.1: w = m_original / m_scaled, while meshes are given by their edge."""
    cube = Complexity.parse("N**3")
    seconds = {10: 1.0, 20: 8.0}  # serial, in proportion to the work
    of_work = cube.work(10) / cube.work(20)
    assert speedup(1, of_work, SHARE) == pytest.approx(seconds[10] / seconds[20])
    assert speedup(1, 10 / 20, SHARE) == pytest.approx(4 * seconds[10] / seconds[20])


def test_optimal_p_has_sizes_that_are_not_in_the_training_set():
    """Section 5.3 says "not in the testing set"; equation (9) takes D_m from the training set, which has none there."""
    runs = Runs.of([1, 2, 4, 1, 2, 4], [10, 5.5, 3.25, 100, 51, 26.5], size=[1, 1, 1, 10, 10, 10])
    trained = runs.select(runs.size <= 1)
    assert set(optimal(runs, {1.0: 10.0, 10.0: 100.0}, None, 4)) == {1.0, 10.0}
    assert set(optimal(trained, {1.0: 10.0, 10.0: 100.0}, None, 4)) == {1.0}


def test_a_vector_leaves_the_target_out_rather_than_subtracting_it_and_keeps_original_and_w():
    """Section 3: "D = [C1, C2, ..., (C5 - tau5)]", without m_original and w that equation (7) has."""
    runs = Runs.of([2, 3, 4, 5, 8], np.ones(5), size=np.full(5, 7.0))
    tau = np.array([0.9, 0.8, 0.7, 0.6, 0.123])
    points = Points.of(runs, np.zeros(5, dtype=np.intp), np.full(5, 0.5), tau)
    row = vectors(points, np.array([4]), contexts(points, 5), 1, np.random.default_rng(0))[0]
    assert row.size == 16  # and the paper's network has an input layer of 16
    assert row[:2].tolist() == [3.5, 0.5]
    assert row[-2:].tolist() == [8, 7]
    assert 0.123 not in row
    assert not np.isclose(row, [[8 - 0.123], [7 - 0.123]]).any()


def test_the_relative_error_of_a_prediction_too_low_is_1_less_the_power_of_2():
    """Weak-scaling paper, equation (5): RE = 2**|error| - 1, error = log D - log D'."""
    error = np.log2(8.0) - np.log2(4.0)
    printed = 2 ** abs(error) - 1
    assert relative_error(8.0, 4.0) == 0.5 == 1 - 2**-error
    assert printed == 1
    assert relative_error(8.0, 16.0) == 1 == 2 ** abs(np.log2(8.0) - np.log2(16.0)) - 1


def test_the_law_without_intercept_depends_on_the_unit_of_size_until_it_says_1_second():
    """Equation (7) has no constant: with N = p (one rank's work as the unit) every law has D = 1 at p = 1."""
    scales = [1, 2, 4, 8]

    def at_1(intercept, unit):
        law = LogBilinear(intercept=intercept)
        for p in scales:
            law.learn(p, unit * p, 100.0)
        return float(law.predict(1, unit))

    assert at_1(False, 1) == pytest.approx(1)
    assert at_1(False, 1000) == pytest.approx(100)
    assert at_1(True, 1) == pytest.approx(100) == at_1(True, 1000)


def test_tables_9_and_10_of_the_weak_scaling_paper_have_their_constants_exchanged():
    """Graph500: what table 10 calls C1 has the work per process that table 9 calls C2."""

    def per_process(ranks, scale, edge_factor):
        return 2**scale * (1 + edge_factor) / ranks

    learned = {"C1": per_process(14, 25, 16), "C2": per_process(14, 26, 16)}
    targets = {"C1": per_process(280, 30, 20), "C2": per_process(280, 29, 20)}
    assert targets["C1"] == pytest.approx(learned["C2"], rel=0.02)
    assert targets["C2"] == pytest.approx(learned["C1"], rel=0.02)


def test_one_target_of_hpl_has_a_seventh_more_work_than_its_series():
    """Table 2, C3: 225 processes at 100.8 thousand; 96.5 thousand would keep N**3 / p, equation (1)."""
    hpl_c3 = [(35, 52), (64, 63.5), (121, 78.5), (225, 100.8), (400, 117), (576, 132), (784, 146.3), (1369, 176.2)]
    moved = rounding(Complexity.parse("N**3"), hpl_c3)
    assert moved[3] == pytest.approx(0.14, abs=0.01)
    assert max(abs(change) for i, change in enumerate(moved) if i != 3) < 0.01
    assert Complexity.parse("N**3").size(225 * 176.2**3 / 1369) == pytest.approx(96.5, abs=0.1)
