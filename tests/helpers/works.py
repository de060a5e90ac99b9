"""Rows of `works` as sidecars write them, and a modeler that reads jobs with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from barograph_collector.daemon.runner import Output
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.recognition.recognizer import Histories
from helpers.executor import Inline
from helpers.features import inline_features
from helpers.jobs import Columns, Simulation, verdict


def digest(text: str, digits: int = 12) -> str:
    """As the agent's, but without a salt."""
    return hashlib.blake2b(text.encode(), digest_size=digits // 2).hexdigest()


def asked(
    words: Sequence[str],
    inputs: Sequence[tuple[int, str]] = (),
    program: str = "heat",
    folder: Mapping[str, str] | None = None,
    **other: Any,
) -> dict[str, Any]:
    """A row of `works` without its job. inputs: index of the word, and content. folder: contents of files by name."""
    row = {
        "executable": digest("build 1", 16),
        "program": digest(program, 16),
        "script": "",
        "words": json.dumps([digest(word) for word in words]),
        "inputs": json.dumps([{"word": word, "digest": digest(text, 16), "bytes": len(text)} for word, text in inputs]),
        "ranks": 2,
        "nodes": 1,
        "ranks_per_node": 2,
        "threads": 1,
        "plain": "",
        "reason": "",
        "platform": "",
        "numbers": "",
        "folder": json.dumps({digest(name): digest(text, 16) for name, text in folder.items()}) if folder else "",
    }
    return row | other


class Site:
    """Jobs of simulated work, before a modeler. `assignments`: what it has written, by job the last."""

    def __init__(self, modeler: ModelerProcessor | None = None) -> None:
        self.modeler = modeler or new_modeler()
        self.simulation = Simulation()
        self.user, self.account = "u", ""
        """Of the jobs that begin from now on."""
        self.assignments: dict[str, dict[str, Any]] = {}
        self.written: list[dict[str, Any]] = []

    def begin(self, row: dict[str, Any] | None, factor: float = 1.0, intervals: int = 8000) -> dict[str, Columns]:
        """A job begins; its row of `works` says so unless it is None."""
        self.simulation.intervals = intervals
        job = self.simulation.job(slow_from=0, factor=factor)
        job["jobs"] |= {"user": [self.user], "account": [self.account]}
        rows = [("jobs", job["jobs"])]
        if row is not None:
            rows.append(("works", {"job": job["jobs"]["job"]} | {name: [value] for name, value in row.items()}))
        self.tell(*rows)
        return job

    def end(self, job: dict[str, Columns], score: float = 0.0) -> None:
        """It ends, with the score of its verdict."""
        self.tell(("blocks", job["blocks"]), ("runs", job["runs"]), ("scores", verdict(job, score)))

    def run(
        self, row: dict[str, Any] | None, factor: float = 1.0, intervals: int = 8000, score: float = 0.0
    ) -> tuple[str, str]:
        """A whole job; its group and how it was found at the begin."""
        job = self.begin(row, factor, intervals)
        found = self.assignments[job["jobs"]["job"][0]]
        self.end(job, score)
        return found["workload"], found["how"]

    def tell(self, *rows: tuple[str, Columns], seconds: float = 0.0) -> list[Output]:
        """The modeler reads rows, so much later."""
        now = self.simulation.now + seconds
        for table, columns in rows:
            self.modeler.observe(table, columns, now)
        outputs = self.modeler.step(now)
        for output in outputs:
            if output.table == "assignments":
                self.written.append(dict(output.columns))
                self.assignments[str(output.columns["job"])] = dict(output.columns)
        return outputs


def new_modeler(histories: Histories = "user") -> ModelerProcessor:
    """A modeler that fits at once."""
    forecaster = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0))
    return ModelerProcessor(Learner(clock=lambda: 0.0), forecaster, inline_features(), histories)
