"""How often runs were disturbed, and how much longer they took: of an application, and of the whole site."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from typing import Final

import numpy as np

from barograph_modeler.pace.remaining import ComingDisturbances
from barograph_modeler.state import lru

MAX_APPLICATIONS: Final = 10_000
MAX_EXCESSES: Final = 64
"""Newest disturbed runs whose excess is kept, of an application and of the site."""
MIN_OWN: Final = 8
"""Disturbed runs of an application from which its own excesses are used, and not those of the site."""
SITE_RUNS: Final = 20
"""Runs as which the rate of the site counts beside those of an application."""
NO_RUNS: Final = 1.0
"""Healthy runs that are added to those of the site: one disturbed run is no rate of 1."""


class _Ended:
    __slots__ = ("disturbed", "excesses", "runs")

    def __init__(self) -> None:
        self.runs = self.disturbed = 0
        self.excesses: deque[float] = deque(maxlen=MAX_EXCESSES)

    def add(self, excess: float) -> None:
        self.runs += 1
        if excess > 0:
            self.disturbed += 1
            self.excesses.append(excess)


class DisturbanceHistory:
    """The excesses of ended runs. An application is the cluster and the name of a program."""

    def __init__(self) -> None:
        self._site = _Ended()
        self._applications: OrderedDict[str, _Ended] = OrderedDict()

    def add(self, application: str, excess: float) -> None:
        """Add an ended run. excess: of its time beyond the usual one, as a share of that; 0 for an undisturbed run, NaN
        if unknown: then it does not count."""
        if math.isnan(excess):
            return
        self._site.add(excess)
        lru.get(self._applications, application, _Ended, MAX_APPLICATIONS).add(excess)

    def coming(self, application: str) -> ComingDisturbances:
        """What a whole run of an application has to expect."""
        site, own = self._site, self._applications.get(application) or _Ended()
        share = site.disturbed / (site.runs + NO_RUNS)
        excesses = own.excesses if len(own.excesses) >= MIN_OWN else site.excesses
        return ComingDisturbances(
            (own.disturbed + SITE_RUNS * share) / (own.runs + SITE_RUNS), np.array(excesses, np.float64)
        )
