"""The band for the runtime of a workload's next run, and how unlikely a longer one is."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from barograph_modeler.maxima.band import LEVEL, Band, check_level
from barograph_modeler.maxima.ratio import log_ratio
from barograph_modeler.maxima.sample import Floats, check_sample

MINIMUM_RUNS: Final = 3
"""Runs whose own spread is used; the limits about fewer are mostly those of the prior."""
REPEATED_SPREAD: Final = 0.01
REPEATED_RUNS: Final = 0.2
"""The prior from MINIMUM_RUNS on: 1 %, with the weight of a fifth of a degree of freedom: limits hold 93 to 96 % of the
runs of programs with a noise of 1 to 30 %, after three runs as after twenty."""
FEW_SPREAD: Final = 0.06
FEW_RUNS: Final = 2
"""The prior of limits about fewer: they hold 95 % of next runs, on average over noises of 0.5 to 30 %."""
MAX_PRIOR_RUNS: Final = 4.0
"""The largest weight of a spread that repeated runs of other scales show."""
PRIOR_SPREAD: Final = 0.03
PRIOR_RUNS: Final = 4
"""The prior of the spread between runs: 3 %, with the weight of four degrees of freedom.

In 350 repeated configurations of public studies (docs/engineer/alerts.md) half have a spread below 1.4 %, a quarter
above 4 %, a tenth above 11 %.
"""


CAUTIOUS_SPREAD: Final = 0.05
"""The same for alarms, which are about the far tail. A tenth of the configurations spread by more than 11 %: with
PRIOR_SPREAD that would be 1 in 100, with this 7."""
PRIOR_SECONDS: Final = 0.1
"""The prior of what starting and ending a program adds to the spread of short runs, in seconds."""
REACH: Final = 4.0
"""Spreads from the median to the limits about a single run, 3.93 rounded: there as many PRIOR_SECONDS are added."""
MIN_SECONDS: Final = 1e-6
"""No program runs for less; shorter times are treated as this one where the prior divides by them."""
MAX_LOG: Final = 690.0
"""Logarithm of the largest limit that is given: near the largest number."""


def prior_spread(expected_seconds: float, spread: float = PRIOR_SPREAD) -> float:
    """The prior of the spread of log runtimes of runs that take so long. spread: that of long runs.

    PRIOR_SECONDS are added to a runtime, not multiplied with it: with r = REACH the share of short runs is
    log(1 + r PRIOR_SECONDS / expected) / r, which is PRIOR_SECONDS / expected where runs are long.

    >>> [round(prior_spread(seconds), 3) for seconds in (0.01, 1.0, 100.0)]
    [0.929, 0.089, 0.03]
    """
    starting = REACH * PRIOR_SECONDS / max(expected_seconds, MIN_SECONDS)
    return math.hypot(spread, math.log1p(starting) / REACH)


def posterior_spread(spread: float, runs: int, prior: float = PRIOR_SPREAD, weight: float = PRIOR_RUNS) -> float:
    """The spread of log runtimes or paces given the sample standard deviation of `runs` of them, NaN below 2.

    With a scaled inverse chi-square prior (Gelman et al., Bayesian Data Analysis, section 2.6) of `weight` degrees of
    freedom:

        s**2 = (weight prior**2 + (n - 1) spread**2) / (weight + n - 1)

    One more run then follows Student's t with weight + n - 1 degrees of freedom, of scale s sqrt(1 + 1 / n).
    """
    own = (runs - 1) * spread**2 if runs > 1 else 0.0
    return math.sqrt((weight * prior**2 + own) / (weight + runs - 1))


class Repeats(NamedTuple):
    """What repeated runs of other scales show of the spread: the squares of log runtimes about the means of their
    scales, and the degrees of freedom of these."""

    squares: float = 0.0
    freedom: float = 0.0


NO_REPEATS: Final = Repeats()


def repeated_spread(logs: Floats, others: Repeats = NO_REPEATS) -> tuple[float, float]:
    """The spread of log runtimes given some of them, one or more, and the degrees of freedom of the next one."""
    prior, weight = _prior(logs.size, math.exp(min(float(logs.mean()), MAX_LOG)))
    if others.freedom > 0:
        weight = REPEATED_RUNS + others.freedom
        prior = math.sqrt((REPEATED_RUNS * REPEATED_SPREAD**2 + others.squares) / weight)
        weight = min(weight, MAX_PRIOR_RUNS)
    spread = float(logs.std(ddof=1)) if logs.size > 1 else math.nan
    return posterior_spread(spread, logs.size, prior, weight), weight + logs.size - 1


def _prior(runs: int, expected_seconds: float) -> tuple[float, float]:
    """The prior of the spread beside so many runs, and its weight."""
    if runs < MINIMUM_RUNS:
        return prior_spread(expected_seconds, FEW_SPREAD), FEW_RUNS
    return REPEATED_SPREAD, REPEATED_RUNS


def runtime_band(runtimes: npt.ArrayLike, level: float = LEVEL) -> Band | None:
    """The prediction interval for the next runtime, or None for fewer than MINIMUM_RUNS runs.

    runtimes: seconds of past runs, each finite and above 0. With m and s the mean and sample standard deviation of
    their logarithms, the limits are exp(m -+ t s sqrt(1 + 1/n)), t the (1 + level) / 2 quantile of Student's t with
    n - 1 degrees of freedom: exact where runtimes are log-normal and independent. `expected` is exp(m), the median.
    Raises ValueError for a runtime that is not finite or not above 0.
    """
    check_level(level)
    logs = _logs(runtimes)
    if logs.size < MINIMUM_RUNS:
        return None
    return _band(logs, float(logs.std(ddof=1)), logs.size - 1, level)


def runtime_limits(runtimes: npt.ArrayLike, level: float = LEVEL) -> Band | None:
    """As `runtime_band`, but from one run on, with a prior of the spread (`repeated_spread`). None without runs."""
    check_level(level)
    logs = _logs(runtimes)
    return _band(logs, *repeated_spread(logs), level) if logs.size else None


def p_value(seconds: float, expected: float, upper: float, runs: int) -> float:
    """Probability that a healthy run takes `seconds` or longer, by a band of `runtime_limits` from so many runs.

    It includes the prior of the spread for any number of runs: three that agree by chance do not make the fourth
    significant. upper, expected: seconds, of the band with level LEVEL.
    """
    scale, freedom = runtime_scale(expected, upper, runs, CAUTIOUS_SPREAD)
    return float(stdtr(freedom, -log_ratio(seconds, expected) / scale))


def runtime_scale(expected: float, upper: float, runs: int, prior: float = PRIOR_SPREAD) -> tuple[float, int]:
    """Scale and degrees of freedom of Student's t of the logarithm of the next runtime, by a band of `runtime_limits`.

    prior: of the spread between runs, of any number.
    """
    before, weight = _prior(runs, expected)
    wider = math.sqrt(1 + 1 / runs)
    spread = log_ratio(upper, expected) / float(stdtrit(weight + runs - 1, (1 + LEVEL) / 2)) / wider
    # The sample's own: the posterior without its prior.
    own = ((weight + runs - 1) * spread**2 - weight * before**2) / max(runs - 1, 1)
    spread = posterior_spread(math.sqrt(max(own, 0.0)), runs, prior_spread(expected, prior))
    return spread * wider, PRIOR_RUNS + runs - 1


def _logs(runtimes: npt.ArrayLike) -> Floats:
    seconds = check_sample(runtimes, 0)
    if (bad := seconds <= 0).any():
        raise ValueError(f"runtime {int(np.argmax(bad))} is {seconds[bad][0]} seconds, expected more than 0")
    logs: Floats = np.log(seconds)
    return logs


def _band(logs: Floats, spread: float, freedom: float, level: float) -> Band:
    middle = float(logs.mean())
    reach = float(stdtrit(freedom, (1 + level) / 2)) * spread * math.sqrt(1 + 1 / logs.size)
    lower, expected, upper = (math.exp(min(log, MAX_LOG)) for log in (middle - reach, middle, middle + reach))
    return Band("log-t", logs.size, lower, expected, upper)
