"""Steps down a gradient, scaled for each parameter: Adam (Kingma and Ba 2015, ICLR)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats

BATCH: Final = 8
"""Gradients per step."""
RATE: Final = 0.003
MIN_RATE: Final = 0.1
"""As a share of RATE, which falls with the square root of steps, so that what changes is still learned."""
RATE_STEPS: Final = 2000
MOMENTUM: Final = 0.9
SQUARES: Final = 0.995


class Adam:
    """Changes `values` in place, once in BATCH gradients. values: one dimension."""

    def __init__(self, values: Floats) -> None:
        self._values = values
        self._gradient, self._mean, self._square = (np.zeros_like(values) for _ in range(3))
        self._count = 0

    def add(self, gradient: Floats) -> None:
        """Add the gradient of one loss."""
        self._gradient += gradient
        self._count += 1
        if self._count % BATCH == 0:
            self._step(self._count // BATCH)
            self._gradient[:] = 0

    def _step(self, number: int) -> None:
        rate = RATE * max(MIN_RATE, 1 / math.sqrt(1 + number / RATE_STEPS))
        gradient = self._gradient / BATCH
        self._mean += (1 - MOMENTUM) * (gradient - self._mean)
        self._square += (1 - SQUARES) * (gradient * gradient - self._square)
        deviation = np.sqrt(self._square / (1 - SQUARES**number))
        self._values -= rate * self._mean / (1 - MOMENTUM**number) / (deviation + 1e-8)
