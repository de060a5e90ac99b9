"""The runs to measure for a model of weak scaling: Mokrov (2020), section 4.2.

Configurations keep the work per process constant: T_A(N) / p = const, equation (1), at evenly spaced numbers of
processes up to a maximum. Both are rounded: p must fill a process grid, N is whole and often a multiple of a block. The
paper finds this rounding the main source of error (Graph500, section 5.4), so the plan states the resulting change of
the work per process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from barograph_agent.protocol.tables import MAX_RANKS
from barograph_lab.studies.weak.complexity import Complexity

Grid = Literal["any", "rectangle", "square", "cube"]

POWER: Final[dict[Grid, int]] = {"any": 1, "rectangle": 1, "square": 2, "cube": 3}
"""Number of equal edges of a grid; with 1, the edges may differ."""

WIDEST: Final = 2
"""Largest ratio of a rectangle's edges: beyond it HPL and similar codes slow down."""

FEWEST: Final = 4
"""Configurations: the law has three coefficients, and one more checks it."""


@dataclass(frozen=True)
class PlannedRun:
    """A run to measure. grid: processes along each axis. work_change: relative change of the work per process."""

    ranks: int
    grid: tuple[int, ...]
    size: float
    wanted_ranks: float
    wanted_size: float
    work_change: float


def plan(
    complexity: Complexity,
    size: float,
    *,
    at_ranks: int = 1,
    max_ranks: int,
    count: int = 8,
    grid: Grid = "rectangle",
    ranks_multiple: int = 1,
    size_multiple: float = 1,
    targets: Sequence[int] = (),
) -> list[PlannedRun]:
    """Configurations with the work per process of `size` on `at_ranks`, smallest first; then one per target.

    count: number of configurations, evenly spaced in ranks up to max_ranks; fewer if several round to the same ranks.
    grid: any number of ranks; a rectangle with edges of at most WIDEST to 1; a square; a cube. ranks_multiple: ranks
    are multiples of it (full nodes). size_multiple: sizes are multiples of it. targets: ranks to predict later, rounded
    likewise. Raises ValueError for numbers out of range and if fewer than FEWEST configurations are feasible.
    """
    for name, number in (("max ranks", max_ranks), *(("target ranks", target) for target in targets)):
        if not 1 <= number <= MAX_RANKS:
            raise ValueError(f"{name}: {number}, expected 1 to {MAX_RANKS}")
    if not 1 <= at_ranks <= MAX_RANKS:
        raise ValueError(f"ranks of the given size: {at_ranks}, expected 1 to {MAX_RANKS}")
    if count < FEWEST:
        raise ValueError(f"{count} configurations, expected at least {FEWEST}: the law has three coefficients")
    if ranks_multiple < 1 or not (math.isfinite(size_multiple) and size_multiple > 0):
        raise ValueError(f"multiples are {ranks_multiple} ranks and size {size_multiple:g}, expected above 0")
    if not (math.isfinite(size) and size > 0):
        raise ValueError(f"size is {size:g}, expected a finite number above 0")
    share = complexity.work(size) / at_ranks
    wanted = [max_ranks * (i + 1) / count for i in range(count)]
    below = {_feasible(ranks, grid, ranks_multiple, max_ranks): ranks for ranks in wanted}
    chosen = {ranks: asked for ranks, asked in below.items() if ranks > 0}
    if len(chosen) < FEWEST:
        raise ValueError(
            f"{len(chosen)} of {count} configurations are feasible up to {max_ranks} ranks"
            f" ({grid} grid, multiples of {ranks_multiple}), expected at least {FEWEST}"
        )
    configurations = [_configuration(complexity, share, r, chosen[r], grid, size_multiple) for r in sorted(chosen)]
    for target in targets:
        ranks = _feasible(target, grid, ranks_multiple, MAX_RANKS)
        configurations.append(_configuration(complexity, share, ranks, target, grid, size_multiple))
    return configurations


def rounding(complexity: Complexity, runs: Sequence[tuple[int, float]]) -> list[float]:
    """The relative difference of the work per process of each (ranks, size) from their median."""
    per_process = [complexity.work(size) / ranks for ranks, size in runs]
    middle = sorted(per_process)[len(per_process) // 2]
    return [work / middle - 1 for work in per_process]


def dimensions(ranks: int) -> tuple[int, int]:
    """The two-dimensional grid that is closest to square, larger edge first."""
    edge = next(d for d in range(math.isqrt(ranks), 0, -1) if ranks % d == 0)
    return ranks // edge, edge


def _feasible(ranks: float, grid: Grid, multiple: int, most: int) -> int:
    """The feasible number nearest to `ranks` and at most `most`; 0 if there is none."""
    power = POWER[grid]
    if power > 1:
        middle = int(ranks ** (1 / power))
        # Of `multiple` consecutive edges, at least one has a power that is a multiple of it.
        reach = min(multiple, math.isqrt(most))
        numbers = [edge**power for edge in range(max(middle - reach, 1), middle + reach + 2)]
    else:
        below = range(int(ranks // multiple) * multiple, 0, -multiple)
        above = range((int(ranks // multiple) + 1) * multiple, most + 1, multiple)
        numbers = [next((n for n in side if _is_grid(n, grid)), 0) for side in (below, above)]
    fitting = [number for number in numbers if 0 < number <= most and number % multiple == 0]
    return min(fitting, key=lambda number: abs(number - ranks), default=0)


def _is_grid(ranks: int, grid: Grid) -> bool:
    longer, shorter = dimensions(ranks)
    return grid == "any" or longer <= WIDEST * shorter


def _configuration(
    complexity: Complexity, share: float, ranks: int, asked: float, grid: Grid, size_multiple: float
) -> PlannedRun:
    exact = complexity.size(share * ranks)
    size = max(round(exact / size_multiple), 1) * size_multiple
    power = POWER[grid]
    edges = dimensions(ranks) if power == 1 else (round(ranks ** (1 / power)),) * power
    return PlannedRun(ranks, edges, size, asked, exact, complexity.work(size) / (share * ranks) - 1)
