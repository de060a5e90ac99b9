"""Real processes that fit: local ones, and a Dask cluster whose scheduler is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest

from barograph_collector.client.log_reader import LogReader
from barograph_modeler.bands.class_model import ClassModel
from barograph_modeler.bands.moments import Blocks
from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.library import first_fits, publish_all
from barograph_modeler.forecasts.problems import ProblemSize
from barograph_modeler.learning.workload import Workload
from barograph_modeler.main import TABLES
from barograph_modeler.refits import dispatch as dispatch_module
from barograph_modeler.refits import workers
from barograph_modeler.refits.batch import fit_windows, version
from barograph_modeler.refits.dispatch import Dispatch, Loan
from barograph_modeler.refits.workers import DaskCluster, LocalProcesses
from barograph_modeler.state.snapshot import FILE_NAME, Offsets, write_snapshot
from helpers.log import DEADLINE_SECONDS, collector_on
from helpers.up import Up
from helpers.works import new_modeler

SOLVER = Application("lab", "solver")
WINDOWS = [np.random.default_rng(seed).lognormal(0, 0.05, 64) for seed in range(3)]
ORPHANS = """
import sys, time
from barograph_modeler.refits.workers import LocalProcesses
if __name__ == "__main__":
    workers = LocalProcesses(1)
    print(workers.executor().submit(__import__("os").getpid).result(), flush=True)
    time.sleep(600)
"""


def wait_for(condition, seconds=DEADLINE_SECONDS):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.05)
    return found


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.process
def test_local_processes_fit_and_one_that_is_killed_is_told():
    processes = LocalProcesses(1)
    pool = processes.executor()
    assert pool.submit(fit_windows, WINDOWS, 1, version()).result() == fit_windows(WINDOWS, 1, version())
    pid = pool.submit(os.getpid).result()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(BrokenProcessPool):
        pool.submit(time.sleep, 60).result()
    processes.close()
    pid = processes.executor().submit(os.getpid).result()
    processes.close()
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


def dask(*arguments):
    environment = {**os.environ, "DASK_DISTRIBUTED__ADMIN__LOG_FORMAT": "%(message)s"}
    command = [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.process
def test_a_dask_cluster_fits_until_its_scheduler_is_killed(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(workers, "CONNECT_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr(dispatch_module, "SLOW_SECONDS", DEADLINE_SECONDS)
    local = ["--host", "127.0.0.1", "--no-dashboard"]
    scheduler = dask("dask_scheduler", *local, "--port", "0")
    address = next(found[0] for line in scheduler.stderr if (found := re.search(r"tcp://127\.0\.0\.1:\d+", line)))
    worker = dask("dask_worker", address, *local, "--nthreads", "1", "--local-directory", str(tmp_path))
    dispatch = Dispatch(DaskCluster(address), seed=1)
    try:
        loans = [Loan(number, window, None) for number, window in enumerate(WINDOWS)]
        wait_for(lambda: dispatch.room(5000))
        assert dispatch.send(loans)
        done = wait_for(dispatch.poll)
        assert [(loan.key, fit) for loan, fit in done] == list(enumerate(fit_windows(WINDOWS, 1, version())))
        fits = first_fits(DaskCluster(address))
        request = (SOLVER, [(WorkloadPlace("w", SOLVER, (), ranks, 1), [8.0 / ranks]) for ranks in (1, 2, 4)], {})
        wait_for(lambda: fits.room(100))
        assert fits.send([Loan(SOLVER, request, None)])
        ((_, published),) = wait_for(fits.poll)
        place = ProblemSize("lab/solver", None)
        assert published.predict(place, 8, 1) == publish_all([request], 0, version())[0].predict(place, 8, 1)
        fits.close()
        monkeypatch.setattr(workers, "CONNECT_SECONDS", 10)
        worker.kill()  # what is sent now stays in flight
        assert dispatch.send(loans)
        scheduler.kill()
        back = wait_for(lambda: dispatch.poll() or dispatch.take_back())
        assert [one.key for one in back] == [0, 1, 2]
        assert (dispatch.is_failed, dispatch.failures["lost"]) == (True, 1)
        assert f"the Dask cluster at {address}: " in caplog.text
    finally:
        dispatch.close()
        for one in (worker, scheduler):
            one.kill()
            one.communicate()
