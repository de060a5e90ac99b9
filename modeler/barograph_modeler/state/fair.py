"""Values of jobs within a limit that is shared fairly between users."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FairJobs(Generic[V]):
    """Values by job, at most `limit`: beyond it, the user with most jobs loses the least recently used of them.

    So no number of jobs of one user displaces a job of another. evicted: how many were displaced.
    """

    def __init__(self, limit: int) -> None:
        self.evicted = 0
        self._limit = limit
        self._values: OrderedDict[str, V] = OrderedDict()
        self._users: dict[str, str] = {}
        self._jobs: dict[str, OrderedDict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, job: str) -> bool:
        return job in self._values

    def __getitem__(self, job: str) -> V:
        return self._values[job]

    def __delitem__(self, job: str) -> None:
        del self._values[job]
        user = self._users.pop(job)
        del self._jobs[user][job]
        if not self._jobs[user]:
            del self._jobs[user]

    def get(self, job: str) -> V | None:
        """The value of a job."""
        return self._values.get(job)

    def items(self) -> ItemsView[str, V]:
        """Jobs and values, the least recently used first."""
        return self._values.items()

    def values(self) -> ValuesView[V]:
        """The values, the least recently used first."""
        return self._values.values()

    def user(self, job: str) -> str:
        """The user of a job; empty if unknown."""
        return self._users[job]

    def pop(self, job: str) -> V | None:
        """Remove and return the value of a job; None if there is none."""
        value = self._values.get(job)
        if job in self._values:
            del self[job]
        return value

    def use(self, job: str, make: Callable[[], V], user: str = "") -> V:
        """The value of a job, made if there is none, as the most recently used one. user: empty if unknown."""
        if job not in self._values:
            self._values[job] = make()
            self._users[job] = user
        elif user:
            self._set_user(job, user)
        self._values.move_to_end(job)
        jobs = self._jobs.setdefault(self._users[job], OrderedDict())
        jobs[job] = None
        jobs.move_to_end(job)
        value = self._values[job]
        if len(self._values) > self._limit:
            self._evict()
        return value

    def _set_user(self, job: str, user: str) -> None:
        if (before := self._users[job]) == user:
            return
        del self._jobs[before][job]
        if not self._jobs[before]:
            del self._jobs[before]
        self._users[job] = user
        self._jobs.setdefault(user, OrderedDict())[job] = None

    def _evict(self) -> None:
        most = max(self._jobs.values(), key=len)
        del self[next(iter(most))]
        self.evicted += 1


def fair_share(sizes: Mapping[K, int], limit: int) -> dict[K, int]:
    """How much each may have of what is limited: all that it asks for, or the largest equal share.

    >>> fair_share({"a": 1, "b": 5, "c": 100}, 11)
    {'a': 1, 'b': 5, 'c': 5}
    """
    shares, left = {}, limit
    for number, (key, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        shares[key] = min(size, left // (len(sizes) - number))
        left -= shares[key]
    return shares


def first_of_each(items: Iterable[tuple[K, V]], limit: int) -> list[V]:
    """At most `limit` of the values, in their order: of each key its first ones, as many as its fair share.

    >>> first_of_each([("a", 1), ("a", 2), ("a", 3), ("b", 4)], 3)
    [1, 2, 4]
    """
    items = list(items)
    sizes: dict[K, int] = {}
    for key, _ in items:
        sizes[key] = sizes.get(key, 0) + 1
    left = fair_share(sizes, limit)
    found = []
    for key, value in items:
        if left[key]:
            left[key] -= 1
            found.append(value)
    return found
