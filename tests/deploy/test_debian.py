"""The Debian packages: built, installed by apt without the network on a booted machine, and the service from them."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.booted import PATH, SOURCE, UNITS, Machine, booted
from helpers.hooks import unhurried
from helpers.log import wait_until
from helpers.mpi import REPOSITORY, missing

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def debs(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both packages, made by Debian's own Python, which they are for."""
    if subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        missing("Debian's python3-pip is not installed: tests/install-packages")
    folder = tmp_path_factory.mktemp("debs")
    (wheel,) = dist.glob(f"*_{platform.machine()}.whl")
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


def test_the_package_for_nodes_brings_the_command_the_shim_and_hooks_that_work(machine: Machine) -> None:
    machine.run("/bin/sh", "-c", "apt-get install --yes ./barograph-agent_*.deb")
    assert machine.run("barograph", "--version").startswith("barograph ")
    machine.run("test", "-r", "/usr/share/man/man1/barograph.1")
    unhurried(machine.root / "etc/barograph/hooks/bounded")
    # As the batch system's: root before and after, the user in between.
    hook = ["/bin/sh", "/etc/barograph/hooks/bounded"]
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    machine.run(*hook, "job-begin", "slurm-7@n1", "65534", "65534", "nobody")
    told = machine.run(*nobody, *hook, "task-begin", "slurm-7@n1", "65534", "0", "0")
    assert "LD_PRELOAD=/etc/barograph/hooks/../libbarograph.so\n" in told
    machine.run(*nobody, "test", "-r", "/etc/barograph/libbarograph.so")
    scopes = ["systemctl", "list-units", "--type=scope", "--plain", "--no-legend", "barograph-slurm-7-n1-*"]
    sidecar = ["pgrep", "--full", "--uid", "65534", "^/opt/barograph/bin/python .*barograph_agent.sidecar.nodewatch"]
    wait_until(lambda: machine.run(*sidecar, check=False), "the sidecar runs")
    assert machine.run(*scopes)
    machine.run(*hook, "job-end", "slurm-7@n1", "65534", "65534")
    wait_until(lambda: not machine.run(*sidecar, check=False), "the sidecar has ended")


def pids(machine: Machine) -> list[str]:
    """The daemons' main processes, "0" for one that is not active."""
    return [machine.show(u, "MainPID") if machine.show(u, "ActiveState") == "active" else "0" for u in UNITS]


def test_the_service_package_replaces_the_agent_package_and_one_command_starts_it(machine: Machine) -> None:
    machine.run("/bin/sh", "-c", "apt-get install --yes ./barograph_*.deb")
    assert pids(machine) == ["0"] * 4
    machine.run("systemctl", "enable", "--now", "barograph.target")
    wait_until(lambda: "0" not in pids(machine), "all four are active", 180)
    assert "Alarms: none" in machine.run("barograph", "status")
    assert machine.run("stat", "--format=%U %a", "/etc/barograph/keys").strip() == "barograph 700"


def test_an_upgrade_restarts_running_units_and_keeps_the_configuration(machine: Machine) -> None:
    machine.run("/bin/sh", "-c", "echo '# ours' >> /etc/barograph/barograph.toml")
    before = pids(machine)
    machine.run("/bin/sh", "-c", "apt-get install --yes --reinstall ./barograph_*.deb")
    wait_until(lambda: "0" not in pids(machine), "all four are active again", 180)
    assert not set(before) & set(pids(machine))
    assert machine.run("tail", "-n", "1", "/etc/barograph/barograph.toml") == "# ours\n"


def test_removing_the_package_leaves_log_and_configuration_and_nothing_else(machine: Machine) -> None:
    machine.run("apt-get", "remove", "--yes", "barograph")
    assert machine.run("pgrep", "--uid", "barograph", check=False) == ""
    assert "log.duckdb" in machine.run("ls", "/var/lib/barograph")
    assert machine.run("ls", "/etc/barograph").split() == ["barograph.toml", "keys"]
    assert "barograph" not in machine.run("ls", "/opt")
    assert "barograph" not in machine.run(
        "ls", "/usr/lib/systemd/system", "/etc/systemd/system/multi-user.target.wants"
    )
