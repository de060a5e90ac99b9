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
from barograph_modeler.maxima.sample import Floats, base_and_span, check_sample, check_samples

REPLICAS: Final = 1000
"""Efron (1987) asks for 1,000 or more for the limits of an interval, 200 for a standard error."""

CHUNK: Final = 1 << 15
"""Random numbers drawn at once: they fit the cache and bound the memory."""


def pwm_replicas(sample: npt.ArrayLike, replicas: int = REPLICAS, *, seed: int) -> Gevs:
    """Fits by probability-weighted moments of `replicas` resamples of the sample.

    sample: at least MINIMUM_SAMPLES finite values in any order; not modified. replicas: at least 1. Equal values and
    seed give equal fits. Raises ValueError for other arguments.
    """
    x, base, span, gaps = _prepare(check_sample(sample, MINIMUM_SAMPLES)[None], replicas)
    n = x.shape[1]
    sums = np.concatenate([_gap_sums(_gap_weights(counts), gaps[0]) for counts in resample_counts(n, replicas, seed)])
    return gevs_of_sums(n, base, span, (sums[:, 0], sums[:, 1], sums[:, 2]))


def pairs_of_replicas(samples: npt.ArrayLike, replicas: int = REPLICAS, *, seed: int) -> list[tuple[Gevs, Gevs]]:
    """Fits by probability-weighted moments and by moments of the same resamples, for many samples of one size.

    samples: one per row; all have the same resamples, drawn once. replicas, seed, errors: as for pwm_replicas, to whose
    fits the first of each pair are equal.
    """
    x, base, span, gaps = _prepare(check_samples(samples, MINIMUM_SAMPLES), replicas)
    count, n = x.shape
    # Centred on the median, so that a resample without the outliers keeps its digits.
    centre = x[:, n // 2]
    z = (x - centre[:, None]) / span[:, None]
    matrices = np.stack([z, z**2, z**3], axis=2)
    sums, powers = np.empty((2, count, replicas, 3))
    done = 0
    for counts in resample_counts(n, replicas, seed):
        weights, factors = _gap_weights(counts), counts.astype(np.float64)
        rows = slice(done, done := done + len(counts))
        # Row by row: the sums of one sample do not depend on the others to the last digit.
        for row in range(count):
            sums[row, rows] = _gap_sums(weights, gaps[row])
            powers[row, rows] = factors @ matrices[row] / n
    base, span, centre = (np.repeat(one, replicas) for one in (base, span, centre))
    first, second, third = sums.reshape(-1, 3).T
    pwm = gevs_of_sums(n, base, span, (first, second, third))
    mom = gevs_of_powers(n, centre, span, powers.reshape(-1, 3))
    return list(zip(_parts(pwm, replicas), _parts(mom, replicas), strict=True))


def resample_counts(n: int, replicas: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Counts of each of n values in n draws with replacement: chunks of (rows, n), one row per replica."""
    rng = np.random.default_rng(seed)
    rows = max(1, CHUNK // n)
    for start in range(0, replicas, rows):
        count = min(rows, replicas - start)
        draws = rng.integers(0, n, size=(count, n), dtype=np.uint16 if n <= 1 << 16 else np.int64)
        slots = draws + np.arange(0, count * n, n)[:, None]
        yield np.bincount(slots.ravel(), minlength=count * n).reshape(count, n)


def _prepare(samples: Floats, replicas: int) -> tuple[Floats, Floats, Floats, Floats]:
    """The samples sorted, their smallest values, their ranges or 1, and their gaps in units of the range."""
    if replicas < 1:
        raise ValueError(f"replicas are {replicas}, expected at least 1")
    x = np.sort(samples, axis=1)
    base, span = base_and_span(x)
    span = np.where(span > 0, span, 1.0)
    return x, base, span, np.diff(x, axis=1) / span[:, None]


def _gap_weights(counts: npt.NDArray[np.int64]) -> Floats:
    """The weights of gaps in the three sums of each replica: those of the first sum, of the second, of the third."""
    n = counts.shape[1]
    below = np.cumsum(counts, axis=1)[:, :-1].astype(np.float64)  # a cumulative sum of integers is 8 times faster
    above = n - below
    both = below * above
    return np.concatenate([above, both, both * above])


def _gap_sums(weights: Floats, gaps: Floats) -> Floats:
    return (weights @ gaps).reshape(3, -1).T


def _parts(gevs: Gevs, size: int) -> list[Gevs]:
    """Each `size` of many GEVs."""
    return [
        Gevs(*parts)
        for parts in zip(*(one.reshape(-1, size) for one in (gevs.shape, gevs.location, gevs.scale)), strict=True)
    ]
