"""Blocks of several nodes for the same sync points: what is added up, and what becomes of the rest."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_agent.reduce.intervals import Cursor
from barograph_agent.reduce.ranks import Member, NodeReducer
from barograph_agent.ring.reader import Ring
from barograph_alerts.attribution.alignment import MAX_CLOSED, PATIENCE, Alignment, Part
from barograph_alerts.attribution.node_work import NodeWork
from helpers.rings import STARTED_NS, FakeShim

LONGEST = 16
TOTAL = 64
"""Sync points of a block and of a node in the property tests."""


def part(first: int, length: int) -> Part:
    """A block whose sums tell which sync points are in it: own work of sync point i is i + 1."""
    own = length * (2 * first + length + 1) // 2
    return Part(1, length, float(own), 0.0, 0.0, 0.0, float(first + length), [(first, first + length)])


def row(host: str, first: int, length: int, **values: float) -> dict:
    """A row of `node_blocks`."""
    block = part(first, length)
    return {"host": host, "world": 0, "ranks": 1, "first_index": first, "length": length, "count": length,
            "own_seconds": block.own, "own_rank": 0, "own_rank_seconds": block.own, "p2p_seconds": 0.0,
            "wait_seconds": 0.0, "least_wait_seconds": 0.0, "ended_at": block.ended_at} | values  # fmt: skip


def joined(nodes: int, outcomes: Counter) -> NodeWork:
    """Of a job whose rank 0 is on n1."""
    made = NodeWork()
    assert made.begin(nodes, "n1", outcomes) == []
    return made


@st.composite
def tiled(draw: st.DrawFn, total: int = TOTAL) -> list[tuple[int, int]]:
    """The blocks of a node from sync point 0 on: of any lengths 2^m, each at a multiple of its length."""
    at, blocks = 0, []
    while at < total:
        longest = min(LONGEST, (at & -at) or LONGEST, total - at)
        length = 1 << draw(st.integers(0, longest.bit_length() - 1))
        blocks.append((at, length))
        at += length
    return blocks


@st.composite
def delivered(draw: st.DrawFn) -> tuple[int, list[tuple[str, int, int]]]:
    """Number of nodes, and their blocks in an order in which those of a node and of several are mixed."""
    nodes = draw(st.integers(2, 4))
    blocks = [(f"n{number}", *block) for number in range(nodes) for block in draw(tiled())]
    draw(st.randoms(use_true_random=False)).shuffle(blocks)
    return nodes, blocks


@settings(max_examples=100, deadline=None)
@given(delivered())
def test_whatever_the_lengths_and_the_order_all_is_compared_once_with_the_sums_of_the_same_sync_points(made):
    nodes, blocks = made
    outcomes: Counter = Counter()
    alignment = Alignment(nodes, outcomes)
    found = [whole for host, first, length in blocks if (whole := alignment.add(host, part(first, length)))]
    assert outcomes == {"compared": TOTAL * nodes}
    assert alignment.size == 0
    ranges = sorted(whole["n0"].blocks[0] for whole in found)
    assert [ranges[0][0], ranges[-1][1]] == [0, TOTAL]
    assert all(one[1] == other[0] for one, other in pairwise(ranges))
    for whole in found:
        assert len(whole) == nodes
        ((first, end),) = whole["n0"].blocks
        assert {(one.own, one.count) for one in whole.values()} == {(part(first, end - first).own, end - first)}


@settings(max_examples=100, deadline=None)
@given(delivered(), st.data())
def test_what_is_lost_repeated_or_late_is_counted_and_the_rest_compared_over_the_same_sync_points(made, data):
    nodes, blocks = made
    random = data.draw(st.randoms(use_true_random=False))
    outcomes: Counter = Counter()
    alignment = Alignment(nodes, outcomes)
    known = [block for block in blocks if random.random() < 0.9]
    sent = known + random.choices(known or blocks, k=random.randrange(6))
    random.shuffle(sent)
    found, now = [], 0.0
    for host, first, length in sent:
        if whole := alignment.add(host, part(first, length)):
            found.append(whole)
        if random.random() < 0.05:
            now += PATIENCE / 2
            found += alignment.step(now)
    found += alignment.finish()
    # Each sync point of each block has one outcome.
    assert sum(outcomes.values()) == sum(length for _, _, length in sent)
    assert outcomes["compared"] == sum(one.count for whole in found for one in whole.values())
    assert alignment.size == 0
    seen: set[tuple[str, int]] = set()
    for whole in found:
        assert len(whole) >= 2
        (places,) = {tuple(one.blocks) for one in whole.values()}
        ((first, end),) = places
        assert {one.own for one in whole.values()} == {part(first, end - first).own}
        points = {(host, point) for host in whole for point in range(first, end)}
        assert not points & seen
        seen |= points


@settings(max_examples=100, deadline=None)
@given(delivered(), st.data())
def test_a_node_that_begins_anew_at_any_sync_point_loses_what_it_did_not_deliver_and_no_more_than_its_neighbourhood(
    made, data
):
    nodes, blocks = made
    dead = data.draw(st.integers(0, TOTAL)), data.draw(st.integers(0, TOTAL))
    begin, end = min(dead), max(dead)
    whole_first = [(host, first, length) for host, first, length in sorted(blocks, key=lambda block: block[1])
                   if host != "n0" or first + length <= begin or first >= end]  # fmt: skip
    outcomes: Counter = Counter()
    alignment = Alignment(nodes, outcomes)
    for host, first, length in whole_first:
        alignment.add(host, part(first, length))
    list(alignment.finish())
    # The longest block of any node that touches the gap is what n0 cannot be compared in.
    lost = [(f // LONGEST * LONGEST, -(-(f + n) // LONGEST) * LONGEST) for host, f, n in blocks
            if host == "n0" and (host, f, n) not in whole_first]  # fmt: skip
    touched = {point for first, last in lost for point in range(first, last)}
    assert outcomes["missing"] + outcomes["late"] <= len(touched) * nodes
    assert outcomes["compared"] >= (TOTAL - len(touched)) * nodes


def test_nested_blocks_of_a_job_are_one_span_with_the_time_of_the_node_of_rank_0():
    outcomes: Counter = Counter()
    nodes = joined(3, outcomes)
    assert nodes.add(row("n1", 0, 128, ended_at=50.0)) is None
    assert nodes.add(row("n2", 64, 64, ended_at=3650.0)) is None
    assert nodes.add(row("n3", 0, 128, ended_at=51.0)) is None
    span = nodes.add(row("n2", 0, 64, ended_at=3600.0))
    assert span is not None
    assert span.ended_at == 50.0
    assert [nodes.clock_ahead(host) for host in ("n1", "n2", "n3")] == [0.0, 3600.0, 1.0]
    assert {(work.name, work.syncs, work.own_seconds) for work in span.members} == {
        (name, 128, part(0, 128).own) for name in ("n1", "n2", "n3")
    }
    assert outcomes == {"compared": 384}


def test_what_other_nodes_deliver_before_the_node_of_rank_0_has_announced_the_job_is_kept():
    nodes, outcomes = NodeWork(), Counter()
    assert [nodes.add(row(host, 0, 64)) for host in ("n2", "n1")] == [None, None]
    assert [len(span.members) for span in nodes.begin(2, "n1", outcomes)] == [2]
    assert outcomes == {"compared": 128}


def test_nodes_are_compared_without_one_that_is_silent_once_they_have_waited():
    outcomes: Counter = Counter()
    nodes = joined(3, outcomes)
    for first in range(0, 256, 64):
        assert nodes.add(row("n1", first, 64)) is None
        assert nodes.add(row("n2", first, 64)) is None
        assert nodes.step(1000.0) == []
    assert nodes.step(1000.0 + PATIENCE - 1) == []
    spans = nodes.step(1000.0 + PATIENCE)
    assert [span.ended_at for span in spans] == [64.0, 128.0, 192.0, 256.0]
    assert [work.name for work in spans[0].members] == ["n1", "n2"]
    # What comes now is too late, and the next is compared again.
    assert nodes.add(row("n3", 0, 256)) is None
    assert outcomes == {"compared": 512, "late": 256}
    assert [nodes.add(row(host, 256, 64)) is not None for host in ("n1", "n2", "n3")] == [False, False, True]


def test_nodes_that_never_deliver_the_same_cost_bounded_memory_and_are_counted():
    outcomes: Counter = Counter()
    nodes = joined(3, outcomes)
    for first in range(100_000):
        nodes.add(row("n1", first, 1))
    assert sum(world.size for world in nodes._worlds.values()) <= 16_384
    nodes.finish()
    assert outcomes["overflow"] + outcomes["missing"] == 100_000
    alignment = Alignment(2, outcomes)
    for first in range(0, 1000, 2):
        alignment.add("n1", part(first, 1))
        alignment.add("n2", part(first, 1))
    assert len(alignment._closed) <= MAX_CLOSED


def blocks_of_a_node(path: Path, rate: float, until: float, now: float, period: float) -> list[tuple[float, int, int]]:
    """When a node of `rate` sync points a second delivers which blocks, if it looks once in a period from `now` on."""
    shim = FakeShim(path, capacity=2**15)
    with Ring(path) as ring:
        reducer, found = NodeReducer(0, [Member(ring, cursor := Cursor(0, size=2))]), []
        while now < until + period:
            index = np.arange(shim.get("head"), int(min(now, until) * rate))
            at = index % shim.capacity
            shim.records["enter_ns"][at] = shim.records["exit_ns"][at] = STARTED_NS + index * (1e9 / rate)
            shim.records["index"][at], shim.records["site"][at] = index, 0
            shim.set(head=shim.get("head") + len(index))
            rows = reducer.read(final=now >= until)
            found += [(now, row["first_index"], row["length"]) for row in rows]
            ring.release(max(cursor.node_position - 1, 0))
            now += period
    return found


@pytest.mark.parametrize(("nodes", "rates", "seconds"), [(16, 40, 60.0), (128, 5, 30.0)])
def test_blocks_of_nodes_that_look_at_different_times_are_all_compared(tmp_path, nodes, rates, seconds):
    random = np.random.default_rng(nodes)
    # At the latter, 2 s hold fewer than 2^m sync points and the time until the next look more.
    between = [2**m / 2.1 for m in range(6, 13, 2)]
    mixed = 0
    for rate in [*np.geomspace(20, 3000, rates), *between]:
        outcomes: Counter = Counter()
        alignment = Alignment(nodes, outcomes)
        sent = sorted(
            (at, f"n{number}", first, length)
            for number in range(nodes)
            for at, first, length in blocks_of_a_node(tmp_path / "0.ring", rate, seconds, random.uniform(0, 0.2), 0.2)
        )
        mixed += len({(first, length) for _, _, first, length in sent}) > len(sent) / nodes
        for at, host, first, length in sent:
            alignment.add(host, part(first, length))
            list(alignment.step(at))
        list(alignment.finish())
        total = sum(length for *_, length in sent)
        assert total == nodes * math.floor(seconds * rate)
        assert outcomes["compared"] >= 0.99 * total, (rate, outcomes)
    # Otherwise nothing would have been added up.
    assert mixed >= len(between)
