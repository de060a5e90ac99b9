"""Series that follow a law, each the only one of its application, at eight times their largest scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Refusal, fit
from helpers.printed import show

SERIES: Final = 16
SCALES: Final = tuple(int(ranks) for ranks in 2 ** np.arange(6))
RUNS: Final = 3
FACTOR: Final = 8
LAWS: Final[dict[str, Callable[[float], float]]] = {
    "power law, p^-0.85": lambda ranks: 1000 * ranks**-0.85,
    "Amdahl's, 10 + 1000 / p": lambda ranks: 10 + 1000 / ranks,
    "with overhead, 5 + 1000 / p + 1.5 log p": lambda ranks: 5 + 1000 / ranks + 1.5 * math.log(ranks),
    "weak, 100 + 5 log p": lambda ranks: 100 + 5 * math.log(ranks),
    "weak, 100 p^0.1": lambda ranks: 100 * ranks**0.1,
}


def test_series_that_follow_a_law() -> None:
    lines = ["| law | noise | error, ratio of the limits, inside |", "|---|---|---|"]
    inside = 0
    for noise in (0.01, 0.15):
        for name, law in LAWS.items():
            errors, ratios, held = np.array([_predicted(law, noise, seed) for seed in range(SERIES)]).T
            inside += int(held.sum())
            figures = f"{np.median(errors):.3f}, {np.median(ratios):.1f}, {int(held.sum())}"
            lines.append(f"| {name} | {100 * noise:.0f} % | {figures} |")
    show(f"{SERIES} series a law, {FACTOR} times the largest scale", lines)
    assert inside >= 0.93 * SERIES * len(LAWS) * 2


def _predicted(law: Callable[[float], float], noise: float, seed: int) -> tuple[float, float, bool]:
    """Absolute error of the logarithm, upper over lower limit, and whether the law is between both."""
    rng, ranks = np.random.default_rng(seed), np.repeat(SCALES, RUNS)
    seconds = [law(one) * float(rng.lognormal(0, noise)) for one in ranks]
    answer = fit({"": Runs.of(ranks, seconds)}).predict("", ranks=FACTOR * SCALES[-1])
    assert not isinstance(answer, Refusal)
    true = law(FACTOR * SCALES[-1])
    is_inside = answer.lower_seconds <= true <= answer.upper_seconds
    return abs(math.log(answer.expected_seconds / true)), answer.upper_seconds / answer.lower_seconds, is_inside
