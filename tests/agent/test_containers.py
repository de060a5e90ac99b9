"""Programs in containers, for which a command with the name of a runtime stands: only /dev is the node's own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from barograph_agent import shim
from helpers import mpi as mpis
from helpers.once import built_shim
from helpers.service import Node

pytestmark = [pytest.mark.integration, pytest.mark.skipif(os.getuid() != 0, reason="a container needs root")]


@pytest.fixture
def runtime(tmp_path: Path) -> list[str]:
    """The folder that follows these words is empty in the container."""
    (tmp_path / "apptainer").symlink_to("/usr/bin/unshare")
    (tmp_path / "entry").write_text('#!/bin/sh\nmount -t tmpfs tmpfs "$1" && shift && exec "$@"\n')
    (tmp_path / "entry").chmod(0o755)
    return [str(tmp_path / "apptainer"), "--mount", str(tmp_path / "entry")]


@pytest.mark.parametrize("hides", [False, True])
def test_a_program_is_seen_where_its_container_shows_the_rings_and_hears_nothing_elsewhere(
    runtime: list[str], hides: bool, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    library, mpi = built_shim(tmp_path_factory, "-DMAX_GLIBC_MINOR=99"), mpis.find("mpich")
    program = mpi.compile(Path(__file__).with_name("programs") / "collectives.c", tmp_path / "program")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as rings:
        env = {"LD_PRELOAD": str(library), "BAROGRAPH_RING_DIR": rings}
        words = [runtime[0], *["-C"] * hides, *runtime[1:], str(library.parent)]
        done = mpi.run(1, [*words, program, "3", "finalize"], env)
        assert (done.returncode, done.stdout, done.stderr) == (0, "bad=0\n", "")
        assert {path.suffix for path in Path(rings).iterdir()} == ({".container"} if hides else {".ring", ".so"})


def test_the_last_lines_of_a_run_say_that_a_container_hides_the_shim(runtime: list[str], tmp_path: Path) -> None:
    done = Node(tmp_path / "node").run(*runtime, str(shim.library().parent), "sh", "-c", "echo inside; exit 7", drain=0)
    assert (done.returncode, done.stdout, "preloaded" in done.stderr) == (7, "inside\n", False)
    assert "barograph: intervals none seen: the shim is not visible in containers of apptainer" in done.stderr
