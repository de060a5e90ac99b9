"""Accuracy of runtimes predicted from features, on runs that were not learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_lab.studies.features.selected import SELECTED
from barograph_modeler.features.estimators.conformal import Conformal, RuntimeLimits
from barograph_modeler.features.estimators.learners import LEARNERS, Estimator, Maker, RuntimeLearner
from barograph_modeler.features.estimators.stack import STACK, Stack, folds, held_out
from barograph_modeler.features.estimators.trees import Trees
from barograph_modeler.features.sample import Sample
from barograph_modeler.maxima.sample import Floats

MANY: Final = 1_000
"""Number of runs from which limits are calibrated on a fifth of them instead of by cross-validation, which is slow."""
MODELS: Final = (*LEARNERS, SELECTED, STACK)
"""Models of the runs of one machine."""


@dataclass(frozen=True)
class RuntimeScore:
    """The accuracy of one model on one set of runs. Shares from 0 to 1; ape: |predicted - observed| / observed (eq. 8).

    rank_accuracy: share of pairs in the right order. coverage_95: share inside the 95 % conformal limits, and
    median_spread: their upper over their lower limit. coverage_sigma, coverage_2_sigma: share inside the paper's
    mu -+ sigma and mu -+ 1.96 sigma, for models with a sigma. stopped: reached its iteration limit before convergence.
    """

    model: str
    learned: int
    scored: int
    mean_ape: float
    median_ape: float
    rank_accuracy: float
    coverage_95: float
    median_spread: float
    coverage_sigma: float | None = None
    coverage_2_sigma: float | None = None
    stopped: bool = False


def evaluate(maker: Maker, learned: Sample, scored: Sample, seed: int) -> tuple[RuntimeScore, Floats, RuntimeLimits]:
    """Fit to some runs, score on others: the score, the predicted seconds and their limits."""
    model = maker.make(seed).fit(learned)
    predicted = model.predict(scored.values)
    limits = _calibrated(maker, model, learned, seed).limits(scored.values, predicted)
    errors = np.abs(predicted - scored.seconds) / scored.seconds
    sigma = twice = None
    if isinstance(model, Trees):
        moments = model.moments(scored.values)
        deviation = np.abs(scored.seconds - moments.mean)
        sigma, twice = float((deviation <= moments.sigma).mean()), float((deviation <= 1.96 * moments.sigma).mean())
    score = RuntimeScore(
        maker.name,
        len(learned),
        len(scored),
        float(errors.mean()),
        float(np.median(errors)),
        rank_accuracy(predicted, scored.seconds),
        float(((limits.lower <= scored.seconds) & (scored.seconds <= limits.upper)).mean()),
        float(np.median(limits.upper / limits.lower)),
        sigma,
        twice,
        isinstance(model, Estimator) and model.stopped,
    )
    return score, predicted, limits


def _calibrated(maker: Maker, model: RuntimeLearner, learned: Sample, seed: int) -> Conformal:
    """Limits from the held-out errors of all runs or, for MANY runs and other models than our stack, of a fifth."""
    if isinstance(model, Stack):
        return Conformal(learned, model.held_out, seed=seed, refit=model.refitted)
    if len(learned) < MANY:
        return Conformal(learned, held_out(maker, learned, seed), seed=seed)
    rest, calibration = folds(len(learned), seed)[0]
    predicted = maker.make(seed).fit(learned.select(rest)).predict(learned.values[calibration])
    return Conformal(learned.select(calibration), predicted, seed=seed)


def split(sample: Sample, share: float, seed: int) -> tuple[Sample, Sample]:
    """A random `share` of the runs to learn, above 0 and at most 1, and the rest to score."""
    order = np.random.default_rng(seed).permutation(len(sample))
    learned = round(share * len(sample))
    return sample.select(np.sort(order[:learned])), sample.select(np.sort(order[learned:]))


def rank_accuracy(predicted: Floats, observed: Floats) -> float:
    """Share of the pairs of runs that are predicted in their observed order (Sun et al. 2020, equations 9 and 10).

    Two arrays of one length of at least 2. A tie in either counts as wrong, as in the paper.
    """
    n = len(observed)
    if n < 2 or len(predicted) != n:
        raise ValueError(f"{len(predicted)} predictions for {n} runs, expected as many, and at least 2")
    right = sum(
        int(np.count_nonzero(np.sign(predicted[i] - predicted[i + 1 :]) * np.sign(observed[i] - observed[i + 1 :]) > 0))
        for i in range(n - 1)
    )
    return 2 * right / (n * (n - 1))
