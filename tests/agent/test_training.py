"""The hook in training programs: steps of optimizers, in interpreters that have no Barograph."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from barograph_agent import shim
from barograph_agent.ring.reader import OPERATIONS, Ring
from helpers.up import free_ports

PROGRAM = Path(__file__).with_name("programs") / "train.py"
DEBIAN = "/usr/bin/python3"
PASSES, SLOWER = 20, 0.1
"""Of a training, and the seconds that the slow worker takes longer for each: more than a busy machine takes."""
PYTORCH_2 = """
hooks = [], []
def register_optimizer_step_pre_hook(hook): hooks[0].append(hook)
def register_optimizer_step_post_hook(hook): hooks[1].append(hook)
class Optimizer:
    def __init_subclass__(cls):
        step = cls.step
        def hooked(self):
            for hook in hooks[0]: hook(self, (), {})
            step(self)
            for hook in hooks[1]: hook(self, (), {})
        cls.step = hooked
"""
PYTORCH_1 = """
class Optimizer:
    def __init__(self): self._hook_for_profile()
    def _hook_for_profile(self): pass
"""
STEPS = """
import sys, time
import torch.optim.optimizer
class Adam(torch.optim.optimizer.Optimizer):
    def step(self): time.sleep(0.002)
class AdamW(Adam):
    def step(self): super().step()
first, second, third = Adam(), Adam(), AdamW()
for _ in range(4):
    first.step(); second.step(); third.step()
print("done", "ctypes" in sys.modules)
"""


def torch_package(folder: Path, optimizer: str) -> None:
    """Modules with the names of PyTorch's, as far as the hook uses them."""
    package = folder / "torch"
    (package / "optim").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "optim/__init__.py").write_text("from torch.optim.optimizer import Optimizer\n")
    (package / "optim/optimizer.py").write_text(optimizer)


def environment(rings: Path, *folders: Path, **more: str) -> dict[str, str]:
    """As `barograph run` sets it."""
    return {
        **os.environ,
        "LD_PRELOAD": str(shim.library()),
        "PYTHONPATH": shim.python_path(":".join(map(str, folders))),
        "BAROGRAPH_RING_DIR": str(rings),
        "BAROGRAPH_RANKS": "all",
        **more,
    }


def python(text: str, rings: Path, *folders: Path, **more: str) -> subprocess.CompletedProcess[str]:
    rings.mkdir(exist_ok=True)
    command = [sys.executable, "-c", text]
    return subprocess.run(
        command, env=environment(rings, *folders, **more), capture_output=True, text=True, check=False, timeout=120
    )


def rings_in(folder: Path) -> list[Ring]:
    return sorted((Ring(path) for path in folder.glob("*.ring")), key=lambda ring: ring.rank)


@pytest.mark.parametrize("optimizer", [PYTORCH_1, PYTORCH_2], ids=["1", "2"])
def test_each_step_of_each_optimizer_is_an_interval(tmp_path: Path, optimizer: str) -> None:
    torch_package(tmp_path / "modules", optimizer)
    done = python(STEPS, tmp_path / "rings", tmp_path / "modules")
    assert (done.returncode, done.stderr) == (0, "")
    (ring,) = rings_in(tmp_path / "rings")
    with ring:
        records = ring.records(0, ring.head)
        assert (ring.rank, ring.size, ring.finalized, ring.exit_status) == (0, 1, True, 0)
        assert {OPERATIONS[op] for op in records["op"].tolist()} == {"Step"}
        # The first step begins the recording. A step that calls that of its base class is one.
        names = [ring.site(site) for site in records["site"].tolist()]
        assert names == ["step Adam 2", "step AdamW", *(3 * ["step Adam", "step Adam 2", "step AdamW"])]
        assert np.diff(records["exit_ns"].astype(np.int64)).min() >= 2e6


def test_a_program_without_torch_imports_nothing_for_it(tmp_path: Path) -> None:
    look = "import sys; print(sorted({'ctypes', 'typing', 'weakref', 'torch'} & set(sys.modules)))"
    plain = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    done = python(look, tmp_path / "r")
    assert (done.stdout, done.stderr) == (plain.stdout, "")
    assert not list((tmp_path / "r").iterdir())


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (None, ""),
        ("print('site')", "site\n"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("import sys; sys.path.append('/appended')", ""),
    ],
)
def test_the_sitecustomize_of_the_site_is_imported_as_before(tmp_path: Path, theirs: str | None, said: str) -> None:
    if theirs is not None:
        (tmp_path / "sitecustomize.py").write_text(theirs)
    look = "import sys; print([p for p in sys.path if 'training' in p], '/appended' in sys.path)"
    done = python(look, tmp_path / "rings", tmp_path)
    assert done.returncode == 0
    assert done.stdout.endswith(f"[] {theirs is not None and '/appended' in theirs}\n")
    assert said in done.stdout + done.stderr
    if not said:
        assert done.stderr == ""


