"""Parts of a back-test on several processes: the same rows in the same order, whatever becomes of the workers."""

from __future__ import annotations

import csv
import json
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

from barograph.cli import main
from barograph_lab.backtest.spread import TASKS, spread
from helpers.executor import Inline


def squares(numbers):
    for one in numbers:
        yield from (one, one * one)


class Workers(Inline):
    """Workers that are connected to at the third look, and fail from a task on."""

    name = "the workers"

    def __init__(self, fails_at=None, *, refuses=False):
        self.looks = self.tasks = self.left = 0
        self.fails_at, self.refuses = fails_at, refuses

    def executor(self):
        self.looks += 1
        if self.refuses:
            raise OSError("no scheduler")
        return self if self.looks > 2 else None

    def close(self):
        self.left += 1

    def submit(self, work, /, *args, **keywords):
        self.tasks += 1
        if self.fails_at is not None and self.tasks > self.fails_at:
            return super().submit(fail)
        return super().submit(work, *args, **keywords)


def fail():
    raise BrokenProcessPool("a process ended")


@pytest.mark.parametrize("parts", [0, 1, 5, TASKS, 3 * TASKS + 1])
@pytest.mark.parametrize("fails_at", [None, 0, 3])
def test_rows_are_those_of_one_process_in_their_order(parts, fails_at, capsys):
    workers, numbers = Workers(fails_at), list(range(parts))
    assert list(spread(squares, numbers, workers)) == list(squares(numbers))
    assert workers.tasks <= TASKS
    assert workers.left == 1
    failed = fails_at is not None and parts > fails_at
    text = "barograph backtest: the workers: BrokenProcessPool: a process ended; the rest is computed here\n"
    assert capsys.readouterr().err == (text if failed else "")


def test_a_scheduler_that_is_not_there_is_told(capsys):
    assert list(spread(squares, [2, 3], Workers(refuses=True))) == [2, 4, 3, 9]
    assert (
        capsys.readouterr().err == "barograph backtest: the workers: OSError: no scheduler; the rest is computed here\n"
    )


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
        command = [
            "backtest",
            "bands",
            str(file),
            "--value",
            "seconds",
            "--by",
            "program",
            "--scale",
            "ranks",
            "--json",
        ]
        assert main([*command, "--workers", workers]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert len(printed[0]["series"]) > 50
