"""Processor time of the steps of a sidecar, beside what plain NumPy takes to sum as many records."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.stepping import SteppedWatch

WARM_STEPS, STEPS, CACHE_BYTES = 5, 40, 48 * 2**20


def plain_seconds(watch: SteppedWatch, count: int) -> float:
    """What NumPy takes for own work and waiting of each rank, and the last two arrivals at each of `count` points."""
    watch.evict()
    began = time.thread_time()
    names = ("enter_ns", "exit_ns", "p2p_ns")
    enter, end, p2p = (np.stack([one.records[name][:count].astype(np.int64) for one in watch.shims]) for name in names)
    (enter[:, 1:] - end[:, :-1] - p2p[:, 1:]).sum(axis=1), (end - enter).sum(axis=1)
    np.bincount(enter.argmax(axis=0)), np.sort(enter, axis=0)[-2:]
    return time.thread_time() - began


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rate", [1000, 15_000])
@pytest.mark.parametrize("ranks", [2, 16, 64])
def test_steps(tmp_path: Path, ranks: int, rate: int) -> None:
    watch = SteppedWatch(tmp_path, ranks, rate, evicts=CACHE_BYTES)
    gc.freeze()
    start, usual = (1e3 * np.array([watch.step() for _ in range(steps)]) for steps in (WARM_STEPS, STEPS))
    plain = 1e3 * plain_seconds(watch, rate)
    watch.close()
    mean, name = usual.mean(), f"{ranks} ranks x {rate:,}/s"
    print(f"\n{name}: a step {np.median(usual):.2f} ms, the longest {usual.max():.2f}, at the start {start.max():.1f}")
    print(f"{1e6 * mean / ranks / rate:.0f} ns per record and rank, {mean / plain:.2f} of NumPy's sums alone")
    assert not any(shim.get("dropped") for shim in watch.shims)