@pytest.mark.parametrize(
    "broken",
    [
        "class Optimizer: pass",
        "def register_optimizer_step_post_hook(hook): raise RuntimeError\nclass Optimizer: pass",
        PYTORCH_1.replace("def _hook_for_profile(self): pass", "_hook_for_profile = None").replace(
            "self._hook_for_profile()", "pass"
        ),
    ],
)
def test_another_pytorch_works_as_without_the_hook(tmp_path: Path, broken: str) -> None:
    torch_package(tmp_path / "modules", broken)
    done = python(STEPS, tmp_path / "rings", tmp_path / "modules")
    assert (done.returncode, done.stdout[:4], done.stderr) == (0, "done", "")


@pytest.mark.parametrize(
    "more",
    [{"BAROGRAPH_DISABLE": "1"}, {"BAROGRAPH_RANKS": "1"}, {"LD_PRELOAD": ""}],
    ids=["disabled", "rank", "no shim"],
)
def test_steps_that_are_not_wanted_are_not_recorded(tmp_path: Path, more: dict[str, str]) -> None:
    torch_package(tmp_path / "modules", PYTORCH_2)
    done = python(STEPS, tmp_path / "rings", tmp_path / "modules", **more)
    assert (done.returncode, done.stdout[:4], done.stderr) == (0, "done", "")
    assert not list((tmp_path / "rings").iterdir())


def train(rings: Path, workers: int, *words: str, **more: str) -> str:
    """The output of the program under Debian's PyTorch."""
    rings.mkdir()
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)), "WORLD_SIZE": str(workers)}
    processes = [
        subprocess.Popen(
            [DEBIAN, PROGRAM, *words], env=environment(rings, **place, RANK=str(rank), **more),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(workers)
    ]  # fmt: skip
    output = "".join(process.communicate(timeout=120)[0] for process in processes)
    assert not any(process.returncode for process in processes), output
    return output


def has_torch() -> bool:
    return subprocess.run([DEBIAN, "-c", "import torch"], capture_output=True, check=False).returncode == 0


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["sgd", "accumulate", "closure", "two", "manual"])
def test_the_slow_worker_of_a_training_has_the_work(tmp_path: Path, kind: str) -> None:
    if not has_torch() and not os.environ.get("CI"):
        pytest.skip("Debian's python3-torch is not installed")
    train(tmp_path / "rings", 2, str(PASSES), kind, SLOW=f"1 {SLOWER:g}")
    rings = rings_in(tmp_path / "rings")
    assert [(ring.rank, ring.size) for ring in rings] == [(0, 2), (1, 2)]
    steps = PASSES * (2 if kind == "two" else 1) - 1
    own, wait, used = [], [], []
    for ring in rings:
        records = ring.records(0, ring.head)
        assert (len(records), ring.exit_status) == (steps, 0)
        enter, left, other = (records[name].astype(np.int64) for name in ("enter_ns", "exit_ns", "p2p_ns"))
        own.append(np.median((enter[1:] - left[:-1] - other[1:]).reshape(-1, 2).sum(axis=1) if kind == "two"
                             else enter[1:] - left[:-1] - other[1:]) * 1e-9)  # fmt: skip
        wait.append(float((left - enter + other).sum()) * 1e-9)
        assert set(records["bytes"].tolist()) == ({4 * 64 * 256 + 4 * 256, 4 * 256 * 8 + 4 * 8} if kind == "two" else
                                                  {4 * 64 * 256 + 4 * 256 + 4 * 256 * 8 + 4 * 8})  # fmt: skip
        # Updates, and processor time: a worker that sleeps does not use more of it.
        assert 0 < np.median(records["message_bytes"][1:]) < 5e6
        used.append(float(records["messages"].sum()) * 1e-9)
        ring.close()
    slower = SLOWER * (2 if kind == "accumulate" else 1)
    assert own[1] - own[0] == pytest.approx(slower, rel=0.5)
    assert wait[0] > wait[1] + 0.5 * PASSES * slower
    assert used[1] < used[0] + 0.25 * PASSES * slower


@pytest.mark.integration
def test_a_process_that_trains_alone_has_steps(tmp_path: Path) -> None:
    if not has_torch() and not os.environ.get("CI"):
        pytest.skip("Debian's python3-torch is not installed")
    train(tmp_path / "rings", 1, "20", "alone")
    (ring,) = rings_in(tmp_path / "rings")
    with ring:
        records = ring.records(0, ring.head)
        assert len(records) == 19
        assert (records["enter_ns"] == records["exit_ns"]).all()
        assert not records["messages"].any()
        assert not records["message_bytes"].any()
