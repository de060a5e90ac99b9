"""Fits by other processes: any order, death, slowness, and what the modeler does meanwhile."""

from __future__ import annotations

import logging
import math
from collections import Counter
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

from barograph_modeler.bands.class_model import WINDOW, ClassModel, fit_gev
from barograph_modeler.bands.moments import Blocks
from barograph_modeler.learning.learner import Learner
from barograph_modeler.learning.workload import Workload
from barograph_modeler.refits import dispatch as module
from barograph_modeler.refits.batch import OtherVersion, fit_windows, version
from barograph_modeler.refits.dispatch import (
    IDLE_SECONDS,
    MAX_BATCH_SECONDS,
    MIN_BATCHES,
    RETRY_SECONDS,
    SLOW_SECONDS,
    Dispatch,
)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class FakeWorkers(Executor):
    """An executor whose tasks are done when the test says. refusal: raised instead of accepting a task."""

    name = "the workers"
    batches = 4

    def __init__(self):
        self.tasks = []
        self.refusal = None
        self.connecting = False
        self.left = 0

    def executor(self):
        if isinstance(self.refusal, OSError):
            raise self.refusal
        return None if self.connecting else self

    def close(self):
        self.left += 1

    def submit(self, function, *arguments):
        if self.refusal is not None:
            raise self.refusal
        future = Future()
        self.tasks.append((future, function, arguments))
        return future

    def do(self, number=0):
        future, function, arguments = self.tasks.pop(number)
        if not future.cancelled():
            future.set_result(function(*arguments))

    def fail(self, error, number=0):
        future = self.tasks.pop(number)[0]
        if not future.cancelled():
            future.set_exception(error)


@pytest.fixture
def few(monkeypatch):
    """Batches of 10 fits, from 20 classes on. The modeler fits each class by itself."""
    monkeypatch.setattr(module, "BATCH", 10)
    monkeypatch.setattr(module, "MIN_WAITING", 20)
    monkeypatch.setattr("barograph_modeler.learning.learner.TOGETHER", 1)
    monkeypatch.setattr("barograph_modeler.bands.class_model.judge_all", quick)


class _Quick:
    """A verdict without a bootstrap."""

    def __init__(self, sample, seed):
        from barograph_modeler.maxima.distribution import Gevs
        from barograph_modeler.maxima.fits.pwm import fit_pwm

        self.pwm = fit_pwm(sample)
        self.trusted = bool(seed)
        self.replicas = Gevs(*(np.array([one]) for one in (self.pwm.location, self.pwm.scale, self.pwm.shape)))


def quick(samples, *, seed):
    return [_Quick(sample, seed) for sample in samples]


def full(workload, classes, seed=0):
    """Add classes that wait for a fit; returns their keys."""
    for class_id in range(classes):
        model = workload.intervals[class_id] = ClassModel()
        values = np.random.default_rng((seed, class_id)).lognormal(0, 0.05, 40)
        model.learn(Blocks.of_values(values), np.arange(40.0))
    return [("w", class_id) for class_id in range(classes)]


def learner_with(classes, workers=None, clock=None, *, alone=False):
    """alone: without workers. The learner itself fits one class in each step."""
    dispatch = None if alone else Dispatch(workers, seed=1, clock=clock)
    ticks = iter(range(10**9))
    learner = Learner(seed=1, refit_seconds=0.0, workers=dispatch, clock=lambda: float(next(ticks)))
    learner.workloads["w"] = Workload()
    for key in full(learner.workloads["w"], classes):
        learner.backlog.add(key, 1.0)
    return learner


def bands_of(learner):
    return {number: (one.bands, one.trusted) for number, one in learner.workloads["w"].intervals.items()}


def fitted_rows(outputs):
    return Counter(int(one) for output in outputs for one in set(np.atleast_1d(output.columns["class_id"])))


def test_few_classes_are_fitted_by_the_modeler_alone(few):
    workers = FakeWorkers()
    learner = learner_with(19, workers, Clock())
    while learner.backlog:
        learner.step(0.0)
    assert (workers.tasks, learner.fitted_here, learner.workers.fitted) == ([], 19, 0)


