"""Extra-P as a rival, if it is installed (`barograph[rivals]`): negative exponents, medians."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from barograph_lab.studies.rivals.laws import Model, each, of_one_size
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

FEWEST = 3
"""Scales. Extra-P warns below 5, but is fitted like every other rival."""


def models() -> tuple[Model, ...]:
    """Extra-P as a model; empty if it is not installed."""
    if importlib.util.find_spec("extrap") is None:
        return ()
    return (Model("extra-p", "Extra-P, medians over repeats", each(of_one_size(search, FEWEST))),)


def search(runs: Runs) -> Callable[[Floats], Floats]:
    """Extra-P's model of seconds over ranks. Raises ValueError if it finds none."""
    from extrap.entities.coordinate import Coordinate
    from extrap.entities.measurement import Measure, Measurement
    from extrap.modelers.single_parameter.basic import SingleParameterModeler

    modeler = SingleParameterModeler()
    modeler.allow_negative_exponents = True
    modeler.use_measure = Measure.MEDIAN
    measurements = [
        Measurement(Coordinate(float(scale)), None, None, runs.seconds[runs.ranks == scale].tolist())
        for scale in runs.scales
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = modeler.create_model(measurements)
    if model is None:
        raise ValueError("Extra-P found no model")
    function = model.hypothesis.function
    return lambda ranks: np.array([float(function.evaluate(float(p))) for p in ranks])
