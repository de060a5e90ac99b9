"""What ranks do in each class of intervals, summed over a run: rows of `phases`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph_agent.reduce.intervals import class_id
from barograph_agent.reduce.phases import MAX_CLASSES, MAX_ROWS, PhaseSums
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.ring.reader import Ring
from helpers.rings import FakeShim

MS = 1_000_000


def node(folder: Path, ranks: int) -> list[FakeShim]:
    """The rings of the first ranks of a world, with call sites 1 and 2."""
    shims = []
    for rank in range(ranks):
        shim = FakeShim(folder / f"rank-{rank}.ring", capacity=1024)
        shim.set(rank=rank, size=max(ranks, 1))
        shim.site(0x10)
        shim.site(0x20)
        shims.append(shim)
    return shims


def sync(shims: list[FakeShim], begin: int, work: list[int], p2p: list[int], site: int) -> int:
    """A collective of 1000 ns of 64 bytes, after each rank has worked and exchanged two messages; returns its end."""
    enters = [begin + own + wait for own, wait in zip(work, p2p, strict=True)]
    end = max(enters) + 1000
    for rank, shim in enumerate(shims):
        shim.put(end, site=site, wait_ns=end - enters[rank], p2p_ns=p2p[rank], bytes_=64, sent=(2, 3000))
    return end


def read(rings: RingSet, *, final: bool) -> list[dict[str, Any]]:
    """Rows of `phases` of the records so far."""
    rings.find()
    found, before = [], -1
    while rings.position != before:
        before = rings.position
        for rows in rings.read(final=final):
            if rows.table == "phases":
                found += [
                    {name: value[i] if isinstance(value, list) else value for name, value in rows.values.items()}
                    for i in range(rows.length)
                ]
        rings.release()
    return found


def test_each_class_has_the_work_exchange_and_collectives_of_its_intervals(tmp_path: Path) -> None:
    shims = node(tmp_path, 3)
    end = 0
    for _ in range(50):
        end = sync(shims, end, [4 * MS, 8 * MS, 4 * MS], [MS, 2 * MS, 5 * MS], site=1)
        end = sync(shims, end, [MS, MS, MS], [0, 0, 0], site=2)
    rings = RingSet(tmp_path, Progress())
    rows = read(rings, final=True)
    rings.close()
    with Ring(shims[0].path) as ring:
        first, second = ring.site(1), ring.site(2)
    by_class = {int(row["class_id"]): row for row in rows}
    long = by_class[class_id(second, first)]
    assert long["count"] == 49  # the first interval began at MPI_Init
    assert long["ranks"] == 3
    assert long["own_seconds"] == pytest.approx(49 * 16e-3)
    assert long["slowest_seconds"] == pytest.approx(49 * 8e-3)
    assert long["exchange_seconds"] == pytest.approx(49 * 2e-3)  # rank 1 has most work and arrives last
    assert long["p2p_seconds"] == pytest.approx(49 * 8e-3)
    assert long["least_wait_seconds"] == pytest.approx(49 * 1e-6)
    assert long["rank_deviation_seconds"] == pytest.approx(np.std([4e-3, 8e-3, 4e-3], ddof=1))
    assert (long["bytes"], long["messages"], long["message_bytes"]) == (49 * 64, 49 * 6, 49 * 9000)
    short = by_class[class_id(first, second)]
    assert short["own_seconds"] == pytest.approx(50 * 3e-3)
    assert json.loads(str(short["deviations"])) == [0.0]
    assert json.loads(str(short["shares"])) == [1.0]


def test_deviations_have_the_moments_and_the_tail_of_single_intervals(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    shims = node(tmp_path, 2)
    rings = RingSet(tmp_path, Progress())
    end, works = 0, rng.gamma(4.0, 2.5, (4000, 2)) * MS
    for number, work in enumerate(works.astype(int)):
        end = sync(shims, end, work.tolist(), [0, 0], site=1)
        if number % 400 == 399:
            assert not read(rings, final=False)
    (row,) = (one for one in read(rings, final=True) if one["count"] > 1)
    rings.close()
    values, shares = (np.array(json.loads(str(row[name]))) for name in ("deviations", "shares"))
    true = (works - works.mean(axis=0)) / works.mean()
    assert values.size < 64
    assert (np.diff(values) > 0).all()
    assert shares.sum() == pytest.approx(1.0, abs=1e-3)
    assert shares @ values == pytest.approx(0.0, abs=0.02)
    assert np.sqrt(shares @ values**2) == pytest.approx(true.std(), rel=0.05)
    assert values[-1] == pytest.approx(true.max(), rel=0.3)


def test_a_run_on_one_rank_has_phases_and_no_comparison_of_ranks(tmp_path: Path) -> None:
    shims = node(tmp_path, 1)
    end = 0
    for _ in range(30):
        end = sync(shims, end, [3 * MS], [0], site=1)
    rings = RingSet(tmp_path, Progress())
    rings.find()
    tables = [rows.table for rows in rings.read(final=True)]
    rings.close()
    assert "phases" in tables
    assert "node_blocks" not in tables


def test_what_was_reported_is_not_reported_again(tmp_path: Path) -> None:
    shims = node(tmp_path, 2)
    end = 0
    for _ in range(20):
        end = sync(shims, end, [MS, MS], [0, 0], site=1)
    rings = RingSet(tmp_path, Progress())
    assert read(rings, final=True)
    assert not read(rings, final=True)
    rings.close()


def test_a_sidecar_that_continues_after_another_reports_nothing(tmp_path: Path) -> None:
    shims, progress = node(tmp_path, 2), Progress()
    end = 0
    for _ in range(300):
        end = sync(shims, end, [10 * MS, 10 * MS], [0, 0], site=1)
    rings = RingSet(tmp_path, progress)
    read(rings, final=False)
    rings.close()
    for _ in range(100):
        end = sync(shims, end, [10 * MS, 10 * MS], [0, 0], site=1)
    after = RingSet(tmp_path, progress)
    assert not read(after, final=True)
    after.close()


def test_ranks_that_arrive_before_the_first_block_are_of_the_whole_run(tmp_path: Path) -> None:
    shims, rings = node(tmp_path, 3), RingSet(tmp_path, Progress())
    (later := tmp_path / "later").mkdir()
    hidden = shims[2].path.rename(later / "rank-2.ring")
    read(rings, final=False)
    hidden.rename(shims[2].path)
    end = 0
    for _ in range(30):
        end = sync(shims, end, [MS, MS, MS], [0, 0, 0], site=1)
    assert {row["ranks"] for row in read(rings, final=True)} == {3}
    rings.close()


def test_classes_are_bounded() -> None:
    sums = PhaseSums(0, 2)
    times = np.ones((2, 4, 1000), np.int64)
    times[:, 1] = 1_000_000
    times[:, 2] = 1_000_000
    for batch in range(10):
        sums.add(np.arange(batch * 1000, (batch + 1) * 1000, dtype=np.uint64), times, np.zeros((3, 1000), np.int64))
    found = sums.take()
    assert found is not None
    assert len(found["class_id"]) == min(MAX_ROWS, MAX_CLASSES)
    assert sums.take() is None
