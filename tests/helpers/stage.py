"""Jobs with sync points of known length, as agents would tell a live service of them, on four nodes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import numpy as np

from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
from barograph_collector.client.log_reader import LogReader
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.up import Up

NODES = ("n1", "n2", "n3", "n4")
CLASSES = ((7, "MPI_Barrier", "solver+0x1b20", 0.8), (8, "MPI_Allreduce", "solver+0x2c44", 0.2))
"""Class, operation, site and share of the time."""
BLOCK = 64
"""Sync points in one row of `node_blocks`."""


class StageJob:
    """A job of `app` whose sync points are `seconds` apart on average, sent in stretches that have just passed."""

    def __init__(self, endpoint: str, name: str, ranks: int, seconds: float, *, at: float, app: str = "solver") -> None:
        self.name, self.at, self._seconds = name, at, seconds
        self._rng = np.random.default_rng(sum(name.encode()))
        self._outbox = Memory()
        self._link = Link(endpoint, f"{name}/stage", self._outbox)
        self._index = 0
        self._began = at
        self._put("jobs", 1, cluster="lab", workload=f"lab/{app}@{ranks}x{len(NODES)}", app=app, user="ada",
                  params="{}", ranks=ranks, nodes=len(NODES), host=NODES[0], started_at=at, scheduler="none",
                  account="", unique_id="")  # fmt: skip
        for class_id, operation, site, _ in CLASSES:
            self._put("sites", 1, class_id=class_id, operation=operation,
                      from_site="solver+0x1000 < main+0x20", to_site=f"{site} < main+0x20")  # fmt: skip
        assert self._link.wait_idle(DEADLINE_SECONDS)

    def catch_up(self, slow: float = 1.0) -> None:
        """Run up to the present. Whoever does so too seldom looks as if it had stalled."""
        self.run(time.time() - self.at, slow)

    def run(self, seconds: float, slow: float = 1.0) -> None:
        """So many seconds go by, with `slow` times as much work on n3, for which the others wait."""
        count = int(seconds / slow / self._seconds) // BLOCK * BLOCK
        shares = np.tile([2 * share for *_, share in CLASSES], count // 2)
        one = slow * self._seconds * shares * self._rng.lognormal(0, 0.02, count)
        ends = self.at + np.cumsum(one)
        classes = np.tile(np.array([class_id for class_id, *_ in CLASSES], np.uint64), count // 2)
        first = self._index + np.arange(count)
        for at in range(0, count, BLOCK):
            part = slice(at, at + BLOCK)
            self._put_nodes(int(first[at]), float(ends[part][-1]), slow)
            self._put("blocks", BLOCK, world=0, class_id=classes[part], count=1, first_index=first[part],
                      sum_seconds=one[part], sum_squares=one[part] ** 2, sum_cubes=one[part] ** 3,
                      min_seconds=one[part], max_seconds=one[part], ended_at=ends[part])  # fmt: skip
        self._index += count
        self.at = float(ends[-1]) if count else self.at
        assert self._link.wait_idle(DEADLINE_SECONDS)

    def end(self, status: int = 0) -> None:
        """It ends."""
        self._put("runs", 1, ended_at=self.at, runtime_seconds=self.at - self._began, exit_status=status,
                  intervals=self._index, dropped=0, imported=0)  # fmt: skip
        assert self._link.wait_idle(DEADLINE_SECONDS)

    def _put_nodes(self, first: int, ended_at: float, slow: float) -> None:
        usual, longest = 0.9 * self._seconds * BLOCK, 0.9 * slow * self._seconds * BLOCK
        for host in NODES:
            own = longest if host == "n3" else usual
            wait = 0.1 * self._seconds * BLOCK + longest - own
            self._put("node_blocks", 1, host=host, world=0, ranks=1, first_index=first, length=BLOCK, count=BLOCK,
                      last_rank=0, last_count=BLOCK, late_seconds=0.0, own_rank=0, own_rank_seconds=own,
                      own_seconds=own, p2p_seconds=0.0, wait_seconds=wait, least_wait_seconds=wait,
                      ended_at=ended_at)  # fmt: skip

    def _put(self, table: str, rows: int, **values: object) -> None:
        values["job"] = self.name
        message = wire.append(self._link.stream, self._outbox.next_seq, table, rows, values)
        self._outbox.put(rows, wire.encode(message))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._link.close()


def whole(endpoint: str, name: str, ranks: int, slow: float = 1.0) -> None:
    """A job that has just ended, slow in its second half or not. More ranks make it faster, though not as much."""
    length = 0.001 + 0.012 / ranks
    half = 2048 * length
    with StageJob(endpoint, name, ranks, length, at=time.time() - half * (1 + slow)) as job:
        job.run(half)
        job.run(half * slow, slow)
        job.end()


@contextlib.contextmanager
def stage(up: Up) -> Iterator[None]:
    """Play on a live service: a history of an application at three scales, nodes that were held up by n3, a predicted
    run, and as long as the context lasts a healthy and a disturbed job."""
    for number, ranks in enumerate([2, 4, 8] * 3, 1):
        whole(up.endpoint, f"lab/{number}.0.0", ranks)
        up.wait_for_metric("modeler", rf"barograph_modeler_runs_total {number}\.0")
    up.wait_for_metric("modeler", r"barograph_modeler_fit_backlog 0\.0")
    with StageJob(up.endpoint, "lab/10.0.0", 8, 0.0025, at=time.time() - 12) as predicted:
        # One of the history may have been predicted too, when the modeler was faster than its end.
        wait_until(lambda: _has(up.endpoint, "predictions", predicted.name), "it is predicted", every=0.1)
        predicted.run(4096 * 0.0025)
        predicted.end()
    wait_until(lambda: _has(up.endpoint, "outcomes", predicted.name), "its prediction is scored", every=0.1)
    up.wait_for_metric("modeler", r'barograph_predictions_scored_total\{.*result="inside"\} [1-9]')
    whole(up.endpoint, "lab/11.0.0", 4, slow=2.0)
    up.wait_for_metric("alerts", r'barograph_node_straggler_score\{node="n3"\}')
    with StageJob(up.endpoint, "lab/20.0.0", 4, 0.004, at=time.time() - 40) as disturbed:
        disturbed.run(30)
        with StageJob(up.endpoint, "lab/21.0.0", 8, 0.0025, at=time.time() - 5) as healthy:
            over = threading.Event()
            player = threading.Thread(target=_play, args=(disturbed, healthy, over))
            player.start()
            try:
                up.wait_for_metric("alerts", r'barograph_job_alarm_info\{cause="straggler"')
                yield
            finally:
                over.set()
                player.join()


def _has(endpoint: str, table: str, job: str) -> bool:
    with LogReader(endpoint, DEADLINE_SECONDS) as reader:
        return any(job in list(page.columns["job"]) for page in reader.read_all(table))


def _play(disturbed: StageJob, healthy: StageJob, over: threading.Event) -> None:
    while not over.wait(0.5):
        disturbed.catch_up(slow=1.6)
        healthy.catch_up()