def test_many_are_fitted_elsewhere_in_any_order_and_come_to_the_same(few):
    workers = FakeWorkers()
    learner, alone = learner_with(60, workers, Clock()), learner_with(60, alone=True)
    rng, rows = np.random.default_rng(3), Counter()
    while learner.backlog:
        rows += fitted_rows(learner.step(0.0))
        if workers.tasks:
            workers.do(rng.integers(len(workers.tasks)))
    while alone.backlog:
        alone.step(0.0)
    assert bands_of(learner) == bands_of(alone)
    assert rows == Counter(range(60))
    assert learner.workers.fitted >= 40
    assert learner.fitted_here + learner.workers.fitted == 60


@pytest.mark.parametrize(("seconds", "most"), [(0.5, 16), (20.0, MIN_BATCHES)], ids=["quick", "slow"])
def test_more_is_sent_to_quick_workers_and_no_more_than_they_take(few, seconds, most):
    workers, clock, sent = FakeWorkers(), Clock(), []
    workers.batches = 16
    learner = learner_with(600, workers, clock)
    while learner.backlog.waiting > 20:
        learner.step(0.0)
        sent.append(len(workers.tasks))
        clock.now += seconds
        while workers.tasks:
            workers.do()
    assert (sent[0], max(sent)) == (MIN_BATCHES, most)


@pytest.mark.parametrize("error", [BrokenProcessPool("a process ended"), OtherVersion("0.0.9"), MemoryError()])
def test_workers_that_die_are_left_for_a_while_and_what_they_had_is_fitted_here(few, caplog, error):
    caplog.set_level(logging.INFO)
    workers, clock = FakeWorkers(), Clock()
    learner = learner_with(80, workers, clock)
    learner.step(0.0)
    workers.do(0)
    workers.fail(error)
    learner.step(0.5)
    assert learner.workers.fitted == 10
    assert learner.workers.failures == {"lost": 1}
    assert learner.workers.is_failed
    assert workers.left == 1
    assert len(learner.backlog) == 80 - 10 - learner.fitted_here
    sent = len(workers.tasks)
    clock.now += RETRY_SECONDS - 1
    learner.step(1.0)
    assert len(workers.tasks) == sent
    clock.now += 2
    learner.step(1.5)
    assert len(workers.tasks) > sent
    workers.do(len(workers.tasks) - 1)
    learner.step(2.0)
    assert not learner.workers.is_failed
    lost, back = (one.message for one in caplog.records)
    assert lost == (
        f"the workers: {type(error).__name__}: {error}; the modeler fits by itself, and tries again in 60 seconds"
    )
    assert back == "the workers: fits again"


def test_workers_that_never_answer_are_given_up_and_the_modeler_fits_everything(few):
    workers, clock = FakeWorkers(), Clock()
    learner, steps = learner_with(60, workers, clock), 0
    while learner.backlog:
        learner.step(0.0)
        clock.now += 0.5
        steps += 1
    assert learner.fitted_here == 60
    assert learner.workers.failures == {"slow": 1}
    assert 2 * SLOW_SECONDS <= steps < 2 * SLOW_SECONDS + 60


def test_a_task_that_hangs_while_others_are_done_is_given_up_later(few):
    workers, clock = FakeWorkers(), Clock()
    learner = learner_with(60, workers, clock)
    learner.step(0.0)
    while not learner.workers.failures:
        for class_id in range(60):  # there is always more to do
            learner.backlog.add(("w", class_id), 1.0)
        clock.now += SLOW_SECONDS / 2
        workers.do(1)
        learner.step(0.0)
    assert clock.now == 1000 + MAX_BATCH_SECONDS
    assert learner.workers.failures == {"slow": 1}


@pytest.mark.parametrize("refusal", [OSError("no scheduler"), RuntimeError("closed")])
def test_workers_that_cannot_be_reached_are_tried_once_a_minute(few, refusal):
    workers, clock = FakeWorkers(), Clock()
    workers.refusal = refusal
    learner = learner_with(400, workers, clock)
    for _ in range(250):
        learner.step(0.0)
        clock.now += 0.5
    assert learner.workers.failures == {"refused": 3}
    assert learner.fitted_here == 250
    assert len(learner.backlog) == 150


