"""Always-on watching under a real Slurm: rows of jobs in the log, their owners, and exclusions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barograph_agent import shim
from helpers import mpi as mpis
from helpers.log import wait_until
from helpers.service import Service
from helpers.slurm import USER, Cluster, cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PROGRAMS = Path(__file__).parents[1] / "agent/programs"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture(scope="module")
def paced(slurm: Cluster) -> str:
    """So many barriers, some milliseconds apart: `paced BARRIERS MICROSECONDS FILE`."""
    mpis.find("debian-openmpi").compile(PROGRAMS / "paced.c", slurm.work / "paced-openmpi")
    return str(mpis.find("debian-mpich").compile(PROGRAMS / "paced.c", slurm.work / "paced"))


@pytest.fixture(autouse=True)
def configured(slurm: Cluster, service: Service) -> None:
    slurm.configure(collector=service.endpoint)


def of_job(service: Service, table: str, job: str) -> list[dict[str, Any]]:
    """Rows of all steps of a job."""
    return [row for row in service.rows(table) if str(row["job"]).startswith(f"lab/{job}.")]


def latest(service: Service) -> str:
    """The id of the job that was announced last."""
    return str(service.rows("jobs")[-1]["job"]).removeprefix("lab/").partition(".")[0]


def intervals(service: Service, job: str) -> dict[str, int]:
    """How many each step has."""
    found: dict[str, int] = {}
    for row in of_job(service, "blocks", job):
        step = str(row["job"]).rpartition(".")[2]
        found[step] = found.get(step, 0) + int(row["count"])
    return found


def test_a_step_is_in_the_log_with_its_user_and_how_it_ended(slurm: Cluster, service: Service, paced: str) -> None:
    began = time.time()
    done = slurm.run("srun", "-n2", "-N1", "--mpi=pmi2", paced, "100", "1000", "/dev/null", user=USER)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    slurm.settle()
    (job,) = (row for row in service.rows("jobs") if row["job"] == f"lab/{latest(service)}.0.0")
    found = {name: job[name] for name in ("cluster", "workload", "app", "user", "ranks", "nodes", "scheduler")}
    assert found == {"cluster": "lab", "workload": "lab/paced@2x1", "app": "paced", "user": USER, "ranks": 2,
                     "nodes": 1, "scheduler": "slurm"}  # fmt: skip
    assert began < job["started_at"] < time.time()
    (run,) = of_job(service, "runs", latest(service))
    assert (run["exit_status"], run["intervals"], run["dropped"]) == (0, 100, 0)
    assert 0.1 < run["runtime_seconds"] < time.time() - began
    assert intervals(service, latest(service)) == {"0": 100}
    assert list(slurm.rings.glob("barograph/*/*")) == list(slurm.spool.glob("barograph/*/lab-*")) == []


def test_each_node_of_a_step_reports_its_ranks_and_the_first_one_the_job(
    slurm: Cluster, service: Service, paced: str
) -> None:
    assert (
        slurm.run("srun", "-N2", "--ntasks-per-node=2", "--mpi=pmi2", paced, "64", "1000", "/dev/null").returncode == 0
    )
    slurm.settle()
    job = latest(service)
    assert [(row["ranks"], row["nodes"]) for row in of_job(service, "jobs", job)] == [(4, 2)]
    assert [row["intervals"] for row in of_job(service, "runs", job)] == [64]
    counts = {"n1": 0, "n2": 0}
    for row in of_job(service, "node_blocks", job):
        assert (row["job"], row["ranks"]) == (f"lab/{job}.0.0", 2)
        counts[row["host"]] += int(row["count"])
    assert counts == {"n1": 64, "n2": 64}


def test_steps_of_a_batch_job_are_runs_of_their_own_and_so_is_each_mpirun(
    slurm: Cluster, service: Service, paced: str
) -> None:
    job = slurm.batch(
        f"srun -n2 --mpi=pmi2 {paced} 20 1000 /dev/null\n"
        f"srun -n1 --mpi=pmi2 {paced} 21 1000 /dev/null\n"
        f"mpirun.openmpi --bind-to none -n 2 {paced}-openmpi 22 1000 /dev/null\n"
        f"mpirun.openmpi --bind-to none -n 2 {paced}-openmpi 23 1000 /dev/null\n"
        f"mpiexec.mpich -n 2 {paced} 24 1000 /dev/null\n"
        f"mpiexec.mpich -n 2 {paced} 25 1000 /dev/null\n"
        "exit 7",
        "-n2",
        "-N1",
    )
    slurm.settle()
    found = intervals(service, job)
    assert sorted(found.values()) == [20, 21, 22, 23, 24, 25], slurm.output(job)
    assert (found["0"], found["1"]) == (20, 21)
    runs = of_job(service, "runs", job)
    assert sorted(row["intervals"] for row in runs) == [20, 21, 22, 23, 24, 25]
    assert {row["exit_status"] for row in runs} == {0}


def test_features_of_an_instrumented_program_are_reported_by_each_node(slurm: Cluster, service: Service) -> None:
    mpi = mpis.find("debian-mpich")
    words = ["instrument", PROGRAMS / "paced.c", "-o", slurm.work / "probed", "--cc", mpi.mpicc]
    subprocess.run([sys.executable, "-m", "barograph", *words], check=True)
    program = mpi.compile(slurm.work / "probed/paced.c", slurm.work / "probed/paced")
    done = slurm.run("srun", "-N2", "--ntasks-per-node=2", "--mpi=pmi2", program, "77", "1000", "/dev/null", user=USER)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    slurm.settle()
    barriers = {
        (str(row["host"]), int(row["processes"])): row["value"]
        for row in of_job(service, "features", latest(service))
        if ":value:" in row["name"] and row["value"] == 77
    }
    assert barriers == {("n1", 2): 77, ("n2", 2): 77}


def test_a_task_of_an_array_has_the_arrays_id(slurm: Cluster, service: Service, paced: str) -> None:
    job = slurm.batch(f"srun --mpi=pmi2 {paced} 10 1000 /dev/null", "--array=3,5", "--output=%A_%a.out")
    slurm.settle()
    names = {str(row["job"]) for row in service.rows("jobs") if f"/{job}_" in str(row["job"])}
    assert names == {f"lab/{job}_3.0.0", f"lab/{job}_5.0.0"}


def test_a_requeued_job_gets_the_next_restart_number(slurm: Cluster, service: Service, paced: str) -> None:
    script = f"srun -n1 --mpi=pmi2 {paced} $((SLURM_RESTART_COUNT ? 2000 : 100000)) 1000 {slurm.work}/progress"
    job = slurm.batch(script, "--requeue", "--open-mode=append", wait=False)
    wait_until((slurm.work / "progress").exists, "the first attempt is at work")
    assert slurm.run("scontrol", "requeue", job).returncode == 0
    slurm.wait(lambda: not slurm.sidecars(), "the sidecar of the first attempt has ended")

    def has_ended() -> bool:
        # Left alone the second attempt would begin after two minutes.
        slurm.run("scontrol", "update", f"jobid={job}", "starttime=now")
        return bool(of_job(service, "runs", f"{job}.1"))

    slurm.wait(has_ended, "the second attempt has ended")
    slurm.settle()
    runs = {str(row["job"]): (row["exit_status"], row["intervals"]) for row in of_job(service, "runs", job)}
    assert set(runs) == {f"lab/{job}.0.0", f"lab/{job}.1.0"}
    assert runs[f"lab/{job}.0.0"][0] != 0
    assert runs[f"lab/{job}.1.0"] == (0, 2000)


@pytest.mark.parametrize("end", ["scancel", "time-out"])
def test_a_job_killed_by_slurm_is_recorded_to_its_last_interval(
    slurm: Cluster, service: Service, paced: str, end: str
) -> None:
    progress = slurm.work / f"progress-{end}"
    script = f"srun -n1 --mpi=pmi2 {paced} 1000000 1000 {progress}"
    job = slurm.batch(script, "--time=5", wait=False)
    wait_until(lambda: progress.exists() and len(progress.read_text().split()) == 1, "it is at work")
    if end == "scancel":
        slurm.run("scancel", job)
    else:
        # The shortest limit is a minute from the begin, and this is that of now.
        assert slurm.run("scontrol", "update", f"jobid={job}", "endtime=now").returncode == 0
    slurm.settle()
    (run,) = of_job(service, "runs", job)
    assert run["exit_status"] != 0
    assert int(progress.read_text()) <= run["intervals"] <= int(progress.read_text()) + 1
    assert intervals(service, job) == {"0": run["intervals"]}
    assert run["runtime_seconds"] > 0.001 * run["intervals"]


def test_the_users_own_preload_stays_behind_the_shim(slurm: Cluster) -> None:
    done = slurm.run("srun", "printenv", "LD_PRELOAD", user=USER, LD_PRELOAD="libutil.so.1")
    assert done.stdout == f"{shim.library()} libutil.so.1\n"
    slurm.settle()


def test_a_step_in_a_batch_job_is_preloaded_once_and_has_rings_of_its_own(slurm: Cluster) -> None:
    job = slurm.batch("echo $LD_PRELOAD $BAROGRAPH_RING_DIR; srun printenv LD_PRELOAD BAROGRAPH_RING_DIR")
    slurm.settle()
    rings = f"{slurm.rings}/barograph/65534/slurm-{job}@n1"
    assert slurm.output(job) == f"{shim.library()} {rings}/0.batch\n{shim.library()}\n{rings}/0.0\n"


def test_a_job_without_its_submitters_environment_is_watched(slurm: Cluster, service: Service, paced: str) -> None:
    assert slurm.run("srun", "--export=NONE", "--mpi=pmi2", paced, "11", "1000", "/dev/null").returncode == 0
    slurm.settle()
    assert intervals(service, latest(service)) == {"0": 11}


def test_what_barograph_run_watches_is_not_watched_twice(slurm: Cluster, service: Service, paced: str) -> None:
    job = slurm.batch(
        f"export BAROGRAPH_COLLECTOR={service.endpoint} BAROGRAPH_SPOOL={slurm.work}/s BAROGRAPH_RINGS={slurm.work}/r\n"
        f"{slurm.python} -m barograph run --app once -- srun -n1 --mpi=pmi2 {paced} 33 1000 /dev/null"
    )
    slurm.settle()
    assert sum(intervals(service, job).values()) == 33, slurm.output(job)
    assert [row["app"] for row in of_job(service, "jobs", job)] == ["once"]


@pytest.mark.parametrize("opted_out", ["variable", "comment", "user", "account", "partition", "job"])
def test_jobs_that_opt_out_are_not_watched(slurm: Cluster, service: Service, paced: str, opted_out: str) -> None:
    before = len(service.rows("jobs"))
    lists = {"user": f"user {USER}", "account": "account benchmarks", "partition": "partition quiet"}
    (slurm.etc / "optout").write_text(lists.get(opted_out, ""))
    choices = {
        "comment": ["--comment=for ada, barograph=off"],
        "account": ["--account=benchmarks"],
        "partition": ["--partition=quiet"],
        "job": ["--export=ALL,BAROGRAPH_DISABLE=1"],
    }
    options = choices.get(opted_out, [])
    variables = {"BAROGRAPH_DISABLE": "1"} if opted_out == "variable" else {}
    program = f'{paced} 10 1000 /dev/null; echo "[$LD_PRELOAD]"'
    done = slurm.run("srun", "--mpi=pmi2", *options, "sh", "-c", program, user=USER, **variables)
    assert (done.returncode, done.stdout) == (0, "[]\n")
    slurm.settle()
    (slurm.etc / "optout").unlink()
    assert len(service.rows("jobs")) == before


def test_intervals_spooled_during_an_outage_are_delivered_by_the_users_next_job(
    slurm: Cluster, service: Service, paced: str
) -> None:
    command = ("srun", "--mpi=pmi2", paced)
    slurm.configure(collector="tcp://127.0.0.1:1")
    assert slurm.run(*command, "40", "1000", "/dev/null", user=USER).returncode == 0
    slurm.settle()
    assert list(slurm.rings.glob("barograph/*/*")) == []
    (waiting,) = slurm.spool.glob("barograph/*/lab-*")
    slurm.configure(collector=service.endpoint)
    assert slurm.run(*command, "41", "1000", "/dev/null", user=USER).returncode == 0
    slurm.settle()
    assert not waiting.exists()
    assert {40, 41} <= {int(row["intervals"]) for row in service.rows("runs")}


def test_a_dead_sidecar_is_replaced(slurm: Cluster, service: Service, paced: str) -> None:
    progress = slurm.work / "progress-killed"
    # However late the sidecar is killed, the job has not ended.
    go = slurm.work / "go"
    script = f"srun -n1 --mpi=pmi2 {paced} 2000 1000 {progress}\nuntil [ -e {go} ]; do sleep 0.1; done"
    job = slurm.batch(script, wait=False)
    wait_until(lambda: progress.exists() and bool(of_job(service, "blocks", job)), "it is watched")
    (pid,) = slurm.sidecars()
    os.kill(pid, signal.SIGKILL)
    go.touch()
    slurm.settle()
    (run,) = of_job(service, "runs", job)
    assert (run["exit_status"], run["intervals"], run["dropped"]) == (0, 2000, 0)
    indices = [int(row["first_index"]) for row in of_job(service, "blocks", job)]
    assert indices == sorted(set(indices))
    assert intervals(service, job) == {"0": 2000}
