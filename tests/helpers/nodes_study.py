"""A machine of many nodes, some of them slow, before the scorer: which nodes are named, how many wrongly, at what cost.

Jobs of 2 to MAX_JOB_NODES nodes follow each other on random nodes of a simulated hour. Each is of a program of its own,
without any history, or of one of a few that have run before. A rank works, all wait for the slowest; nodes, and what a
program gives to them, differ by some per cent. Each node reports every two seconds, as a sidecar does.

Beside the service an oracle tells slow nodes from others by the same jobs: a likelihood ratio with all that the
simulation is drawn from, of which the service knows nothing. Nobody can name more nodes with as few wrong ones.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, Final, NamedTuple

import numpy as np

from barograph_alerts.attribution.fleet import FALSE_NODES
from barograph_alerts.places import over_median_of_others
from barograph_alerts.processor import BLAMING, Scorer
from barograph_collector.daemon.runner import Output

TICK: Final = 2.0
SYNCS: Final = 32
"""Sync points of a node's row: a power of two."""
BEGAN: Final = 1_700_000_000.0
CLASS: Final = 7
RANKS: Final = 4
"""Ranks on each node."""
MAX_JOB_NODES: Final = 64
BETWEEN_NODES: Final = 0.01
IMBALANCE: Final = 0.02
"""Standard deviation of the work that a program gives to its nodes."""
JITTER: Final = 0.01
UNEVEN: Final = 0.1
"""The same as IMBALANCE of every third of the programs that run again."""
BETWEEN_RUNS: Final = 0.005
"""Standard deviation of that work between runs of the same program."""
BEFORE_SECONDS: Final = 150.0
"""Length of the runs before the hour."""


class NodesPlan(NamedTuple):
    """A machine. jobs: that begin within the hours. slow: share of the nodes. factor: of their work.

    onset_hours: the latest time at which a slow node becomes slow, drawn for each. programs: that jobs are of, the k-th
    as often as 1 / k; with 0 each job is of its own. before: runs of each before the hours, with no slow node.
    """

    nodes: int = 1000
    jobs: int = 200
    hours: float = 1.0
    slow: float = 0.02
    factor: float = 1.2
    onset_hours: float = 0.0
    programs: int = 0
    before: int = 3
    seed: int = 1
    live: bool = True


class NodesResult(NamedTuple):
    """slow, used: slow nodes, and those of them that had a job on several nodes. found: of these, named by a verdict or
    suspected. wrong: other nodes that were. rows: of nodes. seconds: processor time of the scorer. possible: of `used`,
    those that the oracle names, and possible_wrong: others that it names; of nodes that are slow from the begin."""

    plan: NodesPlan
    slow: int
    used: int
    found: int
    wrong: int
    jobs: int
    rows: int
    seconds: float
    possible: int = 0
    possible_wrong: int = 0


class _Program(NamedTuple):
    """What a program gives to each of its nodes, as a share."""

    name: str
    work: np.ndarray
    spread: float
    runs: list[np.ndarray]
    """What its places had in the runs before the hours: logarithms over the median."""


class _Oracle:
    """Likelihood ratios of nodes with the true parameters."""

    def __init__(self, plan: NodesPlan) -> None:
        self._plan = plan
        self.ratios = np.zeros(plan.nodes)
        """Logarithms, that a node is slow."""

    def add(self, program: _Program, nodes: np.ndarray, own: np.ndarray) -> None:
        """Add a job. own: work of its nodes."""
        x = np.log(own / np.median(own))
        variance = BETWEEN_NODES**2 + BETWEEN_RUNS**2
        if program.runs:
            x -= np.mean(program.runs, axis=0)
            variance *= 1 + 1 / len(program.runs)
        else:
            variance += program.spread**2
        more, shift = over_median_of_others(x), np.log(self._plan.factor)
        # The median of m values has a variance of pi / 2 m.
        variance *= 1 + np.pi / 2 / max(nodes.size - 1, 1)
        self.ratios[nodes] += shift * (more - shift / 2) / variance

    def named(self) -> set[int]:
        """The nodes of which at most FALSE_NODES are expected to be ordinary."""
        slow = max(self._plan.slow, 1e-9)
        ordinary = 1 / (1 + slow / (1 - slow) * np.exp(np.clip(self.ratios, -500, 500)))
        order = np.argsort(ordinary)
        means = np.cumsum(ordinary[order]) / np.arange(1, order.size + 1)
        return set(order[means <= FALSE_NODES].tolist())


class _RunningJob:
    def __init__(self, program: _Program, name: str, nodes: np.ndarray, ends_at: float, work: np.ndarray) -> None:
        self.program = program
        self.name, self.nodes, self.ends_at = name, nodes, ends_at
        self.work = TICK / SYNCS * work
        self.sync = 0
        self.own = np.zeros(nodes.size)


