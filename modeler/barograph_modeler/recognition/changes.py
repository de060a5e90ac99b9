"""Whether work is slower or faster since something changed: the build, MPI, kernel, firmware, or type of node."""

from __future__ import annotations

import json
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
"""Bound on the probability that a change is stated where nothing became slower or faster."""
MARGIN: Final = 0.02
"""Smaller changes are not stated."""
FEWEST: Final = 5
"""Runs before, and since."""
RUNS: Final = 64
SETTINGS: Final = 12
"""Settings kept per group, the latest: a group may run on several types of node before and after a change."""
GROUPS: Final = 10_000
JOBS: Final = 20_000
CORRELATED: Final = 8
"""Runs from which on their correlation is estimated."""
MOST_CORRELATION: Final = 0.9
DIGITS: Final = 6
"""Of a build that is named."""
PLATFORM: Final = ("mpi", "kernel", "firmware", "node")
_WORDS: Final = {"build": "build", "mpi": "MPI", "kernel": "kernel", "firmware": "firmware"}


class RunSetting(NamedTuple):
    """What a run was made of and ran on; each empty if unknown. build: digest of the executable."""

    build: str = ""
    mpi: str = ""
    kernel: str = ""
    firmware: str = ""
    node: str = ""

    @classmethod
    def of_row(cls, build: str, platform: str) -> RunSetting:
        """Of a row of `works`. Raises ValueError unless `platform` is JSON as sidecars write it, or empty."""
        told = json.loads(platform or "{}")
        if not isinstance(told, dict) or not all(isinstance(text, str) for text in told.values()):
            raise ValueError(f"platform: {platform[:80]!r}, expected a JSON object of texts")
        return cls(build, *(told.get(name, "") for name in PLATFORM))

    def differences(self, other: RunSetting) -> tuple[str, ...]:
        """Names of what is known to differ."""
        return tuple(
            name for name, mine, its in zip(self._fields, self, other, strict=True) if mine and its and mine != its
        )

    def or_else(self, other: RunSetting) -> RunSetting:
        """This one, and from another what is not known of this."""
        return RunSetting(*(mine or its for mine, its in zip(self, other, strict=True)))


class Change(NamedTuple):
    """Runtimes in a setting over those in another, with 95 % limits. differ: in what they differ."""

    before: RunSetting
    since: RunSetting
    differ: tuple[str, ...]
    ratio: float
    lower: float
    upper: float
    runs_before: int
    runs_since: int

    @property
    def what(self) -> str:
        """What has changed, in words.

        >>> one, other = RunSetting("a1b2", kernel="6.1"), RunSetting("3f2a1c00", kernel="6.2")
        >>> Change(one, other, ("build", "kernel"), 1.08, 1.05, 1.11, 23, 5).what
        'since build 3f2a1c and kernel 6.2'
        """
        texts = self.since._replace(build=self.since.build[:DIGITS])._asdict()
        changed = " and ".join(f"{_WORDS[name]} {texts[name]}" for name in self.differ if name in _WORDS)
        here = f"on {self.since.node}" if "node" in self.differ else ""
        there = f"than on {self.before.node}" if here and not changed else ""
        return " ".join(text for text in (f"since {changed}" if changed else "", here, there) if text)

    def __str__(self) -> str:
        """In words.

        >>> str(Change(RunSetting("a1b2c3d4"), RunSetting("3f2a1c00"), ("build",), 1.08, 1.05, 1.11, 23, 5))
        '8 % slower since build 3f2a1c (23 runs before, 5 since; 95 %: 5 % slower to 11 % slower)'
        >>> str(Change(RunSetting(node="X, 8 cores"), RunSetting(node="Y, 9 cores"), ("node",), 0.9, 0.88, 0.92, 23, 5))
        '10 % faster on Y, 9 cores than on X, 8 cores (23 runs there, 5 here; 95 %: 12 % faster to 8 % faster)'
        """
        there, here = ("there", "here") if self.differ == ("node",) else ("before", "since")
        runs = f"{self.runs_before} runs {there}, {self.runs_since} {here}"
        return f"{_percent(self.ratio)} {self.what} ({runs}; 95 %: {_percent(self.lower)} to {_percent(self.upper)})"


