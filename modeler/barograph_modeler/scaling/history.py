"""The finished runs of one problem, to which laws and models of scaling are fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_agent.protocol.tables import MAX_RANKS
from barograph_modeler.maxima.sample import Floats

MIN_SECONDS, MAX_SECONDS = 1e-9, 1e12
"""Of a run: what is outside is no runtime of a program."""
RUNTIME: Final = f"a number from {MIN_SECONDS:g} to {MAX_SECONDS:g}"
MAX_SIZE: Final = 1e99
"""Of a number of a size; MIN is its inverse: products and ratios of such numbers are finite."""


@dataclass(frozen=True)
class Runs:
    """Runs of one problem, an application with one set of parameters on one machine. Columns of one length, above 0.

    ranks: whole numbers; of nodes if ranks are unknown. nodes: whole numbers, NaN if unknown. size: problem size in any
    unit, 1 without one; (runs,), or (runs, k) where k numbers make up the size. seconds: wall-clock time. The columns
    are read-only copies.
    """

    ranks: Floats
    nodes: Floats
    size: Floats
    seconds: Floats

    @classmethod
    def of(
        cls,
        ranks: npt.ArrayLike,
        seconds: npt.ArrayLike,
        *,
        nodes: npt.ArrayLike | None = None,
        size: npt.ArrayLike | None = None,
    ) -> Runs:
        """Validate and copy the columns. Raises ValueError with row, value and expectation.

        >>> Runs.of([1, 2, 0], [4.0, 2.1, 1.0])
        Traceback (most recent call last):
        ...
        ValueError: run 2: ranks are 0, expected a whole number from 1 to 100000000
        """
        whole = _column("ranks", ranks)
        count = whole.size
        sizes = np.ones(count) if size is None else np.array(size, dtype=np.float64)
        columns = {
            "ranks": whole,
            "nodes": np.full(count, np.nan) if nodes is None else _column("nodes", nodes),
            "size": sizes if sizes.ndim == 2 else _column("size", sizes),
            "seconds": _column("seconds", seconds),
        }
        for name, column in columns.items():
            if len(column) != count:
                raise ValueError(f"{name} has {len(column)} values, expected {count} as ranks has")
        known = ~np.isnan(columns["nodes"])
        _require("ranks are", whole, _is_count(whole), f"a whole number from 1 to {MAX_RANKS}")
        _require("nodes are", columns["nodes"], ~known | _is_count(columns["nodes"]), "a whole number above 0")
        _require("nodes are", columns["nodes"], ~known | ~(columns["nodes"] > whole), "at most the number of ranks")
        flat = columns["size"].reshape(-1)
        wanted = f"a number from {1 / MAX_SIZE:g} to {MAX_SIZE:g}"
        _require("size is", flat, (flat >= 1 / MAX_SIZE) & (flat <= MAX_SIZE), wanted, flat.size // max(count, 1))
        _require("seconds are", columns["seconds"], is_runtime(columns["seconds"]), RUNTIME)
        for column in columns.values():
            column.flags.writeable = False
        return cls(**columns)

    @classmethod
    def of_rows(
        cls, rows: Sequence[tuple[float, float, float]], sizes: Sequence[tuple[float, ...]] | None = None
    ) -> Runs:
        """Runs from rows of ranks, seconds and nodes, and their sizes; values and errors as for `of`."""
        ranks, seconds, nodes = zip(*rows, strict=True)
        return cls.of(ranks, seconds, nodes=nodes, size=sizes)

    def __len__(self) -> int:
        return self.ranks.size

    def equals(self, other: Runs) -> bool:
        """Whether these are the other's runs, in the same order."""
        names = ("ranks", "nodes", "size", "seconds")
        return all(np.array_equal(getattr(self, one), getattr(other, one), equal_nan=True) for one in names)

    @cached_property
    def scales(self) -> Floats:
        """The distinct numbers of ranks, ascending."""
        return np.unique(self.ranks)

    @property
    def sizes(self) -> Floats:
        """Sizes as (runs, k)."""
        return self.size.reshape(len(self), -1)

    def of_size(self, size: Sequence[float]) -> Runs:
        """The runs of one size; there may be none."""
        return self.select((self.sizes == np.asarray(size)).all(axis=1))

    def select(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Runs:
        """A subset of the runs."""
        return Runs(self.ranks[rows], self.nodes[rows], self.size[rows], self.seconds[rows])

    def joined(self, other: Runs) -> Runs:
        """These runs, followed by the other's."""
        columns = ((getattr(runs, name) for runs in (self, other)) for name in ("ranks", "nodes", "size", "seconds"))
        return Runs(*(np.concatenate(list(both)) for both in columns))


def _column(name: str, values: npt.ArrayLike) -> Floats:
    column = np.array(values, dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"{name} have {column.ndim} dimensions, expected 1")
    return column


def is_runtime(seconds: Floats) -> npt.NDArray[np.bool_]:
    """Whether a program may have run for so long."""
    return (seconds >= MIN_SECONDS) & (seconds <= MAX_SECONDS)


def _is_count(values: Floats) -> npt.NDArray[np.bool_]:
    count: npt.NDArray[np.bool_] = (values >= 1) & (values <= MAX_RANKS) & (values == np.floor(values))
    return count


def _require(what: str, column: Floats, good: npt.NDArray[np.bool_], wanted: str, values: int = 1) -> None:
    """values: per run."""
    if not good.all():
        at = int(np.argmin(good))
        raise ValueError(f"run {at // values}: {what} {column[at]:g}, expected {wanted}")
