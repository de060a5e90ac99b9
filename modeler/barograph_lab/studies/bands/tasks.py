"""Back-test tasks: bound later values of the same series, at once or one by one, and values at larger scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from barograph_lab.studies.bands.methods import METHODS, Limits, refit
from barograph_lab.studies.bands.score import ScoreRow, score
from barograph_lab.studies.series import Series
from barograph_modeler.maxima.predictive import SeriesLimits

FEWEST: Final = 6
"""Values that a series needs; shorter ones are left out of every task."""


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
                limits, reason = _constant(partial(method.fit, history), rest.size)
            else:
                continue
            yield score(method.name, "same-scale", one, limits, rest, fitted=half, reason=reason)


def prequential(series: Sequence[Series]) -> Iterator[ScoreRow]:
    """Learn each series value by value; each value is scored before it is learned."""
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
    """Programs: the series of one key by scale, smallest scale first."""
    found: dict[tuple[str, ...], dict[float, Series]] = {}
    for one in series:
        if one.scale is not None:
            found.setdefault(tuple(one.key.values()), {})[one.scale] = one
    return [dict(sorted(program.items())) for program in found.values()]


def scale_up(known: Sequence[dict[float, Series]]) -> Iterator[ScoreRow]:
    """Fit to all scales of each of the programs up to each scale, score each larger scale."""
    for program in known:
        scales = list(program)
        for i, scale in enumerate(scales):
            target = program[scale]
            for j, largest in enumerate(scales[:i]):
                seen = {own: program[own].values for own in scales[: j + 1]}
                factor, fitted = scale / largest, sum(values.size for values in seen.values())
                task = f"scale-up-{factor:g}x"
                for method in METHODS:
                    if method.project is None:
                        continue
                    x = target.values
                    limits, reason = _constant(partial(method.project, seen, scale), x.size)
                    yield score(method.name, task, target, limits, x, fitted=fitted, factor=factor, reason=reason)


def _constant(fit: Callable[[], Limits | None], size: int) -> tuple[SeriesLimits, str]:
    """One band for `size` values; NaN and a reason if the method has none."""
    lower, upper, reason = math.nan, math.nan, ""
    try:
        if (band := fit()) is not None:
            lower, upper = band.lower, band.upper
    except ValueError as error:  # such as logarithms of values <= 0
        reason = str(error)
    return SeriesLimits(np.full(size, lower), np.full(size, upper)), reason
