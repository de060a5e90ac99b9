"""Series of measured values, from a CSV file with a header."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from barograph_modeler.maxima.sample import Floats

Key = TypeVar("Key", bound=Hashable)


class BadTable(ValueError):
    """A file that cannot be used. The text names file, line, column, cell and what was expected."""


@dataclass(frozen=True)
class Series:
    """Values of one kind in input order. key: cell of each `by` column. scale: cell of the scale column, or None."""

    key: dict[str, str]
    scale: float | None
    values: Floats

    @property
    def name(self) -> str:
        """The key as text."""
        return ", ".join(self.key.values())


class Join(NamedTuple):
    """A file with further columns. on: the shared column, whose values are unique in `path`."""

    path: Path
    on: str


class Columns(NamedTuple):
    """Column names of runs at several scales. value: runtimes or another figure above 0. size, nodes: may be None."""

    value: str
    ranks: str
    by: Sequence[str]
    size: str | None = None
    nodes: str | None = None


class CsvTable:
    """A CSV file: `header`, and `rows` as (line number, cells). Raises BadTable for a malformed file, and OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            try:
                self.header = next((row for row in reader if row), [])
                self.rows = [(reader.line_num, row) for row in reader if row]
            except (csv.Error, UnicodeDecodeError) as error:
                raise BadTable(f"{path}, line {reader.line_num}: {error}, expected a CSV file in UTF-8") from None
        if not self.header:
            raise BadTable(f"{path} is empty, expected a line of column names and lines of values")
        if twice := next((name for i, name in enumerate(self.header) if name in self.header[:i]), None):
            raise BadTable(f"{path}: column {twice!r} is there twice, expected different names")
        if not self.rows:
            raise BadTable(f"{path} has a line of column names only, expected lines of values")
        for line, row in self.rows:
            if len(row) != len(self.header):
                raise BadTable(f"{path}, line {line}: {len(row)} cells, expected {len(self.header)}, one per column")

    def column(self, name: str) -> list[str]:
        """The cells of one column. Raises BadTable for an unknown name."""
        if name not in self.header:
            raise BadTable(f"{self.path} has no column {name!r}, expected one of {', '.join(self.header)}")
        at = self.header.index(name)
        return [row[at] for _, row in self.rows]

    def join(self, other: CsvTable, on: str) -> None:
        """Add the columns of `other` that this table lacks. Raises BadTable for a row without exactly one match."""
        matches: dict[str, list[str]] = {}
        for (line, row), cell in zip(other.rows, other.column(on), strict=True):
            if cell in matches:
                raise BadTable(f"{other.path}, line {line}: column {on!r} is {cell!r} again, expected each value once")
            matches[cell] = row
        added = [i for i, name in enumerate(other.header) if name not in self.header]
        for (line, row), cell in zip(self.rows, self.column(on), strict=True):
            if cell not in matches:
                raise BadTable(f"{self.path}, line {line}: column {on!r} is {cell!r}, which is not in {other.path}")
            row += [matches[cell][i] for i in added]
        self.header += [other.header[i] for i in added]

    def numbers(
        self,
        name: str,
        wanted: str = "a finite number",
        good: Callable[[float], bool] = math.isfinite,
        *,
        blank: bool = False,
    ) -> Floats:
        """One column as numbers. Raises BadTable for a cell that is not finite or not `good`.

        wanted: `good` in words, for the error. blank: allow blank cells, as NaN.
        """
        numbers = np.full(len(self.rows), math.nan)
        for i, cell in enumerate(self.column(name)):
            if blank and not cell.strip():
                continue
            with suppress(ValueError):
                numbers[i] = float(cell)
            if not (math.isfinite(numbers[i]) and good(float(numbers[i]))):
                raise BadTable(f"{self.path}, line {self.rows[i][0]}: column {name!r} is {cell!r}, expected {wanted}")
        return numbers

    def positive(self, name: str, wanted: str = "a number above 0", *, blank: bool = False) -> Floats:
        """One column as numbers above 0. Raises BadTable for other cells."""
        return self.numbers(name, wanted, lambda number: number > 0, blank=blank)

    def keys(self, by: Sequence[str]) -> list[tuple[str, ...]]:
        """The cells of each row in the columns `by`."""
        return list(zip(*(self.column(name) for name in by), strict=True))


def positions(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """The positions of each key, in the order of first occurrence."""
    found: dict[Key, list[int]] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, []).append(at)
    return found


def read_series(
    path: Path,
    value: str,
    by: Sequence[str],
    *,
    scale: str | None = None,
    order: str | None = None,
    join: Join | None = None,
) -> list[Series]:
    """The values of column `value`, one series for each combination of the cells of `by` (and `scale`), in file order.

    order: column to sort each series by, ascending: as numbers if all cells are numbers, else as text, which suits ISO
    dates. Equal cells keep the file order. Raises BadTable and OSError.
    """
    table = CsvTable(path)
    if join is not None:
        table.join(CsvTable(join.path), join.on)
    values = table.numbers(value)
    scales = [None] * values.size if scale is None else table.positive(scale).tolist()
    rank = None if order is None else _rank(table.column(order))
    series = []
    for (key, at_scale), members in positions(zip(table.keys(by), scales, strict=True)).items():
        at = members if rank is None else sorted(members, key=rank.__getitem__)
        series.append(Series(dict(zip(by, key, strict=True)), at_scale, values[at]))
    return series


def _rank(cells: Sequence[str]) -> list[float] | list[str]:
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        return list(cells)
