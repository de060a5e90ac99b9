"""A sidecar that ranks start on a node where the launcher is not, and the launcher's, which waits for it."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barograph_agent import shim
from barograph_agent.deliver.link import Link
from barograph_agent.ring.reader import Ring
from barograph_agent.sidecar import plan as plan_module
from barograph_agent.sidecar import run as run_module
from barograph_agent.sidecar.main import Sidecar, begin_companion, sidecar_of
from barograph_agent.sidecar.plan import (
    PLAN,
    RING_VARIABLE,
    RUN_VARIABLE,
    SIDECAR_VARIABLE,
    DeliveryReport,
    Earlier,
    save,
)
from barograph_agent.sidecar.run import WatchedRun
from barograph_collector.server import Collector
from helpers import mpi as mpis
from helpers.log import DEADLINE_SECONDS, Producer, wait_until
from helpers.mpi import Mpi
from helpers.rings import FakeShim

from .test_watch import Run, deliver, put, rows

PROGRAMS = Path(__file__).with_name("programs")
NOTES = """\
#!/bin/sh
# In the place of Python: notes what it was started with.
{
    echo "arguments $*"
    echo "preload ${LD_PRELOAD-none} rings ${BAROGRAPH_RING_DIR-none}"
    find /proc/$$/fd -type l -printf 'file %l\\n'
    sed -n 's/^SigBlk:/blocked/p' /proc/self/status
    echo "folder $PWD"
} >> "$NOTES"
"""


@pytest.fixture(scope="module", params=mpis.WHEELS)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return mpis.find(request.param)


def environment(rings: Path, python: Path, **more: str) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(shim.library()),
        "BAROGRAPH_RANKS": "all",
        RING_VARIABLE: str(rings),
        SIDECAR_VARIABLE: str(python),
        **more,
    }


def notes_of(path: Path) -> list[list[str]]:
    """What each start has noted, line by line; the last line is the folder."""
    lines = path.read_text().splitlines() if path.exists() else []
    starts = [number for number, line in enumerate(lines) if line.startswith("arguments ")]
    found = [lines[first:end] for first, end in zip(starts, [*starts[1:], len(lines)], strict=True)]
    return [one for one in found if one[-1].startswith("folder ")]


def test_one_rank_starts_the_sidecar_and_no_rank_notices(mpi: Mpi, tmp_path: Path) -> None:
    program = mpi.compile(PROGRAMS / "companion.c", tmp_path / "companion")
    python, notes, rings = tmp_path / "python", tmp_path / "notes", tmp_path / "user/rings"
    python.write_text(NOTES)
    python.chmod(0o755)
    done = mpi.run(3, [program], environment(rings, python, NOTES=str(notes)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["signals 0 wait -1 ECHILD mask kept"] * 3
    wait_until(lambda: notes_of(notes), "the sidecar was started")
    (said,) = notes_of(notes)
    assert said[:2] == [f"arguments -P -m barograph_agent.sidecar.main --companion {rings}", "preload none rings none"]
    files = {line.removeprefix("file ") for line in said if line.startswith("file ")}
    assert files <= {"/dev/null", str(python), str(notes)}
    assert "blocked 0000000000000000" in [line.replace("\t", " ") for line in said]
    assert said[-1] == "folder /"
    assert stat.S_IMODE(rings.stat().st_mode) == 0o700
    assert len(list(rings.glob("*.ring"))) == 3


@pytest.mark.parametrize("python", ["/nowhere/python", "python3", ""], ids=["absent", "relative", "none"])
def test_without_an_interpreter_there_are_no_rings(tmp_path: Path, python: str) -> None:
    mpi = mpis.find("mpich")
    program = mpi.compile(PROGRAMS / "companion.c", tmp_path / "companion")
    done = mpi.run(
        2, [program], environment(tmp_path / "rings", Path(python) if python else Path()) | {SIDECAR_VARIABLE: python}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["signals 0 wait -1 ECHILD mask kept"] * 2
    assert not (tmp_path / "rings").exists()


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to make a folder another user's")
    mpi = mpis.find("mpich")
    program = mpi.compile(PROGRAMS / "companion.c", tmp_path / "companion")
    (squatted := tmp_path / "squatted").mkdir()
    os.chown(squatted, 12345, 12345)
    done = mpi.run(2, [program], environment(squatted / "rings", Path(sys.executable)))
    assert done.returncode == 0, done.stderr
    assert not (squatted / "rings").exists()


def test_rings_that_nobody_would_read_are_removed(tmp_path: Path) -> None:
    (rings := tmp_path / "rings").mkdir()
    command = [sys.executable, "-P", "-m", "barograph_agent.sidecar.main", "--companion", str(rings)]
    done = subprocess.run(command, env={**os.environ, RUN_VARIABLE: "{"}, check=False, timeout=120)
    assert done.returncode == 0
    assert not rings.exists()


class Remote:
    """A node where a rank has started a companion of a run."""

    def __init__(self, run: Run, root: Path) -> None:
        self.process = subprocess.Popen(["sleep", "1000"])
        self.rings, self.spools = root / "remote/rings", root / "remote/spools"
        self.rings.mkdir(parents=True)
        self.spools.mkdir()
        self.run = run

    def ring(self, rank: int, size: int = 2, name: str = "") -> FakeShim:
        shim = FakeShim(self.rings / f"{name}{rank}.ring", pid=self.process.pid)
        shim.set(rank=rank, size=size)
        shim.site(0x10)
        return shim

    def companion(self) -> Sidecar:
        return sidecar_of(begin_companion(self.rings, self.run.plan, self.spools, "n2"))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def remote(tmp_path: Path, collector: Collector) -> Iterator[Remote]:
    run = Run(tmp_path, endpoint=collector.endpoint, has_companions=True, drain_seconds=20.0)
    remote = Remote(run, tmp_path)
    yield remote
    remote.end()


def serve(companion: Sidecar, until: Any, what: str) -> None:
    def step() -> bool:
        companion.step()
        return bool(until())

    wait_until(step, what)


def kill(companion: Sidecar) -> None:
    """As SIGKILL: nothing is released, and the process that is in the plan does not exist."""
    (run,) = companion.runs.values()
    run.close()
    save(run.directory, PLAN, msgspec.structs.replace(run.plan, launcher=2**22, launcher_born=1))


def test_a_companion_reports_its_ranks_and_ends_after_them(remote: Remote, collector: Collector) -> None:
    shims = [remote.ring(rank) for rank in (0, 1)]
    companion = remote.companion()
    for shim_ in shims:
        put(shim_, 40)
    serve(companion, lambda: rows(collector, "jobs"), "the job is announced")
    (job,) = rows(collector, "jobs")
    assert (job["ranks"], job["nodes"], job["host"]) == (2, 1, "n2")
    (begun,) = rows(collector, "nodes")
    assert (begun["host"], begun["world"], begun["ranks"], begun["first"], begun["ended"]) == ("n2", 2, 2, 1, 0)
    remote.end()
    serve(companion, lambda: companion.is_over and not companion.runs, "everything is delivered")
    ended = rows(collector, "nodes")[-1]
    assert (ended["intervals"], ended["dropped"], ended["ended"]) == (40, 0, 1)
    assert not rows(collector, "runs")  # the launcher's sidecar has the end of the command
    assert sum(row["count"] for row in rows(collector, "blocks")) == 40
    assert not remote.rings.exists()
    assert not [path for path in remote.spools.iterdir() if path.is_dir()]


def test_the_successor_of_a_killed_companion_goes_on(remote: Remote, collector: Collector) -> None:
    shim_ = remote.ring(0)
    first = remote.companion()
    put(shim_, 30)
    serve(first, lambda: rows(collector, "blocks"), "there are intervals")
    kill(first)
    second = remote.companion()
    put(shim_, 30)
    remote.end()
    serve(second, lambda: not second.runs, "everything is delivered")
    assert sum(row["count"] for row in rows(collector, "blocks")) == 60
    assert len(rows(collector, "jobs")) == 1


def test_the_companion_of_the_next_program_continues_its_worlds_and_counts(
    remote: Remote, collector: Collector
) -> None:
    for count in (40, 30):
        shim_ = remote.ring(0)
        companion = remote.companion()
        put(shim_, count)
        serve(companion, lambda count=count: rows(collector, "blocks")[-1:], "there are intervals")
        remote.end()
        serve(companion, lambda companion=companion: not companion.runs, "everything is delivered")
        assert not remote.rings.exists()
        remote.rings.mkdir()
        remote.process = subprocess.Popen(["sleep", "1000"])
    counts = dict.fromkeys((0, 1), 0)
    for row in rows(collector, "blocks"):
        counts[row["world"]] += row["count"]
    assert counts == {0: 40, 1: 30}
    reported = [(row["ended"], row["number"], row["ranks"], row["intervals"]) for row in rows(collector, "nodes")]
    assert [one for one in reported if one[0]] == [(1, 0, 1, 40), (1, 1, 1, 30)]
    assert len(rows(collector, "jobs")) == 1


def test_rings_that_come_while_a_program_ends_are_those_of_the_next(
    remote: Remote, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(remote.ring(0), 40)
    companion = remote.companion()
    (run,) = companion.runs.values()
    remote.end()
    end = WatchedRun._append_end

    def begin_next(run: WatchedRun, *at: Any) -> None:
        remote.process = subprocess.Popen(["sleep", "1000"])
        put(remote.ring(0, name="next"), 30)
        end(run, *at)

    with monkeypatch.context() as patch:
        patch.setattr(WatchedRun, "_append_end", begin_next)
        companion.run()
    assert run.left == {"next0.ring"}
    successor = remote.companion()
    (run,) = successor.runs.values()
    remote.end()
    successor.run()
    assert not run.left
    counts = dict.fromkeys((0, 1), 0)
    for row in rows(collector, "blocks"):
        counts[row["world"]] += row["count"]
    assert counts == {0: 40, 1: 30}
    assert not remote.rings.exists()


def test_a_companion_that_ends_while_the_next_program_starts_has_a_successor(mpi: Mpi, tmp_path: Path) -> None:
    """The folder of rings was there before MPI_Init, and is not after it."""
    program = mpi.compile(PROGRAMS / "companion.c", tmp_path / "companion")
    between = tmp_path / "between.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", between, PROGRAMS / "unwatched_init.c", "-ldl"], check=True)
    (python := tmp_path / "python").write_text(NOTES)
    python.chmod(0o755)
    (rings := tmp_path / "rings").mkdir(mode=0o700)
    watched = environment(rings, python, NOTES=str(tmp_path / "notes"), LD_PRELOAD=f"{shim.library()}:{between}")
    done = mpi.run(1, [program], watched)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: notes_of(tmp_path / "notes"), "the sidecar was started")
    assert len(list(rings.glob("*.ring"))) == 1


def test_a_program_on_other_nodes_than_the_first_has_the_number_of_its_launch(
    remote: Remote, collector: Collector
) -> None:
    """Of two launches the first ran on other nodes, the second on this one. Its row of `jobs` is not the first."""
    for rank in (0, 1):
        shim_ = remote.ring(rank, size=2)
        shim_.set(launch=2)
        put(shim_, 40)
    companion = remote.companion()
    serve(companion, lambda: rows(collector, "blocks"), "there are intervals")
    remote.end()
    serve(companion, lambda: not companion.runs, "everything is delivered")
    assert {row["world"] for row in rows(collector, "blocks")} == {1}
    assert {row["world"] for row in rows(collector, "node_blocks")} == {1}
    ended = rows(collector, "nodes")[-1]
    assert (ended["number"], ended["world"], ended["ranks"], ended["lowest"], ended["first"]) == (1, 2, 2, 0, 1)
    assert len(rows(collector, "jobs")) == 1


def test_what_a_killed_node_has_left_is_delivered_by_the_next_sidecar_of_its_user(
    remote: Remote, collector: Collector, tmp_path: Path
) -> None:
    """As where a batch system kills all processes of a step at once: the sidecar, and the shell that restarts it."""
    shim_ = remote.ring(0)
    killed = remote.companion()
    put(shim_, 30)
    serve(killed, lambda: rows(collector, "blocks"), "there are intervals")
    # Some rows are in the spool only, some records in the ring only.
    (program,) = killed.runs.values()
    put(shim_, 20)
    program.step()
    put(shim_, 10)
    kill(killed)
    remote.end()
    assert sum(row["count"] for row in rows(collector, "blocks")) == 30

    (root := tmp_path / "next").mkdir()
    following = Remote(Run(root, "next", endpoint=collector.endpoint, has_companions=True, drain_seconds=20.0), root)
    following.spools = remote.spools
    put(following.ring(0), 5)
    companion = following.companion()
    following.end()
    companion.run()
    counts = dict.fromkeys((remote.run.job.key, following.run.job.key), 0)
    for row in rows(collector, "blocks"):
        counts[row["job"]] += row["count"]
    assert list(counts.values()) == [60, 5]
    (end,) = [row for row in rows(collector, "nodes") if row["ended"] and row["intervals"] == 60]
    assert end["dropped"] == 0
    assert not remote.rings.exists()
    assert not [path for path in remote.spools.iterdir() if path.is_dir()]


def test_launchers_number_what_they_start(mpi: Mpi, tmp_path: Path) -> None:
    """Also a launcher below another, such as one that Slurm starts, has its number; other programs have none."""
    program = mpi.compile(PROGRAMS / "companion.c", tmp_path / "companion")
    (rings := tmp_path / "rings").mkdir()
    forwarded = environment(rings, Path(sys.executable))
    own = {**os.environ, **mpi.environment(), **forwarded}
    launch = shlex.join(mpi.command(2, [program]))
    script = f"{launch} && {program} && {launch} && {mpi.mpiexec} -n 1 sh -c {shlex.quote(launch)}"
    done = subprocess.run(["sh", "-c", script], env=own, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = Counter[int]()
    for path in rings.glob("*.ring"):
        with Ring(path) as ring:
            found[ring.launch] += 1
    assert found == {0: 2, -1: 1, 1: 2, 2: 2}


def test_what_companions_leave_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "MAX_EARLIER", 3)
    for run in range(6):
        rings = tmp_path / f"run-{run}"
        Earlier(numbers=[run]).leave(rings)
        os.utime(f"{rings}{plan_module.EARLIER}", (run, run))
    assert [Earlier.load(tmp_path / f"run-{run}").numbers for run in range(6)] == [[], [], [], [3], [4], [5]]


def test_one_without_a_rank_ends_with_the_processes_of_the_run(remote: Remote) -> None:
    companion = remote.companion()
    serve(companion, lambda: not companion.runs, "it has ended")


def other_node(collector: Collector, run: Run, *, first: int = 1, ended: int = 1, seen: int = 500) -> None:
    """A row of `nodes` of the node n2."""
    row = {"job": run.job.key, "host": "n2", "world": 4, "ranks": 3, "first": first, "intervals": seen, "dropped": 0,
           "ended": ended, "time": 1e9, "number": 0, "lowest": 0}  # fmt: skip
    with Producer(collector.endpoint, f"n2-{ended}") as producer:
        producer.hello()
        producer.append(1, "nodes", 1, row)
        producer.receive_ack(1)


@pytest.fixture
def run(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose sidecar is patient with the collector, and waits for no verdict."""
    monkeypatch.setattr(run_module, "UNSEEN_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr(run_module, "VERDICT_SECONDS", 0.0)
    return Run(tmp_path, endpoint=collector.endpoint, has_companions=True, drain_seconds=DEADLINE_SECONDS)


def wait_for_others(watch: WatchedRun) -> None:
    wait_until(lambda: (watch.step(), watch.link.pump(0.01), watch._state.others.worlds)[-1], "the other node is known")


def ended(run: Run) -> DeliveryReport:
    """The report of a run whose command has ended, when all is delivered."""
    run.end()
    watch = run.watch()
    deliver(watch)
    report = watch.report()
    watch.close()
    return report


def test_the_launcher_counts_the_ranks_of_other_nodes(run: Run, collector: Collector) -> None:
    run.ring().set(rank=3, size=4)
    other_node(collector, run)
    report = ended(run)
    assert (report.ranks, report.nodes, report.unseen_ranks) == (4, 2, 0)
    assert (report.seen, report.stored, report.dropped) == (500, 500, 0)
    (end,) = rows(collector, "runs")
    assert end["intervals"] == 500
    assert not rows(collector, "jobs")  # rank 0 is elsewhere, and its sidecar has announced the job


@pytest.mark.parametrize("silent_reads", [3, 10**9])
def test_a_collector_that_is_silent_at_the_end_says_nothing_of_a_job_whose_ranks_are_elsewhere(
    run: Run, collector: Collector, monkeypatch: pytest.MonkeyPatch, silent_reads: int
) -> None:
    monkeypatch.setattr(run_module, "UNSEEN_SECONDS", 0.0)
    (run.rings / "launch-0").touch()
    other_node(collector, run)
    read, left = Link.read, [silent_reads]

    def silent(link: Link, table: str, *words: Any) -> Any:
        left[0] -= table == "nodes"
        return None if table == "nodes" and left[0] >= 0 else read(link, table, *words)

    monkeypatch.setattr(Link, "read", silent)
    run.plan = msgspec.structs.replace(run.plan, drain_seconds=1.0 if silent_reads > 3 else DEADLINE_SECONDS)
    report = ended(run)
    assert (report.unknown, report.ranks) == ((True, 0) if silent_reads > 3 else (False, 4))
    assert len(rows(collector, "runs")) == 1
    assert not rows(collector, "jobs")
    assert not rows(collector, "works")


def test_the_end_of_the_run_follows_that_of_other_nodes(run: Run, collector: Collector) -> None:
    run.ring().set(rank=3, size=4)
    other_node(collector, run, ended=0)
    watch = run.watch()
    run.end()
    wait_for_others(watch)
    assert not watch.ended
    other_node(collector, run)
    deliver(watch)
    watch.close()
    offsets = [rows(collector, table)[-1]["log_offset"] for table in ("nodes", "runs")]
    assert offsets == sorted(offsets)


def test_a_node_that_has_died_is_named(run: Run, collector: Collector) -> None:
    run.ring().set(rank=3, size=4)
    other_node(collector, run, ended=0)
    run.end()
    watch = run.watch()
    wait_for_others(watch)
    assert not watch.ended
    watch.plan = msgspec.structs.replace(run.plan, drain_seconds=0.0)
    deliver(watch)
    report = watch.report()
    watch.close()
    assert report.notes == ["no end reported by n2"]
    assert (report.nodes, report.unseen_ranks) == (2, 0)


def test_the_launcher_waits_for_the_nodes_of_every_program(run: Run, collector: Collector) -> None:
    """Of the second program this node has one rank of two."""
    for launch, size in ((1, 1), (2, 2)):
        (run.rings / f"launch-{launch - 1}").touch()
        shim_ = run.ring(f"{launch}.ring")
        shim_.set(rank=0, size=size, launch=launch)
        put(shim_, 10)
    with Producer(collector.endpoint, "n2") as producer:
        producer.hello()
        producer.append(1, "nodes", 1, {"job": run.job.key, "host": "n2", "world": 2, "ranks": 1, "first": 0,
                        "intervals": 0, "dropped": 0, "ended": 1, "time": 1e9, "number": 1, "lowest": 1})  # fmt: skip
        producer.receive_ack(1)
    report = ended(run)
    assert (report.ranks, report.nodes, report.unseen_ranks, report.seen) == (2, 2, 0, 20)


def test_ranks_that_no_node_reports_are_counted(
    run: Run, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "UNSEEN_SECONDS", 0.2)
    put(run.ring(), 10)
    report = ended(run)
    assert (report.ranks, report.nodes, report.unseen_ranks) == (2, 1, 1)
    (job,) = rows(collector, "jobs")
    assert (job["ranks"], job["nodes"]) == (2, 2)
