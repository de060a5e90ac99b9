"""How well the models of sizes predict runs that they have not seen, and the weights that follow.

The largest scales of each problem are held out, one after the other, and its largest size. A size with a curve of its
own, another size, and a weak series are cases with weights of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np

from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.sizes.stacking import stack

CURVES: Final = "curves of the size"
SIZED: Final = "curves over sizes"
LAW: Final = "log-bilinear law"
Case: TypeAlias = Literal["known size", "new size", "series"]
PRIORS: Final[Mapping[Case, Mapping[str, float]]] = {
    "known size": {CURVES: 2.0, SIZED: 1.0, LAW: 0.5},
    "new size": {SIZED: 1.5, LAW: 1.0},
    "series": {SIZED: 1.0, LAW: 3.0},
}
"""Prior weights of the models, in held-out runs: for a size with a curve of its own, for others, and for problems that
are a weak series, which the law is made for."""
MAX_PROBLEMS: Final = 8
"""Problems of which runs are held out: the latest."""
MAX_SCALES: Final = 2
"""Largest scales that are held out."""
MAX_SCORED: Final = 16
"""Configurations scored per problem and split: the largest sizes."""


class ModelsOfProblem(Protocol):
    """A predictor, as far as it is needed here."""

    def models(self, problem: str, ranks: float, size: tuple[float, ...]) -> dict[str, Mixture]:
        """Log seconds by model."""


@dataclass(frozen=True)
class ModelWeights:
    """Weights of models, with sum 1, for each case. scored: held-out configurations that decided them."""

    by_case: Mapping[Case, Mapping[str, float]]
    scored: int

    @classmethod
    def of(cls, scores: Iterable[tuple[Case, Mapping[str, float]]]) -> ModelWeights:
        """Weights from cases and log densities by model of held-out configurations."""
        every = list(scores)
        weights = {case: stack([one for found, one in every if found == case], PRIORS[case]) for case in PRIORS}
        return cls(weights, len(every))

    def of_models(self, models: Mapping[str, Mixture], *, is_series: bool) -> dict[str, float]:
        """The weights of the models that answer a question."""
        chosen = self.by_case[_case(models, is_series=is_series)]
        return {name: chosen[name] for name in models}


def held_out(
    problems: Mapping[str, Runs], fit: Callable[[Mapping[str, Runs]], ModelsOfProblem]
) -> Iterator[tuple[Case, Mapping[str, float]]]:
    """The case and the log density by model of each held-out configuration, from models fitted without it."""
    for drop in range(1, MAX_SCALES + 1):
        cuts = {name: runs.ranks < runs.scales[-drop] for name, runs in problems.items() if runs.scales.size > drop}
        tests = {name: runs.ranks == runs.scales[-drop] for name, runs in problems.items() if runs.scales.size > drop}
        yield from _score(problems, cuts, tests, fit)
    largest = {name: (runs.sizes == runs.sizes.max(axis=0)).any(axis=1) for name, runs in problems.items()}
    yield from _score(problems, {name: ~rows for name, rows in largest.items()}, largest, fit)


def _score(
    problems: Mapping[str, Runs],
    learned: Mapping[str, np.ndarray],
    tested: Mapping[str, np.ndarray],
    fit: Callable[[Mapping[str, Runs]], ModelsOfProblem],
) -> Iterator[tuple[Case, Mapping[str, float]]]:
    parts = {name: problems[name].select(rows) for name, rows in learned.items() if rows.any()}
    parts = {name: runs for name, runs in parts.items() if len(Configurations.of(runs)) > 1}
    if not parts:
        return
    predictor = fit(parts)
    for name in parts:
        test = Configurations.of(problems[name].select(tested[name]))
        for row in range(max(0, len(test) - MAX_SCORED), len(test)):
            models = predictor.models(name, float(test.ranks[row]), tuple(test.sizes[row].tolist()))
            if len(models) > 1:
                densities = {model: one.log_density(float(test.log_seconds[row])) for model, one in models.items()}
                yield _case(models, is_series=Configurations.of(problems[name]).is_series), densities


def prior_weights(models: Mapping[str, Mixture], *, is_series: bool) -> Mapping[str, float]:
    """Weights of the models that answer a question, before any held-out run."""
    return PRIORS[_case(models, is_series=is_series)]


def join(models: Mapping[str, Mixture], weights: Mapping[str, float]) -> tuple[dict[str, float], Mixture]:
    """Weights of models, scaled to sum 1, and the mixture of the models."""
    total = sum(weights[name] for name in models)
    shares = {name: weights[name] / total for name in models}
    return shares, Mixture.joined([(shares[name], model) for name, model in models.items()])


def about_mean(mixture: Mixture, models: Mapping[str, Mixture], weights: Mapping[str, float]) -> Mixture:
    """A mixture of models, moved so that its median is the weighted mean of theirs, in log seconds.

    Where two models of much weight differ, the median is that of one of them, whichever has a little more.
    """
    mean = sum(weights[name] * one.quantile(0.5) for name, one in models.items())
    return mixture.shifted(mean - mixture.quantile(0.5))


def _case(models: Mapping[str, Mixture], *, is_series: bool) -> Case:
    return "known size" if CURVES in models else ("series" if is_series else "new size")
