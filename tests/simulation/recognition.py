"""The modeler's recognition of work in the simulation: jobs of a few requests, and what assigns them to groups."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barograph_agent.protocol.wire import Column
from barograph_agent.system.system import System
from barograph_collector.client.follow import LogWriter
from barograph_collector.daemon.runner import Output
from barograph_collector.daemon.source import LogSource
from barograph_modeler.main import _prepare
from helpers.works import asked, new_modeler
from simulation.facility import FOLLOWED, Node, Tally

REQUESTS: Final = {name: asked([name]) for name in ("coarse", "medium", "fine")}
"""What jobs ask for: none is like another one."""
TABLES: Final = ("work_edits", "jobs", "works")
OF_MODELER: Final = (*TABLES, "runs")
ASKED: Final = 16
"""Jobs that ask for something."""


class AssigningTally(Tally):
    """The part of the modeler that assigns jobs to groups, with the same counts."""

    tables = (*TABLES, *(table for table in FOLLOWED if table not in TABLES))

    def __init__(
        self,
        may_resend: Callable[[str], bool],
        chance: random.Random,
    ) -> None:
        super().__init__(may_resend)
        self._page = chance.choice([1, 3, 10_000])
        self._modeler = new_modeler()

    def prepare(self, source: LogSource, now: float) -> None:
        super().prepare(source, now)
        source.follower._page = self._page
        _prepare(self._modeler, None, source)

    def observe(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        super().observe(table, columns, now)
        if table in OF_MODELER:
            # Runs are not learned: no group is merged with another.
            reads = self._modeler if table in TABLES else self._modeler.recognizer
            (reads.observe if reads is self._modeler else reads.read)(table, columns, now)

    def step(self, now: float) -> list[Output]:
        return [*super().step(now), *(one for one in self._modeler.step(now) if one.table == "assignments")]

    @property
    def idle(self) -> bool:
        # The learner is not while it waits for runs, which it does not get.
        return super().idle and self._modeler.recognizer.idle


class AskingJobs:
    """Jobs of which the rows of `jobs` and `works` are appended, by a program on a node."""

    def __init__(self, node: Node, seed: int) -> None:
        self.asked: dict[str, str] = {}
        """Names of requests by job."""
        self._seed, self._node = seed, node
        node.start("asking jobs", self._run)

    def _run(self, system: System) -> None:
        chance = random.Random(self._seed)
        writer = LogWriter(self._node.facility.collectors, f"asking/{system.clock.now_ns()}", system=system)
        for number in itertools.count():
            if number < ASKED:
                job, name = f"sim/asks{self._seed}x{number}.0.0", chance.choice(list(REQUESTS))
                self.asked[job] = name
                for table, columns in chance.sample([("jobs", _job(system.clock.now())), ("works", REQUESTS[name])], 2):
                    writer.put(table, 1, {"job": job} | {name: _row(value) for name, value in columns.items()})
            elif writer.idle:
                return
            writer.pump()
            system.network.wait([writer], 2 * chance.random())

    def wrong(self, assignments: Mapping[str, Sequence[Any]], complete: set[str]) -> str:
        """What is wrong with assignments of these jobs, in words. complete: jobs of which all rows are in the log."""
        rows = list(zip(*(assignments[name] for name in ("job", "workload", "how")), strict=True))
        # What they ask for came too late.
        unknown = {job for job, _, how in rows if how == "none"}
        groups = {job: group for job, group, _ in rows}
        of_request: dict[str, str] = {}
        for job, name in self.asked.items():
            if job not in complete:
                continue
            if job not in groups:
                return f"{job} has no group"
            group = groups[job]
            if job not in unknown and of_request.setdefault(name, group) != group:
                return f"{job} asks for {name} and is in {group}, earlier ones in {of_request[name]}"
        if len(set(of_request.values())) < len(of_request):
            return f"different requests have one group: {of_request}"
        return ""


def _job(now: float) -> dict[str, Any]:
    return {
        "cluster": "sim", "workload": "sim/heat@2x1", "app": "heat", "user": "u", "params": "{}", "ranks": 2,
        "nodes": 1, "host": "n", "started_at": now, "scheduler": "none", "account": "", "unique_id": "",
    }  # fmt: skip


def _row(value: Any) -> Any:
    return [value] if isinstance(value, str) else value
