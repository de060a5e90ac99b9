"""Simulated runs of a bulk-synchronous program on 1 to 65,536 ranks, and what Barograph measures of them.

An interval of a class ends when the slowest rank has worked, exchanged its halo and come to the collective:

    own        = cell load**exponent cache(load) contention(r) (1 + node + rank + jitter) + noise of the system
    exchange   = messages x (latency + load**(2/3) x bytes x seconds per byte x (1 + congestion log2 m))
    collective = near step x log2 r + step x log2 m + bytes x seconds per byte x log2 p
    interval   = largest own of all ranks + exchange + collective

r: ranks per node, m: nodes. `node` and `rank` are drawn for each run, jitter and noise for each interval.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.parts.measurement import PhaseMeasurement, PhaseRun
from barograph_modeler.studies.parts.scenario import PhaseTruth, Scenario

MAX_INTERVALS: Final = 48
"""Intervals of a class that are simulated; a run with more has as many times their mean."""
MIN_ITERATIONS: Final = 10
MAX_MEASURED: Final = 512
"""Values that a measured distribution of deviations is kept as."""
MAX_KEPT: Final = 1 << 20
"""Values of own work that are kept for a measurement; larger runs have their mean only."""
EXTREMES: Final = 64
"""Largest values among these that stand for themselves."""
INTERVAL_NOISE: Final = 0.05
"""Standard deviation of communication between intervals, as a share."""


def simulate(scenario: Scenario, ranks: int, size: float, rng: np.random.Generator) -> PhaseRun:
    """One run. ranks: 1 or more. size: cells of the problem."""
    machine = scenario.machine
    per_node = min(ranks, machine.per_node)
    nodes = -(-ranks // per_node)
    reference = scenario.cells if scenario.is_strong else scenario.cells * 64
    growth = (size / reference) ** scenario.by_size * (ranks / 64) ** scenario.by_ranks
    iterations = max(MIN_ITERATIONS, round(scenario.iterations * growth))
    speed = machine.between * rng.standard_normal(nodes)
    static = np.repeat(speed, per_node)[:ranks] + machine.within * rng.standard_normal(ranks)
    network = float(np.exp(machine.network * rng.standard_normal()))
    phases = {
        name: _phase(scenario, one, size / ranks, per_node, nodes, static, network, iterations, rng)
        for name, one in scenario.phases.items()
    }
    other = (scenario.start + scenario.per_cell * size) * float(np.exp(0.02 * rng.standard_normal()))
    seconds = other + sum(one.count * (one.slowest + one.exchange + one.collective) for one in phases.values())
    return PhaseRun(ranks, nodes, size, seconds, other, phases)


def _phase(
    scenario: Scenario,
    phase: PhaseTruth,
    load: float,
    per_node: int,
    nodes: int,
    static: Floats,
    network: float,
    iterations: int,
    rng: np.random.Generator,
) -> PhaseMeasurement:
    machine, ranks = scenario.machine, static.size
    fits = 1 / (1 + (load / phase.cache_cells) ** 2)
    others = per_node - 1
    shared = 1 + phase.contention * others / (others + phase.half)
    mean = phase.cell * load**phase.exponent * (1 - phase.cache * fits) * shared
    count = iterations * phase.times
    simulated = min(count, MAX_INTERVALS)
    slowest = np.empty(simulated)
    own = np.empty((simulated, ranks)) if ranks * simulated <= MAX_KEPT else None
    for i in range(simulated):
        work = mean * np.maximum(1 + static + phase.jitter * rng.standard_normal(ranks), 0.05)
        work = work + machine.noise.draw(work, rng)
        slowest[i] = work.max()
        if own is not None:
            own[i] = work
    messages = min(6, 2 * int(np.log2(ranks))) if ranks > 1 else 0
    sent = messages * phase.fields * load ** (2 / 3)
    latency = machine.message if nodes > 1 else machine.near_message
    tree = machine.near_step * np.log2(per_node) + machine.step * np.log2(nodes)
    between = (1 + INTERVAL_NOISE * rng.standard_normal((2, simulated))).mean(axis=1) * network
    crowded = machine.byte * (1 + machine.congestion * np.log2(nodes))
    exchange = float((messages * latency + sent * crowded) * between[0])
    collective = float((tree + phase.reduced * machine.reduced_byte * np.log2(ranks)) * between[1])
    unknown = (mean, np.nan, np.nan, np.zeros(1), np.ones(1))
    own_mean, apart, inside, deviations, shares = unknown if own is None else _measured(own, per_node)
    return PhaseMeasurement(
        count=float(count),
        own=own_mean,
        between=apart,
        within=inside,
        deviations=deviations,
        shares=shares,
        slowest=float(slowest.mean()),
        exchange=exchange,
        messages=messages,
        exchange_bytes=sent,
        collective=collective,
        collective_bytes=phase.reduced,
    )


def _measured(own: Floats, per_node: int) -> tuple[float, float, float, Floats, Floats]:
    """Mean, spreads between and within nodes, deviations and their shares, from (intervals, ranks) seconds."""
    intervals, ranks = own.shape
    mean = float(own.mean())
    of_ranks = own.mean(axis=0)
    deviations = np.sort(((own - of_ranks) / mean).ravel())
    scatter = float(((own - of_ranks) / mean).var()) / max(intervals - 1, 1)
    nodes = (of_ranks / mean).reshape(-1, per_node) if ranks % per_node == 0 else (of_ranks / mean)[None]
    inside = float(nodes.var(axis=1, ddof=1).mean()) if per_node > 1 else np.nan
    outside = float(nodes.mean(axis=1).var(ddof=1)) if len(nodes) > 1 else np.nan
    # The means have the scatter of intervals, and those of nodes that of their ranks.
    within = np.sqrt(max(inside - scatter, 0.0)) if per_node > 1 else np.nan
    between = (
        np.sqrt(max(outside - (inside if per_node > 1 else scatter) / per_node, 0.0)) if len(nodes) > 1 else np.nan
    )
    return mean, float(between), float(within), *_kept(deviations)


def _kept(values: Floats) -> tuple[Floats, Floats]:
    """At most MAX_MEASURED ascending values: the largest as they are, the others as means of equally many."""
    if values.size <= MAX_MEASURED:
        return values, np.full(values.size, 1 / values.size)
    groups = np.array_split(values[:-EXTREMES], MAX_MEASURED - EXTREMES)
    kept = np.concatenate([[group.mean() for group in groups], values[-EXTREMES:]])
    shares = np.concatenate([[group.size for group in groups], np.ones(EXTREMES)]) / values.size
    return kept, shares
