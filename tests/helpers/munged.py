"""A real munged with a key and a socket of its own, for the time of a test."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.log import DEADLINE_SECONDS, wait_until


@contextmanager
def munged(directory: Path) -> Iterator[str]:
    """Run it in `directory`, which is made; gives the path of its socket."""
    program = shutil.which("munged", path="/usr/sbin:/usr/bin")
    if program is None:
        reason = "munged is not installed: tests/install-packages"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    directory.mkdir(mode=0o700)
    key = directory / "munge.key"
    key.write_bytes(secrets.token_bytes(64))
    key.chmod(0o600)
    # --force: a test's directories have parents that others can write.
    paths = {name: directory / f"munged.{name}" for name in ("socket", "pid", "seed", "log")}
    command = [program, "--foreground", "--force", "--key-file", str(key), "--socket", str(paths["socket"])]
    command += ["--pid-file", str(paths["pid"]), "--seed-file", str(paths["seed"]), "--log-file", str(paths["log"])]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _listens(paths["socket"]), "munged listens")
        yield str(paths["socket"])
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
