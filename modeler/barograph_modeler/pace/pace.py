"""The pace of a workload: mean interval per class over healthy runs, and the spread of runs and windows about it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple, Self, TypeAlias, TypeVar

import msgspec
import numpy as np

from barograph_modeler.maxima.ratio import log_ratio
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.pace.packed import PackedRun
from barograph_modeler.pace.progress import ProgressProfile
from barograph_modeler.pace.windows import RunPace, Window

MINIMUM_SHARE: Final = 0.5
"""Least share of a window's seconds in classes with a known mean for the window to count."""

TRUSTED_WINDOWS: Final = 5
"""Windows that a class must have taken in the history for its mean to hold for any number of intervals."""
MAX_REPEATS: Final = 2
"""The mean of a class that has taken less holds for so many times the intervals that it was learned from."""
MAX_RESIDUALS: Final = 512
MIN_KIND: Final = 0.1
"""Share of the windows of one kind, from which on there are several."""
MIN_APART: Final = 1.5
"""How many times as long windows of another kind take."""
MIN_EXPLAINED: Final = 0.7
"""Share of the variance of logarithms that is between two kinds: it is less where few windows are disturbed."""
MAX_BETWEEN: Final = 0.03
"""Share of the windows that are in the middle third between the means of two kinds: 0.21 for normal noise, 0.17 where a
program changes evenly, 0.14 for exponential noise."""
MIN_KINDS_RUNS: Final = 2
MIN_KINDS_WINDOWS: Final = 40
"""Fewer of noise may happen to have none between."""
MAX_CLASSES: Final = 1024
"""Classes kept, those with the most time, so that the means fit one text value of the log."""
_NO_LIMITS: Final[Mapping[int, int]] = {}
_AtLeastZero: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
T = TypeVar("T")


class PaceRatio(NamedTuple):
    """A window relative to a pace, over the classes with a known mean.

    log: logarithm of actual over expected seconds; NaN without known classes. share: of the window's seconds in known
    classes, 0 to 1. The seconds are those of known classes.
    """

    log: float
    share: float
    actual_seconds: float
    expected_seconds: float


class Kinds(NamedTuple):
    """Windows of two kinds. share: of those that take longer. ratio: how many times as long."""

    share: float
    ratio: float


