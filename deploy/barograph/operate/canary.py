"""`barograph canary`: an end-to-end check. Sends a synthetic job that becomes slow, and waits for its alarm."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from barograph.cli import CommandError, Parser
from barograph.views.modeler import DIRECT
from barograph_agent.deliver import keys
from barograph_agent.settings import agent, places
from barograph_agent.system.clock import CLOCK
from barograph_collector.client.follow import LogWriter
from barograph_collector.client.log_reader import LogReader, LogUnavailable
from barograph_collector.daemon.service import Exit

CLASS: Final = 1
HEALTHY, SLOW, FACTOR = 60, 40, 3.0
"""The job has HEALTHY intervals of 1 s, then SLOW intervals of FACTOR seconds."""
NOT_LEARNED: Final = 1
"""Exit status of the job. The modeler does not learn from failed runs."""


def main(arguments: Sequence[str], clock: Callable[[], float] = CLOCK.now) -> int:
    """Send a canary through each shard and wait for its alarm; 69 where a step does not complete in time."""
    parser = Parser(
        prog="barograph canary", description="Send a synthetic slow job through the service and wait for its alarm."
    )
    places.add_collector_option(parser, agent.endpoint(os.environ), several=True)
    parser.add_argument(
        "--alertmanager",
        metavar="URL",
        help="also wait until this Alertmanager is ready, such as http://127.0.0.1:9093",
    )
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="time limit (default: %(default)g)")
    options = parser.parse_args(arguments)
    try:
        key = keys.from_environment(os.environ)
    except keys.KeyFileError as error:
        raise CommandError(str(error)) from None
    now = clock()
    deadline = CLOCK.monotonic() + options.seconds
    for number, endpoint in enumerate(places.endpoints(options.collector)):
        job = f"canary/{int(now * 1000)}.0.{number}"
        if not _send(endpoint, key, job, now, options.seconds):
            raise _failed(f"the collector at {endpoint} has not acknowledged the job{_withheld(endpoint, key)}")
        sentence = _alarm(endpoint, key, job, deadline)
        if not sentence:
            raise _failed(f"the log at {endpoint} has the job, but the alerts daemon has raised no alarm about it")
        print(f"{job}: {sentence}")
    if options.alertmanager is not None and not _ready(options.alertmanager, deadline):
        raise _failed(f"the job has alarmed, but the Alertmanager at {options.alertmanager} is not ready")
    return Exit.OK


def _send(endpoint: str, key: keys.ClientKey | None, job: str, now: float, seconds: float) -> bool:
    durations = np.repeat([1.0, FACTOR], [HEALTHY, SLOW])
    ends = now - durations.sum() + np.cumsum(durations)
    ones = np.ones(len(durations), np.int64)
    row = {"job": job, "cluster": "canary", "workload": "canary/canary@1x1", "app": "canary", "user": "canary",
           "params": "{}", "ranks": 1, "nodes": 1, "host": "canary", "started_at": float(ends[0]) - 1.0,
           "scheduler": "none", "account": "", "unique_id": ""}  # fmt: skip
    blocks = {"job": job, "world": 0, "class_id": ones.astype(np.uint64) * CLASS, "first_index": ones.cumsum() - 1,
              "count": ones, "sum_seconds": durations, "sum_squares": durations**2, "sum_cubes": durations**3,
              "min_seconds": durations, "max_seconds": durations, "ended_at": ends}  # fmt: skip
    end = {"job": job, "ended_at": now, "runtime_seconds": float(durations.sum()), "exit_status": NOT_LEARNED,
           "intervals": len(durations), "dropped": 0, "imported": 0}  # fmt: skip
    writer = LogWriter(endpoint, job, key)
    writer.put("jobs", 1, row)
    writer.put("blocks", len(ones), blocks)
    writer.put("runs", 1, end)
    return writer.close(seconds)


def _withheld(endpoint: str, key: keys.ClientKey | None) -> str:
    """Why the collector takes rows of nobody, as a clause; empty if it does, or does not answer."""
    with contextlib.suppress(LogUnavailable), LogReader(endpoint, 2.0, key) as reader:
        if trouble := reader.intake_trouble():
            return f": {trouble}"
    return ""


def _alarm(endpoint: str, key: keys.ClientKey | None, job: str, deadline: float) -> str:
    with LogReader(endpoint, 2.0, key) as reader:
        while CLOCK.monotonic() < deadline:
            try:
                page = reader.read("scores", -1, 1, job=job)
            except LogUnavailable:
                continue
            if page.rows and page.columns["state"][0] == "slow" and page.columns["final"][0]:
                return str(page.columns["sentence"][0])
            CLOCK.sleep(0.2)
    return ""


def _ready(url: str, deadline: float) -> bool:
    while True:
        with contextlib.suppress(OSError, ValueError), DIRECT.open(f"{url.rstrip('/')}/-/ready", timeout=5):
            return True
        if CLOCK.monotonic() >= deadline:
            return False
        CLOCK.sleep(0.2)


def _failed(text: str) -> CommandError:
    return CommandError(text, Exit.UNAVAILABLE)
