"""The shim under real MPIs: exact records, and no effect on the application."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.doctor import checks
from barograph_agent.ring import reader as layout
from barograph_agent.ring.reader import BYTES_UNKNOWN, OPERATIONS, Records, Ring
from helpers import mpi as mpis
from helpers.mpi import Mpi
from helpers.once import built_shim

PROGRAMS = Path(__file__).with_name("programs")
SOURCES = mpis.REPOSITORY / "agent/shim"

# Collectives of one round of programs/collectives.c on rank 0, in order; collectives.py has a different eleven.
ROUND = [
    "Barrier",
    "Allreduce",
    "Allreduce",
    "Allgather",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
    "Reduce_scatter",
    "Alltoallw",
    "Reduce_scatter_block",
    "Barrier",
]
ROUND_MPI4PY = [
    "Barrier",
    "Allreduce",
    "Allgather",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
    "Alltoallv",
    "Reduce_scatter",
    "Alltoallw",
    "Reduce_scatter_block",
    "Barrier",
]
BYTES = [None, 4, 4, 4, None, 4, None, None, None, 4, None]
BYTES_MPI4PY = [None, 8, 8, None, 8, None, None, None, None, 8, None]
FORTRAN = {"mpif.h": 1, "use mpi": 2, "use mpi_f08": 3}
ELSEWHERE = ["Send", "Bsend", "Rsend", "Ssend", "Recv", "Sendrecv", "Sendrecv_replace", "Probe", "Mprobe", "Mrecv",
             "Wait", "Waitall", "Waitany", "Waitsome", "Bcast", "Reduce", "Scan", "Exscan", "Gather", "Gatherv",
             "Scatter", "Scatterv", *(f"Neighbor_{name}" for name in ("allgather", "allgatherv", "alltoall",
                                                                      "alltoallv", "alltoallw"))]  # fmt: skip
WINDOW = [f"Win_{name}" for name in ("fence", "start", "post", "complete", "wait", "lock", "lock_all", "unlock",
                                     "unlock_all", "flush", "flush_all", "flush_local", "flush_local_all",
                                     "test")]  # fmt: skip
FILE = [f"File_{action}_{name}" for action in ("read", "write") for name in ("all", "at_all", "ordered")]
POLLING = ["Test", "Testall", "Testany", "Testsome", "Iprobe", "Improbe"]
SENDING = ["Isend", "Ibsend", "Irsend", "Issend"]
# mpi4py calls these if they are defined, so the shim must work without the library's.
LARGE = ["Allreduce", "Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Alltoallw", "Reduce_scatter",
         "Reduce_scatter_block", "Send", "Bsend", "Rsend", "Ssend", "Recv", "Sendrecv", "Sendrecv_replace", "Mrecv",
         "Bcast", "Reduce", "Scan", "Exscan", "Gather", "Scatter", "Neighbor_allgather",
         "Neighbor_alltoall", *FILE, *SENDING]  # fmt: skip
LIFE = ["Init", "Init_thread", "Finalize", "Session_init", "Session_finalize"]
SPELLINGS = ["_", "__", "_f08_"]
CALLS = [*{*ROUND}, *ELSEWHERE, *WINDOW, *FILE, *(f"{name}_end" for name in FILE), "File_sync", *POLLING, *SENDING]
WRAPPED = [
    *(f"MPI_{name}" for name in (*LIFE, *CALLS)),
    *(f"MPI_{name}_c" for name in LARGE),
    *(f"MPI_{name.upper()}" for name in (*LIFE, *CALLS)),
    *(f"mpi_{name.lower()}{end}" for name in (*LIFE, *CALLS) for end in SPELLINGS),
    *(f"mpi_{name.lower()}_f08ts_{end}" for name in CALLS for end in ("", "large_")),
]


@pytest.fixture(scope="session")
def shim_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_shim(tmp_path_factory)


@pytest.fixture(scope="session")
def verifying_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shim that unwinds at every collective, and aborts if the call path differs from the one it composed."""
    return built_shim(tmp_path_factory, "-DBAROGRAPH_VERIFY_PATHS")


@pytest.fixture(scope="session")
def bare_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shim by a compiler without link-time optimization, which finds no unwinder and no reliable counter."""
    return built_shim(tmp_path_factory, '-DUNWINDER="libabsent.so"', '-DCLOCKSOURCE="/absent"', lto=False)


@pytest.fixture(scope="module", params=[*mpis.PARAMS, pytest.param("mpich-abi", marks=pytest.mark.process)])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return mpis.find(request.param)


@pytest.fixture(scope="module")
def compiled(mpi: Mpi, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    folder = tmp_path_factory.mktemp(mpi.name)

    def compile_once(name: str, *flags: str) -> Path:
        output = folder / name.removesuffix(".c")
        return output if output.exists() else mpi.compile(PROGRAMS / name, output, *flags)

    return compile_once


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "rings"
    path.mkdir()
    return path


@pytest.fixture
def env(shim_library: Path, folder: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(shim_library), "BAROGRAPH_RING_DIR": str(folder)}


@dataclass(frozen=True)
class Seen:
    """A ring's content after the run."""

    records: Records
    operations: list[str]
    sites: list[str]
    bytes: list[int | None]
    dropped: int
    finalized: bool
    rank: int
    size: int
    started_ns: int
    clock: str


