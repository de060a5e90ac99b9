"""A machine that systemd has booted: this one's files under an overlay, in namespaces, thrown away afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from helpers.alerting import tool
from helpers.log import DEADLINE_SECONDS
from helpers.mpi import REPOSITORY

PREFIX = Path("/opt/barograph")
SOURCE = Path("/opt/source")
UNITS = [f"barograph-{name}.service" for name in ("collector", "modeler", "alerts", "page")]
PARTS = ("agent", "collector", "modeler", "alerts", "deploy")
BOOT_SECONDS = 180.0
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class NoBoot(Exception):
    """systemd cannot be booted here; the text says what was in the way."""


class Machine:
    """Booted on entry. Raises NoBoot where the kernel or a container does not let it."""

    def __init__(self, directory: Path, bound: Mapping[str, str]) -> None:
        """bound: directories of this machine to read, and where they are on that one."""
        self.variables: dict[str, str] = {}
        """What its commands find in their environment."""
        self._mount = directory / "mount"
        self.root = self._mount / "root"
        self._bound = bound
        self._log = directory / "boot.log"
        self._leader = 0

    def __enter__(self) -> Self:
        try:
            self._make_root()
            self._boot()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave()

    def run(self, *command: str, check: bool = True) -> str:
        """What a command of root prints, in /opt/source."""
        inside = ["nsenter", f"--target={self._leader}", "--all", "--", "env", f"--chdir={SOURCE}"]
        environment = {"PATH": PATH, "LC_ALL": "C.UTF-8", **self.variables}
        done = subprocess.run(
            [*inside, *command], env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0 or not check, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        """What systemd says of a property of a unit."""
        return self.run("systemctl", "show", unit, f"--property={name}", "--value").strip()

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file of this machine."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def _make_root(self) -> None:
        self._mount.mkdir(parents=True)
        _mount("-t", "tmpfs", "tmpfs", str(self._mount))
        for name in ("upper", "work", "root"):
            (self._mount / name).mkdir()
        layers = f"lowerdir=/,upperdir={self._mount}/upper,workdir={self._mount}/work"
        _mount("-t", "overlay", "overlay", "-o", layers, str(self.root))
        # Not this machine's. With none at all it would be a first boot, which enables everything.
        self.write("/etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)
        shutil.rmtree(self.root / "opt/barograph", ignore_errors=True)
        for target in self._bound.values():
            (self.root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def _boot(self) -> None:
        command = [
            # Not even a test run that is killed leaves it behind.
            "setpriv",
            "--pdeathsig=TERM",
            "systemd-nspawn",
            f"--directory={self.root}",
            "--boot",
            "--register=no",
            "--keep-unit",
            "--console=pipe",
            "--private-network",
            "--link-journal=no",
            f"--machine=barograph-{os.getpid()}",
            *(f"--bind-ro={source}:{target}" for source, target in self._bound.items()),
            "systemd.unit=basic.target",
            # There is no network to wait for.
            "systemd.mask=systemd-networkd-wait-online.service",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + BOOT_SECONDS
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NoBoot(f"systemd-nspawn: {self._log.read_text(errors='replace').strip()[-400:]}")
            time.sleep(0.2)

    def _is_up(self) -> bool:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        with contextlib.suppress(OSError):
            for leader in children.read_text().split():
                self._leader = int(leader)
                return self.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded")
        return False

    def _leave(self) -> None:
        if self._leader:
            # The first process of a namespace takes all others with it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._leader, 9)
        if hasattr(self, "_process"):
            self._process.kill()
            self._process.wait(DEADLINE_SECONDS)
        for path in (self.root, self._mount):
            subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=False)


def booted(directory: Path, bound: Mapping[str, str]) -> Iterator[Machine]:
    """For fixtures: a machine, or a skip that says what was in the way."""
    if os.getuid() != 0:
        pytest.skip("only root can boot a machine")
    tool("systemd-nspawn")
    try:
        with Machine(directory, bound) as machine:
            yield machine
    except NoBoot as reason:
        pytest.skip(f"no machine can be booted here: {reason}")


def this_installation() -> dict[str, str]:
    """Sources, packages and Python of these tests, to be bound to where anybody may read them."""
    bound = {str(REPOSITORY): str(SOURCE), sysconfig.get_path("purelib"): "/opt/site"}
    return bound if sys.base_prefix == "/usr" else bound | {sys.base_prefix: "/opt/python"}


def install(machine: Machine) -> None:
    """Make /opt/barograph of what `this_installation` bound."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    home = "/usr/bin" if sys.base_prefix == "/usr" else "/opt/python/bin"
    machine.write(f"{PREFIX}/pyvenv.cfg", f"home = {home}\ninclude-system-site-packages = false\n")
    paths = ["/opt/site", *(str(SOURCE / part) for part in PARTS)]
    machine.write(f"{PREFIX}/lib/{version}/site-packages/here.pth", "\n".join(paths) + "\n")
    program = f"#!{PREFIX}/bin/python\nimport sys\nfrom barograph.cli import main\nsys.exit(main())\n"
    machine.write(f"{PREFIX}/bin/barograph", program, 0o755)
    (machine.root / "opt/barograph/bin/python").symlink_to(f"{home}/{version}")
    if sys.base_prefix != "/usr":
        # Where it was built its library is found by a path that only holds there.
        machine.variables["LD_LIBRARY_PATH"] = "/opt/python/lib"


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoBoot(done.stderr.strip())
