"""Fits by other processes: any order, death, slowness, and what the modeler does meanwhile."""

from __future__ import annotations

import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from barograph_collector.client.log_reader import LogReader
from barograph_modeler import workers as module
from barograph_modeler.bands.class_model import ClassModel, fit_gev, fit_gevs
from barograph_modeler.bands.moments import Blocks
from barograph_modeler.learning import learner as learner_module
from barograph_modeler.learning.learner import Learner
from barograph_modeler.learning.workload import Workload
from barograph_modeler.main import TABLES
from barograph_modeler.state.snapshot import FILE_NAME, Offsets, write_snapshot
from barograph_modeler.workers import (
    IDLE_SECONDS,
    RETRY_SECONDS,
    OtherVersion,
    Workers,
    call_as,
    dask_cluster,
    local_processes,
    version,
)
from helpers.dask import Cluster
from helpers.log import DEADLINE_SECONDS, collector_on
from helpers.up import Up
from helpers.works import new_modeler

WINDOWS = [np.random.default_rng(seed).lognormal(0, 0.05, 64) for seed in range(3)]
ORPHANS = """
import os, sys, time
from barograph_modeler.workers import local_processes
if __name__ == "__main__":
    print(local_processes(1)[0].submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class FakeProcesses(Executor):
    """Processes whose tasks are done when the test says. refusal: raised instead of accepting a task, or a start."""

    def __init__(self):
        self.tasks, self.refusal, self.ended = [], None, 0

    def start(self):
        if isinstance(self.refusal, OSError):
            raise self.refusal
        return self, self.end

    def end(self):
        self.ended += 1
        for future, _ in self.tasks:
            future.set_exception(RuntimeError("ended"))
        self.tasks.clear()

    def submit(self, function, /, *arguments):
        if self.refusal is not None:
            raise self.refusal
        future = Future()
        self.tasks.append((future, pickle.dumps((function, arguments))))
        return future

    def do(self, number=0):
        future, task = self.tasks.pop(number)
        function, arguments = pickle.loads(task)
        future.set_result(function(*arguments))

    def fail(self, error, number=0):
        self.tasks.pop(number)[0].set_exception(error)


def wait_for(condition, seconds=DEADLINE_SECONDS):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.005)
    return found


def settle(workers, processes):
    """Wait until each task in flight is with the processes, or over."""
    wait_for(lambda: sum(not one.done() for one in workers._sent.values()) == len(processes.tasks))


@pytest.fixture
def few(monkeypatch):
    """Batches of 10 fits, from 20 classes on. The modeler fits each class by itself."""
    monkeypatch.setattr(learner_module, "BATCH", 10)
    monkeypatch.setattr(learner_module, "MIN_WAITING", 20)
    monkeypatch.setattr(learner_module, "TOGETHER", 1)


def learner_with(classes, workers=None):
    """A learner with so many classes that wait; it fits one class in each step by itself."""
    ticks = iter(range(10**9))
    learner = Learner(seed=1, refit_seconds=0.0, workers=workers, clock=lambda: float(next(ticks)))
    workload = learner.workloads["w"] = Workload()
    for class_id in range(classes):
        model = workload.intervals[class_id] = ClassModel()
        model.learn(Blocks.of_values(np.random.default_rng(class_id).lognormal(0, 0.05, 40)), np.arange(40.0))
        learner.backlog.add(("w", class_id), 1.0)
    return learner


def bands_of(learner):
    return {number: (one.bands, one.trusted) for number, one in learner.workloads["w"].intervals.items()}


def fitted_rows(outputs):
    return Counter(int(one) for output in outputs for one in set(np.atleast_1d(output.columns["class_id"])))


@pytest.fixture
def processes():
    return FakeProcesses()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def workers(processes, clock):
    made = Workers("the workers", processes.start, 4, clock)
    yield made
    made.close()
    processes.end()


def test_few_classes_are_fitted_by_the_modeler_alone(few, workers, processes):
    learner = learner_with(19, workers)
    while learner.waiting:
        learner.step(0.0)
    assert (processes.tasks, learner.fitted_here, workers.done) == ([], 19, 0)


def test_many_are_fitted_elsewhere_in_any_order_and_come_to_the_same(few, workers, processes):
    learner, alone, rng, rows = learner_with(60, workers), learner_with(60), np.random.default_rng(3), Counter()
    while learner.waiting:
        rows += fitted_rows(learner.step(0.0))
        settle(workers, processes)
        if processes.tasks:
            processes.do(rng.integers(len(processes.tasks)))
            settle(workers, processes)
    while alone.waiting:
        alone.step(0.0)
    assert bands_of(learner) == bands_of(alone)
    assert rows == Counter(range(60))
    assert learner.fitted_elsewhere >= 30
    assert learner.fitted_here + learner.fitted_elsewhere == 60


@pytest.mark.parametrize("error", [BrokenProcessPool("a process ended"), OtherVersion("0.0.9"), MemoryError()])
def test_workers_that_die_are_left_for_a_while_and_what_they_had_is_fitted_here(
    few, workers, processes, clock, caplog, error
):
    caplog.set_level(logging.INFO)
    learner = learner_with(80, workers)
    learner.step(0.0)
    settle(workers, processes)
    processes.do(0)
    settle(workers, processes)
    processes.fail(error)
    settle(workers, processes)
    learner.step(0.5)
    assert (learner.fitted_elsewhere, workers.failures, workers.is_failed) == (10, 1, True)
    wait_for(lambda: processes.ended == 1)
    assert learner.waiting == 80 - 10 - learner.fitted_here
    clock.now += RETRY_SECONDS - 1
    learner.step(1.0)
    assert len(workers) == 0
    clock.now += 2
    learner.step(1.5)
    settle(workers, processes)
    processes.do()
    settle(workers, processes)
    learner.step(2.0)
    assert not workers.is_failed
    lost, back = (one.message for one in caplog.records)
    assert lost == (
        f"the workers: {type(error).__name__}: {error}; the modeler fits by itself, and tries again in 60 seconds"
    )
    assert back == "the workers: fits again"


def test_workers_that_never_answer_are_given_up_and_the_modeler_fits_everything(few, workers, processes, monkeypatch):
    monkeypatch.setattr(module, "TASK_SECONDS", 0.0)
    learner = learner_with(40, workers)
    while learner.waiting:
        learner.step(0.0)
        wait_for(lambda: all(one.done() for one in workers._sent.values()))
    assert (learner.fitted_here, workers.failures) == (40, 1)


@pytest.mark.parametrize("refusal", [OSError("no scheduler"), RuntimeError("closed")])
def test_workers_that_cannot_be_reached_are_tried_once_a_minute(few, workers, processes, clock, refusal):
    processes.refusal = refusal
    learner = learner_with(400, workers)
    for _ in range(250):
        learner.step(0.0)
        wait_for(lambda: all(one.done() for one in workers._sent.values()))
        clock.now += 0.5
    assert workers.failures == 3
    assert (learner.fitted_here, learner.waiting) == (250, 150)


def test_workers_without_work_end(few, workers, processes, clock):
    learner = learner_with(40, workers)
    while learner.waiting:
        learner.step(0.0)
        settle(workers, processes)
        while processes.tasks:
            processes.do()
            settle(workers, processes)
    clock.now += IDLE_SECONDS - 1
    learner.step(0.0)
    assert processes.ended == 0
    clock.now += 2
    learner.step(0.0)
    wait_for(lambda: processes.ended == 1)


def test_what_is_learned_while_a_class_is_fitted_elsewhere_is_fitted_afterwards(few, workers, processes):
    learner = learner_with(60, workers)
    learner.step(0.0)
    settle(workers, processes)
    (key, *_), *_ = learner._sent.values()
    interval = learner.workloads["w"].intervals[key.key[1]]
    interval.learn(Blocks.of_values(np.full(40, 2.0) + np.arange(40) / 100), np.arange(40.0, 80.0))
    learner.backlog.add(key.key, 5.0)
    while learner.waiting:
        while processes.tasks:
            processes.do()
            settle(workers, processes)
        learner.step(0.0)
        settle(workers, processes)
    assert interval.bands[1:] == fit_gev(interval.history.values, 1).bands
    assert interval.fresh == 0


def test_what_is_fitted_elsewhere_when_a_snapshot_is_taken_waits_after_it_is_restored(few, workers, processes):
    learner, other = learner_with(60, workers), learner_with(0)
    learner.step(0.0)
    assert len(workers) == 4
    other.restore(learner.state())
    assert other.waiting == 59
    while other.waiting:
        other.step(0.0)
    assert all(one.bands for one in other.workloads["w"].intervals.values())


def test_a_worker_of_another_version_says_so():
    with pytest.raises(OtherVersion, match=f"the worker has barograph {version()}, expected 9.9"):
        call_as("9.9", list)


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.process
def test_local_processes_fit_and_end_when_they_are_to():
    pool, end = local_processes(1)
    assert pool.submit(call_as, version(), partial(fit_gevs, WINDOWS, 1)).result() == fit_gevs(WINDOWS, 1)
    pid = pool.submit(os.getpid).result()
    end()
    wait_for(lambda: is_gone(pid))


@pytest.mark.process
def test_local_processes_end_with_a_modeler_that_is_killed(tmp_path):
    program = tmp_path / "modeler.py"
    program.write_text(ORPHANS)
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as modeler:
        pid = int(modeler.stdout.readline())
        modeler.kill()
    wait_for(lambda: is_gone(pid))


@pytest.mark.process
def test_a_modeler_with_a_backlog_has_it_fitted_by_processes_which_end_with_it(tmp_path):
    processor = new_modeler()
    values = np.random.default_rng(1).lognormal(0, 0.05, 32)
    for workload in ("a", "b", "c"):
        known = processor.learner.workloads[workload] = Workload()
        for class_id in range(500):
            known.intervals[class_id] = ClassModel()
            known.intervals[class_id].learn(Blocks.of_values(values), np.arange(32.0))
            processor.learner.backlog.add((workload, class_id), 1.0)
    up = Up(tmp_path)
    up.state.mkdir(mode=0o700)
    with collector_on(up.state / "log.duckdb") as collector, LogReader(collector.endpoint) as reader:
        offsets = Offsets(reader.identity(), dict.fromkeys(TABLES, 0))
    write_snapshot(up.state / FILE_NAME, offsets, "window of 1 s, histories by user", processor.state())
    with up:
        up.wait_for_metric("modeler", r'barograph_modeler_refits_total\{by="workers"\} [1-9]')
        modeler = up.pid("modeler")
        (worker,) = (pid for pid in children(modeler) if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text())
        up.wait_for_metric("modeler", r"barograph_modeler_refit_backlog 0\.0")
        text = up.metrics("modeler")
        os.kill(modeler, signal.SIGKILL)
        wait_for(lambda: is_gone(worker))
    numbers = re.findall(r'^barograph_modeler_refits_total\{by="\w+"\} (\S+)$', text, re.MULTILINE)
    assert sum(map(float, numbers)) == 1500
    assert "barograph_modeler_refit_workers_failed 0.0" in text


def children(pid):
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(one) for task in tasks for one in task.read_text().split()]


@pytest.mark.process
def test_a_dask_cluster_fits_until_its_scheduler_is_killed(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(module, "CONNECT_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr(module, "TASK_SECONDS", DEADLINE_SECONDS)
    with Cluster(1, tmp_path) as cluster:
        workers = Workers("the cluster", partial(dask_cluster, cluster.address), 4)
        workers.send("a", fit_gevs, WINDOWS, 1)
        assert wait_for(workers.poll) == [("a", fit_gevs(WINDOWS, 1))]
        cluster.workers[0].kill()  # what is sent now stays in flight
        workers.send("b", fit_gevs, WINDOWS, 1)
        cluster._scheduler.kill()
        assert wait_for(workers.poll) == [("b", None)]
        assert (workers.is_failed, workers.failures) == (True, 1)
        assert "the cluster: " in caplog.text
        workers.close()
