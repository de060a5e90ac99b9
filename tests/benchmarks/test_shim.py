"""The overhead of the shim per collective on one rank: nanoseconds by pairs in one process, instructions by callgrind.

Rivals in the same run: a library that only forwards and, if $BAROGRAPH_TEST_MPIP names a libmpiP.so built for the MPICH
of this environment, mpiP. Times are printed. Instruction counts are asserted: they do not depend on the machine's load.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from barograph_agent.ring.reader import OPERATIONS, Ring, Want
from helpers import mpi as mpis
from helpers.mpi import Mpi

PROGRAMS = Path(__file__).with_name("programs")
LOOPS = {"Barrier": "barriers", "Allreduce": "allreduces", "Wait": "waits", "Send": "sends", "Isend": "isends",
         "Bcast": "bcasts", "Pair": "reduces"}  # fmt: skip
PAIRS, CALLS = 100, 200  # in total fewer calls than the capacity of a default ring
COUNTED_PAIRS = 30  # enough for instruction counts; callgrind is slow
MOST_INSTRUCTIONS = 410
WARM_UP_MILLISECONDS = 500
ANCHOR = next(number for number, name in OPERATIONS.items() if name == "Wait")


@dataclass(frozen=True)
class Tool:
    """asks: what of the shim, while it looks for no loop (idle), writes calls, or records a Wait (anchor)."""

    name: str
    library: Path | None
    env: dict[str, str] = field(default_factory=dict)
    asks: str = "idle"


def build(output: Path, *flags: str) -> Path:
    env = {**os.environ, "CC": shlex.join(["cc", *flags])} if flags else None
    subprocess.run([sys.executable, mpis.REPOSITORY / "agent/shim/build.py", output], env=env, check=True)
    return output


def tools(mpi: Mpi, folder: Path) -> list[Tool]:
    found = [
        Tool("no-op", mpi.compile(PROGRAMS / "noop.c", folder / "noop.so", "-O2", "-shared", "-fPIC")),
        Tool("shim", build(folder / "libbarograph.so")),
        Tool("calls", folder / "libbarograph.so", asks="calls"),
        Tool("anchor", folder / "libbarograph.so", asks="anchor"),
        # As on a node with an unreliable TSC.
        Tool("no TSC", build(folder / "no-tsc.so", '-DCLOCKSOURCE="/absent"')),
    ]
    rival = os.environ.get("BAROGRAPH_TEST_MPIP")
    if not rival:
        print("\nmpiP: not measured, BAROGRAPH_TEST_MPIP names no libmpiP.so", end="")
    elif mpi.name == "mpich":
        for frames in (0, 1, 3):
            found.append(Tool(f"mpiP -k {frames}", Path(rival), {"MPIP": f"-k {frames} -f {folder}"}))
    return found


@pytest.fixture
def ring_folder() -> Iterator[Path]:
    """In memory, like rings in production."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def environment(mpi: Mpi, tool: Tool, ring_folder: Path) -> dict[str, str]:
    preload = {"LD_PRELOAD": str(tool.library)} if tool.library else {}
    return {**os.environ, **mpi.environment(), **tool.env, **preload, "BAROGRAPH_RING_DIR": str(ring_folder)}


def ask(folder: Path, asks: str, done: threading.Event) -> None:
    """Ask the ring in this folder for what the tool is measured with, as a sidecar does."""
    while not (paths := list(folder.glob("*.ring"))) and not done.is_set():
        time.sleep(0.01)
    if not paths:
        return
    with Ring(paths[0]) as ring:
        position = 0
        time.sleep(0.2 * WARM_UP_MILLISECONDS / 1000)
        _, calls = ring.calls(0)
        waits = calls[calls["op"] == ANCHOR]
        anchor = Want(op=ANCHOR, site=int(waits[0]["site"]) if len(waits) else 0)
        ring.want({"idle": Want(), "calls": Want(calls=True), "anchor": anchor}[asks])
        while not done.wait(0.002):
            ring.release(ring.head)
            ring.iterations.release(ring.iterations.head)
            position, calls = ring.calls(position)
            position += len(calls)


def run(mpi: Mpi, command: list[str | Path], tool: Tool, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the tool, and with a thread that asks its shim for what is measured."""
    done = threading.Event()
    rings = Path(tempfile.mkdtemp(dir=folder))
    asker = threading.Thread(target=ask, args=(rings, tool.asks, done))
    asker.start()
    try:
        env = environment(mpi, tool, rings)
        found = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    finally:
        done.set()
        asker.join()
    assert found.returncode == 0, found.stderr
    return found


def nanoseconds(mpi: Mpi, program: Path, tool: Tool, ring_folder: Path) -> dict[str, list[str]]:
    """Median, quartiles and control by function, as printed by the program."""
    done = run(mpi, [program, str(PAIRS), str(CALLS), "1", str(WARM_UP_MILLISECONDS)], tool, ring_folder)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(tuple(LOOPS))]
    return {function: figures for function, *figures in lines}


def instructions(mpi: Mpi, program: Path, tool: Tool, ring_folder: Path, function: str) -> int:
    """Instructions in the loops that call the function, through the tool and without it."""
    options = ["--tool=callgrind", f"--toggle-collect={LOOPS[function]}", "--callgrind-out-file=/dev/null"]
    command: list[str | Path] = [
        "valgrind",
        *options,
        program,
        str(COUNTED_PAIRS),
        str(CALLS),
        "1",
        str(10 * WARM_UP_MILLISECONDS),
    ]
    done = run(mpi, command, tool, ring_folder)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_what_the_shim_adds_to_a_collective(name: str, tmp_path: Path, ring_folder: Path) -> None:
    mpi = mpis.find(name)
    program = mpi.compile(PROGRAMS / "paired.c", tmp_path / "paired", "-O2")
    title = f"{name}: added to one call on one rank"
    print(f"\n\n{title}\n{'-' * len(title)}", end="")
    candidates = tools(mpi, tmp_path)
    print(f"\n{'':10} {'function':10} {'ns':>7} {'quartiles':>15} {'A/A':>6} {'instructions':>13}")
    valgrind = shutil.which("valgrind") is not None
    alone = Tool("nothing", None)
    base = {f: instructions(mpi, program, alone, ring_folder, f) for f in LOOPS} if valgrind else {}
    added: dict[tuple[str, str], float] = {}
    for tool in candidates:
        for function, (median, low, high, control) in nanoseconds(mpi, program, tool, ring_folder).items():
            count = "no valgrind"
            if valgrind:
                with_tool = instructions(mpi, program, tool, ring_folder, function)
                added[tool.name, function] = (with_tool - base[function]) / (COUNTED_PAIRS * CALLS)
                count = f"{added[tool.name, function]:.1f}"
            print(f"{tool.name:10} {function:10} {median:>7} {f'{low}..{high}':>15} {control:>6} {count:>13}")
    for function in LOOPS if valgrind else ():
        calls = 2 if function == "Pair" else 1
        assert added["no-op", function] < added["shim", function] < calls * MOST_INSTRUCTIONS
