"""What a sidecar takes from the ranks of a full node: `make bench-noise`, with nothing beside it.

A rank for each core works by the clock, in steps that end with an Allreduce; no daemon runs. Runs come in pairs, alone
and watched. What the pulses mean for many full nodes is simulated: all sidecars work at the same instants, by clocks
that differ. Nothing is asserted about times: other programs on the machine change them.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from barograph_modeler.maxima.sample import Floats
from helpers import mpi as mpis
from helpers.printed import show
from helpers.service import NOWHERE, Node

SECONDS, STARTING, PAIRS = 15, 3.0, 3
SKEW = 0.5e-3
"""Standard deviation of the nodes' clocks, in seconds."""
MIN_PULSE, APART = 0.15e-3, 0.03
"""The least gap in a pulse, and the time that divides two pulses, in seconds."""
RANKS = os.cpu_count() or 1


class Trial(NamedTuple):
    """step: mean length. starting: lost while the sidecar starts. share: of a core, later. pulses: their lengths."""

    step: float
    starting: float
    share: float
    pulses: Floats

    @classmethod
    def of(cls, text: str) -> Trial:
        words = [line.split() for line in text.splitlines()]
        (step,) = (float(one[1]) for one in words if one[0] == "step")
        gaps = np.array(sorted((float(at), float(length)) for _, at, length in (one for one in words if len(one) == 3)))
        at, lengths = gaps.reshape(-1, 2).T
        late, large = at >= STARTING, lengths > MIN_PULSE
        ends = [0, *(np.flatnonzero(np.diff(at[late & large]) > APART) + 1), int((late & large).sum())]
        pulses = np.array([lengths[late & large][first:end].sum() for first, end in pairwise(ends) if end > first])
        return cls(step, lengths[~late].sum(), lengths[late].sum() / (SECONDS - STARTING), pulses)


def slowdown(nodes: int, step: float, pulses: Floats, seconds: int = 8) -> float:
    """How much longer steps of many nodes take. One pulse of each node a second, at the same instant but for SKEW."""
    rng = np.random.default_rng(1)
    starts = np.arange(seconds)[:, None] + 0.1 + rng.normal(0, SKEW, (seconds, nodes))
    lengths = rng.choice(pulses, (seconds, nodes))
    now, steps = 0.0, 0
    while now < seconds:
        second = min(int(now), seconds - 1)
        left = np.clip(starts[second] + lengths[second] - np.maximum(starts[second], now), 0.0, None)
        ends = now + step + np.where(starts[second] < now + step, left, 0.0)
        now, steps = float(ends.max()), steps + 1
    return now / (steps * step) - 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("microseconds", [60, 1000])
def test_what_a_sidecar_takes_from_a_full_node(microseconds: int, tmp_path: Path) -> None:
    mpi = mpis.find("debian-openmpi")
    program = mpi.compile(Path(__file__).parent / "programs/detours.c", tmp_path / "detours", "-O2")
    words = [program, str(SECONDS), str(microseconds)]
    node = Node(tmp_path, NOWHERE)
    made: dict[bool, list[Trial]] = {False: [], True: []}
    for _ in range(PAIRS):
        made[False].append(Trial.of(mpi.run(RANKS, words, {}).stdout))
        made[True].append(Trial.of(node.run(*mpi.command(RANKS, words), drain=0).stdout))
    ratios = [watched.step / alone.step for alone, watched in zip(*made.values(), strict=True)]
    show(
        f"{RANKS} ranks on {RANKS} cores, steps of {microseconds} us: watched over alone {np.median(ratios):.4f}"
        f" ({min(ratios):.4f} to {max(ratios):.4f})",
        (
            f"{'watched' if is_watched else 'alone':8} step {1e6 * np.median([one.step for one in trials]):8.2f} us;"
            f" first {STARTING:g} s {1e3 * np.median([one.starting for one in trials]):4.0f} ms; then"
            f" {np.median([one.share for one in trials]):.2%} of a core,"
            f" {len(pulses) / PAIRS / (SECONDS - STARTING):.1f} pulses a second, p50, p90 and longest"
            f" {', '.join(f'{1e3 * one:.2f}' for one in np.quantile(pulses, [0.5, 0.9, 1.0]))} ms"
            for is_watched, trials in made.items()
            if len(pulses := np.concatenate([one.pulses for one in trials]))
        ),
    )
    pulses = np.concatenate([one.pulses for one in made[True]])
    show(
        "Full nodes, one such pulse a second each, at the same instants: how much longer steps take",
        (
            f"steps of {1e3 * step:g} ms: "
            + ", ".join(f"{nodes:,} nodes {slowdown(nodes, step, pulses):+.2%}" for nodes in (1, 16, 256, 4096))
            for step in (1e-3, 1e-2, 1e-1)
        ),
    )
