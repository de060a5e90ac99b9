"""Disjoint parts of the total among regions that may be nested.

Timers of applications overlap: `solve` contains `exchange`, and both are in `total`. Where names are paths (`a/b`), a
region contains those whose path begins with its own. Otherwise containment follows from values: the regions inside
another have a sum that is nearly its time, in every run of every problem, and at several scales other subsets rarely
have. Starting from the total, each region is replaced by the subset of smaller regions that leaves least of it, until
none leaves little enough, fewest regions first. What no part covers is the part REST, so parts always sum to the total.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.regions.runs import RegionRuns

REST: Final = "rest"
SEPARATORS: Final = ("/", "->", "::", "=>")
EXCESS: Final = 0.02
"""Share of a region by which the sum of those inside may exceed it: clocks, and maxima over different ranks."""
MAX_LEFT: Final = 0.15
"""Root mean square share of a region that those inside may leave uncovered."""
GOOD_LEFT: Final = 0.06
"""Subsets that leave less fit equally well: the one with the fewest regions is taken."""
MIN_SHARED: Final = 0.85
"""Share of a problem's regions that are kept where containment is tested on the runs of other problems too."""
MIN_SHARE: Final = 0.01
"""Parts that are smaller in every run are added to REST."""
MIN_REST: Final = 0.002
"""Least share of the total that REST has where it is a part: a difference of 0 has no law in logarithms."""
MAX_PARTS: Final = 20
"""Parts of a problem; smaller ones are added to REST."""
MAX_REGIONS: Final = 24
"""Regions considered as those inside another, largest first."""
MAX_SUBSETS: Final = 2000
"""Subsets kept in the search."""
MAX_ROWS: Final = 64
"""Runs that containment is tested on, evenly many of the small and the large."""


def disjoint(problems: Mapping[str, RegionRuns]) -> dict[str, tuple[str, ...]]:
    """Names of disjoint parts of each problem, without REST; empty if no region can be used.

    Problems with the same regions have the same parts, found from the runs of all problems with nearly these regions.
    """
    known = {name: frozenset(one.complete) for name, one in problems.items()}
    found = {regions: _found(regions, problems, known) for regions in set(known.values())}
    return {name: found[regions] for name, regions in known.items()}


def _found(
    regions: frozenset[str], problems: Mapping[str, RegionRuns], known: Mapping[str, frozenset[str]]
) -> tuple[str, ...]:
    """The parts of problems with these regions, from their runs and those of problems with nearly the same."""
    shared, rows = regions, []
    for name in sorted(problems, key=lambda name: (-len(regions & known[name]), name)):
        if len(shared & known[name]) >= MIN_SHARED * len(regions):
            shared &= known[name]
            rows.append(problems[name])
    total = np.concatenate([one.runs.seconds for one in rows])
    seconds = {name: np.concatenate([one.regions[name] for one in rows]) for name in sorted(shared)}
    kept = np.unique(np.linspace(0, total.size - 1, MAX_ROWS).astype(int))
    return _parts(total[kept], {name: column[kept] for name, column in seconds.items()})


def with_rest(problem: RegionRuns, parts: Sequence[str]) -> dict[str, Floats]:
    """Seconds of each part, (runs,), and of REST; small parts are in REST. Sums to the total, or MIN_REST more.

    Where parts exceed the total by more than clocks explain, they are scaled down to it.
    """
    total = problem.runs.seconds
    large = [name for name in parts if (problem.regions[name] / total).max() >= MIN_SHARE]
    kept = sorted(large, key=lambda name: -float((problem.regions[name] / total).max()))[:MAX_PARTS]
    covered = np.sum([problem.regions[name] for name in kept], axis=0) if kept else np.zeros(total.size)
    factor = np.minimum(1.0, total / np.maximum(covered, 1e-300))
    seconds = {name: problem.regions[name] * factor for name in kept}
    rest = np.maximum(total - covered, 0.0)
    if not kept or (rest / total).max() >= MIN_SHARE:
        seconds[REST] = np.maximum(rest, MIN_REST * total)
    return seconds


