"""Predictions of runtime at a scale and size, with an interval, or the reason for none.

Models, each a distribution of log seconds:
- curves of one size: its evidence (`evidence.py`) about the shapes of curves (`shapes.py`), with a prior from the other
  sizes and problems of the application (`pool.py`); a level (`level.py`) instead where growth was not confirmed;
- curves over ranks and size (`sizes/curves.py`), where a problem has several sizes;
- the log-bilinear law of the paper (`sizes/law.py`), there too.

Where there are several sizes, the prediction is a mixture, weighted by how well models predicted held-out runs of the
application (`sizes/weighing.py`). Held-out runs also show how wide an interval must be (`calibration.py`). Problems
without runs are predicted from others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from barograph_modeler.maxima.runtime import MINIMUM_RUNS, NO_REPEATS, Repeats, repeated_spread
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.answer import (
    AS_THEY_WERE,
    WIDE,
    Prediction,
    Refusal,
    central_limits,
    from_other_problems,
    from_others,
    from_runs,
)
from barograph_modeler.scaling.calibration import Calibration, HeldOutScale, Scales
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.evidence import MISFITS, ShapeEvidence
from barograph_modeler.scaling.history import MAX_SIZE, Runs
from barograph_modeler.scaling.level import has_unconfirmed_growth, level_at
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.outlier import outlying_scale, unconfirmed_largest
from barograph_modeler.scaling.pool import Pool, posterior, relevant
from barograph_modeler.scaling.shapes import log_prior, weights_by_kind
from barograph_modeler.scaling.sizes.curves import SizedCurves
from barograph_modeler.scaling.sizes.law import BilinearLaw
from barograph_modeler.scaling.sizes.weighing import (
    CURVES,
    LAW,
    MAX_PROBLEMS,
    SIZED,
    ModelWeights,
    about_mean,
    held_out,
    join,
    prior_weights,
)

__all__ = ["Prediction", "Predictor", "Refusal", "fit"]

FARTHEST: Final = 100
"""Largest ratio of predicted to largest known ranks, and of smallest known to predicted ranks."""
MAX_CALIBRATED: Final = 64
"""Latest problems by which weights and intervals are calibrated."""
MAX_CALIBRATED_SIZES: Final = 2
"""Largest sizes of each of them."""
OTHERS: Final = 8
"""Most problems of an application from which a problem without runs is predicted."""
FEWEST_OTHERS: Final = 3
OWN_SCALES: Final = 3
"""Scales of one size of several from which it has a curve of its own."""
MIN_SPREAD: Final = 0.002
"""Least standard deviation of a curve, in log seconds."""
FALLING: Final = -0.5
"""Slope of log time over log ranks at the largest scale below which the time is still falling."""
LEVEL: Final = "level"
MAX_SHOWN_RATIO: Final = 1e6
"""Largest ratio of limits that is written out."""
ON_LINE: Final = 0.05
"""Largest deviation of sizes from a weak series, in logarithms."""

Size = tuple[float, ...]
"""The numbers that make up a size."""
Key = tuple[str, Size]
"""A problem and a size."""


class Posterior(NamedTuple):
    """The posterior of one problem, size and misfit. share: of this misfit. chosen: shapes of relevant weight.
    spread: expected spread of the walk."""

    share: float
    chosen: npt.NDArray[np.intp]
    weights: Floats
    spread: float


class _Problem:
    """The runs of one problem, and its models over sizes, fitted when they are first asked for."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.sizes = sorted({tuple(row) for row in runs.sizes.tolist()})

    @cached_property
    def configurations(self) -> Configurations:
        return Configurations.of(self.runs)

    @cached_property
    def outliers(self) -> dict[Size, float]:
        """By size, ranks of the scale whose runs were disturbed."""
        found = {}
        for size in self.sizes:
            known = Configurations.of(self.runs.of_size(size))
            if (at := outlying_scale(known)) is not None:
                found[size] = float(known.ranks[at])
        return found

    @cached_property
    def has_unconfirmed_growth(self) -> bool:
        """Whether a level is predicted in place of curves."""
        return len(self.sizes) == 1 and has_unconfirmed_growth(self.configurations)

    @cached_property
    def sized(self) -> SizedCurves:
        return SizedCurves(self.configurations)

    @cached_property
    def law(self) -> BilinearLaw:
        return BilinearLaw(self.configurations)

    def undisturbed(self, size: Size) -> Runs:
        """The runs of one size without those of its outlying scale."""
        runs = self.runs.of_size(size)
        return runs.select(runs.ranks != self.outliers[size]) if size in self.outliers else runs

    def runs_at(self, ranks: float, size: Size) -> Floats:
        """The seconds of the runs of one scale and size, the oldest first; there may be none."""
        same = self.runs.of_size(size)
        return np.asarray(same.seconds[same.ranks == ranks])

    def default_size(self, ranks: float) -> Size | Refusal:
        """The size where none is asked for: the only one, or that of a weak series on so many ranks."""
        if len(self.sizes) == 1:
            return self.sizes[0]
        known = self.configurations
        if known.is_series:
            if (exact := known.ranks == ranks).any():
                return tuple(known.sizes[exact][0].tolist())
            line = np.column_stack([np.ones(len(known)), known.log_ranks])
            found, *_ = np.linalg.lstsq(line, known.log_sizes, rcond=None)
            if np.abs(line @ found - known.log_sizes).max() < ON_LINE:
                goes_on = np.array([1.0, np.log(ranks)]) @ found
                return tuple(np.exp(np.clip(goes_on, -np.log(MAX_SIZE), np.log(MAX_SIZE))).tolist())
        reason = f"the runs have {len(self.sizes)} sizes and none was asked for, expected a size"
        return Refusal(reason, without_size=True)


