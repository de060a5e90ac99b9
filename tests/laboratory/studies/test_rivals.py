"""The rivals: each recovers its own law, gives a reason without an answer, and answers learned sizes only."""

import numpy as np
import pytest

from barograph_lab.studies.rivals import laws
from barograph_modeler.scaling.history import Runs

EVERY = {model.name: model for model in laws.MODELS}
MODELS = {name: model for name, model in EVERY.items() if name != "wide"}  # no law of ranks
SCALES = np.array([1.0, 2, 4, 8, 16])
LAWS = {
    "amdahl": lambda p: 3 + 100 / p,
    "amdahl-log": lambda p: 3 + 100 / p + 0.5 * np.log(p),
    "ernest": lambda p: 3 + 100 / p + 0.5 * np.log(p) + 0.01 * p,
    "log-linear": lambda p: 100 * p**-0.8,
    "barnes-quadratic": lambda p: np.exp(4 - 0.9 * np.log2(p) + 0.03 * np.log2(p) ** 2),
    "square-root": lambda p: 0.1 * p + 100 / p + 20 / np.sqrt(p),
    "square-root-seconds": lambda p: 0.1 * p + 100 / p + 20 / np.sqrt(p),
    "geometric": lambda p: 100 * 0.4 ** np.log2(p) + 5,
}


def curve(name, runs):
    return EVERY[name].fit({"a": runs}, 0)["a"]


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
    least = 2 if name in ("amdahl", "amdahl-log", "ernest", "log-linear") else 3
    reason = curve(name, Runs.of([4, 4, 4], [2.0, 2.1, 2.2]))
    if name in ("log-linear", "barnes-quadratic"):  # of all sizes together
        assert reason == f"1 scales, expected {least}"
    else:
        assert reason == f"one size was seen at 1 scales at most, expected {least}"


def test_the_law_of_wide_scaling_is_fitted_over_sizes_at_fixed_ranks():
    """b (1 + a)**log2 N + c with a = 1 is b N + c."""
    ranks, size = (column.ravel() for column in np.meshgrid([4.0, 16.0, 64.0], [100.0, 200.0, 400.0, 800.0]))
    few = np.array([True] * 9 + [True, True, False])  # the largest size was not run on 64 ranks
    found = curve("wide", Runs.of(ranks[few], (3 + 0.5 * size / ranks)[few], size=size[few]))
    assert at(found, 16, 3200.0) == pytest.approx(3 + 0.5 * 3200 / 16, rel=1e-4)
    assert at(found, 64, 800.0) == pytest.approx(3 + 0.5 * 800 / 64, rel=1e-4)
    assert np.isnan(at(found, 32, 100.0))
    reason = curve("wide", Runs.of([4, 4, 8], [1.0, 2.0, 3.0], size=[1.0, 2.0, 4.0]))
    assert reason == "one number of ranks was seen with 2 sizes at most, expected 3"


def barnes(p, size):
    return 3 * size**1.1 * p**-0.8 * np.exp2(0.03 * np.log2(p) ** 2)


def test_barnes_laws_have_a_term_in_size():
    """Each size is seen at two scales only: together they determine the parabola, and a size that was never run."""
    p, size = np.array([1.0, 2, 2, 4, 8, 16]), np.array([10.0, 10, 20, 20, 40, 40])
    found = curve("barnes-quadratic", Runs.of(p, barnes(p, size), size=size))
    assert at(found, 64, 80.0) == pytest.approx(barnes(64, 80.0))
    linear = curve("log-linear", Runs.of(p, size / p, size=size))
    assert at(linear, 64, 30.0) == pytest.approx(30 / 64)


@pytest.mark.parametrize("name", ["log-linear", "barnes-quadratic"])
def test_barnes_laws_answer_nothing_that_their_runs_leave_ambiguous(name):
    """Along a weak series the terms in ranks and size cannot be separated, but their sum on it can."""
    series = curve(name, Runs.of(SCALES, 5 * SCALES**0.1, size=1000 * SCALES))
    assert at(series, 64, 64_000.0) == pytest.approx(5 * 64**0.1)
    assert np.isnan(at(series, 64, 1000.0))
    alone = curve(name, Runs.of(SCALES, 100 / SCALES, size=np.full(SCALES.size, 10.0)))
    assert at(alone, 64, 10.0) == pytest.approx(100 / 64)
    assert np.isnan(at(alone, 64, 20.0))


def test_barnes_laws_take_a_size_of_several_numbers():
    p = np.array([1.0, 2, 4, 8, 2, 4])
    size = np.array([[10.0, 5], [10, 6], [20, 5], [20, 7], [30, 5], [30, 9]])
    seconds = size[:, 0] * size[:, 1] ** 0.5 / p
    found = curve("log-linear", Runs.of(p, seconds, size=size))
    assert found(np.array([64.0]), np.array([np.nan]), np.array([[40.0, 4.0]]))[0] == pytest.approx(80 / 64)


def test_copies_favour_large_scales():
    runs = Runs.of([4, 1, 2, 4], [1.0, 4.0, 2.0, 1.1])
    copies = laws.copied(runs)
    assert sorted(copies.ranks.tolist()) == [1.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    assert sorted(copies.seconds[copies.ranks == 4].tolist()) == [1.0, 1.0, 1.0, 1.1, 1.1, 1.1]
    bent = Runs.of(SCALES, 100 / SCALES + 3 * SCALES)  # no law of two terms fits it
    errors = {
        name: abs(at(model.fit({"a": bent}, 0)["a"], 16) / bent.seconds[-1] - 1)
        for name, model in (("once", MODELS["log-linear"]), ("copies", laws.with_copies(MODELS["log-linear"])))
    }
    assert errors["copies"] < 0.8 * errors["once"]


def test_a_fit_in_seconds_follows_the_longest_runs_and_a_relative_one_all():
    runs = Runs.of(SCALES, 1000 / SCALES**1.5 + 5)
    relative, absolute = (
        [abs(at(curve(name, runs), p) / seconds - 1) for p, seconds in zip(SCALES, runs.seconds, strict=True)]
        for name in ("square-root", "square-root-seconds")
    )
    assert max(relative) < max(absolute)
    assert absolute[0] < relative[0]


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
