"""The laws of scaling that Barograph is compared with, and the interface of every model of scaling.

A model has a name, a line of help, and `fit`. `fit` takes the runs of all problems of one application, because some
models learn from all of them, and returns for each problem a curve or the reason why there is none:

    def fit(problems: Mapping[str, Runs], seed: int) -> dict[str, RuntimeCurve | str]: ...
    MODELS = (Model("weak", "log-bilinear law of weak scaling", fit),)

A curve takes three columns of one length (ranks, nodes with NaN for unknown, size) and returns seconds, finite and
above 0, or NaN without an answer. `each` makes such a `fit` from a fit of single problems that raises ValueError for
too few runs. `scaling/models.py` lists all models: each is a row of `barograph backtest scaling`.

Repeats: every run is a point of weight 1, so a scale with more runs counts more. All laws but two are fitted to
relative errors or in logarithms: in seconds, the smallest scale would dominate. `with_copies` favours larger scales.
Sizes: only Barnes' laws (`barnes.py`) have a term in the size. `of_one_size` fits the others to the runs of each size;
other sizes have no answer.

Mokrov (2020), section 3.5, quotes two of these laws. a p + b/p + c/sqrt(p) is one of strong scaling, fixed size. b (1 +
a)**s + c is one of wide scaling, over sizes at fixed ranks: `wide`. `geometric` borrows it for curves over ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import least_squares, nnls

from barograph_lab.studies.rivals import barnes
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

Terms = Callable[[Floats], Floats]
"""The terms of a law that is linear in its coefficients: (rows, terms)."""
EVALUATIONS: Final = 5000
WIDE_SIZES: Final = 3
"""Sizes that determine the three coefficients of `wide`."""


RuntimeCurve = Callable[[Floats, Floats, Floats], Floats]
"""Expected seconds from ranks, nodes and size, one per row; NaN without an answer."""


class Model(NamedTuple):
    """A model of scaling in the back-test. fit: see the module."""

    name: str
    help: str
    fit: Callable[[Mapping[str, Runs], int], dict[str, RuntimeCurve | str]]


def each(fit: Callable[[Runs], RuntimeCurve]) -> Callable[[Mapping[str, Runs], int], dict[str, RuntimeCurve | str]]:
    """A model's `fit` from a fit of single problems, which raises ValueError if there is no curve."""

    def fit_all(problems: Mapping[str, Runs], seed: int) -> dict[str, RuntimeCurve | str]:
        curves: dict[str, RuntimeCurve | str] = {}
        for name, runs in problems.items():
            try:
                curves[name] = fit(runs)
            except ValueError as error:
                curves[name] = str(error)
        return curves

    return fit_all


def of_one_size(fit: Callable[[Runs], Callable[[Floats], Floats]], fewest: int = 2) -> Callable[[Runs], RuntimeCurve]:
    """A law of ranks alone, fitted to the runs of each size with `fewest` scales or more."""

    def fit_sizes(runs: Runs) -> RuntimeCurve:
        laws: dict[float, Callable[[Floats], Floats]] = {}
        most = 0
        for size in np.unique(runs.size):
            part = runs.select(runs.size == size)
            most = max(most, part.scales.size)
            if part.scales.size >= fewest:
                laws[float(size)] = fit(part)
        if not laws:
            raise ValueError(f"one size was seen at {most} scales at most, expected {fewest}")
        return lambda ranks, nodes, size: _by_key(laws, size, ranks)

    return fit_sizes


def _by_key(laws: Mapping[float, Callable[[Floats], Floats]], keys: Floats, x: Floats) -> Floats:
    """Seconds at x by the law of each row's key; NaN without one, or where it has none above 0."""
    answer = np.full(x.size, np.nan)
    for known, law in laws.items():
        answer[keys == known] = law(x[keys == known])
    return np.where(answer > 0, answer, np.nan)


def copied(runs: Runs) -> Runs:
    """The runs, those of the i-th smallest scale i times: weights as numbers of copies (Mokrov 2020, section 3.5).

    Copies favour large scales. The paper does not print how many there are of each run.
    """
    copies = np.searchsorted(runs.scales, runs.ranks) + 1
    return runs.select(np.repeat(np.arange(len(runs)), copies))


def with_copies(model: Model) -> Model:
    """The model fitted to `copied` runs."""

    def fit(problems: Mapping[str, Runs], seed: int) -> dict[str, RuntimeCurve | str]:
        return model.fit({name: copied(runs) for name, runs in problems.items()}, seed)

    return model._replace(fit=fit)


def _nonnegative(terms: Terms, runs: Runs) -> Callable[[Floats], Floats]:
    columns = terms(runs.ranks) / runs.seconds[:, None]
    unit = columns.max(axis=0)
    coefficients, _ = nnls(columns / unit, np.ones(len(runs)))
    return lambda ranks: np.asarray(terms(ranks) @ (coefficients / unit))


