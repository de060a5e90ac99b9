"""A query of every collector, and how their answers become one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from barograph.views.log import Row, rows_of
from barograph_collector.client.log_reader import LogReader

Parts: TypeAlias = Sequence[Sequence[Row]]
"""The rows that each collector has answered."""
Merge: TypeAlias = Callable[[Parts], list[Row]]
Order: TypeAlias = Callable[[Row], Any]

STEPS: Final = 101
"""Values of a `sample`: all of them if there are not more, else quantiles at equal distances."""


class JointQuery(NamedTuple):
    """A query with one answer of all collectors. text: a SELECT. merge: what the answers are together.

    Of each job one collector has all rows, so nothing is counted twice.
    """

    text: str
    merge: Merge

    def ask(self, readers: Iterable[LogReader], limit: int, seconds: float = 10.0) -> list[Row]:
        """The answer of these collectors. limit: rows of each. Raises LogUnavailable and ReadRefused."""
        return self.merge([rows_of(reader.query(self.text, limit, seconds)) for reader in readers])


def joined(order: Order, limit: int | None = None) -> Merge:
    """The rows of all in one order, that of the SELECT; at most `limit`."""

    def merge(parts: Parts) -> list[Row]:
        if len(parts) == 1:
            return list(parts[0])
        return sorted((row for part in parts for row in part), key=order)[:limit]

    return merge


def grouped(keys: Sequence[str], fold: Callable[[Sequence[Row]], Row], order: Order, limit: int | None = None) -> Merge:
    """One row for each value of the keys. fold: makes it of those that have this value, one of a collector.

    Where a SELECT has cut a group off, the group is without the rows of that collector.
    """

    def merge(parts: Parts) -> list[Row]:
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in (row for part in parts for row in part):
            groups.setdefault(tuple(row[name] for name in keys), []).append(row)
        found = [fold(rows) for rows in groups.values()]
        return found if len(parts) == 1 else sorted(found, key=order)[:limit]

    return merge


def fairly(order: Order, quota: int, limit: int, *, by_place: bool = False) -> Merge:
    """Rows with a `user`, at most `quota` of each. `place`: of a row among those of its user, from 1.

    by_place: whether the first rows of all users are before the second ones. `of_user`, where it is selected: the
    number of all rows of the user. Nothing is missing: a row that is ahead of another one in its log is ahead of it in
    all logs together, unless its user has `quota` rows there that are.
    """

    def merge(parts: Parts) -> list[Row]:
        if len(parts) == 1:
            return list(parts[0])
        of_user: Counter[str] = Counter()
        for part in parts:
            of_user.update({row["user"]: row["of_user"] for row in part if "of_user" in row})
        found: list[Row] = []
        places: Counter[str] = Counter()
        for row in sorted((row for part in parts for row in part), key=order):
            places[row["user"]] += 1
            if places[row["user"]] <= quota:
                more = {"of_user": of_user[row["user"]]} if "of_user" in row else {}
                found.append({**row, **more, "place": places[row["user"]]})
        if by_place:
            found.sort(key=lambda row: row["place"])
        return found[:limit]

    return merge


def sample(column: str) -> str:
    """The SQL of a list that stands for all values of a group, for `quantiles`."""
    steps = ", ".join(f"{step / (STEPS - 1):g}" for step in range(STEPS))
    return f"CASE WHEN count(*) <= {STEPS} THEN min({column}, {STEPS}) ELSE quantile_cont({column}, [{steps}]) END"


def quantiles(samples: Iterable[tuple[int, Sequence[float]]], at: Sequence[float]) -> list[float]:
    """Quantiles of values of which there are samples, each with the number of values that it stands for.

    Those of one sample are as DuckDB has them, where `at` is a multiple of 0.01; so are those of several with at most
    STEPS values each. Otherwise they are between the values that are 1 % below and above. at: from 0 to 1, ascending.

    >>> quantiles([(3, [1.0, 2.0, 9.0]), (2, [3.0, 4.0])], [0.0, 0.5, 1.0])
    [1.0, 3.0, 9.0]
    """
    given = [(count, np.asarray(values, dtype=float)) for count, values in samples]
    values = np.concatenate([values for _, values in given])
    weights = np.concatenate([np.full(values.size, count / values.size) for count, values in given])
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    middle = np.cumsum(weights) - weights / 2
    found: list[float] = np.interp(at, (middle - middle[0]) / ((middle[-1] - middle[0]) or 1.0), values).tolist()
    return found
