"""The shim in a real MPI program under the compiler's sanitizers and under valgrind."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from barograph_agent.ring.reader import Ring
from helpers import mpi as mpis
from helpers.once import built_shim

PROGRAMS = Path(__file__).with_name("programs")
# Followed by the records of rank 0.
RUNS = {"collectives.c": (["20", "finalize"], 220), "blocking.c": ([], 113), "threads.c": (["4", "200"], 800)}
RUNS |= {"paths.c": (["50"], 600), "handles.c": (["20"], 60)}

programs = pytest.mark.parametrize("name", RUNS)
# To detect a frame without a fixed size, the shim compares a word of the stack that may be uninitialized.
without_dynamic_frames = pytest.mark.parametrize("name", [name for name in RUNS if name != "paths.c"])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_shim(tmp_path_factory)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_shim(tmp_path_factory, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def records(folder: Path) -> int:
    (path,) = folder.iterdir()
    with Ring(path) as ring:
        return ring.head


@pytest.mark.process
@programs
@pytest.mark.parametrize("mpi_name", ["mpich", "openmpi"])
def test_the_sanitizers_report_nothing(mpi_name: str, name: str, tmp_path: Path, sanitized: Path) -> None:
    mpi = mpis.find(mpi_name)
    arguments, count = RUNS[name]
    program = mpi.compile(PROGRAMS / name, tmp_path / "program", "-pthread")
    (tmp_path / "rings").mkdir()
    runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    env = {
        "LD_PRELOAD": f"{runtime.stdout.strip()}:{sanitized}",
        "ASAN_OPTIONS": "detect_leaks=0",  # MPI has leaks
        "BAROGRAPH_RING_DIR": str(tmp_path / "rings"),
    }
    done = mpi.run(1, [program, *arguments], env)
    assert done.returncode == 0, done.stderr
    assert "runtime error" not in done.stderr
    assert records(tmp_path / "rings") == count


def complaints(log: str) -> list[str]:
    """Errors and leaks in code of the shim, or of the C library called by it."""
    found = []
    for block in re.split(r"(?m)^==\d+== $\n", log):
        frames = re.findall(r"(?:at|by) 0x[0-9A-F]+: (.*)", block)
        ours = [frame for frame in frames if not re.search(r"vgpreload|/libc[.-]|/ld-linux", frame)][:1]
        if ours and re.search(r"libbarograph\.so|agent/shim|\((recorder|writer|sites|callers|types)\.[ch]:", ours[0]):
            found.append(block)
    return found


@pytest.mark.integration
@without_dynamic_frames
def test_valgrind_reports_nothing_in_the_shim(name: str, tmp_path: Path, plain: Path) -> None:
    if not shutil.which("valgrind"):
        mpis.missing("no valgrind on PATH (Debian package valgrind)")
    mpi = mpis.find("mpich")
    arguments, count = RUNS[name]
    program = mpi.compile(PROGRAMS / name, tmp_path / "program", "-pthread")
    (tmp_path / "rings").mkdir()
    log = tmp_path / "valgrind.log"
    valgrind = ["valgrind", "--leak-check=full", "--num-callers=20", "--keep-debuginfo=yes", f"--log-file={log}"]
    env = {"LD_PRELOAD": str(plain), "BAROGRAPH_RING_DIR": str(tmp_path / "rings")}
    done = mpi.run(1, [*valgrind, program, *arguments], env)
    assert done.returncode == 0, done.stderr
    assert "ERROR SUMMARY" in log.read_text()
    assert complaints(log.read_text()) == []
    assert records(tmp_path / "rings") == count