def _free(terms: Terms, runs: Runs) -> Callable[[Floats], Floats]:
    coefficients = np.linalg.lstsq(terms(runs.ranks) / runs.seconds[:, None], np.ones(len(runs)), rcond=None)[0]
    return lambda ranks: np.asarray(terms(ranks) @ coefficients)


def _absolute(terms: Terms, runs: Runs) -> Callable[[Floats], Floats]:
    """Least squares in seconds: what Levenberg-Marquardt finds for a law that is linear in its coefficients."""
    columns = terms(runs.ranks)
    unit = columns.max(axis=0)
    coefficients = np.linalg.lstsq(columns / unit, runs.seconds, rcond=None)[0] / unit
    return lambda ranks: np.asarray(terms(ranks) @ coefficients)


def _geometric(x: Floats, seconds: Floats) -> Callable[[Floats], Floats]:
    """b (1 + a)**s + c, s = log2 x, by Levenberg-Marquardt on the means over repeats, weighted with their number."""
    places = np.unique(x)
    times = [seconds[x == place] for place in places]
    means, counts = np.array([t.mean() for t in times]), np.array([t.size for t in times])

    def law(s: Floats, a: float, b: float, c: float) -> Floats:
        return np.asarray(b * np.power(np.abs(1 + a), s) + c)

    doublings, weights = np.log2(places / places[0]), np.sqrt(counts)
    first, least = float(means[0]), float(means.min())
    # Where times grow, c starts at 0: the largest part of them is b.
    start = (1.0, first, 0.0) if means[-1] > first else (-0.5, first - least or first, least)
    with np.errstate(all="ignore"):  # the method rejects overflowing steps
        found = least_squares(
            lambda x: (law(doublings, *x) - means) * weights, start, method="lm", max_nfev=EVALUATIONS
        )
    a, b, c = found.x
    return lambda asked: law(np.log2(asked / places[0]), a, b, c)


def _wide(runs: Runs) -> RuntimeCurve:
    """`_geometric` over the sizes of each number of ranks with 3 sizes or more; other ranks have no answer."""
    laws: dict[float, Callable[[Floats], Floats]] = {}
    most = 0
    for ranks in runs.scales:
        part = runs.select(runs.ranks == ranks)
        sizes = np.unique(part.size).size
        most = max(most, sizes)
        if sizes >= WIDE_SIZES:
            laws[float(ranks)] = _geometric(part.size, part.seconds)
    if not laws:
        raise ValueError(f"one number of ranks was seen with {most} sizes at most, expected {WIDE_SIZES}")
    return lambda ranks, nodes, size: _by_key(laws, ranks, size)


def _terms(*functions: Callable[[Floats], Floats]) -> Terms:
    return lambda p: np.stack([function(p) for function in functions], axis=1)


AMDAHL: Final = (np.ones_like, np.reciprocal)
"""1 and 1/p."""
SQUARE_ROOT: Final = (np.positive, np.reciprocal, lambda p: 1 / np.sqrt(p))
"""p, 1/p and 1/sqrt(p)."""


def _law(name: str, text: str, fit: Callable[[Runs], Callable[[Floats], Floats]], fewest: int = 2) -> Model:
    return Model(name, text, each(of_one_size(fit, fewest)))


MODELS: Final = (
    _law("amdahl", "s + w/p, coefficients not negative", partial(_nonnegative, _terms(*AMDAHL))),
    _law("amdahl-log", "s + w/p + c log p, coefficients not negative", partial(_nonnegative, _terms(*AMDAHL, np.log))),
    _law(
        "ernest",
        "s + w/p + c log p + d p, coefficients not negative (Ernest)",
        partial(_nonnegative, _terms(*AMDAHL, np.log, np.positive)),
    ),
    Model("log-linear", "log T linear in log p and log size (Barnes 2008)", each(partial(barnes.fit, 1))),
    Model(
        "barnes-quadratic", "log T quadratic in log p, linear in log size (Barnes 2008)", each(partial(barnes.fit, 2))
    ),
    _law("square-root", "a p + b/p + c/sqrt(p), a law of strong scaling", partial(_free, _terms(*SQUARE_ROOT)), 3),
    _law(
        "square-root-seconds",
        "the same fitted to seconds, not to relative errors",
        partial(_absolute, _terms(*SQUARE_ROOT)),
        3,
    ),
    _law(
        "geometric",
        "b (1 + a)**s + c, a law of wide scaling (over sizes), here over ranks: s = log2 p, by Levenberg-Marquardt",
        lambda runs: _geometric(runs.ranks, runs.seconds),
        3,
    ),
    Model("wide", "the same over sizes at each number of ranks, as its authors have it: s = log2 size", each(_wide)),
)
