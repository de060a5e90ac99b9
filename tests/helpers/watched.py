"""Watched runs of applications, some of them disturbed, with what was said of them."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from barograph.demo.runs import newest_job
from barograph_collector.client.log_reader import LogReader
from helpers.applications import Application, Report, report, start_watched
from helpers.log import DEADLINE_SECONDS
from helpers.quiet import Machine, Witness
from helpers.up import Up

Disturbance = Callable[[subprocess.Popen[str]], AbstractContextManager[None]]
"""What is done to a run, given its process, for as long as the run lasts."""


@dataclass(frozen=True)
class Run:
    """One watched run. Times are Unix seconds, NaN for what was not. alarm_at: when the log first had an alarm."""

    job: str
    disturbed_at: float
    intervals: int
    runtime: float
    verdict: str
    alarm_at: float
    onset_at: float
    cause: str
    """Its kind, and the members."""
    machine: Machine
    """While it ran."""

    @property
    def state(self) -> str:
        """The first word of the verdict."""
        return self.verdict.partition(":")[0]


def watch(
    application: Application,
    folder: Path,
    up: Up,
    reader: LogReader,
    known: set[str],
    cores: Sequence[int],
    disturbance: tuple[float, Disturbance] | None = None,
) -> Run:
    """A run on these cores. known: the jobs before it. disturbance: what, and after how many seconds."""
    # Pinned, or the ranks would leave a busy core where there are more.
    witness = Witness()
    process = start_watched(application, ["taskset", "-c", ",".join(map(str, cores))], folder, up)
    try:
        said, disturbed_at = _disturbed(process, *disturbance) if disturbance else (report(process), math.nan)
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)
    machine = witness.seen()
    job = newest_job(reader, known, 60.0)
    pages = [page.columns for page in reader.read_all("scores", job=job)]
    scores = {name: np.concatenate([np.asarray(page[name]) for page in pages]) for name in pages[0]} if pages else {}
    alarms = scores["time"][np.isfinite(scores["alarmed_at"])] if scores else np.array([])
    members = ", ".join(json.loads(scores["members"][-1])) if scores else ""
    return Run(
        job,
        disturbed_at,
        said.intervals,
        said.runtime,
        said.verdict,
        float(alarms[0]) if alarms.size else math.nan,
        float(scores["onset_at"][-1]) if scores else math.nan,
        f"{scores['cause'][-1]} {members}".strip() if scores else "none",
        machine,
    )


def _disturbed(process: subprocess.Popen[str], after: float, disturb: Disturbance) -> tuple[Report, float]:
    try:
        said = process.communicate(timeout=after)[1]
    except subprocess.TimeoutExpired:
        began = time.time()
        with disturb(process):
            return report(process), began
    raise AssertionError(f"the run ended before it was disturbed:\n{said}")
