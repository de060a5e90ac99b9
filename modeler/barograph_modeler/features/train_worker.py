"""Learns models in a process of its own, `python -m barograph_modeler.features.train_worker`, within time and memory.

A fit is seconds of work in several numerical libraries. In a thread of the modeler it would delay what the modeler
reports of running jobs, and could neither be stopped nor kept from taking all memory.
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from barograph_modeler.forecasts.run import FeatureRun

if TYPE_CHECKING:
    from barograph_modeler.features.model import FeatureModel

PROCESSOR_SECONDS: Final = 120
SECONDS: Final = 1_200.0
MEMORY_BYTES: Final = 4 * 2**30
NICENESS: Final = 10
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class TrainingFailed(Exception):
    """A model could not be learned. The text says why."""


class TrainWorker:
    """Learns models, one at a time. `stop` may be called from another thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def learn(self, runs: Sequence[FeatureRun], seed: int) -> FeatureModel | str:
        """A model of these runs, or why their features say nothing. Raises TrainingFailed."""
        if self._stopped:
            raise TrainingFailed("the modeler is ending")
        process = self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "barograph_modeler.features.train_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD},
        )
        if self._stopped:
            process.kill()
        with process:
            try:
                learned, said = process.communicate(pickle.dumps((list(runs), seed)), timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise TrainingFailed(f"it was not done within {SECONDS:g} seconds") from None
        if process.returncode:
            last = said.decode(errors="replace").strip().rpartition("\n")[2]
            raise TrainingFailed(
                f"its process ended with status {process.returncode}: {last[:500] or 'it said nothing'}"
            )
        # From a process of our own, which has read what we gave it.
        model: FeatureModel | str = pickle.loads(learned)
        return model

    def stop(self) -> None:
        """Refuse further fits, and kill the one under way."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()


def main() -> int:
    """Runs and seed as a pickle on standard input; a model or a sentence as a pickle on standard output."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from barograph_modeler.features.columns import UninformativeFeatures
    from barograph_modeler.features.model import learn

    runs, seed = pickle.load(sys.stdin.buffer)
    learned: FeatureModel | str
    try:
        learned = learn(runs, seed=seed)
    except UninformativeFeatures as error:
        learned = str(error)
    pickle.dump(learned, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
