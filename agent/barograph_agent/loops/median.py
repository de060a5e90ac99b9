"""The median without numpy's, which imports masked arrays when it is first asked: 10 ms beside the ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def median(rows: npt.ArrayLike) -> Any:
    """The median of numbers, one or more, or of each column of rows."""
    ordered = np.sort(rows, axis=0)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
