"""The newest rows of a sequence, one after the other in memory."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

SPARE: Final = 1 / 4
"""Room beside the rows that are kept, as a share of them: so each row is moved four times at most."""
MIN_ROOM: Final = 256


class Newest:
    """Up to `most` rows.

    >>> rows = Newest(3, np.int64)
    >>> for number in range(5):
    ...     rows.append(np.array([number]))
    >>> rows.newest().tolist(), rows.newest(2).tolist(), rows.dropped
    ([2, 3, 4], [3, 4], 2)
    """

    def __init__(self, most: int, dtype: npt.DTypeLike) -> None:
        self._most, self._dtype = most, np.dtype(dtype)
        # Bytes are moved ten times as fast as fields.
        self._rows: npt.NDArray[np.void] = np.empty(0, (np.void, self._dtype.itemsize))
        self._begin = self._end = 0
        self.dropped = 0
        """Rows before the first one that is kept, since the last `clear`."""

    def __len__(self) -> int:
        return self._end - self._begin

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows. What `newest` has returned before is not valid any more."""
        over = len(self) + len(rows) - self._most
        if over > 0:
            self.drop(min(over, len(self)))
            self.dropped += len(rows) - len(rows[-self._most :])
            rows = rows[-self._most :]
        if self._end + len(rows) > len(self._rows):
            self._move(len(self) + len(rows))
        self._rows[self._end : self._end + len(rows)] = rows.view(self._rows.dtype)
        self._end += len(rows)

    def newest(self, most: int | None = None) -> npt.NDArray[Any]:
        """The last rows, so many at most, until others are added."""
        begin = self._begin if most is None else max(self._begin, self._end - most)
        return self._rows[begin : self._end].view(self._dtype)

    def drop(self, number: int) -> None:
        """Forget the first ones."""
        self._begin += number
        self.dropped += number

    def clear(self) -> None:
        """Forget all."""
        self._begin = self._end = self.dropped = 0

    def _move(self, needed: int) -> None:
        kept = self._rows[self._begin : self._end]
        room = min(max(2 * needed, MIN_ROOM), max(needed, int(self._most * (1 + SPARE))))
        if room != len(self._rows):
            self._rows = np.empty(room, self._rows.dtype)
        self._rows[: len(kept)] = kept
        self._begin, self._end = 0, len(kept)
