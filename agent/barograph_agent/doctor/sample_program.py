"""The check of `barograph doctor` that runs a one-rank MPI program under the shim and reads its ring."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from barograph_agent import shim
from barograph_agent.ring.reader import Ring, RingError
from barograph_agent.sidecar.plan import RING_VARIABLE

State = Literal["ok", "warn", "fail"]
PROGRAM_SECONDS: Final = 60.0
BARRIERS: Final = 3
_C: Final = """
#include <mpi.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    for (int i = 0; i < %d; i++) MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
"""
_PYTHON: Final = "from mpi4py import MPI\nfor _ in range(%d):\n    MPI.COMM_WORLD.Barrier()\n"
_LAUNCHERS: Final = {"Intel(R)": "Intel MPI", "Open": "Open MPI", "PRRTE": "Open MPI", "HYDRA": "MPICH"}
"""MPIs by a word of what `mpiexec --version` prints."""
_SLOW: Final = "each collective costs about 40 ns instead of 15; nothing else changes"


class Finding(NamedTuple):
    """The result of a check: one line, and the remedy if it did not pass."""

    check: str
    state: State
    text: str
    advice: str = ""


Environment = Mapping[str, str]


def check_launcher(environment: Environment) -> Finding:
    """The mpiexec in PATH and its MPI implementation."""
    path = shutil.which("mpiexec", path=environment.get("PATH"))
    if path is None:
        return Finding("mpi", "warn", "no mpiexec in PATH", "load the MPI module that jobs use, and ask again")
    done = run([path, "--version"], environment)
    text = (done.stdout + done.stderr) if done else ""
    kind = next((kind for word, kind in _LAUNCHERS.items() if word in text), "of an unknown kind")
    return Finding("mpi", "ok", f"{path}: {kind}")


def check_watching(environment: Environment) -> Iterator[Finding]:
    """Whether the barriers of a one-rank program are in its ring, and the clock that timed them, if there is one."""
    try:
        preload = shim.preload(shim.library(), environment.get("LD_PRELOAD", ""))
    except (FileNotFoundError, ValueError):
        return  # reported by check_shim
    with tempfile.TemporaryDirectory(prefix="barograph-doctor-") as folder:
        watching, clock = _watch(Path(folder), environment, preload)
    yield watching
    if clock:
        fast = "time stamp counter" in clock
        yield Finding("clock", "ok" if fast else "warn", clock, "" if fast else _SLOW)


def _watch(folder: Path, environment: Environment, preload: str) -> tuple[Finding, str]:
    """The finding, and the ring's clock, empty if there is no ring."""
    program = _program(folder, environment)
    if program is None:
        advice = "load the MPI module that jobs use, with mpicc or mpi4py, and ask again"
        text = "not tried: neither mpicc nor mpi4py to make a program with"
        return Finding("watching", "warn", text, advice), ""
    mpiexec = shutil.which("mpiexec", path=environment.get("PATH"))
    command = [*([mpiexec, "-n", "1"] if mpiexec else []), *program]
    rings = folder / "rings"
    rings.mkdir()
    own = {name: value for name, value in environment.items() if name not in ("BAROGRAPH_DISABLE", "BAROGRAPH_RANKS")}
    # Open MPI's mpiexec refuses to run as root otherwise; operators are.
    own |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = run(command, {**own, "LD_PRELOAD": preload, RING_VARIABLE: str(rings)})
    if done is None or done.returncode:
        text = f"a program of one rank failed: {last(done)}"
        advice = f"make this work first, without barograph: {' '.join(command[:4])}"
        return Finding("watching", "fail", text, advice), ""
    path = next(rings.glob("*.ring"), None)
    if path is None:
        text = "a program of one rank ran, and none of its barriers were seen"
        advice = "is its MPI linked statically, or does mpiexec drop LD_PRELOAD?"
        return Finding("watching", "fail", text, advice), ""
    try:
        with Ring(path) as ring:
            seen, clock = ring.head, ring.clock
    except RingError as error:
        advice = "shim and agent are of two versions: install barograph again"
        return Finding("watching", "fail", str(error), advice), ""
    text = f"{seen} of {BARRIERS} barriers of a program of one rank were seen"
    if seen == BARRIERS:
        return Finding("watching", "ok", text), clock
    return Finding("watching", "fail", text, "please report this, with the name and version of your MPI"), clock


def _program(folder: Path, environment: Environment) -> list[str] | None:
    """The command of a program with BARRIERS barriers; None if neither mpicc nor mpi4py is available."""
    if mpicc := shutil.which("mpicc", path=environment.get("PATH")):
        source, output = folder / "program.c", folder / "program"
        source.write_text(_C % BARRIERS)
        done = run([mpicc, "-o", str(output), str(source)], environment)
        if done is not None and done.returncode == 0:
            return [str(output)]
    done = run([sys.executable, "-c", "import mpi4py"], environment)
    return [sys.executable, "-c", _PYTHON % BARRIERS] if done is not None and done.returncode == 0 else None


def run(command: Sequence[str], environment: Environment) -> subprocess.CompletedProcess[str] | None:
    """Run a command and capture its output; None if it did not start or exceeded PROGRAM_SECONDS."""
    try:
        return subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, timeout=PROGRAM_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


def last(done: subprocess.CompletedProcess[str] | None) -> str:
    """The last line of output that contains letters."""
    if done is None:
        return "it could not be started, or did not end"
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if any(map(str.isalpha, line))]
    return lines[-1][:200] if lines else f"status {done.returncode}"
