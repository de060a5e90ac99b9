"""What the hook in training programs costs a step, beside PyTorch's own profiler. Prints shares of a step of 50 ms."""

from __future__ import annotations

import os
import statistics
import subprocess
from pathlib import Path

import pytest

from barograph_agent import shim
from helpers.mpi import REPOSITORY

STEP_SECONDS = 0.05
ROUNDS = 5
PROGRAM = """
import contextlib, sys, time
import torch
torch.set_num_threads(1)
parameter = torch.nn.Parameter(torch.zeros(4))
parameter.grad = torch.zeros(4)
optimizer = torch.optim.SGD([parameter], 0.1)
profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) if sys.argv[1:] else None
best = float("inf")
with profiler or contextlib.nullcontext():
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(500):
            optimizer.step()
        best = min(best, (time.perf_counter() - began) / 500)
print(best)
"""


def python() -> str:
    """The interpreter of a current PyTorch."""
    path = Path(os.environ.get("BAROGRAPH_TEST_TORCH", REPOSITORY / ".venv-torch")) / "bin/python"
    if not path.exists():
        pytest.skip(f"{path} does not exist; `make .venv-torch/.done` installs PyTorch")
    return str(path)


def seconds(*words: str, **more: str) -> float:
    """Of one step of an optimizer with one parameter."""
    command = [python(), "-c", PROGRAM, *words]
    return float(subprocess.run(command, env=os.environ | more, capture_output=True, text=True, check=True).stdout)


def test_cost_of_a_step(tmp_path: Path) -> None:
    watched = {
        "LD_PRELOAD": str(shim.library()),
        "PYTHONPATH": str(shim.HOOK),
        "BAROGRAPH_RING_DIR": str(tmp_path),
    }
    rounds = [(seconds(), seconds(**watched), seconds("profiled")) for _ in range(ROUNDS)]
    assert list(tmp_path.glob("*.ring"))
    plain, hooked, profiled = (statistics.median(one) for one in zip(*rounds, strict=True))
    print(f"\nstep of an optimizer: {plain * 1e6:.1f} us")
    for name, one in (("with the hook", hooked), ("in PyTorch's profiler", profiled)):
        print(f"{name}: {one / plain:.2f} times that, {(one - plain) / STEP_SECONDS:+.4%} of a step of 50 ms")
