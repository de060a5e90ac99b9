"""One watched job: its data from the log, and its monitor."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from barograph_alerts.attribution.alignment import Outcome
from barograph_alerts.attribution.coincidence import Coincidence
from barograph_alerts.attribution.kernel.kernel_account import KernelAccount
from barograph_alerts.attribution.node_work import NodeWork
from barograph_alerts.attribution.work import WorkSpan
from barograph_alerts.detection.runtime_prior import FREEDOM, RuntimeHistory, RuntimePrior
from barograph_alerts.detection.stall import SilentSpan
from barograph_alerts.detection.worker_test import WorkerRow
from barograph_alerts.job.monitor import JobMonitor
from barograph_alerts.job.progress import Problem
from barograph_alerts.job.remaining import JobRemaining
from barograph_alerts.job.verdict import COMPARED
from barograph_modeler.maxima.runtime import runtime_scale
from barograph_modeler.pace.pace import Pace
from barograph_modeler.pace.remaining import remaining_beyond
from barograph_modeler.pace.windows import JobBlocks

UNASSIGNED: Final = "unassigned"
"""How the group was found if it was not, for the modeler is away."""
KEPT_SECONDS: Final = 50.0
KEPT_INTERVALS: Final = 128
"""Blocks of this time from the begin of a job, or with so many intervals, are kept: it may belong to another group.

More than what the modeler's `may_move` allows: rows of several tables arrive in any order."""
MAX_WORKER_ROWS: Final = 8192
MAX_NAMES: Final = 512
"""Classes of a job that have names."""
REPORT_STEP: Final = 0.25
"""Change of a running job's score that makes a new row of `scores`, up to FULL_SCORE."""
FULL_SCORE: Final = 2.0


class WorkerRows:
    """Rows of a training's workers: those to be judged, and the newest that were."""

    def __init__(self) -> None:
        self.waiting: list[WorkerRow] = []
        self._judged: deque[WorkerRow] = deque(maxlen=MAX_WORKER_ROWS)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.waiting or self._judged)

    def take(self) -> list[WorkerRow]:
        """Those that are to be judged now."""
        waiting, self.waiting = self.waiting, []
        self._judged.extend(waiting)
        return waiting

    def rewind(self) -> None:
        """Let another monitor judge those that were."""
        self.waiting = [*self._judged, *self.waiting]
        self._judged.clear()


