"""A log full of simulated jobs for the page: running, disturbed, ended, predicted; through the real link."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.deliver.shards import shard_of
from barograph_agent.protocol import wire
from barograph_collector.client.log_reader import LogReader
from helpers.log import DEADLINE_SECONDS, wait_until

CLASS: Final = 2**63 + 11
OTHER: Final = 2**62 + 5
INTERVAL: Final = 0.0042
APPS: Final = (("gromacs", 64), ("lammps", 128), ("cp2k", 256), ("wrf", 512), ("openfoam", 96), ("namd", 384))
USERS: Final = ("amara", "boris", "chen", "dalia", "emeka", "freya")

HOSTILE: Final = "<script>alert(1)</script>"

Row = dict[str, Any]


class Fleet:
    """Appends rows table by table to an empty log; all of them can be read by the end of `deliver`."""

    def __init__(self, endpoint: str, now: float, seed: int = 1) -> None:
        """now: Unix seconds; all jobs are before that."""
        self.now = now
        self._rng = np.random.default_rng(seed)
        self._outbox = Memory(cap_messages=2**31)
        self._link = Link(endpoint, f"fleet/{seed}", self._outbox)
        self._endpoint = endpoint
        self._rows, self._last_table = 0, ""

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """Append these rows, if any, 2,000 to a message."""
        for first in range(0, len(rows), 2000):
            part = rows[first : first + 2000]
            columns = {name: [row[name] for row in part] for name in part[0]}
            message = wire.append(self._link.stream, self._outbox.next_seq, table, len(part), columns)
            self._outbox.put(len(part), wire.encode(message))
            self._rows, self._last_table = self._rows + len(part), table

    def deliver(self) -> None:
        """Wait until the log has it all, and shows it: the page waits less long than a busy machine may take."""
        delivered = self._link.wait_idle(120.0)
        self._link.close()
        assert delivered
        if self._rows:
            with LogReader(self._endpoint, DEADLINE_SECONDS) as reader:
                wait_until(
                    lambda: self._rows in reader.read(self._last_table, -1, 1).columns["log_offset"], "it is shown"
                )

    def job(self, name: str, app: str = "gromacs", user: str = "amara", ranks: int = 64, age: float = 600.0) -> Row:
        """A row of `jobs`."""
        nodes = max(1, ranks // 64)
        cluster = name.partition("/")[0]
        return {"job": name, "cluster": cluster, "workload": f"{cluster}/{app}@{ranks}x{nodes}", "app": app,
                "user": user, "params": '{"input": "a.in"}', "ranks": ranks, "nodes": nodes, "host": "n001",
                "started_at": self.now - age, "scheduler": "none", "account": "", "unique_id": ""}  # fmt: skip

    def score(self, job: Row, state: str = "healthy", slowdown: float = 1.01, since: float = 120.0, **more: Any) -> Row:
        """A row of `scores`; since: seconds ago."""
        slow = state in ("slow", "stalled")
        onset = self.now - since if slow else math.nan
        score = float(self._rng.uniform(1.1, 9.0) if slow else self._rng.uniform(0.01, 0.4))
        clock = time.strftime("%H:%M:%S", time.localtime(onset if slow else self.now))
        sentence = {
            "slow": f"slow: {slowdown:.2f}x its history since {clock}: n001 worked 1.9 ms longer per sync point, the"
            f" others waited (score {score:.1f})",
            "stalled": f"stalled: no sync point since {clock}, far longer than any interval of its history",
            "healthy": f"healthy: {slowdown:.2f}x its history (score {score:.2f}, slow above 1)",
        }[state]
        return {"job": job["job"], "workload": job["workload"], "state": state, "score": score,
                "slowdown": slowdown, "onset_at": onset, "alarmed_at": onset + 9, "windows": 300, "final": 0,
                "sentence": sentence, "time": self.now - 1, "cause": "straggler" if slow else "none", "members": "[]",
                "evidence": "{}", "basis": "history", "recovered_at": math.nan, "hosts": "[]",
                **more}  # fmt: skip

    def blocks(self, job: Row, points: int, slow_from: float = 1.0, factor: float = 1.5) -> list[Row]:
        """Rows of `blocks` over the job's life; slower by `factor` after the share `slow_from` of it."""
        age = min(self.now - job["started_at"], 800.0)
        rows = []
        for i in range(points):
            seconds = INTERVAL * self._rng.lognormal(0, 0.02) * (factor if i >= slow_from * points else 1.0)
            count = 20
            rows.append(
                {"job": job["job"], "world": 0, "class_id": CLASS, "first_index": count * i, "count": count,
                 "sum_seconds": count * seconds, "sum_squares": count * seconds**2, "sum_cubes": count * seconds**3,
                 "min_seconds": 0.97 * seconds, "max_seconds": seconds * (1 + self._rng.gamma(1.0, 0.05)),
                 "ended_at": self.now - age + age * (i + 1) / points}
            )  # fmt: skip
        return rows

    def band(self, job: Row) -> Row:
        """The band of the job's class."""
        return {"workload": job["workload"], "class_id": CLASS, "kind": "interval", "method": "tracked", "samples": 256,
                "runs": 12, "lower_seconds": 0.94 * INTERVAL, "expected_seconds": INTERVAL,
                "upper_seconds": 1.09 * INTERVAL, "shape": math.nan, "location_seconds": math.nan,
                "scale_seconds": math.nan, "fitted_at": self.now - 5000}  # fmt: skip

    def node_blocks(self, job: Row, hosts: int, slow_from: float, late: int = 1) -> list[Row]:
        """Rows of `node_blocks`: from the share `slow_from` of them on, node number `late` works longer."""
        rows = []
        for i in range(20):
            for host in range(hosts):
                own = 0.0031 + (0.0019 if host == late and i >= 20 * slow_from else 0.0)
                rows.append(
                    {"job": job["job"], "host": f"n{host:03}", "world": 0, "ranks": 16, "first_index": 64 * i,
                     "length": 64, "count": 64, "last_rank": 5, "last_count": 40, "late_seconds": 0.02, "own_rank": 5,
                     "own_rank_seconds": 0.2, "own_seconds": own * 64 * 16, "p2p_seconds": 0.0,
                     "wait_seconds": (0.0052 - own) * 64 * 16, "least_wait_seconds": 0.001,
                     "ended_at": self.now - 400 + 20 * i}
                )  # fmt: skip
        return rows

    def workers(self, job: Row, count: int, slow: int) -> list[Row]:
        """Rows of `workers` of a training: number `slow` works for 90 ms a step, the others for 60."""
        return [
            {"job": job["job"], "host": f"n{rank // 2:03}", "world": 0, "rank": rank, "count": 20,
             "own_seconds": 20 * (0.09 if rank == slow else 0.06), "cpu_seconds": 20 * 0.05,
             "update_seconds": 20 * 0.002, "wait_seconds": 20 * (0.01 if rank == slow else 0.04), "bytes": 4096,
             "ended_at": self.now - 100 + i}
            for i in range(3) for rank in range(count)
        ]  # fmt: skip

    def run(self, job: Row, seconds: float, status: int = 0) -> Row:
        """A row of `runs`."""
        return {"job": job["job"], "ended_at": job["started_at"] + seconds, "runtime_seconds": seconds,
                "exit_status": status, "intervals": 1000, "dropped": 0, "imported": 0}  # fmt: skip

    def prediction(self, job: Row, expected: float) -> Row:
        """A row of `predictions`."""
        application = f"{job['cluster']}/{job['app']}"
        return {"job": job["job"], "application": application, "problem": "", "ranks": job["ranks"],
                "nodes": job["nodes"], "model": "power", "runs": 12, "scales": 3, "method": "scaling",
                "lower_seconds": 0.9 * expected,
                "expected_seconds": expected, "upper_seconds": 1.12 * expected, "made_at": self.now - 60}  # fmt: skip

    def outcome(self, job: Row, error: float) -> Row:
        """A row of `outcomes`."""
        return {"job": job["job"], "application": f"{job['cluster']}/{job['app']}", "method": "scaling",
                "result": "inside" if abs(error) < 0.1 else "outside", "expected_seconds": 100 * (1 + error),
                "actual_seconds": 100.0, "relative_error": error, "time": self.now - 3600}  # fmt: skip

    def put_running(self, count: int) -> list[Row]:
        """So many running jobs; of a hundred 3 are disturbed, 5 not judged yet. Returns their rows of `jobs`."""
        jobs, scores, blocks = [], [], []
        for number in range(count):
            app, ranks = APPS[number % len(APPS)]
            user = USERS[(number // 7) % len(USERS)]
            age = float(self._rng.uniform(120, 40_000))
            job = self.job(f"lab/{4_700_000 + number}.0.0", app, user, ranks * 2 ** (number % 4), age)
            jobs.append(job)
            kind = number % 100
            if kind in (17, 51):
                # One that stalls is rare.
                state = {17: "slow", 51: "stalled" if number % 1000 == 51 else "slow"}[kind]
                slowdown = {"slow": float(self._rng.uniform(1.1, 1.9)), "stalled": math.nan}[state]
                scores.append(self.score(job, state, slowdown, since=0.4 * min(age, 800.0)))
            elif kind % 20 != 5:
                scores.append(self.score(job, slowdown=float(self._rng.normal(1.0, 0.01))))
            blocks += self.blocks(job, 24, 0.6 if kind == 17 else 1.0)
        self.put("jobs", jobs)
        self.put("blocks", blocks)
        self.put("scores", scores)
        self.put("bands", [self.band(job) for job in jobs[:100]])
        return jobs


class SharedFleet(Fleet):
    """The same rows in the logs of several shards, those of a user's jobs in one of them, and bands in all.

    Agents choose by endpoint; here by the number of the log, so that the split does not depend on ports.
    """

    def __init__(self, endpoints: Sequence[str], now: float, seed: int = 1) -> None:
        super().__init__(endpoints[0], now, seed)
        others = [Fleet(one, now, seed) for one in endpoints[1:]]
        self._users: dict[str, str] = {}
        self._fleets: dict[str, Fleet] = {f"log {number}": fleet for number, fleet in enumerate([self, *others])}

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """Append these rows, each to its log."""
        if table == "jobs":
            self._users |= {row["job"]: row["user"] for row in rows}
        for log, fleet in self._fleets.items():
            if rows and "job" in rows[0]:
                found = [row for row in rows if self._log_of(row["job"]) == log]
            else:
                found = rows if fleet is self or table == "bands" else []
            Fleet.put(fleet, table, found)

    def _log_of(self, job: str) -> str:
        return shard_of("lab", self._users.get(job, ""), list(self._fleets))

    def deliver(self) -> None:
        """Wait until the logs have it all."""
        for fleet in self._fleets.values():
            Fleet.deliver(fleet)


def put_examples(fleet: Fleet) -> None:
    """Eight running jobs of two users, one of them slow, and ended runs."""
    jobs = [
        fleet.job(f"lab/{n}.0.0", user="amara" if n % 2 else "boris", age=500 if n == 3 else 500 + n)
        for n in range(1, 9)
    ]
    slow, fresh = jobs[0], jobs[7]
    fleet.put("jobs", jobs)
    fleet.put("sites", [site_row(job, "md.cpp:12", HOSTILE) for job in jobs])
    fleet.put("sites", [site_row({"job": "lab/66.0.0"}, "forged.c:1", "forged.c:2")])
    fleet.put("blocks", [row for job in jobs for row in fleet.blocks(job, 60, 0.5 if job is slow else 1.0)])
    fleet.put("node_blocks", fleet.node_blocks(slow, 3, 0.5))
    fleet.put("workers", fleet.workers(jobs[1], 4, slow=3))
    fleet.put("scores", [fleet.score(job) for job in jobs if job is not fresh])
    fleet.put("scores", [fleet.score(slow, "slow", 1.34, 250, score=8.0, sentence=f"slow: 1.34x {HOSTILE}")])
    recovered = {"score": 0.2, "recovered_at": fleet.now - 20}
    fleet.put("scores", [fleet.score(jobs[2], "slow", 1.2, 100, sentence="slow: for a while", **recovered)])
    fleet.put("bands", [fleet.band(slow)])
    fleet.put("predictions", [fleet.prediction(slow, 700.0)])
    ended = [fleet.job(f"lab/{n}.0.0", "wrf", "amara", 32 * 2 ** (n % 3), age=4000) for n in range(100, 112)]
    fleet.put("jobs", ended)
    fleet.put("runs", [fleet.run(job, 100 + 3.0 * n) for n, job in enumerate(ended)])
    fleet.put(
        "outcomes", [fleet.outcome(job, 0.02 * n - 0.1) | {"time": fleet.now - 3600 + n} for n, job in enumerate(ended)]
    )
    fleet.put("scores", [fleet.score(ended[0], "slow", 1.5, 3500, final=1, sentence="slow: as it was")])
    rebuilt = {"kind": "runtime-changed", "rows": 5, "detail": "8 % slower since build 3f2a1c", "time": fleet.now - 60}
    fleet.put("events", [{"source": f"lab/{app}@32x1+a1b2c3", **rebuilt} for app in ("wrf", "wrf2")])


def site_row(job: Row, before: str, at: str) -> Row:
    """The row of `sites` of a job for CLASS."""
    return {"job": job["job"], "class_id": CLASS, "from_site": before, "to_site": at, "operation": "Allreduce"}
