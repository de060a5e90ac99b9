"""The tasks of the methods: to bound later values of the same series, one by one or all at once, and larger scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from barograph_modeler.maxima.predictive import SeriesLimits
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.bands.method import HasLimits
from barograph_modeler.studies.bands.methods import METHODS, refit
from barograph_modeler.studies.bands.score import ScoreRow, score
from barograph_modeler.studies.series import Series

FEWEST: Final = 6
"""Values a series must have: shorter ones are left out of every task."""


def same_scale(series: Sequence[Series]) -> Iterator[ScoreRow]:
    """Fit on the first half of each series, score the second."""
    for one in series:
        half = one.values.size // 2
        history, rest = one.values[:half], one.values[half:]
        for method in METHODS:
            reason = ""
            if method.continued and method.follow is not None:
                both = method.follow(one.values)
                limits = SeriesLimits(both.lower[half:], both.upper[half:])
            elif method.fit is not None:
                limits, reason = _spread(partial(method.fit, history), rest.size)
            else:
                continue
            yield score(method.name, "same-scale", one, limits, rest, fitted=half, reason=reason)


def prequential(series: Sequence[Series]) -> Iterator[ScoreRow]:
    """Learn each series value by value, each scored before it is learned."""
    for one in series:
        for method in METHODS:
            if method.follow is not None and not method.continued:
                limits = method.follow(one.values)
            elif method.fit is not None and method.refits:
                limits = refit(method.fit, one.values)
            else:
                continue
            first = int(np.argmax(np.isfinite(limits.lower))) if np.isfinite(limits.lower).any() else one.values.size
            yield score(method.name, "prequential", one, limits, one.values, fitted=first)


def programs(series: Sequence[Series]) -> list[dict[float, Series]]:
    """Series of one key, by scale, smallest first: one program at several scales."""
    found: dict[tuple[str, ...], dict[float, Series]] = {}
    for one in series:
        if one.scale is not None:
            found.setdefault(tuple(one.key.values()), {})[one.scale] = one
    return [dict(sorted(program.items())) for program in found.values()]


def scale_up(series: Sequence[Series]) -> Iterator[ScoreRow]:
    """Fit on all scales of a program up to each one, score every larger one."""
    for program in programs(series):
        scales = list(program)
        for i, target in enumerate(scales):
            for j in range(i):
                seen = {scale: program[scale].values for scale in scales[: j + 1]}
                yield from _project(seen, program[target], target / scales[j])


def _project(seen: Mapping[float, Floats], target: Series, factor: float) -> Iterator[ScoreRow]:
    task = f"scale-up-{factor:g}x"
    for method in METHODS:
        if method.project is not None and target.scale is not None:
            limits, reason = _spread(partial(method.project, seen, target.scale), target.values.size)
            fitted = sum(values.size for values in seen.values())
            yield score(method.name, task, target, limits, target.values, fitted=fitted, factor=factor, reason=reason)


def _spread(fit: Callable[[], HasLimits | None], size: int) -> tuple[SeriesLimits, str]:
    """One band for `size` values; NaN and why, where the method has none for such values."""
    lower, upper, reason = math.nan, math.nan, ""
    try:
        if (band := fit()) is not None:
            lower, upper = band.lower, band.upper
    except ValueError as error:  # logarithms of values not above 0, for one
        reason = str(error)
    return SeriesLimits(np.full(size, lower), np.full(size, upper)), reason