def _parts(total: Floats, seconds: Mapping[str, Floats]) -> tuple[str, ...]:
    if not seconds:
        return ()
    if tree := _paths(tuple(seconds)):
        return _within_total(total, seconds, tree)
    if (np.sum(list(seconds.values()), axis=0) <= total * (1 + EXCESS)).all():
        return tuple(seconds)
    order = sorted(seconds, key=lambda name: -float((seconds[name] / total).mean()))
    return tuple(_refined(total, order, seconds))


def _refined(whole: Floats, free: list[str], seconds: Mapping[str, Floats]) -> list[str]:
    """The leaves below a region of these seconds; empty if nothing is known to be inside. Takes names from `free`.

    What the chosen regions leave is refined like a region: a small part beside large ones may grow with the ranks.
    """
    inside = [name for name in free if (seconds[name] <= whole * (1 + EXCESS)).all()][:MAX_REGIONS]
    chosen = _subset(whole, inside, seconds)
    if not chosen:
        return []
    for name in chosen:
        free.remove(name)
    leaves = [leaf for name in chosen for leaf in _refined(seconds[name], free, seconds) or [name]]
    left = whole - np.sum([seconds[name] for name in chosen], axis=0)
    return leaves + (_refined(left, free, seconds) if (left > 0).all() else [])


def _subset(whole: Floats, names: Sequence[str], seconds: Mapping[str, Floats]) -> list[str]:
    """The subset whose sum is nearest below `whole` in all rows, by beam search; empty if it leaves too much."""
    left, members = np.ones((1, whole.size)), np.zeros((1, len(names)), dtype=bool)
    for i, name in enumerate(names):
        with_it = left - seconds[name] / whole
        possible = (with_it >= -EXCESS).all(axis=1)
        added = members[possible].copy()
        added[:, i] = True
        left, members = np.concatenate([left, with_it[possible]]), np.concatenate([members, added])
        best = np.argsort(_mean_square(left), kind="stable")[:MAX_SUBSETS]
        left, members = left[best], members[best]
    misfit = np.sqrt(_mean_square(left))
    if misfit.min() > MAX_LEFT:
        return []
    near = np.flatnonzero(misfit <= max(misfit.min(), GOOD_LEFT))
    chosen = members[near[np.argmin(members[near].sum(axis=1) + misfit[near])]]
    return [name for name, is_in in zip(names, chosen, strict=True) if is_in]


def _mean_square(left: Floats) -> Floats:
    return np.asarray((left**2).mean(axis=1))


@dataclass(frozen=True)
class _Node:
    name: str
    inside: list[_Node]


def _paths(names: Sequence[str]) -> list[_Node]:
    """The forest that paths make; empty unless some region is inside another by its path."""
    separator = next((one for one in SEPARATORS if sum(one in name for name in names) * 2 >= len(names)), None)
    if separator is None:
        return []
    nodes = {name: _Node(name, []) for name in names}
    roots: list[_Node] = []
    for name in names:
        steps = name.split(separator)
        above = (separator.join(steps[:i]) for i in range(len(steps) - 1, 0, -1))
        parent = next((nodes[one] for one in above if one in nodes), None)
        (roots if parent is None else parent.inside).append(nodes[name])
    return roots if any(root.inside for root in roots) else []


def _within_total(total: Floats, seconds: Mapping[str, Floats], roots: Sequence[_Node]) -> tuple[str, ...]:
    """The leaves below roots, as long as those inside a region do not exceed it; the region itself else."""

    def leaves(node: _Node) -> list[str]:
        own = seconds[node.name]
        covered = np.sum([seconds[one.name] for one in node.inside], axis=0) if node.inside else np.zeros(own.size)
        if not node.inside or (covered > own * (1 + EXCESS)).any() or (own - covered > MAX_LEFT * total).any():
            return [node.name]
        return [name for one in node.inside for name in leaves(one)]

    found = [name for root in roots for name in leaves(root)]
    found.sort(key=lambda name: -float((seconds[name] / total).mean()))
    chosen: list[str] = []
    covered = np.zeros(total.size)
    for name in found:
        if (covered + seconds[name] <= total * (1 + EXCESS)).all():
            chosen.append(name)
            covered = covered + seconds[name]
    return tuple(chosen)
