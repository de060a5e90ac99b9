"""The rivals: each recovers its own law, gives a reason without an answer, and answers learned sizes only."""

import numpy as np
import pytest

from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.rivals import laws, pmnf

MODELS = {model.name: model for model in (*laws.MODELS, *pmnf.MODELS)}
SCALES = np.array([1.0, 2, 4, 8, 16])
LAWS = {
    "amdahl": lambda p: 3 + 100 / p,
    "amdahl-log": lambda p: 3 + 100 / p + 0.5 * np.log(p),
    "ernest": lambda p: 3 + 100 / p + 0.5 * np.log(p) + 0.01 * p,
    "log-linear": lambda p: 100 * p**-0.8,
    "barnes-quadratic": lambda p: np.exp(4 - 0.9 * np.log2(p) + 0.03 * np.log2(p) ** 2),
    "square-root": lambda p: 0.1 * p + 100 / p + 20 / np.sqrt(p),
    "geometric": lambda p: 100 * 0.4 ** np.log2(p) + 5,
    "pmnf": lambda p: 7 + 2 * p**0.5 * np.log2(p),
}


def curve(name, runs):
    return MODELS[name].fit({"a": runs}, 0)["a"]


def at(found, ranks, size=1.0):
    return found(np.array([float(ranks)]), np.array([np.nan]), np.array([size]))[0]


def test_every_law_is_tested():
    assert LAWS.keys() == MODELS.keys()


@pytest.mark.parametrize("name", LAWS)
def test_a_law_recovers_itself_and_extrapolates(name):
    found = curve(name, Runs.of(SCALES, LAWS[name](SCALES)))
    assert at(found, 64) == pytest.approx(LAWS[name](np.array(64.0)), rel=1e-4)


@pytest.mark.parametrize("name", LAWS)
def test_one_scale_is_too_few(name):
    wanted = 3 if name in ("barnes-quadratic", "square-root", "geometric", "pmnf") else 2
    said = curve(name, Runs.of([4, 4, 4], [2.0, 2.1, 2.2]))
    assert said == f"one size was seen at 1 scales at most, expected {wanted}"


def test_an_unseen_size_has_no_answer_and_each_size_its_own_law():
    p = np.tile(SCALES, 2)
    size = np.repeat([10.0, 20.0], SCALES.size)
    found = curve("amdahl", Runs.of(p, 0.1 * size + size / p, size=size))
    assert at(found, 64, 20.0) == pytest.approx(2 + 20 / 64)
    assert np.isnan(at(found, 64, 30.0))


def test_coefficients_that_would_be_negative_are_zero():
    """An unconstrained fit of 100 / p**1.2 has a negative constant: here s is 0 and only w/p remains."""
    found = curve("amdahl", Runs.of(SCALES, 100 / SCALES**1.2))
    assert at(found, 64) / at(found, 128) == pytest.approx(2)
