"""How long the modeler takes for fits of many workloads: alone, with local processes, with a Dask cluster.

`REFITS=100000 make bench PYTEST="-k refits"` takes 20 minutes. Only what was fitted is asserted, not how fast.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from barograph_collector.daemon.runner import CYCLE_SECONDS
from barograph_modeler.bands.class_model import WINDOW, fit_gevs
from barograph_modeler.learning.learner import CLASSES, MIN_WAITING
from barograph_modeler.workers import MAX_TASKS, TASKS_PER_PROCESS, Workers, dask_cluster, local_processes
from helpers.dask import Cluster
from helpers.printed import show
from helpers.refits import learner

REFITS = int(os.environ.get("REFITS", "5000"))
"""Workloads, each with a class that has a full window."""


def drain(workers: Workers[int] | None) -> tuple[float, float, int]:
    """Seconds until all is fitted in the modeler's cycles, its own CPU seconds, and fits by workers."""
    if workers is not None:  # started, with libraries in memory
        for number in range(-workers.tasks, 0):
            workers.send(number, fit_gevs, [np.arange(9.0) + 1], 0)
        while len(workers):
            workers.poll()
            time.sleep(0.05)
    modeler = learner(REFITS, workers)
    began, cpu = time.perf_counter(), time.process_time()
    while modeler.waiting:
        cycle = time.perf_counter()
        modeler.step(0.0)
        if modeler.waiting:
            time.sleep(max(0.0, cycle + CYCLE_SECONDS - time.perf_counter()))
    taken, own = time.perf_counter() - began, time.process_time() - cpu
    assert all(len(workload.intervals[1].bands) == 3 for workload in modeler.workloads.values())
    by_workers = REFITS - modeler.fitted_here
    if workers is not None:
        assert (modeler.fitted_elsewhere, workers.failures) == (by_workers, 0)
        workers.close()
    return taken, own, by_workers


@pytest.mark.timeout(7200)
def test_refits(tmp_path: Path) -> None:
    assert REFITS > MIN_WAITING
    results = {"modeler alone": drain(None)}
    for processes in (1, 2):
        results[f"local processes: {processes}"] = drain(
            Workers("processes", partial(local_processes, processes), TASKS_PER_PROCESS * processes)
        )
    with Cluster(2, tmp_path) as dask:
        results["Dask, 2 workers"] = drain(Workers("Dask", partial(dask_cluster, dask.address), MAX_TASKS))
    alone = results["modeler alone"][0]
    lines = [
        f"{name:20} {taken:7.1f} s  {alone / taken:5.2f} times as fast  {CLASSES * taken / REFITS / 60:5.1f} min for "
        f"{CLASSES:,}  modeler's CPU {own / taken:4.0%}  by workers {by_workers / REFITS:4.0%}"
        for name, (taken, own, by_workers) in results.items()
    ]
    show(f"Fits of {REFITS:,} workloads with {WINDOW} values, {os.cpu_count()} cores", lines)
