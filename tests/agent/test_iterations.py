"""Programs without blocking collectives of all ranks in their loop have an interval for each iteration they report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers import mpi as mpis
from helpers.service import Node

PROGRAMS = Path(__file__).with_name("programs") / "iterations"
ITERATIONS = 1500
MILLISECONDS = 2.5
"""Of work in each: a run is longer than the time after which iterations are looked for."""
FORMS = ["iallreduce", "only-iallreduce", "fence", "persistent", "neighbours", "grid", "objects", "exchange"]
OF_PYTHON = FORMS[5:]


def intervals(mpi_name: str, form: str, folder: Path) -> int:
    """Intervals of one run of ITERATIONS."""
    mpi = mpis.find(mpi_name)
    if form in OF_PYTHON:
        if mpi.python is None:
            pytest.skip(f"{mpi_name} has no mpi4py here")
        program = [mpi.python, PROGRAMS / "grid.py", form, str(ITERATIONS), str(MILLISECONDS / 1e3)]
    else:
        program = [mpi.compile(PROGRAMS / "stencil.c", folder / "stencil"), form, str(ITERATIONS)]
        program.append(str(MILLISECONDS * 1e3))
    done = Node(folder).run(*mpi.command(2, program), drain=0)
    assert done.returncode == 0, done.stderr
    assert f"iterations {ITERATIONS}" in done.stdout
    found = re.search(r"intervals ([\d,]+) seen on 2 ranks", done.stderr)
    assert found is not None, done.stderr
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(("mpi_name", "form"), [("mpich", "iallreduce"), ("openmpi", "grid")])
def test_each_iteration_is_an_interval(mpi_name: str, form: str, tmp_path: Path) -> None:
    assert intervals(mpi_name, form, tmp_path) == pytest.approx(ITERATIONS, rel=0.02)


@pytest.mark.process
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mpi_name", ["mpich", "openmpi", "debian-mpich", "debian-openmpi"])
def test_each_iteration_is_an_interval_under_every_mpi(mpi_name: str, form: str, tmp_path: Path) -> None:
    assert intervals(mpi_name, form, tmp_path) == pytest.approx(ITERATIONS, rel=0.02)
