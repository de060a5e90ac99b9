"""The answer of a predictor: a distribution of the runtime, or the reason for none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from barograph_modeler.maxima.runtime import MINIMUM_RUNS, NO_REPEATS, PRIOR_SECONDS, REACH, Repeats, repeated_spread
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.tails import MIN_TAIL
from barograph_modeler.scaling.mixture import Mixture

TAIL: Final = 0.025
"""Probability below the lower limit, and above the upper one."""
MAX_LIMIT_RATIO: Final = 400.0
"""Ratio of upper to lower limit up to which a time limit is proposed, and of that to the median."""
WIDE: Final = 20.0
"""Ratio of upper to lower limit from which a prediction is vague: it has a warning, and nothing follows from it."""
MAX_LOG: Final = 500.0
"""Largest distance of the median from a second, in logarithms: no number of an answer is infinite or 0."""
MAX_REACH: Final = 1e6
"""Largest ratio of a limit to the median. Limits farther away, of runs that contradict each other, are cut there."""
OWN_RUNS: Final = "runs at this scale"
"""The model of a scale that was run often enough, or that is the only one."""
OTHERS_RUNS: Final = "runs of others at this scale"
"""The model of a scale that was run, but not by what is in question."""
BETWEEN_GROUPS: Final = Repeats(squares=2.0, freedom=2.0)
"""The prior of what such work takes beside that of others: two runs that differ from it by a factor of e."""
PROBLEMS_FREEDOM: Final = 4.0
BETWEEN_PROBLEMS: Final = 1.0
"""Prior of the spread of log seconds between problems of one application, and its degrees of freedom."""
CONTRADICTION: Final = 3.0
"""Standard deviations between the runs of a scale and the curve of the others from which only the runs count."""
OTHER_WORK: Final = 1.5
"""Ratio of the longest to the shortest run of a scale from which they may have done different work."""
DECAY: Final = 4.0
"""Runs over which the weight of a run falls by e where the latest are sought: chosen on job logs (ADR 82)."""
AS_THEY_WERE: Final = "The machine and the program are as they were."


def central_limits(logarithms: Mixture) -> tuple[float, float, float]:
    """Median, lower and upper limit in seconds of a distribution of log seconds."""
    lower, middle, upper = logarithms.quantiles([TAIL, 0.5, 1 - TAIL]).tolist()
    middle = min(max(middle, -MAX_LOG), MAX_LOG)
    reach = float(np.log(MAX_REACH))
    logs = (middle, max(lower, middle - reach), min(upper, middle + reach))
    middle, lower, upper = (float(np.exp(one)) for one in logs)
    return middle, lower, upper


@dataclass(frozen=True)
class Prediction:
    """A distribution of the runtime at one scale: the limits hold 95 % of it. expected_seconds is its median, and of a
    scale that has run what its runs took (`expected_log`).

    model: weights of the kinds of shapes, largest first, with sum 1. runs, scales, largest_ranks: of the problem in the
    history; all 0 for a problem without runs. pooled_from: number of other problems of the application used.
    conditions: assumptions; warnings: reasons for doubt.
    """

    expected_seconds: float
    lower_seconds: float
    upper_seconds: float
    model: dict[str, float]
    runs: int
    scales: int
    largest_ranks: int
    pooled_from: int
    conditions: tuple[str, ...]
    warnings: tuple[str, ...]
    logarithms: Mixture = field(repr=False, compare=False)
    """The distribution of log seconds."""

    def perhaps_times(self, ratio: float, condition: str) -> Prediction:
        """The prediction where the runtime may be the same, or `ratio` times as long: equal odds, and the latter is
        expected, as the median is a time that neither takes. ratio: above 0. condition: one sentence.
        """
        shifted = self.logarithms.shifted(float(np.log(ratio)))
        both = Mixture.joined([(0.5, self.logarithms), (0.5, shifted)])
        found = self.distributed(both)
        expected = min(max(ratio * self.expected_seconds, found.lower_seconds), found.upper_seconds)
        return replace(found, expected_seconds=expected, conditions=(*self.conditions, condition))

    def times(self, ratio: float, spread: float, condition: str) -> Prediction:
        """The prediction of what takes `ratio` times as long, above 0. spread: of the logarithm of the ratio.

        condition: one sentence.
        """
        distance = float(np.log(ratio))
        # Three points with the mean, variance and fourth moment of a normal distribution.
        points = ((1 / 6, -np.sqrt(3.0)), (2 / 3, 0.0), (1 / 6, np.sqrt(3.0)))
        found = Mixture.joined([(share, self.logarithms.shifted(distance + z * spread)) for share, z in points])
        moved = self.distributed(found)
        expected = min(max(ratio * self.expected_seconds, moved.lower_seconds), moved.upper_seconds)
        return replace(moved, expected_seconds=expected, conditions=(*self.conditions, condition))

    def distributed(self, logarithms: Mixture) -> Prediction:
        """The prediction with another distribution of log seconds, and the median and limits of that."""
        expected, lower, upper = central_limits(logarithms)
        return replace(self, expected_seconds=expected, lower_seconds=lower, upper_seconds=upper, logarithms=logarithms)

    @property
    def own_runs(self) -> int | None:
        """The runs behind the distribution, 0 where all were of other work; None where there are laws behind it."""
        return self.runs if OWN_RUNS in self.model else 0 if OTHERS_RUNS in self.model else None

    @property
    def spread(self) -> float:
        """The spread of log seconds, of the widest part of the distribution."""
        return float(np.max(self.logarithms.spreads))

    @property
    def has_time_limit(self) -> bool:
        """Whether the interval is narrow enough for a time limit that is of use."""
        return self.upper_seconds <= MAX_LIMIT_RATIO * self.lower_seconds

    @property
    def is_vague(self) -> bool:
        """Whether the limits are so far apart that a ratio to another prediction tells nothing."""
        return self.upper_seconds > WIDE * self.lower_seconds

    def time_limit(self, tail: float) -> float:
        """The seconds that a run exceeds with probability `tail`, at most MAX_LIMIT_RATIO times the median."""
        limit = self.logarithms.quantile(1 - max(tail, MIN_TAIL))
        return math.exp(min(limit, math.log(MAX_LIMIT_RATIO) + math.log(self.expected_seconds)))


@dataclass(frozen=True)
class Refusal:
    """No prediction. reason: one sentence. without_size: whether a size, whose names are not known here, is missing."""

    reason: str
    without_size: bool = False


def latest_point(log_seconds: Floats) -> float:
    """Log seconds: of the runs, (runs,), the oldest first, one or more, that with the largest expected accuracy.

    The accuracy of a and b is exp(-|a - b|), the ratio of the shorter to the longer runtime. Its mean has weights that
    fall with the age. Where runs differ little this is a weighted median, which a few odd runs do not move.

    >>> latest_point(np.array([1.0, 1.0, 1.0, 5.0]))
    1.0
    >>> latest_point(np.array([1.0, 1.0, 5.0, 5.0, 5.0]))
    5.0
    """
    weights = np.exp((np.arange(log_seconds.size) - log_seconds.size) / DECAY)
    accuracy = np.exp(-np.abs(log_seconds[:, None] - log_seconds)) @ weights
    return float(log_seconds[np.argmax(accuracy)])


def expected_log(log_seconds: Floats) -> float:
    """What is expected of the next run: `latest_point` of these, of few their mean. The oldest first, one or more."""
    return float(log_seconds.mean()) if log_seconds.size < MINIMUM_RUNS else latest_point(log_seconds)


def from_runs(
    seconds: Floats, ranks: float, others: Repeats = NO_REPEATS, curve: tuple[float, float] | None = None
) -> Prediction:
    """The prediction for a scale from its own runs, with the limits of `runtime_limits`.

    seconds: (runs,), one or more, the oldest first. others: repeated runs of other scales. curve: what these scales
    show of this one, the mean and standard deviation of log seconds without the spread of runs. Both are combined with
    weights of their precisions, unless CONTRADICTION standard deviations are between them.
    """
    logs = np.log(seconds)
    n = logs.size
    spread, freedom = repeated_spread(logs, others)
    mean, middle, variance = float(logs.mean()), expected_log(logs), spread**2 / n
    if curve is not None and abs(mean - curve[0]) < CONTRADICTION * math.hypot(curve[1], math.sqrt(variance)):
        own = curve[1] ** 2 / (curve[1] ** 2 + variance)
        mean = middle = own * mean + (1 - own) * curve[0]
        variance *= own
    mixture = Mixture.single(mean, math.sqrt(spread**2 + variance), freedom)
    _, lower, upper = central_limits(mixture)
    middle = math.exp(middle)
    # After a change the latest runs may be beyond the limits of all.
    lower, upper = min(lower, middle), max(upper, middle)
    warnings = []
    if n < MINIMUM_RUNS:
        warnings.append(f"Only {n} run{'s' * (n > 1)} at this scale: how they differ is an assumption.")
    shortest, longest = float(seconds.min()), float(seconds.max())
    # What starting a program takes makes short runs differ.
    if longest >= OTHER_WORK * shortest + REACH * PRIOR_SECONDS:
        ratio = f"{longest / shortest:.3g}"
        warnings.append(f"The longest run at this scale took {ratio} times as long as the shortest: works may differ.")
    model = {OWN_RUNS: 1.0}
    return Prediction(middle, lower, upper, model, n, 1, int(ranks), 0, (AS_THEY_WERE,), tuple(warnings), mixture)


def from_others(own: Floats, seconds: Floats, ranks: float, repeats: Repeats) -> Prediction:
    """The prediction of work with few runs or none, `own`, beside the runs of other work at its scale, `seconds`.

    repeats: of the runs of each work. ranks: of the scale.
    """
    if own.size >= seconds.size:
        return from_runs(own, ranks, repeats)
    found = from_runs(seconds, ranks, BETWEEN_GROUPS)
    if own.size:
        return from_runs(own, ranks, repeats, (float(np.log(seconds).mean()), found.spread))
    warnings = ("None of these runs is known to be of the same work.", *found.warnings)
    return replace(found, model={OTHERS_RUNS: 1.0}, warnings=warnings)


def from_other_problems(known: Sequence[Mixture]) -> Mixture:
    """Log seconds of a problem without runs, as another draw from the distribution of the others at the same scale."""
    limits = np.array([one.quantiles([0.16, 0.5, 0.84]) for one in known])
    y, variance = limits[:, 1], ((limits[:, 2] - limits[:, 0]) / 2) ** 2
    between = (PROBLEMS_FREEDOM * BETWEEN_PROBLEMS**2 + ((y - y.mean()) ** 2).sum()) / (PROBLEMS_FREEDOM + y.size - 1)
    spread = np.sqrt(between * (1 + 1 / y.size) + variance.mean())
    return Mixture.single(float(np.median(y)), float(spread), PROBLEMS_FREEDOM + y.size - 1)