def change(before: Sequence[float], since: Sequence[float]) -> tuple[float, float, float] | None:
    """The difference of two samples of log runtimes, with 95 % limits; None unless one can be stated.

    Student's t for the difference of means, with the prior of the spread between runs. Neighbouring runs are alike
    where machines drift: with r the correlation of each run with the next, before the change, the variance of the means
    is (1 + r) / (1 - r) times as large. It is tested after each run n since the change, at the level
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


class GroupRuns:
    """The runs of one group by setting, settings in the order in which they came."""

    def __init__(self) -> None:
        self.runs: OrderedDict[RunSetting, deque[float]] = OrderedDict()
        """Log runtimes."""
        self.stated: dict[RunSetting, Change] = {}
        """The change to each setting for which one was stated, in that order."""

    def add(self, setting: RunSetting, seconds: float) -> Change | None:
        """Add a run; a change that it proves, if it is new."""
        setting = self._known_as(setting)
        since = self.runs.setdefault(setting, deque(maxlen=RUNS))
        self._forget()
        since.append(math.log(seconds))
        before = self._before(setting)
        if before is None or len(since) == RUNS:
            return None  # in full queues the oldest are replaced, which is another test
        if (found := change(self.runs[before], since)) is None:
            return None
        is_new = setting not in self.stated
        differ = setting.differences(before)
        ratio, lower, upper = map(math.exp, found)
        self.stated[setting] = Change(before, setting, differ, ratio, lower, upper, len(self.runs[before]), len(since))
        return self.stated[setting] if is_new else None

    def extend(self, other: GroupRuns) -> None:
        """Add the runs of another group."""
        for setting, logs in other.runs.items():
            self.runs.setdefault(self._known_as(setting), deque(maxlen=RUNS)).extend(logs)
        self._forget()

    def _forget(self) -> None:
        while len(self.runs) > SETTINGS:
            self.stated.pop(self.runs.popitem(last=False)[0], None)

    def _known_as(self, setting: RunSetting) -> RunSetting:
        """The setting under which runs are kept: the latest that is not known to differ, with what is known of both."""
        for other in reversed(self.runs):
            if not setting.differences(other):
                if (whole := other.or_else(setting)) != other:
                    self.runs = OrderedDict((whole if one == other else one, logs) for one, logs in self.runs.items())
                    self.stated = {whole if one == other else one: said for one, said in self.stated.items()}
                return whole
        return setting

    def _before(self, setting: RunSetting) -> RunSetting | None:
        """What a setting is compared with: an earlier one, on the same type of node, that differs in least."""
        earlier = list(self.runs)[: list(self.runs).index(setting)]

        def distance(one: RunSetting) -> tuple[bool, int]:
            differ = setting.differences(one)
            return "node" in differ, len(differ)

        return min((one for one in reversed(earlier) if len(self.runs[one]) >= FEWEST), key=distance, default=None)


class ChangeWatch(Stateful):
    """The settings of all groups of like work: a regression watch over every program and every upgrade.

    Call `read` with rows of `works`, and `end` for each run that ended well.
    """

    STATE = ("_settings", "_groups")

    def __init__(self) -> None:
        self._settings: OrderedDict[str, RunSetting] = OrderedDict()
        """Of each running job."""
        self._groups: OrderedDict[str, GroupRuns] = OrderedDict()

    def read(self, table: str, columns: Mapping[str, Column]) -> None:
        """Read rows of one table."""
        if table != "works":
            return
        for job, build, platform in zip(columns["job"], columns["executable"], columns["platform"], strict=True):
            try:
                setting = RunSetting.of_row(build, platform)
            except ValueError:
                continue  # a row that no sidecar has written
            if any(setting):
                lru.store(self._settings, job, setting, JOBS)

    def end(self, job: str, group: str, seconds: float, now: float) -> list[Output]:
        """A run of a group has ended after so many seconds; the row of `events` of a change that it proves."""
        setting = self._settings.pop(job, None)
        if setting is None or not seconds > 0 or not math.isfinite(seconds):
            return []
        found = lru.get(self._groups, group, GroupRuns, GROUPS).add(setting, seconds)
        if found is None:
            return []
        row = {"source": group, "kind": "runtime-changed", "rows": found.runs_since, "detail": str(found), "time": now}
        return [Output("events", 1, row)]

    def merge(self, gone: str, into: str) -> None:
        """The runs of one group are those of another from now on."""
        if (other := self._groups.pop(gone, None)) is not None:
            lru.get(self._groups, into, GroupRuns, GROUPS).extend(other)

    def changes(self) -> Iterator[tuple[str, Change]]:
        """Each group with the latest change that was stated, the group that had a run last first."""
        for name, group in reversed(self._groups.items()):
            if group.stated:
                yield name, list(group.stated.values())[-1]


def _percent(ratio: float) -> str:
    return f"{abs(ratio - 1):.0%}".replace("%", " %") + (" slower" if ratio > 1 else " faster")
