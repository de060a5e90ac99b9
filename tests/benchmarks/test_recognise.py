"""A mixed day: `make bench-recognise`. Programs and inputs in random order, of which nobody says what they are.

Seven programs with 16 inputs: words that matter beside a seed and an output's name that change in every run, a file
that keeps its name and changes its content, files that no word names, one folder per case, standard input, and one
program whose collectives are the same at different work. Of each input ten runs, one of which shares a core with a busy
loop from its middle on. Prints what was said of each, and fails where a healthy run is called slow or fast, fewer than
95 % of the disturbed ones are found, different work is one group, more than 5 % of the runs are in a needless group, or
the adjusted Rand index is below 0.97. Nothing else may run meanwhile: an alarm counts as false only where the kernel
and fixed work of the benchmark's own say that the machine was quiet, in nine of ten runs. $BAROGRAPH_TEST_SEED: of the
order; $BAROGRAPH_TEST_RUNS: of each input, at least five.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from barograph_collector.client.log_reader import LogReader
from barograph_lab.studies.grouping import agreement
from helpers import applications
from helpers import mpi as mpis
from helpers.applications import Application
from helpers.injections import busy_loop
from helpers.printed import show
from helpers.up import Up
from helpers.watched import Disturbance, Run, watch

CORES = sorted(os.sched_getaffinity(0))[:2]
RUNS = int(os.environ.get("BAROGRAPH_TEST_RUNS", "10"))
FIRST_DISTURBED = 4
SEED = int(os.environ.get("BAROGRAPH_TEST_SEED", "1"))
PROGRAMS = Path(__file__).parent / "programs"
FOUND, SPLIT, INDEX, QUIET = 0.95, 0.05, 0.97, 0.9
_numbers = itertools.count(1)


@dataclass
class Work:
    """One program with one input. make: the application of the next run, in `folder`."""

    name: str
    folder: str
    make: Callable[[], Application]
    runs: list[Run] = field(default_factory=list)


def works(folder: Path) -> list[Work]:
    """All works. folder: for what has to be compiled."""
    found = []
    mpi = mpis.find("debian-openmpi")
    heat = mpi.compile(PROGRAMS / "heat.c", folder / "heat", "-O2")

    def stencil(size: int, steps: int) -> Application:
        words = [size, steps, f"seed={next(_numbers)}", f"out.{next(_numbers)}"]
        environment = {**mpi.environment(), "OMP_NUM_THREADS": "1"}
        return Application("heat", mpi.command(2, [heat, *map(str, words)]), {}, environment)

    for size, steps in ((700, 8000), (1000, 4000), (1400, 2000)):
        found.append(Work(f"heat {size} {steps}", "stencil", lambda size=size, steps=steps: stencil(size, steps)))  # type: ignore[misc]

    def changed(make: Callable[[int], Application], **texts: str) -> Callable[[], Application]:
        """The application, with its input files changed: old text = new text."""

        def made() -> Application:
            application = make(2)
            files: Mapping[str, str] = application.files
            for old, new in texts.items():
                files = {name: text.replace(old, new) for name, text in files.items()}
            return replace(application, files=files)

        return made

    for cells, steps in ((8, 7000), (10, 3500), (12, 2000)):
        found.append(Work(f"lammps {cells} {steps}", "lammps", partial(applications.lammps, 2, cells, steps)))
    for size in (1500, 2200):
        found.append(Work(f"hpcc {size}", "hpcc", changed(applications.hpcc, **{"4500 ": f"{size} "})))
    for points in (10, 13):
        made_qe = changed(applications.quantum_espresso, **{"16 16 16": f"{points} {points} {points}"})

        def from_stdin(made_qe: Callable[[], Application] = made_qe) -> Application:
            application = made_qe()
            words = [str(word) for word in application.command]
            words = words[: words.index("-in")]
            return replace(application, command=["sh", "-c", 'exec "$@" < si.in', "sh", *words])

        found.append(Work(f"espresso {points}", "espresso", from_stdin))
    for cells in (60, 80):
        found.append(
            Work(
                f"icofoam {cells}",
                f"cavity{cells}",
                changed(applications.ico_foam, **{"100 100 1": f"{cells} {cells} 1"}),
            )
        )
    for steps in (250, 400):
        found.append(
            Work(f"gerris {steps}", "gerris", changed(applications.gerris, **{"iend = 600": f"iend = {steps}"}))
        )
    python = mpis.find("openmpi")
    assert python.python is not None
    for steps in (1500, 3000):
        command = python.command(2, [python.python, PROGRAMS / "checkpoint.py", str(steps), "checkpoint.dat"])
        made_py = Application("checkpoint", command, {"README": ""}, python.environment())
        found.append(Work(f"checkpoint {steps}", "checkpoint", lambda made_py=made_py: made_py))  # type: ignore[misc]
    return found


def shuffled(of: list[Work], rng: random.Random) -> Iterator[tuple[Work, bool]]:
    """The works in random order, and which run is to be disturbed."""
    order = [work for work in of for _ in range(RUNS)]
    rng.shuffle(order)
    disturbed = {work.name: rng.randrange(FIRST_DISTURBED, RUNS) for work in of}
    seen: Counter[str] = Counter()
    for work in order:
        yield work, seen[work.name] == disturbed[work.name]
        seen[work.name] += 1


@pytest.mark.timeout(3600)
@pytest.mark.skipif(len(CORES) < 2, reason="one core: a disturbed rank cannot be told from the other")
def test_like_is_compared_with_like_though_nobody_says_what_it_is(tmp_path: Path) -> None:
    found = works(tmp_path)
    with Up(tmp_path) as up:
        reader = LogReader(up.endpoint, 60.0)
        jobs: dict[str, tuple[Work, bool]] = {}
        for work, is_disturbed in shuffled(found, random.Random(SEED)):
            disturbance: tuple[float, Disturbance] | None = None
            if is_disturbed:
                usual = statistics.median(run.runtime for run in work.runs)
                disturbance = usual / 2, lambda process: busy_loop(CORES[-1])
            folder = tmp_path / work.folder
            folder.mkdir(exist_ok=True)
            application = work.make()
            application.prepare(folder)
            run = watch(application, folder, up, reader, set(jobs), CORES, disturbance)
            work.runs.append(run)
            jobs[run.job] = work, is_disturbed
            noise = "disturbed " if is_disturbed else "" if run.machine.quiet else f"[{run.machine}] "
            print(f"\n{len(jobs):4} {work.name:<18}{noise}{run.verdict}", end="", flush=True)
        pages = [page.columns for page in reader.read_all("assignments")]
        reader.close()
    groups = {str(job): str(group) for page in pages for job, group in zip(page["job"], page["workload"], strict=True)}
    healthy = [run for work in found for run in work.runs if not jobs[run.job][1]]
    disturbed = [run for work in found for run in work.runs if jobs[run.job][1]]
    alarmed = [run for run in healthy if run.state in ("slow", "fast")]
    wrong = [run for run in alarmed if run.machine.quiet]
    quiet = sum(run.machine.quiet for run in healthy)
    caught = sum(run.state == "slow" for run in disturbed)
    groups_of = [(work.name, groups[run.job]) for work in found for run in work.runs]
    agreed = agreement(groups_of)
    members: dict[str, set[str]] = {}
    for name, group in groups_of:
        members.setdefault(group, set()).add(name)
    mixed = [sorted(names) for names in members.values() if len(names) > 1]
    states = Counter(run.state for run in healthy)
    show(
        f"A mixed day: {len(jobs)} runs of {len(found)} works, seed {SEED}",
        [
            f"healthy runs said to be    {', '.join(f'{state} {count}' for state, count in states.most_common())}",
            f"of them on a quiet machine {quiet}, slow or fast {len(wrong)}; of the others {len(alarmed) - len(wrong)}",
            f"disturbed runs found       {caught} of {len(disturbed)}",
            f"groups                     {len(members)}; different work in one: {len(mixed)}",
            f"runs in a needless group   {agreed.needless}",
            f"adjusted Rand index        {agreed.rand_index:.3f}",
            f"seconds of a run           {np.median([run.runtime for run in healthy]):.1f} (median)",
        ],
    )
    assert quiet >= QUIET * len(healthy), "the machine was not quiet"
    assert not wrong, "\n".join(f"{jobs[run.job][0].name}: {run.verdict}" for run in wrong)
    assert caught >= FOUND * len(disturbed)
    assert not mixed
    assert agreed.needless <= SPLIT * len(jobs)
    assert agreed.rand_index >= INDEX
