"""What no forecast can know: the runtimes of the next similar jobs beside those of the last ones.

A yardstick for the accuracy of forecasts, not a bound: it is of one estimator, which knows both sides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.limits.logged_job import LoggedJob

HINDSIGHT: Final = "hindsight"
REACH: Final = 12
"""Jobs on each side that are considered."""
BLOCK: Final = 1000
"""Jobs at a time: 5 MB."""
DECAY: Final = 3.0
"""Jobs over which the weight of a runtime falls by e."""
CONTEXTS: Final[tuple[tuple[str, ...], ...]] = (
    ("user", "executable", "processors", "requested"),
    ("user", "executable"),
    ("user",),
    (),
)
"""What jobs have in common, from the narrowest."""


def hindsight(jobs: Sequence[LoggedJob]) -> Floats:
    """Runtimes in seconds for jobs in order of submission, two or more.

    Each is the runtime, of the REACH jobs before and after it in the narrowest context that has another one, of the
    largest weighted mean of smaller / larger over them all; the job itself is left out.
    """
    logs = np.log([job.runtime for job in jobs])
    found = np.full(len(jobs), np.nan)
    for names in CONTEXTS:
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for position, job in enumerate(jobs):
            groups[tuple(getattr(job.submitted, name) for name in names)].append(position)
        for members in groups.values():
            positions = np.array(members)
            if len(members) < 2:
                continue
            wanted = np.flatnonzero(np.isnan(found[positions]))
            for start in range(0, wanted.size, BLOCK):
                block = wanted[start : start + BLOCK]
                found[positions[block]] = _from_neighbours(logs[positions], block)
    return np.asarray(np.exp(found))


def _from_neighbours(logs: Floats, wanted: npt.NDArray[np.intp]) -> Floats:
    """For the values at these positions, the one of their neighbours that is nearest to all of them."""
    steps = np.array([step for step in range(-REACH, REACH + 1) if step != 0])
    weights = np.exp(-np.abs(steps) / DECAY)
    at = wanted[:, None] + steps
    is_known = (at >= 0) & (at < logs.size)
    near = logs[np.clip(at, 0, logs.size - 1)]
    accuracy = np.exp(-np.abs(near[:, :, None] - near[:, None, :]))
    means = (accuracy * (weights * is_known)[:, None, :]).sum(axis=2)
    best = np.where(is_known, means, -1.0).argmax(axis=1)
    return np.asarray(near[np.arange(wanted.size), best])
