"""What the shim adds to a collective, on one rank: nanoseconds by pairs in one process, instructions by callgrind.

Times are printed and not asserted. Asserted are instruction counts, which do not depend on the machine's load.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import mpi as mpis
from helpers.mpi import Mpi

PROGRAMS = Path(__file__).with_name("programs")
FUNCTIONS = ("Barrier", "Allreduce")
MOST_INSTRUCTIONS = 400


def instructions(mpi: Mpi, program: Path, preload: Path | str, folder: Path, which: int, calls: int) -> int:
    """Instructions of a whole run that makes so many calls through the preloaded library and as many past it."""
    env = {"LD_PRELOAD": str(preload), "BAROGRAPH_RING_DIR": str(folder), "BAROGRAPH_RING_RECORDS": "4194304"}
    log = folder / "callgrind"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={log}", program, str(which), str(calls), "0"]
    environment = {**os.environ, **mpi.environment(), **env}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_what_the_shim_adds_to_a_collective(name: str, tmp_path: Path) -> None:
    mpi = mpis.find(name)
    program = mpi.compile(PROGRAMS / "paired.c", tmp_path / "paired", "-O2")
    noop = mpi.compile(PROGRAMS / "noop.c", tmp_path / "noop.so", "-O2", "-shared", "-fPIC")
    shim = tmp_path / "libbarograph.so"
    subprocess.run([sys.executable, mpis.REPOSITORY / "agent/shim/build.py", shim], check=True)
    title = f"{name}: added to one call on one rank"
    print(f"\n\n{title}\n{'-' * len(title)}")
    print(f"{'':10} {'function':10} {'ns':>7} {'quartiles':>15} {'A/A':>6} {'instructions':>13}")
    added: dict[tuple[str, str], float] = {}
    for tool, library in {"no-op": noop, "shim": shim}.items():
        folder = tmp_path / tool
        folder.mkdir()
        env = {"LD_PRELOAD": str(library), "BAROGRAPH_RING_DIR": str(folder), "BAROGRAPH_RING_RECORDS": "4194304"}
        done = mpi.run(1, [program, "400", "2000", "1"], env)
        assert done.returncode == 0, done.stderr
        for which, line in enumerate(done.stdout.splitlines(), 1):
            function, median, low, high, control = line.split()
            if shutil.which("valgrind"):
                most, least = (instructions(mpi, program, library, folder, which, calls) for calls in (3000, 1000))
                off = [instructions(mpi, program, library, folder, 0, calls) for calls in (3000, 1000)]
                added[tool, function] = ((most - least) - (off[0] - off[1])) / 2000
            count = f"{added[tool, function]:.1f}" if (tool, function) in added else "no valgrind"
            print(f"{tool:10} {function:10} {median:>7} {f'{low}..{high}':>15} {control:>6} {count:>13}")
    for function in FUNCTIONS:
        if ("shim", function) in added:
            assert added["no-op", function] < added["shim", function] < MOST_INSTRUCTIONS