class NodesStudy:
    """Runs a plan."""

    def __init__(self, plan: NodesPlan) -> None:
        self._plan = plan
        self._rng = np.random.default_rng(plan.seed)
        self._scorer = Scorer()
        self._oracle = _Oracle(plan)
        self._speed = np.maximum(1 + BETWEEN_NODES * self._rng.standard_normal(plan.nodes), 0.5)
        self._slow = self._rng.permutation(plan.nodes)[: round(plan.slow * plan.nodes)]
        self._onset = np.full(plan.nodes, np.inf)
        self._onset[self._slow] = 3600 * plan.onset_hours * self._rng.random(self._slow.size)
        self._programs = [self._program(f"program{number}", number % 3 == 0) for number in range(plan.programs)]
        self._free = np.ones(plan.nodes, bool)
        self._running: list[_RunningJob] = []
        self._began = self._before = 0
        self._named: Counter[str] = Counter()
        self._used: set[int] = set()
        self._rows = 0
        self._seconds = 0.0

    def run(self) -> NodesResult:
        """Pass the hours, and end all jobs."""
        plan, at = self._plan, 0.0
        self._run_before()
        starts = np.sort(self._rng.random(plan.jobs)) * 3600 * plan.hours
        starts[: plan.jobs // 4] = 0.0
        starts.sort()
        while at <= 3600 * plan.hours:
            while self._began < plan.jobs and starts[self._began] <= at and self._begin(at):
                pass
            at += TICK
            self._tick(at)
        for job in self._running:
            job.ends_at = at
        for _ in range(5):
            at += TICK
            self._tick(at)
        names = {f"n{number}" for number in self._slow}
        named = set(self._named) | {one.host for one in self._scorer.suspects() if one.suspected}
        used = {f"n{number}" for number in self._used} & names
        possible = {f"n{number}" for number in self._oracle.named()}
        return NodesResult(
            plan,
            len(names),
            len(used),
            len(named & used),
            len(named - names),
            self._began,
            self._rows,
            self._seconds,
            len(possible & used),
            len(possible - names),
        )

    def _program(self, name: str, is_uneven: bool = False) -> _Program:
        wanted = int(2 ** self._rng.uniform(1, np.log2(MAX_JOB_NODES)))
        spread = UNEVEN if is_uneven else IMBALANCE
        return _Program(name, np.maximum(1 + spread * self._rng.standard_normal(wanted), 0.5), spread, [])

    def _run_before(self) -> None:
        """The runs of all programs before the hours; what they cost and say does not count."""
        at = -(self._plan.before * (BEFORE_SECONDS + 10 * TICK))
        for _ in range(self._plan.before if self._programs else 0):
            for program in self._programs:
                self._start(program, at, BEFORE_SECONDS)
            for _ in range(round(BEFORE_SECONDS / TICK) + 10):
                at += TICK
                self._tick(at)
        self._named.clear()
        self._used.clear()
        self._rows, self._seconds = 0, 0.0
        self._before, self._began = self._began, 0

    def _begin(self, at: float) -> bool:
        """Begin the next job on free nodes; False where there are too few."""
        if self._programs:
            share = 1 / np.arange(1, len(self._programs) + 1)
            program = self._programs[self._rng.choice(len(self._programs), p=share / share.sum())]
        else:
            program = self._program(f"app{self._began}")
        return self._start(program, at, float(self._rng.uniform(300, 3600)))

    def _start(self, program: _Program, at: float, seconds: float) -> bool:
        wanted = program.work.size
        free = np.flatnonzero(self._free)
        if free.size < wanted:
            return False
        nodes = self._rng.choice(free, wanted, replace=False)
        self._free[nodes] = False
        self._used.update(nodes.tolist())
        number = self._before + self._began
        name = f"lab/{number}.0.0"
        work = program.work * np.maximum(1 + BETWEEN_RUNS * self._rng.standard_normal(wanted), 0.5)
        self._running.append(_RunningJob(program, name, nodes, at + seconds, work))
        self._began += 1
        ranks = wanted * RANKS
        columns: dict[str, Any] = {
            "job": [name], "cluster": ["lab"], "workload": [f"lab/{program.name}@{ranks}x{wanted}"],
            "app": [program.name], "user": ["u"], "params": ["{}"], "ranks": np.array([ranks]),
            "nodes": np.array([wanted]), "host": [f"n{nodes[0]}"], "started_at": np.array([BEGAN + at]),
            "scheduler": ["none"], "account": [""], "unique_id": [""], "log_offset": np.array([number + 1]),
        }  # fmt: skip
        self._observe("jobs", columns, at)
        self._observe("nodes", self._nodes(self._running[-1]), at)
        return True

    def _tick(self, at: float) -> None:
        """Two seconds of all jobs."""
        node_rows: dict[str, list[Any]] = {}
        block_rows: dict[str, list[Any]] = {}
        ended = [job for job in self._running if job.ends_at < at]
        for job in self._running:
            if job not in ended:
                self._advance(job, at, node_rows, block_rows)
        for table, rows in (("node_blocks", node_rows), ("blocks", block_rows)):
            if rows:
                columns = {name: _column(values) for name, values in rows.items()}
                self._rows += len(columns["job"]) if table == "node_blocks" else 0
                self._observe(table, columns, at)
        for job in ended:
            self._end(job, at)
        began = time.process_time()
        outputs = self._scorer.step(BEGAN + at)
        self._seconds += time.process_time() - began
        self._take(outputs)

    def _advance(
        self, job: _RunningJob, at: float, node_rows: dict[str, list[Any]], block_rows: dict[str, list[Any]]
    ) -> None:
        rng, n = self._rng, job.nodes.size
        factor = np.where(self._onset[job.nodes] <= at, self._plan.factor, 1.0) * self._speed[job.nodes]
        if not self._plan.live and at > 0:
            job.own += job.work * factor * (SYNCS + JITTER * SYNCS**0.5 * rng.standard_normal(n))
            job.sync += SYNCS
            return
        own = job.work * factor * np.maximum(1 + JITTER * rng.standard_normal((SYNCS, n)), 0.1)
        lengths = own.max(axis=1) + 1e-4
        total, waits = own.sum(axis=0), (lengths[:, None] - own).sum(axis=0)
        job.own += total
        each = {
            "job": [job.name] * n, "host": [f"n{node}" for node in job.nodes], "world": [0] * n, "ranks": [RANKS] * n,
            "first_index": [job.sync] * n, "length": [SYNCS] * n, "count": [SYNCS] * n, "last_rank": [0] * n,
            "last_count": [SYNCS] * n, "late_seconds": [0.0] * n, "own_rank": [0] * n, "own_rank_seconds": total,
            "own_seconds": RANKS * total, "p2p_seconds": [0.0] * n, "wait_seconds": RANKS * waits,
            "least_wait_seconds": waits, "ended_at": [BEGAN + at] * n,
        }  # fmt: skip
        for name, values in each.items():
            node_rows.setdefault(name, []).extend(values)
        one = {
            "job": job.name, "world": 0, "class_id": CLASS, "first_index": job.sync, "count": SYNCS,
            "sum_seconds": lengths.sum(), "sum_squares": (lengths**2).sum(), "sum_cubes": (lengths**3).sum(),
            "min_seconds": lengths.min(), "max_seconds": lengths.max(), "ended_at": BEGAN + at,
        }  # fmt: skip
        for name, value in one.items():
            block_rows.setdefault(name, []).append(value)
        job.sync += SYNCS

    def _end(self, job: _RunningJob, at: float) -> None:
        n = job.nodes.size
        self._running.remove(job)
        self._free[job.nodes] = True
        hosts = [f"n{node}" for node in job.nodes]
        if job.sync:
            if at > 0:
                self._oracle.add(job.program, job.nodes, job.own)
            else:
                job.program.runs.append(np.log(job.own / np.median(job.own)))
            self._observe(
                "phases",
                {
                    "job": [job.name] * n, "host": hosts, "class_id": np.full(n, CLASS, np.uint64),
                    "world": np.zeros(n, np.int64), "ranks": np.full(n, RANKS), "count": np.full(n, job.sync),
                    "own_seconds": RANKS * job.own, "busiest_seconds": job.own,
                },
                at,
            )  # fmt: skip
        self._observe("nodes", self._nodes(job), at)
        self._observe(
            "runs",
            {"job": [job.name], "runtime_seconds": np.array([at]), "exit_status": np.array([0]),
             "intervals": np.array([job.sync]), "imported": np.array([0])},
            at,
        )  # fmt: skip

    def _nodes(self, job: _RunningJob) -> dict[str, Any]:
        """Rows of `nodes`: which ranks each has."""
        n = job.nodes.size
        return {
            "job": [job.name] * n, "host": [f"n{node}" for node in job.nodes], "first": np.arange(n) == 0,
            "number": np.zeros(n, np.int64), "lowest": RANKS * np.arange(n), "ranks": np.full(n, RANKS),
            "world": np.full(n, RANKS * n),
        }  # fmt: skip

    def _observe(self, table: str, columns: dict[str, Any], at: float) -> None:
        began = time.process_time()
        self._scorer.observe(table, columns, BEGAN + at)
        self._seconds += time.process_time() - began

    def _take(self, outputs: list[Output]) -> None:
        """Count the nodes that rows of scores blame."""
        for output in outputs:
            if output.table == "scores" and output.columns["cause"] in BLAMING:
                self._named.update(json.loads(output.columns["members"]))


def _column(values: list[Any]) -> Any:
    return values if isinstance(values[0], str) else np.array(values)
