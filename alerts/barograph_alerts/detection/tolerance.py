"""How far a healthy run may be from the mean of its history, also where the history is one run."""

from __future__ import annotations

import math
from typing import Final

from scipy.special import stdtrit

from barograph_modeler.pace.pace import Pace

PRIOR_SPREAD: Final = 0.03
PRIOR_RUNS: Final = 4
"""What is taken for known before a second run: a spread of 3 %, worth as much as four degrees of freedom.

Of 350 repeated configurations of public studies (docs/engineer/alerts.md) half spread by less than 1.4 %, a quarter by
more than 4 %, a tenth by more than 11 %.
"""


def tolerance(pace: Pace, margin: float, alpha: float) -> float:
    """How much slower than the mean, as a logarithm, a healthy run may be: exceeded by a share alpha of them.

    The upper prediction limit of Student's t for one more run, with a spread that begins at the prior's and becomes
    the history's own (the posterior under a scaled inverse chi-square prior, Gelman et al., Bayesian Data Analysis,
    section 2.6):

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
