"""Processor time of reading what the kernel knows of 64 ranks, as a share of a core."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from barograph_agent.kernel import pressures
from barograph_agent.kernel.pressures import Pressures
from barograph_agent.system.processes import PROCESSES
from helpers.clocks import SetClock

RANKS = 64
THREADS = 4
SECONDS = 120
GOAL_SHARE = 0.01
PROGRAM = f"""
import threading
for _ in range({THREADS - 1}):
    threading.Thread(target=threading.Event().wait).start()
print("", flush=True)
"""


@pytest.fixture(scope="module")
def ranks() -> Iterator[dict[int, int]]:
    """Processes that sleep, and the numbers of their ranks."""
    started = [subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) for _ in range(RANKS)]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.read(1)
        yield {process.pid: rank for rank, process in enumerate(started)}
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("worst", [False, True], ids=["quiet", "every rank waits"])
def test_a_look_at_64_ranks(ranks: dict[int, int], worst: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if worst:
        monkeypatch.setattr(pressures, "LOST", -1.0)
    now, rows = 0.0, 0
    reader = Pressures(SetClock(lambda: now))
    began = time.thread_time()
    for step in range(2 * SECONDS):
        now = 0.5 * step  # the sidecar's poll, without the waiting
        columns = reader.read(ranks)
        rows += len(columns["rank"]) if columns else 0
    share = (time.thread_time() - began) / SECONDS
    beside = len(PROCESSES.ids())
    print(f"\n{RANKS} ranks of {THREADS} threads among {beside} processes: {share:.2%} of one core, {rows} rows")
    assert share < GOAL_SHARE
