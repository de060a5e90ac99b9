"""A time that is the same on any number of ranks, where it grew between two scales of which one was run once.

How much runs of one scale differ is not known there, and growth may be a bad run. The level is the constant of least
relative errors, near the smaller time, since a disturbed run is longer. Its spread is the difference of the two scales.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.special import logsumexp

from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.mixture import Mixture

SPREAD: Final = 0.05
"""Least spread of a run about the level, in log seconds."""
DRIFT: Final = 0.1
"""Spread of what the level lacks, over a factor of e in ranks beyond those that were run."""
FREEDOM: Final = 3.0


def has_unconfirmed_growth(known: Configurations) -> bool:
    """Whether the time grew between two scales, the only ones, of which one was run once."""
    return len(known) == 2 and known.log_seconds[1] > known.log_seconds[0] and known.repeats.min() < 2


def level_at(known: Configurations, ranks: float) -> Mixture:
    """Log seconds of another run on `ranks` ranks. known: two configurations of one size."""
    mean = float(logsumexp(-known.log_seconds) - logsumexp(-2 * known.log_seconds))
    distance = max(math.log(ranks / known.ranks[-1]), math.log(known.ranks[0] / ranks), 0.0)
    spread = math.hypot(SPREAD, float(np.ptp(known.log_seconds)), DRIFT * distance)
    return Mixture.single(mean, spread, FREEDOM)
