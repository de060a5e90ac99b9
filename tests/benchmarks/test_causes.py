"""What the service says is the cause of a disturbance: `make bench-applications PYTEST="-k causes"`.

For each kind three healthy runs of a program, then ten that are disturbed from their middle on, with a healthy one
after every two, since five alike in a row would be the new history; beside a service that knows nothing before.
Programs and disturbances are not ours, but for one program that writes to a disk, as no package does. Fails where the
cause of fewer than nine of ten is of the right kind, or where `all ranks together` or the network is blamed on this one
node. Needs root, stress-ng, and nothing else running.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from barograph_collector.client.log_reader import LogReader
from helpers import applications, injections
from helpers import mpi as mpis
from helpers.applications import Application
from helpers.injections import MemoryGroup, stress
from helpers.printed import show
from helpers.up import Up
from helpers.watched import Disturbance, Run, watch

CORES = sorted(os.sched_getaffinity(0))[:2]
HEALTHY, DISTURBED, LEAST = 3, 10, 9
ORDER = [False] * HEALTHY + [True, True, False] * (DISTURBED // 2)
STOPPED_SECONDS = 4.0
PROGRAMS = Path(__file__).parent / "programs"
NEVER = ("all ranks together", "network")


def checkpoint(ranks: int) -> Application:
    """A program that writes to a disk, and waits for it."""
    mpi = mpis.find("openmpi")
    assert mpi.python is not None
    command = mpi.command(ranks, [mpi.python, PROGRAMS / "checkpoint.py", "6000", "checkpoint.dat"])
    return Application("checkpoint", command, {"README": ""}, mpi.environment())


@dataclass(frozen=True)
class Case:
    """A program on the first `ranks` of CORES, and how it is disturbed. kinds: those that are right."""

    make: Callable[[], Application]
    ranks: int
    disturb: Callable[[Path, MemoryGroup], Disturbance]
    kinds: tuple[str, ...]


def core_taken(folder: Path, group: MemoryGroup) -> Disturbance:
    """Another program on the core of a rank."""
    return lambda process: stress(CORES[1], "--cpu", "1")


def process_stopped(folder: Path, group: MemoryGroup) -> Disturbance:
    """A rank that is stopped for some seconds."""
    return lambda process: injections.stopped(injections.rank_of(process, "lmp", 0), STOPPED_SECONDS)


def memory_leaked(folder: Path, group: MemoryGroup) -> Disturbance:
    """A program beside the rank, in its group of limited memory, that takes more and more."""

    @contextmanager
    def leak(process: subprocess.Popen[str]) -> Iterator[None]:
        half = str(group.used // 2)
        with injections.swap(folder), group.limited(group.used), stress(
            CORES[1], "--vm", "1", "--vm-bytes", half, group=group
        ):  # fmt: skip
            yield

    return leak


def disk_used(folder: Path, group: MemoryGroup) -> Disturbance:
    """Programs that write to the disk at once."""
    options = ["--hdd", "4", "--hdd-opts", "direct,wr-seq", "--hdd-write-size", "4M", "--temp-path"]
    return lambda process: stress(CORES[1], *options, folder)


CASES = {
    "core": Case(lambda: applications.lammps(2, 10, 9000), 2, core_taken, ("core",)),
    "stopped": Case(lambda: applications.lammps(2, 10, 9000), 2, process_stopped, ("stopped",)),
    "memory": Case(lambda: applications.lammps(1, 50, 40), 1, memory_leaked, ("memory",)),
    "disk": Case(lambda: checkpoint(1), 1, disk_used, ("disk",)),
}


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """Rows to be printed when all kinds have been tried."""
    rows: list[str] = []
    yield rows
    show(
        "Causes: found and right, of the disturbed runs",
        [f"{'':<11}{'found':>7}{'right':>7}{'alarm, s':>10}  quiet healthy called slow", *rows],
    )


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    try:
        made = MemoryGroup(f"barograph-{os.getpid()}")
    except OSError as error:
        pytest.skip(f"no memory group: {error}")
    yield made
    made.remove()


@pytest.mark.timeout(3600)
@pytest.mark.skipif(len(CORES) < 2, reason="one core: every disturbance takes it")
@pytest.mark.parametrize("kind", CASES)
def test_the_cause_of_a_disturbance_is_named(kind: str, group: MemoryGroup, table: list[str], tmp_path: Path) -> None:
    case = CASES[kind]
    application = case.make()
    folder = tmp_path / "run"
    folder.mkdir()
    application.prepare(folder)
    application = replace(application, command=[*group.prefix, *application.command])
    runs: list[Run] = []
    with Up(tmp_path) as up:
        reader = LogReader(up.endpoint, 60.0)
        for number, is_disturbed in enumerate(ORDER):
            disturbance: tuple[float, Disturbance] | None = None
            if is_disturbed:
                usual = statistics.median(run.runtime for run in runs[:HEALTHY])
                disturbance = usual / 2, case.disturb(tmp_path, group)
            cores = CORES[: case.ranks]
            runs.append(watch(application, folder, up, reader, {run.job for run in runs}, cores, disturbance))
            noise = "" if is_disturbed or runs[-1].machine.quiet else f" [{runs[-1].machine}]"
            print(f"\n{kind} {number + 1}: {runs[-1].verdict}{noise}", end="")
        reader.close()
    disturbed = [run for run, is_disturbed in zip(runs, ORDER, strict=True) if is_disturbed]
    healthy = [run for run in runs if run not in disturbed and run.machine.quiet]
    slow = sum(run.state == "slow" for run in healthy)
    found = [run for run in disturbed if run.alarm_at > run.disturbed_at]
    right = [run for run in found if run.cause.partition(" ")[0] in case.kinds]
    delay = statistics.median(run.alarm_at - run.disturbed_at for run in found) if found else float("nan")
    table.append(f"{kind:<11}{len(found):>7}{len(right):>7}{delay:>10.1f}{slow:>9} of {len(healthy)}")
    wrong = [run.verdict for run in disturbed if run not in right]
    assert not [run.verdict for run in disturbed if any(words in run.verdict for words in NEVER)]
    assert len(right) >= LEAST, "\n".join(wrong)
