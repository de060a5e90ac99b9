"""The numbers in the tables of the documentation are those that the commands beside them print.

Commands on generated data always run. Those on published measurements, which are not in the repository, run where
BAROGRAPH_TEST_STUDY_DATA names the folder of their CSV files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from math import gamma
from pathlib import Path

import pytest

from helpers.documented import DOCS, cells, differing, printed_by, run

ROUNDED = 0.0011
"""Last digits of figures with three decimals."""
PAPERS = [(commands, tables) for commands, tables in printed_by("engineer/scaling-papers.md") if tables]
FILES = [re.search(r"(\S+)\.csv", commands)[1] for commands, _ in PAPERS]
LOOSE = {"NN": 0.3}
"""Training of networks amplifies the rounding of the linear algebra."""


def check(commands: str, tables: dict[str, dict[tuple[str, str], str]], folder: Path) -> None:
    """Compare the tables of a page with what the commands above them print as JSON."""
    output = run(commands, folder)
    found = {title: cells(text) for title, text in re.findall(r"^\*\*(.+)\*\*\n\n((?:\|.*\n?)+)", output, re.MULTILINE)}
    assert tables.keys() <= found.keys()
    different = {title: differing(table, found[title], LOOSE, ROUNDED) for title, table in tables.items()}
    assert {title: places for title, places in different.items() if places} == {}


def test_tables_of_made_runs_are_what_the_command_prints(tmp_path: Path) -> None:
    made = [(commands, tables) for commands, tables in PAPERS if "made.csv" in commands]
    ((commands, tables),) = made
    assert sum(map(len, tables.values())) == 17
    check(commands, tables, tmp_path)


@pytest.mark.parametrize("number", range(len(PAPERS)), ids=FILES)
def test_tables_of_published_measurements_are_what_the_command_prints(number: int, tmp_path: Path) -> None:
    commands, tables = PAPERS[number]
    if "made.csv" in commands:
        pytest.skip("made runs have a test of their own")
    data = os.environ.get("BAROGRAPH_TEST_STUDY_DATA")
    if data is None:
        pytest.skip("BAROGRAPH_TEST_STUDY_DATA names no folder with the published measurements")
    shutil.copy(Path(data) / f"{FILES[number]}.csv", tmp_path)
    check(commands, tables, tmp_path)


def test_a_cell_that_differs_is_named() -> None:
    written = {("RF", "a"): "0.581", ("NN", "a"): "0.500", ("RF", "b"): "N/A", ("RF", "c"): "1.000"}
    printed = {("RF", "a"): "0.583", ("NN", "a"): "0.600", ("RF", "b"): "N/A"}
    assert differing(written, printed, LOOSE, ROUNDED) == [
        "RF, a: 0.581, the command prints 0.583",
        "RF, c: 1.000, the command prints no such cell",
    ]


VARIABILITY = (DOCS / "engineer/variability.md").read_text()


def table_after(text: str) -> dict[tuple[str, str], str]:
    """The first table of the page on variability after a text."""
    found = re.search(r"^\|.*\n\|[-|: ]+\n(?:\|.*\n)+", VARIABILITY[VARIABILITY.index(text) :], re.MULTILINE)
    assert found is not None
    return cells(found[0])


def test_the_distance_of_emma_from_the_mean_is_as_tabulated() -> None:
    written = table_after("**EMMA**")
    assert len(written) == 8
    for (_, shape), cell in written.items():
        k = float(shape)
        exact = (gamma(1 + k) - 0.561459484**k) / k if k else 0.0
        assert float(cell) == pytest.approx(exact, abs=ROUNDED / 2), shape


def test_bootstraps_of_drawn_amounts_are_as_tabulated(tmp_path: Path) -> None:
    (commands,) = re.findall(r"^python -c .*draws\.csv\nbarograph .*", VARIABILITY, re.MULTILINE)
    summary = json.loads(run(f"{commands} --json", tmp_path))["summary"]
    found = {row["method"]: row for row in summary if row["task"] == "nodes-8x"}
    pairs = {"inter-node, by PWM and by moments": ("inter-node", "inter-node-mom")}
    pairs |= {"intra-node, by PWM and by moments": ("intra-node", "intra-node-mom")}
    written = table_after("*Draws*")
    assert len(written) == 12
    for (row, column), cell in written.items():
        methods = [found[name] for name in pairs.get(row, (row,))]
        if column == "limits held":
            expected = ", ".join(f"{5 * method['mean_coverage']:.0f}" for method in methods) + " of 5"
        else:
            key = "median_error" if column.startswith("median") else "relative_width"
            expected = ", ".join(f"{100 * method[key]:.1f}" for method in methods)
        assert cell == expected, (row, column)


def test_every_module_that_a_page_names_is_there() -> None:
    repository = DOCS.parent
    packages = ("agent", "collector", "modeler", "alerts", "deploy", "tests")
    modules = {path.name for package in packages for path in (repository / package).rglob("*.py")}
    named = {
        (page.name, name)
        for page in (DOCS / "engineer").glob("*.md")
        for name in re.findall(r"`(?:[\w/]+/)?(\w+\.py)`", page.read_text())
    }
    assert ("variability.md", "nodes.py") in named
    assert {place for place in named if place[1] not in modules} == set()
