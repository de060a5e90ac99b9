"""Iterations of programs without a collective of all ranks in their loop: `make bench-iterations`.

Programs of Debian have as many intervals as they report iterations, within 2 %; one: `PYTEST="-k hyphy"`. The machine
need not be quiet.

And how long it takes to find a slow rank by iterations, by an Allreduce in the same loop, and by iterations where that
is rare. Each form of the program has HEALTHY healthy runs, then as many that one rank slows down from the middle on,
in turn, beside a service that knows nothing before. Prints seconds from the begin of the disturbance to the alarm.
Fails if one is missed, if a healthy run is called slow or fast on a quiet machine, or if iterations are not seen. That
it takes as long with both is printed, not asserted: a window has seconds. The machine must be quiet.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from barograph_collector.client.log_reader import LogReader
from helpers import iterating
from helpers import mpi as mpis
from helpers.applications import Application, report, start_watched
from helpers.iterating import IteratingProgram
from helpers.printed import show
from helpers.up import Up
from helpers.watched import Run, watch

PROGRAM = Path(__file__).with_name("programs") / "halo.c"
FORMS = {"messages": "iterations", "allreduce": "an Allreduce", "rare": "both"}
CORES = sorted(os.sched_getaffinity(0))[:2]
HEALTHY = 3
SECONDS = 30
MICROSECONDS = 5_000
FACTOR = 1.5


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "make",
    [
        iterating.conjugate_gradients,
        iterating.freefem,
        iterating.gromacs,
        iterating.hyphy,
        iterating.meep,
        iterating.mplrs,
        iterating.parallel_hdf5,
        iterating.phyml,
        iterating.pool,
        iterating.rmpi,
        iterating.ruby,
    ],
)
def test_a_program_has_an_interval_for_each_iteration_that_it_reports(
    make: Callable[[], IteratingProgram], tmp_path: Path
) -> None:
    program = make()
    folder = tmp_path / "run"
    folder.mkdir()
    program.application.prepare(folder)
    with Up(tmp_path) as up, (folder / iterating.OUTPUT).open("wb") as output:
        found = report(start_watched(program.application, [], folder, up, output))
    reported = program.iterations(folder)
    ratio = found.intervals / reported
    line = f"{program.application.name:<18}{reported:>10,}{found.intervals:>10,}{ratio:>8.3f}{found.runtime:>8.1f}"
    show(f"{'program':<18}{'reported':>10}{'intervals':>10}{'ratio':>8}{'seconds':>8}", [f"{line}  {found.verdict}"])
    assert abs(found.intervals - reported) <= 0.02 * reported + 2


def application(form: str, folder: Path) -> Application:
    """A run of SECONDS, if nothing disturbs it."""
    mpi = mpis.find("mpich")
    program = folder / f"halo-{form}"
    if not program.exists():
        shutil.copy(mpi.compile(PROGRAM, folder / "halo", "-O2"), program)
    iterations = SECONDS * 1_000_000 // MICROSECONDS
    return Application(f"halo-{form}", mpi.command(2, [program, form, str(iterations), str(MICROSECONDS)]), {})


def disturbed(healthy: Application, began: Path) -> Application:
    """The same, with a rank that is slow from the middle on."""
    middle = SECONDS * 1_000_000 // MICROSECONDS // 2
    variables = {"HALO_AFTER": str(middle), "HALO_FACTOR": str(FACTOR), "HALO_BEGAN": str(began)}
    return Application(healthy.name, healthy.command, {}, variables)


@pytest.mark.timeout(3600)
@pytest.mark.skipif(len(CORES) < 2, reason="one core: a rank that is slow slows down the other one")
def test_a_slow_rank_is_found_by_iterations_as_by_an_allreduce(tmp_path: Path) -> None:
    runs: dict[str, list[Run]] = {form: [] for form in FORMS}
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    # Of its own, since files beside a program that differ from run to run may be its input.
    folder = tmp_path / "run"
    folder.mkdir()
    with Up(tmp_path) as up:
        reader = LogReader(up.endpoint, 60.0)
        for number in range(2 * HEALTHY):
            for form in FORMS:
                program = application(form, tmp_path)
                began = tmp_path / f"began-{form}-{number}"
                program = disturbed(program, began) if number >= HEALTHY else program
                known = {run.job for found in runs.values() for run in found}
                runs[form].append(run := watch(program, folder, up, reader, known, CORES))
                if began.exists():
                    seconds[form].append(run.alarm_at - float(began.read_text()))
        reader.close()
    rows = [f"{'found by':<14}{'seconds to the alarm':>30}{'median':>9}{'intervals':>11}  verdict of the last one"]
    for form, words in FORMS.items():
        each = ", ".join(f"{one:.1f}" for one in seconds[form])
        usual = statistics.median(seconds[form])
        rows.append(f"{words:<14}{each:>30}{usual:>9.1f}{runs[form][-1].intervals:>11,}  {runs[form][-1].verdict}")
    for form, found in runs.items():
        rows += [f"healthy {form}: {run.verdict}" for run in found[:HEALTHY]]
    show(f"A rank works {FACTOR} times as long from the middle of {SECONDS} s on", rows)
    for form, found in runs.items():
        assert all(run.state == "slow" for run in found[HEALTHY:]), form
        quiet = [run for run in found[:HEALTHY] if run.machine.quiet]
        assert not [run.verdict for run in quiet if run.state in ("slow", "fast", "stalled")]
        expected = SECONDS * 1_000_000 // MICROSECONDS
        assert all(abs(run.intervals - expected) <= 0.02 * expected + 8 for run in found), form
