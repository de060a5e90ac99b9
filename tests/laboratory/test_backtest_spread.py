"""Parts of a back-test on several processes: the same rows in the same order."""

from __future__ import annotations

import csv
import json
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

from barograph.cli import main
from barograph_lab.backtest.spread import TASKS, spread
from barograph_lab.studies.series import BadTable
from helpers.executor import Inline


def squares(numbers):
    for one in numbers:
        yield from (one, one * one)


class Processes(Inline):
    """Processes that fail from a task on."""

    def __init__(self, fails_at=None):
        self.tasks = self.ended = 0
        self.fails_at = fails_at

    def start(self):
        return self, self.end

    def end(self):
        self.ended += 1

    def submit(self, work, /, *args, **keywords):
        self.tasks += 1
        return super().submit(*((fail,) if self.tasks == self.fails_at else (work, *args)), **keywords)


def fail():
    raise BrokenProcessPool("a process ended")


@pytest.mark.parametrize("parts", [0, 1, 5, TASKS, 3 * TASKS + 1])
def test_rows_are_those_of_one_process_in_their_order(parts):
    processes, numbers = Processes(), list(range(parts))
    assert list(spread(squares, numbers, processes.start)) == list(squares(numbers))
    assert processes.tasks <= TASKS
    assert processes.ended == 1


def test_workers_that_fail_are_an_error_behind_the_rows_before():
    processes, found = Processes(3), []
    with pytest.raises(BadTable, match="workers: BrokenProcessPool: a process ended, expected some that do not fail"):
        found += iter(spread(squares, range(5), processes.start))
    assert processes.ended == 1


@pytest.mark.process
def test_bands_are_the_same_by_processes(tmp_path, capsys):
    file, rng = tmp_path / "values.csv", np.random.default_rng(1)
    with file.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(("program", "ranks", "seconds"))
        for program in "abc":
            for ranks in (1, 2, 4):
                rows.writerows((program, ranks, f"{one:.6f}") for one in rng.lognormal(0, 0.1, 80))
    printed = []
    for workers in ("1", "2"):
        command = ["backtest", "bands", str(file), "--value", "seconds", "--by", "program", "--scale", "ranks"]
        assert main([*command, "--json", "--workers", workers]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert len(printed[0]["series"]) > 50
