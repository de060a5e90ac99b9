"""The test of the delay at equal progress."""

import numpy as np
import pytest

from barograph_alerts.detection.delay import DelayTest
from barograph_modeler.pace.progress import ProgressProfile, fit_progress
from barograph_modeler.pace.timeline import Timeline
from barograph_modeler.pace.windows import Window
from helpers.trials import windows

RISK = 0.001
MARGIN = 0.05
TOLERANCE = 0.2


def progress(runs: int, steps: int = 60) -> ProgressProfile:
    """Runs of one second a step that differ by 1 %."""
    noise = np.random.default_rng(5).normal(0, 0.01, (runs, steps))
    timelines = [Timeline() for _ in range(runs)]
    for timeline, row in zip(timelines, noise, strict=True):
        timeline.add(windows(np.exp(row).tolist()))
    found = fit_progress(timelines)
    assert found is not None
    return found


def judged(test: DelayTest, seconds: list[float]) -> list[float]:
    """The scores after each window."""
    scores = []
    for window in windows(seconds):
        test.add(window)
        scores.append(test.score)
    return scores


def late_after(scores: list[float]) -> int | None:
    """Number of windows until a score above 1."""
    return next((i + 1 for i, score in enumerate(scores) if score > 1), None)


def test_a_job_like_its_history_is_not_late() -> None:
    noise = np.random.default_rng(9).normal(0, 0.01, 60)
    assert max(judged(DelayTest(progress(4), RISK, MARGIN, TOLERANCE), np.exp(noise).tolist())) < 0.2


@pytest.mark.parametrize(("factor", "within"), [(1.1, 40), (1.5, 6), (3.0, 3)])
def test_a_job_that_becomes_slower_is_late(factor: float, within: int) -> None:
    test = DelayTest(progress(4), RISK, MARGIN, TOLERANCE)
    found = late_after(judged(test, [1.0] * 20 + [factor] * 40))
    assert found is not None
    assert 20 < found <= 20 + within
    assert test.started_at == pytest.approx(20.0)
    assert test.slowdown == pytest.approx(factor, rel=0.01)


def test_one_run_allows_gross_statements_only() -> None:
    gross, small = ([1.0] * 20 + [factor] * 40 for factor in (2.0, 1.15))
    assert late_after(judged(DelayTest(progress(1), RISK, MARGIN, TOLERANCE), gross)) is not None
    assert late_after(judged(DelayTest(progress(1), RISK, MARGIN, TOLERANCE), small)) is None


def test_time_counts_while_the_next_point_is_overdue() -> None:
    test = DelayTest(progress(4), RISK, MARGIN, TOLERANCE)
    judged(test, [1.0] * 30)
    test.wait({1: 3}, 31.0)
    assert test.score < 0.2
    test.wait({1: 3}, 36.0)
    assert test.score > 1
    assert test.started_at == pytest.approx(30.0)
    assert test.slowdown > 4


def test_further_progress_than_known_points_is_no_delay() -> None:
    test = DelayTest(progress(4), RISK, MARGIN, TOLERANCE)
    judged(test, [1.0] * 30)
    test.wait({1: 10}, 60.0)
    assert test.score < 0.2


def test_a_job_that_goes_on_after_the_end_of_its_history_is_not_late() -> None:
    test = DelayTest(progress(4), RISK, MARGIN, TOLERANCE)
    assert max(judged(test, [1.0] * 60 + [5.0] * 20)) < 0.2
    test.wait({}, 1000.0)
    assert test.score < 0.2


def test_intervals_of_classes_that_the_history_does_not_have_are_no_delay() -> None:
    for others, late in ((set[int](), False), ({7}, True)):
        test = DelayTest(progress(4), RISK, MARGIN, TOLERANCE, others)
        judged(test, [1.0] * 20)
        scores = []
        for i in range(30):
            test.add(Window({7: 10}, {7: 1.0}, 20.0 + i, 21.0 + i))
            scores.append(test.score)
        assert (max(scores) > 1) == late
    # Known ones are compared again, from where the job was.
    test = DelayTest(progress(4), RISK, MARGIN, TOLERANCE)
    for i in range(30):
        test.add(Window({7: 10}, {7: 1.0}, float(i), i + 1.0))
    assert not test.has_progress
    for i in range(20):
        test.add(Window({1: 10}, {1: 3.0}, 30.0 + 3 * i, 33.0 + 3 * i))
    assert test.has_progress
    assert test.score > 1
    assert test.started_at >= 30.0


def test_the_time_of_an_excursion_that_was_ended_does_not_count() -> None:
    test = DelayTest(progress(4), RISK, MARGIN, TOLERANCE)
    judged(test, [1.0] * 30)
    test.wait({}, 100.0)
    assert test.score > 1
    test.reset()
    for i in range(10):
        test.add(Window({1: 10}, {1: 1.0}, 100.0 + i, 101.0 + i))
    assert test.score < 0.2