def read(path: Path) -> Seen:
    with Ring(path) as ring:
        records = ring.records(ring.tail, ring.head)
        return Seen(
            records=records,
            operations=[OPERATIONS[int(op)] for op in records["op"]],
            sites=[ring.site(int(site)) for site in records["site"]],
            bytes=[None if size == BYTES_UNKNOWN else size for size in records["bytes"].tolist()],
            dropped=ring.dropped,
            finalized=ring.finalized,
            rank=ring.rank,
            size=ring.size,
            started_ns=ring.started_ns,
            clock=ring.clock,
        )


def assert_time_elsewhere_is_known(said: str, seen: Seen) -> None:
    """Said is, for each interval that a barrier ends, a name and the nanoseconds that the call in it took at most.

    The program and the shim measure with two clocks: laid over each other once, and one of them steered by 0.05 %.
    """
    steps = [line.rsplit(" ", 1) for line in said.splitlines()]
    assert len(seen.records) == 2 * len(steps) > 0
    for (name, most), record in zip(steps, seen.records[1::2], strict=True):
        sends = "send" in name.casefold()
        # One message of one integer of 4 bytes, or of four.
        assert (record["messages"], record["message_bytes"]) == (sends, sends * (16 if "pairs" in name else 4)), name
        if name == "nothing" or (sends and name.startswith("I") and "Test" not in name):
            assert record["p2p_ns"] == 0
        else:
            assert 0 < record["p2p_ns"] <= 1.0005 * int(most) + 1000, name


def only_ring(folder: Path) -> Seen:
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return read(path)


def assert_in_order(seen: Seen) -> None:
    enter, exit_ = seen.records["enter_ns"], seen.records["exit_ns"]
    assert (np.diff(np.concatenate([[seen.started_ns], exit_]).astype(np.int64)) >= 0).all()
    assert (enter <= exit_).all()
    assert (seen.records["index"] == np.arange(len(enter))).all()
    gap = enter.astype(np.int64) - np.concatenate([[seen.started_ns], exit_[:-1]]).astype(np.int64)
    assert (seen.records["p2p_ns"].astype(np.int64) <= np.maximum(gap, 0)).all()


@pytest.mark.parametrize("ranks", [1, 3])
def test_collectives_of_world_size_are_recorded_once_in_order_on_rank_0_only(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path, ranks: int
) -> None:
    done = mpi.run(ranks, [compiled("collectives.c"), "20", "finalize"], env)
    assert (done.returncode, done.stdout.split()) == (0, ["bad=0"] * ranks), done.stderr
    seen = only_ring(folder)
    assert seen.operations == ROUND * 20
    assert seen.bytes == BYTES * 20
    assert_in_order(seen)
    assert (seen.rank, seen.size, seen.dropped, seen.finalized) == (0, ranks, 0, True)
    assert len(set(seen.sites)) == len(ROUND)  # eleven call sites, the same in each round
    assert seen.sites == seen.sites[: len(ROUND)] * 20
    assert {site.split("+")[0] for site in seen.sites} == {"collectives"}


@pytest.mark.parametrize("end", ["exit", "_exit", "abort", "kill", "fork"])
def test_the_ring_is_exact_for_any_end_of_the_program(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path, end: str
) -> None:
    done = mpi.run(1, [compiled("collectives.c"), "7", end], env)
    assert (done.returncode == 0) == (end == "fork")
    assert "bad=0" in done.stdout
    seen = only_ring(folder)
    assert seen.operations == ROUND * 7  # without the Barrier of the forked child
    assert seen.finalized == (end == "fork")


