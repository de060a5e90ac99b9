"""What the service says about real applications: `make bench-applications`, one: `PYTEST="-k cp2k"`.

Of each application three runs are healthy, one shares a core with a busy loop from its middle on, and three are healthy
again, on two cores beside a service that knows nothing before. Fails on a miss (the disturbed run is not called slow),
on a false alarm (a healthy run is called something else than healthy, inconclusive or unknown, or there was an alarm
before the disturbance), and on a contradiction (a run is called healthy outside of the 95 % limits in the same line).
Other programs on the machine, and a host that is slower for a time, are disturbances too: an alarm counts as false
only where the kernel and fixed work of the benchmark's own say that the machine was quiet (tests/helpers/quiet.py),
which it must have been in two of three healthy runs.

$BAROGRAPH_TEST_ROWS: a folder that gets the rows of each application as Parquet, and its runs (runs.json), to develop
detectors on.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from barograph_collector.client.log_reader import LogReader
from helpers import applications
from helpers.applications import Application
from helpers.injections import busy_loop
from helpers.printed import show
from helpers.up import Up
from helpers.watched import Run, watch

CORES = sorted(os.sched_getaffinity(0))[:2]
HEALTHY = 3
DISTURBED = HEALTHY
TABLES = ("jobs", "sites", "blocks", "node_blocks", "runs", "bands", "paces", "scores")
LIMITS = re.compile(r"ran ([0-9.]+) s, expected [0-9.]+ s \(95 %: ([0-9.]+) to ([0-9.]+) s\)")
COLUMNS = f"{'application':<18}{'healthy':>9}{'disturbed':>11}{'intervals':>11}{'a second':>10}{'alarm':>8}{'onset':>8}"


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """Rows to be printed when all applications have run."""
    rows: list[str] = []
    yield rows
    show("Seconds: runs, alarm and onset after the disturbance's begin", [f"{COLUMNS}  cause; verdicts", *rows])


@pytest.mark.timeout(3600)
@pytest.mark.skipif(len(CORES) < 2, reason="one core: the rank that is disturbed cannot be told from the other")
@pytest.mark.parametrize(
    "make",
    [
        applications.lammps,
        applications.hpcc,
        applications.cp2k,
        applications.nwchem,
        applications.quantum_espresso,
        applications.ico_foam,
        applications.gerris,
        applications.esys_particle,
        applications.examl,
    ],
)
def test_only_a_disturbed_run_of_an_application_is_called_slow(
    make: Callable[[int], Application], table: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    application = make(len(CORES))
    application.prepare(folder)
    with Up(tmp_path) as up:
        reader = LogReader(up.endpoint, 60.0)
        runs: list[Run] = []
        for number in range(2 * HEALTHY + 1):
            disturbance = None
            if number == DISTURBED:
                usual = statistics.median(run.runtime for run in runs)
                disturbance = usual / 2, lambda process: busy_loop(CORES[-1])
            runs.append(watch(application, folder, up, reader, {run.job for run in runs}, CORES, disturbance))
            noise = "" if disturbance is not None or runs[-1].machine.quiet else f" [{runs[-1].machine}]"
            print(f"\n{application.name} {number + 1}: {runs[-1].verdict}{noise}", end="")
        reader.close()
        if "BAROGRAPH_TEST_ROWS" in os.environ:
            keep(Path(os.environ["BAROGRAPH_TEST_ROWS"]) / application.name, up, runs)
    table.append(row(application.name, runs))
    wrong = [
        f"{application.name}, run {number + 1}: {fault}: {run.verdict}"
        for number, run in enumerate(runs)
        for fault in faults(run)
    ]
    assert not wrong, "\n".join(wrong)
    quiet = [run.machine.quiet for run in runs if math.isnan(run.disturbed_at)]
    assert sum(quiet) >= 2 / 3 * len(quiet), "the machine was not quiet"


def faults(run: Run) -> Iterator[str]:
    """What is wrong with a verdict."""
    is_disturbed = math.isfinite(run.disturbed_at)
    if is_disturbed and run.state != "slow":
        yield "miss"
    if is_disturbed and run.alarm_at < run.disturbed_at:
        yield f"false alarm {run.disturbed_at - run.alarm_at:.1f} s before the disturbance"
    if not is_disturbed and run.machine.quiet and run.state not in ("healthy", "inconclusive", "unknown"):
        yield "false alarm"
    limits = LIMITS.search(run.verdict)
    assert limits or "95 %" not in run.verdict, run.verdict
    if limits and run.state == "healthy":
        ran, lower, upper = map(float, limits.groups())
        if not lower <= ran <= upper:
            yield "contradiction"


def row(name: str, runs: list[Run]) -> str:
    """The line of an application in the table."""
    disturbed = runs[DISTURBED]
    healthy = [run for run in runs if run is not disturbed]
    seconds, intervals = (statistics.median(getattr(run, it) for run in healthy) for it in ("runtime", "intervals"))
    alarm, onset = disturbed.alarm_at - disturbed.disturbed_at, disturbed.onset_at - disturbed.disturbed_at
    states = [run.state for run in runs]
    said = " | ".join(
        ", ".join(part) for part in (states[:HEALTHY], states[HEALTHY : HEALTHY + 1], states[HEALTHY + 1 :])
    )
    return (
        f"{name:<18}{seconds:9.1f}{disturbed.runtime:11.1f}{intervals:11,.0f}{intervals / seconds:10,.0f}"
        f"{alarm:8.1f}{onset:+8.1f}  {disturbed.cause}; {said}"
    )


def keep(folder: Path, up: Up, runs: list[Run]) -> None:
    """Write the rows of a service, and what is known about its runs, to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        done = up.run("export", name, "--output", str(folder / f"{name}.parquet"))
        assert done.returncode == 0, done.stderr
    (folder / "runs.json").write_text(json.dumps([asdict(run) for run in runs], indent=1))
