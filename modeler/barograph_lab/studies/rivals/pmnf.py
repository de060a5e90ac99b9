"""Performance model normal form, searched: T = c0 + sum over k of c_k p**i_k log2(p)**j_k (Calotoiu et al. 2013).

`pmnf` has one term, `pmnf-terms` up to MAX_TERMS. Hypotheses are fitted by least squares to the medians over repeats
and scored by leave-one-scale-out validation: the least mean symmetric absolute percentage error wins. One more term is
taken only if it lowers that error, as Extra-P refines its models. Exponents may be negative, for decreasing times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations, product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_lab.studies.rivals.laws import Model, each, of_one_size
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

MIN_SCALES: Final = 3
"""Two coefficients and one scale to leave out."""
MAX_TERMS: Final = 3
BEAM: Final = 32
"""Hypotheses of two terms that a third term is tried with. Pairs of terms are tried exhaustively."""
SPARE: Final = 2
"""Scales beyond the coefficients that several terms need: a residual is left when one scale is left out."""
_SIZES: Final = (0.0, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4, 1.0, 5 / 4, 4 / 3, 3 / 2, 2.0)
EXPONENTS: Final = tuple(
    pair for pair in product(sorted({s * size for s in (-1, 1) for size in _SIZES}), (0, 1, 2)) if pair != (0.0, 0)
)
"""The candidate pairs (i, j)."""


class Hypothesis(NamedTuple):
    """Terms by their numbers in EXPONENTS, coefficients (the constant first) and the validation error, a share."""

    terms: tuple[int, ...]
    coefficients: Floats
    error: float

    def seconds(self, ranks: Floats) -> Floats:
        """Seconds at each number of ranks."""
        return np.asarray(_columns(ranks)[:, [0, *(1 + term for term in self.terms)]] @ self.coefficients)


def _columns(ranks: Floats) -> Floats:
    """The constant and every candidate term: (scales, 1 + candidates)."""
    return np.stack([np.ones_like(ranks), *(ranks**i * np.log2(ranks) ** j for i, j in EXPONENTS)], axis=1)


def validate(columns: Floats, times: Floats, terms: Iterable[tuple[int, ...]]) -> list[Hypothesis]:
    """Hypotheses of equally many terms, best first; without those whose fit passes through a scale by construction.

    columns: of `_columns`. times: seconds, one per scale.
    """
    wanted: npt.NDArray[np.intp] = np.array(list(terms), dtype=np.intp)
    chosen = np.stack([columns[:, [0, *(1 + row)]] for row in wanted])
    unit = np.abs(chosen).max(axis=1, keepdims=True)
    scaled = chosen / unit
    inverse = np.linalg.pinv(scaled)
    leverage = np.einsum("hsk,hks->hs", scaled, inverse)
    coefficients = inverse @ times
    # The residual of a left-out scale is its residual / (1 - leverage): no refit.
    free = (leverage < 1 - 1e-9).all(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = times - (times - np.einsum("hsk,hk->hs", scaled, coefficients)) / (1 - leverage)
        errors = (np.abs(left_out - times) / (np.abs(left_out) + times)).mean(axis=1)
    order = [int(h) for h in np.argsort(errors, kind="stable") if free[h]]
    found = coefficients / unit[:, 0, :]
    return [Hypothesis(tuple(wanted[h].tolist()), found[h], float(errors[h])) for h in order]


def search(most: int, runs: Runs) -> Callable[[Floats], Floats]:
    """Seconds over ranks by the best hypothesis of up to `most` terms. runs: of one size, at MIN_SCALES or more."""
    scales = runs.scales
    times = np.array([np.median(runs.seconds[runs.ranks == scale]) for scale in scales])
    columns, candidates = _columns(scales), range(len(EXPONENTS))
    found = validate(columns, times, ((term,) for term in candidates))
    if not found:
        return lambda ranks: np.full(ranks.size, times.mean())
    best = found[0]
    for count in range(2, most + 1):
        if scales.size < count + 1 + SPARE:
            break
        wider = combinations(candidates, 2) if count == 2 else _wider(found[:BEAM], candidates)
        found = validate(columns, times, wider)
        if not found or found[0].error >= best.error:
            break
        best = found[0]
    return best.seconds


def _wider(narrower: Iterable[Hypothesis], candidates: Iterable[int]) -> list[tuple[int, ...]]:
    """Each hypothesis with each further term, once."""
    terms = {tuple(sorted({*one.terms, term})) for one, term in product(narrower, candidates) if term not in one.terms}
    return sorted(terms)


MODELS: Final = (
    Model("pmnf", "c0 + c1 p**i log2(p)**j, exponents searched", each(of_one_size(partial(search, 1), MIN_SCALES))),
    Model(
        "pmnf-terms",
        f"the same with up to {MAX_TERMS} terms, their number by cross-validation",
        each(of_one_size(partial(search, MAX_TERMS), MIN_SCALES)),
    ),
)