@dataclass(frozen=True, eq=False)
class Pace:
    """The pace of healthy runs of one workload.

    runs, windows: numbers fitted to. spread: standard deviation between runs of the logarithm of their pace, NaN below
    2 runs. means: class id -> mean seconds. residuals: ascending log ratios of windows to the pace of their run, at
    most MAX_RESIDUALS. progress: None if the runs have too few points in common. limits: class id -> intervals of a run
    for which its mean holds, for classes that took less than TRUSTED_WINDOWS in the history.
    """

    runs: int
    windows: int
    window_seconds: float
    spread: float
    means: Mapping[int, float]
    residuals: Floats
    progress: ProgressProfile | None = None
    limits: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a row of the table `paces`. Raises ValueError for malformed texts."""
        return cls(
            runs=int(row["runs"]),
            windows=int(row["windows"]),
            window_seconds=float(row["window_seconds"]),
            spread=float(row["spread"]),
            means=_decoded(row, "means", dict[int, _AtLeastZero], "a JSON object of class ids and seconds"),
            residuals=np.sort(_decoded(row, "residuals", list[float], "a JSON array of finite numbers")),
            progress=ProgressProfile.from_text(str(row["progress"])),
            limits=_decoded(row, "limits", dict[int, _Count], "a JSON object of class ids and counts"),
        )

    def columns(self) -> dict[str, Any]:
        """The inverse of `from_row`: means to 9 digits, residuals to 6."""
        return {
            "runs": self.runs,
            "windows": self.windows,
            "window_seconds": self.window_seconds,
            "spread": self.spread,
            "means": _text({class_id: float(f"{mean:.9g}") for class_id, mean in self.means.items()}),
            "residuals": _text([float(f"{one:.6g}") for one in self.residuals.tolist()]),
            "progress": self.progress.text() if self.progress is not None else "",
            "limits": _text(self.limits),
        }

    def log_ratio(self, window: Window) -> PaceRatio:
        """Compare a window: its `log` is above 0 if it is slower than expected."""
        return _compare(window.counts, window.seconds, self.means, self.limits)

    def kinds(self) -> Kinds | None:
        """The two kinds of windows that healthy runs have, though their intervals are of the same classes, or None.

        The best of all divisions of the sorted residuals in two: with shares p and q and means m and n, it has the
        largest variance p q (m - n)^2 between them. Noise has windows between the two, and kinds have not.
        """
        values = self.residuals
        if self.runs < MIN_KINDS_RUNS or values.size < MIN_KINDS_WINDOWS:
            return None
        at = np.arange(1, values.size)
        at = at[np.minimum(at, values.size - at) >= MIN_KIND * values.size]
        sums = np.cumsum(values)
        means = sums[at - 1] / at
        apart = (sums[-1] - sums[at - 1]) / (values.size - at) - means
        between = at * (values.size - at) / values.size**2 * apart**2
        best = int(between.argmax())
        explained = between[best] >= MIN_EXPLAINED * values.var()
        middle = np.searchsorted(values, means[best] + apart[best] * np.array([1 / 3, 2 / 3]))
        if not explained or np.diff(middle)[0] > MAX_BETWEEN * values.size or apart[best] < math.log(MIN_APART):
            return None
        return Kinds(1 - int(at[best]) / values.size, math.exp(float(apart[best])))


def _decoded(row: Mapping[str, Any], name: str, kind: type[T], expected: str) -> T:
    """A column of a row from JSON. Raises ValueError."""
    try:
        return msgspec.json.decode(str(row[name]), type=kind)
    except msgspec.MsgspecError:
        raise ValueError(f"{name} are {str(row[name])[:140]!r}, expected {expected}") from None


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def fit_pace(paces: Sequence[RunPace | PackedRun]) -> Pace:
    """Fit the pace of a workload to its healthy runs.

    Each run is compared with the class means of the *other* runs, as a future run will be; classes that no other run
    has, or of which it has more intervals than their mean holds for, are left out on both sides. With L_r the log ratio
    of run r and R_rw that of its window w,

        spread    = (n - 1) / n sqrt(sum L_r**2 / (n - 1))
        residuals = log R_rw - L_r, pooled

    L_r is 0 in expectation, hence no mean is subtracted. For n runs of equal length it is n / (n - 1) times the run's
    deviation from the mean of all; the factor (n - 1) / n makes spread the sample standard deviation.
    Runs without a window, or without classes in common with the others, do not count. The means are over all runs.
    A single run is compared with itself, which gives residuals and no spread.
    Raises ValueError without runs, and for runs with windows of different lengths.
    """
    runs = [one.packed() for one in paces]
    lengths = {run.window_seconds for run in runs}
    if len(lengths) != 1:
        raise ValueError(f"window lengths of {len(runs)} runs are {sorted(lengths)}, expected one length for all")
    (window_seconds,) = lengths
    enough = TRUSTED_WINDOWS * window_seconds
    counts: Counter[int] = Counter()
    seconds: dict[int, float] = {}
    sums = [(run.counts, run.seconds) for run in runs]
    for of_run, times in sums:
        counts.update(of_run)
        for class_id, total in times.items():
            seconds[class_id] = seconds.get(class_id, 0.0) + total

    effects: list[float] = []
    residuals: list[Floats] = []
    for run, (of_run, times) in zip(runs, sums, strict=True):
        # The difference may round to below 0 if the other intervals of a class took no time.
        rest = {c: (counts[c] - n, max(0.0, seconds[c] - times[c])) for c, n in of_run.items() if counts[c] > n}
        others = {c: took / m for c, (m, took) in rest.items() if MAX_REPEATS * m >= of_run[c] or took >= enough}
        if len(runs) == 1:
            others = {c: seconds[c] / n for c, n in counts.items()}
        whole = _compare(of_run, times, others)
        if not (whole.share >= MINIMUM_SHARE and math.isfinite(whole.log)):
            continue
        effects.append(whole.log)
        logs, shares = run.windows.ratios(others)
        residuals.append(logs[(shares >= MINIMUM_SHARE) & np.isfinite(logs)] - whole.log)

    n = len(effects)
    kept = sorted(seconds, key=lambda c: (-seconds[c], c))[:MAX_CLASSES]
    return Pace(
        runs=n or int(any(run.windows.number for run in runs)),
        windows=sum(run.windows.number for run in runs),
        window_seconds=window_seconds,
        spread=(n - 1) / n * math.sqrt(sum(e * e for e in effects) / (n - 1)) if n >= 2 else math.nan,
        means={c: seconds[c] / counts[c] for c in kept},
        residuals=_thin(np.sort(np.concatenate([np.empty(0), *residuals]))),
        limits={c: MAX_REPEATS * counts[c] for c in kept if seconds[c] < enough},
    )


def _compare(
    counts: Mapping[int, int],
    seconds: Mapping[int, float],
    means: Mapping[int, float],
    limits: Mapping[int, int] = _NO_LIMITS,
) -> PaceRatio:
    actual = expected = 0.0
    for class_id, count in counts.items():
        if (mean := means.get(class_id)) is not None and count <= limits.get(class_id, count):
            actual += seconds[class_id]
            expected += count * mean
    total = sum(seconds.values())
    log = log_ratio(actual, expected)
    return PaceRatio(log, actual / total if total > 0 else 0.0, actual, expected)


def _thin(ascending: Floats) -> Floats:
    if ascending.size <= MAX_RESIDUALS:
        return ascending
    # Both extremes are kept, so that a healthy job's slowest windows do not exceed all residuals.
    return ascending[np.linspace(0, ascending.size - 1, MAX_RESIDUALS).round().astype(np.intp)]
