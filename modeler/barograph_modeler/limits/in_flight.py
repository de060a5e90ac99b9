"""Jobs that wait or run: what a new one of the same user and program is compared with."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from barograph_modeler.limits.job import UNKNOWN
from barograph_modeler.maxima.sample import Floats

MAX_SUBMITTERS: Final = 100_000
"""Users and programs whose last submission is kept."""
MAX_RUNNING: Final = 100
"""Running jobs of a program that are compared with a new one: those that run for longest."""
NEVER: Final = 1e6
"""Seconds since the last submission where there was none."""
Program: TypeAlias = tuple[int, int]
"""User and executable."""


@dataclass(slots=True)
class _Submissions:
    """Of one user. count: jobs submitted. newest_ended: position, from 1, of the newest of them that has ended."""

    count: int = 0
    newest_ended: int = 0


class JobsInFlight:
    """Waiting and running jobs of each program, and the last submission of each user and program."""

    def __init__(self) -> None:
        self._users: OrderedDict[int, _Submissions] = OrderedDict()
        self._positions: dict[Hashable, int] = {}
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
        user = self._users.pop(program[0], None) or _Submissions()
        user.count += 1
        self._users[program[0]], self._positions[key] = user, user.count
        for known in (self._submitted, self._users):
            while len(known) > MAX_SUBMITTERS:
                known.popitem(last=False)

    def start(self, key: Hashable, now: float) -> None:
        """A job in flight starts. Jobs start in order of time."""
        self._started[self._programs[key]][key] = now

    def end(self, key: Hashable) -> None:
        """A job has ended: its outcome is known."""
        if (user := self._users.get(self._programs[key][0])) is not None:
            user.newest_ended = max(user.newest_ended, self._positions[key])
        self.remove(key)

    def remove(self, key: Hashable) -> None:
        """Remove a job, started or not."""
        program = self._programs.pop(key)
        del self._positions[key]
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

    def batch(self, user: int) -> int:
        """Jobs of a user that were submitted since the newest one whose outcome is known; 0 for an unknown user."""
        found = None if user == UNKNOWN else self._users.get(user)
        return 0 if found is None else max(found.count - found.newest_ended, 0)

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
