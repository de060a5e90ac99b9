"""The laws of scaling that Barograph is measured against, and the one shape that every model of scaling has.

A model has a name, a line of help, and `fit`. It is given the runs of all problems of one application, because some
models learn from all of them, and gives back for each problem a curve, or the reason why it has none there:

    def fit(problems: Mapping[str, Runs], seed: int) -> dict[str, Curve | str]: ...
    MODELS = (Model("weak", "log-bilinear law of weak scaling", fit),)

A curve is called with three columns of one length (ranks, nodes with NaN where not known, size) and returns seconds,
finite and above 0 where the model has an answer, NaN where it has none. `each` makes such a `fit` from one that looks
at a single problem and raises ValueError where that has too few runs. The list of all models is in
`backtest/models.py`: adding to it makes a model a row of `barograph backtest scaling`.

Repeats: these laws take every run as a point, unweighted, so a scale that was run more often counts more.
Sizes: these laws do not know sizes. Each is fitted to the runs of one size at a time, and has no answer for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

import numpy as np
from scipy.optimize import curve_fit, nnls

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs


class Curve(Protocol):
    """Seconds over scale and size."""

    def __call__(self, ranks: Floats, nodes: Floats, size: Floats) -> Floats:
        """Expected seconds, one per row; NaN where there is no answer."""


class Model(NamedTuple):
    """A model of scaling as the backtest knows it. fit: see the module."""

    name: str
    help: str
    fit: Callable[[Mapping[str, Runs], int], dict[str, Curve | str]]


def each(fit: Callable[[Runs], Curve]) -> Callable[[Mapping[str, Runs], int], dict[str, Curve | str]]:
    """A model's fit from a fit of single problems, which raises ValueError where there is no curve."""

    def fit_all(problems: Mapping[str, Runs], seed: int) -> dict[str, Curve | str]:
        curves: dict[str, Curve | str] = {}
        for name, runs in problems.items():
            try:
                curves[name] = fit(runs)
            except ValueError as error:
                curves[name] = str(error)
        return curves

    return fit_all
