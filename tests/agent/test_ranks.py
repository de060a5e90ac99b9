"""Several ranks on one node: worlds, last arrivals, own work, and nesting of blocks."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.ring.reader import LAUNCHES, Ring
from helpers.mpi import REPOSITORY
from helpers.rings import STARTED_NS, FakeShim, take, world

MS = 1_000_000


def sync(shims: list[FakeShim], ends: int, work: list[int], p2p: list[int] | None = None) -> int:
    """One collective of 1000 ns, after each rank has worked that many nanoseconds since `ends`; returns its end."""
    enters = [ends + own + wait for own, wait in zip(work, p2p or [0] * len(work), strict=True)]
    ended = max(enters) + 1000
    for rank, shim in enumerate(shims):
        shim.put(ended, wait_ns=ended - enters[rank], p2p_ns=p2p[rank] if p2p else 0)
    return ended


def test_a_block_is_complete_after_two_seconds_even_with_one_sync_point(
    tmp_path: Path,
) -> None:
    shims = world(tmp_path, 2, capacity=1024)
    worlds = RingSet(tmp_path, Progress())
    ended = 0
    lengths = []
    for _ in range(100):
        for _ in range(20):
            ended = sync(shims, ended, [10 * MS, 10 * MS])  # 100 a second, looked at five times a second
        lengths += [row["length"] for row in take(worlds, "node_blocks")]
    # The first ones are shorter: three are there after two seconds, a node that is slow by then is found soon.
    assert sum(lengths[:3]) <= 200
    assert lengths == sorted(lengths)
    assert lengths[-10:] == [128] * 10
    for _ in range(3):
        ended = sync(shims, ended, [10**11, 10**11])
        lengths = [row["length"] for row in take(worlds, "node_blocks")]
    assert sum(lengths) == 1 or lengths == [32, 1]
    worlds.close()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 90), st.booleans()), min_size=1, max_size=15))
def test_every_sync_point_is_in_one_block_despite_drops_and_restarts(
    tmp_path_factory: pytest.TempPathFactory, ranks: int, steps: list[tuple[int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("world")
    shims = world(folder, 4, list(range(ranks)), capacity=64)
    progress = Progress()
    worlds = RingSet(folder, progress)
    ended, seen, rows = 0, 0, []
    for count, again in steps:
        for _ in range(count):
            ended = sync(shims, ended, [MS] * ranks)
            seen += 1
        if again:
            worlds.close()
            worlds = RingSet(folder, progress)
        rows += take(worlds, "node_blocks")
    rows += take(worlds, "node_blocks", final=True)
    worlds.close()
    covered = np.concatenate([np.arange(r["first_index"], r["first_index"] + r["length"]) for r in rows] or [[]])
    assert len(set(covered.tolist())) == len(covered) <= seen
    assert all(row["first_index"] % row["length"] == 0 and row["count"] <= row["length"] for row in rows)
    if not any(shim.get("dropped") for shim in shims):
        assert sum(row["count"] for row in rows) == seen


def test_a_rank_that_has_stopped_does_not_fill_the_ring_of_rank_0(tmp_path: Path) -> None:
    shims = world(tmp_path, 2, capacity=64)
    worlds = RingSet(tmp_path, Progress())
    ended = sync(shims, 0, [MS, MS])
    for _ in range(100):
        shims[0].put(ended := ended + MS)
        take(worlds, "node_blocks")
    assert shims[0].get("dropped") == 0
    assert worlds.rows == 101
    worlds.close()


def test_worlds_are_distinguished_by_rank_size_and_start(tmp_path: Path) -> None:
    world(tmp_path, 2, started_ns=STARTED_NS)
    world(tmp_path, 2, started_ns=STARTED_NS + 10**9)  # at the same time, of the same size
    world(tmp_path, 3, started_ns=STARTED_NS + 2 * 10**9)
    progress = Progress()
    worlds = RingSet(tmp_path, progress)
    worlds.find()
    worlds.close()
    members: dict[int, list[int]] = {}
    for cursor in progress.cursors.values():
        members.setdefault(cursor.world, []).append(cursor.rank)
    assert sorted(map(sorted, members.values())) == [[0, 1], [0, 1], [0, 1, 2]]


def test_a_damaged_ring_of_another_rank_does_not_affect_intervals(tmp_path: Path) -> None:
    shims = world(tmp_path, 2, capacity=64)
    worlds = RingSet(tmp_path, Progress())
    sync(shims, 0, [MS, MS])
    take(worlds, "node_blocks")
    shims[1].set(head=10**6)
    ended = sync(shims[:1], 10 * MS, [MS])
    take(worlds, "node_blocks")
    sync(shims[:1], ended, [MS])
    take(worlds, "node_blocks", final=True)
    assert list(worlds.unreadable) == [shims[1].path.name]
    assert worlds.rows == 3
    worlds.close()
    with Ring(shims[0].path) as ring:
        assert ring.head == 3


def test_a_ring_that_is_cut_within_its_header_is_no_longer_read(tmp_path: Path) -> None:
    shims, worlds = world(tmp_path, 2, capacity=64), RingSet(tmp_path, Progress())
    ended = sync(shims, 0, [MS, MS])
    take(worlds, "node_blocks")
    os.truncate(shims[1].path, 0)
    sync(shims[:1], ended, [MS])
    assert [row["ranks"] for row in take(worlds, "node_blocks", final=True)] == [1]
    assert ([*worlds.unreadable], worlds.rows, worlds.living) == ([shims[1].path.name], 2, 1)
    worlds.close()


def launched(folder: Path, launch: int, size: int, ranks: list[int], at: int) -> None:
    """Rings of some ranks of the launch with this number, and the claim of the launcher, which runs on node a."""
    folder.mkdir(exist_ok=True)
    for shim in world(folder, size, ranks, started_ns=STARTED_NS + at):
        shim.set(launch=launch + 1)
    (folder.parent / "a").mkdir(exist_ok=True)
    (folder.parent / "a" / f"launch-{launch}").touch()


def test_programs_on_some_of_the_nodes_each_have_the_same_numbers_everywhere(tmp_path: Path) -> None:
    """Launch 0 on a and b, a program of no launcher on a, launch 2 on b and c, launch 3 on c and a."""
    found = {}
    for node in "abc":
        rings = RingSet(tmp_path / node, Progress(), claims=node == "a")
        for launch, nodes, at in ((0, "ab", 0), (None, "a", MS), (2, "bc", 2 * MS), (3, "ca", 3 * MS)):
            if node not in nodes:
                continue
            if launch is None:
                world(tmp_path / node, 1, started_ns=STARTED_NS + at)
            else:
                launched(tmp_path / node, launch, 4, [2 * nodes.index(node), 2 * nodes.index(node) + 1], at)
            rings.find()
        found[node] = {number: (one.size, one.ranks, one.lowest) for number, one in rings.worlds().items()}
        rings.close()
    assert found == {
        "a": {0: (4, 2, 0), 1: (1, 1, 0), 3: (4, 2, 2)},
        "b": {0: (4, 2, 2), 2: (4, 2, 0)},
        "c": {2: (4, 2, 2), 3: (4, 2, 0)},
    }
    assert {path.name for path in (tmp_path / "a").glob("launch-*")} == {f"launch-{n}" for n in range(4)}


def test_further_worlds_of_a_launch_do_not_take_the_number_of_the_next(tmp_path: Path) -> None:
    """As of processes that a program spawns, and of its own intervals."""
    node = tmp_path / "a"
    launched(node, 0, 2, [0, 1], 0)
    launched(node, 0, 3, [0, 1, 2], MS)
    launched(node, 1, 2, [0, 1], 2 * MS)
    (node / "rank-0.5000000000.ring").rename(node / "app-0.ring")
    rings = RingSet(node, Progress())
    rings.find()
    numbers = sorted({cursor.world for cursor in rings.progress.cursors.values()})
    rings.close()
    assert numbers == [0, 1, LAUNCHES, 2 * LAUNCHES]


def test_launches_are_numbered_up_to_the_same_limit_in_the_shim_and_the_sidecar():
    limit = re.search(r"define LAUNCH_LIMIT (\d+)u", (REPOSITORY / "agent/shim/launch.h").read_text())
    assert limit is not None
    assert int(limit[1]) == LAUNCHES
