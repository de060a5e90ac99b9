"""Processor time of finding out what was asked for, by the size of the input and the length of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barograph_agent.system.clock import Clock
from barograph_agent.system.system import SYSTEM
from barograph_agent.work.investigation import Subject, WorkRules, investigate

GOAL_SECONDS = 0.05
ROUNDS = 7
PROGRAM = "print(flush=True); import sys; sys.stdin.read()"
RULES = "digests.json"


@pytest.mark.parametrize(
    ("sizes", "words"),
    [([2**20], 0), ([200 * 2**20], 0), ([200 * 2**20] * 3, 0), ([], 10_000)],
    ids=["1 MB", "200 MB", "3 of 200 MB", "10,000 words"],
)
def test_an_investigation(tmp_path: Path, sizes: list[int], words: int) -> None:
    for number, size in enumerate(sizes):
        (tmp_path / f"in{number}").write_bytes(os.urandom(2**20) * (size // 2**20))
    line = [*(f"in{number}" for number in range(len(sizes))), *(f"word-{number}" for number in range(words))]
    clock = Clock()
    clock.now = lambda: Clock.now() + 60  # type: ignore[method-assign]
    system = SYSTEM._replace(clock=clock)
    command = [sys.executable, "-c", PROGRAM, *line]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        subject = Subject(process.pid, sys.executable)
        rules = WorkRules("lab", None, tmp_path / RULES)
        spent: dict[str, list[float]] = {"first": [], "again": []}
        for _ in range(ROUNDS):
            (tmp_path / RULES).unlink(missing_ok=True)
            for seconds in spent.values():
                began = time.thread_time()
                last = list(investigate(subject, rules, system, float("inf")))[-1]
                seconds.append(time.thread_time() - began)
                assert len(last.inputs) == len(sizes)
        process.kill()
    first, again = (1000 * sorted(seconds)[ROUNDS // 2] for seconds in spent.values())
    print(f"\nmedians of {ROUNDS}: {first:.1f} ms of processor time, {again:.1f} ms once it is remembered")
    assert first < 1000 * GOAL_SECONDS
