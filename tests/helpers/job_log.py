"""Job logs made from a seed, in the Standard Workload Format."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SUBMITTED, WAITED, RUNTIME, STATUS, USER, EXECUTABLE, REQUESTED = 1, 2, 3, 10, 11, 13, 8


def repetitive(jobs: int, seed: int) -> list[list[int]]:
    """Users that alternate between few inputs of a few programs, told apart by executable, processors and request."""
    rng = np.random.default_rng(seed)
    seconds = np.exp(rng.uniform(3, 10, (12, 3, 4)))
    rows, now = [], 0
    for number in range(1, jobs + 1):
        now += int(rng.exponential(300))
        user, program, size = int(rng.integers(12)), int(rng.integers(3)), int(rng.integers(4))
        runtime = max(int(seconds[user, program, size] * np.exp(rng.normal(0, 0.05))), 1)
        row = [-1] * 18
        row[:5] = [number, now, int(rng.exponential(60)), runtime, 8 << size]
        row[7:9] = [8 << size, 86_400]
        row[10:15] = [1, user, 1, program, 1]
        rows.append(row)
    return rows


def drifting(jobs: int, seed: int) -> list[list[int]]:
    """Users without executables and requests, whose runtimes are wide and change level in the middle of the log."""
    rng = np.random.default_rng(seed)
    rows, now = [], 0
    for number in range(1, jobs + 1):
        now += int(rng.exponential(600))
        user = int(rng.integers(6))
        level = 5 + user / 2 + (2 if 2 * number > jobs else 0)
        row = [-1] * 18
        row[:5] = [number, now, 0, max(int(np.exp(level + rng.standard_t(4))), 1), 1]
        row[10:12] = [1, user]
        rows.append(row)
    return rows


def write(path: Path, rows: list[list[int]]) -> Path:
    """Write a log with a header."""
    lines = ["; Version: 2.2", *(" ".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path
