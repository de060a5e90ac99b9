"""Intervals timed by the program: loops without MPI, training steps, tasks of a framework.

    from barograph_agent import interval, mark

    with interval("step"):          a block
        ...
    @interval("solve")              each call of a function
    def solve(): ...
    for batch in data:              from one mark of a name to the next, in one thread
        mark("batch")

Under `barograph run` the shim writes each to a ring, and it is treated like one between collectives, with the name as
its class. Otherwise nothing is written, and the cost of a call is negligible.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar, cast

from barograph_agent.shim import is_disabled
from barograph_agent.system.clock import CLOCK

monotonic_ns: Final = CLOCK.monotonic_ns
_P = ParamSpec("_P")
_R = TypeVar("_R")
_RANKS: Final = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
"""Variables with rank and size, set by torchrun, by Open MPI, and by MPICH and Intel MPI."""


class TimedInterval:
    """Result of `interval`: a context manager, and a decorator of functions and coroutine functions.

    A block that raises is not recorded: it did not do the work of other blocks of its name. This class records nothing.
    """

    __slots__ = ()

    def __enter__(self) -> TimedInterval:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """The function, timed. Raises TypeError for what does no work when it is called, watched or not."""
        work = inspect.unwrap(function) if inspect.isroutine(function) else function
        if inspect.isclass(work) or inspect.isgeneratorfunction(work) or inspect.isasyncgenfunction(work):
            raise TypeError(f"{work!r} returns before its work is done: time its body by `with interval(NAME)`")
        return function


def interval(name: str) -> TimedInterval:
    """Time a block or a function. Intervals of the same `name` are compared with each other."""
    recorder = _RECORDER
    if not recorder.watched and not recorder.begin(os.environ):
        return _UNRECORDED
    try:
        return _RecordedInterval(recorder.sites[name])
    except KeyError:
        return _RecordedInterval(recorder.site(name))


def mark(name: str) -> None:
    """Time from one call to the next: ends an interval and begins another. The first call only begins one."""
    recorder = _RECORDER
    if not recorder.watched and not recorder.begin(os.environ):
        return
    now = monotonic_ns()
    marks = recorder.marks.__dict__
    before = marks.get(name)
    marks[name] = now
    if before is not None:
        recorder.put(before, now, recorder.site(name))


class _RecordedInterval(TimedInterval):
    # Few attributes: creating the object is a large part of the cost of an interval.
    __slots__ = ("_site", "_start")

    def __init__(self, site: int) -> None:
        self._site = site

    def __enter__(self) -> _RecordedInterval:
        self._start = monotonic_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            _RECORDER.put(self._start, monotonic_ns(), self._site)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        super().__call__(function)
        recorder, site = _RECORDER, self._site

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def timed_coroutine(*arguments: Any, **named: Any) -> Any:
                start = monotonic_ns()
                result = await function(*arguments, **named)
                recorder.put(start, monotonic_ns(), site)
                return result

            return cast("Callable[_P, _R]", timed_coroutine)

        @functools.wraps(function)
        def timed(*arguments: _P.args, **named: _P.kwargs) -> _R:
            start = monotonic_ns()
            result = function(*arguments, **named)
            recorder.put(start, monotonic_ns(), site)
            return result

        return timed


class _Recorder:
    """The ring of this process, if there is one."""

    def __init__(self) -> None:
        self._beginning = threading.Lock()
        self._site_of: Callable[[bytes], int] = lambda name: 0
        self.marks = threading.local()
        self.begun = self.watched = False
        self.sites: dict[str, int] = {}
        self.put: Callable[[int, int, int], None] = _nothing

    def begin(self, environment: Mapping[str, str]) -> bool:
        """On the first call, create a ring if this process is watched. Returns whether it is. Never raises."""
        if self.begun:
            return self.watched
        with self._beginning:
            rank, size = place(environment)
            if environment.get("BAROGRAPH_RING_DIR") and not is_disabled(environment) and rank == 0 and not self.begun:
                self._open(rank, size)
            self.begun = True
        return self.watched

    def reset(self) -> None:
        """Reset in the child of a fork: ring and lock belong to the parent. Site numbers stay valid."""
        self._beginning = threading.Lock()
        names = list(self.sites)
        self.sites = {}
        if self.watched:
            self.begun, self.watched, self.put = False, False, _nothing
            self.begin(os.environ)
            for name in names:
                self.site(name)

    def site(self, name: str) -> int:
        """The site number of this name."""
        if name not in self.sites:
            self.sites[name] = self._site_of(name.encode(errors="replace"))
        return self.sites[name]

    def _open(self, rank: int, size: int) -> None:
        # Without giving up the interpreter's lock: a call takes less time than that.
        shim = ctypes.PyDLL(None)
        try:
            self._site_of, put = shim.barograph_intervals_site, shim.barograph_intervals_put
        except AttributeError:
            return
        put.argtypes, put.restype = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32), None
        if shim.barograph_intervals_start(rank, size):
            self.put, self.watched = put, True


def place(environment: Mapping[str, str]) -> tuple[int, int]:
    """Rank and number of ranks from a launcher's variables; 0 and 1 if there are none."""
    for rank, size in _RANKS:
        if environment.get(rank, "").isdecimal() and environment.get(size, "").isdecimal():
            return int(environment[rank]), int(environment[size])
    return 0, 1


def _nothing(enter: int, end: int, site: int) -> None:
    pass


_RECORDER: Final = _Recorder()
_UNRECORDED: Final = TimedInterval()
os.register_at_fork(after_in_child=_RECORDER.reset)
