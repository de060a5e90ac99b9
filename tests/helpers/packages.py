"""What `make dist` makes, with the environment that the tests run in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from helpers.mpi import REPOSITORY, missing


def make_dist(folder: Path) -> Path:
    """The folder, with the wheel and the sdist."""
    ready = REPOSITORY / ".venv/.dev"
    if Path(sys.prefix) != ready.parent:
        missing(f"the tests run in {sys.prefix}, `make dist` works in {ready.parent}")
    command = ["make", f"--old-file={ready.relative_to(REPOSITORY)}", "dist", f"DIST={folder}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
