"""How much slower real applications are beside a service: `make bench-applications`.

Every core has a rank, and collector, modeler and alerts run on the same cores. Runs come in pairs, watched and alone,
in random order. Neither ratio nor processor time is asserted: other programs on the machine change them.
$BAROGRAPH_TEST_PAIRS sets the number of pairs, 10 by default. Quantum ESPRESSO and OpenFOAM are Debian's, where they
are installed.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.applications import Application, alone, ico_foam, lammps, quantum_espresso, report, start_watched
from helpers.up import Up

RANKS = os.cpu_count() or 1
DAEMONS = ("collector", "modeler", "alerts")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watched(application: Application, folder: Path, up: Up) -> tuple[float, float]:
    """The runtime of a watched run, and how much later than its program the command returned."""
    ended = folder / "ended"
    timed = ["sh", "-c", '"$@" && date +%s.%N > "$0"', ended]
    done = report(start_watched(application, timed, folder, up))
    return done.runtime, time.time() - float(ended.read_text())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("make", [lammps, quantum_espresso, ico_foam])
def test_how_much_slower_a_watched_application_is(make: Callable[[int], Application], tmp_path: Path) -> None:
    pairs, order = int(os.environ.get("BAROGRAPH_TEST_PAIRS", "10")), random.Random(1)
    folder = tmp_path / "run"
    application = make(RANKS)
    application.prepare(folder)
    times: dict[bool, list[float]] = {True: [], False: []}
    late: list[float] = []
    used = dict.fromkeys(DAEMONS, 0.0)
    with Up(tmp_path) as up:
        pids = {daemon: up.pid(daemon) for daemon in DAEMONS}
        for _ in range(pairs):
            for is_watched in order.sample([True, False], 2):
                if not is_watched:
                    times[False].append(alone(application, folder))
                    continue
                before = {daemon: cpu_seconds(pid) for daemon, pid in pids.items()}
                runtime, after = watched(application, folder, up)
                times[True].append(runtime)
                late.append(after)
                for daemon, pid in pids.items():
                    used[daemon] += (cpu_seconds(pid) - before[daemon]) / pairs
        sidecar = float(up.wait_for_metric("collector", "barograph_agent_cpu_seconds_total").split()[-1]) / pairs
        rows = float(up.wait_for_metric("collector", r'barograph_collector_rows_total\{table="blocks"\}').split()[-1])
    low, median, high = np.percentile(np.divide(times[True], times[False]), [25, 50, 75]) - 1
    seconds = np.median(times[False])
    print(f"\n\n{make.__doc__}\n{RANKS} ranks, {seconds:.1f} s alone, {rows / pairs:,.0f} rows a run, {pairs} pairs")
    print(f"slowdown  {median:+.2%}, quartiles {low:+.2%} to {high:+.2%}")
    print(f"command and report: {np.median(late):.2f} s after its program")
    for name, one in {**used, "sidecar": sidecar, "together": sum(used.values()) + sidecar}.items():
        print(f"{name:<10}{one:6.2f} s of processor time a run, {one / np.median(times[True]):6.2%} of a core")
