"""A validated sample of runs: rows of features, and runtimes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats

FEWEST: int = 10
"""Fewest runs for an estimator."""


@dataclass(frozen=True)
class Sample:
    """n runs. names: m features. values: (n, m), finite. seconds: n runtimes, each finite and above 0.

    Raises ValueError with the run, counted from 0, the feature and the value.
    """

    names: tuple[str, ...]
    values: Floats
    seconds: Floats

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.seconds), len(self.names)):
            raise ValueError(
                f"values are {self.values.shape}, expected {len(self.seconds)} runs by {len(self.names)} features"
            )
        check_features(self.names, self.values)
        if (bad := ~(np.isfinite(self.seconds) & (self.seconds > 0))).any():
            run = int(np.argmax(bad))
            raise ValueError(f"run {run} took {self.seconds[run]} seconds, expected a finite time above 0")

    def __len__(self) -> int:
        return len(self.seconds)

    def select(self, rows: npt.NDArray[np.intp]) -> Sample:
        """A subset of the runs."""
        return Sample(self.names, self.values[rows], self.seconds[rows])


def check_features(names: tuple[str, ...], values: Floats) -> None:
    """Raises ValueError for a value that is not finite, with its run and feature."""
    if not (finite := np.isfinite(values)).all():
        run, feature = np.unravel_index(int(np.argmin(finite)), values.shape)
        raise ValueError(f"run {run}: feature {names[feature]!r} is {values[run, feature]}, expected a finite number")
