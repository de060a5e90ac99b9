"""How long a run has left, from its progress and from its own pace so far.

With T the usual time of a run and u the share of it that its progress usually takes, the elapsed time is

    E(u) / T = exp(b) u + W(u),    b ~ N(0, between**2),    W a Wiener process of variance within**2 u

b is what a run keeps from its begin to its end, W what it does not. The own pace so far, log(E / (T u)), is b with a
variance of within**2 / u, so that it counts for the more the longer it lasts and the more runs differ; what is left
becomes certain as u nears 1. Disturbances that have been found are no part of the pace: one that lasts is taken to last
for as long again, at the median (`stretched`). Those still to come are in the upper limit, as often as ended runs had
them (`with_coming`).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from barograph_modeler.maxima.ratio import log_ratio
from barograph_modeler.maxima.runtime import MIN_SECONDS, PRIOR_SPREAD, posterior_spread
from barograph_modeler.maxima.sample import Floats

UPPER: Final = 0.975
PARTS: Final = 16
"""Parts of a run between which its pace may differ, to see how much of a difference lasts."""
PRIOR_WITHIN: Final = 0.01
"""The prior of `within`, with the weight of `PRIOR_RUNS`, as that of `between` is PRIOR_SPREAD."""
TAIL_SPREAD: Final = 0.5
TAIL_SECONDS: Final = 0.1
"""How much the time after the last interval differs between runs: this share of it, and this time."""
MAX_LOG: Final = 300.0
MIN_SCALE: Final = 1e-6
"""Runtimes differ by more."""


class PaceSpread(NamedTuple):
    """How much healthy runs differ. between: in what lasts for a run, as a logarithm; within: in the rest, as a share
    of the usual time. Both of the sample, NaN for one run."""

    between: float
    within: float

    @classmethod
    def of_runs(cls, elapsed: Floats) -> Self:
        """Of elapsed times of runs (rows) at equal progress (columns), each compared with the mean of the others."""
        runs = len(elapsed)
        if runs < 2:
            return cls(math.nan, math.nan)
        effects, squares = [], []
        for run in range(runs):
            others = np.delete(elapsed, run, axis=0).mean(axis=0)
            usual = float(others[-1])
            spent = np.diff(np.interp(np.linspace(0, usual, PARTS + 1), others, elapsed[run]))
            if not min(usual, spent.sum()) > 0:
                continue
            parts = spent / usual
            effects.append(math.log(parts.sum()))
            squares.append(float(((parts - parts.mean()) ** 2).sum()) / (1 - 1 / PARTS))
        if not effects:
            return cls(math.nan, math.nan)
        # Each run is compared with others that differ as much themselves.
        shrunk = (runs - 1) / runs
        within = shrunk * float(np.mean(squares))
        between = max(0.0, shrunk**2 * float(np.square(effects).sum()) / (runs - 1) - within)
        return cls(math.sqrt(between), math.sqrt(within))

    def posterior(self, runs: int) -> Self:
        """With priors, for one more run than these."""
        wider = math.sqrt(1 + 1 / runs)
        sample = 0 if math.isnan(self.between) else runs
        between, within = (0.0, 0.0) if not sample else self
        return type(self)(
            wider * posterior_spread(between, sample or 1, PRIOR_SPREAD),
            wider * posterior_spread(within, sample or 1, PRIOR_WITHIN),
        )


class Remaining(NamedTuple):
    """Median and 95 % limits of the seconds until the end of a run."""

    lower_seconds: float
    expected_seconds: float
    upper_seconds: float

    def after(self, seconds: float) -> Remaining:
        """So many seconds later, without other news: at least 0."""
        return Remaining(*(max(0.0, one - seconds) for one in self))

    def with_tail(self, seconds: float) -> Remaining:
        """With the time that programs need to end after their last interval."""
        lower, expected, upper = self
        spread = TAIL_SPREAD * seconds + TAIL_SECONDS
        below, above = math.hypot(expected - lower, spread), math.hypot(upper - expected, spread)
        expected += seconds
        return Remaining(max(0.0, expected - below), expected, expected + above)


class Disturbance(NamedTuple):
    """What makes a run slower or faster now. slowdown: actual over usual time, infinite if nothing happens any more;
    seconds: how long it lasts already; from_begin: whether it lasts since the begin of the run."""

    slowdown: float
    seconds: float
    from_begin: bool = False


def remaining(
    done: float, usual: float, elapsed: float, spread: PaceSpread, freedom: float, steady: float | None = None
) -> Remaining:
    """What is left of a run of `usual` seconds that has progressed as others in `done`, 0 to `usual`.

    elapsed: seconds of the run for as much progress as others make in `steady`; of `done` if None, else of the part in
    which nothing disturbed it. spread: with priors. freedom: degrees of freedom of Student's t, for the limits.
    """
    steady = done if steady is None else steady
    left = max(0.0, usual - done)
    if left == 0.0:
        return Remaining(0.0, 0.0, 0.0)
    share = min(steady / usual, 1.0)
    known = spread.between**2 * share
    trust = known / (known + spread.within**2) if known > 0 else 0.0
    own = log_ratio(elapsed, steady) if share > 0 and elapsed > 0 else 0.0
    middle = left * math.exp(min(trust * own, MAX_LOG))
    reach = float(stdtrit(freedom, UPPER))
    lasting = min(reach * spread.between * math.sqrt(1 - trust), MAX_LOG)
    passing = reach * spread.within * math.sqrt(usual * left)
    below = math.hypot(middle * -math.expm1(-lasting), passing)
    above = math.hypot(middle * math.expm1(lasting), passing)
    return Remaining(max(0.0, middle - below), middle, middle + above)


def remaining_beyond(elapsed: float, expected: float, scale: float, freedom: float) -> Remaining:
    """What is left of a run whose progress is not known after `elapsed` seconds: its runtime, given that it is longer.

    Log runtimes follow Student's t about that of `expected`, with a scale and degrees of freedom.
    """
    middle = math.log(max(expected, MIN_SECONDS))
    z = (math.log(max(elapsed, MIN_SECONDS)) - middle) / max(scale, MIN_SCALE)
    longer = float(stdtr(freedom, -z))
    ends = (
        math.exp(min(middle - max(scale, MIN_SCALE) * float(stdtrit(freedom, longer * p)), MAX_LOG))
        for p in (UPPER, 0.5, 1 - UPPER)
    )
    return Remaining(*(max(0.0, end - elapsed) for end in ends))


def stretched(left: Remaining, disturbance: Disturbance) -> Remaining:
    """What is left while a disturbance lasts. It goes on for longer than x seconds with a probability of

        seconds / (seconds + x)

    as if it had been met at a random moment of its life: for as long again at the median, 39 times that at the upper
    limit. What lasts since the begin, as a slow node does, goes on to the end at the median.
    """
    odds = UPPER / (1 - UPPER)
    factors = (1 / odds, math.inf if disturbance.from_begin else 1.0, odds)
    lower, expected, upper = (
        [_stretched(one, disturbance.slowdown, disturbance.seconds * factor) for factor in factors] for one in left
    )
    return Remaining(min(lower), expected[1], max(upper))


class ComingDisturbances(NamedTuple):
    """What ended runs show of disturbances. share: of runs that had any, 0 to 1. excesses: how much longer these took,
    as shares of their usual time, above 0; empty if there were none."""

    share: float
    excesses: Floats


def with_coming(left: Remaining, elapsed: float, coming: ComingDisturbances) -> Remaining:
    """What is left, with disturbances that are still to come in the upper limit. elapsed: seconds so far.

    They begin at any moment of a run alike, so the rest of a run has as large a share of them as of the time, and what
    it adds is a share of the rest. The limit is the quantile of both cases, so it holds the promised share of all runs:
    as good as unchanged where fewer runs than that are disturbed.
    """
    expected = left.expected_seconds
    if not (expected > 0 and coming.share > 0 and coming.excesses.size):
        return left
    chance, extra = coming.share * expected / (elapsed + expected), expected * coming.excesses
    spread = max((left.upper_seconds - expected) / float(ndtri(UPPER)), MIN_SCALE * expected)

    def beyond(seconds: float) -> float:
        """The probability of more seconds, less that of more than the upper limit."""
        undisturbed = float(ndtr((expected - seconds) / spread))
        disturbed = float(ndtr((expected + extra - seconds) / spread).mean())
        return (1 - chance) * undisturbed + chance * disturbed - (1 - UPPER)

    low, high = left.upper_seconds, left.upper_seconds + float(extra.max())
    if beyond(low) <= 0 or beyond(high) >= 0:
        return left
    for _ in range(24):  # to 1e-7 of what is added; scipy.optimize takes 0.16 s to import
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > 0 else (low, middle)
    return left._replace(upper_seconds=high)


def _stretched(left: float, slowdown: float, lasting: float) -> float:
    """Seconds for work that usually takes `left`, which is slowed down for the first `lasting` of them."""
    if left * slowdown <= lasting:
        return left * slowdown
    return lasting + left - lasting / slowdown
