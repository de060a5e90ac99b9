"""Five forecasts of one run's time: from the total and from its parts, by weighted shapes and by trends.

- TOTAL: the predictor of `scaling`, which does not use parts.
- TOTAL_TREND: a trend of the total.
- PARTS: the sum of weighted shapes of each part; for problems of several sizes the predictor of `scaling` for each.
- PARTS_TREND: the sum of the trends of each part.
- PARTS_LINES: the sum of nearly straight trends: a power law for each part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.predictor import Prediction, Predictor, fit
from barograph_modeler.studies.regions.curves import PartCurves
from barograph_modeler.studies.regions.disjoint import with_rest
from barograph_modeler.studies.regions.runs import RegionRuns
from barograph_modeler.studies.regions.trend import BENDS_OF_TOTAL, NEARLY_STRAIGHT, Trends

TOTAL: Final = "total"
TOTAL_TREND: Final = "trend of the total"
PARTS: Final = "parts"
PARTS_TREND: Final = "trends of parts"
PARTS_LINES: Final = "lines of parts"
CENTRAL: Final = (0.16, 0.5, 0.84)
"""Levels from which median and spread of a mixture are taken."""
MAX_AWAY: Final = 2.5
"""Spreads of the total's forecast by which another may differ: erratic parts are not followed further."""
TOGETHER: Final = 0.5
"""Correlation of the errors of parts: runs of one scale share nodes, clocks and network."""

PartLaw = Callable[[str, float, Floats], Mixture | None]
"""Log seconds of a part by problem, ranks and sizes; None without an answer."""


@dataclass(frozen=True)
class ExpertForecast:
    """Log seconds of a run: median and spread (half the central 68 %). parts: median seconds of each, may be empty."""

    median: float
    spread: float
    parts: Mapping[str, float]


class Experts:
    """The five forecasts, fitted to the runs of an application's problems.

    parts: names of disjoint parts of each problem, as from `disjoint`.
    """

    def __init__(self, problems: Mapping[str, RegionRuns], parts: Mapping[str, tuple[str, ...]]) -> None:
        totals = {name: one.runs for name, one in problems.items()}
        self._total, self._total_trend = fit(totals), Trends(totals, BENDS_OF_TOTAL)
        self._parts: dict[str, tuple[str, ...]] = {}
        runs: defaultdict[str, dict[str, Runs]] = defaultdict(dict)
        for name, one in problems.items():
            seconds = with_rest(one, parts[name])
            self._parts[name] = tuple(seconds)
            for part, column in seconds.items():
                runs[part][name] = one.part(column)
        self._trends = {part: Trends(some) for part, some in runs.items()}
        self._lines = {part: Trends(some, (0.0,), NEARLY_STRAIGHT) for part, some in runs.items()}
        self._laws = {part: _law(some) for part, some in runs.items()}

    def at(self, problem: str, ranks: float, sizes: Floats) -> dict[str, ExpertForecast]:
        """The forecasts by expert; those without an answer are not among them. KeyError for an unknown problem."""
        found: dict[str, ExpertForecast | None] = {
            TOTAL: _single(_answer(self._total, problem, ranks, sizes)),
            TOTAL_TREND: _single(self._total_trend.at(problem, ranks, sizes)),
            PARTS: _sum({part: self._laws[part](problem, ranks, sizes) for part in self._parts[problem]}),
            PARTS_TREND: _sum({part: self._trends[part].at(problem, ranks, sizes) for part in self._parts[problem]}),
            PARTS_LINES: _sum({part: self._lines[part].at(problem, ranks, sizes) for part in self._parts[problem]}),
        }
        known = {name: one for name, one in found.items() if one is not None}
        if TOTAL in known:
            known = {name: _near(one, known[TOTAL]) for name, one in known.items()}
        return known


def _sum(parts: Mapping[str, Mixture | None]) -> ExpertForecast | None:
    """The sum of correlated parts: of medians, and of spreads relative to the sum."""
    known = {part: _single(mixture) for part, mixture in parts.items()}
    forecasts = [one for one in known.values() if one is not None]
    if len(forecasts) < len(known):
        return None
    logs = np.array([one.median for one in forecasts])
    total = float(np.logaddexp.reduce(logs))
    spreads = np.exp(logs - total) * np.array([one.spread for one in forecasts])
    variance = TOGETHER * spreads.sum() ** 2 + (1 - TOGETHER) * (spreads**2).sum()
    seconds = {part: float(np.exp(logs[i])) for i, part in enumerate(known)}
    return ExpertForecast(total, float(np.sqrt(variance)), seconds)


def _near(forecast: ExpertForecast, total: ExpertForecast) -> ExpertForecast:
    """The forecast, not farther from that of the total than this one's own error explains."""
    reach = MAX_AWAY * total.spread
    median = float(np.clip(forecast.median, total.median - reach, total.median + reach))
    return ExpertForecast(median, min(forecast.spread, reach), forecast.parts)


def _law(problems: Mapping[str, Runs]) -> PartLaw:
    if all(len(np.unique(runs.sizes, axis=0)) == 1 for runs in problems.values()):
        curves = PartCurves(problems)
        return lambda problem, ranks, sizes: curves.at(problem, ranks)
    predictor = fit(problems)
    return lambda problem, ranks, sizes: _answer(predictor, problem, ranks, sizes)


def _answer(predictor: Predictor, problem: str, ranks: float, sizes: Floats) -> Mixture | None:
    answer = predictor.predict(problem, ranks, size=sizes)
    return answer.logarithms if isinstance(answer, Prediction) else None


def _single(mixture: Mixture | None) -> ExpertForecast | None:
    if mixture is None:
        return None
    lower, median, upper = (mixture.quantile(p) for p in CENTRAL)
    return ExpertForecast(median, (upper - lower) / 2, {})
