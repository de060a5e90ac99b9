"""Amdahl's law in the runs of a problem, and the overhead beside it."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_modeler.scaling.amdahl_law import MIN_SCALES, fit_amdahl
from barograph_modeler.scaling.history import Runs

SCALES = np.array([1, 2, 4, 8, 16, 32, 64, 128])


def runs(parallel: float, overhead: float = 0.0, noise: float = 0.0, repeats: int = 1, seed: int = 1) -> Runs:
    """Runs of 100 s on one rank. overhead: seconds per rank beyond eight."""
    ranks = np.repeat(SCALES, repeats)
    seconds = 100 * (1 - parallel + parallel / ranks) + overhead * np.maximum(ranks - 8, 0)
    return Runs.of(ranks, seconds * np.exp(np.random.default_rng(seed).normal(0, noise, ranks.size)))


@pytest.mark.parametrize("parallel", [0.5, 0.9, 1.0])
def test_exact_runs_give_their_share_and_no_overhead(parallel):
    found = fit_amdahl(runs(parallel))
    assert found is not None
    assert found.parallel.expected == pytest.approx(parallel, abs=0.005)
    assert found.parallel.lower <= parallel <= found.parallel.upper + 1e-6
    assert found.cutoff == 8
    assert list(found.overheads) == SCALES.tolist()
    for tau in found.overheads.values():
        assert tau.lower - 1e-3 <= 1 <= tau.upper + 1e-3


def test_overhead_at_large_scales_is_tau_and_does_not_enter_the_share():
    found = fit_amdahl(runs(0.9, overhead=0.05))
    assert found is not None
    assert found.parallel.expected == pytest.approx(0.9, abs=0.005)
    exact = 100 * (0.1 + 0.9 / 128)
    assert found.overheads[128].expected == pytest.approx(exact / (exact + 0.05 * 120), rel=0.03)
    assert found.overheads[128].upper < 1


@pytest.mark.parametrize("repeats", [1, 3])
def test_limits_hold_the_share_as_often_as_they_promise(repeats):
    inside = []
    for seed in range(300):
        parallel = 1 - 10 ** np.random.default_rng(seed + 1000).uniform(-3, -0.3)
        found = fit_amdahl(runs(parallel, noise=0.02, repeats=repeats, seed=seed))
        assert found is not None
        inside.append(found.parallel.lower <= parallel <= found.parallel.upper)
    assert 0.91 < np.mean(inside) <= 0.99


def test_two_scales_have_no_law():
    assert MIN_SCALES == 3
    assert fit_amdahl(Runs.of([1, 2, 2], [100.0, 51.0, 52.0])) is None
