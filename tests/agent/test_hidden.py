"""Programs whose MPI the shim does not see are named with the reason, each of a real process; others are not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barograph_agent import shim
from barograph_agent.doctor.checks import check_program
from barograph_agent.system.processes import PROCESSES
from barograph_agent.work import hidden
from barograph_agent.work.hidden import Hidden, HiddenPrograms, of_file
from helpers import mpi as mpis
from helpers.service import Node

WAITS = """
#include <stdio.h>
#include <unistd.h>
int PMPI_Init(void) { return 0; }
int MPI_Init(void) { return PMPI_Init(); }
int main(void) { MPI_Init(); puts("ready"); fflush(stdout); pause(); return 0; }
"""
"""A program that has an MPI of its own, as one to which MPI is linked statically."""
SHARED = """
#include <stdio.h>
#include <unistd.h>
int MPI_Init(void);
int main(void) { MPI_Init(); puts("ready"); fflush(stdout); pause(); return 0; }
"""
LIBRARY = "int MPI_Init(void) { return 0; }"


def build(source: str, output: Path, *flags: str) -> Path:
    command = ["cc", "-xc", "-", "-xnone", "-o", str(output), *flags]
    subprocess.run(command, input=source, text=True, check=True)
    return output


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """static, own (a shared C library and an MPI of its own) and shared, which needs libmpi.so.12."""
    folder = tmp_path_factory.mktemp("programs")
    build(WAITS, folder / "static", "-static")
    build(WAITS, folder / "own")
    library = build(LIBRARY, folder / "libmpi.so.12", "-shared", "-fPIC")
    build(SHARED, folder / "shared", str(library), f"-Wl,-rpath,{folder}")
    return folder


@contextmanager
def running(command: list[str | Path], **variables: str) -> Iterator[int]:
    """The id of a process that runs a command, which says when it is ready."""
    process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def look(pid: int) -> list[Hidden]:
    programs = HiddenPrograms(shim.LIBRARY, PROCESSES)
    programs.scan(pid, 1.0)
    return list(programs.found.values())


def preload() -> str:
    return shim.preload(shim.library(), "")


@pytest.mark.parametrize(("name", "why"), [("static", hidden.STATIC), ("own", hidden.OWN_MPI)])
def test_a_program_that_contains_its_mpi_is_named(programs: Path, name: str, why: str) -> None:
    expected = Hidden(str(programs / name), why, is_mpi=True)
    assert of_file(str(programs / name)) == expected
    with running([programs / name], LD_PRELOAD=preload()) as pid:
        assert look(pid) == [expected]


def test_a_program_with_a_shared_mpi_is_seen_unless_it_lacks_the_preload(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(programs / "shared")
    assert of_file(path) is None
    with running([path], LD_PRELOAD=preload()) as pid:
        assert look(pid) == []
    with running(["env", "-u", "LD_PRELOAD", path], LD_PRELOAD=preload()) as pid:
        assert look(pid) == [Hidden(path, hidden.WITHOUT, is_mpi=True)]
    with running([path], LD_PRELOAD=f"/nowhere/{shim.LIBRARY}") as pid:
        assert look(pid) == [Hidden(path, hidden.REFUSED, is_mpi=True)]
    with running([path], LD_PRELOAD="libm.so.6") as pid:
        assert look(pid) == [Hidden(path, hidden.REPLACED, is_mpi=True)]
    monkeypatch.setattr(hidden.os, "getuid", lambda: 4711)
    with running([path], LD_PRELOAD=preload()) as pid:
        assert look(pid) == [Hidden(path, hidden.OTHER_USER, is_mpi=True)]


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user, which only root may")
def test_a_setuid_program_is_named_where_it_changes_the_user(programs: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(programs / "shared", tmp_path))
    path.chmod(0o4755)
    assert of_file(str(path)) is None  # of this user: nothing changes
    os.chown(path, 65534, 65534)
    path.chmod(0o4755)
    for folder in (tmp_path, *tmp_path.parents, programs, *programs.parents):
        if folder.owner() == "root" and not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    assert of_file(str(path)) == Hidden(str(path), hidden.SECURE, is_mpi=False)
    with running([path], LD_PRELOAD=preload()) as pid:
        assert look(pid) == [Hidden(str(path), hidden.SECURE, is_mpi=True)]
    assert check_program(str(path), os.environ).state == "fail"


def test_children_of_shells_are_looked_at_and_tools_are_not_named(programs: Path) -> None:
    script = f"sleep 60 & {programs}/own & wait"
    with running(["sh", "-c", script], LD_PRELOAD=preload()) as pid:
        assert look(pid) == [Hidden(str(programs / "own"), hidden.OWN_MPI, is_mpi=True)]
        ended = subprocess.run(["pkill", "-P", str(pid)], check=False)
        assert ended.returncode == 0


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\2\1" + bytes(26) + b"\xff" * 40])
def test_scripts_and_damaged_files_say_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert of_file(str(tmp_path / "file")) is None
    assert of_file(str(tmp_path / "absent")) is None


def test_the_last_lines_of_a_run_name_a_program_that_was_not_seen(programs: Path, tmp_path: Path) -> None:
    done = Node(tmp_path).run("timeout", "0.2", str(programs / "static"), drain=0)
    assert f"barograph: intervals none seen: {programs}/static {hidden.STATIC}" in done.stderr.splitlines()


@pytest.mark.integration
def test_the_static_library_of_mpich_is_recognized(tmp_path: Path) -> None:
    mpi = mpis.find("debian-mpich")
    library = Path("/usr/lib/x86_64-linux-gnu/libmpich.a")
    if not library.exists():
        mpis.missing(f"{library} does not exist (Debian package libmpich-dev)")
    (tmp_path / "main.c").write_text(
        "#include <mpi.h>\nint main(int c, char **v) { MPI_Init(&c, &v); return MPI_Finalize(); }\n"
    )
    shown = subprocess.run([mpi.mpicc, "-show"], capture_output=True, text=True, check=True).stdout.split()
    flags = [str(library) if word == "-lmpich" else word for word in shown[1:]]
    needs = ["-lucp", "-lucs", "-luct", "-lucm", "-lhwloc", "-lpthread", "-lm"]
    command = ["cc", str(tmp_path / "main.c"), "-o", str(tmp_path / "program"), *flags, *needs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    subprocess.run(["strip", str(tmp_path / "program")], check=True)
    found = of_file(str(tmp_path / "program"))
    assert found == Hidden(str(tmp_path / "program"), hidden.OWN_MPI, is_mpi=True)
    shared = mpi.compile(tmp_path / "main.c", tmp_path / "shared")
    assert of_file(str(shared)) is None
