"""Healthy and slow nodes as series of their own work, and what the test for nodes makes of them."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_agent.reduce.library import load
from barograph_alerts.detection.alarm import ALPHA, MARGIN
from barograph_alerts.detection.node_test import JobNodes, NodeSpan, NodeTest
from barograph_alerts.places import PlaceHistory, PlaceWork, over_median_of_others

SECONDS: Final = 2.0
"""Length of a span."""
FREEDOM: Final = 5
"""Degrees of freedom of the noise."""
BURST: Final = 0.003
"""Probability that a node takes 5 to 50 % longer for one span."""
MODE: Final = 0.1
"""Probability of the second mode, 3 % longer."""
SHIFT: Final = 0.02
"""Levels of nodes move by up to so much, once in a job: less than the margin."""
LEVEL: Final = 0.2
NODES: Final = 0.01
"""Standard deviation of the speed of nodes."""
TICK: Final = 0.002
"""Resolution of own work."""

Floats = npt.NDArray[np.float64]


class NodeSeries(NamedTuple):
    """Own work of the nodes of one job, spans x nodes. slow: a node, from `onset` on, or -1."""

    own: Floats
    slow: int
    onset: int


def draw(
    rng: np.random.Generator,
    nodes: int,
    spans: int = 300,
    factor: float = 1.0,
    onset: int = 0,
    noise: float = 0.0,
    level: float = LEVEL,
) -> NodeSeries:
    """A job. factor: of the work of one node, from span `onset` on. noise: its standard deviation, drawn if it is 0.
    level: standard deviation of the work that the program gives to nodes, in every other job.

    The program gives each node another share of the work. Noise is heavy-tailed, correlated in time and as large as
    drawn for the job, 0.5 to 4 %; what the nodes have in common varies as well. Own work has two modes and a
    resolution, there are bursts, and levels move.
    """
    sd, phi = noise or rng.uniform(0.005, 0.04), rng.uniform(0.0, 0.9)
    own_noise = _correlated(rng, spans, nodes, phi) * sd
    common = np.cumsum(rng.standard_normal((spans, 1)), axis=0) * 0.01
    levels = level * rng.standard_normal(nodes) * (rng.random() < 0.5)
    bursts = (rng.random((spans, nodes)) < BURST) * np.log(rng.uniform(1.05, 1.5, (spans, nodes)))
    modes = (rng.random((spans, nodes)) < MODE) * 0.03
    shifts = (np.arange(spans)[:, None] >= rng.integers(0, spans, nodes)) * rng.uniform(-SHIFT, SHIFT, nodes)
    own = np.exp(levels + common + own_noise + bursts + modes + shifts)
    # The one with most work, which delays all.
    slow = int(levels.argmax()) if factor != 1.0 else -1
    if slow >= 0:
        own[onset:, slow] *= factor
    return NodeSeries(np.maximum(np.round(own / TICK), 1) * TICK, slow, onset)


def alarms(series: NodeSeries, alpha: float = ALPHA / 16, margin: float = MARGIN) -> tuple[int, tuple[str, ...]]:
    """The span with which the first alarm is raised, and the names; -1 and none without one."""
    test = NodeTest(alpha, margin, JobNodes(series.own.shape[1]))
    for i, own in enumerate(series.own):
        names = {f"n{k}": value for k, value in enumerate(own.tolist())}
        pace = float(own.max())
        test.add(NodeSpan(i * SECONDS, (i + 1) * SECONDS, names, names, pace, {1: SECONDS}), disturbed=False)
        if test.score > 1 and (slow := test.slow()) is not None:
            return i, slow.names
    return -1, ()


def always_alarms(
    rng: np.random.Generator, nodes: int, runs: int, factor: float = 1.0
) -> tuple[float, tuple[str, ...]]:
    """One more run of a program that may divide its work unevenly, after healthy ones on other nodes.

    Seconds until a node is named that is slow from the begin, and the names; -1 and none without one. runs: healthy
    ones before it. factor: of the work of node n1.

    Nodes differ by NODES; what the program gives to places differs between runs by a share drawn for the program. The
    short first spans have as much noise as long ones.
    """
    level = 0.1 * rng.standard_normal(nodes) * (rng.random() < 0.5)
    noise, between = rng.uniform(0.005, 0.04), rng.uniform(0.0, 0.02) * (rng.random() < 0.5)

    def own(spans: int) -> Floats:
        found = draw(rng, nodes, spans, noise=noise, level=0.0).own
        divided = level + between * rng.standard_t(FREEDOM, nodes)
        return np.asarray(found * np.exp(divided + NODES * rng.standard_normal(nodes)), float)

    history, hosts = PlaceHistory(nodes), tuple(f"n{k}" for k in range(nodes))
    for _ in range(runs):
        logs = np.log(own(50).mean(axis=0))
        history.add(PlaceWork(hosts, {1: (100.0, over_median_of_others(logs))}))
    test = NodeTest(ALPHA / 16, MARGIN, JobNodes(nodes, history))
    last = own(50)
    last[:, 1] *= factor
    ended = 0.0
    for row in last:
        names = dict(zip(hosts, row.tolist(), strict=True))
        # Sidecars have counted the ranks after a second.
        known = dict(zip(hosts, range(nodes), strict=True)) if ended >= 1 else {}
        began, ended = ended, ended + load().block_seconds(ended)
        span = NodeSpan(began, ended, names, names, float(row.max()), {1: SECONDS}, known)
        test.add(span, disturbed=False)
        # The job is slower than its history for another reason.
        if (slow := test.always_slow(2.0)) is not None:
            return ended, slow.names
    return -1, ()


def _correlated(rng: np.random.Generator, spans: int, nodes: int, phi: float) -> Floats:
    """Series of variance 1 with this lag-1 correlation."""
    shocks = rng.standard_t(FREEDOM, (spans + 50, nodes)) / math.sqrt(FREEDOM / (FREEDOM - 2)) * math.sqrt(1 - phi**2)
    for t in range(1, len(shocks)):
        shocks[t] += phi * shocks[t - 1]
    return shocks[50:]
