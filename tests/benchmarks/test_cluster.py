"""Who is named on a cluster of namespaces, and when: `make bench-cluster`.

$BAROGRAPH_CLUSTER_NODES nodes (16), each case $BAROGRAPH_CLUSTER_RUNS times (3) after as many healthy runs, of about
$BAROGRAPH_CLUSTER_SECONDS seconds (60). $BAROGRAPH_CLUSTER_CASES: names of cases, separated by semicolons (all).
Healthy runs are among disturbed ones, of which five in a row would be the history. Prints a table and fails only if
somebody is named in a healthy run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from barograph_modeler.learning.learner import ACCEPT
from helpers import mpi as mpis
from helpers.cluster import PROGRAMS, Cluster, Job, cluster

pytestmark = pytest.mark.timeout(24 * 3600)

NODES = int(os.environ.get("BAROGRAPH_CLUSTER_NODES", "16"))
RUNS = int(os.environ.get("BAROGRAPH_CLUSTER_RUNS", "3"))
SECONDS = float(os.environ.get("BAROGRAPH_CLUSTER_SECONDS", "60"))
MICROSECONDS = 100_000
HALO, LONG_HALO = 10_000, 100_000
"""Bytes to each neighbour; the longer ones where links are slow. On two cores 16 ranks take 20 ms for those, which a
slower rank does while the others wait for it, so that the job as a whole is not slower."""
FACTOR = 1.2
"""Of the sleep of what is slow."""
NAMED_SECONDS = 10.0
LINK, SLOW_LINK = "200mbit", "20mbit"


@dataclass
class Case:
    """What is done to a job, undone after it, and what should be said. on: the nodes that are to be named."""

    name: str
    kinds: tuple[str, ...]
    on: tuple[str, ...]
    act: Callable[[Cluster, Job], object]
    undo: Callable[[Cluster], object] = lambda made: None
    from_begin: bool = False
    halo: int = HALO
    per_node: int = 1
    pattern: str = ""
    """Of `programs/patterns.c`; empty for the steps of `programs/steps.c`."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    healthy: list[dict[str, Any]] = field(default_factory=list)
    """Runs of the same program, undisturbed."""


def intermittent(made: Cluster, job: Job) -> None:
    """Slow for a sixth of the time of the run."""
    job.slow([1], FACTOR)
    time.sleep(SECONDS / 6)
    job.slow([1], 1.0)


def shape(made: Cluster, names: Sequence[str], rate: str) -> None:
    for name in names:
        made.shape(name, rate)


WORK = ("straggler", "core", "throttled", "steal")
PATTERNS = ("grid", "tasks", "fences", "uneven", "phases", "noisy", "converging", "overlapped", "gathered", "pipeline")
PATTERNS_MPIS = ("mpich", "debian-openmpi")
"""In turn. Over TCP MPICH 5.0 loses messages of `tasks` to a rank that waits for any source, watched or not, and Open
MPI 4.1 has no windows for `fences`."""
HEALTHY = Case("healthy", (), (), lambda made, job: None)
CASES = [
    HEALTHY,
    Case("one node", WORK, ("n2",), lambda made, job: job.slow([1], FACTOR)),
    Case("two nodes", WORK, ("n2", "n4"), lambda made, job: job.slow([1, 3], FACTOR)),
    Case("healthy, four ranks a node", (), (), lambda made, job: None, per_node=4),
    Case("one rank of four", WORK, ("n2",), lambda made, job: job.slow([5], FACTOR), per_node=4),
    Case("one node, a sixth of the time", WORK, ("n2",), intermittent),
    Case("one node from the begin", WORK, ("n2",), lambda made, job: job.slow([1], FACTOR), from_begin=True),
    Case("healthy, long messages", (), (), lambda made, job: None, halo=LONG_HALO),
    Case("one link to a tenth", ("link",), ("n2",), lambda made, job: made.shape("n2", SLOW_LINK),
         lambda made: made.shape("n2", LINK), halo=LONG_HALO),
    Case("all links to a tenth", ("network",), ("all",), lambda made, job: shape(made, made.names, SLOW_LINK),
         lambda made: shape(made, made.names, LINK), halo=LONG_HALO),
    *(Case(f"one node, {pattern}", WORK, ("n2",), lambda made, job: job.slow([1], FACTOR), pattern=pattern)
      for pattern in PATTERNS),
]  # fmt: skip


