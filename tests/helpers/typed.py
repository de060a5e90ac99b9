"""Every command of the documentation is typed, page by page, on a machine of its own, beside a service if it needs one.

What is the reader's own, programs and files, is made beforehand (`helpers.belongings`). What cannot be typed here is
listed below with the test that does it. Tests of several files have a part of the pages each.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from helpers import belongings
from helpers.log import wait_until
from helpers.mpi import REPOSITORY
from helpers.once import once
from helpers.stranger import Stranger

PAGES: Final = [
    page
    for page in sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
    if re.search(r"^```sh$", page.read_text(), re.MULTILINE) and page.name != "tutorial.md"
]
"""All but the tutorial, of which tests/deploy/test_tutorial.py types each line."""
LABORATORY: Final = REPOSITORY / "docs/engineer"
"""Pages whose commands compute for longest."""

SMALLER: Final = {
    r"\bmpiexec -n \d+": "mpiexec -n 2",
    r"\./xhpcg\b.*": "./app",
    r"--seconds 1800 --watch 60\b": "--seconds 3 --watch 1",
    r"--streams 10000\b": "--streams 300",
    r"--rate 10000\b": "--rate 300",
    r"lab/heat@2x1\+3f2a1c": "local/heat@2x1",
    r"backtest recognise$": "backtest recognise --jobs 60 --applications 4",
    r"(backtest remaining --seed 2).*": r"\1 --healthy 8 --scenarios 1",
    r"bench ingest(?!.* --seconds )": r"\g<0> --seconds 3",
}
"""What is typed less large than the page has it, or with another program or name."""

DAEMONS: Final = {
    r"\S*barograph up\b": "ready:",
    r"\S*barograph collector\b": " listening on ",
    r"\S*barograph modeler\b": " following the log",
    r"\S*barograph alerts\b": " following the log",
    r"\S*barograph page\b": " on http://",
}
"""Commands that go on until they are stopped, and what they say when they are there."""

BEFORE: Final = {
    "docs/engineer/recognition.md": "barograph run --app heat mpiexec -n 2 ./app"
    " && until barograph work local/heat@2x1; do sleep 0.2; done",
    "docs/operator/page.md": "barograph keys init",
    "docs/operator/privacy.md": "barograph keys init && ln -s /etc/barograph/keys/ada.token .",
}
"""What the reader of a page has done before, by the page's own words."""

ELSEWHERE: Final = {
    r"make ": ".ci/run",
    r"\S*pip (install|download) |python3? -m venv |man ": "tests/deploy/test_packaging.py",
    r"deploy/debian/|apt-get ": "tests/deploy/test_debian.py",
    r"python -m pytest .*test_site_browser": "tests/deploy/test_site_browser.py",
    r"sacct ": "tests/deploy/test_imports.py",
    r"barograph canary ": "tests/deploy/test_alerting.py",
    r"barograph instrument |barograph features |barograph predict .*--features ": "tests/deploy/test_instrument.py",
    r"barograph replay |barograph record ": "tests/laboratory/test_replay.py",
    r"systemctl |journalctl ": "tests/deploy/test_booted.py",
    r"scontrol |srun ": "tests/deploy/test_slurm.py",
    r"dask |barograph modeler --dask |barograph backtest bands .*--dask ": "tests/modeler/test_workers.py",
    r"barograph backtest \w+ --lake ": "tests/laboratory/test_backtest_lake.py",
    r"barograph (backup|restore) /nfs/moved ": "tests/deploy/test_backup.py",
    r"barograph run -- .*(apptainer|ch-run) ": "tests/agent/test_containers.py",
    r"barograph run -- (torchrun|python train.py)": "tests/agent/test_training.py",
}
"""Commands that are not typed here, and where they are."""

ALONE: Final = r"barograph (backtest|bench|features|plan|study) |python3? -c "
"""Commands that ask no service."""

QUESTION: Final = "barograph predict --app solver --ranks 64 --param mesh=fine"
"""What the service answers when it knows the runs."""

NOWHERE: Final = r"podman "
"""Needs images from a registry of images. The page says that no test types it."""


@contextlib.contextmanager
def reader(folder: Path) -> Iterator[Stranger]:
    """The machine of a reader who has unpacked the sources. Everything that was started there has to end well."""
    with Stranger(folder / "home") as stranger:
        for name in ("alerts", "deploy"):
            (stranger.folder / name).symlink_to(REPOSITORY / name)
        yield stranger
        stranger.stops_everything()


def environment() -> dict[str, str]:
    """That of a shell in which Barograph's environment has been activated, and nothing of ours set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BAROGRAPH_", "PYTEST", "CI"))}
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": "/root"}


def commands(page: Path) -> list[str]:
    """The lines of a page's shell blocks, those that go on with a backslash joined."""
    found = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in found for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def name(page: Path) -> str:
    """A page by its place in the repository."""
    return str(page.relative_to(REPOSITORY))


def matching(table: dict[str, str], line: str) -> str | None:
    return next((value for pattern, value in table.items() if re.match(pattern, line)), None)


def smaller(line: str) -> str:
    for pattern, other in SMALLER.items():
        line = re.sub(pattern, other, line)
    return line


def types(machine: Stranger, line: str) -> None:
    """A line that has to end well."""
    done = machine.types(line, environment())
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def learned(factory: pytest.TempPathFactory) -> Path:
    """The state of a service that knows some runs, made once for all tests."""

    def make(folder: Path) -> None:
        with Stranger(folder / "home") as machine:
            machine.starts("barograph up", environment(), DAEMONS[r"\S*barograph up\b"])
            belongings.history(machine.folder)
            types(machine, "barograph import runs.csv --map app=code,ranks=np,seconds=walltime,param:mesh=mesh")
            types(machine, "barograph import history.txt")
            wait_until(lambda: machine.types(QUESTION, environment()).returncode == 0, "the modeler knows the runs")
            machine.stops_everything()
            types(machine, "cp -r ~/.local/state/barograph state")

    return once(factory, "learned", make) / "home/state"


def serve(machine: Stranger, learned: Path) -> None:
    """A service that knows some runs, as the pages take for granted that do not start one."""
    belongings.history(machine.folder)
    types(machine, f"mkdir -p ~/.local/state && cp -r {learned} ~/.local/state/barograph")
    machine.starts("barograph up", environment(), DAEMONS[r"\S*barograph up\b"])
    wait_until(lambda: machine.types(QUESTION, environment()).returncode == 0, "the modeler knows the runs")


def type_page(page: Path, folder: Path, factory: pytest.TempPathFactory) -> None:
    """Type the commands of a page, on a machine below a folder."""
    with reader(folder) as machine:
        lines = [smaller(line) for line in commands(page) if not (matching(ELSEWHERE, line) or re.match(NOWHERE, line))]
        if not all(re.match(ALONE, line) for line in lines) and not any(matching(DAEMONS, line) for line in lines):
            serve(machine, learned(factory))
        for prepare in belongings.BY_PAGE.get(name(page), []):
            prepare(machine.folder)
        for line in [BEFORE[name(page)], *lines] if name(page) in BEFORE else lines:
            ready = matching(DAEMONS, line)
            if ready is None:
                types(machine, line)
                continue
            # Another service takes the place of the first, and so does another page.
            if re.match(r"\S*barograph (up|collector)\b", line):
                machine.stops_everything()
            elif re.match(r"\S*barograph page\b", line):
                machine.stops_everything(r"\S*barograph page\b")
            machine.starts(line, environment(), ready)
