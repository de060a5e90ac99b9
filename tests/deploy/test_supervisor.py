"""The supervisor of `barograph up` under a clock of its own: daemons are scripts of when they notify and end."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from barograph.operate.supervisor import (
    RESTART_SECONDS,
    START_SECONDS,
    STOP_SECONDS,
    SupervisedDaemon,
    Supervisor,
)
from barograph_collector.daemon.service import CannotStart, Exit

NEVER = float("inf")


@dataclass
class Script:
    """What each process of a daemon does, in seconds after its start."""

    ready: float = 0.0
    lives: float = NEVER
    status: int = 1
    leaves: float = 0.0
    """It ends so long after SIGTERM."""


@dataclass
class World:
    """A clock and the processes that it moves. Also what the supervisor asks whether to shut down."""

    scripts: dict[str, Script]
    now: float = 0.0
    requested: bool = False
    request_at: float = NEVER
    events: list[tuple[float, str, str]] = field(default_factory=list)
    """When which daemon did what: start, TERM, HUP, KILL, end."""
    running: list[FakeProcess] = field(default_factory=list)

    def launch(self, command: list[str], environment: Mapping[str, str]) -> FakeProcess:
        process = FakeProcess(self, command[0], environment["NOTIFY_SOCKET"])
        self.running.append(process)
        return process

    def wait(self, seconds: float) -> bool:
        """Let time pass."""
        self.now += seconds
        for process in self.running:
            process.notify()
        self.requested = self.requested or self.now >= self.request_at
        return self.requested

    def times(self, name: str, what: str) -> list[float]:
        return [at for at, who, did in self.events if (who, did) == (name, what)]

    def order(self, what: str) -> list[str]:
        return [who for _, who, did in self.events if did == what]


class FakeProcess:
    """Stands for a `subprocess.Popen`."""

    def __init__(self, world: World, name: str, channel: str) -> None:
        self._world, self._name, self._script = world, name, world.scripts[name]
        self._channel = "\0" + channel[1:]
        self._born = world.now
        self._end, self._status = self._born + self._script.lives, self._script.status
        self._ready_at = self._born + self._script.ready
        self.returncode: int | None = None
        self._note("start")
        self.notify()

    def notify(self) -> None:
        """Say once that it is ready."""
        if self.poll() is None and self._ready_at <= self._world.now:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"READY=1", socket.MSG_DONTWAIT, self._channel)
            self._ready_at = NEVER

    def poll(self) -> int | None:
        if self.returncode is None and self._world.now >= self._end:
            self.returncode = self._status
            self._note("end")
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = self._end if timeout is None else min(self._end, self._world.now + timeout)
        assert until < NEVER, f"waits for {self._name} without an end"
        self._world.now = max(self._world.now, until)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(self._name, timeout or 0.0)
        return status

    def send_signal(self, sig: int) -> None:
        self._note({signal.SIGTERM: "TERM", signal.SIGKILL: "KILL", signal.SIGHUP: "HUP"}[signal.Signals(sig)])
        if sig == signal.SIGTERM:
            self._end, self._status = min(self._end, self._world.now + self._script.leaves), 0
        elif sig == signal.SIGKILL:
            self._end, self._status = self._world.now, -9

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _note(self, what: str) -> None:
        self._world.events.append((self._world.now, self._name, what))


@contextmanager
def supervised(**scripts: Script) -> Iterator[tuple[World, Supervisor]]:
    """Daemons that have not started, and which are stopped at the end. The name of one that cannot reload ends in 0."""
    world = World(scripts)
    daemons = [SupervisedDaemon(name, [name], reloads=not name.endswith("0")) for name in scripts]
    supervisor = Supervisor(daemons, clock=lambda: world.now, launch=world.launch)
    try:
        yield world, supervisor
    finally:
        supervisor.stop()


def run(world: World, supervisor: Supervisor, seconds: float) -> None:
    """What `barograph up` does between start and stop."""
    until = world.now + seconds
    while world.now < until:
        world.wait(0.25)
        supervisor.check()


def test_the_others_start_together_once_the_first_is_ready() -> None:
    with supervised(log=Script(ready=40.0), a=Script(ready=30.0), b=Script(ready=5.0)) as (world, supervisor):
        supervisor.start(world)
        assert world.times("log", "start") == [0.0]
        assert world.times("a", "start") == world.times("b", "start") == [pytest.approx(40.0, abs=0.1)]
        assert world.now == pytest.approx(70.0, abs=0.2)


def test_a_daemon_that_is_not_ready_in_time_fails_the_start() -> None:
    with (
        supervised(log=Script(), a=Script(ready=NEVER)) as (world, supervisor),
        pytest.raises(CannotStart, match=f"a was not ready after {START_SECONDS:g} s") as failed,
    ):
        supervisor.start(world)
    assert failed.value.status == Exit.FAILED
    assert world.now == pytest.approx(START_SECONDS, abs=0.1)
    assert world.order("TERM") == ["a", "log"]


def test_a_daemon_that_ends_at_its_start_passes_its_status_on() -> None:
    with (
        supervised(log=Script(ready=9.0, lives=1.0, status=69), a=Script()) as (world, supervisor),
        pytest.raises(CannotStart, match=r"log did not start \(status 69\)") as failed,
    ):
        supervisor.start(world)
    assert failed.value.status == 69
    assert world.order("start") == ["log"]


def test_a_shutdown_ends_a_start() -> None:
    with supervised(log=Script(ready=NEVER), a=Script(ready=NEVER)) as (world, supervisor):
        world.request_at = 3.0
        supervisor.start(world)
        assert world.now == pytest.approx(3.0, abs=0.1)


def test_a_daemon_that_ends_is_restarted_after_a_pause_and_no_other() -> None:
    with supervised(log=Script(), a=Script(lives=3.0)) as (world, supervisor):
        supervisor.start(world)
        run(world, supervisor, 60.0)
        ends, (_, *starts) = world.times("a", "end"), world.times("a", "start")
        assert [start - end for end, start in zip(ends, starts, strict=False)] == pytest.approx(
            [RESTART_SECONDS] * len(starts), abs=0.3
        )
        assert len(starts) > 10
        assert world.times("log", "start") == [0.0]


def test_a_restarted_daemon_may_take_any_time_to_be_ready() -> None:
    with supervised(a=Script()) as (world, supervisor):
        supervisor.start(world)
        world.scripts["a"] = Script(ready=2 * START_SECONDS)
        world.running[0].kill()
        run(world, supervisor, 3 * START_SECONDS)
        assert len(world.times("a", "start")) == 2


def test_daemons_stop_one_after_the_other_in_reverse_order() -> None:
    with supervised(log=Script(leaves=9.0), a=Script(leaves=5.0), b=Script(leaves=5.0)) as (world, supervisor):
        supervisor.start(world)
        began = world.now
    assert world.order("TERM") == ["b", "a", "log"]
    assert [at - began for at in (*world.times("a", "TERM"), *world.times("log", "TERM"))] == pytest.approx([5.0, 10.0])
    assert world.order("KILL") == []
    assert world.now - began == pytest.approx(19.0)


@pytest.mark.parametrize("stuck", [("b",), ("log",), ("log", "a", "b")])
def test_stopping_takes_no_longer_than_its_limit_and_kills_only_what_does_not_stop(stuck: tuple[str, ...]) -> None:
    scripts = {name: Script(leaves=NEVER if name in stuck else 0.0) for name in ("log", "a", "b")}
    with supervised(**scripts) as (world, supervisor):
        supervisor.start(world)
        began = world.now
    assert world.now - began == pytest.approx(STOP_SECONDS)
    assert world.order("TERM") == ["b", "a", "log"]
    assert set(world.order("KILL")) >= set(stuck)
    assert world.order("end") == ["b", "a", "log"]


def test_a_reload_reaches_those_that_run_and_can_reload() -> None:
    with supervised(log=Script(), a=Script(lives=1.0), page0=Script()) as (world, supervisor):
        supervisor.start(world)
        world.wait(2.0)
        supervisor.reload()
        assert world.order("HUP") == ["log"]
