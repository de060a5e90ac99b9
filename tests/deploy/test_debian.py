"""The Debian packages: built, installed by apt without the network on a booted machine, and the service from them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.booted import PATH, SOURCE, Machine, booted
from helpers.log import wait_until
from helpers.mpi import REPOSITORY, missing

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def debs(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both packages, made by Debian's own Python, which they are for."""
    if subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        missing("Debian's python3-pip is not installed: tests/install-packages")
    folder = tmp_path_factory.mktemp("debs")
    (wheel,) = dist.glob("*.whl")
    for extra in ("agent", "server"):
        done = subprocess.run(
            [REPOSITORY / "deploy/debian/build-deb", wheel, extra, folder],
            env=os.environ | {"PATH": PATH},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def machine(debs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    yield from booted(tmp_path_factory.mktemp("booted"), {str(debs): str(SOURCE)})


def test_the_package_for_nodes_brings_the_command_and_the_shim(machine: Machine) -> None:
    machine.run("/bin/sh", "-c", "apt-get install --yes ./barograph-agent_*.deb")
    assert machine.run("barograph", "--version").startswith("barograph ")
    machine.run("test", "-r", machine.run("/opt/barograph/bin/python", "-m", "barograph_agent.shim").strip())
    machine.run("test", "-r", "/usr/share/man/man1/barograph.1")


def test_the_package_for_the_service_takes_its_place_and_the_service_runs_from_it(machine: Machine) -> None:
    machine.run("/bin/sh", "-c", "apt-get install --yes ./barograph_*.deb")
    files = machine.run("barograph", "files", "systemd").split()
    places = {".service": "/etc/systemd/system", ".target": "/etc/systemd/system"}
    for path in files:
        if (place := places.get(Path(path).suffix)) is not None:
            machine.run("install", "-m", "644", "-t", place, path)
    folder = str(Path(files[0]).parent)
    machine.run("systemd-sysusers", f"{folder}/sysusers.conf")
    machine.run("systemd-tmpfiles", "--create", f"{folder}/tmpfiles.conf")
    machine.run("install", "-m", "644", f"{folder}/barograph.toml", "/etc/barograph/barograph.toml")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "barograph.target")
    units = [f"barograph-{name}.service" for name in ("collector", "modeler", "alerts", "page")]

    def active() -> bool:
        states = [machine.run("systemctl", "is-active", unit, check=False).strip() for unit in units]
        return states == ["active"] * len(units)

    wait_until(active, "all four are active", 180)
    assert "Alarms: none" in machine.run("barograph", "status")
    machine.run("systemctl", "stop", "barograph.target", *units)


def test_removing_the_package_leaves_the_log_and_nothing_else(machine: Machine) -> None:
    machine.run("apt-get", "remove", "--yes", "barograph")
    assert "log.duckdb" in machine.run("ls", "/var/lib/barograph")
    assert "barograph" not in machine.run("ls", "/opt")
