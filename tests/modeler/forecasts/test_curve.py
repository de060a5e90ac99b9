"""The scaling curve that Prometheus sees."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_modeler.forecasts.curve import DOUBLINGS, SCALES, scaling_curve
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import fit
from helpers.scaling import law


def test_the_curve_holds_the_largest_scales_that_were_run_and_goes_on_beyond_them():
    ranks = np.repeat(2.0 ** np.arange(10), 3)
    noise = np.random.default_rng(1).lognormal(0, 0.01, ranks.size)
    runs = Runs.of(ranks, [law(r) for r in ranks] * noise)
    curve = scaling_curve(fit({"lab/solver": runs}, seed=1), "lab/solver n=1", "lab/solver", (1.0,), runs)
    assert [point.ranks for point in curve.points] == [2**step for step in range(10 - SCALES, 10 + DOUBLINGS)]
    for ranks_, lower, expected, upper in curve.points:
        assert lower < expected < upper
        assert lower < law(ranks_) < upper
    assert dict(curve.medians) == {
        int(r): pytest.approx(float(np.median(runs.seconds[runs.ranks == r]))) for r in runs.scales[-SCALES:]
    }
