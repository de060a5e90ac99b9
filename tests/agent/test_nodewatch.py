"""A job's sidecar on one node, in this process: assignment of rings to runs, rows of the job, ends of runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from barograph_agent.deliver.link import Link
from barograph_agent.feature_files.writer import SideFileWriter
from barograph_agent.ring.reader import EXITED
from barograph_agent.settings import agent
from barograph_agent.sidecar.nodewatch import MAX_RECENT, TURNS, JobSidecar, Step, StepOptions, step_options
from barograph_agent.sidecar.output import MAX_RUNS, JobOutput
from barograph_agent.sidecar.plan import FACTS, RING_VARIABLE, RunOptions
from barograph_agent.sidecar.run import WatchedRun
from barograph_agent.system.clock import Clock
from barograph_agent.system.disk import Disk
from barograph_agent.system.network import Network, Source
from barograph_agent.system.system import SYSTEM
from barograph_agent.work.salt import Salt
from barograph_collector.server import Collector
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.rings import STARTED_NS, FakeShim

from .test_watch import rows

NOWHERE = "tcp://127.0.0.1:1"


class Node:
    """A node with the directories created by hooks, without Slurm."""

    def __init__(self, root: Path, endpoint: str, name: str = "n1") -> None:
        self.name = name
        self.rings, self.spool = root / f"rings/slurm-7@{name}", root / f"spool-{name}"
        self.active = root / f"active-{name}"
        self.rings.mkdir(parents=True)
        self.spool.mkdir()
        self.active.touch()
        self.endpoint = endpoint
        self.processes: list[subprocess.Popen[bytes]] = []

    def watch(self, endpoint: str = "", *, with_output: bool = False) -> JobSidecar:
        options = RunOptions(endpoint or self.endpoint, DEADLINE_SECONDS, 2**20)
        output = JobOutput(os.environ, SYSTEM) if with_output else None
        return JobSidecar(self.rings, self.active, StepOptions(self.spool, "ada", self.name, options), output=output)

    def step(self, name: str = "0.0", facts: str = "") -> Path:
        directory = self.rings / name
        directory.mkdir()
        (directory / FACTS).write_text(facts)
        return directory

    def process(self, step: Path, **variables: str) -> int:
        """A process that lives until it is killed, started as a task of this step."""
        environment = {RING_VARIABLE: str(step), **variables}
        process = subprocess.Popen(
            ["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        self.processes.append(process)
        assert process.stdin
        assert process.stdout
        # Until the program itself runs, the kernel may show an empty environment.
        process.stdin.write(b"up\n")
        assert process.stdout.readline() == b"up\n"
        return process.pid

    def ring(self, step: Path, rank: int = 0, size: int = 1, count: int = 10, **variables: str) -> FakeShim:
        """The ring of a new process, with that many collectives."""
        pid = self.process(step, **variables)
        shim = FakeShim(step / f"rank-{rank}.{pid}.draft", pid=pid)
        shim.set(rank=rank, size=size)
        shim.site(0x10)
        for number in range(count):
            shim.put(1_000_000 * (number + 1))
        shim.path.rename(step / f"rank-{rank}.{pid}.ring")
        return shim

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdin
            assert process.stdout
            process.stdin.close()
            process.stdout.close()
        self.processes.clear()


@pytest.fixture
def make(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Node]]:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "lab")
    made: list[Node] = []

    def node(name: str = "n1") -> Node:
        made.append(Node(tmp_path, collector.endpoint, name))
        return made[-1]

    yield node
    for one in made:
        one.end()


@pytest.fixture
def node(make: Callable[..., Node]) -> Node:
    return make()


def finish(watch: JobSidecar, *nodes: Node) -> None:
    """End the job: its processes are killed, the epilog runs, the sidecar finishes."""
    for node in nodes:
        node.end()
        node.active.unlink()
    watch.run()


def test_ranks_that_start_together_are_one_run(node: Node, collector: Collector) -> None:
    step = node.step(facts="SLURM_JOB_NUM_NODES=1\nSLURM_JOB_ACCOUNT=physics\n")
    shims = [node.ring(step, rank, 2) for rank in (0, 1)]
    watch = node.watch()
    watch.step()
    for shim in shims:
        shim.set(exit=EXITED, exited_ns=STARTED_NS + 10**9)
    finish(watch, node)
    (job,) = rows(collector, "jobs")
    named = [job[name] for name in ("job", "ranks", "user", "account", "app")]
    assert named == ["lab/7.0.0", 2, "ada", "physics", "lmp"]
    (run,) = rows(collector, "runs")
    assert (run["exit_status"], run["intervals"], run["dropped"]) == (0, 10, 0)
    assert sum(row["count"] for row in rows(collector, "node_blocks")) == 10
    assert not node.rings.exists()
    # Nothing but the digests of files that are remembered.
    assert not [path for path in node.spool.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("exits", "status"), [((0, 0), 0), ((0, 3), 3), ((None, 3), 3), ((0, None), -1), ((None, None), -1)]
)
def test_the_exit_status_is_the_largest_or_unknown(
    node: Node, collector: Collector, exits: tuple[int | None, ...], status: int
) -> None:
    step = node.step()
    for rank, code in enumerate(exits):
        shim = node.ring(step, rank, 2)
        if code is not None:
            shim.set(exit=EXITED + code, exited_ns=STARTED_NS + 10**9)
    finish(node.watch(), node)
    assert [row["exit_status"] for row in rows(collector, "runs")] == [status]


def test_programs_faster_than_the_poll_interval_are_separate_runs(node: Node, collector: Collector) -> None:
    step, watch = node.step("0.batch"), node.watch()
    for _ in range(2):
        for rank in (0, 1):
            node.ring(step, rank, 2).set(exit=EXITED, exited_ns=STARTED_NS + 10**9)
    watch.step()
    node.ring(step, 0, 2)
    watch.step()
    finish(watch, node)
    counts = {row["job"]: row["intervals"] for row in rows(collector, "runs")}
    assert counts == {"lab/7.0.batch": 10, "lab/7.0.batch-2": 10, "lab/7.0.batch-3": 10}
    ranks = [int(row["ranks"]) for row in rows(collector, "node_blocks")]
    assert sorted(set(ranks)) == [1, 2]


def test_one_mpirun_is_one_run_across_steps(make: Callable[..., Node], collector: Collector) -> None:
    first, second = make("n1"), make("n2")
    name = {"PMIX_NAMESPACE": "prterun-n1-77@1"}
    first.ring(first.step("0.batch", "SLURM_JOB_NUM_NODES=2"), 0, 2, **name)
    second.ring(second.step("0.4", "SLURM_JOB_NUM_NODES=2"), 1, 2, **name)
    for node in (first, second):
        watch = node.watch()
        watch.step()
        finish(watch, node)
    assert [row["job"] for row in rows(collector, "jobs")] == ["lab/7.0.mpi-prterun-n1-77@1"]
    assert len(rows(collector, "runs")) == 1
    assert {(row["job"], row["host"]) for row in rows(collector, "node_blocks")} == {
        ("lab/7.0.mpi-prterun-n1-77@1", "n1"),
        ("lab/7.0.mpi-prterun-n1-77@1", "n2"),
    }


def test_a_node_without_rank_0_delivers_node_blocks_only(node: Node, collector: Collector) -> None:
    node.ring(node.step(), 1, 2)
    watch = node.watch()
    watch.step()
    finish(watch, node)
    assert [len(rows(collector, table)) for table in ("jobs", "blocks", "runs")] == [0, 0, 0]
    assert sum(row["count"] for row in rows(collector, "node_blocks")) == 10
    assert [row["host"] for row in rows(collector, "sidecars")] == ["n1"]


def test_verdicts_are_appended_to_the_output_of_the_job_after_its_end(
    node: Node, collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    verdicts = iter([*(f"slow: verdict {number}" for number in range(1, MAX_RUNS)), ""])
    monkeypatch.setattr(WatchedRun, "verdict", lambda watch: next(verdicts))
    monkeypatch.setenv("SLURM_JOB_STDOUT", "%x-%j.out")
    monkeypatch.setenv("SLURM_JOB_WORK_DIR", str(tmp_path))
    text = tmp_path / "heat-7.out"
    text.write_text("end\n")
    steps = [node.step(f"0.{number}", "SLURM_JOB_NAME=heat\n") for number in range(MAX_RUNS + 2)]
    other = node.step("0.99")
    for step in steps:
        node.ring(step)
    node.ring(other, 1, 2)  # rank 0 is elsewhere
    watch = node.watch(with_output=True)
    watch.step()
    assert text.read_text() == "end\n"
    finish(watch, node)
    first, *lines, last = text.read_text().splitlines()
    assert (first, last) == ("end", "barograph: and 2 more runs, see barograph status")
    told = [re.fullmatch(r"barograph: lab/7\.0\.(\d+): (.*)", line) for line in lines]
    assert len({one[1] for one in told if one} & {str(number) for number in range(MAX_RUNS + 2)}) == MAX_RUNS
    texts = [one[2] for one in told if one]
    assert texts[0] == "slow: verdict 1"
    assert texts[-1] == "unknown: no alerts daemon has given a verdict within 4 s"


def test_what_was_asked_for_is_told_by_the_node_of_rank_0(make: Callable[..., Node], collector: Collector) -> None:
    first, second = make("n1"), make("n2")
    facts = "SLURM_JOB_NUM_NODES=2"
    first.ring(first.step("0.0", facts), 0, 3, OMP_NUM_THREADS="4")
    second.ring(second.step("0.0", facts), 1, 3)
    for node in (first, second):
        watch = node.watch()
        wait_until(lambda watch=watch: watch.step() or rows(collector, "works"), "the node of rank 0 has told it")
        finish(watch, node)
    (row,) = rows(collector, "works")
    assert (row["ranks"], row["nodes"], row["ranks_per_node"], row["threads"]) == (3, 2, 2, 4)
    assert (len(row["executable"]), row["words"], row["inputs"], row["reason"]) == (16, "[]", "[]", "")
    salt = Salt(b"cluster lab")
    assert row["program"] == salt.program(b"lmp")


@pytest.mark.parametrize(("work", "plain"), [("none", []), ("digests", [""]), ("plain", ["[]"])])
def test_the_site_says_how_much_is_told_of_it(
    node: Node, collector: Collector, monkeypatch: pytest.MonkeyPatch, work: str, plain: list[str]
) -> None:
    monkeypatch.setenv("BAROGRAPH_WORK", work)
    node.ring(node.step())
    watch = node.watch()
    wait_until(lambda: watch.step() or rows(collector, "works" if plain else "jobs"), "it is known")
    finish(watch, node)
    assert [row["plain"] for row in rows(collector, "works")] == plain


def test_the_table_agent_of_the_configuration_applies_under_hooks_below_variables(node: Node, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(
        '[agent]\nbudget = 10\nspool_bytes = "1M"\ncluster = "site"\ncollector = "tcp://c:1"\n'
    )
    given = {**os.environ, "BAROGRAPH_CONFIG": str(tmp_path / "site.toml"), "BAROGRAPH_COLLECTOR": NOWHERE}
    environment = agent.environment(given)
    node.ring(node.step())
    watch = JobSidecar(node.rings, node.active, step_options(node.spool, node.name, environment), environment)
    watch.step()
    plans = [run.plan for run in watch.runs.values()]
    watch.leave()
    found = [(plan.rows_per_second, plan.spool_bytes, plan.job.cluster, plan.endpoint) for plan in plans]
    assert found == [(10.0, 2**20, "site", NOWHERE)]


def watch_and_die(node: Node, job: str = "7") -> None:
    """A sidecar without a collector reads the node's rings and is killed."""
    script = (
        "import os, sys; from pathlib import Path\n"
        "from barograph_agent.sidecar.nodewatch import JobSidecar, StepOptions\n"
        "from barograph_agent.sidecar.plan import RunOptions\n"
        "rings, active, spool, endpoint = sys.argv[1:]\n"
        "settings = StepOptions(Path(spool), 'ada', 'n1', RunOptions(endpoint, 0.0, 2**20))\n"
        "watch = JobSidecar(Path(rings), Path(active), settings)\n"
        "watch.step(); watch.step(); os.kill(os.getpid(), 9)\n"
    )
    words = [str(node.rings), str(node.active), str(node.spool), NOWHERE]
    environment = {**os.environ, "SLURM_JOB_ID": job}
    done = subprocess.run([sys.executable, "-c", script, *words], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL


def test_the_successor_of_a_dead_sidecar_continues_its_programs(node: Node, collector: Collector) -> None:
    step = node.step()
    shim = node.ring(step, count=10)
    watch_and_die(node)
    for number in range(10, 25):
        shim.put(1_000_000 * (number + 1))
    shim.set(exit=EXITED, exited_ns=STARTED_NS + 10**9)
    finish(node.watch(), node)
    assert [row["first_index"] for row in rows(collector, "blocks")] == list(range(25))
    assert [(row["job"], row["exit_status"], row["intervals"]) for row in rows(collector, "runs")] == [
        ("lab/7.0.0", 0, 25)
    ]


def test_the_successor_of_a_sidecar_whose_process_still_ends_continues_its_programs(
    node: Node, collector: Collector
) -> None:
    shim = node.ring(node.step(), count=10)
    first = node.watch(NOWHERE)
    first.step()
    first.stop()
    first.run()  # in this process, which lives
    shim.put(11_000_000)
    finish(node.watch(), node)
    assert [(row["job"], row["intervals"]) for row in rows(collector, "runs")] == [("lab/7.0.0", 11)]


class Fast(Clock):
    """A clock by which a second passes between two looks at it."""

    seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1.0
        return self.seconds


class Hurried(Network):
    """A network on which nobody waits for long."""

    def wait(self, sources: Collection[Source], seconds: float) -> None:
        super().wait(sources, min(seconds, 0.01))


@pytest.mark.parametrize("delivers", [True, False], ids=["unnoticed", "while it delivers"])
def test_a_job_that_starts_again_under_its_first_sidecar_is_a_second_attempt(
    node: Node, collector: Collector, monkeypatch: pytest.MonkeyPatch, delivers: bool
) -> None:
    node.ring(node.step("0.0"))
    options = RunOptions(node.endpoint if delivers else NOWHERE, DEADLINE_SECONDS, 2**20)
    settings = StepOptions(node.spool, "ada", node.name, options)
    watch = JobSidecar(node.rings, node.active, settings, system=SYSTEM._replace(clock=Fast(), network=Hurried()))
    watch.step()
    node.end()
    find, looks = JobSidecar.find, []

    def requeue(watch: JobSidecar) -> None:
        looks.append(watch)
        if len(looks) == (1 if delivers else 3):  # in the second case the end of the job was seen
            node.active.touch()
            node.ring(node.step("1.0"), count=20)
        elif len(looks) == 200:
            node.end()
            node.active.unlink()
        find(watch)

    node.active.unlink()
    monkeypatch.setattr(JobSidecar, "find", requeue)
    watch.run()
    assert len(looks) >= 200  # it has watched to the end
    monkeypatch.undo()
    node.watch(collector.endpoint).run()
    assert {(row["job"], row["intervals"]) for row in rows(collector, "runs")} == {("lab/7.0.0", 10), ("lab/7.1.0", 20)}


def test_a_step_that_the_sidecar_of_the_second_attempt_finds_is_of_the_attempt_in_its_name(
    node: Node, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_RESTART_COUNT", "1")
    for name in ("0.0", "1.0"):
        node.ring(node.step(name))
    finish(node.watch(), node)
    assert sorted(row["job"] for row in rows(collector, "runs")) == ["lab/7.0.0", "lab/7.1.0"]


def test_a_job_that_starts_again_while_its_rings_are_deleted_has_a_directory(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = shutil.rmtree

    def requeue(path: Path, **options: bool) -> None:
        node.active.touch()  # the hook finds the directory in place
        delete(path, **options)

    monkeypatch.setattr("barograph_agent.sidecar.nodewatch.shutil.rmtree", requeue)
    finish(node.watch(), node)
    assert node.rings.is_dir()


def test_spools_of_earlier_jobs_are_delivered_even_by_a_short_job(
    make: Callable[..., Node], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, node = make("n1"), make("n2")
    node.spool = former.spool
    former.ring(former.step())
    watch_and_die(former, "6")
    former.end()
    node.ring(node.step())
    pump, end, answers = Link.pump, WatchedRun._append_end, threading.Event()

    def pump_all(link: Link, timeout: float = 0.0) -> None:
        """The collector answers once the program has ended, and then everything at once."""
        while answers.is_set() and not link.idle:
            pump(link, 0.05)

    monkeypatch.setattr(Link, "pump", pump_all)
    monkeypatch.setattr(WatchedRun, "_append_end", lambda run, *at: answers.set() or end(run, *at))
    finish(node.watch(), node)
    assert {row["job"] for row in rows(collector, "runs")} == {"lab/6.0.0", "lab/7.0.0"}


def test_the_sites_rules_apply_under_hooks(
    node: Node, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules.toml").write_text(
        '[[app]]\nmatch = "/lmp$"\nname = "lammps"\n[[param]]\nargv = "bin/(c.t)"\nname = "animal"\n'
    )
    monkeypatch.setenv("BAROGRAPH_RULES", str(tmp_path / "rules.toml"))
    node.ring(node.step())
    watch = node.watch()
    watch.step()
    finish(watch, node)
    assert [(row["app"], row["params"]) for row in rows(collector, "jobs")] == [("lammps", '{"animal":"cat"}')]


def test_an_invalid_ring_is_renamed(node: Node, collector: Collector) -> None:
    step = node.step()
    (step / "rank-0.1.ring").write_bytes(b"no ring")
    node.ring(step)
    watch = node.watch()
    watch.step()
    assert (step / "rank-0.1.unreadable").exists()
    finish(watch, node)
    assert [row["intervals"] for row in rows(collector, "runs")] == [10]


def test_without_a_spool_directory_rings_are_kept(node: Node, collector: Collector) -> None:
    node.ring(node.step())
    watch = node.watch()
    node.spool.rmdir()
    watch.step()
    node.spool.mkdir()
    watch.step()
    finish(watch, node)
    assert [row["intervals"] for row in rows(collector, "runs")] == [10]


def test_a_ring_created_late_in_a_step_is_found(node: Node, collector: Collector) -> None:
    step, watch = node.step(), node.watch()
    for _ in range(4):
        watch.step()
    node.ring(step)
    watch.step()
    finish(watch, node)
    assert [row["intervals"] for row in rows(collector, "runs")] == [10]


def test_steps_that_have_ended_are_looked_at_in_turns(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, found = 400, list[Step]()
    for number in range(ended + MAX_RECENT):
        node.step(f"0.{number}")
    watch = node.watch()
    watch.find()
    monkeypatch.setattr(Step, "find", lambda self, programs: found.append(self))
    for _ in range(TURNS):
        watch.find()
    assert len(found) == ended + TURNS * MAX_RECENT
    assert len(set(found)) == ended + MAX_RECENT


def test_a_step_without_rings_leaves_no_files(node: Node, collector: Collector) -> None:
    node.process(node.step())
    finish(node.watch(), node)
    assert rows(collector, "jobs") == rows(collector, "runs") == []
    assert not node.rings.exists()
    assert os.listdir(node.spool) == []  # noqa: PTH208


def test_side_files_are_assigned_to_the_runs_of_their_processes(
    node: Node, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, watch = node.step("0.batch"), node.watch()
    for cells in (10, 20):
        node.ring(step)
        pid = node.processes[-1].pid
        with monkeypatch.context() as process:
            process.setattr("barograph_agent.feature_files.writer.os.getpid", lambda pid=pid: pid)
            writer = SideFileWriter(step)
        writer.put({"cells": cells}, time.monotonic_ns())
        watch.step()
        # The file moved by the watch is written in place; a new name creates a new file.
        writer.put({"cells": cells + 1}, time.monotonic_ns())
        writer.put({"order": 4}, time.monotonic_ns())
        node.end()
        wait_until(lambda want=cells // 10: watch.step() or len(rows(collector, "runs")) == want, "the run has ended")
    finish(watch, node)
    found = {(row["job"], row["name"]): row["value"] for row in rows(collector, "features")}
    assert found == {
        ("lab/7.0.batch", "cells"): 11,
        ("lab/7.0.batch", "order"): 4,
        ("lab/7.0.batch-2", "cells"): 21,
        ("lab/7.0.batch-2", "order"): 4,
    }


def test_facts_that_are_no_file_of_a_usual_size_end_nothing(tmp_path: Path) -> None:
    disk = Disk()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(bytes(101))
    for name in ("fifo", "zero", "large"):
        with pytest.raises(OSError, match=r"no regular file|expected at most 100"):
            disk.read(tmp_path / name, 100)
    assert disk.read(tmp_path / "large", 101) == bytes(101)


def test_a_sidecar_that_hangs_is_gone_some_time_after_the_end_of_its_job(node: Node) -> None:
    postponed = []
    options = StepOptions(node.spool, "ada", node.name, RunOptions(NOWHERE, 0.0, 2**20))
    watch = JobSidecar(node.rings, node.active, options, postpone=lambda: postponed.append(1))
    watch.step()
    watch.step()
    node.active.unlink()
    watch.step()
    watch.leave()
    assert len(postponed) == 2
