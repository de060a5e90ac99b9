"""A machine of its own for a reader of the documentation: same programs, no network but loopback, and /etc, /var, /run,
/opt and /root into which anything may be written. What is typed there is what the pages have, paths and ports too.

It is a network and a mount namespace, so it needs root and Linux.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from helpers.log import DEADLINE_SECONDS, wait_until

_SETUP: Final = """
mount -t tmpfs none {layer}
mkdir -p /opt
for folder in etc var run opt root; do
    mkdir -p {layer}/$folder.upper {layer}/$folder.work
    mount -t overlay none -o lowerdir=/$folder,upperdir={layer}/$folder.upper,workdir={layer}/$folder.work /$folder
done
{python} -c "
import fcntl, socket, struct
SIOCSIFFLAGS, IFF_UP_RUNNING = 0x8914, 0x41
fcntl.ioctl(socket.socket(), SIOCSIFFLAGS, struct.pack('16sH14x', b'lo', IFF_UP_RUNNING))"
mkdir -p /run/barograph /etc/barograph /etc/bash_completion.d
echo 127.0.0.1 barograph.example.org >> /etc/hosts
ln -sfn {environment} /opt/barograph
touch {layer}/ready
exec sleep infinity
"""


class Stranger:
    """The machine: made on entry, gone on exit with everything that still runs there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where the reader is; the same files inside and outside."""
        self._layer = folder.parent / f"{folder.name}.layer"
        self._daemons: list[tuple[str, subprocess.Popen[str], Path]] = []

    def __enter__(self) -> Self:
        if os.getuid() != 0 or not (shutil.which("unshare") and shutil.which("nsenter")):
            reason = "a machine of its own for the reader needs root, unshare and nsenter (util-linux)"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._layer.mkdir()
        script = _SETUP.format(layer=self._layer, python=sys.executable, environment=sys.prefix)
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "bash", "-euc", script], stderr=subprocess.PIPE, text=True
        )
        wait_until(lambda: self._holder.poll() is not None or self._ready(), "the reader's machine is there")
        if self._holder.poll() is not None:
            assert self._holder.stderr
            raise AssertionError(f"no namespaces: {self._holder.stderr.read()}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for _, process, _ in self._daemons:
            process.kill()
            process.wait()
        self._holder.kill()
        self._holder.wait()
        if self._holder.stderr:
            self._holder.stderr.close()

    def types(self, line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """One line in a shell, from the reader's folder, until it ends."""
        return subprocess.run(
            self._inside(line),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def starts(self, line: str, environment: dict[str, str], ready: str) -> None:
        """A line that goes on until it is stopped; it is there when it says `ready` on standard error."""
        log = self.folder / f"daemon-{len(self._daemons)}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                self._inside(f"exec {line}"), env=environment, stderr=output, stdout=output, text=True
            )
        self._daemons.append((line, process, log))
        wait_until(lambda: process.poll() is not None or ready in log.read_text(), f"{line!r} says {ready!r}")
        assert process.poll() is None, f"{line}\n{log.read_text()}"

    def stops_everything(self, pattern: str = "") -> None:
        """Ctrl-C for all that was started by a line like this, the last first. Each has to end well."""
        for started in [one for one in reversed(self._daemons) if re.match(pattern, one[0])]:
            self._daemons.remove(started)
            line, process, log = started
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_SECONDS) == 0, f"{line}\n{log.read_text()}"

    def _inside(self, line: str) -> list[str]:
        # Who enters a mount namespace is in its root folder.
        there = f"cd {self.folder}; {line}"
        return ["nsenter", "--net", "--mount", f"--target={self._holder.pid}", "bash", "-euo", "pipefail", "-c", there]

    def _ready(self) -> bool:
        # The file is on a mount that only the namespace sees.
        return Path(f"/proc/{self._holder.pid}/root{self._layer}/ready").exists()
