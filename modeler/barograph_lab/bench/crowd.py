"""A load from several processes: a stream takes two descriptors, so many exceed the limit of one process."""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
from multiprocessing.connection import Connection, wait
from typing import Any, Final

import numpy as np

from barograph_lab.bench.load import Load, LoadReport
from barograph_lab.bench.measured_collector import Usage

SPARE_DESCRIPTORS: Final = 200
_GRACE_SECONDS: Final = 300.0
"""Time beyond the duration of a load for the last acknowledgements."""


class Crowd:
    """A `Load` in as many processes as its streams need, by the limit of descriptors of this process.

    Parameters and verbs as for `Load`.
    """

    def __init__(self, endpoint: str, streams: int, rows: int, name: str) -> None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = (limit - SPARE_DESCRIPTORS) // 2
        self._streams = streams
        # As few processes as possible: the processors are for the collector.
        self._shares = [min(most, streams - first) for first in range(0, streams, most)]
        self.sent: dict[str, int] = {}
        """Intervals sent by each job, known after a report."""
        self.usage = Usage(0.0, 0)
        """Of all processes together, known after a report."""
        spawn = multiprocessing.get_context("spawn")
        self._processes = []
        self._pipes: list[Connection] = []
        for part, share in enumerate(self._shares):
            here, there = spawn.Pipe()
            process = spawn.Process(target=_generate, args=(there, endpoint, share, rows, f"{name}/{part}", part))
            process.start()
            there.close()
            self._processes.append(process)
            self._pipes.append(here)

    def open(self, seconds: float) -> bool:
        """Wait until every stream is open; False on timeout."""
        return all(self._ask("open", [(seconds,)] * len(self._processes), seconds))

    def saturate(self, seconds: float, window: int) -> LoadReport:
        """Keep `window` messages of every stream unacknowledged for `seconds`, then wait for the rest."""
        return self._report(self._ask("saturate", [(seconds, window)] * len(self._processes), seconds))

    def pace(self, seconds: float, records_per_second: float) -> LoadReport:
        """Send at this total rate: each stream at even intervals with a random phase."""
        rates = [(seconds, records_per_second * share / self._streams) for share in self._shares]
        return self._report(self._ask("pace", rates, seconds))

    def close(self) -> None:
        """Close all connections and end the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()

    def _ask(self, verb: str, arguments: list[tuple[Any, ...]], seconds: float) -> list[Any]:
        for pipe, words in zip(self._pipes, arguments, strict=True):
            pipe.send((verb, words))
        answers = []
        for pipe in self._pipes:
            if not pipe.poll(seconds + _GRACE_SECONDS):
                raise TimeoutError(f"a generator did not {verb} within {seconds + _GRACE_SECONDS:g} s")
            answers.append(pipe.recv())
        return answers

    def _report(self, answers: list[tuple[LoadReport, dict[str, int], Usage]]) -> LoadReport:
        reports = [report for report, _, _ in answers]
        for _, sent, _ in answers:
            self.sent |= sent
        usages = [usage for _, _, usage in answers]
        self.usage = Usage(sum(used.cpu_seconds for used in usages), sum(used.peak_bytes for used in usages))
        return LoadReport(
            sum(report.records for report in reports),
            max(report.seconds for report in reports),
            np.concatenate([report.waits for report in reports]),
        )


def _generate(pipe: Connection, endpoint: str, streams: int, rows: int, name: str, seed: int) -> None:
    """One process: execute the verbs received through the pipe until its other end is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    load = Load(endpoint, streams, rows, name, seed)
    try:
        while True:
            verb, words = pipe.recv()
            before = Usage.of_this_process()
            answer = getattr(load, verb)(*words)
            if verb != "open":
                answer = answer, {job.name: job.sent for job in load.jobs}, Usage.of_this_process() - before
            pipe.send(answer)
    except EOFError:
        load.close()


def _end_with_parent() -> None:
    """Exit when the parent process is killed, even during a verb."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
