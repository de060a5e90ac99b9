"""Answers on the page about `barograph predict` are those of the service that has learned the runs that it names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.documented import DOCS
from helpers.up import Up

pytestmark = pytest.mark.process

PAGE = (DOCS / "user/predict.md").read_text()
SCALES = (1, 2, 4, 8, 16, 32, 64)
WEAK = {(6, 100): (269.0, 270.0, 271.0), (24, 400): (274.0, 275.5, 277.0), (96, 1600): (285.0, 287.0, 290.0)}
COMD = {"X": (794, 807), "Y": (606, 613), "Z": (797, 804)}


def answer(command: str) -> str:
    """What the page prints below a command."""
    block = rf"```sh\n{re.escape(command)}\n```\n\n```text\n(.*?)```|```text\n\$ {re.escape(command)}\n(.*?)```"
    found = re.search(block, PAGE, re.DOTALL)
    assert found is not None, command
    return found[1] or found[2]


def histories(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files of runs, and what their columns are."""
    rng = np.random.default_rng(0)
    solver = [
        f"solver,{ranks},{factor * (70 + 960 / ranks + 1.5 * np.log2(ranks)) * rng.lognormal(0, 0.01):.3f},{mesh}"
        for mesh, factor in (("coarse", 0.25), ("fine", 1.0))
        for ranks in SCALES
        for _ in range(3)
    ]
    weak = [f"weak,{ranks},{seconds},{size}" for (ranks, size), runs in WEAK.items() for seconds in runs]
    comd = [f"CoMD,4,{seconds:.3f},{name}" for name, limits in COMD.items() for seconds in np.linspace(*limits, num=20)]
    for name, rows in (("mesh", solver), ("size", weak), ("input", comd)):
        path = folder / f"{name}.csv"
        path.write_text("\n".join([f"app,ranks,seconds,{name}", *rows, ""]))
        yield path, f"app=app,ranks=ranks,seconds=seconds,param:{name}={name}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service that has learned the runs."""
    directory = tmp_path_factory.mktemp("page")
    with Up(directory) as up:
        for path, columns in histories(directory):
            cluster = "volta" if path.stem == "input" else "lab"
            done = up.run("import", str(path), "--cluster", cluster, "--map", columns)
            assert done.returncode == 0, done.stderr
        up.wait_for_rows("bands", 2 * len(SCALES) + len(WEAK) + len(COMD))
        up.wait_for_metric("modeler", r"barograph_modeler_fit_backlog 0\.0")
        yield up


@pytest.mark.parametrize(
    "command",
    [
        "barograph predict --app solver --ranks 2048 --param mesh=fine",
        "barograph predict --app CoMD --ranks 4",
        "barograph predict --app weak --ranks 384 --param size=6400",
    ],
)
def test_an_answer_of_the_page_is_what_the_command_prints(service: Up, command: str) -> None:
    done = service.run(*shlex.split(command)[1:])
    printed = done.stdout + done.stderr.removeprefix("barograph predict: ")
    assert printed == answer(command)
