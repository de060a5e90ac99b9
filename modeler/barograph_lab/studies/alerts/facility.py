"""A facility of made-up jobs before recogniser, learner and scorer: what is recognised, alarmed falsely and remembered.

Applications have inputs that are asked for again and again, the newest most (Zipf), and new ones as days pass. What
tells inputs apart differs from application to application: a word, the content of a file, or nothing but what runs
communicate; beside it, words that mean nothing change in every run. Programs are rebuilt. Runtimes are log-normal over
inputs; healthy runs of an input differ by a per cent, and within a run the pace drifts.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

import numpy as np

from barograph_agent.reduce.traffic import FIRST_SECONDS, LAST_SECONDS, next_report
from barograph_alerts.processor import MOVE_SECONDS, Scorer
from barograph_collector.daemon.runner import Output
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor

ROWS: Final = 160
"""Blocks of a run: few for a job, many for ten thousand of them."""
PARTS: Final = 8
"""Pages in which a run is read while it goes on."""
NEW_INPUT: Final = 0.12
ZIPF: Final = 1.2
REBUILT_DAYS: Final = 10.0
MEDIAN_SECONDS: Final = 600.0
SPREAD: Final = 1.2
"""Of runtimes over inputs, as that of their logarithms."""
BETWEEN_RUNS: Final = 0.01
WITHIN_RUN: Final = 0.02
CORRELATION: Final = 0.9
STEPS: Final = (200, 500, 1000, 2000, 5000)
TELLS: Final = ("word", "file", "traffic")
"""What tells the inputs of an application apart, and how often."""
SHARES: Final = (0.6, 0.3, 0.1)
DAY: Final = 86_400.0

Rows = dict[str, Any]


class Plan(NamedTuple):
    """jobs over days, of applications. disturbed: share of the jobs that are 1.5 times as slow from their middle on.

    tell: what tells the inputs of every application apart, one of TELLS; empty if applications differ in that.
    """

    jobs: int = 10_000
    applications: int = 500
    days: float = 30.0
    disturbed: float = 0.02
    seed: int = 1
    tell: str = ""


class MadeUpJob(NamedTuple):
    """A job that has ended. work: what it did. tell: what tells this from other work of its application, one of TELLS.
    earlier: healthy runs of the work before. state: of the verdict."""

    name: str
    work: str
    tell: str
    day: float
    earlier: int
    disturbed: bool
    state: str


class _Input(NamedTuple):
    name: str
    steps: int
    seconds: float
    bytes: int


class _Application:
    def __init__(self, number: int, tell: str, rng: np.random.Generator) -> None:
        self.name = f"app{number}"
        drawn = str(rng.choice(TELLS, p=SHARES))
        self.tell = tell or drawn
        self.has_seed = bool(rng.random() < 0.4)
        self.ranks = int(2 ** rng.integers(4, 10))
        self.seconds = MEDIAN_SECONDS * float(rng.lognormal(0.0, SPREAD))
        self.inputs: list[_Input] = []
        self.built_day = -REBUILT_DAYS * float(rng.random())

    def input(self, rng: np.random.Generator) -> _Input:
        """The input of the next job: a new one, or an earlier one, the newest most often."""
        if not self.inputs or rng.random() < NEW_INPUT:
            size = float(rng.lognormal(0.0, 0.7))
            seconds = min(max(self.seconds * size, 20.0), 6 * 3600.0)
            name = f"{self.name}/{len(self.inputs)}"
            self.inputs.append(_Input(name, int(rng.choice(STEPS)), seconds, max(8, int(8e4 * size ** (2 / 3)))))
            return self.inputs[-1]
        weights = 1.0 / np.arange(1, len(self.inputs) + 1) ** ZIPF
        return self.inputs[-1 - int(rng.choice(len(self.inputs), p=weights / weights.sum()))]


class _NoForecast:
    """Stands for the forecasters, which are not asked here."""

    def ignore(self, *_: Any) -> list[Output]:
        return []

    read = assign = merge = end = accept = step = ignore


class Facility:
    """Jobs before a modeler and a scorer. alpha: bound on the share of healthy jobs that ever alarm."""

    def __init__(self, plan: Plan, *, alpha: float) -> None:
        nothing = _NoForecast()
        self.groups: dict[str, str] = {}
        self._rows = 0
        """The group of each job, as the modeler says by now."""
        self._plan = plan
        # Bands take the most time, and nothing asks for them here.
        learner = Learner(seed=plan.seed, refit_seconds=0.0, clock=lambda: 0.0)
        self._modeler = ModelerProcessor(learner, cast(Forecaster, nothing), cast(FeatureForecaster, nothing))
        self._scorer = Scorer(alpha=alpha)
        self._rng = np.random.default_rng(plan.seed)
        self._healthy: Counter[str] = Counter()
        self._applications = [_Application(number, plan.tell, self._rng) for number in range(plan.applications)]

    @property
    def state_bytes(self) -> int:
        """Size of what the modeler has to remember, as a pickle."""
        parts = (self._modeler.recognizer, self._modeler.changes, self._modeler.learner)
        return sum(len(pickle.dumps(part.state(), protocol=5)) for part in parts)

    def run(self) -> Iterator[MadeUpJob]:
        """The jobs as they end, one after the other."""
        weights = 1.0 / np.arange(1, len(self._applications) + 1) ** ZIPF
        popular = self._rng.choice(len(self._applications), self._plan.jobs, p=weights / weights.sum())
        for number, at in enumerate(popular.tolist()):
            yield self._job(number, self._applications[at], self._plan.days * number / self._plan.jobs)

    def _job(self, number: int, application: _Application, day: float) -> MadeUpJob:
        rng = self._rng
        one = application.input(rng)
        work = f"{one.name}@{application.ranks}"
        earlier = self._healthy[work]
        ranks = application.ranks
        name, began = f"lab/{number}.0.0", 1e9 + day * DAY
        disturbed = bool(rng.random() < self._plan.disturbed)
        self._healthy[work] += not disturbed
        self._tell("jobs", {
            "log_offset": number + 1, "job": name, "cluster": "lab", "workload": f"lab/{application.name}@{ranks}x1",
            "app": application.name, "user": "ada", "params": "{}", "ranks": ranks, "nodes": 1, "host": "n1",
            "started_at": began,
        }, began)  # fmt: skip
        self._tell("works", {"job": name, **self._asked(application, one, day, ranks, number)}, began)
        seconds = self._seconds(one, disturbed=disturbed)
        ends = began + np.cumsum(seconds)
        counts = np.full(ROWS, max(one.steps // (ROWS // 2), 1))
        runtime = float(seconds.sum())
        looks = _looks(int(counts.sum()), runtime)
        for rows in np.array_split(np.arange(ROWS), PARTS):
            now = float(ends[rows[-1]])
            while looks and began + looks[0][0] <= now:
                elapsed, known, look = looks.pop(0)
                sent = self._traffic(name, one, known, elapsed, began) | {"look": [look] * 2}
                self._tell("signatures", sent, began + elapsed)
            self._tell("blocks", self._blocks(name, rows, counts, seconds, ends), now)
        now = float(ends[-1])
        scores = self._tell("runs", {
            "job": name, "ended_at": now, "runtime_seconds": runtime, "exit_status": 0, "intervals": int(counts.sum()),
            "dropped": 0, "imported": 0,
        }, now)  # fmt: skip
        if not any(row["final"] for row in scores):
            scores += self._tell("", {}, now + MOVE_SECONDS + 1.0)  # the modeler has said nothing
        state = next(str(row["state"]) for row in scores if row["final"])
        return MadeUpJob(name, work, application.tell, day, earlier, disturbed, state)

    def _asked(self, application: _Application, one: _Input, day: float, ranks: int, number: int) -> Rows:
        if day - application.built_day > REBUILT_DAYS:
            application.built_day += REBUILT_DAYS
        words = [_digest(one.name if application.tell == "word" else "deck")]
        words += [_digest(f"seed {number}")] if application.has_seed else []
        content = _digest(one.name if application.tell == "file" else "content", 16)
        return {
            "executable": _digest(f"{application.name} {application.built_day}", 16),
            "program": _digest(application.name, 16), "script": "", "words": json.dumps(words),
            "inputs": json.dumps([{"word": 0, "digest": content, "bytes": 9}] if application.tell != "word" else []),
            "ranks": ranks, "nodes": 1, "ranks_per_node": ranks, "threads": 1, "plain": "", "reason": "", "folder": "",
            "platform": "",
        }  # fmt: skip

    def _seconds(self, one: _Input, *, disturbed: bool) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Of each block."""
        noise = self._rng.normal(size=ROWS)
        for i in range(1, ROWS):
            noise[i] = CORRELATION * noise[i - 1] + math.sqrt(1 - CORRELATION**2) * noise[i]
        shares = np.tile([0.75, 0.25], ROWS // 2)
        level = float(self._rng.normal(0.0, BETWEEN_RUNS))
        seconds = one.seconds / (ROWS / 2) * shares * np.exp(level + WITHIN_RUN * noise)
        if disturbed:
            seconds[ROWS // 2 :] *= 1.5
        return cast("np.ndarray[Any, np.dtype[np.float64]]", seconds)

    def _blocks(self, name: str, rows: Any, counts: Any, seconds: Any, ends: Any) -> Rows:
        each = seconds[rows] / counts[rows]
        return {
            "job": [name] * len(rows), "world": np.zeros(len(rows), np.int64),
            "first_index": (np.cumsum(counts) - counts)[rows],
            "class_id": np.where(rows % 2 == 0, 11, 22).astype(np.uint64), "count": counts[rows],
            "sum_seconds": seconds[rows], "sum_squares": counts[rows] * each**2, "sum_cubes": counts[rows] * each**3,
            "min_seconds": each, "max_seconds": each, "ended_at": ends[rows],
        }  # fmt: skip

    def _traffic(self, name: str, one: _Input, known: int, elapsed: float, began: float) -> Rows:
        wander = float(self._rng.lognormal(0.0, 0.01))
        return {
            "job": [name] * 2, "class_id": np.array([11, 22], np.uint64), "intervals": [known // 2] * 2,
            "bytes": [8 * (known // 2)] * 2, "messages": [4 * (known // 2), 0],
            "message_bytes": [int(one.bytes * wander) * (known // 2), 0], "elapsed_seconds": [elapsed] * 2,
            "time": [began + elapsed] * 2,
        }  # fmt: skip

    def _tell(self, table: str, row: Rows, now: float) -> list[Rows]:
        """Both daemons read rows, and what either writes of them; the rows of `scores`."""
        pending: list[tuple[str, Mapping[str, Any]]] = [(table, {n: _column(value, 1) for n, value in row.items()})]
        scores: list[Rows] = []
        while pending:
            one, values = pending.pop(0)
            self._rows += 1
            values = {**values, "log_offset": [self._rows] * len(next(iter(values.values())))}
            if one == "assignments":
                self.groups.update(zip(values["job"], values["workload"], strict=True))
            self._modeler.observe(one, values, now)
            self._scorer.observe(one, values, now)
            for output in [*self._modeler.step(now), *self._scorer.step(now)]:
                each = {name: _column(value, output.rows) for name, value in output.columns.items()}
                pending.append((output.table, each))
                if output.table == "scores":
                    scores.append({name: column[-1] for name, column in each.items()})
        return scores


def _looks(intervals: int, runtime_seconds: float) -> list[tuple[float, int, int]]:
    """When sidecars report what a run of so many intervals communicates, in seconds of its time, how many are known
    then, and that number as it is reported."""
    each, look = runtime_seconds / intervals, next_report(0)
    found: list[tuple[float, int, int]] = []
    while look <= intervals and (not found or look * each <= LAST_SECONDS):
        found.append((min(max(look * each, FIRST_SECONDS), runtime_seconds), look, look))
        look = next_report(look)
    return [*found, (runtime_seconds, intervals, 0)] if runtime_seconds < LAST_SECONDS else found


def _column(value: Any, rows: int) -> Any:
    return value if isinstance(value, list | np.ndarray) else [value] * rows


def _digest(text: str, digits: int = 12) -> str:
    return hashlib.blake2b(text.encode(), digest_size=digits // 2).hexdigest()
