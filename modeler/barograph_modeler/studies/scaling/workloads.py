"""Workloads of scaling runs from a CSV file, each split into what is learned and what is scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import MOST_RANKS, Runs
from barograph_modeler.studies.series import BadTable, Columns, CsvTable, positions


@dataclass(frozen=True)
class ScalingWorkload:
    """Runs that differ in scale and size only. key: cell of each `by` column."""

    key: dict[str, str]
    runs: Runs

    @property
    def name(self) -> str:
        """The key as text."""
        return ", ".join(f"{column}={cell}" for column, cell in self.key.items())


@dataclass(frozen=True)
class WorkloadSplit:
    """What is learned of a workload and what is scored; scored is None where nothing is."""

    key: dict[str, str]
    name: str
    learned: Runs
    scored: Runs | None

    @property
    def scales(self) -> int:
        """Distinct numbers of ranks in both."""
        scored = () if self.scored is None else self.scored.scales
        return int(np.union1d(self.learned.scales, scored).size)


def read_workloads(path: Path, columns: Columns) -> tuple[list[ScalingWorkload], int]:
    """The workloads in the order of the file, and how many rows have a blank time, scale or size and are left out.

    The scale of a workload is its ranks; where a row of it has none but all have nodes, its nodes. Raises BadTable for
    cells that are no such number, and OSError.
    """
    table = CsvTable(path)
    seconds = table.positive(columns.value, "seconds above 0", blank=True)
    ranks, nodes = _counts(table, columns.ranks), _counts(table, columns.nodes)
    size = np.ones(seconds.size) if columns.size is None else table.positive(columns.size, blank=True)
    workloads, kept = [], 0
    for cells, members in positions(table.keys(columns.by)).items():
        at = np.array(members)
        at = at[np.isfinite(seconds[at]) & np.isfinite(size[at])]
        in_nodes = np.isnan(ranks[at]).any() and np.isfinite(nodes[at]).all()
        scale = (nodes if in_nodes else ranks)[at]
        at, scale = at[np.isfinite(scale)], scale[np.isfinite(scale)]
        if at.size:
            kept += at.size
            runs = _runs(table, at, scale, np.where(nodes[at] <= scale, nodes[at], np.nan), size[at], seconds[at])
            workloads.append(ScalingWorkload(dict(zip(columns.by, cells, strict=True)), runs))
    if not workloads:
        raise BadTable(f"{path} has no row with {columns.value} and {columns.ranks}, expected some to learn from")
    return workloads, len(table.rows) - kept


def lower_half(runs: Runs) -> float:
    """The largest scale of the lower half of the scales. Of an odd number, the one in the middle is of the lower."""
    scales = runs.scales
    return float(scales[(scales.size + 1) // 2 - 1])


def split(workloads: Sequence[ScalingWorkload], most: Callable[[Runs], float]) -> list[WorkloadSplit]:
    """Learn what is at most at a scale, score what is above. most: the scale, from the runs of a workload."""
    splits = []
    for one in workloads:
        low = one.runs.ranks <= most(one.runs)
        if low.any():
            rest = None if low.all() else one.runs.select(~low)
            splits.append(WorkloadSplit(one.key, one.name, one.runs.select(low), rest))
    return splits


def split_files(
    learned: Sequence[ScalingWorkload], scored: Sequence[ScalingWorkload], most: Callable[[Runs], float] | None
) -> list[WorkloadSplit]:
    """Learn one file, all of it or what is at most at a scale; score the rows of the same workloads in another."""
    rows = {one.name: one.runs for one in scored}
    both = split(learned, most or (lambda runs: math.inf))
    return [WorkloadSplit(one.key, one.name, one.learned, rows.get(one.name)) for one in both]


def _counts(table: CsvTable, name: str | None) -> Floats:
    if name is None:
        return np.full(len(table.rows), np.nan)
    wanted = f"a whole number from 1 to {MOST_RANKS}"
    return table.numbers(name, wanted, lambda x: 1 <= x <= MOST_RANKS and x == math.floor(x), blank=True)


def _runs(table: CsvTable, at: np.ndarray, ranks: Floats, nodes: Floats, size: Floats, seconds: Floats) -> Runs:
    try:
        return Runs.of(ranks, seconds, nodes=nodes, size=size)
    except ValueError as error:
        raise BadTable(f"{table.path}, line {table.rows[at[0]][0]} and its like: {error}") from None
