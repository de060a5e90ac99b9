"""The newest rows of a sequence, contiguous in memory, and the median of rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

SPARE: Final = 1 / 4
"""Spare memory as a share of the rows: each row is moved four times at most."""
MIN_ROOM: Final = 256


def median(rows: npt.ArrayLike) -> Any:
    """The median of numbers, one or more, or of each column of rows.

    Numpy's imports masked arrays when it is first called: 10 ms beside the ranks.
    """
    ordered = np.sort(rows, axis=0)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


class BoundedArray:
    """The newest `max_rows` rows that were appended.

    >>> rows = BoundedArray(3, np.int64)
    >>> for number in range(5):
    ...     rows.append(np.array([number]))
    >>> rows.newest().tolist(), rows.newest(2).tolist()
    ([2, 3, 4], [3, 4])
    """

    def __init__(self, max_rows: int, dtype: npt.DTypeLike) -> None:
        self._max_rows, self._dtype = max_rows, np.dtype(dtype)
        # Bytes are moved ten times as fast as fields.
        self._rows: npt.NDArray[np.void] = np.empty(0, (np.void, self._dtype.itemsize))
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Append rows. Invalidates what `newest` has returned."""
        rows = rows[-self._max_rows :]
        self._begin += max(len(self) + len(rows) - self._max_rows, 0)
        if self._end + len(rows) > len(self._rows):
            self._move(len(self) + len(rows))
        self._rows[self._end : self._end + len(rows)] = rows.view(self._rows.dtype)
        self._end += len(rows)

    def newest(self, max_rows: int | None = None) -> npt.NDArray[Any]:
        """A view of the last rows, valid until the next `append`."""
        begin = self._begin if max_rows is None else max(self._begin, self._end - max_rows)
        return self._rows[begin : self._end].view(self._dtype)

    def clear(self) -> None:
        """Drop all rows."""
        self._begin = self._end = 0

    def _move(self, needed: int) -> None:
        kept = self._rows[self._begin : self._end]
        room = min(max(2 * needed, MIN_ROOM), max(needed, int(self._max_rows * (1 + SPARE))))
        if room != len(self._rows):
            self._rows = np.empty(room, self._rows.dtype)
        self._rows[: len(kept)] = kept
        self._begin, self._end = 0, len(kept)
