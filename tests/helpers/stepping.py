"""A watch of made-up ranks that synchronize all the time, and its steps: one a second, by a clock that they move."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import numpy as np

from barograph_agent.job.identity import Job
from barograph_agent.sidecar.plan import RING_VARIABLE, RunPlan, myself, save_begun
from barograph_agent.sidecar.run import WatchedRun
from barograph_agent.system.clock import Clock
from barograph_agent.system.system import SYSTEM
from helpers.rings import STARTED_NS, STARTED_UNIX_NS, BatchedShim

CAPACITY, SITES, BATCH = 65_536, 6, 512


class SteppedWatch:
    """Ranks, processes that sleep, with `rate` sync points a second. evicts: bytes of a cache that is emptied."""

    def __init__(self, folder: Path, ranks: int, rate: int, *, evicts: int = 0) -> None:
        run, rings = folder / "run", folder / "rings"
        run.mkdir(mode=0o700, parents=True)
        rings.mkdir(mode=0o700)
        self.shims = [BatchedShim(rings / f"rank-{rank}.ring", CAPACITY, calls=2 * BATCH) for rank in range(ranks)]
        environment = {RING_VARIABLE: str(rings)}
        self._processes = [subprocess.Popen(["sleep", "infinity"], env=environment) for _ in range(ranks)]
        for rank, (shim, process) in enumerate(zip(self.shims, self._processes, strict=True)):
            shim.set(rank=rank, size=ranks, launch=1, pid=process.pid)
            for site in range(SITES):
                shim.site(16 * site + 1)
        self._rate, self._made, self._evicted = rate, 0, np.zeros(evicts, np.uint8)
        self._now = STARTED_NS * 1e-9
        clock = Clock()
        clock.monotonic = lambda: self._now  # type: ignore[method-assign]
        clock.monotonic_ns = lambda: int(self._now * 1e9)  # type: ignore[method-assign]
        clock.now = lambda: self._now + (STARTED_UNIX_NS - STARTED_NS) * 1e-9  # type: ignore[method-assign]
        clock.sleep = lambda seconds: None  # type: ignore[method-assign]
        job = Job("lab", "bench", 0, "0", "ada", "n1", "bench", {})
        plan = RunPlan(job, "lab/bench/1", f"ipc://{folder}/none", str(rings), clock.now(), *myself(), 0.0, 2**28)
        save_begun(run, plan)
        self.watch = WatchedRun(run, plan, system=SYSTEM._replace(clock=clock))
        self.watch.may_end = False

    def step(self) -> float:
        """Let a second pass and take a step; returns its processor time in seconds."""
        self._now += 1.0
        while self._made < int((self._now - STARTED_NS * 1e-9) * self._rate):
            at = self._made + np.arange(BATCH)
            for shim in self.shims:
                shim.put_many(self._made, (at + 1) * (10**9 // self._rate), at % SITES + 1)
            self._made += BATCH
        self.evict()
        began = time.thread_time()
        self.watch.step()
        self.watch.link.pump()
        return time.thread_time() - began

    def evict(self) -> None:
        """Fill the caches with other data."""
        self._evicted += 1

    def close(self) -> None:
        """Close, end the ranks and delete what is on disk."""
        for process in self._processes:
            process.kill()
            process.wait()
        self.watch.delete()
