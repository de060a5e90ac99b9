"""Noise of the operating system in an interval of work, from windows of traces or synthetic ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.series import BadTable, CsvTable

WINDOW_SECONDS: Final = 0.01
"""Length of a window."""
SYNTHETIC: Final = 5000
"""Windows of a synthetic trace."""
MIN_WINDOWS: Final = 100
MICROSECONDS: Final = ("sum_us", "mean_sum_us_10ms")
"""Columns of stolen microseconds: per window, or the mean of a trace's windows."""


class Noise:
    """Seconds that the operating system takes of a rank. windows: (m,), seconds taken of each window of 10 ms."""

    def __init__(self, windows: Floats) -> None:
        self.windows = windows
        self._mean, self._spread = float(windows.mean()), float(windows.std())

    def draw(self, work: Floats, rng: np.random.Generator) -> Floats:
        """Seconds taken of intervals of `work` seconds.

        Below a window, a window is met with the probability of the share that the interval has of it. Above it, one
        window is drawn and the others are summed by their mean and variance.
        """
        windows = work / WINDOW_SECONDS
        one = self.windows[rng.integers(0, self.windows.size, work.shape)]
        one = np.where(rng.random(work.shape) < windows, one, 0.0)
        if not (windows > 1).any():
            return one
        more = np.maximum(windows - 1, 0.0)
        others = more * self._mean + np.sqrt(more) * self._spread * rng.standard_normal(work.shape)
        return one + np.maximum(others, 0.0)


def synthetic_noise(rng: np.random.Generator) -> Noise:
    """Ticks in each window and rare daemons: lognormal sums, 2 % of them ten times as long."""
    ticks = 20e-6 * np.exp(0.4 * rng.standard_normal(SYNTHETIC))
    return Noise(np.where(rng.random(SYNTHETIC) < 0.02, 10 * ticks, ticks))


def read_noise(path: Path) -> list[Noise]:
    """The traces of a CSV file, one per cell of `trace_no`. Raises BadTable and OSError.

    With a column `sum_us`, rows are windows. With `mean_sum_us_10ms`, `p99_sum_us` and `max_sum_us`, a row sums up a
    trace, and windows are drawn from a lognormal distribution with its mean and 99th percentile, cut at its largest.
    """
    table = CsvTable(path)
    kind = next((one for one in MICROSECONDS if one in table.header), None)
    if kind is None:
        raise BadTable(f"{path} has neither column {' nor '.join(MICROSECONDS)}, expected noise per window of 10 ms")
    seconds = table.numbers(kind, "microseconds, at least 0", lambda x: x >= 0) * 1e-6
    traces = np.array(table.column("trace_no"))
    if kind != MICROSECONDS[0]:
        high, most = (table.positive(name) * 1e-6 for name in ("p99_sum_us", "max_sum_us"))
        return [_summarized(*row) for row in zip(seconds.tolist(), high.tolist(), most.tolist(), strict=True)]
    found = [seconds[traces == one] for one in dict.fromkeys(traces.tolist())]
    if not (long := [Noise(one) for one in found if one.size >= MIN_WINDOWS]):
        raise BadTable(f"{path}: no trace has {MIN_WINDOWS} windows, expected one or more")
    return long


def _summarized(mean: float, high: float, most: float) -> Noise:
    """SYNTHETIC quantiles of a lognormal distribution with this mean and 99th percentile, cut at `most`."""
    z = 2.3263479
    # mean = exp(m + s^2 / 2), high = exp(m + z s): the smaller root of s^2 / 2 - z s + log(high / mean) = 0.
    ratio = np.log(max(high / mean, 1.0))
    spread = z - np.sqrt(max(z**2 - 2 * ratio, 0.0))
    levels = np.random.default_rng(0).standard_normal(SYNTHETIC)
    return Noise(np.minimum(np.exp(np.log(mean) - spread**2 / 2 + spread * levels), most))