class Predictor:
    """A model of the scaling of one application: deterministic, and can be pickled."""

    def __init__(self) -> None:
        self._problems: dict[str, _Problem] = {}
        self._evidence: dict[Key, tuple[ShapeEvidence, ...]] = {}
        """One for each misfit; the pool has the first."""
        self._pool = Pool()
        self._posteriors: dict[Key, tuple[Posterior, ...]] = {}
        self._weights: ModelWeights | None = None
        self._calibration: Calibration | None = None
        self._cut: Predictor | None = None
        """Of the latest problems, the lower half of their scales."""

    def refitted(self, problems: Mapping[str, Runs]) -> Predictor:
        """A predictor of these problems, which shares with this one what is known of problems with the same runs.

        It comes to the same as `fit` of all problems. Evidence is computed of those that differ; what it adds to the
        pool, weights and predictions, of all. This one is not modified.
        """
        found = Predictor()
        found._cut = self._cut
        kept = set()
        for problem, runs in problems.items():
            known = self._problems.get(problem)
            if known is not None and known.runs.equals(runs):
                kept.add(problem)
                found._keep(problem, known, {size: self._evidence[problem, size] for size in known.sizes})
            elif len(runs):
                found._learn(problem, runs)
        if found._weighing() == self._weighing() and kept.issuperset(found._weighing()):
            found._weights = self._weights
        if list(found._problems) == list(self._problems) and kept.issuperset(found._problems):
            found._posteriors, found._calibration = dict(self._posteriors), self._calibration
        return found

    def _keep(self, problem: str, known: _Problem, evidence: Mapping[Size, tuple[ShapeEvidence, ...]]) -> None:
        """Add a problem that another predictor has learned. The sums over problems follow from their order alone."""
        self._problems[problem] = known
        for size, one in evidence.items():
            self._evidence[problem, size] = one
            self._pool.add(one[0])

    def _learn(self, problem: str, runs: Runs) -> None:
        self._problems[problem] = found = _Problem(runs)
        for size in found.sizes:
            known = found.undisturbed(size)
            self._evidence[problem, size] = evidence = tuple(ShapeEvidence(known, one) for one in MISFITS)
            self._pool.add(evidence[0])

    def predict(
        self,
        problem: str,
        ranks: float,
        nodes: float | None = None,
        size: npt.ArrayLike | None = None,
        own: Floats | None = None,
        repeats: Repeats = NO_REPEATS,
    ) -> Prediction | Refusal:
        """The runtime of `problem` on `ranks` ranks. A problem without runs is predicted from the others.

        nodes: validated, not used: the cost of a rank is assumed not to depend on the ranks per node. size: a number
        or (k,), in the units of the runs; may be omitted if they have one size, or are a weak series that goes on. own:
        seconds of the runs of the same work, the oldest first; None where all runs of the problem are. repeats: of runs
        of one work. Raises ValueError for invalid numbers.
        """
        wanted = None if size is None else np.atleast_1d(np.asarray(size, dtype=np.float64))
        Runs.of([ranks], [1.0], nodes=None if nodes is None else [nodes], size=None if wanted is None else wanted[None])
        if own is not None and own.size >= MINIMUM_RUNS:
            return from_runs(own, ranks)
        found = self._predict(problem, ranks, None if wanted is None else tuple(wanted.tolist()), own, repeats)
        return from_runs(own, ranks, repeats) if isinstance(found, Refusal) and own is not None and own.size else found

    def _predict(
        self, problem: str, ranks: float, size: Size | None, own: Floats | None, repeats: Repeats
    ) -> Prediction | Refusal:
        known = self._problems.get(problem)
        if known is None:
            return self._predict_unseen(problem, ranks, size)
        place = known.default_size(ranks) if size is None else size
        if isinstance(place, Refusal):
            return place
        if len(place) != len(known.sizes[0]):
            raise ValueError(f"size has {len(place)} numbers, expected {len(known.sizes[0])} as the runs have")
        seconds = known.runs_at(ranks, place)
        is_only = self._has_one_configuration(known)
        if seconds.size >= (1 if is_only else MINIMUM_RUNS) or (is_only and own is not None and own.size):
            return from_runs(seconds, ranks) if own is None else from_others(own, seconds, ranks, repeats)
        seconds = own if own is not None and own.size else seconds
        if is_only:
            return Refusal(
                f"{problem} was seen at {known.runs.scales[0]:,.0f} ranks only and no problem of the application at"
                " two scales, expected runs at two"
            )
        if (far := self._too_far(known.runs.scales, ranks)) is not None:
            return Refusal(f"{problem} was seen {far}, expected at most a factor of {FARTHEST} between")
        found = self._answer(self.models(problem, ranks, place), known, (problem, place), ranks)
        return self._about_runs(known, ranks, place, seconds, found)

    def _about_runs(self, known: _Problem, ranks: float, size: Size, seconds: Floats, found: Prediction) -> Prediction:
        """A prediction for a scale and size that was run once or twice: these runs and what all models expect.

        Where no scale of the application was repeated, nothing shows how runs differ: the limits are those of the
        models, or about these runs, whichever are closer together. Of a scale that was left out, as its runs are far
        from the curve of the others, the models alone count.
        """
        if not seconds.size or known.outliers.get(size) == ranks:
            return found
        others, curve = self._beside(known, ranks, size, seconds, found.logarithms.plain())
        if others.freedom > 0:
            own = from_runs(seconds, ranks, others, curve)
        else:
            own = from_runs(seconds, ranks)
            if own.upper_seconds * found.lower_seconds >= found.upper_seconds * own.lower_seconds:
                expected = from_runs(seconds, ranks, Repeats(0.0, MINIMUM_RUNS), curve).expected_seconds
                return replace(found, expected_seconds=min(max(expected, found.lower_seconds), found.upper_seconds))
        return replace(own, scales=found.scales, largest_ranks=found.largest_ranks, pooled_from=found.pooled_from)

    def _beside(
        self, known: _Problem, ranks: float, size: Size, seconds: Floats, curve: Mixture
    ) -> tuple[Repeats, tuple[float, float]]:
        """What there is beside the runs of a scale: repeats of others, and the curve without the spread of runs."""
        others = self._repeats(known, ranks, size)
        low, middle, high = curve.quantiles([0.16, 0.5, 0.84]).tolist()
        noise, _ = repeated_spread(np.log(seconds), others)
        return others, (middle, math.sqrt(max(((high - low) / 2) ** 2 - noise**2, MIN_SPREAD**2)))

    def _repeats(self, known: _Problem, ranks: float, size: Size) -> Repeats:
        """What repeated runs show of the spread at other scales of a problem; where there are none, and this scale has
        few runs, in the whole application."""
        seconds = np.log(known.runs_at(ranks, size))
        own = float(((seconds - seconds.mean()) ** 2).sum()) if seconds.size else 0.0
        spread = known.configurations.spread
        if seconds.size < MINIMUM_RUNS and spread.freedom == max(seconds.size - 1, 0):
            spread = Repeats(*np.sum([one.configurations.spread for one in self._problems.values()], axis=0).tolist())
        return Repeats(max(spread.squares - own, 0.0), spread.freedom - max(seconds.size - 1, 0))

    def default_size(self, problem: str, ranks: float) -> Size | Refusal:
        """The size of a problem with runs where none is asked for: the only one, or that of a weak series there."""
        return self._problems[problem].default_size(ranks)

    def models(self, problem: str, ranks: float, size: Size) -> dict[str, Mixture]:
        """Log seconds of a problem with runs, by each model that applies: without weights, and not widened."""
        known, key = self._problems[problem], (problem, size)
        several, evidence = len(known.sizes) > 1, self._evidence.get(key)
        found = {}
        if evidence is not None and (not several or evidence[0].scales.size >= OWN_SCALES):
            found[CURVES] = self._mixture(key, ranks)
        if several or not found:
            at = np.array(size)
            found |= {SIZED: known.sized.at(ranks, at), LAW: known.law.at(ranks, at)}
        elif known.has_unconfirmed_growth:
            return {LEVEL: level_at(known.configurations, ranks)}
        return found

    def _joined(self, known: _Problem, models: Mapping[str, Mixture]) -> tuple[dict[str, float], Mixture]:
        """Weights of the models that answer a question, and their mixture."""
        if len(models) == 1:
            return dict.fromkeys(models, 1.0), next(iter(models.values()))
        return join(models, self.weights.of_models(models, is_series=known.configurations.is_series))

    @property
    def weights(self) -> ModelWeights:
        """How well each model predicted held-out runs of the problems that have several sizes."""
        if self._weights is None:
            problems = {name: self._problems[name].runs for name in self._weighing()}
            self._weights = ModelWeights.of(held_out(problems, fit))
        return self._weights

    @property
    def calibration(self) -> Calibration:
        """The width of intervals, from the largest scales of problems as the lower half of their scales predicts
        them."""
        if self._calibration is None:
            latest = list(self._problems.items())[-MAX_CALIBRATED:]
            known = {name: one.runs for name, one in latest if one.runs.scales.size > 1}
            cut = {
                name: runs.select(runs.ranks <= runs.scales[(runs.scales.size - 1) // 2])
                for name, runs in known.items()
            }
            self._cut = fit(cut) if self._cut is None else self._cut.refitted(cut)
            self._calibration = Calibration.of(self._held_out(known, self._cut))
            self._cut._posteriors.clear()  # of few scales, so of thousands of shapes
        return self._calibration

    def _held_out(self, problems: Mapping[str, Runs], cut: Predictor) -> Iterator[HeldOutScale]:
        """The largest scale of each problem. cut: a predictor that has not learned it."""
        for name, runs in problems.items():
            known, ranks = cut._problems[name], float(runs.scales[-1])
            if known.runs.scales.size < 2:
                continue  # one scale shows no curve
            largest = runs.select(runs.ranks == ranks)
            for size in sorted({tuple(row) for row in largest.sizes.tolist()})[-MAX_CALIBRATED_SIZES:]:
                models = cut.models(name, ranks, size)
                mixture = next(iter(models.values()))
                if SIZED in models:
                    _, mixture = join(models, prior_weights(models, is_series=known.configurations.is_series))
                yield HeldOutScale(mixture, np.log(largest.of_size(size).seconds), known.runs.scales.size)

    @property
    def has_sizes(self) -> bool:
        """Whether a problem has several sizes, so that models are weighted."""
        return bool(self._weighing())

    def _weighing(self) -> list[str]:
        """The problems whose runs are held out: the latest with several sizes."""
        return [name for name, one in self._problems.items() if len(one.sizes) > 1][-MAX_PROBLEMS:]

    def _has_one_configuration(self, known: _Problem) -> bool:
        """Whether nothing shows what more ranks do."""
        return len(known.sizes) < 2 and all(one.runs.scales.size < 2 for one in self._problems.values())

    def _posterior(self, key: Key) -> tuple[Posterior, ...]:
        if key not in self._posteriors:
            largest = float(self._evidence[key][0].scales[-1])
            fits = [evidence.fitted() for evidence in self._evidence[key]]
            prior, spread = self._pool.prior(fits[0], log_prior(largest))
            found, totals = [], []
            for evidence, fitted in zip(self._evidence[key], fits, strict=True):
                # The same variance over a factor of e in ranks, whatever part of it is noise.
                own = spread * float(np.sqrt((1 + MISFITS[0].noise) / (1 + evidence.misfit.noise)))
                likelihood = fitted.log_likelihood(own)
                chosen, weights = relevant(posterior(likelihood, prior))
                totals.append(np.logaddexp.reduce(likelihood + prior) + np.log(evidence.misfit.odds))
                found.append(Posterior(0.0, chosen, weights, own))
            shares = softmax(totals).tolist()
            self._posteriors[key] = tuple(one._replace(share=own) for one, own in zip(found, shares, strict=True))
        return self._posteriors[key]

    def _mixture(self, key: Key, ranks: float) -> Mixture:
        parts = [
            (one.share, Mixture(one.weights, *evidence.at(ranks, one.spread, one.chosen), evidence.freedom))
            for evidence, one in zip(self._evidence[key], self._posterior(key), strict=True)
        ]
        return Mixture.joined(parts)

    def _predict_unseen(self, problem: str, ranks: float, size: Size | None) -> Prediction | Refusal:
        alike = [name for name, one in self._problems.items() if size is None or len(one.sizes[0]) == len(size)]
        alike = [alike[i] for i in np.unique(np.linspace(0, len(alike) - 1, OTHERS).astype(int))] if alike else []
        alike = [name for name in alike if self._too_far(self._problems[name].runs.scales, ranks) is None]
        if len(alike) < FEWEST_OTHERS:
            return Refusal(
                f"{problem} was never seen, and near {ranks:,.0f} ranks {len(alike)} other"
                f" problem{'s have' if len(alike) != 1 else ' has'} run of the application, expected {FEWEST_OTHERS}"
            )
        others = [self._like(name, ranks, size) for name in alike]
        mixture = from_other_problems([one for one, _ in others])
        found = central_limits(mixture.widened(*self.calibration.widenings[Scales.MORE]))
        condition = "This problem was never seen: it is taken to be one more like the others of the application."
        model: dict[str, float] = {}
        for _, shares in others:
            for kind, share in shares.items():
                model[kind] = model.get(kind, 0.0) + share / len(others)
        doubts = tuple(_far_apart(found))
        model = dict(sorted(model.items(), key=lambda item: -item[1]))
        return Prediction(*found, model, 0, 0, 0, len(self._problems), (AS_THEY_WERE, condition), doubts, mixture)

    def _like(self, problem: str, ranks: float, size: Size | None) -> tuple[Mixture, dict[str, float]]:
        """What another problem takes: at this size, or at its own one. And the weights of the models."""
        known = self._problems[problem]
        if len(known.sizes) == 1:
            key = (problem, known.sizes[0])
            return self._mixture(key, ranks), self._kinds([key])
        own = known.default_size(ranks) if size is None else size
        models = self.models(problem, ranks, known.sizes[-1] if isinstance(own, Refusal) else own)
        shares, mixture = self._joined(known, models)
        return mixture, shares

    def _too_far(self, scales: Floats, ranks: float) -> str | None:
        if ranks > FARTHEST * scales[-1]:
            return f"at {scales[-1]:,.0f} ranks at most and {ranks:,.0f} were asked for"
        if ranks * FARTHEST < scales[0]:
            return f"at {scales[0]:,.0f} ranks at least and {ranks:,.0f} were asked for"
        return None

    def _answer(self, models: Mapping[str, Mixture], known: _Problem, key: Key, ranks: float) -> Prediction:
        weights, mixture = self._joined(known, models)
        if SIZED in models:
            mixture = about_mean(mixture, models, weights)
        mixture = mixture.widened(*self.calibration.widenings[Scales.of(known.runs.scales.size)])
        limits = central_limits(mixture)
        kinds = self._kinds([key]) if CURVES in models else {}
        shares = {name: weights[CURVES] * share for name, share in kinds.items()}
        shares |= {name: weight for name, weight in weights.items() if name != CURVES}
        return Prediction(
            *limits,
            dict(sorted(shares.items(), key=lambda item: -item[1])),
            len(known.runs),
            int(known.runs.scales.size),
            int(known.runs.scales[-1]),
            len(self._problems) - 1,
            _conditions(known, key[1]),
            (*_warnings(known.runs, ranks), *_doubts(known, key[1], limits), *_beyond(known, key[1], ranks)),
            mixture,
        )

    def _kinds(self, keys: list[Key]) -> dict[str, float]:
        posteriors = [one for key in keys for one in self._posterior(key)]
        chosen = np.concatenate([one.chosen for one in posteriors])
        return weights_by_kind(chosen, np.concatenate([one.share * one.weights for one in posteriors]) / len(keys))


def _conditions(known: _Problem, size: Size) -> tuple[str, ...]:
    if size in known.sizes:
        return (AS_THEY_WERE,)
    count = len(known.sizes)
    return (AS_THEY_WERE, f"This size was never run: it is predicted from {count} size{'s' * (count > 1)} that were.")


def _doubts(known: _Problem, size: Size, limits: tuple[float, float, float]) -> Iterator[str]:
    yield from _far_apart(limits)
    if (ranks := known.outliers.get(size)) is not None:
        yield f"The runs on {ranks:g} ranks are far from the curve of the others and were left out."
    if known.has_unconfirmed_growth:
        small, large = known.runs.scales
        yield (
            f"The time grew from {small:g} to {large:g} ranks, and one of both was run once: this may be chance, and is"
            " not expected to go on. Repeat both."
        )


def _beyond(known: _Problem, size: Size, ranks: float) -> Iterator[str]:
    """Doubts of what the largest scale of a size that was run shows of larger ones."""
    if size not in known.sizes or ranks <= (scales := Configurations.of(known.runs.of_size(size))).ranks[-1]:
        return
    largest = f"{scales.ranks[-1]:,.0f} ranks, the most that were run"
    if (times := unconfirmed_largest(scales)) is not None:
        yield f"Runs on {largest}, take {times:.3g} times as long as smaller scales show: repeat them."
    elif len(scales) > 1 and ranks > 2 * scales.ranks[-1]:
        slope = np.diff(scales.log_seconds)[-1] / np.diff(scales.log_ranks)[-1]
        if slope < FALLING:
            yield f"The time was still falling on {largest}: no run shows where it stops."


def _far_apart(limits: tuple[float, float, float]) -> Iterator[str]:
    _, lower, upper = limits
    if upper > WIDE * lower:
        times = upper / lower if lower > 0 else float("inf")
        shown = f"{float(f'{times:.2g}'):,.0f}" if times < MAX_SHOWN_RATIO else f"more than {MAX_SHOWN_RATIO:,.0f}"
        yield f"The limits are {shown} times apart: the runs are too few or too irregular for more."


def _warnings(runs: Runs, ranks: float) -> tuple[str, ...]:
    texts = []
    scales = runs.scales
    if scales.size < 3 and ranks not in scales:
        texts.append(f"Only {scales.size} scale{'s' * (scales.size > 1)} of it seen: the curve is mostly a guess.")
    if ranks > 8 * scales[-1]:
        texts.append(f"{ranks / scales[-1]:.3g} times as many ranks as were ever seen.")
    return tuple(texts)


def fit(problems: Mapping[str, Runs], *, seed: int = 0) -> Predictor:
    """Fit a predictor to the runs of an application's problems, which are pooled.

    seed: not used, since the model is deterministic; other models of scaling use it.
    """
    return Predictor().refitted(problems)
