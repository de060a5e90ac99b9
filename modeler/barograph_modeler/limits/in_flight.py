"""Jobs that wait or run: what a new one of the same user and program is compared with."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Hashable
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from barograph_modeler.maxima.sample import Floats

MAX_SUBMITTERS: Final = 100_000
"""Users and programs whose last submission is kept."""
MAX_RUNNING: Final = 100
"""Running jobs of a program that are compared with a new one: those that run for longest."""
NEVER: Final = 1e6
"""Seconds since the last submission where there was none."""
Program: TypeAlias = tuple[int, int]
"""User and executable."""


class JobsInFlight:
    """Waiting and running jobs of each program, and the last submission of each user and program."""

    def __init__(self) -> None:
        self._programs: dict[Hashable, Program] = {}
        self._jobs: defaultdict[Program, int] = defaultdict(int)
        self._started: defaultdict[Program, OrderedDict[Hashable, float]] = defaultdict(OrderedDict)
        self._submitted: OrderedDict[Hashable, float] = OrderedDict()

    def submit(self, key: Hashable, program: Program, now: float) -> None:
        """Add a job. key: not in flight."""
        self._programs[key] = program
        self._jobs[program] += 1
        for submitter in (program[:1], program):
            self._submitted.pop(submitter, None)
            self._submitted[submitter] = now
        while len(self._submitted) > MAX_SUBMITTERS:
            self._submitted.popitem(last=False)

    def start(self, key: Hashable, now: float) -> None:
        """A job in flight starts. Jobs start in order of time."""
        self._started[self._programs[key]][key] = now

    def end(self, key: Hashable) -> None:
        """Remove a job, started or not."""
        program = self._programs.pop(key)
        self._jobs[program] -= 1
        started = self._started[program]
        started.pop(key, None)
        if not started:
            del self._started[program]
        if not self._jobs[program]:
            del self._jobs[program]

    def count(self, program: Program) -> int:
        """Jobs of a program that wait or run."""
        return self._jobs.get(program, 0)

    def longest_running(self, program: Program, now: float) -> float:
        """Log of the seconds since the first of the program's running jobs started, at least 0."""
        started = self._started.get(program)
        return math.log(max(now - next(iter(started.values())), 1.0)) if started else 0.0

    def log_elapsed(self, program: Program, now: float) -> Floats:
        """Ascending logs of the seconds for which the program's first MAX_RUNNING running jobs have run."""
        started = self._started.get(program)
        if not started:
            return np.empty(0)
        elapsed = now - np.array(list(islice(started.values(), MAX_RUNNING)))
        return np.log(np.maximum(elapsed[::-1], 1.0))

    def since(self, submitter: tuple[int, ...], now: float) -> float:
        """Log of 1 + seconds since the last submission of a user or program."""
        return math.log1p(max(now - self._submitted.get(submitter, now - NEVER), 0.0))