def test_while_workers_are_connected_to_the_modeler_fits(few):
    workers = FakeWorkers()
    workers.connecting = True
    learner = learner_with(60, workers, Clock())
    learner.step(0.0)
    assert (learner.fitted_here, len(learner.backlog), learner.workers.failures.total()) == (1, 59, 0)
    workers.connecting = False
    learner.step(0.5)
    assert workers.tasks


def test_workers_without_work_are_left(few):
    workers, clock = FakeWorkers(), Clock()
    learner = learner_with(40, workers, clock)
    while learner.backlog:
        learner.step(0.0)
        while workers.tasks:
            workers.do()
    clock.now += IDLE_SECONDS - 1
    learner.step(0.0)
    assert workers.left == 0
    clock.now += 2
    learner.step(0.0)
    learner.step(0.0)
    assert workers.left == 1


def test_what_is_learned_while_a_class_is_fitted_elsewhere_is_fitted_afterwards(few):
    workers = FakeWorkers()
    learner = learner_with(60, workers, Clock())
    learner.step(0.0)
    key = learner.workers._batches[0].loans[0].key
    interval = learner.workloads["w"].intervals[key[1]]
    interval.learn(Blocks.of_values(np.full(40, 2.0) + np.arange(40) / 100), np.arange(40.0, 80.0))
    learner.backlog.add(key, 5.0)
    while learner.backlog:
        while workers.tasks:
            workers.do()
        learner.step(0.0)
    again = fit_gev(interval.history.values, 1)
    assert interval.bands[1:] == again.bands
    assert interval.fresh == 0


def test_what_is_fitted_elsewhere_when_a_snapshot_is_taken_waits_after_it_is_restored(few):
    workers = FakeWorkers()
    learner = learner_with(60, workers, Clock())
    learner.step(0.0)
    assert workers.tasks
    other = learner_with(0, alone=True)
    other.restore(learner.state())
    assert len(other.backlog) == other.backlog.waiting == 59
    while other.backlog:
        other.step(0.0)
    assert all(one.bands for one in other.workloads["w"].intervals.values())


@pytest.mark.parametrize("seed", range(5))
def test_whatever_workers_do_every_class_is_fitted(few, seed):
    rng, workers, clock = np.random.default_rng(seed), FakeWorkers(), Clock()
    learner, alone = learner_with(150, workers, clock), learner_with(150, alone=True)
    for _ in range(2000):
        clock.now += rng.exponential(10)
        event = rng.random()
        workers.refusal = RuntimeError("closed") if event < 0.1 else OSError("gone") if event < 0.2 else None
        workers.connecting = bool(rng.random() < 0.3)
        if workers.tasks and event > 0.4:
            number = rng.integers(len(workers.tasks))
            if event > 0.9:
                workers.fail(BrokenProcessPool(), number)
            else:
                workers.do(number)
        learner.step(clock.now)
        if not learner.backlog:
            break
    while alone.backlog:
        alone.step(0.0)
    assert bands_of(learner) == bands_of(alone)


def test_a_worker_of_another_version_says_so():
    with pytest.raises(OtherVersion, match=f"the worker has barograph {version()}, expected 9.9"):
        fit_windows([np.ones(3)], 0, "9.9")


def test_windows_are_fitted_as_by_the_class():
    values = np.random.default_rng(1).lognormal(0, 0.05, WINDOW)
    model = ClassModel()
    model.learn(Blocks.of_values(values), np.arange(float(WINDOW)))
    (fit,) = fit_windows([model.history.values], 7, version())
    model.refit(7)
    assert (fit.trusted, fit.bands) == (model.trusted, model.bands[1:])
    assert [one.method for one in fit.bands] == ["gev", "bootstrap"]
    assert all(math.isfinite(one.upper) for one in fit.bands)
