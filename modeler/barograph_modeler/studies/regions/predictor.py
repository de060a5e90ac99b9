"""Predictions of runtime from the times of regions: laws of the total and of its parts, weighted by held-out scales.

The parts are found by `disjoint`, the forecasts are those of `experts`. The largest learned scales of each problem are
held out one after the other; `combination` weighs the forecasts by their errors there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.scaling.answer import Refusal, central_limits
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.studies.regions.combination import Combination, HeldOut, combined_spread
from barograph_modeler.studies.regions.disjoint import disjoint
from barograph_modeler.studies.regions.experts import (
    PARTS,
    PARTS_LINES,
    PARTS_TREND,
    TOTAL,
    TOTAL_TREND,
    ExpertForecast,
    Experts,
)
from barograph_modeler.studies.regions.runs import RegionRuns

MAX_CUTS: Final = 3
"""Times that scales are held out."""
MAX_AHEAD: Final = 2
"""Scales beyond a cut that are predicted."""
MIN_SCALES: Final = 3
"""Scales of a problem before a cut: from two scales a trend has no curvature, and its error there says nothing of its
error from three."""
PRIOR: Final[Mapping[str, float]] = {TOTAL: 0.2, TOTAL_TREND: 0.2, PARTS: 0.2, PARTS_TREND: 0.2, PARTS_LINES: 0.2}
"""Weights without held-out scales."""
FREEDOM: Final = 5.0
"""Degrees of freedom of the answer."""


@dataclass(frozen=True)
class PartsPrediction:
    """A distribution of the runtime: expected_seconds is its median, the limits hold 95 % of it.

    parts: seconds of each part, largest first; they sum to expected_seconds. weights: of the forecasts, with sum 1.
    """

    expected_seconds: float
    lower_seconds: float
    upper_seconds: float
    parts: Mapping[str, float]
    weights: Mapping[str, float]

    @property
    def summary(self) -> str:
        """The part that decides, as text."""
        name, seconds = next(iter(self.parts.items()))
        return f"{100 * seconds / self.expected_seconds:.0f} % is {name}"


class PartsPredictor:
    """A model of the scaling of one application whose runs have times of regions; deterministic."""

    def __init__(self, problems: Mapping[str, RegionRuns]) -> None:
        """problems: runs by problem, one or more of each."""
        self._problems = dict(problems)
        self.parts = disjoint(problems)
        """Names of the disjoint parts of each problem, without the rest."""
        self._experts = Experts(problems, self.parts)
        self.combination = Combination.of(list(held_out(problems)), PRIOR)

    def predict(self, problem: str, ranks: float, size: npt.ArrayLike | None = None) -> PartsPrediction | Refusal:
        """The runtime of `problem` on `ranks` ranks. size: a number or (k,); may be omitted if all runs have one size.

        Raises KeyError for an unknown problem, ValueError for invalid numbers or a size missing.
        """
        known = self._problems[problem].runs
        if size is None and len(np.unique(known.sizes, axis=0)) > 1:
            raise ValueError(f"runs of {problem} have several sizes, expected the size of the run that is asked for")
        sizes = known.sizes[0] if size is None else np.atleast_1d(np.asarray(size, dtype=np.float64))
        Runs.of([ranks], [1.0], size=sizes[None])
        forecasts = self._experts.at(problem, ranks, sizes)
        weights = {name: self.combination.weights[name] for name in forecasts}
        total = sum(weights.values())
        if not total:
            return Refusal(f"no forecast of {problem} at {ranks:g} ranks")
        return _answer(forecasts, {name: one / total for name, one in weights.items()}, self.combination.factor)


def held_out(problems: Mapping[str, RegionRuns]) -> Iterator[HeldOut]:
    """Errors of all experts at held-out scales of each problem."""
    for drop in range(1, MAX_CUTS + 1):
        learned, tested = {}, {}
        for name, one in problems.items():
            scales = one.runs.scales
            if scales.size - drop >= MIN_SCALES:
                cut, last = scales[-drop], scales[min(scales.size - 1, scales.size - drop + MAX_AHEAD - 1)]
                learned[name] = one.select(one.runs.ranks < cut)
                tested[name] = one.runs.select((one.runs.ranks >= cut) & (one.runs.ranks <= last))
        if not learned:
            return
        experts = Experts(learned, disjoint(learned))
        for name, runs in tested.items():
            wanted = Configurations.of(runs)
            for i in range(len(wanted)):
                forecasts = experts.at(name, float(wanted.ranks[i]), wanted.sizes[i])
                errors = {expert: one.median - float(wanted.log_seconds[i]) for expert, one in forecasts.items()}
                yield HeldOut(name, errors, {expert: one.spread for expert, one in forecasts.items()})


def _answer(forecasts: Mapping[str, ExpertForecast], weights: Mapping[str, float], factor: float) -> PartsPrediction:
    medians = np.array([one.median for one in forecasts.values()])
    spreads = np.array([one.spread for one in forecasts.values()])
    shares = np.array(list(weights.values()))
    middle = float(medians @ shares)
    spread = factor * float(combined_spread(medians[None], spreads[None], shares)[0])
    mixture = Mixture.single(middle, spread, FREEDOM)
    return PartsPrediction(*central_limits(mixture), _parts(forecasts, weights, middle), weights)


def _parts(forecasts: Mapping[str, ExpertForecast], weights: Mapping[str, float], middle: float) -> dict[str, float]:
    """Seconds of parts, by weighted shares of the forecasts that have parts."""
    known = {name: max(weights[name], 1e-9) for name, one in forecasts.items() if one.parts}
    shares: dict[str, float] = {}
    for name, weight in known.items():
        for part, seconds in forecasts[name].parts.items():
            share = seconds / sum(forecasts[name].parts.values()) * weight / sum(known.values())
            shares[part] = shares.get(part, 0.0) + share
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return {part: share * float(np.exp(middle)) for part, share in ordered}
