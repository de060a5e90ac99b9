"""Times of regions from a CSV file, a region of a run per row, and which region is the total."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.regions.runs import RegionRuns
from barograph_modeler.studies.scaling.workloads import ScalingWorkload, counts
from barograph_modeler.studies.series import BadTable, Columns, CsvTable, positions

SUM: Final = "(sum of regions)"
"""The total where no region is it."""
NAMED: Final = re.compile(
    r"(total|main|whole|overall|elapsed|wall|wall.?time|wall.?clock|run.?time|all|app|application|program|root)"
    r"([ _.:()-]*(time|elapsed|seconds|s|total|run|loop))?[ _.:()]*",
    re.IGNORECASE,
)
"""Names of regions that are the total, if they are the largest."""
EXCESS: Final = 0.02
"""Share by which another region may exceed the total."""
MIN_COVERED: Final = 0.9
"""Share of the largest region that others cover where it is the total without a name for it."""


class RegionColumns(NamedTuple):
    """region: the column of names; or several columns, with the seconds of a region each, where a row is a whole run.

    run: the column that identifies runs; None if repeats follow each other in the file. total: the region that is the
    total, or a column that has it; None to find it.
    """

    region: Sequence[str]
    run: str | None = None
    total: str | None = None


@dataclass(frozen=True)
class RegionTable:
    """The regions of a file. total: the region that is the total, or SUM. blank: rows left out."""

    workloads: list[ScalingWorkload]
    regions: Mapping[str, RegionRuns]
    """By the names of the workloads."""
    total: str
    blank: int


class _Run(NamedTuple):
    ranks: float
    nodes: float
    size: float
    regions: dict[str, float]


def read_regions(path: Path, columns: Columns, region: RegionColumns) -> RegionTable:
    """The runs of each workload with the time of each region. Times may be 0.

    Runs without the total are left out. Raises BadTable for invalid cells, for a total that is not there and for a
    region that is twice in a run, and OSError.
    """
    table = CsvTable(path)
    seconds = table.numbers(columns.value, "seconds, at least 0", lambda x: x >= 0, blank=True)
    ranks, nodes = counts(table, columns.ranks), counts(table, columns.nodes)
    size = np.ones(seconds.size) if columns.size is None else table.positive(columns.size, blank=True)
    known = np.isfinite(seconds) & np.isfinite(ranks) & np.isfinite(size)
    wide = len(region.region) > 1
    rows = _wide(table, columns, region) if wide else _long(table, seconds, region)
    marks = [(str(i),) for i in range(seconds.size)] if wide else _marks(table, columns, region, known)
    found: defaultdict[tuple[str, ...], dict[tuple[str, ...], _Run]] = defaultdict(dict)
    for cells, members in positions(table.keys(columns.by)).items():
        for i in members:
            if known[i]:
                run = found[cells].setdefault(marks[i], _Run(ranks[i], nodes[i], size[i], {}))
                if twice := next(
                    (name for name in rows[i] if run.regions.get(name, rows[i][name]) != rows[i][name]), None
                ):
                    raise BadTable(f"{path}, line {table.rows[i][0]}: region {twice!r} is in this run already")
                run.regions.update(rows[i])
    every = [run.regions for runs in found.values() for run in runs.values()]
    if not every:
        raise BadTable(f"{path} has no row with {columns.value} and {columns.ranks}, expected some to learn from")
    total = columns.value if wide else region.total or total_region(every)
    if region.total is not None and not any(total in one for one in every):
        raise BadTable(f"{path}: no run has the region {total!r}, expected the total of each run (--total)")
    workloads, regions = [], {}
    for cells, runs in found.items():
        kept = [run for run in runs.values() if total == SUM or run.regions.get(total, 0.0) > 0]
        if kept:
            one = _region_runs(kept, total)
            workloads.append(ScalingWorkload(dict(zip(columns.by, cells, strict=True)), one.runs))
            regions[workloads[-1].name] = one
    return RegionTable(workloads, regions, total, int((~known).sum()))


def total_region(runs: list[dict[str, float]]) -> str:
    """The region that is the total of each run, or SUM.

    It is in every run and not exceeded by any other; and its name is that of a total, or a path that all others begin
    with, or the sum of all others exceeds it, or nearly reaches it.
    """
    everywhere = set.intersection(*(set(run) for run in runs))
    largest = [
        name for name in sorted(everywhere) if all(run[name] * (1 + EXCESS) >= max(run.values()) > 0 for run in runs)
    ]
    if not largest:
        return SUM
    named = [name for name in largest if NAMED.fullmatch(name)]
    chosen = max(named or largest, key=lambda name: sum(run[name] for run in runs))
    if named:
        return chosen
    others = [(sum(run.values()) - run[chosen]) / run[chosen] for run in runs]
    # One dominant region among disjoint ones is not covered by the others to the same share at every scale.
    inside = min(others) >= MIN_COVERED and (len(runs) > 1 and max(others) - min(others) < 1 - MIN_COVERED)
    nested = min(others) > 1 + EXCESS
    prefixed = all(name == chosen or name.startswith(chosen) for run in runs for name in run)
    return chosen if inside or nested or (prefixed and len(everywhere) > 1) else SUM


def _region_runs(runs: list[_Run], total: str) -> RegionRuns:
    names = dict.fromkeys(name for run in runs for name in run.regions if name != total)
    columns = {name: np.array([run.regions.get(name, np.nan) for run in runs]) for name in names}
    seconds = [sum(run.regions.values()) if total == SUM else run.regions[total] for run in runs]
    ranks, nodes = (np.array([getattr(run, name) for run in runs]) for name in ("ranks", "nodes"))
    own_nodes: Floats = np.where(nodes <= ranks, nodes, np.nan)
    return RegionRuns(Runs.of(ranks, seconds, nodes=own_nodes, size=[run.size for run in runs]), columns)


def _long(table: CsvTable, seconds: Floats, region: RegionColumns) -> list[dict[str, float]]:
    """The region of each row; with a column of totals, the total too."""
    rows = [{name: float(one)} for name, one in zip(table.column(region.region[0]), seconds, strict=True)]
    if region.total is not None and region.total in table.header and not any(region.total in row for row in rows):
        totals = table.positive(region.total, "seconds above 0", blank=True).tolist()
        rows = [row | {region.total: total} if total > 0 else row for row, total in zip(rows, totals, strict=True)]
    return rows


def _wide(table: CsvTable, columns: Columns, region: RegionColumns) -> list[dict[str, float]]:
    """The regions of each row, which is a run, and its total."""
    good = "seconds, at least 0"
    every = {name: table.numbers(name, good, lambda x: x >= 0, blank=True) for name in (*region.region, columns.value)}
    known = {name: column.tolist() for name, column in every.items()}
    return [{name: known[name][i] for name in known if known[name][i] >= 0} for i in range(len(table.rows))]


def _marks(table: CsvTable, columns: Columns, region: RegionColumns, known: np.ndarray) -> list[tuple[str, ...]]:
    """What identifies the run of each row inside its workload."""
    kinds = [name for name in (columns.ranks, columns.size, columns.nodes) if name is not None]
    keys = table.keys(kinds if region.run is None else [*kinds, region.run])
    if region.run is not None:
        return keys
    seen: defaultdict[tuple[str, ...], int] = defaultdict(int)
    marks = []
    for key, own, name, is_known in zip(
        keys, table.keys(columns.by), table.column(region.region[0]), known, strict=True
    ):
        repeat = (*own, *key, name)
        marks.append((*key, str(seen[repeat])))
        seen[repeat] += bool(is_known)
    return marks
