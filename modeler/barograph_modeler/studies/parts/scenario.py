"""A simulated program on a simulated machine: what is drawn from a seed, and what the study learns and predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from barograph_modeler.studies.parts.noise import Noise, synthetic_noise

LEARNED: Final = (1, 2, 4, 8, 16, 32, 64)
TARGETS: Final = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
REPEATS: Final = 2
SMALLER: Final = (1, 8, 64, 512)
"""Strong scaling: the problem, and smaller ones that were run too, with the loads of the problem on many ranks."""
LIGHTER: Final = (1, 4)
"""Weak scaling: the load of a rank, and a lighter one."""


class PhaseTruth(NamedTuple):
    """A call-site class. Seconds and bytes are per interval.

    cell: seconds of a cell of the problem, out of cache, alone on a node. exponent: of the load. cache_cells, cache:
    cells that fit caches, and the share of time that these save. contention, half: largest slowdown by the other ranks
    of a node, and the number of these with half of it. jitter: standard deviation between intervals. fields: bytes that
    a cell of the surface exchanges. reduced: bytes of the collective. times: intervals per iteration.
    """

    cell: float
    exponent: float
    cache_cells: float
    cache: float
    contention: float
    half: float
    jitter: float
    fields: float
    reduced: float
    times: int


class Machine(NamedTuple):
    """per_node: ranks. between, within: standard deviations of the speed of nodes, and of ranks in a node.

    message, near_message: seconds of a message to another and on the same node; byte: seconds per byte. step,
    near_step: of a level of the collective's tree between and on nodes; reduced_byte: seconds per byte and level.
    network: standard deviation of the network's speed between runs. congestion: growth of seconds per byte per doubling
    of nodes.
    """

    per_node: int
    between: float
    within: float
    message: float
    near_message: float
    byte: float
    step: float
    near_step: float
    reduced_byte: float
    network: float
    congestion: float
    noise: Noise


@dataclass(frozen=True)
class Scenario:
    """is_strong: whether the problem stays as it is. cells: of the problem, or of a rank in a weak series.

    iterations: of the problem on 64 ranks. by_size, by_ranks: exponents of iterations. start: seconds of the serial
    part; per_cell: its seconds per cell of the problem.
    """

    is_strong: bool
    cells: float
    iterations: float
    by_size: float
    by_ranks: float
    start: float
    per_cell: float
    machine: Machine
    phases: dict[str, PhaseTruth]

    def learned(self) -> list[tuple[int, float]]:
        """Ranks and size of each learned run."""
        if self.is_strong:
            return [(p, self.cells / less) for less in SMALLER for p in LEARNED for _ in range(REPEATS)]
        return [(p, self.cells / less * p) for less in LIGHTER for p in LEARNED for _ in range(REPEATS)]

    def size(self, ranks: int) -> float:
        """The size that is asked for on so many ranks."""
        return self.cells if self.is_strong else self.cells * ranks


def draw_scenario(rng: np.random.Generator, traces: Sequence[Noise] = ()) -> Scenario:
    """A scenario. traces: measured noise, of which one is drawn; synthetic noise if there are none."""
    strong = bool(rng.random() < 0.5)
    lightest = _log_uniform(rng, 2e-4, 1e-2) if strong else _log_uniform(rng, 5e-3, 1e-1)
    cell = _log_uniform(rng, 5e-9, 2e-7)
    load = lightest / cell
    cells = load * TARGETS[-1] if strong else load
    usual = cells / 64 if strong else cells
    phases = {f"site {i}": _phase(rng, cell, usual) for i in range(int(rng.integers(1, 4)))}
    noise = traces[int(rng.integers(len(traces)))] if traces else synthetic_noise(rng)
    machine = Machine(
        per_node=int(rng.choice([4, 8, 16, 32])),
        between=rng.uniform(0, 0.05),
        within=rng.uniform(0, 0.06),
        message=_log_uniform(rng, 2e-6, 6e-6),
        near_message=_log_uniform(rng, 5e-7, 2e-6),
        byte=1 / _log_uniform(rng, 2e9, 2e10),
        step=_log_uniform(rng, 2e-6, 2e-5),
        near_step=_log_uniform(rng, 3e-7, 1e-6),
        reduced_byte=1 / _log_uniform(rng, 2e9, 2e10),
        network=rng.uniform(0.0, 0.04),
        congestion=rng.uniform(0.0, 0.1),
        noise=noise,
    )
    iterations = float(rng.integers(40, 120))
    seconds = iterations * sum(one.times * one.cell * usual**one.exponent for one in phases.values())
    return Scenario(
        is_strong=strong,
        cells=cells,
        iterations=iterations,
        by_size=float(rng.choice([0.0, rng.uniform(0, 0.15)])),
        by_ranks=float(rng.choice([0.0, rng.uniform(0, 0.06)])),
        start=seconds * _log_uniform(rng, 1e-4, 3e-3),
        per_cell=seconds / (usual * 64) * _log_uniform(rng, 1e-5, 1e-3) * (1.0 if strong else 0.05),
        machine=machine,
        phases=phases,
    )


def _phase(rng: np.random.Generator, cell: float, usual: float) -> PhaseTruth:
    return PhaseTruth(
        cell=cell * rng.uniform(0.3, 1.5),
        exponent=rng.uniform(0.96, 1.03),
        cache_cells=usual * _log_uniform(rng, 1e-3, 1.0),
        cache=rng.uniform(0, 0.4),
        contention=rng.uniform(0, 1),
        half=rng.uniform(2, 10),
        jitter=_log_uniform(rng, 0.003, 0.1),
        fields=_log_uniform(rng, 8, 200),
        reduced=_log_uniform(rng, 8, 1e4),
        times=int(rng.integers(1, 3)),
    )


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
