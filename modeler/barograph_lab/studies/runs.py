"""Runs of applications from a CSV file, and the tables that studies print."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from barograph_lab.studies.series import BadTable, Columns, CsvTable, positions
from barograph_lab.studies.weak.complexity import Complexity
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

WIDEST_REPEATS = 100.0
"""Largest ratio between repeats of one configuration. A larger one means another unit or a broken run."""


class Condition(NamedTuple):
    """A filter on rows: `column` holds `cell` or, if not `equal`, anything else."""

    column: str
    cell: str
    equal: bool


@dataclass(frozen=True)
class Grid:
    """A table to print. cells: None for unknown. corner: what the rows are."""

    title: str
    rows: list[str]
    columns: list[str]
    cells: list[list[float | None]]
    corner: str = "model"

    def markdown(self) -> str:
        """The table in Markdown."""
        lines = [f"**{self.title}**", "", f"| {self.corner} | {' | '.join(self.columns)} |"]
        lines.append("|---|" + "---:|" * len(self.columns))
        for name, row in zip(self.rows, self.cells, strict=True):
            lines.append(f"| {name} | {' | '.join(figure(cell) for cell in row)} |")
        return "\n".join(lines)


def figure(value: float | None) -> str:
    """A count, or a number with three decimals, from 1e5 on in scientific notation; `N/A` for None and not finite."""
    if value is None or not np.isfinite(value):
        return "N/A"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3f}" if abs(value) < 1e5 else f"{value:.1e}"


def over_known(average: Callable[[Any], Any], values: Iterable[float | None]) -> float | None:
    """The average, such as numpy.median, of the values that are finite numbers; None if there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return float(average(known)) if known else None


def root_mean_square(errors: Floats) -> float:
    """Root mean square without NaN; NaN if there is nothing else."""
    known = errors[~np.isnan(errors)]
    return float(np.sqrt(np.mean(known**2))) if known.size else float("nan")


def read_runs(
    path: Path, columns: Columns, where: Sequence[Condition] = (), complexity: Complexity | None = None
) -> dict[tuple[str, ...], Runs]:
    """The runs of each application, keyed by the cells of the `by` columns, in file order.

    where: conditions that a row must meet. complexity: converts the size column to work.
    Raises BadTable for a row that is no run and for repeats that differ by more than WIDEST_REPEATS.
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
