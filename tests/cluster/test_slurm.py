"""A real Slurm on several nodes: what its users see of a job with a slow node."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from helpers import mpi as mpis
from helpers.batch import Batch, batch
from helpers.cluster import ENDPOINT, PROGRAMS, Cluster, cluster
from helpers.log import wait_until
from helpers.quiet import repeated_if_disturbed

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(600)]

SECONDS, ONSET = 24, 9
MICROSECONDS, HALO = 50_000, 50_000
FACTOR = 1.5
PAGE = "127.0.0.1:7454"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(4, window=0.5) as made:
        mpis.find("mpich").compile(PROGRAMS / "steps.c", made.root / "steps")
        yield made


@pytest.fixture(scope="module")
def slurm(nodes: Cluster) -> Iterator[Batch]:
    """Two healthy jobs have run."""
    with batch(nodes) as made:
        for _ in range(2):
            made.end(submit(made))
        yield made


def submit(slurm: Batch, *options: str) -> str:
    """A job of four nodes, a rank on each."""
    program = f"{slurm.watched} {slurm.cluster.root}/steps {SECONDS} {MICROSECONDS} {HALO} 8"
    return slurm.submit(f"echo begin\nsrun --mpi=pmi2 {program}\necho end", 4, "--nodes=4", *options)


def fetch(made: Cluster, url: str) -> str:
    read = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).read().decode())"
    return made.service.run(sys.executable, "-c", read, url)


@repeated_if_disturbed
def test_a_slow_node_is_named_in_alarm_page_metric_and_at_the_end_of_the_output(nodes: Cluster, slurm: Batch) -> None:
    job = submit(slurm, "--comment=barograph=verdict")
    wait_until(lambda: nodes.rows("blocks", job), f"it is watched\n{slurm.output(job)}", every=0.3)
    time.sleep(ONSET)
    onset = slurm.slow(2, FACTOR)
    named = False

    def is_named_or_over() -> bool:
        nonlocal named
        named = blamed(nodes, f"lab/{job}.0.0") == ["n3"]
        return named or bool(final(nodes, job))

    wait_until(is_named_or_over, "the metric names n3, or the job ends", every=0.5)
    output = slurm.end(job)
    assert named, final(nodes, job)
    wait_until(lambda: "barograph" in slurm.output(job), f"the verdict is in the output\n{output}")
    # The sidecar has it as soon as it is durable; the log shows it when it is in the database.
    wait_until(lambda: final(nodes, job), "the verdict is in the log", every=0.3)
    last = final(nodes, job)[-1]
    assert (last["state"], json.loads(last["members"])) == ("slow", ["n3"]), last["sentence"]
    assert last["onset_at"] == pytest.approx(onset, abs=2.5)
    print(f"\n{slurm.output(job)}")
    assert slurm.output(job) == f"begin\nend\nbarograph: lab/{job}.0.0: {last['sentence']}\n"

    words = ["page", "--collector", ENDPOINT, "--key", nodes.root / "keys/staff.key", "--listen", PAGE]
    with subprocess.Popen(nodes.service.command(sys.executable, "-m", "barograph", *words)) as page:
        try:
            wait_until(
                lambda: page.poll() is None and answers(nodes, f"http://{PAGE}/"), "the page is there", every=0.5
            )
            assert "n3" in fetch(nodes, f"http://{PAGE}/job/lab/{job}.0.0")
        finally:
            page.terminate()


def final(made: Cluster, job: str) -> list[dict[str, Any]]:
    """The final scores of a job."""
    return [row for row in made.rows("scores", job) if row["final"]]


def blamed(made: Cluster, job: str) -> list[str]:
    """The nodes in the metric of a running job's alarm."""
    found = re.search(rf'^barograph_job_alarm_info{{(.*job="{job}".*)}} 1', made.metrics("alerts"), re.MULTILINE)
    members = re.search(r'members="([^"]*)"', found[1]) if found and 'state="slow"' in found[1] else None
    return members[1].split() if members else []


def answers(made: Cluster, url: str) -> bool:
    try:
        return bool(fetch(made, url))
    except AssertionError:
        return False


def test_the_output_of_a_job_that_does_not_ask_for_its_verdict_is_its_own(nodes: Cluster, slurm: Batch) -> None:
    job = slurm.submit(f"srun --mpi=pmi2 {slurm.watched} {nodes.root}/steps 2 {MICROSECONDS} {HALO} 8; echo end", 2)
    slurm.end(job)
    wait_until(lambda: nodes.rows("runs", job), "it is in the log", every=0.3)
    assert slurm.output(job) == "end\n"


@pytest.mark.parametrize("options", [[], ["--comment=barograph=off"]], ids=["with hooks", "without hooks"])
def test_barograph_run_in_a_script_sees_all_nodes_of_srun(nodes: Cluster, slurm: Batch, options: list[str]) -> None:
    variables = {
        "COLLECTOR": ENDPOINT,
        "KEY": "/etc/barograph/nodes.key",
        "MUNGE_SOCKET": nodes.munge,
        "CLUSTER": "lab",
    }
    exports = "".join(f"export BAROGRAPH_{name}={value}\n" for name, value in variables.items())
    program = f"{slurm.watched} {nodes.root}/steps 3 {MICROSECONDS} {HALO} 8"
    run = "/opt/barograph/bin/python -m barograph run --"
    job = slurm.submit(f"{exports}{run} srun --mpi=pmi2 {program}\necho status $?", 4, "--nodes=4", *options)
    output = slurm.end(job)
    found = re.search(r"^barograph: intervals ([\d,]+) seen on 4 ranks of 4 nodes, ([\d,]+) stored", output, re.M)
    assert found, output
    assert found[1] == found[2]
    assert output.endswith("status 0\n")
    assert [row["nodes"] for row in nodes.rows("jobs", job)] == [4]
