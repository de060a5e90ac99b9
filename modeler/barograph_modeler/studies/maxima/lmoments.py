"""Sample L-moments: location, scale and shape of a sample from linear combinations of its sorted values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats, base_and_span, check_samples


class LMoments(NamedTuple):
    """mean: l1, in the unit of the sample. scale: l2 >= 0, the same. ratios: t3, t4, ... of shape (count, order - 2).

    The ratios lie between -1 and 1; they are NaN where the sample is constant.
    """

    mean: Floats
    scale: Floats
    ratios: Floats


def l_moments(samples: npt.ArrayLike, order: int = 4) -> LMoments:
    """Unbiased sample L-moments and their ratios: Hosking (1990), JRSS B 52(1), equations 3.1 and 3.2.

    samples: (count, n), one sample per row, n >= order, finite, left as they are. order: highest moment, at least 2.
    Raises ValueError otherwise.
    """
    if order < 2:
        raise ValueError(f"order is {order}, expected at least 2")
    x = np.sort(check_samples(samples, order), axis=1)
    n = x.shape[1]
    base, span = base_and_span(x)
    y = (x - base[:, None]) / np.where(span > 0, span, 1.0)[:, None]
    rank = np.arange(n, dtype=np.float64)
    weight = np.ones(n)
    pwms = [y.mean(axis=1)]
    for r in range(1, order):
        weight = weight * (rank - r + 1) / (n - r)
        pwms.append(y @ weight / n)
    moments = [sum(_legendre(r, j) * pwms[j] for j in range(r + 1)) for r in range(order)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = [np.where(span > 0, moment / moments[1], np.nan) for moment in moments[2:]]
    stacked = np.stack(ratios, axis=1) if ratios else np.empty((len(x), 0))
    return LMoments(base + span * moments[0], span * moments[1], stacked)


def _legendre(r: int, j: int) -> int:
    """Coefficient of u**j in the shifted Legendre polynomial of degree r."""
    sign = -1 if (r - j) % 2 else 1
    return sign * math.comb(r, j) * math.comb(r + j, j)
