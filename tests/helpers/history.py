"""A small log that is known to the last row: runs of an application at several scales."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from barograph_collector.client.log_reader import LogReader
from helpers.log import DEADLINE_SECONDS, Producer, wait_until

APP: Final = "hpcg"
SCALES: Final = (2, 4, 8, 16, 32)
REPEATS: Final = 2
CLASSES: Final = {7: "ComputeDotProduct+0x1f", 9: "std::ptr::operator->+0x2"}


def runtime(ranks: int, repeat: int) -> float:
    """What a run took, in seconds: a serial part, a parallel part, and a repeat that differs."""
    return 5.0 + 640.0 / ranks + 0.01 * repeat


def nx(ranks: int) -> int:
    """A parameter that goes with the scale."""
    return 13 * ranks


def write_history(endpoint: str) -> None:
    """Runs of `hpcg`, one of them killed, and one of another application; started a day apart from 2026-01-01 UTC."""
    with Producer(endpoint, "history") as producer:
        producer.hello()
        seq = 0

        def append(table: str, rows: int, values: dict[str, Any]) -> None:
            nonlocal seq
            seq += 1
            producer.append(seq, table, rows, values)

        runs = [(APP, ranks, repeat, 0) for ranks in SCALES for repeat in range(REPEATS)]
        for number, (app, ranks, repeat, status) in enumerate([*runs, (APP, 2, 0, 137), ("other", 2, 0, 0)]):
            job, started = f"lab/{number}.0.0", 1_767_225_600.0 + 86400.0 * number
            params = f'{{"nx": "{nx(ranks)}", "ny": "104", "input": "a.in"}}'
            job_row = {"job": job, "cluster": "lab", "workload": f"lab/{app}@{ranks}x1", "app": app, "user": "alice",
                       "params": params, "ranks": ranks, "nodes": 1, "host": "n1",
                       "started_at": started, "scheduler": "none", "account": "", "unique_id": ""}  # fmt: skip
            append("jobs", 1, job_row)
            seconds = runtime(ranks, repeat)
            for class_id, at in CLASSES.items():
                site = {"job": job, "class_id": class_id, "from_site": "MPI_Init", "to_site": at}
                append("sites", 1, site | {"operation": "Allreduce"})
                values, ended = np.full(10, seconds / 40), started + np.arange(10.0)
                rows = {"job": job, "world": 0, "class_id": class_id, "first_index": np.arange(10), "count": 1,
                        "sum_seconds": values, "sum_squares": values**2, "sum_cubes": values**3,
                        "min_seconds": values, "max_seconds": values, "ended_at": ended}  # fmt: skip
                append("blocks", 10, rows)
            run_row = {"job": job, "ended_at": started + seconds, "runtime_seconds": seconds, "exit_status": status,
                       "intervals": 20, "dropped": 0, "imported": 0}  # fmt: skip
            append("runs", 1, run_row)
            producer.receive_ack(seq)
    with LogReader(endpoint, DEADLINE_SECONDS) as reader:
        wait_until(lambda: job in reader.read("runs", -1, 1).columns["job"], "the history can be read")
