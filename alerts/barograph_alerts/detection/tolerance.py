"""The deviation of a healthy run from its history, also for a history of one run."""

from __future__ import annotations

import math
from typing import Final

from scipy.special import stdtrit

from barograph_modeler.pace.pace import Pace

PRIOR_SPREAD: Final = 0.03
PRIOR_RUNS: Final = 4
"""The prior of the spread between runs: 3 %, with the weight of four degrees of freedom.

In 350 repeated configurations of public studies (docs/engineer/alerts.md) half have a spread below 1.4 %, a quarter
above 4 %, a tenth above 11 %.
"""


def tolerance(pace: Pace, margin: float, alpha: float) -> float:
    """The log ratio of a run to the mean that a share alpha of healthy runs exceeds.

    The upper prediction limit of Student's t for one more run, with the posterior spread under a scaled inverse
    chi-square prior (Gelman et al., Bayesian Data Analysis, section 2.6):

        s**2 = (PRIOR_RUNS PRIOR_SPREAD**2 + (n - 1) spread**2) / (PRIOR_RUNS + n - 1)
        t(PRIOR_RUNS + n - 1, 1 - alpha) s sqrt(1 + 1 / n)

    but at least log(1 + margin). Raises ValueError for a pace of no runs.
    """
    if pace.runs < 1:
        raise ValueError(f"pace has {pace.runs} runs, expected at least 1 for a tolerance")
    freedom = PRIOR_RUNS + pace.runs - 1
    own = (pace.runs - 1) * pace.spread**2 if pace.runs > 1 else 0.0
    spread = math.sqrt((PRIOR_RUNS * PRIOR_SPREAD**2 + own) / freedom)
    reach = float(stdtrit(freedom, 1 - alpha)) * spread * math.sqrt(1 + 1 / pace.runs)
    return max(math.log1p(margin), reach)
