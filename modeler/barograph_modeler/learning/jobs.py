"""Jobs that are not learned yet."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from barograph_agent.protocol.wire import Column
from barograph_modeler.learning.pending import BlockBatch, EndedJob, JobEnd, PendingJob
from barograph_modeler.pace.windows import blocks_by_job
from barograph_modeler.state.fair import FairJobs

VERDICT_SECONDS: Final = 10.0
"""How long an ended run waits for its final score where no job has ever had one: no alerts daemon runs."""
ABSENCE_SECONDS: Final = 86_400.0
"""The same where jobs had scores before, until a run that ended later has one: the alerts daemon is away."""
MAX_JOBS: Final = 20_000
MAX_HELD_BLOCKS: Final = 4_000_000
"""Blocks held of all jobs: about 320 MB."""


class PendingJobs:
    """Reads rows of `jobs`, `blocks`, `runs`, `scores` and `outcomes` as the log has them."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._pending: FairJobs[PendingJob] = FairJobs(MAX_JOBS)
        self._scored_until = -math.inf
        """When the newest run that has its final score ended, in Unix seconds."""

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def evicted(self) -> int:
        """Jobs that were given up since there were too many."""
        return self._pending.evicted

    def get(self, job: str) -> PendingJob | None:
        """A job; None if it is not known."""
        return self._pending.get(job)

    def read(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Read rows of one table. now: Unix seconds."""
        match table:
            case "jobs":
                for job, workload in zip(columns["job"], columns["workload"], strict=True):
                    self.begin(job, workload)
            case "blocks":
                for job, rows, blocks in blocks_by_job(columns):
                    self._job(job).add(BlockBatch.of_rows(columns, rows, blocks), now)
            case "runs":
                imported = columns.get("imported", [0] * len(columns["job"]))
                ended_at = columns.get("ended_at", [math.nan] * len(columns["job"]))
                for job, runtime, status, intervals, other, at in zip(
                    *(columns[name] for name in ("job", "runtime_seconds", "exit_status", "intervals")),
                    imported,
                    ended_at,
                    strict=True,
                ):
                    end = JobEnd(float(runtime), int(status), int(intervals), now, bool(other), float(at))
                    self._job(job).end = end
            case "scores":
                self._read_scores(columns)
            case "outcomes":
                # A log that is read again has these of runs of which it keeps no verdict any more.
                for job, result in zip(columns["job"], columns["result"], strict=True):
                    if (pending := self._pending.get(job)) is not None and not pending.final:
                        pending.final = True
                        pending.score = math.inf if result == "withheld" else 0.0

    def _read_scores(self, columns: Mapping[str, Column]) -> None:
        for job, state, score, final, members, hosts in zip(
            *(columns[name] for name in ("job", "state", "score", "final", "members", "hosts")), strict=True
        ):
            if (pending := self._pending.get(job)) is not None:
                # An alarm may have been taken back.
                pending.score = float(score) if final else max(pending.score, float(score))
                pending.inconclusive = state == "inconclusive"
                if final:
                    pending.final, pending.blamed = True, _blamed(members, hosts)
                if final and pending.end is not None:
                    self._scored_until = max(self._scored_until, pending.end.seen_at)

    def expect(self, jobs: Iterable[str], users: Iterable[str]) -> None:
        """Hold rows of these jobs of these users; their workloads are not known yet."""
        for job, user in zip(jobs, users, strict=True):
            self._job(job, user)

    def begin(self, job: str, workload: str) -> None:
        """Set the workload of a job."""
        self._job(job).workload = workload

    def forget(self, job: str) -> None:
        """Remove a job."""
        self._pending.pop(job)

    def rename(self, workload: str, new: str) -> None:
        """The jobs of one workload belong to another."""
        for pending in self._pending.values():
            if pending.workload == workload:
                pending.workload = new

    def poll(self, now: float) -> Iterator[tuple[str, PendingJob, EndedJob | None]]:
        """All jobs of known workloads, each with its end if its verdict is known; those jobs are removed.

        now: Unix seconds.
        """
        self._limit_memory()
        for job, pending in list(self._pending.items()):
            if not pending.workload:
                continue
            end = pending.end
            if end is not None and (pending.final or end.imported or self._has_no_verdict(end, now)):
                del self._pending[job]
                yield job, pending, pending.ended(job, end)
            else:
                yield job, pending, None

    def _has_no_verdict(self, end: JobEnd, now: float) -> bool:
        """Whether a run that has ended will not be judged any more."""
        waited = now - end.seen_at
        if self._scored_until == -math.inf:
            return waited > VERDICT_SECONDS
        return self._scored_until - end.seen_at > VERDICT_SECONDS or waited > ABSENCE_SECONDS

    def _job(self, job: str, user: str = "") -> PendingJob:
        return self._pending.use(job, lambda: PendingJob(self._window_seconds), user)

    def _limit_memory(self) -> None:
        """Drop the oldest blocks of the largest job of the user of whom most are held, until few enough are."""
        excess = sum(pending.held for pending in self._pending.values()) - MAX_HELD_BLOCKS
        while excess > 0:
            held: Counter[str] = Counter()
            for job, pending in self._pending.items():
                held[self._pending.user(job)] += pending.held
            user = max(held, key=lambda name: held[name])
            of_user = [pending for job, pending in self._pending.items() if self._pending.user(job) == user]
            largest = max(of_user, key=lambda pending: pending.held)
            excess -= largest.drop(min(excess, max(largest.held // 2, 1)))


def _blamed(members: str, hosts: str) -> frozenset[str]:
    """The nodes of a job that its alarm is about; none if that is about all of them. Lists of names, as JSON."""
    nodes, found = frozenset(_names(hosts)), frozenset(_names(members))
    return found if found < nodes else frozenset()


def _names(text: str) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        return []  # anybody with the key of alerts may write it
