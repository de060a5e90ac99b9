"""Workloads of scaling runs from a CSV file, each split into learned and scored runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from barograph_agent.protocol.tables import MAX_RANKS
from barograph_lab.studies.series import BadTable, Columns, CsvTable, positions
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs


@dataclass(frozen=True)
class ScalingWorkload:
    """Runs that differ only in scale and size. key: cell of each `by` column."""

    key: dict[str, str]
    runs: Runs

    @property
    def name(self) -> str:
        """The key as text."""
        return ", ".join(f"{column}={cell}" for column, cell in self.key.items())


@dataclass(frozen=True)
class WorkloadSplit:
    """The learned and the scored runs of a workload. scored: None if there are none."""

    key: dict[str, str]
    name: str
    learned: Runs
    scored: Runs | None

    @property
    def scales(self) -> int:
        """Number of distinct scales in both."""
        scored = () if self.scored is None else self.scored.scales
        return int(np.union1d(self.learned.scales, scored).size)


def read_workloads(path: Path, columns: Columns) -> tuple[list[ScalingWorkload], int]:
    """The workloads in file order, and the number of rows left out for a time of 0 or a blank time, scale or size.

    The scale of a workload is its ranks or, if some rows have no ranks but all have nodes, its nodes. Raises BadTable
    for invalid cells, and OSError.
    """
    table = CsvTable(path)
    seconds = table.numbers(columns.value, "seconds, not negative", lambda number: number >= 0, blank=True)
    seconds[seconds == 0] = np.nan  # below the resolution of the clock: nothing was measured
    ranks, nodes = counts(table, columns.ranks), counts(table, columns.nodes)
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
            own_nodes = np.where(nodes[at] <= scale, nodes[at], np.nan)
            try:
                runs = Runs.of(scale, seconds[at], nodes=own_nodes, size=size[at])
            except ValueError as error:
                raise BadTable(f"{path}, line {table.rows[at[0]][0]} and its like: {error}") from None
            workloads.append(ScalingWorkload(dict(zip(columns.by, cells, strict=True)), runs))
    if not workloads:
        raise BadTable(f"{path} has no row with {columns.value} and {columns.ranks}, expected some to learn from")
    return workloads, len(table.rows) - kept


def lower_half(runs: Runs) -> float:
    """The largest scale of the lower half of the scales, which includes the middle one of an odd number."""
    scales = runs.scales
    return float(scales[(scales.size + 1) // 2 - 1])


def all_but_largest(runs: Runs) -> float:
    """The largest scale but one, or the only one."""
    return float(runs.scales[-2:][0])


def split(
    workloads: Sequence[ScalingWorkload], most: Callable[[Runs], float], others: Sequence[ScalingWorkload] | None = None
) -> list[WorkloadSplit]:
    """Learn the runs up to a scale; score those above it or, if given, those of the same workload among `others`.

    most: the scale, from the runs of a workload.
    """
    rows = None if others is None else {one.name: one.runs for one in others}
    splits = []
    for one in workloads:
        low = one.runs.ranks <= most(one.runs)
        if low.any():
            above = None if low.all() else one.runs.select(~low)
            scored = above if rows is None else rows.get(one.name)
            splits.append(WorkloadSplit(one.key, one.name, one.runs.select(low), scored))
    return splits


def counts(table: CsvTable, name: str | None) -> Floats:
    """One column of ranks or nodes, NaN where it is blank or there is no column. Raises BadTable."""
    if name is None:
        return np.full(len(table.rows), np.nan)
    wanted = f"a whole number from 1 to {MAX_RANKS}"
    return table.numbers(name, wanted, lambda x: 1 <= x <= MAX_RANKS and x == math.floor(x), blank=True)