def test_time_in_waiting_calls_is_separate_from_own_work(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    done = mpi.run(2, [compiled("blocking.c")], env)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 56
    assert_time_elsewhere_is_known(done.stdout, only_ring(folder))


@pytest.mark.parametrize("mpi", mpis.WHEELS, indirect=True)
def test_time_in_waiting_calls_is_separate_in_mpi4py(mpi: Mpi, env: dict[str, str], folder: Path) -> None:
    assert mpi.python is not None
    done = mpi.run(2, [mpi.python, PROGRAMS / "blocking.py"], env)
    assert done.returncode == 0, done.stderr
    assert_time_elsewhere_is_known(done.stdout, only_ring(folder))


@pytest.mark.integration
@pytest.mark.parametrize("mpi", ["debian-mpich", "debian-openmpi"], indirect=True)
@pytest.mark.parametrize("binding", FORTRAN)
def test_waiting_calls_and_pairs_of_fortran_are_as_those_of_c(
    mpi: Mpi, tmp_path: Path, env: dict[str, str], folder: Path, binding: str
) -> None:
    of = f"-DBINDING={FORTRAN[binding]}"
    done = mpi.run(2, [mpi.compile_fortran(PROGRAMS / "blocking.F90", tmp_path / "blocking", of)], env)
    assert done.returncode == 0, done.stderr
    assert_time_elsewhere_is_known(done.stdout, only_ring(folder))
    next(folder.iterdir()).unlink()
    done = mpi.run(2, [mpi.compile_fortran(PROGRAMS / "pairs.F90", tmp_path / "pairs", of)], env)
    assert (done.returncode, done.stdout.split()) == (0, ["bad=0"] * 2), done.stderr
    assert only_ring(folder).operations == ["Bcast", "Scatter", "Barrier"] * 5


PAIRS = ["Bcast", "Bcast", "Scatter", "Bcast", "Bcast", "Barrier", "Bcast"]
"""Sync points of one round of programs/pairs.c."""


@pytest.mark.parametrize("ranks", [2, 3])
def test_rooted_collectives_synchronize_in_pairs_on_every_rank_alike(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path, ranks: int
) -> None:
    done = mpi.run(ranks, [compiled("pairs.c"), "20"], env | {"BAROGRAPH_RANKS": "all"})
    assert (done.returncode, done.stdout.split()) == (0, ["bad=0"] * ranks), done.stderr
    rings = [read(path) for path in folder.iterdir()]
    assert sorted(seen.rank for seen in rings) == list(range(ranks))
    for seen in rings:
        assert seen.operations == PAIRS * 20
        assert_in_order(seen)
    assert len(set(rings[0].sites)) == len(PAIRS)


def test_of_a_pair_the_time_of_both_calls_is_waiting(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    done = mpi.run(2, [compiled("pairs.c"), "2", "800"], env | {"BAROGRAPH_RANKS": "all"})
    assert done.returncode == 0, done.stderr
    # The second round's first pair, which rank 0 is the root of: it waits in the first call, rank 1 in neither.
    first, second = sorted((read(path) for path in folder.iterdir()), key=lambda seen: seen.rank)
    at = len(PAIRS)
    for seen, waits in ((first, True), (second, False)):
        record, before = seen.records[at], seen.records[at - 1]
        waited = int(record["exit_ns"]) - int(record["enter_ns"])
        worked = int(record["enter_ns"]) - int(before["exit_ns"]) - int(record["p2p_ns"])
        assert (waited > worked) == waits


@pytest.mark.parametrize("mpi", mpis.WHEELS, indirect=True)
def test_pairs_of_mpi4py_synchronize(mpi: Mpi, env: dict[str, str], folder: Path) -> None:
    assert mpi.python is not None
    done = mpi.run(2, [mpi.python, PROGRAMS / "pairs.py", "5"], env)
    assert (done.returncode, done.stdout.split()) == (0, ["bad=0"] * 2), done.stderr
    seen = only_ring(folder)
    assert seen.operations == ["Bcast", "Scatter", "Bcast", "Barrier"] * 5
    assert_in_order(seen)


@pytest.mark.parametrize("mpi", mpis.WHEELS, indirect=True)
def test_mpi4py_is_recorded_with_and_without_large_count_functions(mpi: Mpi, env: dict[str, str], folder: Path) -> None:
    assert mpi.python is not None
    done = mpi.run(2, [mpi.python, PROGRAMS / "collectives.py", "5", "finalize"], env)
    assert (done.returncode, done.stdout.split()) == (0, ["bad=0"] * 2), done.stderr
    seen = only_ring(folder)
    assert seen.operations == ROUND_MPI4PY * 5
    assert seen.bytes == BYTES_MPI4PY * 5
    assert_in_order(seen)
    assert seen.finalized  # mpi4py finalizes at exit by a tail call, which hides its own scope


@pytest.mark.parametrize("optimize", ["-O0", "-O2", "-O2 -march=native", "-O2 -fno-omit-frame-pointer"])
def test_a_site_is_the_call_path_and_ends_where_a_frame_has_no_fixed_size(
    mpi: Mpi, tmp_path: Path, env: dict[str, str], folder: Path, verifying_library: Path, optimize: str
) -> None:
    program = mpi.compile(PROGRAMS / "paths.c", tmp_path / "paths", *optimize.split())
    done = mpi.run(1, [program, "100"], {**env, "LD_PRELOAD": str(verifying_library)})
    assert (done.returncode, done.stderr) == (0, "")
    seen = only_ring(folder)
    assert len(seen.sites) == 1200
    assert {frame.split("+")[0] for site in seen.sites for frame in site.split(" < ")} == {"paths"}
    # From the second round on, frames of dynamic size are known.
    paths = [tuple(site.split(" < ")) for site in seen.sites[12:]]
    for at in range(6):
        assert len(set(paths[at::12])) == 1
    assert len(set(paths[:6])) == 6
    assert {len(path) for at in range(6) for path in paths[at::12]} == {3}
    assert len({path[0] for path in paths[:6]}) == 1
    assert len({path[1] for path in paths[:6]}) == 2
    for at in (6, 7, 8):
        assert {len(path) for path in paths[at::12]} == {1}


@pytest.mark.process
def test_without_an_unwinder_a_site_is_the_return_address(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path, bare_library: Path
) -> None:
    done = mpi.run(1, [compiled("paths.c", "-O2"), "3"], {**env, "LD_PRELOAD": str(bare_library)})
    assert (done.returncode, done.stderr) == (0, "")
    seen = only_ring(folder)
    assert len(seen.sites) == 36
    assert len(set(seen.sites)) == 3
    assert all(" < " not in site for site in seen.sites)


@pytest.mark.parametrize("program", ["collectives.c", "threads.c"])
def test_every_call_path_is_what_an_unwind_finds(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path, verifying_library: Path, program: str
) -> None:
    arguments = {"collectives.c": ["100", "finalize"], "threads.c": ["4", "500"]}[program]
    built = compiled(program, "-pthread")
    done = mpi.run(1, [built, *arguments], {**env, "LD_PRELOAD": str(verifying_library)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mpi", mpis.WHEELS, indirect=True)
def test_every_call_path_through_python_is_what_an_unwind_finds(
    mpi: Mpi, env: dict[str, str], verifying_library: Path
) -> None:
    assert mpi.python is not None
    command = [mpi.python, PROGRAMS / "collectives.py", "50", "finalize"]
    done = mpi.run(1, command, {**env, "LD_PRELOAD": str(verifying_library)})
    assert (done.returncode, done.stdout) == (0, "bad=0\n"), done.stderr


@pytest.mark.integration
@pytest.mark.parametrize("mpi", ["debian-mpich", "debian-openmpi"], indirect=True)
@pytest.mark.parametrize("binding", [*FORTRAN, "mpif.h, two underscores"])
def test_fortran_entry_points_are_recorded_once(
    mpi: Mpi, tmp_path: Path, env: dict[str, str], folder: Path, verifying_library: Path, binding: str
) -> None:
    include, *underscores = binding.split(", ")
    if underscores and mpi.is_openmpi:
        pytest.skip("the names of Open MPI's constants, which are variables, have one underscore")
    flags = [f"-DBINDING={FORTRAN[include]}", *(["-fsecond-underscore"] if underscores else [])]
    program = mpi.compile_fortran(PROGRAMS / "collectives.F90", tmp_path / "fortran", *flags)
    for ranks in (1, 2):
        done = mpi.run(ranks, [program, "20", "finalize"], {**env, "LD_PRELOAD": str(verifying_library)})
        assert (done.returncode, done.stdout.split()) == (0, ["bad=0"] * ranks), done.stderr
        seen = only_ring(folder)
        assert seen.operations == ROUND * 20
        assert seen.bytes == BYTES * 20
        assert_in_order(seen)
        assert seen.finalized
        assert len(set(seen.sites)) == len(ROUND)
        assert {site.split("+")[0] for site in seen.sites} == {"fortran"}
        next(folder.iterdir()).unlink()


def test_a_program_that_never_initializes_mpi_has_no_ring(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    done = subprocess.run([compiled("life.c"), "never"], env={**os.environ, **env}, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"done\n", b"")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("life", "finalized"), [("late", True), ("return", False)])
def test_mpi_may_be_initialized_late_in_any_thread_and_never_finalized(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path, life: str, finalized: bool
) -> None:
    done = mpi.run(1, [compiled("life.c", "-pthread"), life], env)
    assert "done" in done.stdout, done.stderr
    seen = only_ring(folder)
    assert (seen.operations, seen.finalized) == (["Barrier"] * 4, finalized)
    assert_in_order(seen)


def test_sessions_start_and_end_the_recording(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    # A second one crashes Open MPI 5.0 and MPICH 4.0, with the shim and without.
    sessions = 2 if mpi.name in ("mpich", "mpich-abi") else 1
    done = mpi.run(2, [program := compiled("sessions.c"), str(sessions)], env)
    if sessions == 2 and "Message truncated" in done.stderr:  # MPICH's own on a busy machine, 1 of 120 times
        sessions = 1
        for path in folder.iterdir():
            path.unlink()
        done = mpi.run(2, [program, str(sessions)], env)
    assert done.returncode == 0, done.stderr
    if "unsupported" in done.stdout:
        pytest.skip(f"{mpi.name} has no sessions")
    assert done.stdout.split() == ["bad=0"] * 2
    seen = only_ring(folder)
    assert seen.operations == ["Barrier", "Barrier", "Allreduce", "Barrier"] * sessions
    assert (seen.rank, seen.size, seen.finalized) == (0, 2, True)
    assert_in_order(seen)


@pytest.mark.integration
@pytest.mark.parametrize("binding", [2, 3])
def test_sessions_of_fortran_start_and_end_the_recording(
    env: dict[str, str], folder: Path, tmp_path: Path, binding: int
) -> None:
    mpi = mpis.find("debian-mpich")
    program = mpi.compile_fortran(PROGRAMS / "sessions.F90", tmp_path / "sessions", f"-DBINDING={binding}")
    done = mpi.run(2, [program], env)
    assert done.stdout.split() == ["total=2"] * 2, done.stderr
    seen = only_ring(folder)
    assert seen.operations == ["Barrier", "Barrier", "Allreduce", "Barrier"]
    assert (seen.rank, seen.size, seen.finalized) == (0, 2, True)


def test_freed_and_reused_handles_are_resolved_anew(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    done = mpi.run(2, [compiled("handles.c"), "20"], env)
    assert done.returncode == 0, done.stderr
    assert all(int(reused) > 0 for reused in done.stdout.split())
    seen = only_ring(folder)
    assert seen.operations == ["Barrier", "Allgather"] * 20
    assert seen.bytes == [bytes_ for k in range(1, 21) for bytes_ in (None, 4 * k)]


def test_a_program_that_handles_errors_of_mpi_is_recorded_further_and_failed_messages_are_not_counted(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    alone, watched = (mpi.run(2, [compiled("errors.c")], environment) for environment in ({}, env))
    assert (alone.returncode, alone.stdout) == (0, "4\n"), alone.stderr
    assert (watched.returncode, watched.stdout) == (0, "4\n"), watched.stderr
    seen = only_ring(folder)
    assert seen.operations == ["Barrier", "Barrier"]
    assert (seen.records["messages"].tolist(), seen.records["message_bytes"].tolist()) == ([1, 0], [4, 0])


def test_nonblocking_collectives_are_not_counted_but_their_waits_are_p2p_time(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    done = mpi.run(2, [compiled("nonblocking.c")], env)
    assert done.returncode == 0, done.stderr
    seen = only_ring(folder)
    assert set(seen.operations) == {"Barrier"}
    assert_time_elsewhere_is_known(done.stdout, seen)


def test_several_programs_in_one_world_have_one_ring_per_rank(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    program = compiled("collectives.c")
    other = shutil.copy(program, tmp_path / "other")
    settings = ["env", "BAROGRAPH_RANKS=all", *(f"{key}={value}" for key, value in env.items())]
    command = mpi.command(1, [*settings, program, "5", "finalize"])
    command += [":", "-n", "2", *settings, str(other), "5", "finalize"]
    subprocess.run(command, env={**os.environ, **mpi.environment()}, capture_output=True, check=True)
    rings = {path.name.split(".")[0]: path for path in folder.iterdir()}
    programs = {}
    for name, path in rings.items():
        with Ring(path) as ring:
            programs[name] = (Path(ring.program).name, ring.head)
    assert programs == {"rank-0": ("collectives", 55), "rank-1": ("other", 55), "rank-2": ("other", 55)}


def test_the_ring_of_a_process_with_the_same_id_is_not_replaced(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    # As in two containers that share the folder but not the process ids.
    shell = f'echo other > {folder}/rank-0.$$.ring; exec "$0" 1 finalize'
    done = mpi.run(1, ["bash", "-c", shell, compiled("collectives.c")], env)
    assert done.returncode == 0, done.stderr
    first, second = sorted(folder.iterdir(), key=lambda path: path.stat().st_size)
    assert first.read_text() == "other\n"
    assert second.name == first.name.replace(".ring", "-1.ring")
    assert read(second).operations == ROUND


def test_mpi_is_found_outside_of_the_global_and_the_callers_scope(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    library = compiled("tail.c", "-O2", "-shared", "-fPIC")
    script = f"from ctypes import CDLL; lib = CDLL({str(library)!r}); print(lib.start(), lib.barrier(), lib.stop())"
    done = mpi.run(1, [sys.executable, "-c", script], env)
    assert (done.returncode, done.stdout) == (0, "0 0 0\n"), done.stderr
    assert only_ring(folder).operations == ["Barrier"]


def test_concurrent_calls_of_threads_are_all_recorded_in_order(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    done = mpi.run(1, [compiled("threads.c", "-pthread"), "4", "5000"], env)
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() == "unsupported":
        pytest.skip(f"{mpi.name} was built without MPI_THREAD_MULTIPLE")
    seen = only_ring(folder)
    assert Counter(seen.operations) == {"Allreduce": int(done.stdout)}
    assert_in_order(seen)


@pytest.mark.parametrize(
    "change",
    [
        {"BAROGRAPH_DISABLE": "1"},
        {"BAROGRAPH_RING_DIR": "{folder}/nowhere"},
        {"BAROGRAPH_RING_DIR": "/dev/null"},
        {"BAROGRAPH_RING_DIR": ""},
    ],
    ids=["disabled", "missing", "not a directory", "empty"],
)
def test_without_a_usable_ring_directory_the_program_is_not_affected(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path, change: dict[str, str]
) -> None:
    env |= {key: value.format(folder=folder) for key, value in change.items()}
    done = mpi.run(1, [compiled("collectives.c"), "3", "finalize"], env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "bad=0\n", "")
    assert list(folder.iterdir()) == []


def test_a_ring_is_smaller_than_a_limit_of_file_sizes(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    env |= {
        "BAROGRAPH_RING_RECORDS": "4194304"
    }  # 322 MiB, more than the limit, which is more than what MPI itself maps
    shell = 'ulimit -f 65536; exec "$0" 3 finalize'
    done = mpi.run(1, ["bash", "-c", shell, compiled("collectives.c")], env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "bad=0\n", "")
    (path,) = folder.iterdir()
    with Ring(path) as ring:
        assert (ring.capacity, ring.head) == (524288, 33)


SANITIZERS = {"plain": [], "sanitized": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]}
ALONE = "writer memory sites callers module ticker ranks types resolve launch command container companion"
WITHOUT_MPI = [SOURCES / f"{name}.c" for name in ALONE.split()]


@pytest.fixture(scope="module", params=SANITIZERS)
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles a program with the ring's writer and without MPI; with and without sanitizers."""
    folder = tmp_path_factory.mktemp("alone")
    command = ["cc", "-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}", "-pthread"]
    command += SANITIZERS[request.param]
    subprocess.run([*command, "-c", *WITHOUT_MPI], cwd=folder, check=True)
    objects = sorted(folder.glob("*.o"))

    def compile_once(name: str) -> Path:
        output = folder / name.removesuffix(".c")
        if not output.exists():
            subprocess.run([*command, "-o", output, PROGRAMS / name, *objects, "-ldl"], check=True)
        return output

    return compile_once


@pytest.fixture
def ring_alone(alone: Callable[..., Path], folder: Path) -> Callable[..., Seen]:
    """Runs programs/ring_alone.c and reads its ring."""

    def run(capacity: int, records: int, sites: int) -> Seen:
        subprocess.run([alone("ring_alone.c"), folder, str(capacity), str(records), str(sites)], check=True)
        return only_ring(folder)

    return run


@pytest.mark.parametrize("jump", [0, 3600 * 10**10, -3600 * 10**10, 10**6, -(10**6)])
def test_times_follow_the_kernels_clock_and_are_monotonic_for_any_counter(
    alone: Callable[..., Path], folder: Path, jump: int
) -> None:
    said = subprocess.run([alone("clock.c"), folder, "500", str(jump)], capture_output=True, text=True, check=True)
    if said.stdout == "unusable\n":
        pytest.skip("no time stamp counter to trust on this machine")
    seen = only_ring(folder)
    assert seen.clock == "CLOCK_MONOTONIC by the time stamp counter"
    assert_in_order(seen)
    # According to the program 2000 ns of each gap are in other calls, and the jump is in one of them.
    gaps = seen.records["enter_ns"][1:].astype(np.int64) - seen.records["exit_ns"][:-1].astype(np.int64)
    off = seen.records["p2p_ns"][1:].astype(np.int64) - np.clip(gaps, 0, 2000)
    assert np.abs(np.delete(off, 249)).max() <= 20
    before, after = np.array([line.split() for line in said.stdout.splitlines()], np.int64).T
    exits = seen.records["exit_ns"].astype(np.int64)
    off = np.maximum(np.maximum(before - exits, exits - after), 0)
    assert off[:250].max() < 10_000
    # A long jump is detected by the first tick after it; a short one looks like elapsed time until the next reading.
    assert off.max() < 10_000 + (0 if abs(jump) > 10**9 else 2 * abs(jump))


@pytest.mark.parametrize(
    ("ranks", "named"),
    [
        ("-", [0]),
        ("", [0]),
        ("all", range(9)),
        ("3", [3]),
        ("1,4-6", [1, 4, 5, 6]),
        ("0-99999999999", range(9)),
        *((nonsense, [0]) for nonsense in ("6-4x", "1,", ",1", "-3", "4-", "every", "1;2", "1 2")),
    ],
)
def test_a_list_selects_ranks_and_an_invalid_one_rank_0(
    alone: Callable[..., Path], ranks: str, named: Iterable[int]
) -> None:
    program = alone("ranks.c")
    said = [subprocess.run([program, ranks, str(rank)], capture_output=True, check=True).stdout for rank in range(9)]
    assert [rank for rank in range(9) if said[rank] == b"1\n"] == list(named)


def test_all_ranks_record_if_selected(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path
) -> None:
    done = mpi.run(3, [compiled("collectives.c"), "5", "finalize"], {**env, "BAROGRAPH_RANKS": "all"})
    assert done.returncode == 0, done.stderr
    seen = sorted(map(read, folder.iterdir()), key=lambda ring: ring.rank)
    assert [ring.rank for ring in seen] == [0, 1, 2]
    # The same collective has the same index and the same site on every rank.
    assert all(ring.operations == ROUND * 5 and ring.sites == seen[0].sites for ring in seen)
    assert all(ring.records["index"].tolist() == list(range(55)) for ring in seen)


def test_sizes_of_predefined_types_are_cached_and_of_derived_ones_are_not(alone: Callable[..., Path]) -> None:
    said = subprocess.run([alone("types.c")], capture_output=True, text=True, check=True)
    found = [tuple(map(int, line.split())) for line in said.stdout.splitlines()]
    assert found == [(24, 1), (32, 1), (10, 2), (12, 3), (0, 3), (-1, 3), (-1, 4), (2**43, 4)]


@pytest.mark.process
def test_without_a_reliable_counter_times_are_the_kernels(
    mpi: Mpi, compiled: Callable[..., Path], env: dict[str, str], folder: Path, bare_library: Path
) -> None:
    done = mpi.run(2, [compiled("blocking.c")], {**env, "LD_PRELOAD": str(bare_library)})
    assert done.returncode == 0, done.stderr
    seen = only_ring(folder)
    assert seen.clock == "CLOCK_MONOTONIC"
    assert_in_order(seen)
    assert_time_elsewhere_is_known(done.stdout, seen)


def test_a_full_ring_counts_drops_and_continues_after_a_release(
    ring_alone: Callable[..., Seen],
) -> None:
    # 64 slots and 200 records: 0..63 are kept, 64..99 find no room; then the reader frees 10, which 100..109 take.
    seen = ring_alone(64, 200, 1)
    assert seen.records["index"].tolist() == [*range(10, 64), *range(100, 110)]
    assert seen.records["messages"].tolist() == seen.records["index"].tolist()
    assert seen.records["message_bytes"].tolist() == (8 * seen.records["index"]).tolist()
    assert seen.dropped == 200 + 1 - 74
    assert (seen.records["exit_ns"] - seen.started_ns == seen.records["index"] + 1).all()
    assert seen.bytes == seen.records["index"].tolist()


@pytest.mark.parametrize(("step_ns", "lag", "most"), [(10**6, 1000, 0.5), (10**6, 60_000, 4.5), (10**3, 1000, 4.5)])
def test_a_ring_takes_as_much_memory_as_the_rate_needs(
    alone: Callable[..., Path], folder: Path, step_ns: int, lag: int, most: float
) -> None:
    subprocess.run([alone("memory.c"), folder, "200000", str(step_ns), str(lag), "0"], check=True)
    seen = only_ring(folder)
    assert (seen.dropped, seen.bytes) == (0, list(range(200_000 - lag, 200_000)))
    status = next(folder.iterdir()).stat()
    assert lag * layout.RECORD.itemsize < status.st_blocks * 512 < most * 2**20
    assert status.st_size == checks.MAX_RING_BYTES


@pytest.mark.skipif(os.getuid() != 0, reason="a file system of its own needs root")
@pytest.mark.parametrize("size", ["800k", "900k", "100m"])
def test_a_full_file_system_costs_records_and_raises_no_signal(
    alone: Callable[..., Path], folder: Path, size: str
) -> None:
    script = f'mount -t tmpfs -o size={size} tmpfs "$1" && "$0" "$@"; echo $?; cp "$1"/*.ring "$1.copy"'
    (copy := Path(f"{folder}.copy")).mkdir()
    command = ["unshare", "--mount", "sh", "-c", script, alone("memory.c"), folder, "20000", "1", "10", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # An eighth of 800 kB is less than the smallest ring takes.
    assert (done.stdout, len([*copy.iterdir()])) == (("3\n", 0) if size == "800k" else ("0\n", 1))
    for path in copy.iterdir():
        seen = read(path)
        assert len(seen.records) == 10
        if size == "900k":
            assert (seen.dropped, path.stat().st_size) == (0, checks.MIN_RING_BYTES)
        else:
            assert 7000 < seen.dropped < 8300


def test_a_lock_that_stays_held_costs_records_and_not_the_program(alone: Callable[..., Path], folder: Path) -> None:
    subprocess.run([alone("locked.c"), folder], check=True, timeout=120)
    seen = only_ring(folder)
    (path,) = folder.iterdir()
    with Ring(path) as ring:
        assert ring.command == b"".join(bytes(word) + b"\0" for word in (alone("locked.c"), folder))
    assert seen.records["index"].tolist() == [0, 1, 2, 8, 9]
    assert seen.dropped == 5


def traced(alone: Callable[..., Path], folder: Path, *numbers: int) -> Ring:
    """numbers: capacity, calls, every, and when calls are written again."""
    subprocess.run([alone("traced.c"), folder, *map(str, numbers)], check=True, timeout=120)
    (path,) = folder.iterdir()
    return Ring(path)


def test_calls_are_written_until_an_anchor_is_named_then_records_of_it(
    alone: Callable[..., Path], folder: Path
) -> None:
    with traced(alone, folder, 1024, 1000, 1) as ring:
        first, calls = ring.calls(0)
        assert (first, len(calls)) == (0, 1000)
        assert np.diff(calls["exit_ns"]).tolist() == [10] * 999
        assert calls["site"].tolist() == [1, 2] * 500
        assert calls["op"].tolist() == [38, 34] * 500
        assert len(set(calls["comm"].tolist()) | set(calls["detail"].tolist())) == 2
        assert (ring.head, ring.iterations.head, ring.iterations.dropped) == (0, 266, 234)
        records = ring.iterations.records(10, 266)
        assert records["index"].tolist() == [*range(10, 256), *range(256, 266)]
        assert np.diff(records["exit_ns"]).tolist()[:200] == [20] * 200
        # Between two of them is a Send of 3 ns.
        assert (records["p2p_ns"].tolist()[1:200], set(records["flags"].tolist())) == ([3] * 199, {1})
        assert set((records["exit_ns"] - records["enter_ns"]).tolist()) == {3}
        assert ring.site(int(records[0]["site"])).startswith("traced+0x")


@pytest.mark.parametrize("turn", [(), (1,), (7,)])
def test_an_anchor_that_comes_several_times_in_an_iteration_is_recorded_once_whether_calls_are_written_or_not(
    alone: Callable[..., Path], folder: Path, turn: tuple[int, ...]
) -> None:
    with traced(alone, folder, 1024, 300, 3, *turn) as ring:
        assert ring.iterations.head == 50
        records = ring.iterations.records(10, 50)
        assert np.diff(records["exit_ns"]).tolist() == [60] * 39
        assert set(records["flags"].tolist()) == {3}


def test_calls_that_nobody_reads_are_written_no_longer(alone: Callable[..., Path], folder: Path) -> None:
    with traced(alone, folder, 1024, 2**20 + 1000, 1) as ring:
        first, calls = ring.calls(0)
        assert (first + len(calls), len(calls)) == (2**20, 65536 - 1)


def test_an_exit_before_the_previous_one_is_set_to_it(ring_alone: Callable[..., Seen]) -> None:
    seen = ring_alone(64, 20, 1)
    assert seen.operations == ["Barrier"] * 10 + ["Allreduce"]
    last = seen.records[-1]
    assert (last["enter_ns"], last["exit_ns"]) == (seen.started_ns, seen.started_ns + 20)
    assert last["p2p_ns"] == 0  # 7 according to the program, in a gap of 0


def test_sites_beyond_the_table_are_recorded_as_unknown(ring_alone: Callable[..., Seen]) -> None:
    seen = ring_alone(8192, 5000, 2500)
    first, again = seen.records["site"][:2490], seen.records["site"][2490:4990]
    assert first.tolist() == [site if site < 2048 else 0 for site in range(11, 2501)]
    assert again.tolist() == [site if site < 2048 else 0 for site in range(1, 2501)]
    assert seen.sites[0].startswith("ring_alone+0x")


def test_reader_and_writer_have_the_same_layout(tmp_path: Path) -> None:
    program = tmp_path / "layout"
    subprocess.run(["cc", f"-I{SOURCES}", "-o", program, PROGRAMS / "layout.c"], check=True)
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    written: dict[str, dict[str, tuple[int, int]]] = {}
    for struct, field, offset, size in map(str.split, lines):
        written.setdefault(struct, {})[field] = (int(offset), int(size))
    for struct, dtype in {
        "ring_header": layout.HEADER,
        "ring_module": layout.MODULE,
        "ring_site": layout.SITE,
        "ring_record": layout.RECORD,
        "ring_call": layout.CALL,
    }.items():
        assert dtype.fields is not None
        assert {name: (field[1], field[0].itemsize) for name, field in dtype.fields.items()} == written[struct]


def test_the_library_exports_the_functions_it_wraps_and_those_that_python_calls(shim_library: Path) -> None:
    table = subprocess.run(["nm", "-D", "--defined-only", shim_library], capture_output=True, text=True, check=True)
    called = [f"barograph_{name}" for name in ("intervals_put", "intervals_site", "intervals_start")]
    called += ["barograph_training_start", "barograph_training_step"]
    assert sorted(line.split()[2] for line in table.stdout.splitlines()) == sorted([*WRAPPED, *called])


OF_ANY_C_LIBRARY = """
__ctype_b_loc __environ __errno_location __progname _exit access calloc chdir clock_gettime clone close dirname
dl_iterate_phdr dlerror dlopen dlsym dup2 environ execve free fstatvfs ftruncate getenv geteuid getpid getrlimit
linkat lseek lstat madvise malloc memcpy memset mkdir mmap munmap open openat posix_fallocate prctl
program_invocation_short_name pthread_attr_destroy pthread_attr_getstack pthread_getattr_np pthread_self
pthread_sigmask read readlink rename rmdir sched_yield setenv setsid sigaction sigemptyset sigfillset sigprocmask
snprintf strchr strcmp strcspn strlen strncmp strrchr strspn strstr strtol strtoul syscall sysconf unlink unlinkat
unsetenv waitpid write
"""


def test_what_the_library_needs_is_in_any_c_library(shim_library: Path) -> None:
    table = subprocess.run(["nm", "-D", "--undefined-only", shim_library], capture_output=True, text=True, check=True)
    found = (line.split() for line in table.stdout.splitlines())
    assert {name.partition("@")[0] for kind, name in found if kind != "w"} <= set(OF_ANY_C_LIBRARY.split())
    shown = subprocess.run(["readelf", "-d", shim_library], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"NEEDED.*\[(.*)\]", shown)) <= {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0"}


@pytest.mark.integration
def test_a_program_with_another_c_library_runs_and_is_recorded(
    shim_library: Path, folder: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    if not shutil.which("musl-gcc"):
        mpis.missing("no musl-gcc on PATH (Debian package musl-tools)")
    library, program = tmp_path / "libmpi.so.12", tmp_path / "program"
    functions = "Init(void *a, void *b)|Barrier(int c)|Finalize(void)|Comm_rank(int c, int *r)|Comm_size(int c, int *s)"
    mpi = "\n".join(f"int {kind}_{one} {{ return 0; }}" for one in functions.split("|") for kind in ("MPI", "PMPI"))
    mpi = mpi.replace("int *s) { ", "int *s) { *s = 1; ").replace("int *r) { ", "int *r) { *r = 0; ")
    main = "int main(void) { MPI_Init(0, 0); for (int i = 0; i < 3; i++) MPI_Barrier(0x44000000); MPI_Finalize();"
    for source, *words in [(mpi, "-shared", "-fPIC", "-o", library), (main + " return 0; }", "-o", program, library)]:
        command = ["musl-gcc", "-w", "-xc", "-", "-xnone", *map(str, words)]
        subprocess.run(command, input=source, text=True, check=True)
    assert subprocess.check_output([program], env=env, stderr=subprocess.STDOUT) == b""
    assert only_ring(folder).operations == ["Barrier"] * 3


def test_the_sources_compile_without_a_warning(shim_library: Path) -> None:
    assert shim_library.with_name("said").read_text() == ""


@pytest.mark.process
def test_a_compiler_without_link_time_optimization_builds_the_shim_too(bare_library: Path) -> None:
    assert bare_library.with_name("said").read_text() == ""
    refusing = bare_library.with_name("cc")
    assert subprocess.run([refusing, "-flto", "--version"], capture_output=True, check=False).returncode == 1