WANTED = [name.strip() for name in os.environ.get("BAROGRAPH_CLUSTER_CASES", "").split(";") if name.strip()]
assert set(WANTED) <= {case.name for case in CASES}, f"cases are {[case.name for case in CASES]}, not {WANTED}"
CASES = [case for case in CASES if case.name in WANTED or not WANTED]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(NODES) as made:
        mpis.find("mpich").compile(PROGRAMS / "steps.c", made.root / "steps")
        for name in PATTERNS_MPIS:
            mpis.find(name).compile(PROGRAMS / "patterns.c", made.root / f"patterns-{name}")
        shape(made, made.names, LINK)
        yield made


def run(made: Cluster, case: Case) -> dict[str, Any]:
    """One run of a case: what was said."""
    # As many steps in each run, as programs have that do the same work.
    steps = round(SECONDS * 1e6 / (1.15 * MICROSECONDS))
    mpi, words = "mpich", [made.root / "steps", SECONDS, MICROSECONDS, case.halo, 8, steps]
    if case.pattern:
        mpi = PATTERNS_MPIS[PATTERNS.index(case.pattern) % 2]
        words = [made.root / f"patterns-{mpi}", case.pattern, steps, MICROSECONDS]
    job = made.begin(mpis.find(mpi), words, per_node=case.per_node)
    if not case.from_begin:
        time.sleep(SECONDS / 2)
    onset = time.time()
    case.act(made, job)
    assert made.end(job, 10 * SECONDS) == 0, made.output(job)
    scores = made.verdict(job)
    case.undo(made)
    named = [row for row in scores if row["cause"] in case.kinds and set(json.loads(row["members"])) == set(case.on)]
    blamed = {name for row in scores if row["cause"] in (*WORK, "link") for name in json.loads(row["members"])}
    first = min((row["time"] for row in named), default=float("nan"))
    return {
        "seconds": first - onset,
        "right": bool(named) and scores[-1] in named,
        "others": sorted(blamed - set(case.on)),
        "sentence": scores[-1]["sentence"],
        "sentences": [f"{row['time'] - onset:.1f} s: {row['sentence']}" for row in scores],
    }


def test_who_is_named_and_when(nodes: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    for case in CASES:
        for number in range(RUNS):
            if case.kinds and number % (ACCEPT - 1) == 0:
                same = replace(HEALTHY, halo=case.halo, per_node=case.per_node, pattern=case.pattern)
                case.healthy.append(run(nodes, same))
            case.rows.append(run(nodes, case))
        with capsys.disabled():
            print(f"\n{case.name}: {case.rows[-1]['sentence']}")
            for row in case.healthy:
                print("  healthy:", *(row["sentences"] if row["others"] else [row["sentence"]]), sep="\n    ")
            for row in case.rows:
                is_late = case.kinds and not (row["right"] and row["seconds"] <= NAMED_SECONDS)
                if row["others"] or is_late:
                    print("  also:", *row["sentences"], sep="\n    ")
    dropped = [line for line in nodes.metrics("alerts").splitlines() if line.startswith("barograph_alerts_node_sync")]
    with capsys.disabled():
        print(f"\n{NODES} nodes, runs of {SECONDS:g} s, sleep x {FACTOR:g}")
        print("| case | named at the end | within 10 s | median s | others named |\n|---|---|---|---|---|")
        for case in CASES:
            times = sorted(row["seconds"] for row in case.rows if row["seconds"] == row["seconds"])
            right, soon = sum(row["right"] for row in case.rows), sum(one <= NAMED_SECONDS for one in times)
            middle = f"{times[len(times) // 2]:.1f}" if times else "-"
            others = sum(bool(row["others"]) for row in case.rows)
            print(f"| {case.name} | {right} of {RUNS} | {soon} of {RUNS} | {middle} | {others} of {RUNS} |")
        print("\n".join(dropped))
    healthy = [row for case in CASES for row in (case.healthy if case.kinds else case.rows)]
    assert not any(row["others"] for row in healthy), "somebody was named in a healthy run"
