"""The tables of the grey-box study, and what limits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from barograph_lab.studies.greybox.greybox_study import LABELS, Scored
from barograph_lab.studies.runs import Grid, over_known
from barograph_modeler.maxima.sample import Floats

STATISTICS: Final = {
    "RMSE of speedup": "rmse_speedup",
    "RMSE of relative speedup error": "rmse_relative",
    "Median relative error of time": "median_ape",
}

PERCENTILES: Final = (25.0, 50.0, 75.0, 95.0)
MIN_TARGETS: Final = 5
"""Distinct training targets from which errors of overhead models are evidence for or against them."""


def tables(rows: Sequence[Scored]) -> list[Grid]:
    """The paper's tables and the percentiles of its figures: a row per model, a column per first part of the name.

    A cell is the median over the applications of its column.
    """
    columns = list(dict.fromkeys(row.application[0] for row in rows))
    found = []
    for scaling in dict.fromkeys(row.scaling for row in rows):
        scored = [[row for row in rows if (row.scaling, row.model) == (scaling, model)] for model in LABELS]
        for title, value in STATISTICS.items():
            cells = [
                [
                    over_known(np.median, (getattr(row, value) for row in mine if row.application[0] == name))
                    for name in columns
                ]
                for mine in scored
            ]
            found.append(Grid(f"{title}, {scaling} scaling", list(LABELS), columns, cells))
        spread = [_percentiles(np.concatenate([row.errors for row in mine])) for mine in scored]
        shares = [f"{share:g} %" for share in PERCENTILES]
        title = f"Root squared error of speedup, percentiles, {scaling} scaling"
        found.append(Grid(title, list(LABELS), shares, spread))
        found.append(_targets([row for row in rows if row.scaling == scaling], columns))
    return found


def _targets(rows: Sequence[Scored], columns: list[str]) -> Grid:
    """Distinct training targets over the applications of each column: few of them cannot decide between models."""
    by_column = [
        [row.targets for row in rows if (row.application[0], row.model) == (name, LABELS[0])] for name in columns
    ]
    averages = [[over_known(average, counts) for counts in by_column] for average in (min, np.median, max)]
    cells = [[int(one) if one is not None and one.is_integer() else one for one in row] for row in averages]
    return Grid(f"Distinct training targets, {rows[0].scaling} scaling", ["fewest", "median", "most"], columns, cells)


def cautions(rows: Sequence[Scored]) -> list[str]:
    """What limits the tables: columns with fewer than MIN_TARGETS training targets, and extrapolated features."""
    found = []
    for scaling in dict.fromkeys(row.scaling for row in rows):
        mine = [row for row in rows if (row.scaling, row.model) == (scaling, LABELS[0])]
        columns = list(dict.fromkeys(row.application[0] for row in mine))
        few = []
        for name, median in zip(columns, _targets(mine, columns).cells[1], strict=True):
            if median is not None and median < MIN_TARGETS:
                few.append(f"{name} {median:g}")
        if few:
            found.append(
                f"{scaling}: fewer than {MIN_TARGETS} distinct training targets (median over applications), the data"
                f" cannot decide between overhead models: {', '.join(few)}"
            )
        for feature in dict.fromkeys(feature for row in mine for feature in row.beyond):
            far = [row.beyond[feature] for row in mine if feature in row.beyond]
            most = max(far)
            extent = "it never varied in training" if most == np.inf else f"by up to {most:.2g} of its range"
            found.append(
                f"{scaling}: overhead models extrapolate in {feature}, in {len(far)} of {len(mine)} applications:"
                f" {extent}"
            )
    return found


def _percentiles(errors: Floats) -> list[float | None]:
    known = errors[~np.isnan(errors)]
    return [float(np.percentile(known, q)) for q in PERCENTILES] if known.size else [None] * len(PERCENTILES)
