"""A bounded memory of an endless series: a uniform sample of all values seen, their count and their mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.gev import Floats, check_sample


class Reservoir:
    """Uniform reservoir sampling: after n values each of them is held with probability min(1, capacity / n).

    Algorithm R (Vitter 1985, ACM TOMS 11(1)): value i, counted from 0, takes slot floor(u (i + 1)) if there is one.
    Same seed, same series: same content, however the series was cut into calls. capacity: at least 1.
    """

    def __init__(self, capacity: int, seed: int) -> None:
        if capacity < 1:
            raise ValueError(f"reservoir capacity is {capacity}, expected at least 1")
        self.capacity = capacity
        self._rng = np.random.default_rng(seed)
        self._held: Floats = np.empty(capacity)
        self._seen = 0
        self._mean = 0.0

    @property
    def count(self) -> int:
        """How many values were seen, held or not."""
        return self._seen

    @property
    def mean(self) -> float:
        """The mean of all values seen; NaN before the first."""
        return self._mean if self._seen else float("nan")

    @property
    def values(self) -> Floats:
        """The held values in ascending order, min(count, capacity) of them: a copy."""
        return np.sort(self._held[: min(self._seen, self.capacity)])

    def extend(self, values: npt.ArrayLike) -> None:
        """See a one-dimensional batch of finite values. Raises ValueError for others and then has seen none of them."""
        x = check_sample(values, 0)
        if not x.size:
            return
        slots = np.arange(self._seen, self._seen + x.size, dtype=np.int64)
        late = slots >= self.capacity
        slots[late] = (self._rng.random(int(late.sum())) * (slots[late] + 1)).astype(np.int64)
        held = slots < self.capacity
        self._held[slots[held]] = x[held]  # of several values for one slot numpy keeps the last, as one by one would
        self._seen += x.size
        self._mean += (float(x.mean()) - self._mean) * (x.size / self._seen)
