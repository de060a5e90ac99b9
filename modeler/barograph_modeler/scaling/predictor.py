"""Predictions of runtime at a scale, with an interval, or the reason for none.

Each problem and size has evidence (`evidence.py`) about the shapes of curves (`shapes.py`), and a prior from the other
problems of the application (`pool.py`). Both give the weights of the shapes; the prediction is the mixture of the
predictions of all shapes. Sizes and problems without runs are predicted from others (`unseen.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.runtime import MINIMUM_RUNS, PRIOR_RUNS, posterior_spread, prior_spread
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.answer import Prediction, Refusal
from barograph_modeler.scaling.evidence import ShapeEvidence
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.pool import Pool, posterior
from barograph_modeler.scaling.series import SIZE_GROWS, ScalingSeries, series_of
from barograph_modeler.scaling.shapes import log_prior, weights_by_kind
from barograph_modeler.scaling.unseen import from_other_problems, from_other_sizes

__all__ = ["Prediction", "Predictor", "Refusal", "fit"]

FARTHEST: Final = 100
"""Largest ratio of predicted to largest known ranks, and of smallest known to predicted ranks."""
WIDEST: Final = 400.0
"""Largest ratio of upper to lower limit; wider predictions are refused."""
NEAREST_SIZES: Final = 4
OTHERS: Final = 8
"""Most problems of an application from which a problem without runs is predicted."""
FEWEST_OTHERS: Final = 3
NEGLIGIBLE: Final = 1e-3
"""Shapes with a smaller share of the largest weight are left out."""
TAIL: Final = 0.025
OWN_RUNS: Final = "runs at this scale"
"""The model of a scale that was run often enough, or that is the only one."""
LEAST_SPREAD: Final = 1e-4
AS_THEY_WERE: Final = "The machine and the program are as they were."
WIDENED: Final = 1.4
"""Factor by which intervals are widened to hold 95 % of runs at larger scales than the largest known: split-conformal,
from public runs of other applications (docs/engineer/scaling.md)."""

Key = tuple[str, float]
"""A problem and a size."""


class Posterior(NamedTuple):
    """The posterior of one problem and size. chosen: shapes of relevant weight. spread: expected spread of the walk."""

    chosen: npt.NDArray[np.intp]
    weights: Floats
    spread: float


class Predictor:
    """A model of the scaling of one application: incremental, deterministic, and can be pickled."""

    def __init__(self) -> None:
        self._problems: dict[str, ScalingSeries] = {}
        self._evidence: dict[Key, ShapeEvidence] = {}
        self._pool = Pool()
        self._posteriors: dict[Key, Posterior] = {}

    def update(self, problem: str, runs: Runs) -> None:
        """Learn finished runs. Only their problem is refitted; priors of the others are updated lazily."""
        if not len(runs):
            return
        known = self._problems.get(problem)
        if known is not None:
            for size in known.parts:
                self._pool_evidence(self._evidence.pop((problem, size)), sign=-1)
        self._problems[problem] = series = series_of(runs if known is None else known.runs.joined(runs))
        for size, part in series.parts.items():
            self._evidence[problem, size] = evidence = ShapeEvidence(part)
            self._pool_evidence(evidence)
        self._posteriors.clear()

    def predict(
        self, problem: str, ranks: float, nodes: float | None = None, size: float | None = None
    ) -> Prediction | Refusal:
        """The runtime of `problem` on `ranks` ranks. A problem without runs is predicted from the others.

        nodes: validated, not used: the cost of a rank is assumed not to depend on the ranks per node. size: in the unit
        of the runs; may be omitted if they have one size. Raises ValueError for invalid numbers.
        """
        Runs.of([ranks], [1.0], nodes=None if nodes is None else [nodes], size=None if size is None else [size])
        series = self._problems.get(problem)
        if series is None:
            return self._predict_unseen(problem, ranks)
        found = series.locate(ranks, size)
        if isinstance(found, Refusal):
            return found
        if self._has_one_scale(series):
            return Refusal(
                f"{problem} was seen at {series.runs.scales[0]:g} ranks only and no other problem of the application is"
                " known, expected runs at two scales"
            )
        if (far := self._too_far(series.runs.scales, ranks)) is not None:
            return Refusal(f"{problem} was seen {far}, expected at most a factor of {FARTHEST} between")
        key = (problem, found)
        if key in self._evidence:
            return self._answer(self._mixture(key, ranks), series, [key], ranks)
        sizes = sorted(series.parts, key=lambda one: abs(np.log(one / found)))[:NEAREST_SIZES]
        near = [(one, self._mixture((problem, one), ranks)) for one in sizes]
        return self._answer(from_other_sizes(found, near), series, [(problem, one) for one in sizes], ranks, found)

    def predict_known(self, problem: str, ranks: float) -> Prediction | None:
        """As `predict` without a size, but from the runs at this scale alone, with the limits of `runtime_limits`.

        None unless there are MINIMUM_RUNS of them, or one where no other scale is known.
        """
        series = self._problems.get(problem)
        found = None if series is None else series.locate(ranks, None)
        if series is None or found is None or isinstance(found, Refusal):
            return None
        same = series.at(ranks, found)
        enough = 1 if self._has_one_scale(series) else MINIMUM_RUNS
        return _from_runs(same, ranks) if same.size >= enough else None

    def _has_one_scale(self, series: ScalingSeries) -> bool:
        return all(part.scales.size < 2 for part in series.parts.values()) and self._pool.problems < 2

    def _pool_evidence(self, evidence: ShapeEvidence, sign: int = 1) -> None:
        self._pool.add(evidence, log_prior(float(evidence.scales[-1])), sign)

    def _posterior(self, key: Key) -> Posterior:
        if key not in self._posteriors:
            evidence = self._evidence[key]
            prior, spread = self._pool.prior(evidence, log_prior(float(evidence.scales[-1])))
            weights = posterior(evidence.log_likelihood(spread), prior)
            chosen = np.flatnonzero(weights > NEGLIGIBLE * weights.max())
            self._posteriors[key] = Posterior(chosen, weights[chosen] / weights[chosen].sum(), spread)
        return self._posteriors[key]

    def _mixture(self, key: Key, ranks: float) -> Mixture:
        evidence, posterior_ = self._evidence[key], self._posterior(key)
        return Mixture(posterior_.weights, *evidence.at(ranks, posterior_.spread, posterior_.chosen), evidence.freedom)

    def _predict_unseen(self, problem: str, ranks: float) -> Prediction | Refusal:
        keys = list(self._evidence)
        keys = [keys[i] for i in np.unique(np.linspace(0, len(keys) - 1, OTHERS).astype(int))] if keys else []
        keys = [key for key in keys if self._too_far(self._evidence[key].scales, ranks) is None]
        if len(keys) < FEWEST_OTHERS:
            return Refusal(
                f"{problem} was never seen, and {len(keys)} other problems of the application were seen near {ranks:g}"
                f" ranks, expected {FEWEST_OTHERS}"
            )
        mixture = from_other_problems([self._mixture(key, ranks) for key in keys])
        return self._answer(mixture, None, keys, ranks)

    def _too_far(self, scales: Floats, ranks: float) -> str | None:
        if ranks > FARTHEST * scales[-1]:
            return f"at {scales[-1]:g} ranks at most and {ranks:g} were asked for"
        if ranks * FARTHEST < scales[0]:
            return f"at {scales[0]:g} ranks at least and {ranks:g} were asked for"
        return None

    def _answer(
        self, mixture: Mixture, series: ScalingSeries | None, keys: list[Key], ranks: float, size: float | None = None
    ) -> Prediction | Refusal:
        mixture = mixture.widened(WIDENED)
        lower, middle, upper = (float(np.exp(mixture.quantile(p))) for p in (TAIL, 0.5, 1 - TAIL))
        if not upper < WIDEST * lower:
            return Refusal(
                f"the runs are too few or too irregular to say how they go on: at {ranks:g} ranks the 95 % interval"
                f" would reach from {lower:.3g} s to {upper:.3g} s"
            )
        posteriors = [self._posterior(key) for key in keys]
        chosen = np.concatenate([posterior_.chosen for posterior_ in posteriors])
        weights = np.concatenate([posterior_.weights for posterior_ in posteriors]) / len(posteriors)
        runs = None if series is None else series.runs
        return Prediction(
            middle,
            lower,
            upper,
            weights_by_kind(chosen, weights),
            0 if runs is None else len(runs),
            0 if runs is None else int(runs.scales.size),
            0 if runs is None else int(runs.scales[-1]),
            len(self._problems) - (series is not None),
            _conditions(series, size),
            () if runs is None else _warnings(runs, ranks),
            mixture,
        )


def _from_runs(seconds: Floats, ranks: float) -> Prediction:
    """The prediction for a scale from its own runs, with the limits of `runtime_limits`."""
    logs = np.log(seconds)
    n = logs.size
    few = n < MINIMUM_RUNS
    spread = float(logs.std(ddof=1)) if n > 1 else np.nan
    if few:
        spread = posterior_spread(spread, n, prior_spread(float(np.exp(logs.mean()))))
    freedom = (PRIOR_RUNS if few else 0) + n - 1
    # Equal runtimes have no spread, and a distribution needs one.
    mixture = Mixture.single(float(logs.mean()), max(spread, LEAST_SPREAD) * float(np.sqrt(1 + 1 / n)), freedom)
    lower, middle, upper = (float(np.exp(mixture.quantile(p))) for p in (TAIL, 0.5, 1 - TAIL))
    warnings = (f"Only {n} run{'s' * (n > 1)} at this scale: how they differ is an assumption.",) if few else ()
    return Prediction(middle, lower, upper, {OWN_RUNS: 1.0}, n, 1, int(ranks), 0, (AS_THEY_WERE,), warnings, mixture)


def _conditions(series: ScalingSeries | None, size: float | None) -> tuple[str, ...]:
    texts = [AS_THEY_WERE]
    if series is None:
        texts.append("This problem was never seen: it is taken to be one more like the others of the application.")
    elif SIZE_GROWS in series.parts:
        texts.append("Size grows with the ranks as it did.")
    if size is not None:
        texts.append(f"Size {size:g} was never run: it is predicted from the nearest sizes that were.")
    return tuple(texts)


def _warnings(runs: Runs, ranks: float) -> tuple[str, ...]:
    texts = []
    scales = runs.scales
    if scales.size < 3:
        texts.append(f"Only {scales.size} scale{'s' * (scales.size > 1)} of it seen: the curve is mostly a guess.")
    if ranks > 8 * scales[-1]:
        texts.append(f"{ranks / scales[-1]:.3g} times as many ranks as were ever seen.")
    return tuple(texts)


def fit(problems: Mapping[str, Runs], *, seed: int = 0) -> Predictor:
    """Fit a predictor to the runs of an application's problems, which are pooled.

    seed: not used, since the model is deterministic; other models of scaling use it.
    """
    predictor = Predictor()
    for problem, runs in problems.items():
        predictor.update(problem, runs)
    return predictor
