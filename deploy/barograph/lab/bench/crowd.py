"""A load from several processes: each stream takes two descriptors, and one process may not have enough for all."""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
from multiprocessing.connection import Connection, wait
from typing import Any, Final

import numpy as np

from barograph.lab.bench.load import Load, LoadReport
from barograph.lab.bench.measured_collector import Usage

SPARE_DESCRIPTORS: Final = 200
_GRACE_SECONDS: Final = 300.0
"""How much longer than it was asked to send a process may take: for what is still to be acknowledged."""


class Crowd:
    """`streams` jobs to one endpoint, each message of `rows` records, in as many processes as they need."""

    def __init__(self, endpoint: str, streams: int, rows: int, name: str) -> None:
        """`name` keeps the streams of one crowd apart from those of another."""
        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = (limit - SPARE_DESCRIPTORS) // 2
        self._streams = streams
        # Few full ones: the processors are for what is measured.
        self._shares = [min(most, streams - first) for first in range(0, streams, most)]
        self.said: dict[str, int] = {}
        """What each job has said, known after a report."""
        self.usage = Usage(0.0, 0)
        """Of all these processes together, known after a report."""
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

    @property
    def processes(self) -> int:
        """How many there are."""
        return len(self._processes)

    def open(self, seconds: float) -> bool:
        """Wait until every stream is welcomed; says whether all were in time."""
        return all(self._ask("open", [(seconds,)] * self.processes, seconds))

    def saturate(self, seconds: float, window: int) -> LoadReport:
        """Keep `window` messages of every stream under way for so long, then wait for what is left."""
        return self._report(self._ask("saturate", [(seconds, window)] * self.processes, seconds))

    def pace(self, seconds: float, records_per_second: float) -> LoadReport:
        """Say so many records a second in all, every stream its share in even steps from a random beginning."""
        rates = [(seconds, records_per_second * share / self._streams) for share in self._shares]
        return self._report(self._ask("pace", rates, seconds))

    def close(self) -> None:
        """Drop all connections and end the processes."""
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
        for _, said, _ in answers:
            self.said |= said
        usages = [usage for _, _, usage in answers]
        self.usage = Usage(sum(used.cpu_seconds for used in usages), sum(used.peak_bytes for used in usages))
        return LoadReport(
            sum(report.records for report in reports),
            max(report.seconds for report in reports),
            np.concatenate([report.waits for report in reports]),
        )


def _generate(pipe: Connection, endpoint: str, streams: int, rows: int, name: str, seed: int) -> None:
    """One process of a crowd: do what comes through the pipe until its other end is closed."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    load = Load(endpoint, streams, rows, name, seed)
    try:
        while True:
            verb, words = pipe.recv()
            before = Usage.of_this_process()
            answer = getattr(load, verb)(*words)
            if verb != "open":
                answer = answer, {job.name: job.said for job in load.jobs}, Usage.of_this_process() - before
            pipe.send(answer)
    except EOFError:
        load.close()


def _end_with_parent() -> None:
    """A crowd whose command was killed in the middle of a verb would go on for as long as it was asked to."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
