"""Limits of predictions hold what they promise on programs of several kinds, whose truth is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

import numpy as np

from barograph_modeler.scaling.answer import Prediction
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import fit

APPLICATIONS: Final = 200
Law = Callable[[float, float], float]
"""Seconds over ranks and size."""


def laws(rng: np.random.Generator) -> dict[str, Law]:
    work = 10 ** rng.uniform(1.5, 4)
    serial, message = work * 10 ** rng.uniform(-4, -1.5), work * 10 ** rng.uniform(-5, -3)
    turn, fall, growth = 2 ** rng.uniform(3, 8), rng.uniform(0.7, 1.05), rng.uniform(0.8, 1.3)
    return {
        "Amdahl": lambda p, n: serial + work * n / p,
        "power law": lambda p, n: work * n / p**fall,
        "logarithm": lambda p, n: serial + work * n / p + message * np.log2(p),
        "growing overhead": lambda p, n: work * n / p + 0.05 * message * p,
        "saturation": lambda p, n: work * n / min(p, turn),
        "weak": lambda p, n: work / 64 + 15 * message * np.log2(p),
        "sizes": lambda p, n: serial * n ** (2 / 3) + work * n**growth / p + message * np.log2(p),
        "cache": lambda p, n: work * n / p * (1 - 0.3 / (1 + (turn / p) ** 2)),
    }


def test_95_of_100_runs_are_within_the_limits_whatever_the_program_the_noise_and_the_number_of_runs() -> None:
    rng, inside = np.random.default_rng(7), defaultdict(list)
    kinds = list(laws(rng))
    for number in range(APPLICATIONS):
        kind = kinds[number % len(kinds)]
        law, noise, count = laws(rng)[kind], 0.005 * 60 ** rng.uniform(), int(rng.choice([1, 2, 3, 4, 8, 20]))
        scales = 2.0 ** np.arange(rng.integers(0, 4), rng.integers(5, 10))
        sizes = (1.0, 2.0, 4.0) if kind == "sizes" else (1.0,)
        rows = [(p, n, law(p, n) * rng.lognormal(0, noise)) for p in scales for n in sizes for _ in range(count)]
        ranks, of_size, seconds = map(np.array, zip(*rows, strict=True))
        predictor = fit({"a": Runs.of(ranks, seconds, size=of_size)})
        for factor, size, place in ((1, 1.0, "run"), (2, 1.0, "beyond"), (8, 1.0, "far"), (1, 3.0, "size")):
            if size in sizes or kind == "sizes":
                at = float(scales[-1]) * factor
                found = predictor.predict("a", at, size=size)
                assert isinstance(found, Prediction)
                answer = (found.lower_seconds, found.expected_seconds, found.upper_seconds, found.time_limit(0.01))
                assert np.isfinite(answer).all()
                assert 0 < answer[0] <= answer[1] <= answer[2]
                later = law(at, size) * rng.lognormal(0, noise, 20)
                share = float(np.mean((later >= answer[0]) & (later <= answer[2])))
                for key in (place, f"{place}, {kind}", f"{place}, {count} runs", f"{place}, noise {noise > 0.05}"):
                    inside[key].append(share)
    shares = {key: float(np.mean(some)) for key, some in inside.items()}
    assert 0.93 < shares["run"] < 0.98
    assert all(0.9 < shares[f"run, {count} runs"] <= 1 for count in (1, 2, 3, 4, 8, 20)), shares
    assert all(0.92 < shares[f"run, noise {is_loud}"] < 0.99 for is_loud in (False, True)), shares
    assert min(shares[place] for place in ("beyond", "far", "size")) > 0.93, shares
    # No scale shows overhead that is proportional to the ranks: the kind with the fewest runs inside.
    assert all(shares[f"far, {kind}"] > (0.65 if kind == "growing overhead" else 0.9) for kind in kinds), shares
