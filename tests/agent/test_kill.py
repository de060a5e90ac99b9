"""SIGKILL of every process at any time: each interval is in the log exactly once.

The programs say in a file how many barriers have returned, so kills are aimed at seeded points of progress and what
must be in the log is known without asking the shim.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from barograph_agent.sidecar.plan import RunPlan, load_plan
from barograph_agent.system.processes import PROCESSES
from helpers import mpi as mpis
from helpers.kills import segments
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.service import NOWHERE, Node, Service, kill, processes, sidecars

pytestmark = pytest.mark.process

BARRIERS = 400
ENDLESS = 10**6
PAUSE = "2000"  # microseconds: a run of about a second
HELD = ["sh", "-c", '"$@" && exec cat', "sh"]
"""Prefix of a command that makes it wait for the end of its input, so the run lasts until the test ends it."""
ROUNDS = 3


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("programs") / "paced"
    return mpis.find("mpich").compile(Path(__file__).with_name("programs") / "paced.c", output)


@pytest.fixture
def node(tmp_path: Path, service: Service) -> Node:
    return Node(tmp_path, service.endpoint)


class Watched:
    """A started run of the program, with the name `app` in the log."""

    def __init__(
        self, node: Node, paced: Path, app: str, before: Sequence[str] = HELD, barriers: int = BARRIERS
    ) -> None:
        self.node, self.app = node, app
        self.progress = node.spools.with_name(f"{app}.progress")
        command = [*before, paced, str(barriers), PAUSE, self.progress]
        self.process = node.start(*command, app=app, stdin=subprocess.PIPE)
        self._memory: set[Path] = set()

    def barriers(self) -> int:
        """Number of barriers that have returned."""
        text = self.progress.read_text() if self.progress.exists() else ""
        return int(text or 0)

    def wait_for(self, barriers: int) -> None:
        """Wait until that many barriers have returned."""
        wait_until(lambda: self.barriers() >= barriers, f"{barriers} barriers of {self.app}")

    def sidecar(self) -> int:
        """The process of its sidecar; waits during a restart."""
        found: list[int] = []

        def there() -> bool:
            found[:] = sidecars(self.node.spools)
            return len(found) == 1

        wait_until(there, "there is one sidecar")
        return found[0]

    def ranks(self) -> list[int]:
        """The processes of the program itself."""
        mine = f"{self.progress}".encode()
        return processes(lambda words: words[0].endswith(b"/paced") and mine in words)

    def kill(self, pid: int) -> None:
        """SIGKILL a process, which ends the program too."""
        for rank in self.ranks():
            self._memory |= segments(rank)
        kill(pid)

    def clear(self) -> None:
        """Delete what MPICH leaves in shared memory when its ranks are killed."""
        for path in self._memory:
            path.unlink(missing_ok=True)

    def end(self) -> list[str]:
        """Wait for its end; returns the printed lines."""
        _, said = self.process.communicate(timeout=DEADLINE_SECONDS)
        return said.splitlines()


def assert_once(service: Service, app: str, count: int) -> None:
    assert service.indices(app) == list(range(count))
    ((end,), (job,)) = service.rows("runs", app), service.rows("jobs", app)
    assert (end["intervals"], end["dropped"]) == (count, 0)
    assert job["app"] == app


@pytest.mark.parametrize("victim", ["launcher", "rank 0", "rank 1"])
def test_a_killed_application_leaves_every_barrier_that_returned(
    node: Node, service: Service, paced: Path, victim: str
) -> None:
    rng = random.Random(victim)
    for round_ in range(2):
        app = f"app-{victim.replace(' ', '')}-{round_}"
        run = Watched(node, paced, app, mpis.find("mpich").command(2, []), ENDLESS)
        run.wait_for(rng.randrange(1, BARRIERS))
        if victim == "launcher":
            for rank in run.ranks():  # they continue until they die shortly after
                os.kill(rank, signal.SIGSTOP)
            children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
            (mpiexec,) = (int(pid) for pid in children if int(pid) != run.sidecar())
            run.kill(mpiexec)
        else:
            run.kill(run.ranks()[int(victim[-1])])
        lines = run.end()
        assert run.process.returncode != 0
        wait_until(lambda run=run: run.ranks() == [], "its ranks are gone")
        run.clear()
        count = len(service.indices(run.app))
        # One more if it was killed between the return of a barrier and recording that in the file.
        assert count in (run.barriers(), run.barriers() + 1)
        assert_once(service, run.app, count)
        assert f"barograph: intervals {count:,} seen on 2 ranks, {count:,} stored" in lines
        assert node.waiting() == []


def test_a_killed_sidecar_is_restarted_without_loss_or_duplicates(node: Node, service: Service, paced: Path) -> None:
    rng = random.Random(2)
    for round_ in range(ROUNDS):
        run = Watched(node, paced, f"sidecar-{round_}")
        for at in sorted(rng.sample(range(BARRIERS), 2)):
            run.wait_for(at)
            kill(run.sidecar())
        lines = run.end()
        assert run.process.returncode == 0
        assert f"barograph: intervals {BARRIERS} seen on 1 rank, {BARRIERS} stored" in lines
        assert_once(service, run.app, BARRIERS)


def test_a_killed_sidecar_is_restarted_while_the_command_runs(node: Node) -> None:
    run = node.start("cat", stdin=subprocess.PIPE)
    wait_until(lambda: len(sidecars(node.spools)) == 1, "the sidecar is there")
    (first,) = sidecars(node.spools)
    kill(first)
    wait_until(lambda: len(set(sidecars(node.spools)) - {first}) == 1, "another sidecar is there")
    assert run.poll() is None
    run.communicate("", timeout=DEADLINE_SECONDS)
    assert run.returncode == 0


def test_a_terminated_sidecar_is_restarted_while_the_command_runs(node: Node, service: Service, paced: Path) -> None:
    run = Watched(node, paced, "sidecar-term")
    run.wait_for(100)
    sidecar = run.sidecar()
    os.kill(sidecar, signal.SIGTERM)
    wait_until(lambda: sidecar not in sidecars(node.spools), "it has stopped")
    lines = run.end()
    assert f"barograph: intervals {BARRIERS} seen on 1 rank, {BARRIERS} stored" in lines
    assert_once(service, run.app, BARRIERS)
    assert node.waiting() == []


def test_if_barograph_run_is_killed_its_sidecar_records_the_end_of_the_program(
    node: Node, service: Service, paced: Path
) -> None:
    rng = random.Random(5)
    # At 0 the program has just started, before MPI_Init.
    for round_, at in enumerate([0, *rng.sample(range(1, BARRIERS), 2)]):
        run = Watched(node, paced, f"run-{round_}")
        if at:
            run.wait_for(at)
        else:
            wait_until(lambda run=run: run.ranks() != [], "the program has been started")
        kill(run.process.pid)
        run.end()
        wait_until(lambda: node.waiting() == [], "the sidecar has delivered everything and cleared up")
        assert run.barriers() == BARRIERS
        assert_once(service, run.app, BARRIERS)
        assert service.rows("runs", run.app)[0]["exit_status"] == -1
        assert list(node.rings.iterdir()) == []


def _has_ended(plan: RunPlan) -> bool:
    return not plan.command_lives(PROCESSES)


def test_if_launcher_and_sidecar_are_killed_the_next_run_delivers(node: Node, service: Service, paced: Path) -> None:
    rng = random.Random(6)
    for round_ in range(2):
        run = Watched(node, paced, f"orphan-{round_}")
        run.wait_for(rng.randrange(1, BARRIERS))
        kill(run.process.pid)
        kill(run.sidecar())
        run.end()
        (spool,) = node.waiting()
        # A process that has closed its output may not be gone yet, and the run goes on until then.
        wait_until(partial(_has_ended, load_plan(spool)), "no process of the run is left")
        assert node.run("true", app=f"next-{round_}").returncode == 0
        wait_until(lambda: node.waiting() == [], "the next run's sidecar has delivered the orphan")
        assert_once(service, run.app, BARRIERS)


def test_a_run_whose_processes_were_all_killed_is_delivered_by_barograph_spool(
    node: Node, service: Service, paced: Path
) -> None:
    node.environment["BAROGRAPH_COLLECTOR"] = NOWHERE
    run = Watched(node, paced, "by-hand", (), ENDLESS)
    run.wait_for(BARRIERS // 2)
    # The launcher first, or it starts another sidecar.
    for pid in (run.process.pid, run.sidecar(), *run.ranks()):
        run.kill(pid)
    run.end()
    run.clear()
    done = node.barograph("spool", "--send", "--collector", service.endpoint)
    assert (done.returncode, done.stdout) == (0, f"delivered  {service.job('by-hand')}\n"), done.stderr
    count = len(service.indices("by-hand"))
    assert count in (run.barriers(), run.barriers() + 1)
    assert_once(service, "by-hand", count)
