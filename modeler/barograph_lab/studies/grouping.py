"""How well groups agree with the works that runs really did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import comb
from typing import NamedTuple


class Agreement(NamedTuple):
    """precision: share of pairs of runs in one group that did the same work. recall: of pairs that did, in one group.

    rand_index: the adjusted Rand index (Hubert and Arabie 1985), 1 for the same partition, 0 for one by chance. mixed:
    groups of several works. needless: runs that are not in the largest group of their work.
    """

    runs: int
    works: int
    groups: int
    precision: float
    recall: float
    rand_index: float
    mixed: int
    needless: int


def agreement(runs: Iterable[tuple[str, str]]) -> Agreement:
    """Compare two partitions of runs. runs: work and group of each; at least two.

    >>> found = agreement([("a", "1"), ("a", "1"), ("b", "2"), ("b", "3")])
    >>> found.precision, found.recall, round(found.rand_index, 3), found.mixed, found.needless
    (1.0, 0.5, 0.571, 0, 1)
    """
    both = Counter(runs)
    works: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    for (work, group), count in both.items():
        works[work] += count
        groups[group] += count
        largest[work] = max(largest[work], count)
    total = both.total()
    if total < 2:
        raise ValueError(f"{total} runs, expected at least 2")
    pairs, of_works, of_groups = (sum(comb(n, 2) for n in one.values()) for one in (both, works, groups))
    by_chance = of_works * of_groups / comb(total, 2)
    most = (of_works + of_groups) / 2
    names = Counter(group for _, group in both)
    return Agreement(
        total,
        len(works),
        len(groups),
        pairs / of_groups if of_groups else 1.0,
        pairs / of_works if of_works else 1.0,
        (pairs - by_chance) / (most - by_chance) if most != by_chance else 1.0,
        sum(count > 1 for count in names.values()),
        total - largest.total(),
    )
