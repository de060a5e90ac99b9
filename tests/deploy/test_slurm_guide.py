"""The guide for Slurm, command by command, from nothing to the first alarm; its files are the ones it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from helpers import mpi as mpis
from helpers.mpi import REPOSITORY
from helpers.slurm import USER, Cluster, cluster
from helpers.up import free_ports

pytestmark = pytest.mark.integration

GUIDE = (REPOSITORY / "docs/operator/slurm.md").read_text()
PROGRAM = Path(__file__).parents[1] / "agent/programs/paced.c"
PATIENCE_SECONDS = 120.0


def blocks(language: str, chapter: str) -> list[str]:
    """The blocks of one chapter of the guide, given by its number."""
    text = re.split(r"^## ", GUIDE, flags=re.MULTILINE)
    (found,) = (part for part in text if part.startswith(f"{chapter}. "))
    return re.findall(rf"^```{language}\n(.*?)^```$", found, re.MULTILINE | re.DOTALL)


class Facility:
    """The guide's paths and addresses, as they are on this machine."""

    def __init__(self, slurm: Cluster) -> None:
        self.slurm = slurm
        self.port = free_ports(4)
        self.etc = slurm.etc
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(slurm.configuration),
            "BAROGRAPH_COLLECTOR": f"tcp://127.0.0.1:{self.port}",
        }

    def here(self, text: str) -> str:
        """A text of the guide with this machine's names."""
        names = {
            "barograph keys ": f"barograph keys --keys {self.etc}/keys ",
            "/opt/barograph/bin/python": sys.executable,
            "/opt/barograph/bin/barograph": f"{sys.executable} -m barograph",
            "/etc/barograph": str(self.etc),
            "/var/lib/barograph": str(self.slurm.root / "service"),
            "monitor.example.org:7450": f"127.0.0.1:{self.port}",
            ":7450": f":{self.port}",
            "--munge": f"--munge {self.slurm.munge}",
            "./app": f"{self.slurm.work}/paced 50 1000 /dev/null",
        }
        for theirs, ours in names.items():
            text = text.replace(theirs, ours)
        return text

    def shell(self, command: str) -> str:
        """Run a command of the guide as root in a checkout; gives what it prints."""
        done = subprocess.run(
            self.here(command),
            shell=True,
            cwd=REPOSITORY,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def daemon(self, line: str, key: str, metrics: int) -> Iterator[None]:
        """One of the guide's daemons, with its key."""
        words = [sys.executable, "-m", *self.here(line).split(), f"--metrics=127.0.0.1:{self.port + metrics}"]
        environment = self.environment | ({"BAROGRAPH_KEY": str(self.etc / "keys" / key)} if key else {})
        with (self.slurm.root / f"{metrics}.log").open("wb") as log:
            process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)

    def wait_for(self, pattern: str) -> None:
        """Ask `barograph status` until a line of it fits."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        command = [sys.executable, "-m", "barograph", "status"]
        while True:
            done = subprocess.run(
                command, env=self.environment | {"COLUMNS": "200"}, capture_output=True, text=True, check=False
            )
            if re.search(pattern, done.stdout):
                return
            logs = "".join(path.read_text() for path in self.slurm.root.glob("*.log"))
            assert time.monotonic() < deadline, f"no line {pattern!r} in\n{done.stdout}{done.stderr}\n{logs}"
            time.sleep(1)


@pytest.fixture
def facility() -> Iterator[Facility]:
    with cluster() as slurm:
        mpis.find("debian-mpich").compile(PROGRAM, slurm.work / "paced")
        yield Facility(slurm)


@pytest.mark.timeout(1200)
def test_the_guide_leads_from_nothing_to_the_first_alarm(facility: Facility) -> None:
    slurm = facility.slurm
    with ExitStack() as stack:
        (keys,) = blocks("sh", "1")
        for command in keys.splitlines():
            facility.shell(command)
        (daemons,) = blocks("text", "1")
        for number, (line, key) in enumerate(
            zip(daemons.splitlines(), ["", "modeler.key", "alerts.key"], strict=True), 1
        ):
            stack.enter_context(facility.daemon(line, key, number))

        (node,) = blocks("sh", "2")
        for command in node.splitlines():
            facility.shell(command)
        (facility.etc / "nodes.key").write_bytes((facility.etc / "keys/nodes.key").read_bytes())
        facility.etc.chmod(0o755)
        (settings,) = blocks("text", "2")
        slurm.configure(
            **dict(line.split("=", 1) for line in facility.here(settings).splitlines()),
            shim=facility.etc / "libbarograph.so",
        )

        (lines,) = blocks("text", "3")
        assert set(facility.here(lines).splitlines()) <= set(slurm.configuration.read_text().splitlines())
        check, reconfigure = blocks("sh", "3")
        assert facility.shell(check) == ""
        facility.shell(reconfigure)

        srun, status = blocks("sh", "4")[0].splitlines()
        facility.environment["BAROGRAPH_KEY"] = str(facility.etc / "keys/staff.key")
        facility.shell(srun)
        facility.wait_for(r"lab/\d+\.0\.0 .* lab/paced@4x2 ")
        facility.shell(status)

        # Intervals so long that what a busy machine adds to them is little.
        paced = f"srun --mpi=pmi2 {slurm.work}/paced 200 50000 /dev/null"
        slurm.batch(paced, "--array=1-3", "--output=%A_%a.out")
        facility.wait_for(r"lab/paced@1x1 │ +3 │")
        slow = slurm.batch(f"PACED_MICROSECONDS=150000 {paced}", wait=False)
        facility.wait_for(rf"lab/{slow}\.0\.0 .* slow ")
        assert slurm.run("scancel", slow).returncode == 0

        sql = f"{sys.executable} -m barograph sql --csv 'SELECT user, count(*) FROM jobs GROUP BY ALL ORDER BY ALL'"
        assert facility.shell(sql).splitlines()[1:] == [f'"{USER}",4', '"root",1']
        slurm.settle()