class WatchedJob:
    """A job's data from the log, its monitor, and the last report."""

    def __init__(self) -> None:
        self.offset = self.nodes = 0
        self.seen_at = math.nan
        """When its row of `jobs` was read, in Unix seconds."""
        self.lacking_since = math.inf
        """Since when it is awaited what was learned of its workload."""
        self.workload = ""
        """The group of like work; that of the row of `jobs` until it is assigned to one."""
        self.family = ""
        """That of the row of `jobs`."""
        self.how = ""
        """How the group was found; empty until then."""
        self.former = ""
        """The group of the runs that asked for the same, if the run was found to do other work than these."""
        self.assigned_at = self.end_offset = 0
        """Offsets of its last row of `assignments` and of that of `runs`."""
        self.has_early_traffic = False
        """Whether what it communicates was reported while it may move to another group."""
        self.app = self.user = self.host = ""
        self.first_pace: tuple[str, Pace] | None = None
        """A workload and its pace when the job began, where that was another one than it is known for now."""
        self.monitor: JobMonitor | None = None
        self.waiting: list[tuple[JobBlocks, npt.NDArray[np.float64]]] = []
        """Blocks, and the longest interval of each."""
        self.kept: list[tuple[JobBlocks, npt.NDArray[np.float64]]] | None = []
        """Those that were judged already, of the first KEPT_SECONDS or KEPT_INTERVALS; None later."""
        self.silences: list[SilentSpan] = []
        self.work: list[WorkSpan] = []
        self.started_at = self.runtime_seconds = math.nan
        self.problem: Problem | None = None
        self.runtime_prior: RuntimePrior | None = None
        self.sync_points: dict[int, int] = {}
        """Number of sync points so far, by world communicator."""
        self.coincidences: list[Coincidence] = []
        self.explained: tuple[object, ...] = ()
        self.workers, self.node_work, self.kernel = WorkerRows(), NodeWork(), KernelAccount()
        self.ended = False
        self.ended_at = math.inf
        """When that was first seen, in Unix seconds."""
        self.exit_status = self.points = self.ranks = self.judgings = 0
        """Of an ended run; points: number of its sync points. judgings: how often it was judged anew."""
        self.imported = False
        """Whether the run comes from other records: it is not judged."""
        self.other_length = False
        """Whether it has more or fewer sync points than the runs of its workload."""
        self.has_features = False
        """Whether the program says what its runtime depends on."""
        self.reported: tuple[object, ...] | None = ()
        """The `report_key` of the latest row; None if that is no longer true."""
        self.changed_at, self.sentence = 0.0, ""
        self._class_names: dict[int, str] = {}

    def name_class(self, class_id: int, before: str, at: str) -> None:
        """Name a class of the job by the call paths before and after it, unless MAX_NAMES have names."""
        if class_id in self._class_names or len(self._class_names) < MAX_NAMES:
            self._class_names[class_id] = f"{before.partition(' < ')[0]} -> {at.partition(' < ')[0]}"

    def class_name(self, class_id: int) -> str:
        """The innermost frames of the call paths before and after a class; its id if these are unknown."""
        return self._class_names.get(class_id, f"class {class_id:016x}")

    @property
    def unit(self) -> str:
        """What ends an interval: a step of a training, an iteration, or a sync point."""
        if self.workers:
            return "step"
        return (self.monitor.cause.unit if self.monitor is not None else None) or self.node_work.unit

    def begin(self, row: Mapping[str, Any], outcomes: Counter[Outcome]) -> None:
        """Read the job's row of `jobs`. outcomes: counts sync points of nodes."""
        self.family = row["workload"]
        self.workload = self.workload or self.family
        self.app, self.user = row["app"], row["user"]
        self.nodes, self.host, self.started_at = int(row["nodes"]), row["host"], float(row["started_at"])
        self.ranks = int(row["ranks"])
        self.problem = Problem(row["cluster"], row["app"], row["params"])
        self.work += self.node_work.begin(self.nodes, self.host, outcomes)

    def assign(self, workload: str, how: str, offset: int = 0) -> None:
        """Set the group of like work. In another one a job is judged anew, from its begin if that is known still.

        Otherwise one with a history remains compared with it. offset: of the row of `assignments`.
        """
        is_judged = self.monitor is not None and workload != self.workload
        if is_judged and (self.kept is not None or self.ended or self.has_no_pace):
            self.judge_anew()
        if how != "first":
            self.former = ""
        elif self.how in COMPARED and workload != self.workload:
            self.former = self.workload
        self.workload, self.how, self.assigned_at = workload, how, offset

    @property
    def has_no_pace(self) -> bool:
        """Whether it is judged by itself, for want of a history."""
        return self.monitor is not None and self.monitor.evidence.pace is None

    def judge_anew(self) -> None:
        """Judge it again, from its begin if that is known still."""
        self.monitor, self.explained, self.judgings = None, (), self.judgings + 1
        self.workers.rewind()
        self.reported = None if self.reported else ()
        if self.kept is not None:
            self.waiting, self.kept = self.kept + self.waiting, []

    @property
    def may_move(self) -> bool:
        """Whether the modeler, which knows what the ended job communicated and how long it was, has yet to confirm."""
        is_doubtful = self.has_early_traffic or (self.other_length and self.score > 1)
        return bool(self.how) and is_doubtful and self.assigned_at < self.end_offset

    def take_waiting(self) -> list[tuple[JobBlocks, npt.NDArray[np.float64]]]:
        """The blocks that are to be judged now."""
        waiting, self.waiting = self.waiting, []
        if self.kept is not None:
            self.kept += waiting
            is_late = bool(waiting) and waiting[-1][0].ended_at[-1] - self.started_at > KEPT_SECONDS
            if is_late and sum(blocks.intervals for blocks, _ in self.kept) > KEPT_INTERVALS:
                self.kept = None
        return waiting

    def reach(self, worlds: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        """Record progress. worlds: world communicators of blocks; ends: index after the last sync point of each."""
        for world in np.unique(worlds).tolist():
            end = int(ends[worlds == world].max())
            self.sync_points[world] = max(end, self.sync_points.get(world, 0))

    @property
    def is_new(self) -> bool:
        """Whether it does other work than all earlier runs of its family, which say nothing about it then."""
        return self.how in ("first", UNASSIGNED) and self.workload != self.family

    @property
    def is_unread(self) -> bool:
        """Whether its command could not be read, and those of other runs of its family could: none is like it."""
        return self.how == "none" and self.workload != self.family

    @property
    def other_work(self) -> str:
        """Why its runtime is not compared with the history, in words; empty if it is."""
        if self.other_length:
            return "with another number of sync points than its history"
        if self.is_unread:
            return "of unknown work"
        return "which depends on its features" if self.has_features else ""

    def remaining(self, history: RuntimeHistory | None, share: float, now: float) -> JobRemaining | None:
        """What the job has left; None if that is unknown. now: Unix seconds.

        It follows from its progress, if the progress of earlier runs of its work or a number of sync points is known;
        else from how long it runs, given how long such runs take. share: completed share of its sync points, NaN if
        unknown.
        """
        if self.ended or self.other_work or math.isnan(self.started_at):
            return None
        elapsed, monitor = max(0.0, now - self.started_at), self.monitor
        if history is not None:
            if monitor is not None and (found := monitor.remaining(now)) is not None:
                return found
            lost = 0.0 if monitor is None else min(monitor.evidence.lost_seconds, elapsed)
            scale = runtime_scale(history.expected_seconds, history.upper_seconds, history.runs)
            left, runs = remaining_beyond(elapsed - lost, history.expected_seconds, *scale), history.runs
            basis = history.basis
        elif (prior := self.runtime_prior) is not None and not self.is_new:
            if monitor is not None and (found := monitor.remaining_by_share(prior, self.started_at, share)) is not None:
                return found
            left, runs = remaining_beyond(elapsed, prior.expected_seconds, prior.scale, FREEDOM), prior.runs
            basis = prior.basis
        else:
            return None
        return JobRemaining(left if monitor is None else monitor.disturbed(left, now), math.nan, runs, basis)

    @property
    def excess(self) -> float:
        """Time of an ended job beyond the usual one, as a share of that; 0 if nothing disturbed it, NaN if unknown."""
        if self.other_work or self.monitor is None or self.monitor.evidence.state == "unknown":
            return math.nan
        evidence = self.monitor.evidence
        if not evidence.alarms:
            return 0.0
        lost = evidence.lost_seconds
        return lost / (self.runtime_seconds - lost) if 0 < lost < self.runtime_seconds else math.nan

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of its known nodes."""
        # On one node the members are ranks.
        members = self.monitor.members if self.monitor is not None and self.nodes > 1 else ()
        return members or ((self.host,) if self.host and self.nodes <= 1 else ())

    @property
    def score(self) -> float:
        """Above 1 while the job is disturbed; -1 if unknown."""
        if self.monitor is None or self.state == "unknown":
            return -1.0
        # A job that ended disturbed keeps its alarm as it was.
        evidence = self.monitor.evidence
        return evidence.highest if self.ended and evidence.open is not None else evidence.score

    @property
    def state(self) -> str:
        """unknown, healthy, inconclusive, slow or stalled."""
        return self.monitor.evidence.state if self.monitor else "unknown"

    @property
    def report_key(self) -> tuple[object, ...]:
        """A key whose change makes a new row of `scores`; empty while the state is unknown."""
        if self.monitor is None or self.state == "unknown":
            return ()
        evidence, cause = self.monitor.evidence, self.monitor.cause
        ended = bool(evidence.alarms) and evidence.open is None
        found = cause.kind, cause.members, cause.beside, cause.silent
        return len(evidence.alarms), ended, found, min(evidence.score, FULL_SCORE) // REPORT_STEP
