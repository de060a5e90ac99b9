"""How long will it take there: the prediction for a scale, with its interval, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls
from scipy.stats import t as student_t

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs


@dataclass(frozen=True)
class Prediction:
    """A distribution of the runtime at one scale: expected_seconds is its median, the limits hold 95 % of it.

    model: the laws that made it and their weights, largest first, which sum to 1. runs, scales, largest_ranks: what it
    rests on; all 0 where the problem itself was never seen. pooled_from: other problems of the application that had a
    part. conditions: what must hold for it to be right; warnings: what speaks against it. Short sentences both.
    """

    expected_seconds: float
    lower_seconds: float
    upper_seconds: float
    model: dict[str, float]
    runs: int
    scales: int
    largest_ranks: int
    pooled_from: int
    conditions: tuple[str, ...]
    warnings: tuple[str, ...]
    scale: float = field(repr=False)
    """Spread of the predictive distribution: Student's t in log seconds."""
    freedom: float = field(repr=False)
    """Its degrees of freedom."""

    def quantile(self, p: float) -> float:
        """Seconds that the run stays below with probability p. p: between 0 and 1, both excluded."""
        if not 0 < p < 1:
            raise ValueError(f"p is {p}, expected a number between 0 and 1, both excluded")
        return float(self.expected_seconds * np.exp(self.scale * student_t.ppf(p, self.freedom)))


@dataclass(frozen=True)
class Refusal:
    """No prediction. reason: one sentence."""

    reason: str


class Predictor:
    """What is known of how one application scales. Plain data: it can be pickled, and copied by pack and unpack."""

    def __init__(self, problems: Mapping[str, Runs], seed: int) -> None:
        self._problems = dict(problems)
        self._seed = seed

    def predict(
        self, problem: str, ranks: float, nodes: float | None = None, size: float | None = None
    ) -> Prediction | Refusal:
        """The runtime of `problem` on so many ranks. A problem never seen rests on the others of the application.

        Raises ValueError for ranks, nodes or size that are none.
        """
        Runs.of([ranks], [1.0], nodes=None if nodes is None else [nodes], size=None if size is None else [size])
        runs = self._problems.get(problem)
        if runs is None or runs.scales.size < 2:
            return Refusal(f"{problem} was seen at {0 if runs is None else runs.scales.size} scales, expected 2")
        basis = _terms(runs.ranks) / runs.seconds[:, None]
        weights, _ = nnls(basis, np.ones(len(runs)))
        middle = float((_terms(np.array([float(ranks)])) @ weights)[0])
        scale, freedom = 0.15 + 0.1 * abs(float(np.log(ranks / runs.scales[-1]))), 4.0
        reach = scale * float(student_t.ppf(0.975, freedom))
        return Prediction(
            middle,
            middle * float(np.exp(-reach)),
            middle * float(np.exp(reach)),
            {"s + w/p + c log p": 1.0},
            len(runs),
            runs.scales.size,
            int(runs.scales[-1]),
            0,
            (),
            (),
            scale,
            freedom,
        )

    def update(self, problem: str, runs: Runs) -> None:
        """Learn finished runs."""
        known = self._problems.get(problem)
        self._problems[problem] = runs if known is None else known.joined(runs)

    def pack(self) -> dict[str, object]:
        """The state as plain containers and arrays: what unpack takes."""
        return {
            "seed": self._seed,
            "problems": {
                name: {"ranks": r.ranks, "nodes": r.nodes, "size": r.size, "seconds": r.seconds}
                for name, r in self._problems.items()
            },
        }


def fit(problems: Mapping[str, Runs], *, seed: int = 0) -> Predictor:
    """Learn how an application scales from the runs of its problems, which are pooled. seed: of all chance in it."""
    return Predictor(problems, seed)


def unpack(state: Mapping[str, object]) -> Predictor:
    """The predictor that pack described."""
    problems = {name: Runs(**columns) for name, columns in state["problems"].items()}  # type: ignore[attr-defined]
    return Predictor(problems, int(state["seed"]))  # type: ignore[call-overload]


def _terms(ranks: Floats) -> Floats:
    return np.stack([np.ones(ranks.size), 1 / ranks, np.log(ranks)], axis=1)
