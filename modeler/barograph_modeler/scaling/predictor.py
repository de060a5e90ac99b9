"""Predictions of runtime at a scale, with an interval, or the reason why there is none.

Each problem and size has its evidence (`evidence.py`) about the shapes of curves (`shapes.py`). The application's pool
(`pool.py`) gives it a prior, made from the other problems. The weights of shapes follow from both. The prediction is
the mixture of the predictions of the shapes. A size that was never run is predicted from the nearest others
(`unseen.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.answer import Prediction, Refusal
from barograph_modeler.scaling.evidence import ShapeEvidence
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.pool import Pool, posterior
from barograph_modeler.scaling.series import SIZE_GROWS, ScalingSeries, series_of
from barograph_modeler.scaling.shapes import log_prior, weights_by_kind
from barograph_modeler.scaling.unseen import from_other_problems, from_other_sizes

__all__ = ["Prediction", "Predictor", "Refusal", "fit", "unpack"]

FARTHEST: Final = 100
"""Times the largest number of ranks seen beyond which there is no prediction; the same below the smallest."""
WIDEST: Final = 400.0
"""Upper limit over lower limit beyond which the interval is too wide to be of use."""
NEAREST_SIZES: Final = 4
OTHERS: Final = 8
"""Problems of an application that one never seen is predicted from, at most."""
FEWEST_OTHERS: Final = 3
NEGLIGIBLE: Final = 1e-3
"""Share of the largest weight below which a shape does not count."""
TAIL: Final = 0.025
WIDENED: Final = 1.4
"""Half-widths of the computed interval that hold 95 % of runs at scales above the largest seen: split-conformal, from
public runs of other applications (docs/engineer/scaling.md)."""

Key = tuple[str, float]
"""A problem and a size."""


class Posterior(NamedTuple):
    """The posterior of one problem and size. chosen: the shapes that count, with their weights. spread: expected."""

    chosen: npt.NDArray[np.intp]
    weights: Floats
    spread: float


class Predictor:
    """A model of how one application scales. It learns run by run, can be pickled, and is deterministic."""

    def __init__(self) -> None:
        self._problems: dict[str, ScalingSeries] = {}
        self._evidence: dict[Key, ShapeEvidence] = {}
        self._pool = Pool()
        self._posteriors: dict[Key, Posterior] = {}

    def update(self, problem: str, runs: Runs) -> None:
        """Learn finished runs. Only their problem is fitted again; the others' priors follow when needed."""
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
        """The runtime of `problem` on so many ranks. A problem never seen rests on the others of the application.

        nodes: checked, not used: what a rank costs is taken not to depend on how many share a node. size: as it was
        given with the runs; may be left out where they all have one. Raises ValueError for numbers that are none.
        """
        Runs.of([ranks], [1.0], nodes=None if nodes is None else [nodes], size=None if size is None else [size])
        series = self._problems.get(problem)
        if series is None:
            return self._predict_unseen(problem, ranks)
        found = series.locate(ranks, size)
        if isinstance(found, Refusal):
            return found
        if all(part.scales.size < 2 for part in series.parts.values()) and self._pool.problems < 2:
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

    def pack(self) -> dict[str, Any]:
        """The runs as plain containers and arrays: what unpack takes."""
        return {
            name: {"ranks": r.ranks, "nodes": r.nodes, "size": r.size, "seconds": r.seconds}
            for name, r in ((name, series.runs) for name, series in self._problems.items())
        }

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


def _conditions(series: ScalingSeries | None, size: float | None) -> tuple[str, ...]:
    said = ["The machine and the program are as they were."]
    if series is None:
        said.append("This problem was never seen: it is taken to be one more like the others of the application.")
    elif SIZE_GROWS in series.parts:
        said.append("Size grows with the ranks as it did.")
    if size is not None:
        said.append(f"Size {size:g} was never run: it is foretold from the nearest sizes that were.")
    return tuple(said)


def _warnings(runs: Runs, ranks: float) -> tuple[str, ...]:
    said = []
    scales = runs.scales
    if scales.size < 3:
        said.append(f"Only {scales.size} scale{'s' * (scales.size > 1)} of it seen: the curve is mostly a guess.")
    if ranks > 8 * scales[-1]:
        said.append(f"{ranks / scales[-1]:.3g} times as many ranks as were ever seen.")
    return tuple(said)


def fit(problems: Mapping[str, Runs], *, seed: int = 0) -> Predictor:
    """Learn how an application scales from the runs of its problems, which are pooled.

    seed: not used, since the model is deterministic; models with randomness have it.
    """
    predictor = Predictor()
    for problem, runs in problems.items():
        predictor.update(problem, runs)
    return predictor


def unpack(state: Mapping[str, Mapping[str, Any]]) -> Predictor:
    """The predictor that pack described, fitted again."""
    return fit({name: Runs(**columns) for name, columns in state.items()})
