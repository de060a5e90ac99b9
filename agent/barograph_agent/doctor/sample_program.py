"""A program of one rank under the shim: the check of `barograph doctor` that says whether runs are really seen."""

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
_SLOW: Final = "each collective costs about 40 ns instead of 15; nothing else changes"


class Finding(NamedTuple):
    """One line: what was checked, how it is, and what to do where it is not well."""

    check: str
    state: State
    text: str
    advice: str = ""


Environment = Mapping[str, str]


def check_launcher(environment: Environment) -> Finding:
    """The mpiexec that a user would get, and whose it is."""
    path = shutil.which("mpiexec", path=environment.get("PATH"))
    if path is None:
        return Finding("mpi", "warn", "no mpiexec in PATH", "load the MPI module that jobs use, and ask again")
    done = run([path, "--version"], environment)
    said = (done.stdout + done.stderr) if done else ""
    kinds = {
        "Intel(R) MPI": "Intel MPI",
        "OpenRTE": "Open MPI",
        "Open MPI": "Open MPI",
        "PRRTE": "Open MPI",
        "HYDRA": "MPICH",
    }
    kind = next((kind for word, kind in kinds.items() if word in said), "of an unknown kind")
    return Finding("mpi", "ok", f"{path}: {kind}")


def check_watching(environment: Environment) -> Iterator[Finding]:
    """A program of one rank under the shim: its barriers are in a ring, and the ring says which clock."""
    with tempfile.TemporaryDirectory(prefix="barograph-doctor-") as folder:
        program = _program(Path(folder), environment)
        if program is None:
            advice = "load the MPI module that jobs use, with mpicc or mpi4py, and ask again"
            yield Finding("watching", "warn", "not tried: neither mpicc nor mpi4py to make a program with", advice)
            yield _clock_of_kernel()
            return
        mpiexec = shutil.which("mpiexec", path=environment.get("PATH"))
        command = [*([mpiexec, "-n", "1"] if mpiexec else []), *program]
        rings = Path(folder) / "rings"
        rings.mkdir()
        try:
            preload = shim.preload(shim.library(), environment.get("LD_PRELOAD", ""))
        except (FileNotFoundError, ValueError):
            return
        own = {
            name: value for name, value in environment.items() if name not in ("BAROGRAPH_DISABLE", "BAROGRAPH_RANKS")
        }
        done = run(command, {**own, "LD_PRELOAD": preload, RING_VARIABLE: str(rings)})
        yield from _judge(rings, command, done)


def _program(folder: Path, environment: Environment) -> list[str] | None:
    """A command for a program that calls BARRIERS barriers; None where it cannot be made here."""
    if mpicc := shutil.which("mpicc", path=environment.get("PATH")):
        source, output = folder / "program.c", folder / "program"
        source.write_text(_C % BARRIERS)
        done = run([mpicc, "-o", str(output), str(source)], environment)
        if done is not None and done.returncode == 0:
            return [str(output)]
    done = run([sys.executable, "-c", "import mpi4py"], environment)
    return [sys.executable, "-c", _PYTHON % BARRIERS] if done is not None and done.returncode == 0 else None


def _judge(rings: Path, command: Sequence[str], done: subprocess.CompletedProcess[str] | None) -> Iterator[Finding]:
    if done is None or done.returncode:
        text = f"a program of one rank failed: {last(done)}"
        yield Finding("watching", "fail", text, f"make this work first, without barograph: {' '.join(command[:4])}")
        yield _clock_of_kernel()
        return
    for path in rings.glob("*.ring"):
        try:
            with Ring(path) as ring:
                seen, clock = ring.head, ring.clock
        except RingError as error:
            yield Finding("watching", "fail", str(error), "shim and agent are of two versions: install barograph again")
            return
        state: State = "ok" if seen == BARRIERS else "fail"
        advice = "" if state == "ok" else "please report this, with the name and version of your MPI"
        yield Finding("watching", state, f"{seen} of {BARRIERS} barriers of a program of one rank were seen", advice)
        fast = "time stamp counter" in clock
        yield Finding("clock", "ok" if fast else "warn", clock, "" if fast else _SLOW)
        return
    text = "a program of one rank ran, and none of its barriers were seen"
    yield Finding("watching", "fail", text, "is its MPI linked statically, or does mpiexec drop LD_PRELOAD?")
    yield _clock_of_kernel()


def _clock_of_kernel() -> Finding:
    try:
        source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    except OSError:
        source = "unknown"
    fast = source == "tsc"
    return Finding("clock", "ok" if fast else "warn", f"the kernel keeps time by {source}", "" if fast else _SLOW)


def run(command: Sequence[str], environment: Environment) -> subprocess.CompletedProcess[str] | None:
    """The command to its end, output captured; None where it could not be started or did not end."""
    try:
        return subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, timeout=PROGRAM_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


def last(done: subprocess.CompletedProcess[str] | None) -> str:
    """The last line that says something."""
    if done is None:
        return "it could not be started, or did not end"
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if any(map(str.isalpha, line))]
    return lines[-1][:200] if lines else f"status {done.returncode}"
