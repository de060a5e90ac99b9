"""A sliding window over a series, sorted."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence

from barograph_modeler.maxima.sample import Floats


class SortedWindow:
    """The newest `capacity` values; `ordered` holds them ascending.

    An update is two binary searches and two moves of at most 8 * capacity bytes: about a microsecond. A value takes 16
    bytes. capacity: at least 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}, expected at least 1")
        self.capacity = capacity
        self.ordered = array("d")
        self._ring = array("d")
        self._oldest = 0

    def arrived(self) -> array[float]:
        """The values in order of arrival, the oldest first: a copy."""
        return self._ring[self._oldest :] + self._ring[: self._oldest]

    def add(self, value: float) -> None:
        """Add a value; when full, the oldest is removed. value: not NaN, which cannot be ordered."""
        if len(self._ring) < self.capacity:
            self._ring.append(value)
        else:
            del self.ordered[bisect_left(self.ordered, self._ring[self._oldest])]
            self._ring[self._oldest] = value
            self._oldest = (self._oldest + 1) % self.capacity
        insort(self.ordered, value)

    def at(self, position: float) -> float:
        """The value at a position in ascending order, as `interpolated`."""
        return interpolated(self.ordered, position)


def interpolated(ordered: Sequence[float] | Floats, position: float) -> float:
    """The value at a position of values in ascending order, interpolated between neighbours. Needs at least 1 value.

    Position 0 is the smallest; positions outside give the smallest or the largest value.
    """
    last = len(ordered) - 1
    if position <= 0:
        return float(ordered[0])
    if position >= last:
        return float(ordered[last])
    below = int(position)
    low = float(ordered[below])
    return low + (position - below) * (float(ordered[below + 1]) - low)
