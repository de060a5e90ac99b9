"""Processor time of a fingerprint of the work, by the size of the input and the length of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barograph_agent.system.system import SYSTEM
from barograph_agent.work.fingerprint import TargetProcess, WorkEvidence, WorkRules, fingerprint

GOAL_SECONDS = 0.05
ROUNDS = 7
PROGRAM = "print(flush=True); import sys; sys.stdin.read()"


@pytest.mark.parametrize(
    ("sizes", "words"),
    [([2**20], 0), ([200 * 2**20], 0), ([200 * 2**20] * 3, 0), ([], 10_000)],
    ids=["1 MB", "200 MB", "3 of 200 MB", "10,000 words"],
)
def test_a_fingerprint(tmp_path: Path, sizes: list[int], words: int) -> None:
    for number, size in enumerate(sizes):
        (tmp_path / f"in{number}").write_bytes(os.urandom(2**20) * (size // 2**20))
    line = [*(f"in{number}" for number in range(len(sizes))), *(f"word-{number}" for number in range(words))]
    command = [sys.executable, "-c", PROGRAM, *line]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        target = TargetProcess(process.pid, sys.executable)
        rules = WorkRules("lab", None)
        spent = []
        for _ in range(ROUNDS):
            began, evidence = time.thread_time(), WorkEvidence()
            fingerprint(evidence, float("inf"), target, rules, SYSTEM)
            spent.append(time.thread_time() - began)
            assert len(evidence.inputs) == len(sizes)
        process.kill()
    median = sorted(spent)[ROUNDS // 2]
    print(f"\nmedian of {ROUNDS}: {1000 * median:.1f} ms of processor time")
    assert median < GOAL_SECONDS
