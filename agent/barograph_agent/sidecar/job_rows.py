"""Rows of `jobs` and `works`: the identity of a run, and the fingerprint of its work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barograph_agent.job.rules import RulesError
from barograph_agent.protocol.rows import TableRows
from barograph_agent.reduce.ring_set import RingSet
from barograph_agent.ring.reader import Ring
from barograph_agent.settings import agent
from barograph_agent.sidecar.nodes import SETTLED_SECONDS, Steady
from barograph_agent.sidecar.plan import RunPlan
from barograph_agent.system.system import System
from barograph_agent.work.command import script_of
from barograph_agent.work.fingerprint import FingerprintTask, TargetProcess, WorkRules, fingerprint
from barograph_agent.work.planned import Launcher, PlannedCommand, fingerprint_ended, parse_planned

if TYPE_CHECKING:
    from barograph_agent.sidecar.run import State

FIRST_RANK_SECONDS: Final = 0.5
"""How long the ring of rank 0 is waited for once there is one of another rank."""


class JobRows:
    """Source of the row of `jobs` and of that of `works`, once per run, on the node of rank 0.

    The launcher's sidecar writes them as the run ends where no node reports a rank 0.
    """

    def __init__(
        self,
        plan: RunPlan,
        rings: RingSet,
        state: State,
        environment: Mapping[str, str],
        system: System,
        belongs: Callable[[int], bool],
        note: Callable[[str], None],
    ) -> None:
        """belongs: whether a process is of the run. note: takes problems, a line each."""
        self._plan, self._rings, self._state = plan, rings, state
        self._environment, self._system, self._belongs, self._note = environment, system, belongs, note
        self._recorded = agent.value_or_default("work", environment)
        self._fingerprint: FingerprintTask | None = None
        self._ranks, self._known = Steady(), Steady()
        # Of the allocation, or as many nodes as have room for all ranks like this one.
        self._counts_nodes = self._plan.job.nodes == 1 and (self._plan.is_companion or self._plan.has_companions)

    @property
    def is_here(self) -> bool:
        """True on the node of rank 0, and under a launcher whose run has one sidecar."""
        return self._rings.has_first_rank or not (self._plan.step_directory or self._plan.has_companions)

    @property
    def is_unknown(self) -> bool:
        """Whether ranks were launched and none is here, and the collector has not answered what other nodes have."""
        launched = self._plan.has_companions and not self._rings.has_rings and bool(self._rings.launched)
        return launched and not self._state.others.answered

    def read(self, now: float, *, final: bool) -> Iterator[TableRows]:
        """The rows that are due."""
        rings, state = self._rings, self._state
        if not (rings.has_rings or final):
            return
        is_unseen = final and self._plan.has_companions and not (state.others.has_first or self.is_unknown)
        is_complete = self._has_all_ranks(now) or final
        if self.is_here and is_complete and (columns := self._work_columns(now, final=final)):
            yield self._work_row(columns)
        if not state.has_job and (is_unseen or (self.is_here and is_complete)):
            state.has_job = True
            yield TableRows("jobs", 1, self._job_row())
        is_due = final and not (state.has_work or self.is_unknown or self._recorded == "none")
        if is_due and self._command is not None:
            yield self._work_row(self._task_of_ended(self._command).columns(final=True))

    def _has_all_ranks(self, now: float) -> bool:
        """Whether the ranks on this node are counted, where the number of nodes follows from that."""
        if not self._counts_nodes:
            return True
        here = self._ranks_here
        return self._ranks.seconds(here, now) >= SETTLED_SECONDS or here >= self._rings.progress.ranks

    @property
    def _nodes(self) -> int:
        if not self._counts_nodes:
            return self._plan.job.nodes
        return -(-self._rings.progress.ranks // max(self._ranks_here, 1)) or 1

    @property
    def _ranks_here(self) -> int:
        """Ranks on this node of the first world that has any here."""
        return next((world.ranks for world in self._rings.worlds().values()), 0)

    @property
    def _ranks_in_all(self) -> int:
        """Ranks of the run; of one that was not seen those that a launcher was to start, 0 without one."""
        planned = None if self._rings.has_rings or self._command is None else self._command.ranks
        return planned if planned is not None and planned > 1 else self._rings.progress.ranks

    def _work_columns(self, now: float, *, final: bool) -> dict[str, Any]:
        """Columns of `works` by the processes; empty until they are read, and once the row is written."""
        first = self._rings.first
        if self._state.has_work or self._recorded == "none" or first is None:
            return {}
        has_waited = self._known.seconds(True, now) >= FIRST_RANK_SECONDS
        if self._fingerprint is None and (self._rings.has_first_rank or has_waited or final):
            self._fingerprint = self._task_of(first)
        return self._fingerprint.columns(final=final) if self._fingerprint is not None else {}

    def _work_row(self, columns: dict[str, Any]) -> TableRows:
        self._state.has_work = True
        ranks, nodes = self._ranks_in_all, self._nodes
        own = {"ranks": ranks, "nodes": nodes, "ranks_per_node": -(-ranks // max(nodes, 1))}
        return TableRows("works", 1, own | columns)

    def _job_row(self) -> dict[str, Any]:
        first = self._rings.first
        program = first.program if first is not None else self._rings.progress.program
        job, planned = self._plan.job, self._planned_as(program)
        if planned is not None:
            job = job.named_by(script_of(program, planned.arguments))
        elif first is not None and self._belongs(first.pid):
            words = os.fsdecode(first.command).split("\0")[:-1] or self._system.processes.command(first.pid)
            job = job.named_by(script_of(program, words))
        try:
            job = self._plan.findings.apply_to(job, program)
        except RulesError as error:
            job = job.named_by(program)
            self._note(str(error))
        return job.row(self._ranks_in_all, self._nodes, self._plan.started_at)

    def _task_of(self, first: Ring) -> FingerprintTask:
        planned, system = self._planned_as(first.program), self._system
        if planned is not None and not self._belongs(first.pid):
            return self._task_of_ended(planned)
        line = planned.target.command if planned is not None else first.command
        target = TargetProcess(first.pid, first.program, self._belongs, line)
        return FingerprintTask(system, partial(fingerprint, target=target, rules=self._rules, system=system))

    def _task_of_ended(self, command: PlannedCommand) -> FingerprintTask:
        launcher, system = Launcher(self._plan.launcher, self._plan.started_at), self._system
        take = partial(fingerprint_ended, command=command, launcher=launcher, system=system)
        return FingerprintTask(system, partial(take, environment=self._environment, rules=self._rules))

    def _planned_as(self, program: str) -> PlannedCommand | None:
        """The command with all its components, if it starts `program`: a process may show a title in its place."""
        planned = parse_planned(self._plan.command, self._environment)
        return planned if planned and planned.program == os.path.realpath(program) else None

    @property
    def _rules(self) -> WorkRules:
        salt = self._environment.get("BAROGRAPH_SALT")
        plain, numbers = self._recorded == "plain", self._recorded in ("numbers", "plain")
        return WorkRules(self._plan.job.cluster, Path(salt) if salt else None, plain=plain, numbers=numbers)

    @cached_property
    def _command(self) -> PlannedCommand | None:
        """What the launcher of a run that has ended had started, while it lives, if no rank was seen on any node."""
        is_unseen = self._rings.first is None and not self._state.others.has_first
        lives = self._plan.launcher_lives(self._system.processes)
        return parse_planned(self._plan.command, self._environment) if is_unseen and lives else None
