"""The deviation of a healthy run from its history, also for a history of one run."""

from __future__ import annotations

import math

from scipy.special import stdtrit

from barograph_modeler.maxima.runtime import PRIOR_RUNS, posterior_spread
from barograph_modeler.pace.pace import Pace


def tolerance(pace: Pace, margin: float, alpha: float) -> float:
    """The log ratio of a run to the mean that a share alpha of healthy runs exceeds.

    The upper prediction limit of Student's t for one more run, with the posterior spread s of `posterior_spread`,

        t(PRIOR_RUNS + n - 1, 1 - alpha) s sqrt(1 + 1 / n)

    but at least log(1 + margin). Raises ValueError for a pace of no runs.
    """
    if pace.runs < 1:
        raise ValueError(f"pace has {pace.runs} runs, expected at least 1 for a tolerance")
    freedom = PRIOR_RUNS + pace.runs - 1
    spread = posterior_spread(pace.spread, pace.runs)
    reach = float(stdtrit(freedom, 1 - alpha)) * spread * math.sqrt(1 + 1 / pace.runs)
    return max(math.log1p(margin), reach)
