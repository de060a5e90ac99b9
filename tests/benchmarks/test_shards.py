"""Collectors that share one lake, PostgreSQL with its catalog, and Dask workers: one after the other is killed.

Jobs send at an even pace to 1, 2, 4 and 8 collectors. After the kills each record is in the lake once. How far the
lake is behind is sampled each second, and what a core receives is measured before the kills. Who publishes to the lake
is a thread of its collector. A modeler's fits go to two Dask workers, and are the same as without any in the end.

`KILLS=10` makes it shorter, `SHARDS=8` is of eight collectors only.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from barograph_collector.daemon.runner import CYCLE_SECONDS
from barograph_lab.bench.load import Load
from barograph_lab.bench.measured_collector import Usage
from barograph_modeler.bands.class_model import fit_gevs
from barograph_modeler.learning.learner import Learner
from barograph_modeler.workers import MAX_TASKS, Workers, dask_cluster
from helpers.dask import Cluster
from helpers.lakes import opened
from helpers.log import wait_until
from helpers.postgres import Postgres
from helpers.printed import show
from helpers.refits import learner
from helpers.service import Service

KILLS = int(os.environ.get("KILLS", "100"))
SHARDS = tuple(map(int, os.environ.get("SHARDS", "1,2,4,8").split(",")))
STREAMS, ROWS, RATE = 20, 50, 4_000.0
"""Jobs of a collector, records of a message, and records a second of all jobs of a collector."""
QUIET_SECONDS = 20.0
WORKLOADS = 2_000
END_SECONDS = 240.0


@dataclass
class Outcome:
    """Of one number of collectors. received: records per second of processor time. lags: in seconds."""

    kills: dict[str, int] = field(default_factory=lambda: {"collector": 0, "PostgreSQL": 0})
    sent: int = 0
    lost: int = 0
    doubled: int = 0
    received: float = 0.0
    quiet: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)


class Jobs(threading.Thread):
    """Jobs that send to one collector until they are told to end, and all is acknowledged."""

    def __init__(self, endpoint: str, number: int) -> None:
        super().__init__(daemon=True)
        self.load = Load(endpoint, STREAMS, ROWS, f"bench/{number}", seed=number)
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            self.load.pace(1.0, RATE)

    def sent(self) -> dict[str, int]:
        return {job.name: job.sent for job in self.load.jobs}


def lag(shard: Service) -> float | None:
    """How far the lake is behind a collector, None while that does not answer."""
    *_, url = re.findall(r"metrics on (\S+);", shard.log.read_text())
    try:
        with urllib.request.urlopen(url, timeout=1.0) as reply:
            found = re.search(r"^barograph_lake_lag_seconds (\S+)", reply.read().decode(), re.MULTILINE)
    except OSError:
        return None
    return float(found[1]) if found else None


@contextmanager
def sampled(shards: list[Service], lags: list[float]) -> Iterator[None]:
    """Append the greatest lag of all collectors once a second."""
    over = threading.Event()

    def sample() -> None:
        while not over.wait(1.0):
            if known := [one for one in map(lag, shards) if one is not None]:
                lags.append(max(known))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def kill(shards: list[Service], server: Postgres, chance: random.Random, times: int, kills: dict[str, int]) -> None:
    """Kill one after the other, each time one of them at random, which comes back."""
    for _ in range(times):
        time.sleep(chance.uniform(0.1, 2.0))  # a random instant is what is wanted
        victim = chance.choice([*shards, server])
        if isinstance(victim, Postgres):
            victim.stop()
            time.sleep(chance.uniform(0.0, 0.5))
            victim.start()
            kills["PostgreSQL"] += 1
        else:
            victim.kill()
            victim.start()
            kills["collector"] += 1


def stored(lake: Path, url: str) -> dict[str, tuple[int, int]]:
    """Of each job in the lake: its records, and how many different ones they are."""
    with opened(lake, url) as connection:
        query = "SELECT job, count(*), count(DISTINCT first_index) FROM lake.blocks GROUP BY job"
        return {job: (rows, different) for job, rows, different in connection.execute(query).fetchall()}


def played(directory: Path, server: Postgres, count: int, times: int) -> Outcome:
    outcome = Outcome()
    lake, url = directory / "lake", server.database(f"shards{count}")
    options = (f"--lake={lake}", f"--catalog={url}", "--lake-period=5")
    with ExitStack() as stack:
        shards = []
        for number in range(count):
            (directory / f"{number}").mkdir(parents=True)
            shards.append(stack.enter_context(Service(directory / f"{number}", *options)))
        # The first one makes the tables of the lake.
        for shard in shards:
            wait_until(lambda log=shard.log: " has rows up to " in log.read_text(), "the lake is open")
        jobs = [Jobs(shard.endpoint, number) for number, shard in enumerate(shards)]
        before = [Usage.of(shard.process.pid).cpu_seconds for shard in shards]
        began = [sum(one.sent().values()) for one in jobs]
        for one in jobs:
            one.start()
        with sampled(shards, outcome.quiet):
            time.sleep(QUIET_SECONDS)
        used = sum(Usage.of(shard.process.pid).cpu_seconds for shard in shards) - sum(before)
        outcome.received = (sum(sum(one.sent().values()) for one in jobs) - sum(began)) / used
        with sampled(shards, outcome.lags):
            kill(shards, server, random.Random(count), times, outcome.kills)
        for one in jobs:
            one.ending.set()
        for one in jobs:
            one.join()
        sent = {job: rows for one in jobs for job, rows in one.sent().items()}
        outcome.sent = sum(sent.values())
        wait_until(lambda: sum(found for _, found in stored(lake, url).values()) >= outcome.sent, "all is in the lake",
                   END_SECONDS, every=1.0)  # fmt: skip
        found = stored(lake, url)
        outcome.lost = sum(max(rows - found.get(job, (0, 0))[1], 0) for job, rows in sent.items())
        outcome.doubled = sum(rows - different for rows, different in found.values())
        for one in jobs:
            one.load.close()
    return outcome


def fitted(made: Learner) -> list[object]:
    """The bands of all workloads once all are fitted."""
    while made.waiting:
        began = time.monotonic()
        made.step(0.0)
        time.sleep(max(0.0, began + CYCLE_SECONDS - time.monotonic()))
    return [workload.intervals[1].bands for workload in made.workloads.values()]


@pytest.mark.timeout(1200)
def test_fits_are_the_same_whichever_dask_workers_are_killed(tmp_path: Path) -> None:
    expected, chance, kills, rounds, by_workers = fitted(learner(WORKLOADS, None)), random.Random(1), 0, 0, 0
    over = threading.Event()
    with Cluster(2, tmp_path) as cluster:

        def kill_workers() -> None:
            nonlocal kills
            while not over.wait(chance.uniform(2.0, 6.0)):
                cluster.replace(chance.randrange(2))
                kills += 1

        killer = threading.Thread(target=kill_workers)
        workers = Workers[int]("Dask", partial(dask_cluster, cluster.address), MAX_TASKS)
        for number in range(-8, 0):
            workers.send(number, fit_gevs, [np.arange(9.0) + 1], 0)
        while len(workers):  # started, with libraries in memory
            workers.poll()
            time.sleep(0.05)
        killer.start()
        try:
            while kills < max(KILLS // 4, 3):
                made = learner(WORKLOADS, workers)
                assert fitted(made) == expected
                rounds, by_workers = rounds + 1, by_workers + WORKLOADS - made.fitted_here
        finally:
            over.set()
            killer.join()
            workers.close()
    show(
        "fits while Dask workers are killed",
        [f"{kills} kills; {rounds * WORKLOADS:,} fits, {by_workers:,} of them by workers; all the same as without"],
    )


@pytest.mark.timeout(1200)
def test_no_record_is_lost_or_doubled_by_kills_of_collectors_and_the_catalog(tmp_path: Path) -> None:
    found: dict[int, Outcome] = {}
    with Postgres() as server:
        for place, count in enumerate(SHARDS):
            times = (place + 1) * KILLS // len(SHARDS) - place * KILLS // len(SHARDS)
            found[count] = played(tmp_path / f"{count}", server, count, times)
    first = found[SHARDS[0]].received
    show(
        "collectors; kills; records sent, lost, doubled; seconds that the lake is behind, p50 and p99, before and"
        " during kills; records per second of processor time",
        [
            f"{count}; {one.kills['collector']} of collectors, {one.kills['PostgreSQL']} of PostgreSQL;"
            f" {one.sent:,}, {one.lost}, {one.doubled};"
            f" {np.quantile(one.quiet, 0.5):.0f} and {np.quantile(one.quiet, 0.99):.0f},"
            f" {np.quantile(one.lags, 0.5):.0f} and {np.quantile(one.lags, 0.99):.0f};"
            f" {one.received:,.0f}, {one.received / first:.2f} x"
            for count, one in found.items()
        ],
    )
    assert sum(sum(one.kills.values()) for one in found.values()) == KILLS
    assert [(one.lost, one.doubled) for one in found.values()] == [(0, 0)] * len(SHARDS)
