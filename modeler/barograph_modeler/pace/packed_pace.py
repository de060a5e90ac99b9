"""A pace as bytes, a fifth of what its arrays, lists and dictionaries take: needed at runs of its workload only."""

from __future__ import annotations

import math
import zlib
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from barograph_modeler.pace.pace import Pace
from barograph_modeler.pace.packed import NONE, PackedArray
from barograph_modeler.pace.progress import SLOPES, UNKNOWN, DelaysOfRuns, ProgressProfile
from barograph_modeler.pace.remaining import PaceSpread


class _Progress(NamedTuple):
    classes: PackedArray
    points: PackedArray
    seconds: PackedArray
    runs: int
    history: PackedArray
    own: PackedArray
    spread: PaceSpread = UNKNOWN
    tail_seconds: float = math.nan


class PackedPace(NamedTuple):
    """The fields of Pace and ProgressProfile; means exactly, other times and logarithms to 7 digits, as rows to 6."""

    runs: int
    windows: int
    window_seconds: float
    spread: float
    classes: PackedArray
    means: PackedArray
    residuals: PackedArray
    progress: _Progress | None
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
            None if pace.progress is None else _pack(pace.progress),
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
            None if one.progress is None else _unpack(one.progress),
            dict(zip(one.limited.array.tolist(), one.limits.array.tolist(), strict=True)),
        )


def _pack(profile: ProgressProfile) -> _Progress:
    return _Progress(
        PackedArray.of_counts(sorted(profile.classes)),
        PackedArray.of_counts([int(point) for point in profile.points]),
        PackedArray.of_seconds(profile.seconds.tolist()),
        profile.runs,
        PackedArray.of_seconds(list(chain.from_iterable(profile.delays.history))),
        PackedArray.of_seconds(list(chain.from_iterable(profile.delays.own))),
        profile.spread,
        profile.tail_seconds,
    )


def _unpack(packed: _Progress) -> ProgressProfile:
    return ProgressProfile(
        frozenset(packed.classes.array.tolist()),
        packed.points.array.astype(np.float64),
        packed.seconds.array.astype(np.float64),
        packed.runs,
        DelaysOfRuns(
            *(one.array.reshape(len(SLOPES), -1).astype(np.float64).tolist() for one in (packed.history, packed.own))
        ),
        packed.spread,
        packed.tail_seconds,
    )
