"""The papers' studies on one's own measurements: what a table of them is, and the figures in its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.series import BadTable, Columns, CsvTable, positions
from barograph_modeler.studies.weak.complexity import Complexity

WIDEST_REPEATS = 100.0
"""Repeats of one configuration that differ by a larger factor are in different units, or one of them broke."""


class Condition(NamedTuple):
    """What a line must have to be used: this cell in this column or, where not `equal`, another cell."""

    column: str
    cell: str
    equal: bool


@dataclass(frozen=True)
class Grid:
    """A printed table. cells: None where there is no figure."""

    title: str
    rows: list[str]
    columns: list[str]
    cells: list[list[float | None]]

    def markdown(self) -> str:
        """The table in Markdown."""
        lines = [f"**{self.title}**", "", f"| model | {' | '.join(self.columns)} |"]
        lines.append("|---|" + "---:|" * len(self.columns))
        for name, row in zip(self.rows, self.cells, strict=True):
            lines.append(f"| {name} | {' | '.join(figure(cell) for cell in row)} |")
        return "\n".join(lines)


def figure(value: float | None) -> str:
    """A number for a table, with three decimals; large ones in powers of ten, `N/A` where there is none."""
    if value is None or not np.isfinite(value):
        return "N/A"
    return f"{value:.3f}" if abs(value) < 1e5 else f"{value:.1e}"


def read_runs(
    path: Path, columns: Columns, where: Sequence[Condition] = (), complexity: Complexity | None = None
) -> dict[tuple[str, ...], Runs]:
    """The runs of each application: of each combination of cells of the `by` columns, in the order of the file.

    where: what lines must have; others are left out. complexity: turns the size column into work.
    Raises BadTable for what is no run, and for repeats that differ by more than WIDEST_REPEATS.
    """
    table = CsvTable(path)
    for name, cell, equal in where:
        wanted = [i for i, found in enumerate(table.column(name)) if (found == cell) == equal]
        if not wanted:
            sign = "=" if equal else "!="
            raise BadTable(f"{path}: no line has {name}{sign}{cell}, expected some to have all of --where")
        table.rows = [table.rows[i] for i in wanted]
    ranks, values = table.positive(columns.ranks), table.positive(columns.value)
    nodes = np.full(ranks.size, np.nan) if columns.nodes is None else table.positive(columns.nodes)
    size = np.ones(ranks.size) if columns.size is None else table.positive(columns.size)
    if complexity is not None:
        size = np.array([complexity.work(float(n)) for n in size])
    found = {}
    for key, rows in positions(table.keys(columns.by)).items():
        name = f"{path}, {', '.join(key)}"
        try:
            found[key] = Runs.of(ranks[rows], values[rows], nodes=nodes[rows], size=size[rows])
        except ValueError as error:
            raise BadTable(f"{name}: {error}") from None
        _check_repeats(found[key], name)
    return found


def _check_repeats(runs: Runs, name: str) -> None:
    configurations = zip(runs.ranks.tolist(), np.nan_to_num(runs.nodes).tolist(), runs.size.tolist(), strict=True)
    for (ranks, _, size), rows in positions(configurations).items():
        times = runs.seconds[rows]
        if times.max() > WIDEST_REPEATS * times.min():
            raise BadTable(
                f"{name}: repeats on {ranks:g} ranks, size {size:g}, are {times.min():g} and {times.max():g},"
                f" expected within a factor of {WIDEST_REPEATS:g}: is one in another unit, or broken?"
            )


def root_mean_square(errors: Floats) -> float:
    """Square root of the mean square, NaN left out; NaN if nothing else is there."""
    known = errors[~np.isnan(errors)]
    return float(np.sqrt(np.mean(known**2))) if known.size else float("nan")
