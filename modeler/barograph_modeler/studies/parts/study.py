"""Simulated scenarios: learn on few ranks, predict on many, by phases and by laws of the total."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.parts.measurement import PhaseRun
from barograph_modeler.parts.predictor import PhasesPredictor
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Prediction, fit
from barograph_modeler.studies.parts.noise import Noise
from barograph_modeler.studies.parts.scenario import TARGETS, Scenario, draw_scenario
from barograph_modeler.studies.parts.simulator import simulate
from barograph_modeler.studies.rivals.laws import MODELS
from barograph_modeler.studies.runs import over_known

OURS: Final = "parts"
TOTAL: Final = "barograph"
LAW: Final = "amdahl-log"


@dataclass(frozen=True)
class ScenarioError:
    """One model's prediction of one run. error: predicted over observed, minus 1; None without an answer.

    inside: whether the observed time is inside the 95 % limits; None without limits. parts: predicted seconds.
    """

    scenario: int
    is_strong: bool
    ranks: int
    model: str
    observed: float
    error: float | None
    inside: bool | None
    parts: dict[str, float] = field(default_factory=dict)


def study(
    scenarios: int, seed: int, traces: Sequence[Noise] = (), finished: Callable[[], None] = lambda: None
) -> Iterator[ScenarioError]:
    """Errors of all models in seeded scenarios. finished: called after each."""
    for number in range(scenarios):
        rng = np.random.default_rng([seed, number])
        scenario = draw_scenario(rng, traces)
        yield from score(scenario, number, rng)
        finished()


def score(scenario: Scenario, number: int, rng: np.random.Generator) -> Iterator[ScenarioError]:
    """Errors of all models in one scenario."""
    learned = [simulate(scenario, ranks, size, rng) for ranks, size in scenario.learned()]
    phases = PhasesPredictor(learned, seed=number)
    totals = fit({"": _runs(learned)})
    law = _law(scenario, learned)
    for ranks in TARGETS:
        size = scenario.size(ranks)
        observed = simulate(scenario, ranks, size, rng).seconds

        def row(model: str, seconds: float | None, ranks: int = ranks, observed: float = observed) -> dict[str, Any]:
            error = None if seconds is None else seconds / observed - 1
            return {"scenario": number, "is_strong": scenario.is_strong, "ranks": ranks, "model": model,
                    "observed": observed, "error": error}  # fmt: skip

        ours = phases.predict(ranks, size)
        inside = ours.lower_seconds <= observed <= ours.upper_seconds
        yield ScenarioError(**row(OURS, ours.expected_seconds), inside=inside, parts=dict(ours.parts))
        total = totals.predict("", ranks, size=size)
        if isinstance(total, Prediction):
            inside = total.lower_seconds <= observed <= total.upper_seconds
            yield ScenarioError(**row(TOTAL, total.expected_seconds), inside=inside)
        else:
            yield ScenarioError(**row(TOTAL, None), inside=None)
        yield ScenarioError(**row(LAW, law(float(ranks))), inside=None)


def summarize(rows: Sequence[ScenarioError]) -> list[dict[str, Any]]:
    """A row per scale and model, and per model over all scales (ranks None).

    median_ape, mean_ape: of absolute errors over scenarios with an answer; coverage_95: share inside the limits.
    """
    summary = []
    for ranks in (*TARGETS, None):
        for model in (OURS, TOTAL, LAW):
            mine = [row for row in rows if row.model == model and ranks in (row.ranks, None)]
            errors = [None if row.error is None else abs(row.error) for row in mine]
            summary.append(
                {
                    "ranks": ranks,
                    "model": model,
                    "runs": len(mine),
                    "refused": sum(row.error is None for row in mine),
                    "median_ape": over_known(np.median, errors),
                    "mean_ape": over_known(np.mean, errors),
                    "coverage_95": over_known(
                        np.mean, (None if one.inside is None else float(one.inside) for one in mine)
                    ),
                }
            )
    return summary


def _runs(learned: Sequence[PhaseRun]) -> Runs:
    ranks, sizes, seconds = (np.array([getattr(run, one) for run in learned]) for one in ("ranks", "size", "seconds"))
    return Runs.of(ranks, seconds, size=sizes)


def _law(scenario: Scenario, learned: Sequence[PhaseRun]) -> Callable[[float], float | None]:
    """Amdahl's law with a logarithm, from the runs of the problem, or of the weak series, that is asked for."""
    own = [run for run in learned if np.isclose(run.size, scenario.size(run.ranks))]
    runs = _runs(own)
    model = next(one for one in MODELS if one.name == LAW)
    curve = model.fit({"": Runs.of(runs.ranks, runs.seconds)}, 0)[""]
    if isinstance(curve, str):
        return lambda ranks: None

    def seconds(ranks: float) -> float | None:
        found: Floats = curve(np.array([ranks]), np.array([np.nan]), np.ones(1))
        return float(found[0]) if np.isfinite(found[0]) else None

    return seconds
