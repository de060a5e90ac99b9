"""Whether work is slower or faster since a program was built anew."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.runner import Output
from barograph_modeler.maxima.runtime import PRIOR_RUNS, prior_spread
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.state import lru
from barograph_modeler.state.stateful import Stateful

ALPHA: Final = 0.01
"""Bound on the probability that a change is stated of a build that changes nothing."""
MARGIN: Final = 0.02
"""Smaller changes are not stated."""
FEWEST: Final = 5
"""Runs before, and since."""
RUNS: Final = 64
BUILDS: Final = 4
GROUPS: Final = 10_000
JOBS: Final = 20_000
CORRELATED: Final = 8
"""Runs from which on their correlation is estimated."""
MOST_CORRELATION: Final = 0.9
DIGITS: Final = 6


class Change(NamedTuple):
    """Runtimes since a build over those before, with 95 % limits. before, since: digests of the builds."""

    before: str
    since: str
    ratio: float
    lower: float
    upper: float
    runs_before: int
    runs_since: int

    def __str__(self) -> str:
        """In words.

        >>> str(Change("a1b2c3d4", "3f2a1c00", 1.08, 1.05, 1.11, 23, 5))
        '8 % slower since build 3f2a1c (23 runs before, 5 since; 95 %: 5 % slower to 11 % slower)'
        """
        runs = f"{self.runs_before} runs before, {self.runs_since} since"
        limits = f"95 %: {_percent(self.lower)} to {_percent(self.upper)}"
        return f"{_percent(self.ratio)} since build {self.since[:DIGITS]} ({runs}; {limits})"


def change(before: Sequence[float], since: Sequence[float]) -> tuple[float, float, float] | None:
    """The difference of two samples of log runtimes, with 95 % limits; None unless one can be stated.

    Student's t for the difference of means, with the prior of the spread between runs. Neighbouring runs are alike
    where machines drift: with r the correlation of each run with the next, before the build, the variance of the means
    is (1 + r) / (1 - r) times as large. It is tested after each run n since the build, at the level
    ALPHA / (n (n + 1)), which adds up to ALPHA at most.
    """
    if min(len(before), len(since)) < FEWEST:
        return None
    x, y = np.asarray(before), np.asarray(since)
    freedom = PRIOR_RUNS + len(x) + len(y) - 2
    prior = prior_spread(math.exp(float(x.mean())))
    inner = float(((x - x.mean()) ** 2).sum() + ((y - y.mean()) ** 2).sum())
    variance = (PRIOR_RUNS * prior**2 + inner) / freedom * (1 / len(x) + 1 / len(y))
    error = math.sqrt(variance * _inflation(x))
    shift = float(y.mean() - x.mean())
    if abs(shift) < math.log1p(MARGIN):
        return None
    n = len(y)
    if 2 * stdtr(freedom, -abs(shift) / error) > ALPHA / (n * (n + 1)):
        return None
    reach = float(stdtrit(freedom, 0.975)) * error
    return shift, shift - reach, shift + reach


def _inflation(values: Floats) -> float:
    """How many times larger the variance of the mean is because of correlation."""
    centred = values - values.mean()
    total = float((centred**2).sum())
    if len(values) < CORRELATED or not total > 0:
        return 1.0
    r = min(max(float((centred[1:] * centred[:-1]).sum()) / total, 0.0), MOST_CORRELATION)
    return (1 + r) / (1 - r)


class BuildRuns:
    """The runs of one group by build, builds in the order in which they came."""

    def __init__(self) -> None:
        self.runs: OrderedDict[str, deque[float]] = OrderedDict()
        """Log runtimes."""
        self.change: Change | None = None
        """The latest that was stated."""

    def add(self, build: str, seconds: float) -> Change | None:
        """Add a run; a change that it proves, if it is new."""
        if build not in self.runs:
            self.runs[build] = deque(maxlen=RUNS)
            while len(self.runs) > BUILDS:
                self.runs.popitem(last=False)
        self.runs[build].append(math.log(seconds))
        earlier = [name for name in self.runs if name != build][: list(self.runs).index(build)]
        if not earlier or len(self.runs[build]) == RUNS:
            return None  # in full queues the oldest are replaced, which is another test
        before, since = self.runs[earlier[-1]], self.runs[build]
        if (found := change(before, since)) is None:
            return None
        told = self.change is not None and self.change.since == build
        ratio, lower, upper = map(math.exp, found)
        self.change = Change(earlier[-1], build, ratio, lower, upper, len(before), len(since))
        return None if told else self.change


class BuildWatch(Stateful):
    """The builds of all groups of like work: a regression watch over every program that is rebuilt.

    Call `read` with rows of `works`, and `end` for each run that ended well.
    """

    STATE = ("_builds", "_groups")

    def __init__(self) -> None:
        self._builds: OrderedDict[str, str] = OrderedDict()
        """The build of each running job."""
        self._groups: OrderedDict[str, BuildRuns] = OrderedDict()

    def read(self, table: str, columns: Mapping[str, Column]) -> None:
        """Read rows of one table."""
        if table == "works":
            for job, build in zip(columns["job"], columns["executable"], strict=True):
                if build:
                    lru.store(self._builds, job, build, JOBS)

    def end(self, job: str, group: str, seconds: float, now: float) -> list[Output]:
        """A run of a group has ended after so many seconds; the row of `events` of a change that it proves."""
        build = self._builds.pop(job, "")
        if not build or not seconds > 0 or not math.isfinite(seconds):
            return []
        found = lru.get(self._groups, group, BuildRuns, GROUPS).add(build, seconds)
        if found is None:
            return []
        row = {"source": group, "kind": "build-changed", "rows": found.runs_since, "detail": str(found), "at": now}
        return [Output("events", 1, row)]

    def merge(self, gone: str, into: str) -> None:
        """The runs of one group are those of another from now on."""
        if (other := self._groups.pop(gone, None)) is None:
            return
        group = lru.get(self._groups, into, BuildRuns, GROUPS)
        for build, logs in other.runs.items():
            group.runs.setdefault(build, deque(maxlen=RUNS)).extend(logs)
        while len(group.runs) > BUILDS:
            group.runs.popitem(last=False)

    def changes(self) -> Iterator[tuple[str, Change]]:
        """Each group with the latest change that was stated, the group that had a run last first."""
        for name, group in reversed(self._groups.items()):
            if group.change is not None:
                yield name, group.change


def _percent(ratio: float) -> str:
    return f"{abs(ratio - 1):.0%}".replace("%", " %") + (" slower" if ratio > 1 else " faster")
