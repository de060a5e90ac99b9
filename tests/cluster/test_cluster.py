"""Several nodes, really: a job over TCP between four of them, and what the service says of it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from helpers import mpi as mpis
from helpers.cluster import PROGRAMS, Cluster, Job, cluster
from helpers.log import wait_until
from helpers.quiet import repeated_if_disturbed

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(600)]

MICROSECONDS, HALO = 50_000, 50_000
SECONDS, ONSET = 24, 9
"""Length of a run, and when something happens to it."""
FACTOR = 1.5
"""Of the work of what is slow. `make bench-cluster` has smaller ones, and longer runs."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """Four nodes, and two healthy runs."""
    with cluster(4, window=0.5) as made:
        program = made.root / "steps"
        mpis.find("mpich").compile(PROGRAMS / "steps.c", program)
        for name in made.names:
            made.shape(name, "200mbit")
        for _ in range(2):
            run_healthy(made)
        yield made


@repeated_if_disturbed
def run_healthy(made: Cluster) -> None:
    last = end(made, begin(made))
    assert last["state"] == "healthy", last["sentence"]


def begin(made: Cluster) -> Job:
    return made.begin(mpis.find("mpich"), [made.root / "steps", SECONDS, MICROSECONDS, HALO, 8], per_node=1)


def end(made: Cluster, job: Job) -> dict[str, Any]:
    """The last score of a job that ends well."""
    assert made.end(job) == 0, made.output(job)
    last = made.verdict(job)[-1]
    print(f"\n{last['sentence']}")
    return last


def assert_names(last: dict[str, Any], *names: str) -> None:
    """These nodes, and no others, made the job slow."""
    assert last["state"] == "slow", last["sentence"]
    # The nodes share cores and memory, so a kernel may see what other programs on this machine do to this one.
    assert last["cause"] in ("straggler", "core", "throttled", "steal"), last["sentence"]
    assert json.loads(last["members"]) == list(names), last["sentence"]


def assert_once(made: Cluster, job: Job) -> None:
    """Each interval, and each sync point of each node, is in the log once."""
    (run,) = made.rows("runs", job.id)
    intervals = [(row["first_index"], row["first_index"] + row["count"]) for row in made.rows("blocks", job.id)]
    assert sum(stop - first for first, stop in intervals) == run["intervals"]
    for name in job.nodes:
        blocks = sorted(
            (row["first_index"], row["length"]) for row in made.rows("node_blocks", job.id) if row["host"] == name
        )
        assert [first for first, _ in blocks] == [0, *(first + length for first, length in blocks[:-1])], name
        assert sum(blocks[-1]) == run["intervals"], name


@repeated_if_disturbed
def test_the_slow_node_is_named_and_nobody_else(nodes):
    job = begin(nodes)
    time.sleep(ONSET)
    onset = job.slow([1], FACTOR)
    last = end(nodes, job)
    assert_names(last, "n2")
    assert last["onset_at"] == pytest.approx(onset, abs=2.5)
    assert_once(nodes, job)


@repeated_if_disturbed
def test_with_all_links_slow_it_is_the_network_and_no_node(nodes):
    job = begin(nodes)
    time.sleep(ONSET)
    for name in nodes.names:
        nodes.shape(name, "20mbit")
    try:
        last = end(nodes, job)
    finally:
        for name in nodes.names:
            nodes.shape(name, "200mbit")
    assert (last["state"], last["cause"], json.loads(last["members"])) == ("slow", "network", ["all"])


@repeated_if_disturbed
def test_a_sidecar_that_dies_a_node_that_is_cut_off_and_a_clock_that_jumps_change_nothing(nodes):
    job = begin(nodes)
    wait_until(lambda: nodes.sidecars("n3"), "the sidecar of n3 is there")
    time.sleep(2)
    nodes.cut_off("n4")
    nodes.set_clock("n2", 3600.0)
    for pid in nodes.sidecars("n3"):
        os.kill(pid, signal.SIGKILL)
    time.sleep(ONSET - 2)
    nodes.let_in("n4")
    job.slow([0], FACTOR)
    try:
        last = end(nodes, job)
    finally:
        nodes.set_clock("n2", 0.0)
    assert_names(last, "n1")
    assert_once(nodes, job)


def test_a_node_that_dies_ends_the_job_and_is_no_slowdown(nodes):
    job = begin(nodes)
    time.sleep(ONSET)
    nodes.nodes["n4"].kill()
    nodes.end(job)
    last = nodes.verdict(job)[-1]
    print(f"\n{last['sentence']}")
    assert last["state"] in ("healthy", "inconclusive", "unknown"), last["sentence"]
    (run,) = nodes.rows("runs", job.id)
    assert run["exit_status"] != 0
    blocks = nodes.rows("blocks", job.id)
    assert sum(row["count"] for row in blocks) == run["intervals"]
