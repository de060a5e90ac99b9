"""The units: valid and hardened according to systemd, and the daemons start within their limits."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from barograph.cli import MISSING_EXTRA
from barograph.operate import config
from barograph_collector.daemon.service import Exit
from helpers import confined
from helpers.log import DEADLINE_SECONDS
from helpers.up import free_ports

SYSTEMD = Path(__file__).resolve().parents[2] / "deploy/systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
INSTALLED = "/opt/barograph/bin/barograph"
HERE = str(Path(sys.executable).with_name("barograph"))
EXPOSURE = 15
"""Tenths of what `systemd-analyze security` counts, from 0 to 100; a unit without any protection has 96."""

by_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units, for the command of this environment. Without systemd a failure under CI, else a skip."""
    if shutil.which("systemd-analyze") is None:
        text = "systemd-analyze is not here: tests/install-packages"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)
    directory = tmp_path_factory.mktemp("units")
    for file in [*UNITS, *SYSTEMD.glob("*.target")]:
        (directory / file.name).write_text(file.read_text().replace(INSTALLED, HERE))
    return directory


def setting(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


@pytest.mark.integration
def test_systemd_verifies_the_units(units: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, units.iterdir())], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.integration
@by_unit
def test_the_exposure_of_a_unit_is_minimal(units: Path, unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE}", str(units / unit.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Overall exposure level" in done.stdout


def confine(unit: Path, *command: str) -> list[str]:
    """A command that may do what the unit allows."""
    groups = " ".join(setting(unit, "SystemCallFilter")).split()
    return [sys.executable, confined.__file__, *groups, "--", *command]


@pytest.mark.integration
@by_unit
def test_a_unit_refuses_what_no_daemon_needs(units: Path, unit: Path) -> None:
    for call in ("os.chroot('/')", "__import__('ctypes').CDLL(None).mount(0, 0, 0, 0, 0)"):
        program = f"import os\nif {call} == -1: raise PermissionError"
        done = subprocess.run(confine(unit, sys.executable, "-c", program), capture_output=True, text=True, check=False)
        assert "PermissionError" in done.stderr, call


@pytest.mark.integration
@by_unit
def test_a_daemon_runs_with_the_system_calls_that_its_unit_allows(units: Path, unit: Path, tmp_path: Path) -> None:
    name = unit.stem.removeprefix("barograph-")
    port = free_ports(2)
    own = {
        "collector": [f"--state={tmp_path}", f"--listen=tcp://127.0.0.1:{port}", f"--metrics=127.0.0.1:{port + 1}"],
        "modeler": [f"--state={tmp_path}", f"--metrics=127.0.0.1:{port}"],
        "alerts": [f"--metrics=127.0.0.1:{port}"],
        "page": [f"--listen=127.0.0.1:{port}"],
    }[name]
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.bind(str(tmp_path / "notify"))
    channel.settimeout(DEADLINE_SECONDS)
    log = tmp_path / "log"
    command = confine(unit, HERE, name, *own)
    environment = os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
    with channel, log.open("wb") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=out) as process:
        try:
            heard = ""
            while "WATCHDOG=1" not in heard or "READY=1" not in heard:
                assert process.poll() is None, log.read_text()
                heard += channel.recv(1024).decode()
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)
    assert process.returncode == 0, log.read_text()
    assert "ERROR" not in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.integration
@pytest.mark.skipif(os.getuid() != 0, reason="files of another user are root's to make")
def test_the_user_and_a_private_key_directory_are_created(units: Path, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for words in (["systemd-sysusers", "sysusers.conf"], ["systemd-tmpfiles", "--create", "tmpfiles.conf"]):
        command = [*words[:-1], str(SYSTEMD / words[-1]), f"--root={tmp_path}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    name, _, uid, *_ = (tmp_path / "etc/passwd").read_text().split(":")
    status = (tmp_path / "etc/barograph/keys").stat()
    assert (name, status.st_uid, stat.S_IMODE(status.st_mode)) == ("barograph", int(uid), 0o700)


@by_unit
def test_statuses_that_a_restart_cannot_fix_are_not_restarted(unit: Path) -> None:
    final = {int(Exit.USAGE), int(Exit.STATE), MISSING_EXTRA}
    assert {int(status) for status in setting(unit, "RestartPreventExitStatus")[0].split()} == final


def test_the_target_wants_every_unit_and_each_stops_with_it() -> None:
    wanted = setting(SYSTEMD / "barograph.target", "Wants")[0].split()
    assert sorted(wanted) == [unit.name for unit in UNITS]
    assert all(setting(unit, "PartOf") == ["barograph.target"] for unit in UNITS)


def test_the_shipped_configuration_is_valid() -> None:
    found = config.effective(SYSTEMD / "barograph.toml", {})
    assert found["collector"]["state"].value == found["modeler"]["state"].value == Path("/var/lib/barograph")
