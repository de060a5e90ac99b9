"""The end of a regime: where ADWIN cuts."""

from __future__ import annotations

import numpy as np
from river.drift import ADWIN

from barograph_modeler.bands import regime
from barograph_modeler.bands.regime import BLOCK, DELTA, LevelChange


class Published:
    """river's public class in the place of the detector that it wraps."""

    def __init__(self) -> None:
        self._adwin = ADWIN(delta=DELTA, clock=1, min_window_length=5, grace_period=10)
        self.cuts, self.has_cut = 0, False

    def update(self, value: float) -> bool:
        self._adwin.update(value)
        self.has_cut = bool(self._adwin.drift_detected)
        self.cuts += self.has_cut
        return self.has_cut


def series(seed: int) -> np.ndarray:
    """Levels that last for 10 to 200 blocks each, and change by 2 to 30 %: some by too little for a new regime."""
    rng = np.random.default_rng(seed)
    levels = np.exp(np.cumsum(rng.choice([-1, 1], 12) * rng.uniform(0.02, 0.3, 12)))
    blocks = np.repeat(levels, rng.integers(10, 200, 12))
    return np.repeat(blocks, BLOCK) * rng.lognormal(0, 0.05, blocks.size * BLOCK)


def changes(values: np.ndarray) -> list[int]:
    """Where the regimes of a series end."""
    found: list[int] = []
    while (at := LevelChange().find(values)) is not None:
        found.append(at)
        values = values[at:]
    return found


def test_regimes_end_where_rivers_public_class_says(monkeypatch):
    found = {seed: changes(series(seed)) for seed in range(20)}
    made: list[Published] = []

    def kept() -> Published:
        """The detector that has cut goes on: the public class makes its window anew at its next update."""
        if not (made and made[-1].has_cut):
            made.append(Published())
        return made[-1]

    monkeypatch.setattr(regime, "_adwin", kept)
    assert {seed: changes(series(seed)) for seed in found} == found
    regimes = sum(map(len, found.values()))
    assert 50 < regimes < sum(one.cuts for one in made), "expected also cuts that end no regime"
