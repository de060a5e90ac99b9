"""The grid of shapes of runtime over ranks: work that is divided among ranks, and overhead that is not.

    T(p) = w (work(p)**blend + (overhead p**growth)**blend) ** (1 / blend)
    work(p) = p**-fall (1 + contention p / (p + half))

fall: 1 if work is divided evenly; above 1 if it begins to fit caches, below 1 if it is divided badly; 0 if each rank
has its own, as in a weak series.
growth: 0 for a floor, such as a serial part or a latency; above 0 for overhead that grows with the ranks. 0.15 is
about as slow as a logarithm over the scales of a history.
contention, half: ranks that share memory bandwidth slow each other down, by up to a factor of 1 + contention on a full
node; half of contention is reached at `half` ranks. 0 in most shapes.
blend: 1 if overhead is added to work, 3 if it overlaps with work, below 1 if each prolongs the other.
overhead: its time on one rank over the work w; absent in some shapes. With fall = blend = 1 and growth = contention = 0
the shape is Amdahl's law s + w/p.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats

Rows: TypeAlias = slice | npt.NDArray[np.intp]
"""Some of the shapes."""
FALLS: Final = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)
GROWTHS: Final = (0.0, 0.15, 0.5)
BLENDS: Final = (0.7, 1.0, 3.0)
CONTENTIONS: Final = tuple(product((0.5, 1.0, 2.0), (2.0, 8.0, 32.0)))
LEVEL_GROWTHS: Final = (0.15, 0.5, 1.0)
LEVEL_CONTENTIONS: Final = tuple(product((0.1, 0.3, 1.0), (2.0, 8.0, 32.0)))
"""Of shapes with fall 0: such a time grows while ranks fill a node, or first neighbours appear, and is level then."""
STEP: Final = 0.5
"""Step between overheads, in natural logarithms: neighbours differ by a factor of 1.65."""
LEAST: Final = -16.0
MOST: Final = 4.0
NONE: Final = -60.0

# The prior, as odds against the plain shape, chosen on public runs of several applications (docs/engineer/scaling.md).
FALL_SPREAD: Final = 0.15
GROWING: Final = 0.2
CONTENDED: Final = 0.1
UNUSUAL_BLEND: Final = 0.5
NO_OVERHEAD: Final = 0.6
LEVEL: Final = 1.0
"""Odds of fall 0."""
TURN: Final = 1.0
"""Prior mean of the scale where overhead equals work, relative to the largest known scale, in log ranks."""
TURN_SPREAD: Final = 2.0


class Shapes(NamedTuple):
    """Columns of one length, a row per shape. overhead: its logarithm. kind: index of all parameters but overhead."""

    fall: Floats
    growth: Floats
    blend: Floats
    contention: Floats
    half: Floats
    overhead: Floats
    kind: npt.NDArray[np.intp]


def _shapes() -> Shapes:
    levels = [*np.arange(LEAST, MOST + STEP / 2, STEP).tolist()]
    even, contended = (0.0, 1.0), tuple((1.0, 0.0, 1.0, *one) for one in CONTENTIONS)
    level = tuple((0.0, 0.0, 1.0, *one) for one in LEVEL_CONTENTIONS)
    kinds = [*((*kind, *even) for kind in product(FALLS, GROWTHS, BLENDS)), *contended]
    kinds += [(0.0, growth, 1.0, *even) for growth in LEVEL_GROWTHS]
    bare = [*((fall, 0.0, 1.0, *even) for fall in (*FALLS, 0.0)), *contended, *level]
    rows = [(*kind, u, i) for i, kind in enumerate(kinds) for u in levels]
    rows += [(*kind, NONE, i + len(kinds)) for i, kind in enumerate(bare)]
    fall, growth, blend, contention, half, overhead, kind = np.array(rows).T
    return Shapes(fall, growth, blend, contention, half, overhead, kind.astype(np.intp))


SHAPES: Final = _shapes()
KINDS: Final = int(SHAPES.kind.max()) + 1
LEVELS: Final = int((MOST - LEAST) / STEP) + 1
"""Levels of overhead."""
NO_OVERHEAD_AT_ALL: Final = SHAPES.overhead == NONE


@lru_cache(maxsize=128)
def log_times(ranks: float) -> Floats:
    """The logarithm of T / w on `ranks` ranks, one per shape. Cached for recently used numbers of ranks."""
    times = log_times_of_size(ranks, 0.0)
    times.flags.writeable = False
    return times


def log_times_of_size(ranks: float, load: float, chosen: Rows = slice(None)) -> Floats:
    """As `log_times`, with the overhead multiplied by exp(load). chosen: the shapes."""
    fall, growth, blend, contention, half, overheads, _ = (column[chosen] for column in SHAPES)
    x = float(np.log(ranks))
    shared = np.log1p(contention * ranks / (ranks + half))
    work, overhead = shared - fall * x, overheads + load + growth * x
    return np.asarray(np.logaddexp(blend * work, blend * overhead) / blend)


def log_prior(largest_ranks: float | None) -> Floats:
    """Log prior of each shape, given the largest scale of the runs; None for a weak series.

    `fall` has a Cauchy distribution about 1. The turn, the scale where overhead equals work, is expected near the
    largest known scale: users run up to the scale where more ranks stop paying. In a weak series there is none.
    """
    is_level = SHAPES.fall == 0
    falls = np.where(is_level, np.log(LEVEL), -np.log1p(((SHAPES.fall - 1) / FALL_SPREAD) ** 2))
    prior = falls - np.log(LEVELS)
    if largest_ranks is not None:
        turn = -SHAPES.overhead / np.where(is_level, 1.0, SHAPES.fall + SHAPES.growth)
        distance = np.abs(turn - float(np.log(largest_ranks)) - TURN)
        prior = np.where(is_level, prior, falls - distance / TURN_SPREAD)
    prior += np.where(SHAPES.growth > 0, np.log(GROWING), 0.0) + np.where(SHAPES.blend != 1, np.log(UNUSUAL_BLEND), 0.0)
    prior = np.where(NO_OVERHEAD_AT_ALL, falls + np.log(NO_OVERHEAD), prior)
    prior += np.where(SHAPES.contention > 0, np.log(CONTENDED), 0.0)
    total: Floats = prior - np.logaddexp.reduce(prior)
    return total


def weights_by_kind(chosen: npt.NDArray[np.intp], weights: Floats) -> dict[str, float]:
    """Weights of shapes, added up by the kinds shown to users, largest first."""
    without = float(weights[NO_OVERHEAD_AT_ALL[chosen]].sum())
    growing = float(weights[SHAPES.growth[chosen] > 0].sum())
    names = {"power law": without, "floor": max(0.0, 1 - without - growing), "growing overhead": growing}
    return dict(sorted(names.items(), key=lambda item: -item[1]))
