"""The tail probability at which limits are set, so that the share of jobs killed is as asked.

A limit's tail probability is a quantile of those of recent runtimes (`maxima/tails.py`). The share asked of that
quantile is steered by the integrated error (Gibbs and Candes 2021, NeurIPS 34; Angelopoulos, Candes and Tibshirani
2023, NeurIPS 36), which holds it on logs whose character changes.

Jobs that a user submits before the outcome of any of them is known tend to exceed their limits together, and steering
follows too late. Such a batch has a smaller share, so that no more of it are expected to exceed their limits than of a
batch that the promise can bear.
"""

from __future__ import annotations

import math
from typing import Final

GAIN: Final = 0.1
"""Relative change of the share per job killed too many or too few."""
MAX_RESPONSE: Final = 60.0
"""Jobs killed too many at which limits are as long as they get: the share asked for is 1/400 of the risk."""
MAX_TOO_MANY: Final = 1000.0
"""Jobs killed too many that are made up for: a user may submit a thousand like jobs before the first has ended."""
MAX_TOO_FEW: Final = 25.0
"""Likewise too few."""
BATCH_SHARE: Final = 0.2
"""Of the jobs that may be killed so far, as many may be those of one batch."""
FEW_JOBS: Final = 7500
"""Jobs up to which a batch is as large as at so many: a smaller one costs more than it holds."""


class KillShare:
    """Steers the share of jobs killed at one risk. risk: between 0 and 1."""

    def __init__(self, risk: float) -> None:
        if not 0 < risk < 1:
            raise ValueError(f"risk is {risk}, expected a number between 0 and 1")
        self.risk = risk
        self._error = 0.0
        self._learned = 0

    def share(self, batch: int = 0) -> float:
        """What to ask of RecentTails for a job. batch: jobs of its user before it whose outcomes are as unknown."""
        share = min(self.risk * math.exp(-GAIN * min(self._error, MAX_RESPONSE)), 0.9)
        borne = BATCH_SHARE * self.risk * max(self._learned, FEW_JOBS)
        return share * min(borne / (batch + 1), 1.0)

    def learn(self, killed: bool) -> None:
        """An ended job ran longer than its limit, or not."""
        self._learned += 1
        self._error = min(max(self._error + killed - self.risk, -MAX_TOO_FEW), MAX_TOO_MANY)
