"""A pace as bytes, a fifth of what its arrays, lists and dictionaries take: needed at runs of its workload only."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import msgspec
import numpy as np

from barograph_modeler.pace.pace import Pace
from barograph_modeler.pace.packed import NONE, PackedArray
from barograph_modeler.pace.progress import ProgressProfile


class PackedPace(NamedTuple):
    """The fields of Pace; means exactly, residuals to 7 digits, and the text of its progress."""

    runs: int
    windows: int
    window_seconds: float
    spread: float
    classes: PackedArray
    means: PackedArray
    residuals: PackedArray
    progress: str
    limited: PackedArray = NONE
    limits: PackedArray = NONE

    @classmethod
    def encode(cls, pace: Pace) -> bytes:
        """For `decode`."""
        packed = cls(
            pace.runs,
            pace.windows,
            pace.window_seconds,
            pace.spread,
            PackedArray.of_counts(list(pace.means)),
            PackedArray("d", np.array(list(pace.means.values()), np.float64).tobytes()),
            PackedArray.of_seconds(pace.residuals.tolist()),
            "" if pace.progress is None else pace.progress.text(),
            PackedArray.of_counts(list(pace.limits)),
            PackedArray.of_counts(list(pace.limits.values())),
        )
        return zlib.compress(msgspec.msgpack.encode(packed), 1)

    @classmethod
    def decode(cls, data: bytes) -> Pace:
        """The inverse of `encode`."""
        one = msgspec.msgpack.decode(zlib.decompress(data), type=cls)
        return Pace(
            one.runs,
            one.windows,
            one.window_seconds,
            one.spread,
            dict(zip(one.classes.array.tolist(), one.means.array.tolist(), strict=True)),
            one.residuals.array.astype(np.float64),
            ProgressProfile.from_text(one.progress),
            dict(zip(one.limited.array.tolist(), one.limits.array.tolist(), strict=True)),
        )
