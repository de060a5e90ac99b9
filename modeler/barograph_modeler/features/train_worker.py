"""Fits models in a separate process, `python -m barograph_modeler.features.train_worker`.

A fit takes seconds in several numerical libraries. In a thread of the modeler it would delay reports on running jobs,
and could be neither stopped nor limited in time and memory.
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
    """A fit failed. The message has the reason."""


class TrainWorker:
    """Fits models, one at a time. `stop` may be called from another thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def learn(self, runs: Sequence[FeatureRun], seed: int) -> FeatureModel | str:
        """Fit a model; returns the reason if the features are uninformative. Raises TrainingFailed."""
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
                learned, errors = process.communicate(pickle.dumps((list(runs), seed)), timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise TrainingFailed(f"it was not done within {SECONDS:g} seconds") from None
        if process.returncode:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2][:500] or "it printed nothing"
            raise TrainingFailed(f"its process ended with status {process.returncode}: {last}")
        # The pickle is trusted: it comes from a child process that read only our own data.
        model: FeatureModel | str = pickle.loads(learned)
        return model

    def stop(self) -> None:
        """Refuse further fits, and kill the running one."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()


def main() -> int:
    """Read runs and seed as a pickle from standard input; write the model, or the reason for none, as a pickle."""
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
