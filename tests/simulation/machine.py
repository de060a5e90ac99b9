"""Virtual time, and processes whose threads are run one at a time, in an order that a seed decides.

Each simulated thread is a greenlet. It runs until it waits for something, which takes no virtual time; when all threads
wait, the clock goes forward to the next timer. The same seed gives the same order.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import random
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import greenlet

from barograph_agent.system.clock import Clock
from barograph_agent.system.threads import Threads

EPOCH = 1_800_000_000.0
BOOTED = 100_000.0
"""Monotonic seconds at the start."""


class Killed(BaseException):
    """Ends a thread of a process that was killed."""


class Stuck(Exception):
    """A schedule took more steps than any should: a thread is in a loop that does not wait."""


class Process:
    """A simulated process: its threads, and whether it lives."""

    def __init__(self, machine: Machine, name: str, pid: int) -> None:
        self.machine = machine
        self.name = name
        self.pid = pid
        self.lives = True
        self.failure: BaseException | None = None
        self.threads: list[Thread] = []
        self.at_death: list[Callable[[], None]] = []

    def kill(self) -> None:
        """End it as SIGKILL does: no statement of it has an effect from here on."""
        if not self.lives:
            return
        self.lives = False
        for release in self.at_death:
            release()
        for thread in self.threads:
            self.machine.wake(thread)

    def check(self) -> None:
        """Raise Killed if it was killed."""
        if not self.lives:
            raise Killed


class Thread:
    """A thread of a process. What `threading.Thread` offers to one who waits for it."""

    def __init__(self, process: Process, name: str, work: Callable[[], None]) -> None:
        self.process = process
        self.name = name
        self.done = False
        self.waiting = True
        self._work = work
        self._joining = Waiters(process.machine)
        self.greenlet = greenlet.greenlet(self._run, process.machine.hub)

    def _run(self) -> None:
        try:
            self.process.check()
            self._work()
        except Killed:
            pass
        except BaseException as error:
            self.process.failure = error
            self.process.kill()
        finally:
            self.done = True
            self._joining.wake_all()
            if self.name == "main":
                self.process.kill()

    def is_alive(self) -> bool:
        """Whether it runs."""
        return not self.done

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        self._joining.wait_until(lambda: self.done, timeout)


class Machine:
    """The scheduler of all threads, and the clock."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seconds = 0.0
        self.steps = 0
        self.current: Thread | None = None
        self._ready: list[Thread] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self.hub = greenlet.getcurrent()

    def process(self, name: str) -> Process:
        """A new process without threads."""
        return Process(self, name, 1000 + next(self._numbers))

    def start(self, process: Process, name: str, work: Callable[[], None]) -> Thread:
        """Start a thread."""
        thread = Thread(process, name, work)
        process.threads.append(thread)
        self.wake(thread)
        return thread

    def at(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function so many seconds from now."""
        heapq.heappush(self._timers, (self.seconds + seconds, next(self._numbers), call))

    def wake(self, thread: Thread) -> None:
        """Let a thread that waits go on."""
        if thread.waiting and not thread.done:
            thread.waiting = False
            self._ready.append(thread)

    def wait(self) -> None:
        """Let the present thread wait until it is woken up. Raises Killed."""
        thread = self.current
        assert thread is not None, "only simulated threads wait"
        thread.waiting = True
        self.hub.switch()
        thread.process.check()

    def wait_until(self, ready: Callable[[], bool], timeout: float | None, waiters: Iterable[Waiters]) -> bool:
        """Wait until something is so, looking again whenever one of `waiters` says so; returns whether it is."""
        thread = self.current
        assert thread is not None, "only simulated threads wait"
        thread.process.check()
        if ready():
            return True
        end = None if timeout is None else self.seconds + max(timeout, 0.0)
        if end is not None:
            self.at(end - self.seconds, lambda: self.wake(thread))
        while not ready():
            if end is not None and self.seconds >= end:
                return False
            for one in waiters:
                one.add(thread)
            self.wait()
        return True

    def sleep(self, seconds: float) -> None:
        """Let the present thread wait so long."""
        thread = self.current
        assert thread is not None
        thread.process.check()
        end = self.seconds + max(seconds, 0.0)
        self.at(end - self.seconds, lambda: self.wake(thread))
        # At least once: others go on even if no time passes.
        self.wait()
        while self.seconds < end:
            # Woken up by something that it has waited for before.
            self.wait()

    def run(self, seconds: float, *, most_steps: int = 200_000, until: Callable[[], bool] = lambda: False) -> bool:
        """Let so much time pass, or less if `until` becomes true; returns whether it has. Raises Stuck."""
        end = self.seconds + seconds
        while not until():
            if self._ready:
                self.steps += 1
                if self.steps > most_steps:
                    raise Stuck(f"{most_steps} steps at {self.seconds:.3f} s, in {self._ready[0].process.name}")
                self.current = self._ready.pop(self.random.randrange(len(self._ready)))
                self.current.greenlet.switch()
                self.current = None
            elif self._timers and self._timers[0][0] <= end:
                self.seconds, _, call = heapq.heappop(self._timers)
                call()
            else:
                self.seconds = end
                return until()
        return True


class Waiters:
    """Threads that wait for the same thing."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._threads: list[Thread] = []

    def wake_all(self) -> None:
        """Let all of them look again."""
        threads, self._threads = self._threads, []
        for thread in threads:
            self._machine.wake(thread)

    def add(self, thread: Thread) -> None:
        """Wake up one more at the next change."""
        self._threads.append(thread)

    def wait_until(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so, at most `timeout` seconds; returns whether it is."""
        return self._machine.wait_until(ready, timeout, [self])


class VirtualClock(Clock):
    """The clocks of a node. skew: seconds by which its Unix time is wrong."""

    def __init__(self, machine: Machine, skew: float = 0.0) -> None:
        self.now = lambda: EPOCH + machine.seconds + skew  # type: ignore[method-assign]
        self.now_ns = lambda: int(self.now() * 1e9)  # type: ignore[method-assign]
        self.monotonic = lambda: BOOTED + machine.seconds  # type: ignore[method-assign]
        self.monotonic_ns = lambda: int(self.monotonic() * 1e9)  # type: ignore[method-assign]
        self.processor_seconds = self.thread_seconds = self.error_seconds = lambda: 0.0  # type: ignore[method-assign]
        self.sleep = machine.sleep  # type: ignore[method-assign]

    def since_boot(self) -> float:
        return self.monotonic()


class SimulatedThreads(Threads):
    """Threads of a simulated process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._machine = process.machine

    def start(self, name: str, work: Callable[[], None]) -> Any:
        return self._machine.start(self._process, name, work)

    def lock(self) -> Any:
        return _Lock(self._machine)

    def queue(self) -> Any:
        return _Queue(self._machine)

    def event(self) -> Any:
        return _Event(self._machine)


class _Lock:
    def __init__(self, machine: Machine) -> None:
        self._held = False
        self._waiters = Waiters(machine)

    def __enter__(self) -> bool:
        self._waiters.wait_until(lambda: not self._held, None)
        self._held = True
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held = False
        self._waiters.wake_all()


class _Event:
    def __init__(self, machine: Machine) -> None:
        self._set = False
        self._waiters = Waiters(machine)

    def set(self) -> None:
        self._set = True
        self._waiters.wake_all()

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        return self._waiters.wait_until(self.is_set, timeout)


class _Queue:
    def __init__(self, machine: Machine) -> None:
        self._items: deque[Any] = deque()
        self._waiters = Waiters(machine)

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._waiters.wake_all()

    def get(self, timeout: float | None = None) -> Any:
        if not self._waiters.wait_until(lambda: bool(self._items), timeout):
            raise queue.Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)
