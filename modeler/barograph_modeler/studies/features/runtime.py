"""How well runtimes are predicted from features, on runs that were not learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_modeler.features.estimators.conformal import Conformal, RuntimeLimits
from barograph_modeler.features.estimators.learners import LEARNERS, Estimator, Maker, RuntimeLearner
from barograph_modeler.features.estimators.stack import STACK, Stack, folds, held_out
from barograph_modeler.features.estimators.trees import Trees
from barograph_modeler.features.sample import Sample
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.features.ranking import rank_accuracy
from barograph_modeler.studies.features.transfer import transfer_makers

MANY: Final = 1_000
"""Runs from which on a fifth of them is enough to calibrate limits, and learning five times takes long."""
MODELS: Final = (*LEARNERS, STACK)
"""What learns from the runs of one machine."""


@dataclass(frozen=True)
class RuntimeScore:
    """One model on one set of runs. Shares from 0 to 1; ape: |predicted - observed| / observed (equation 8).

    rank_accuracy: share of pairs in their right order. coverage_95: share inside conformal limits of 95 %, and
    median_spread their upper over lower limit. coverage_sigma, coverage_2_sigma: share inside the paper's mu -+ sigma
    and mu -+ 1.96 sigma, for models that have a sigma. stopped: whether it had not converged at its limit.
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
    """Fit on some runs, score on others: the score, the predicted seconds and their limits."""
    model = maker.make(seed).fit(learned)
    predicted = model.predict(scored.values)
    limits = _calibrated(maker, model, learned, seed).limits(scored.values, predicted)
    errors = np.abs(predicted - scored.seconds) / scored.seconds
    sigma = twice = None
    if isinstance(model, Trees):
        moments = model.moments(scored.values)
        away = np.abs(scored.seconds - moments.mean)
        sigma, twice = float((away <= moments.sigma).mean()), float((away <= 1.96 * moments.sigma).mean())
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
    """Limits from the errors on all runs, each held out once; of many runs, for other models than ours, on a fifth."""
    if isinstance(model, Stack):
        return Conformal(learned, model.held_out, seed=seed)
    if len(learned) < MANY:
        return Conformal(learned, held_out(maker, learned, seed), seed=seed)
    rest, aside = folds(len(learned), seed)[0]
    before = maker.make(seed).fit(learned.select(rest)).predict(learned.values[aside])
    return Conformal(learned.select(aside), before, seed=seed)


def source_model(source: Sample, seed: int) -> tuple[Maker, ...]:
    """Learners of the target's runs that know the source's, which our stack learns once for all of them."""
    return transfer_makers(STACK.make(seed).fit(source))


def split(sample: Sample, share: float, seed: int) -> tuple[Sample, Sample]:
    """Runs to learn and runs to score: a random `share` of them, above 0 and below 1, and the rest."""
    order = np.random.default_rng(seed).permutation(len(sample))
    learned = round(share * len(sample))
    return sample.select(np.sort(order[:learned])), sample.select(np.sort(order[learned:]))
