"""Jobs that are not learned yet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from barograph_agent.protocol.wire import Column
from barograph_modeler.learning.pending import BlockBatch, EndedJob, JobEnd, PendingJob
from barograph_modeler.pace.windows import blocks_by_job
from barograph_modeler.state import lru

VERDICT_SECONDS: Final = 10.0
"""How long an ended run waits for its final score; after that it is assumed that no alerts daemon runs."""
JOBS: Final = 20_000
"""Jobs held; the oldest are evicted."""


class PendingJobs:
    """Reads rows of `jobs`, `blocks`, `runs` and `scores` as the log has them."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._pending: OrderedDict[str, PendingJob] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    def read(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Read rows of one table. now: Unix seconds."""
        match table:
            case "jobs":
                for job, workload in zip(columns["job"], columns["workload"], strict=True):
                    self._job(job).workload = workload
            case "blocks":
                for job, rows, blocks in blocks_by_job(columns):
                    self._job(job).add(BlockBatch.of_rows(columns, rows, blocks), now)
            case "runs":
                for job, runtime, status in zip(
                    columns["job"], columns["runtime_seconds"], columns["exit_status"], strict=True
                ):
                    self._job(job).end = JobEnd(float(runtime), int(status), now)
            case "scores":
                for job, score, final in zip(columns["job"], columns["score"], columns["final"], strict=True):
                    if job in self._pending:
                        self._pending[job].score = max(self._pending[job].score, float(score))
                        self._pending[job].final |= bool(final)

    def poll(self, now: float) -> Iterator[tuple[PendingJob, EndedJob | None]]:
        """All jobs of known workloads, each with its end if its verdict is known; those jobs are removed.

        now: Unix seconds.
        """
        for job, pending in list(self._pending.items()):
            if not pending.workload:
                continue
            end = pending.end
            # Without intervals there is no score to wait for.
            due = end is not None and (
                pending.final or not pending.has_intervals or now - end.seen_at > VERDICT_SECONDS
            )
            if end is not None and due:
                del self._pending[job]
                yield pending, pending.ended(job, end)
            else:
                yield pending, None

    def _job(self, job: str) -> PendingJob:
        if job not in self._pending:
            lru.store(self._pending, job, PendingJob(self._window_seconds), JOBS)
        return self._pending[job]
