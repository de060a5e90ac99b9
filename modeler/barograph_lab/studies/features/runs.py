"""Runs with features from a CSV file with a header: the training and test data of feature models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from barograph_lab.studies.features.identifiers import identifier_reason
from barograph_lab.studies.series import BadTable, CsvTable
from barograph_modeler.features.sample import Sample
from barograph_modeler.maxima.sample import Floats

UNSEEN = -1.0
"""Code of a text that is in no learned run."""


@dataclass(frozen=True)
class Encoding:
    """The features of a file and the encoding of their cells as numbers.

    names: the columns. codes: for each text column, its texts with their numbers, from 0 in alphabetical order. They
    are unordered labels, which trees can separate and linear models cannot. left_out: columns that are no features,
    with the reason.
    """

    names: tuple[str, ...]
    codes: dict[str, dict[str, float]]
    left_out: dict[str, str]

    def values(self, table: CsvTable) -> Floats:
        """The features of a file: (rows, names). Raises BadTable for a missing column and a cell that is no number."""
        columns = [
            np.array([self.codes[name].get(cell, UNSEEN) for cell in table.column(name)])
            if name in self.codes
            else table.numbers(name)
            for name in self.names
        ]
        return np.column_stack(columns)


def encode(table: CsvTable, seconds: str, features: Sequence[str] | None) -> Encoding:
    """The features of a file: the columns in `features` or, if None, all columns but `seconds`.

    Constant columns are left out. So are columns with blank cells and, if other columns are left, identifiers of runs
    (`identifiers.py`), unless requested by name: then a blank cell is an error. Raises BadTable.
    """
    names: list[str] = []
    identifiers: dict[str, str] = {}
    codes: dict[str, dict[str, float]] = {}
    left_out: dict[str, str] = {}
    for name in features if features is not None else [name for name in table.header if name != seconds]:
        cells = table.column(name)
        if name == seconds:
            raise BadTable(f"{table.path}: column {name!r} is both time and feature, expected other features")
        if "" in cells:
            line = table.rows[cells.index("")][0]
            if features is not None:
                raise BadTable(f"{table.path}, line {line}: column {name!r} is blank, expected a value in each line")
            left_out[name] = f"blank in line {line}"
        elif len(set(cells)) == 1:
            left_out[name] = f"always {cells[0]}"
        else:
            names.append(name)
            if not all(map(_is_number, cells)):
                codes[name] = {text: float(code) for code, text in enumerate(sorted(set(cells)))}
            if features is None and (reason := identifier_reason(name, cells)):
                identifiers[name] = reason
    if len(identifiers) < len(names):
        names = [name for name in names if name not in identifiers]
        codes = {name: texts for name, texts in codes.items() if name not in identifiers}
        left_out |= {name: f"{reason}: --features includes it" for name, reason in identifiers.items()}
    if not names:
        raise BadTable(f"{table.path} has no column to predict {seconds!r} from, expected at least one that varies")
    return Encoding(tuple(names), codes, left_out)


def read_runs(table: CsvTable, seconds: str, encoding: Encoding) -> Sample:
    """All rows of a file. Raises BadTable."""
    return Sample(encoding.names, encoding.values(table), table.positive(seconds))


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
