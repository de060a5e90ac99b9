"""The cost of 100,000 classes in the modeler: memory, learning, fitting, a snapshot; and memory of 10,000 jobs.

Only memory is asserted, with a margin, so that nothing depends on the speed of the machine.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from barograph_lab.bench.measured_collector import Usage
from barograph_lab.studies.alerts.facility import Facility, Plan
from barograph_modeler.bands.class_model import WINDOW, ClassModel
from barograph_modeler.bands.moments import Blocks
from barograph_modeler.learning.learner import CLASSES, Learner
from barograph_modeler.learning.workload import CLASSES as WORKLOAD_CLASSES
from barograph_modeler.learning.workload import Workload
from barograph_modeler.state.forked_task import ForkedTask
from barograph_modeler.state.snapshot import Offsets, read_snapshot, write_snapshot
from helpers.printed import show

BYTES_PER_CLASS = 12_000
BYTES_OF_JOBS = 65e6
JOBS = 10_000
READER = """
import gc, sys
from pathlib import Path
import barograph_modeler.processor, barograph_modeler.serving.exporter, barograph_modeler.serving.page
from barograph_lab.bench.measured_collector import Usage
from barograph_modeler.state.snapshot import read_snapshot
before = Usage.of_this_process().resident_bytes
state = read_snapshot(Path(sys.argv[1]), "")
gc.collect()
print(before, Usage.of_this_process().resident_bytes)
"""
"""A process with the modeler's libraries that reads a snapshot, and prints its memory before and after."""


def full() -> ClassModel:
    """A class with a full window, both bands and an active change detector."""
    interval, rng = ClassModel(), np.random.default_rng(1)
    values = rng.lognormal(0, 0.05, 4 * WINDOW)
    interval.learn(Blocks.of_values(values), np.arange(values.size, dtype=np.float64))
    interval.refit(0)
    return interval


def test_a_hundred_thousand_classes(tmp_path: Path) -> None:
    made = pickle.dumps(full(), protocol=5)
    learner = Learner(refit_seconds=5.0)
    before = Usage.of_this_process().resident_bytes
    for number in range(CLASSES):
        name, class_id = f"lab/app{number // WORKLOAD_CLASSES}@2x1", number % WORKLOAD_CLASSES
        workload = learner.workloads.setdefault(name, Workload())
        workload.intervals[class_id] = pickle.loads(made)
        learner._recent[name, class_id] = None
        learner.backlog.add((name, class_id), number % 97 / 97)
    each = (Usage.of_this_process().resident_bytes - before) / CLASSES

    waiting = len(learner.backlog)
    start = time.thread_time()
    rows = sum(output.rows for output in learner.step(0.0))
    fits = (waiting - len(learner.backlog)) / (time.thread_time() - start)

    interval, values = full(), np.random.default_rng(2).lognormal(0, 0.05, 50_000)
    times = np.arange(values.size, dtype=np.float64)
    start = time.thread_time()
    for at in range(0, values.size, 500):
        interval.learn(Blocks.of_values(values[at : at + 500]), times[at : at + 500])
    learned = values.size / (time.thread_time() - start)

    path = tmp_path / "snapshot"
    start = time.perf_counter()
    write_snapshot(path, Offsets("log", {}), "", learner.state())
    wrote = time.perf_counter() - start
    task = ForkedTask()
    start = time.perf_counter()
    task.start(partial(write_snapshot, path, Offsets("log", {}), "", learner.state()))
    paused = time.perf_counter() - start
    assert task.result(wait=True) == ""
    wrote_in_child = time.perf_counter() - start
    start = time.perf_counter()
    _, state = read_snapshot(path, "")
    read = time.perf_counter() - start
    assert sum(len(workload.intervals) for workload in state["workloads"].values()) == CLASSES

    size = path.stat().st_size
    show(
        f"{CLASSES:,} classes with full windows of {WINDOW} values",
        [
            f"memory               {each:10,.0f} bytes a class, {each * CLASSES / 2**20:,.0f} MiB",
            f"fits                 {fits:10,.0f} classes a second of CPU time ({rows} rows)",
            f"learning             {learned:10,.0f} intervals a second of CPU time",
            f"snapshot             {size / 2**20:10,.0f} MiB, written in {wrote:.1f} s, read in {read:.1f} s",
            f"snapshot in a child  {1000 * paused:10,.0f} ms pause of the modeler, {wrote_in_child:.1f} s in all",
        ],
    )
    assert each < BYTES_PER_CLASS


@pytest.mark.timeout(1800)
def test_ten_thousand_jobs(tmp_path: Path) -> None:
    facility = Facility(Plan(jobs=JOBS), alpha=0.001)
    for _ in facility.run():
        pass
    modeler = facility._modeler
    path = tmp_path / "snapshot"
    write_snapshot(
        path,
        Offsets("log", {}),
        "",
        {name: getattr(modeler, name).state() for name in ("recognizer", "changes", "learner")},
    )
    done = subprocess.run([sys.executable, "-c", READER, str(path)], stdout=subprocess.PIPE, text=True, check=True)
    before, after = map(int, done.stdout.split())
    show(
        f"{JOBS:,} made-up jobs of {len(modeler.learner.workloads):,} groups of like work",
        [
            f"snapshot             {path.stat().st_size / 1e6:10.1f} MB",
            f"memory of libraries  {before / 1e6:10.1f} MB",
            f"after it was read    {(after - before) / 1e6:10.1f} MB more",
        ],
    )
    assert after - before < BYTES_OF_JOBS
