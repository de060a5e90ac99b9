"""A broken installation does not affect jobs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers import mpi as mpis
from helpers.mpi import REPOSITORY
from helpers.slurm import USER, Cluster, cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parents[1] / "agent/programs/paced.c"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    with cluster() as made:
        mpis.find("debian-mpich").compile(PROGRAM, made.work / "paced")
        yield made


@contextmanager
def full(directory: Path) -> Iterator[None]:
    """A small file system without room mounted there."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "tmpfs", directory], check=True)
    try:
        with (directory / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


@contextmanager
def closed(*directories: Path) -> Iterator[None]:
    """Directories that only root can read."""
    for directory in directories:
        directory.chmod(0o700)
    try:
        yield
    finally:
        for directory in directories:
            directory.chmod(0o755)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def job_is_unharmed(slurm: Cluster) -> None:
    """A step and a batch job print, and end, as they would without hooks."""
    program = f"{slurm.work}/paced 20 1000 /dev/null && echo done; exit 3"
    done = slurm.run("srun", "-n2", "-N1", "--mpi=pmi2", "sh", "-c", program, user=USER)
    assert (done.returncode, done.stdout) == (3, "done\ndone\n"), done.stderr
    told = [line for line in done.stderr.splitlines() if "Exited with exit code 3" not in line]
    assert told == []
    job = slurm.batch(f"srun -n1 --mpi=pmi2 {slurm.work}/paced 20 1000 /dev/null && echo fine", "--output=%j.out")
    assert slurm.output(job) == "fine\n"
    slurm.settle()


@pytest.mark.parametrize("trouble", ["collector", "disk", "memory", "shim", "python", "crash", "settings", "hooks"])
def test_a_job_runs_normally_despite_a_broken_installation(slurm: Cluster, trouble: str) -> None:
    slurm.configure()
    match trouble:
        case "collector":
            job_is_unharmed(slurm)
        case "disk":
            with full(slurm.spool):
                job_is_unharmed(slurm)
        case "memory":
            with full(slurm.rings):
                job_is_unharmed(slurm)
        case "shim":
            slurm.configure(shim="/no/such/libbarograph.so")
            job_is_unharmed(slurm)
        case "python":
            slurm.configure(python="/no/such/python")
            job_is_unharmed(slurm)
        case "crash":
            slurm.configure(python=script(slurm.etc / "crashes", "kill -SEGV $$"))
            job_is_unharmed(slurm)
        case "settings":
            (slurm.etc / "hooks.conf").write_text("if this is no shell (\n")
            job_is_unharmed(slurm)
        case "hooks":
            with closed(slurm.etc / "hooks"):
                job_is_unharmed(slurm)


def test_the_guides_check_detects_a_task_prolog_that_users_cannot_run(slurm: Cluster) -> None:
    """No script can help where Slurm finds none: it fails the task itself."""
    slurm.configure()
    check = slurm.etc / "slurm/task-prolog"
    done = slurm.run(check, user=USER)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with closed(slurm.etc / "slurm"):
        assert slurm.run(check, user=USER).returncode != 0
        assert slurm.run("srun", "true", user=USER).returncode == 1
    assert slurm.run("srun", "true", user=USER).returncode == 0
    slurm.settle()


def test_a_hanging_sidecar_does_not_delay_the_job(slurm: Cluster) -> None:
    note = slurm.work / "hanging"
    note.touch()
    note.chmod(0o666)
    slurm.configure(python=script(slurm.etc / "hangs", f"echo $$ >> {note}; exec sleep 1000"))
    try:
        job_is_unharmed(slurm)
    finally:
        for pid in note.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def test_hooks_are_clean_posix_shell() -> None:
    files = [
        path for folder in ("hooks", "slurm", "pbs", "flux") for path in (REPOSITORY / "deploy" / folder).iterdir()
    ]
    scripts = [path for path in files if path.suffix in ("", ".sh")]
    if shutil.which("shellcheck") is None:
        mpis.missing("shellcheck is not installed: tests/install-packages")
    command = ["shellcheck", "--shell=sh", "--external-sources", "--source-path=SCRIPTDIR", *scripts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    for path in scripts:
        assert subprocess.run(["dash", "-n", path], capture_output=True, check=False).returncode == 0
