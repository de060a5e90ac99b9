"""Jobs that have ended, found by what they have in common with a new one."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.limits.columns import COLUMNS, Column
from barograph_modeler.maxima.sample import Floats

CAPACITY: Final = 1 << 16
"""Ended jobs kept: 11 MB."""
MAX_CONTEXTS: Final = 100_000
"""Contexts kept, such as a user with an executable; the one unused for longest is dropped."""
USER: Final[tuple[Column, ...]] = (Column.USER,)
PROGRAM: Final[tuple[Column, ...]] = (Column.USER, Column.EXECUTABLE)
CONTEXTS: Final = {
    PROGRAM: 40,
    (*PROGRAM, Column.PROCESSORS, Column.REQUESTED): 10,
    (Column.USER, Column.PROCESSORS, Column.REQUESTED): 10,
    USER: 40,
    (Column.EXECUTABLE,): 10,
    (Column.QUEUE, Column.PROCESSORS, Column.REQUESTED): 12,
    (): 20,
}
"""What jobs have in common, and how many of the newest are compared with a new one."""
DECAY: Final = 0.999
"""Weight of older jobs in the frequencies of runtimes, per job."""
MAX_LOG_SECONDS: Final = 16.0
"""Natural logarithm of the longest runtime that is told apart: 103 days."""


class RecentJobs:
    """The newest CAPACITY jobs as rows of COLUMNS numbers, and the newest of each context."""

    def __init__(self) -> None:
        self._rows = np.zeros((CAPACITY, COLUMNS))
        self._count = 0
        self._contexts: OrderedDict[Hashable, deque[int]] = OrderedDict()
        self._runs: OrderedDict[Hashable, int] = OrderedDict()
        self._frequencies = np.ones(int(MAX_LOG_SECONDS) + 1)

    def add(self, row: Floats) -> None:
        """Add a job that has ended. row: complete but for the columns of runs, which are set here."""
        for names, column in ((USER, Column.USER_RUNS), (PROGRAM, Column.PROGRAM_RUNS)):
            key = _key(names, row)
            row[column] = self._runs[key] = self._runs.pop(key, 0) + 1
            if len(self._runs) > MAX_CONTEXTS:
                self._runs.popitem(last=False)
        self._rows[self._count % CAPACITY] = row
        for names, kept in CONTEXTS.items():
            key = _key(names, row)
            context = self._contexts.pop(key, None) or deque(maxlen=kept)
            context.append(self._count)
            self._contexts[key] = context
            if len(self._contexts) > MAX_CONTEXTS:
                self._contexts.popitem(last=False)
        self._count += 1
        self._frequencies *= DECAY
        self._frequencies[int(min(row[Column.LOG_SECONDS], MAX_LOG_SECONDS))] += 1

    def similar(self, row: Floats) -> Floats:
        """Rows of ended jobs that share a context with this one: each once, at most the sum of CONTEXTS."""
        found: dict[int, None] = {}
        for names in CONTEXTS:
            if context := self._contexts.get(_key(names, row)):
                found.update(dict.fromkeys(context))
        oldest = self._count - CAPACITY
        return self._rows[np.array([one % CAPACITY for one in found if one >= oldest], dtype=np.intp)]

    def runs(self, names: tuple[Column, ...], row: Floats) -> int:
        """Ended jobs that agree with this one in `names`, USER or PROGRAM."""
        return self._runs.get(_key(names, row), 0)

    def last_log_seconds(self, names: tuple[Column, ...], row: Floats) -> float:
        """Of the newest ended job of a context of CONTEXTS; -1 without one."""
        context = self._contexts.get(_key(names, row))
        if not context or context[-1] < self._count - CAPACITY:
            return -1.0
        return float(self._rows[context[-1] % CAPACITY, Column.LOG_SECONDS])

    @property
    def log_frequencies(self) -> npt.NDArray[np.float64]:
        """Logarithms of the shares of recent jobs of any kind, by whole natural logarithms of their seconds."""
        return np.log(self._frequencies) - math.log(float(self._frequencies.sum()))


def _key(names: tuple[Column, ...], row: Floats) -> Hashable:
    return (names, *(float(row[name]) for name in names))
