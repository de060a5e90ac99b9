"""What the hook in training programs costs a step, beside PyTorch's own profiler. Prints shares of a step of 50 ms.

And a training on four nodes that are namespaces, one worker each: whether the slow one is named, and nobody else. The
machine must be quiet.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from barograph_agent import shim
from barograph_alerts.processor import BLAMING
from helpers import mpi as mpis
from helpers.cluster import Cluster, cluster
from helpers.disturbance import STOPPED, Stops
from helpers.mpi import REPOSITORY
from helpers.printed import show

STEP_SECONDS = 0.05
NODES, STEPS, SLOW = 4, 1200, "n3"
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


def train(made: Cluster, script: Path, usual: float = 0.0) -> tuple[float, dict[str, object], float, set[str]]:
    """A run of a worker on each node; the one of SLOW is disturbed after a third of the time that is usual, if any.

    Returns its time, the last row of its scores, how long after the begin of the disturbance SLOW was named, and who
    else ever was.
    """
    address = made.address("n1")
    variables = f"WORLD_SIZE={NODES} MASTER_ADDR={address} MASTER_PORT=29511 GLOO_SOCKET_IFNAME=eth0"
    words = f"exec env RANK=$PMI_RANK {variables} /usr/bin/python3 {script} {STEPS}"
    began = time.time()
    job = made.begin(mpis.find("mpich"), ["/bin/sh", "-c", words], per_node=1)
    with Stops(made, SLOW, [str(STEPS)], usual / 3 if usual else 1e6) as disturbance:
        assert made.end(job, 300.0) == 0, made.output(job)
    seconds = time.time() - began
    scores = made.verdict(job)
    named = [(row["time"], set(json.loads(row["members"]))) for row in scores if row["cause"] in BLAMING]
    after = min((at - disturbance.began_at for at, members in named if members == {SLOW}), default=float("nan"))
    return seconds, scores[-1], after, set().union(*(members for _, members in named)) - ({SLOW} if usual else set())


@pytest.mark.timeout(1800)
def test_a_slow_worker_of_several_nodes_is_named() -> None:
    with cluster(NODES, window=0.5) as made:
        script = Path(shutil.copy(REPOSITORY / "tests/agent/programs/train.py", made.root))
        runs = [train(made, script) for _ in range(2)]
        runs.append(train(made, script, statistics.median(seconds for seconds, *_ in runs)))
    rows = [
        f"{seconds:6.1f} s, {SLOW} named after {after:4.1f} s: {last['sentence']}" for seconds, last, after, _ in runs
    ]
    show(f"{NODES} workers, one a node; {SLOW} of the last run is stopped for {STOPPED:.0%} of its time", rows)
    assert not [others for *_, others in runs if others]
    assert runs[-1][1]["state"] == "slow"
    assert SLOW in str(runs[-1][1]["members"])
