"""The band for the runtime of a workload's next run."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from barograph_modeler.maxima.band import LEVEL, Band, check_level
from barograph_modeler.maxima.sample import check_sample

MINIMUM_RUNS: Final = 3


def runtime_band(runtimes: npt.ArrayLike, level: float = LEVEL) -> Band | None:
    """The prediction interval for the next runtime, or None for fewer than MINIMUM_RUNS runs.

    runtimes: seconds of past runs, each finite and above 0. With m and s the mean and sample standard deviation of
    their logarithms, the limits are exp(m -+ t s sqrt(1 + 1/n)), t the (1 + level) / 2 quantile of Student's t with
    n - 1 degrees of freedom: exact where runtimes are log-normal and independent. `expected` is exp(m), the median.
    Raises ValueError for a runtime that is not finite or not above 0.
    """
    check_level(level)
    seconds = check_sample(runtimes, 0)
    if (bad := seconds <= 0).any():
        raise ValueError(f"runtime {int(np.argmax(bad))} is {seconds[bad][0]} seconds, expected more than 0")
    n = seconds.size
    if n < MINIMUM_RUNS:
        return None
    logs = np.log(seconds)
    middle = float(logs.mean())
    reach = float(stdtrit(n - 1, (1 + level) / 2)) * float(logs.std(ddof=1)) * math.sqrt(1 + 1 / n)
    return Band("log-t", n, math.exp(middle - reach), math.exp(middle), math.exp(middle + reach))
