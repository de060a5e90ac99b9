"""A modeler with many workloads whose fits are due."""

from __future__ import annotations

import numpy as np

from barograph_modeler.bands.class_model import WINDOW, ClassModel
from barograph_modeler.bands.moments import Blocks
from barograph_modeler.learning.learner import REFIT_SECONDS, Learner
from barograph_modeler.learning.workload import Workload
from barograph_modeler.workers import Workers


def learner(workloads: int, workers: Workers[int] | None) -> Learner:
    """A learner of so many workloads, each with a class that has a full window and is to be fitted."""
    made = Learner(refit_seconds=REFIT_SECONDS, workers=workers)
    values = np.random.default_rng(1).lognormal(0, 0.05, (workloads, WINDOW))
    for number, one in enumerate(values):
        workload = made.workloads[str(number)] = Workload()
        model = workload.intervals[1] = ClassModel()
        model.learn(Blocks.of_values(one), np.arange(float(WINDOW)))
        made.backlog.add((str(number), 1), 1.0)
    return made
