"""The pace of a workload: how fast its healthy runs go, window by window, and how far they spread."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
from scipy.special import stdtrit

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.pace.windows import RunPace, Window

MINIMUM_RUNS: Final = 3
MINIMUM_SHARE: Final = 0.5
"""A window counts where at least this share of its seconds is of classes with a known mean."""

MAX_RESIDUALS: Final = 512
MAX_CLASSES: Final = 1024
"""A pace keeps the classes that take most of the time, so that its means fit one text value of the log."""


class PaceRatio(NamedTuple):
    """A window against a pace, over the classes whose mean is known.

    log: logarithm of actual over expected seconds (NaN where nothing is known). share: of the window's seconds that
    are of known classes, 0 to 1. The seconds are those of known classes.
    """

    log: float
    share: float
    actual_seconds: float
    expected_seconds: float


@dataclass(frozen=True, eq=False)
class Pace:
    """How fast healthy runs of one workload go.

    runs, windows: how many it was learned from. spread: standard deviation between runs of the logarithm of their
    pace (NaN below 2 runs). means: class id -> mean seconds. residuals: ascending log ratios of windows to the pace
    of their own run, at most MAX_RESIDUALS.
    """

    runs: int
    windows: int
    window_seconds: float
    spread: float
    means: Mapping[int, float]
    residuals: Floats

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """A pace as a row of the table `paces` holds it. Raises ValueError for texts that are not what they must be."""
        return cls(
            runs=int(row["runs"]),
            windows=int(row["windows"]),
            window_seconds=float(row["window_seconds"]),
            spread=float(row["spread"]),
            means=means_of_text(row["means"]),
            residuals=residuals_of_text(row["residuals"]),
        )

    @property
    def usable(self) -> bool:
        """False while there are too few runs to judge another one by."""
        return self.runs >= MINIMUM_RUNS

    def tolerance(self, margin: float, alpha: float) -> float:
        """How much slower than the mean, as a logarithm, a healthy run may be: exceeded by a share alpha of them.

        The upper prediction limit of Student's t for one more run, t(runs - 1, 1 - alpha) spread sqrt(1 + 1 / runs),
        but at least log(1 + margin): a slowdown of up to the margin (0.05 is 5 %) does not matter to anybody.
        Raises ValueError below 2 runs, for a negative margin and unless 0 < alpha < 1.
        """
        if self.runs < 2:
            raise ValueError(f"pace has {self.runs} runs, expected at least 2 for a tolerance")
        if not (margin >= 0 and math.isfinite(margin)):
            raise ValueError(f"margin is {margin}, expected a finite number of at least 0")
        if not 0 < alpha < 1:
            raise ValueError(f"alpha is {alpha}, expected a number between 0 and 1, both excluded")
        reach = float(stdtrit(self.runs - 1, 1 - alpha)) * self.spread * math.sqrt(1 + 1 / self.runs)
        return max(math.log1p(margin), reach)

    def log_ratio(self, window: Window) -> PaceRatio:
        """How much slower (> 0) or faster (< 0) than expected a window was."""
        return _compare(window.counts, window.seconds, self.means)

    def means_text(self) -> str:
        """The means as a JSON object, class ids as decimal strings, seconds to 9 digits."""
        return json.dumps({str(c): float(f"{m:.9g}") for c, m in self.means.items()}, separators=(",", ":"))

    def residuals_text(self) -> str:
        """The residuals as a JSON array, to 6 digits."""
        return json.dumps([float(f"{r:.6g}") for r in self.residuals.tolist()], separators=(",", ":"))


def means_of_text(text: str) -> dict[int, float]:
    """Read what Pace.means_text wrote. Raises ValueError for anything else."""
    try:
        means = {int(class_id): float(mean) for class_id, mean in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"means are {text[:140]!r}, expected a JSON object of class ids and seconds") from None
    if any(not (math.isfinite(mean) and mean >= 0) for mean in means.values()):
        raise ValueError(f"means are {text[:140]!r}, expected finite seconds of at least 0")
    return means


def residuals_of_text(text: str) -> Floats:
    """Read what Pace.residuals_text wrote, sorted. Raises ValueError for anything else."""
    try:
        residuals = np.sort(np.array(json.loads(text), dtype=np.float64))
    except (ValueError, TypeError):
        residuals = np.array(np.nan)
    if residuals.ndim != 1 or not np.isfinite(residuals).all():
        raise ValueError(f"residuals are {text[:140]!r}, expected a JSON array of finite numbers")
    return residuals


def fit_pace(runs: Sequence[RunPace]) -> Pace:
    """Learn the pace of a workload from its healthy runs.

    Each run is judged by the class means of the *other* runs, as a future run will be; classes that no other run has
    are left out on both sides. With L_r the log ratio of run r and R_rw that of its window w,

        spread    = (n - 1) / n sqrt(sum L_r**2 / (n - 1))
        residuals = log R_rw - L_r, pooled

    L_r is 0 in expectation, hence no mean is subtracted. For n runs of equal length it is n / (n - 1) times the run's
    distance from the mean of all, which the factor undoes: spread is then the sample standard deviation.
    Runs without a window, or without classes in common with the others, do not count. The means are over all runs.
    A lone run is compared with itself: that gives residuals, and no spread.
    Raises ValueError for no runs at all and for runs cut into windows of different length.
    """
    lengths = {run.window_seconds for run in runs}
    if len(lengths) != 1:
        raise ValueError(f"window lengths of {len(runs)} runs are {sorted(lengths)}, expected one length for all")
    counts: Counter[int] = Counter()
    seconds: dict[int, float] = {}
    for run in runs:
        counts.update(run.counts)
        for class_id, total in run.seconds.items():
            seconds[class_id] = seconds.get(class_id, 0.0) + total

    effects: list[float] = []
    residuals: list[float] = []
    for run in runs:
        # Rounding may leave a hair below 0 of a class whose other intervals took no time.
        others = {
            c: max(0.0, seconds[c] - run.seconds[c]) / (counts[c] - n) for c, n in run.counts.items() if counts[c] > n
        }
        if len(runs) == 1:
            others = {c: seconds[c] / n for c, n in counts.items()}
        whole = _compare(run.counts, run.seconds, others)
        if not (whole.share >= MINIMUM_SHARE and math.isfinite(whole.log)):
            continue
        effects.append(whole.log)
        for window in run.windows:
            ratio = _compare(window.counts, window.seconds, others)
            if ratio.share >= MINIMUM_SHARE and math.isfinite(ratio.log):
                residuals.append(ratio.log - whole.log)

    n = len(effects)
    kept = sorted(seconds, key=lambda c: (-seconds[c], c))[:MAX_CLASSES]
    return Pace(
        runs=n or int(any(run.windows for run in runs)),
        windows=sum(len(run.windows) for run in runs),
        window_seconds=lengths.pop(),
        spread=(n - 1) / n * math.sqrt(sum(e * e for e in effects) / (n - 1)) if n >= 2 else math.nan,
        means={c: seconds[c] / counts[c] for c in kept},
        residuals=_thin(np.sort(np.array(residuals, dtype=np.float64))),
    )


def _compare(counts: Mapping[int, int], seconds: Mapping[int, float], means: Mapping[int, float]) -> PaceRatio:
    actual = expected = 0.0
    for class_id, count in counts.items():
        if (mean := means.get(class_id)) is not None:
            actual += seconds[class_id]
            expected += count * mean
    total = sum(seconds.values())
    log = math.log(actual / expected) if actual > 0 and expected > 0 else math.nan
    return PaceRatio(log, actual / total if total > 0 else 0.0, actual, expected)


def _thin(ascending: Floats) -> Floats:
    if ascending.size <= MAX_RESIDUALS:
        return ascending
    # Both extremes stay: without the largest ones a healthy job's slowest windows would look unheard of.
    return ascending[np.linspace(0, ascending.size - 1, MAX_RESIDUALS).round().astype(np.intp)]
