"""Workers of a training: the slow one is found without a history, and more data is not taken for a slow worker."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from barograph_alerts.detection.evidence import WORKERS, Evidence
from barograph_alerts.detection.worker_test import MAX_WORKERS, WorkerRow, WorkerTest

SECONDS = 2.0
STEPS = 20
UPDATE = 0.002
Shape = Callable[[int, int, np.random.Generator], tuple[float, float, float]]
"""Own work, processor time and update of a worker in a round, relative to 1."""


def rounds(count: int, workers: int, shape: Shape, sizes: Callable[[int], int] = lambda k: 4096, seed: int = 1):
    """Rows of workers whose steps take 80 ms of own work, and 20 ms more; all wait for the slowest."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        found = [shape(i, k, rng) for k in range(workers)]
        own = [0.08 * one * float(rng.lognormal(0, 0.01)) for one, _, _ in found]
        step = max(own) + 0.02
        for k, (_, used, update) in enumerate(found):
            noisy = UPDATE * update * float(rng.lognormal(0, 0.02))
            yield WorkerRow(
                f"n{k // 4}", k, STEPS, own[k], 0.08 * used, noisy, step - own[k], sizes(k), SECONDS * (i + 1)
            )


def judged(rows, workers: int) -> Evidence:
    evidence = Evidence(None)
    for row in rows:
        evidence.add_worker(row, workers)
    return evidence


def slow(i: int, k: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Worker 1 computes more slowly."""
    return (1.2, 1.2, 1.2) if k == 1 else (1.0, 1.0, 1.0)


def starved(i: int, k: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Worker 1 waits for a core, or for its input."""
    return (1.2, 1.0, 1.0) if k == 1 else (1.0, 1.0, 1.0)


@pytest.mark.parametrize("shape", [slow, starved])
@pytest.mark.parametrize(("workers", "seconds"), [(2, 36), (4, 20), (8, 14), (64, 8), (1000, 6)])
def test_the_worker_that_is_slow_from_its_first_step_is_found(shape: Shape, workers: int, seconds: float) -> None:
    evidence = judged(rounds(30, workers, shape), workers)
    (alarm,) = evidence.alarms
    assert (alarm.kind, alarm.basis, alarm.ended_at) == ("slow", WORKERS, None)
    assert alarm.detected_at <= seconds
    assert evidence.slow_worker is not None
    assert (evidence.slow_worker.host, evidence.slow_worker.rank) == ("n0", 1)
    assert evidence.slow_worker.delay == pytest.approx(0.016, rel=0.2)
    assert alarm.slowdown == pytest.approx(0.116 / 0.1, rel=0.03)
    assert alarm.onset_at == pytest.approx(0.0, abs=SECONDS)


@pytest.mark.parametrize(
    ("what", "shape"),
    [
        ("all are alike", lambda i, k, rng: (1.0, 1.0, 1.0)),
        ("data differ from round to round", lambda i, k, rng: (x := float(rng.lognormal(0, 0.3)), x, 1.0)),
        ("one always has more data", lambda i, k, rng: (1.5, 1.5, 1.0) if k == 1 else (1.0, 1.0, 1.0)),
        ("one is slower by less than the margin", lambda i, k, rng: (1.03, 1.03, 1.03) if k == 1 else (1.0, 1.0, 1.0)),
        ("updates of one take longer, which delays nobody", lambda i, k, rng: (1.0, 1.0, 2.0) if k == 1 else (1, 1, 1)),
        ("one is slow now and then", lambda i, k, rng: (1.2, 1.0, 1.0) if k == i % 7 else (1.0, 1.0, 1.0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("workers", [2, 8])
def test_nobody_is_blamed_where(what: str, shape: Shape, workers: int) -> None:
    assert not judged(rounds(200, workers, shape), workers).alarms


def test_stages_of_a_pipeline_are_not_compared() -> None:
    stages = rounds(100, 4, lambda i, k, rng: (1 + 0.3 * k, 1.0, 1 + 0.3 * k), sizes=lambda k: 4096 * (1 + k))
    assert not judged(stages, 4).alarms


def test_false_alarms_are_within_alpha() -> None:
    """Workers of which each is the last in turn at random, with noise in all that is compared."""

    def shape(i: int, k: int, rng: np.random.Generator) -> tuple[float, float, float]:
        return float(rng.lognormal(0, 0.2)), float(rng.lognormal(0, 0.2)), float(rng.lognormal(0, 0.2))

    alarmed = sum(
        any(test.add(row) and test.score > 1 for row in rounds(60, 2, shape, seed=seed))
        for seed in range(200)
        for test in [WorkerTest(0.05, 0.05, 2)]
    )
    assert alarmed <= 18  # 10 expected at most, 18 in 1 of 100 cases


def test_rows_that_are_lost_and_workers_that_are_missing_end_no_test() -> None:
    rows = [row for number, row in enumerate(rounds(60, 2, slow)) if number % 5]
    assert [alarm.basis for alarm in judged(rows, 2).alarms] == [WORKERS]
    assert not judged((row for row in rounds(60, 3, slow) if row.rank < 2), 3).alarms


def test_numbers_of_workers_that_no_training_has_are_not_compared_and_take_no_memory() -> None:
    for workers in (-1, 0, 1, MAX_WORKERS + 1, 2**62):
        test = WorkerTest(0.05, 0.05, workers)
        assert not any(test.add(row) for row in rounds(4, 2, slow))
        assert (test.score, test.slow()) == (0.0, None)
    strangers = (row._replace(rank=rank) for row in rounds(1, 1, slow) for rank in (2, 3, 2**31))
    assert not any(WorkerTest(0.05, 0.05, 2).add(row) for row in strangers)


def test_an_alarm_ends_when_the_worker_is_like_the_others_again() -> None:
    def shape(i: int, k: int, rng: np.random.Generator) -> tuple[float, float, float]:
        return (1.2, 1.2, 1.2) if k == 1 and i < 20 else (1.0, 1.0, 1.0)

    (alarm,) = judged(rounds(40, 4, shape), 4).alarms
    assert alarm.ended_at == pytest.approx(SECONDS * 20, abs=SECONDS)
