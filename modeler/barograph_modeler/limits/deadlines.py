"""When running jobs exceed their limits: known before they end."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

SPARE: Final = 1000
"""Deadlines of ended jobs that are kept in any case: they are removed once they are half of all."""


class Deadlines:
    """The limits of running jobs, by their position, in the order in which they pass."""

    def __init__(self) -> None:
        self._serial = 0
        self._jobs: dict[Hashable, tuple[int, list[tuple[float, int]]]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []

    def start(self, key: Hashable, now: float, limits: Sequence[float]) -> None:
        """A job starts. limits: in seconds."""
        self._serial += 1
        ahead = sorted(((now + limit, number) for number, limit in enumerate(limits)), reverse=True)
        self._jobs[key] = self._serial, ahead
        self._push(key)
        if len(self._heap) > 2 * len(self._jobs) + SPARE:
            self._heap = [one for one in self._heap if self._is_ahead(one)]
            heapq.heapify(self._heap)

    def passed(self, now: float) -> Iterator[int]:
        """The positions of limits that jobs have exceeded since the last call, one for each job and limit."""
        while self._heap and self._heap[0][0] < now:
            first = heapq.heappop(self._heap)
            if self._is_ahead(first):
                key = first[2]
                yield self._jobs[key][1].pop()[1]
                self._push(key)

    def end(self, key: Hashable) -> frozenset[int] | None:
        """Remove a job. Returns the positions of limits that it had not exceeded by the last call of `passed`; None if
        it has not started."""
        job = self._jobs.pop(key, None)
        return None if job is None else frozenset(number for _, number in job[1])

    def _push(self, key: Hashable) -> None:
        serial, ahead = self._jobs[key]
        if ahead:
            heapq.heappush(self._heap, (ahead[-1][0], serial, key))

    def _is_ahead(self, one: tuple[float, int, Hashable]) -> bool:
        """Whether its job runs: a key may be that of a later job."""
        return one[2] in self._jobs and self._jobs[one[2]][0] == one[1]
