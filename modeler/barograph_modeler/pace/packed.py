"""Runs that have ended, as arrays in bytes: a hundredth of what their windows take as dictionaries.

A workload keeps them encoded, each as one object: those of the arrays take twice as much as their data.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats

_UNSIGNED: Final = (np.dtype("u1"), np.dtype("u2"), np.dtype("u4"), np.dtype("u8"))


class PackedArray(NamedTuple):
    """A one-dimensional array. code: of its type. An object of numpy takes 112 bytes more, of 100 bytes of data."""

    code: str
    data: bytes

    @classmethod
    def of_counts(cls, values: Sequence[int]) -> Self:
        """Numbers of at least 0, in as few bytes as they fit into."""
        most = max(values, default=0)
        dtype = next(one for one in _UNSIGNED if most <= np.iinfo(one).max)
        return cls(dtype.char, np.array(values, dtype).tobytes())

    @classmethod
    def of_seconds(cls, values: Sequence[float]) -> Self:
        """Times, to 7 digits."""
        return cls("f", np.array(values, np.float32).tobytes())

    @property
    def array(self) -> npt.NDArray[Any]:
        """The array, read-only."""
        return np.frombuffer(self.data, self.code)


class PackedCounts(NamedTuple):
    """Intervals by class of consecutive parts of a run: for each part its number of classes, and for each of these the
    place among `classes` and the number of intervals."""

    classes: PackedArray
    lengths: PackedArray
    places: PackedArray
    counts: PackedArray

    @classmethod
    def of_parts(cls, parts: Sequence[Mapping[int, int]]) -> Self:
        """Of each part the intervals by class id."""
        classes = sorted(set().union(*parts))
        at = {class_id: number for number, class_id in enumerate(classes)}
        return cls(
            PackedArray.of_counts(classes),
            PackedArray.of_counts([len(part) for part in parts]),
            PackedArray.of_counts([at[class_id] for part in parts for class_id in part]),
            PackedArray.of_counts([count for part in parts for count in part.values()]),
        )

    def sums(self, values: npt.NDArray[Any]) -> Floats:
        """The sum of one value for each class of each part, by part."""
        lengths = self.lengths.array.astype(np.int64)
        return np.bincount(np.repeat(np.arange(len(lengths)), lengths), values, len(lengths)).astype(np.float64)

    def total(self) -> Counter[int]:
        """Intervals of all parts by class id."""
        classes, places = self.classes.array, self.places.array
        sums = np.bincount(places, self.counts.array, len(classes))
        return Counter({class_id: int(count) for class_id, count in zip(classes.tolist(), sums.tolist(), strict=True)})

    def number(self, classes: Mapping[int, int]) -> npt.NDArray[np.int64]:
        """Intervals of these classes, by part."""
        kept = np.array([class_id in classes for class_id in self.classes.array.tolist()], bool)
        return self.sums(np.where(kept[self.places.array], self.counts.array, 0)).astype(np.int64)


class PackedWindows(NamedTuple):
    """Windows of a run. seconds: in the order of `counts.places`."""

    counts: PackedCounts
    seconds: PackedArray

    @property
    def number(self) -> int:
        """How many."""
        return len(self.counts.lengths.array)

    def ratios(self, means: Mapping[int, float]) -> tuple[Floats, Floats]:
        """Of each window the logarithm of its seconds over the expected ones, and the share of its seconds that counts.

        Over the classes with a known mean; the logarithm is NaN where either is 0.
        """
        places, seconds = self.counts.places.array, self.seconds.array.astype(np.float64)
        known = np.array([means.get(class_id, np.nan) for class_id in self.counts.classes.array.tolist()])[places]
        counts = ~np.isnan(known)
        actual = self.counts.sums(np.where(counts, seconds, 0.0))
        expected = self.counts.sums(np.where(counts, self.counts.counts.array * known, 0.0))
        total = self.counts.sums(seconds)
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.where((actual > 0) & (expected > 0), np.log(actual) - np.log(expected), np.nan)
            share = np.where(total > 0, actual / total, 0.0)
        return log, share


class PackedRun(NamedTuple):
    """Sums of one run by class, and of its windows."""

    window_seconds: float
    classes: PackedArray
    totals: PackedArray
    durations: tuple[float, ...]
    windows: PackedWindows

    @property
    def counts(self) -> Counter[int]:
        """Intervals by class id, over all windows."""
        return Counter(dict(zip(self.classes.array.tolist(), self.totals.array.tolist(), strict=True)))

    @property
    def seconds(self) -> dict[int, float]:
        """Durations by class id, over all windows."""
        return dict(zip(self.classes.array.tolist(), self.durations, strict=True))

    def packed(self) -> Self:
        """This one."""
        return self

    def encoded(self) -> bytes:
        """For `decoded`."""
        return zlib.compress(msgspec.msgpack.encode(self), 1)

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """The inverse of `encoded`."""
        return msgspec.msgpack.decode(zlib.decompress(data), type=cls)


class PackedTimeline(NamedTuple):
    """How many intervals of each class had ended when. elapsed: seconds at the end of each segment. tail_seconds: from
    the last of them to the end of the run, NaN if unknown."""

    segments: PackedCounts
    elapsed: PackedArray
    tail_seconds: float = math.nan

    def counts(self) -> Counter[int]:
        """Intervals of the whole run by class id."""
        return self.segments.total()

    def packed(self) -> Self:
        """This one."""
        return self

    def encoded(self) -> bytes:
        """For `decoded`."""
        return zlib.compress(msgspec.msgpack.encode(self), 1)

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """The inverse of `encoded`."""
        return msgspec.msgpack.decode(zlib.decompress(data), type=cls)
