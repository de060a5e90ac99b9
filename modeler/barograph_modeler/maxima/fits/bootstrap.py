"""Bootstrap replicas of the fits, without sorting each resample.

A resample of a sorted sample is a count per order statistic. Cumulative counts are the numbers of resampled values
below each gap between neighbours, and the probability-weighted moments are weighted sums over the gaps (module pwm).
The cost of a replica is that of its random numbers and a few passes over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.distribution import Gevs
from barograph_modeler.maxima.fits.moments import gevs_of_powers
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES, gevs_of_sums
from barograph_modeler.maxima.sample import Floats, base_and_span, check_sample

REPLICAS: Final = 1000
"""Efron (1987) asks for 1,000 or more for the limits of an interval, 200 for a standard error."""

CHUNK: Final = 1 << 15
"""Random numbers drawn at once: they fit the cache and bound the memory."""


def pwm_replicas(sample: npt.ArrayLike, replicas: int = REPLICAS, *, seed: int) -> Gevs:
    """Fits by probability-weighted moments of `replicas` resamples of the sample.

    sample: at least MINIMUM_SAMPLES finite values in any order; not modified. replicas: at least 1. Equal values and
    seed give equal fits. Raises ValueError for other arguments.
    """
    x, base, span, gaps = _prepare(sample, replicas)
    sums = np.concatenate([_gap_sums(counts, gaps) for counts in resample_counts(x.size, replicas, seed)])
    return gevs_of_sums(x.size, base, span, (sums[:, 0], sums[:, 1], sums[:, 2]))


def paired_replicas(sample: npt.ArrayLike, replicas: int = REPLICAS, *, seed: int) -> tuple[Gevs, Gevs]:
    """Fits by probability-weighted moments and by moments of the same resamples; arguments as for pwm_replicas.

    The first equal those of pwm_replicas for the same seed.
    """
    x, base, span, gaps = _prepare(sample, replicas)
    # Centred on the median, so that a resample without the outliers keeps its digits.
    centre = float(x[x.size // 2])
    z = (x - centre) / span
    matrix = np.stack([z, z**2, z**3], axis=1)
    sums, powers = [], []
    for counts in resample_counts(x.size, replicas, seed):
        sums.append(_gap_sums(counts, gaps))
        powers.append(counts.astype(np.float64) @ matrix / x.size)
    first = np.concatenate(sums)
    pwm = gevs_of_sums(x.size, base, span, (first[:, 0], first[:, 1], first[:, 2]))
    return pwm, gevs_of_powers(x.size, centre, span, np.concatenate(powers))


def resample_counts(n: int, replicas: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Counts of each of n values in n draws with replacement: chunks of (rows, n), one row per replica."""
    rng = np.random.default_rng(seed)
    rows = max(1, CHUNK // n)
    for start in range(0, replicas, rows):
        count = min(rows, replicas - start)
        draws = rng.integers(0, n, size=(count, n), dtype=np.uint16 if n <= 1 << 16 else np.int64)
        slots = draws + np.arange(0, count * n, n)[:, None]
        yield np.bincount(slots.ravel(), minlength=count * n).reshape(count, n)


def _prepare(sample: npt.ArrayLike, replicas: int) -> tuple[Floats, float, float, Floats]:
    """The sorted sample, its smallest value, its range or 1, and its gaps in units of the range."""
    if replicas < 1:
        raise ValueError(f"replicas are {replicas}, expected at least 1")
    x = np.sort(check_sample(sample, MINIMUM_SAMPLES))
    base, span = (float(v[0]) for v in base_and_span(x[None]))
    return x, base, span or 1.0, np.diff(x) / (span or 1.0)


def _gap_sums(counts: npt.NDArray[np.int64], gaps: Floats) -> Floats:
    n = counts.shape[1]
    below = np.cumsum(counts, axis=1)[:, :-1].astype(np.float64)  # a cumulative sum of integers is 8 times faster
    above = n - below
    below *= above
    first, second = above @ gaps, below @ gaps
    below *= above
    return np.stack([first, second, below @ gaps], axis=1)
