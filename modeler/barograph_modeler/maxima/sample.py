"""Validation of samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def check_sample(sample: npt.ArrayLike, minimum: int) -> Floats:
    """The sample as a one-dimensional float array. Raises ValueError for too few values and for NaN or infinity."""
    x = np.asarray(sample, dtype=np.float64)
    if x.ndim != 1:
        raise ValueError(f"sample has {x.ndim} dimensions, expected 1")
    if x.size < minimum:
        raise ValueError(f"sample has {x.size} values, expected at least {minimum}")
    if not (finite := np.isfinite(x)).all():
        raise ValueError(f"sample value {int(np.argmin(finite))} is {x[~finite][0]}, expected finite numbers")
    return x


def check_samples(samples: npt.ArrayLike, minimum: int) -> Floats:
    """Samples of one size, one per row, as a two-dimensional float array.

    Raises ValueError for rows of fewer than `minimum` values and for NaN or infinity, with its row and column.
    """
    x = np.asarray(samples, dtype=np.float64)
    if x.ndim != 2:
        raise ValueError(f"samples have {x.ndim} dimensions, expected 2: one sample per row")
    if x.shape[1] < minimum:
        raise ValueError(f"samples have {x.shape[1]} values, expected at least {minimum}")
    if not (finite := np.isfinite(x)).all():
        row, column = np.unravel_index(int(np.argmin(finite)), x.shape)
        raise ValueError(f"sample {row} value {column} is {x[row, column]}, expected finite numbers")
    return x


def base_and_span(ascending: Floats) -> tuple[Floats, Floats]:
    """Smallest value and range of each row of sorted values. Raises ValueError if a range overflows."""
    base = ascending[:, 0]
    with np.errstate(over="ignore"):
        span = ascending[:, -1] - base
    if not (finite := np.isfinite(span)).all():
        row = int(np.argmin(finite))
        raise ValueError(
            f"sample {row} ranges from {base[row]} to {ascending[row, -1]}, expected a range below 1.8e308"
        )
    return base, span
