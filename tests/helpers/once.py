"""What is made once for all tests, also where several processes run them: the shim, and the products of `make dist`."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest

from helpers.mpi import REPOSITORY


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` has filled, by the first who asks for this name; others wait."""
    root = factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder, part = root / name, root / f"{name}.part"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder


def run_build(output: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Compile the shim, as its installation does."""
    command = [sys.executable, str(REPOSITORY / "agent/shim/build.py"), str(output)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


WITHOUT_LTO = '#!/bin/sh\ncase "$*" in *-flto*) exit 1;; esac\nexec cc "$@"\n'
"""A compiler that has no link-time optimization."""


def built_shim(factory: pytest.TempPathFactory, *flags: str, lto: bool = True) -> Path:
    """The shim compiled with these flags, beside `said`, which has what the compiler said."""

    def make(folder: Path) -> None:
        compiler = folder / "cc"
        compiler.write_text(WITHOUT_LTO)
        compiler.chmod(0o755)
        command = ["cc" if lto else str(compiler), "-Werror", *flags]
        done = run_build(folder / "libbarograph.so", CC=shlex.join(command))
        assert done.returncode == 0, done.stderr
        (folder / "said").write_text(done.stderr)

    name = blake2b(shlex.join([*flags, str(lto)]).encode(), digest_size=4).hexdigest()
    return once(factory, f"shim-{name}", make) / "libbarograph.so"
