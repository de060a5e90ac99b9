"""Every command of the documentation is typed, page by page, on a machine of its own, beside a service if it needs one.

What is the reader's own, programs and files, is made beforehand (`helpers.belongings`). What cannot be typed here is
listed below with the test that does it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from helpers import belongings
from helpers.stranger import Stranger

REPOSITORY: Final = Path(__file__).resolve().parents[2]
PAGES: Final = [
    page
    for page in sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
    if re.search(r"^```sh$", page.read_text(), re.MULTILINE)
]
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SMALLER: Final = {
    r"\bmpiexec -n \d+": "mpiexec -n 2",
    r"\./xhpcg\b.*": "./app",
    r"--seconds 120\b": "--seconds 3",
    r"--streams 9000\b": "--streams 300",
    r"--rate 9000\b": "--rate 300",
}
"""What is typed less large than the page has it, or with another program."""

DAEMONS: Final = {
    r"barograph up\b": "ready:",
    r"barograph collector\b": " listening on ",
    r"barograph modeler\b": " following the log",
    r"barograph alerts\b": " following the log",
}
"""Commands that go on until they are stopped, and what they say when they are there."""

ELSEWHERE: Final = {
    r"make ": ".ci/run",
    r"(\.venv/bin/)?pip install |PYTHONPATH=build/duckdb-2": "Makefile",
    r"sacct ": "tests/deploy/test_imports.py",
    r"barograph canary ": "tests/deploy/test_alerting.py",
    r"barograph instrument |barograph features ": "tests/deploy/test_instrument.py",
    r"barograph replay |barograph record ": "tests/deploy/test_replay.py",
}
"""Commands that are not typed here, and where they are."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    with Stranger(tmp_path_factory.mktemp("reader") / "home") as stranger:
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


def matching(table: dict[str, str], line: str) -> str | None:
    return next((value for pattern, value in table.items() if re.match(pattern, line)), None)


def smaller(line: str) -> str:
    for pattern, other in SMALLER.items():
        line = re.sub(pattern, other, line)
    return line


def serve(machine: Stranger) -> None:
    """A service that knows some runs, as the pages take for granted that do not start one."""
    machine.starts("barograph up", environment(), DAEMONS[r"barograph up\b"])
    belongings.history(machine.folder)
    line = "barograph import runs.csv --map app=code,ranks=np,seconds=walltime,param:mesh=mesh"
    done = machine.types(line, environment())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_says_can_be_typed(page: Path, machine: Stranger) -> None:
    lines = [smaller(line) for line in commands(page) if matching(ELSEWHERE, line) is None]
    if any(matching(DAEMONS, line) for line in lines):
        machine.stops_everything()
    elif lines and not machine.serves:
        serve(machine)
    shutil.rmtree(machine.folder)
    machine.folder.mkdir()
    (machine.folder / "alerts").symlink_to(REPOSITORY / "alerts")
    for prepare in belongings.BY_PAGE.get(str(page.relative_to(REPOSITORY)), []):
        prepare(machine.folder)
    for line in lines:
        if (ready := matching(DAEMONS, line)) is not None:
            if re.match(r"barograph (up|collector)\b", line):
                machine.stops_everything()
            machine.starts(line, environment(), ready)
            continue
        done = machine.types(line, environment())
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    if any(matching(DAEMONS, line) for line in lines):
        machine.stops_everything()


def test_what_is_not_typed_here_is_typed_where_we_say() -> None:
    lines = [line for page in PAGES for line in commands(page)]
    for pattern, where in ELSEWHERE.items():
        assert any(re.match(pattern, line) for line in lines), f"{pattern!r} is in no page any more"
        assert (REPOSITORY / where).exists(), where
