"""Runs of another length of like work: setup and pace, where a number of the runs counts their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application
from barograph_modeler.forecasts.lengths.law import LengthLaw, LengthScale
from barograph_modeler.forecasts.library import PredictorLibrary, Published
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.serving.answer import answer
from barograph_modeler.serving.question import Question
from helpers.executor import Inline
from helpers.features import inline_features
from helpers.phases import PhasedProgram, observe_run

APP = Application("lab", "solver")
PROGRAM = PhasedProgram(other=3.0, work=0.16)  # 3 s, and 20 ms an interval on 8 ranks


def learned(
    *runs: tuple[int, dict[str, int], int],
    with_rows: bool = True,
    work: Callable[[dict[str, int]], float] = lambda _: PROGRAM.work,
) -> Published:
    """What the service has published after runs: ranks, parameters, number of intervals. work: in an interval."""
    processor = ModelerProcessor(
        Learner(), Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), inline_features()
    )
    program = replace(PROGRAM)
    for number, (ranks, params, intervals) in enumerate(runs, 1):
        program.intervals, program.work = intervals, work(params)
        observe_run(processor, number, ranks, program.run(ranks), params, with_rows=with_rows)
    processor.step(0.0)
    return processor.forecaster.library.published[APP]


def seconds_of(ranks: int, intervals: int) -> float:
    """What a run takes in the mean."""
    return float(np.mean([replace(PROGRAM, intervals=intervals, seed=seed).run(ranks)[0] for seed in range(3)]))


@pytest.mark.parametrize("steps", [100, 800, 4000])
def test_of_one_length_another_is_predicted_as_setup_and_pace(steps: int):
    known = learned(*[(8, {"steps": 400, "grid": 64}, 400)] * 3)
    found = answer(known, Question("solver", 8, params={"steps": str(steps), "grid": "64"}))
    true = seconds_of(8, steps)
    assert found["expected_seconds"] == pytest.approx(true, rel=0.03)
    assert found["lower_seconds"] < true < found["upper_seconds"] < 1.6 * true
    assert found["conditions"][-1].startswith("A run takes 3")
    assert "for each of steps, which the number of intervals follows" in found["conditions"][-1]


def test_several_lengths_are_no_power_law():
    known = learned(*[(8, {"steps": steps}, steps) for steps in (100, 200, 400) for _ in range(2)])
    found, true = answer(known, Question("solver", 8, params={"steps": "4000"})), seconds_of(8, 4000)
    assert found["expected_seconds"] == pytest.approx(true, rel=0.03)
    power = answer(
        learned(*[(8, {"steps": steps}, steps) for steps in (100, 200, 400) for _ in range(2)], with_rows=False),
        Question("solver", 8, params={"steps": "4000"}),
    )
    assert abs(math.log(power["expected_seconds"] / true)) > 0.2


def test_a_length_at_a_scale_that_has_not_run_is_predicted_with_wider_limits():
    known = learned(*[(ranks, {"steps": 400}, 400) for ranks in (2, 4, 8) for _ in range(2)])
    found, true = answer(known, Question("solver", 16, params={"steps": "4000"})), seconds_of(16, 4000)
    usual = answer(known, Question("solver", 16, params={"steps": "400"}))
    assert found["lower_seconds"] < true < found["upper_seconds"]
    width = found["upper_seconds"] / found["lower_seconds"]
    assert width > usual["upper_seconds"] / usual["lower_seconds"]


def test_a_length_that_has_run_is_predicted_as_before():
    known = learned(*[(8, {"steps": steps}, steps) for steps in (100, 400) for _ in range(2)])
    found = answer(known, Question("solver", 8, params={"steps": "400"}))
    assert not any("for each of" in text for text in found["conditions"])


@pytest.mark.parametrize(
    "runs",
    [
        [(8, {"grid": 64}, 400)] * 2,
        [(8, {"grid": 400, "steps": 400}, 400)] * 2,
        [(8, {"steps": 8}, 8)] * 2,
        [(8, {"steps": 400}, 400), (8, {"steps": 400}, 300)],
    ],
    ids=["no number counts intervals", "two do", "too small", "it does not in each run"],
)
def test_a_number_that_is_not_found_to_be_the_length_is_none(runs):
    assert learned(*runs).space.lengths == {}


@pytest.mark.parametrize("counted", [lambda steps: steps // 50 - 1, lambda steps: 5 * steps], ids=["outputs", "inner"])
def test_a_length_that_intervals_are_proportional_to_is_found_once_two_have_run(counted: Callable[[int], int]):
    runs = [(8, {"steps": steps, "seed": 600}, counted(steps)) for steps in (1000, 2000) for _ in range(2)]
    assert learned(*runs[:2]).space.lengths == {}
    known = learned(*runs, work=lambda params: PROGRAM.work * params["steps"] / counted(params["steps"]))
    found = answer(known, Question("solver", 8, params={"steps": "8000", "seed": "600"}))
    collective = 2e-4 * math.log2(8)
    true = 3 + 8000 * PROGRAM.work / 8 + counted(8000) * collective
    assert found["expected_seconds"] == pytest.approx(true, rel=0.1)
    assert "for each of steps, which" in found["conditions"][-1]


def test_a_number_that_differs_from_run_to_run_without_the_intervals_is_no_length():
    runs = [(8, {"seed": seed}, 400) for seed in (300, 900, 2000)]
    assert learned(*runs).space.lengths == {}
    runs = [(8, {"seed": seed}, count) for seed, count in ((300, 100), (900, 400), (2000, 500))]
    assert learned(*runs).space.lengths == {}


def test_a_number_that_is_a_size_too_is_no_length():
    runs = [(8, {"n": n}, n) for n in (400, 1600)]
    assert learned(*runs).space.lengths[""].name == "n"
    assert learned(*runs, work=lambda params: params["n"] / 2500).space.lengths == {}


@pytest.mark.parametrize("grid", [1, 64])
def test_the_pace_is_that_of_the_size_that_is_asked_for(grid: int):
    """3 s of setup: most of a run of the small grid, next to nothing of the large one."""
    sizes = [(8, {"steps": 400, "grid": grid}, 400) for grid in (1, 64) for _ in range(3)]
    known = learned(*sizes, work=lambda params: 0.02 * params["grid"])
    found = answer(known, Question("solver", 8, params={"steps": "1600", "grid": str(grid)}))
    program = replace(PROGRAM, intervals=1600, work=0.02 * grid)
    assert found["expected_seconds"] == pytest.approx(program.run(8)[0], rel=0.03)
    assert found["conditions"][-1].startswith("A run takes 3")


def test_the_ratio_of_lengths_is_that_of_setup_and_pace():
    law = LengthLaw("steps", ("100",), (LengthScale(8, 10.0, 0.1),))
    ratio, spread = law.ratio(8, 100, 400)
    assert ratio == pytest.approx((10 + 40) / (10 + 10))
    assert spread < 0.1
    assert law.ratio(64, 100, 400)[1] > spread
    sized = law._replace(scales=(LengthScale(8, 10.0, 0.1, (5.0,)), LengthScale(8, 10.0, 10.0, (500.0,))))
    assert [sized.ratio(8, 100, 400, (size,))[0] for size in (5.0, 400.0)] == [
        pytest.approx(ratio), pytest.approx(401 / 101),
    ]  # fmt: skip
    assert (law.nearest("100"), law.nearest("many"), law.nearest("5"), law.nearest("120")) == (None, None, None, "100")
