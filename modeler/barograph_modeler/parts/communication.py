"""Laws of point-to-point, collective and serial time, linear in what is sent, with coefficients that are not negative.

    exchange   = a0 messages (m > 1) + a1 messages + a2 bytes + a3 bytes log2 m
    other      = s0 + s1 n + s2 n / p + s3 log2 p                                n: size
    collective = c0 + c1 log2 r + c2 log2 m + c3 bytes + c4 bytes log2 p         r: ranks per node, m: nodes, p = r m

The alpha-beta model with a tree over the ranks of a node and one over nodes. Fitted to relative errors, by least
squares of bootstrap samples of the runs, which are the draws.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats

RIDGE: Final = 1e-3
"""Weight of a coefficient's square, relative to the errors, with columns scaled to 1."""


def exchange_terms(nodes: Floats, messages: Floats, sent: Floats) -> Floats:
    """Terms of the exchange: (m, 4). sent: bytes."""
    return np.column_stack([(nodes > 1) * messages, messages, sent, sent * np.log2(nodes)])


def collective_terms(nodes: Floats, per_node: Floats, sent: Floats) -> Floats:
    """Terms of the collective: (m, 5). sent: bytes."""
    trees = np.log2(per_node), np.log2(nodes)
    return np.column_stack([np.ones_like(nodes), *trees, sent, sent * (trees[0] + trees[1])])


def serial_terms(ranks: Floats, sizes: Floats) -> Floats:
    """Terms of what is outside of all classes, such as start and input: (m, 4)."""
    return np.column_stack([np.ones_like(sizes), sizes, sizes / ranks, np.log2(ranks)])


class LinearLaw:
    """Seconds that are linear in terms, fitted to (m, k) terms and (m,) seconds; rows of 0 s are left out."""

    def __init__(self, terms: Floats, seconds: Floats, draws: int, rng: np.random.Generator) -> None:
        from scipy.optimize import nnls

        known = seconds > 0
        self._between_runs = 0.0
        self._coefficients = np.zeros((draws, terms.shape[1]))
        if known.any():
            rows = terms[known] / seconds[known, None]
            unit = np.maximum(np.abs(rows).max(axis=0), 1e-300)
            for i in range(draws):
                # Bayesian bootstrap: no run is left out entirely.
                share = np.sqrt(rng.exponential(size=len(rows)))
                weighted = np.vstack([rows / unit * share[:, None], np.sqrt(RIDGE) * np.eye(unit.size)])
                found, _ = nnls(weighted, np.append(share, np.zeros(unit.size)))
                self._coefficients[i] = found / unit
            errors = rows @ np.median(self._coefficients, axis=0) - 1
            self._between_runs = float(np.sqrt((errors**2).sum() / max(len(errors) - unit.size, 1)))

    def draw(self, terms: Floats, rng: np.random.Generator) -> Floats:
        """Seconds of a run at one row of terms, by each draw: (draws,). Runs differ as the fitted ones did."""
        differs = 1 + self._between_runs * rng.standard_normal(len(self._coefficients))
        return np.asarray(self._coefficients @ terms * np.maximum(differs, 0.0))
