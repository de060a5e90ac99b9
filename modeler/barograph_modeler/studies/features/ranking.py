"""Which of two runs will be faster: often all that is asked."""

from __future__ import annotations

import numpy as np

from barograph_modeler.maxima.sample import Floats


def rank_accuracy(predicted: Floats, observed: Floats) -> float:
    """Share of the pairs of runs that are predicted in their observed order (Sun et al. 2020, equations 9 and 10).

    Two arrays of one length of at least 2. A pair that is equal in either counts as wrong, as the paper has it.
    """
    n = len(observed)
    if n < 2 or len(predicted) != n:
        raise ValueError(f"{len(predicted)} predictions for {n} runs, expected as many, and at least 2")
    right = sum(
        int(np.count_nonzero(np.sign(predicted[i] - predicted[i + 1 :]) * np.sign(observed[i] - observed[i + 1 :]) > 0))
        for i in range(n - 1)
    )
    return 2 * right / (n * (n - 1))
