"""What ranks do in each class of intervals, summed over a run: rows of `phases`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.reduce.library import MAX_CLASSES
from barograph_agent.reduce.phases import MAX_ROWS
from barograph_agent.reduce.ring_set import Progress, RingSet
from helpers.rings import FakeShim, take, world

MS = 1_000_000


def sync(shims: list[FakeShim], begin: int, work: list[int], p2p: list[int], site: int) -> int:
    """A collective of 1000 ns of 64 bytes, after each rank has worked and exchanged two messages; returns its end."""
    enters = [begin + own + wait for own, wait in zip(work, p2p, strict=True)]
    end = max(enters) + 1000
    for rank, shim in enumerate(shims):
        shim.put(end, site=site, wait_ns=end - enters[rank], p2p_ns=p2p[rank], bytes_=64, sent=(2, 3000))
    return end


def test_deviations_have_the_moments_and_the_tail_of_single_intervals(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    shims = world(tmp_path, 2, capacity=1024)
    rings = RingSet(tmp_path, Progress())
    end, works = 0, rng.gamma(4.0, 2.5, (4000, 2)) * MS
    for number, work in enumerate(works.astype(int)):
        end = sync(shims, end, work.tolist(), [0, 0], site=1)
        if number % 400 == 399:
            assert not take(rings, "phases", final=False)
    (row,) = (one for one in take(rings, "phases", final=True) if one["count"] > 1)
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
    shims = world(tmp_path, 1, capacity=1024)
    end = 0
    for _ in range(30):
        end = sync(shims, end, [3 * MS], [0], site=1)
    rings = RingSet(tmp_path, Progress())
    rings.find()
    tables = {rows.table for rows in rings.read(final=True)}
    rings.close()
    assert tables & {"phases", "node_blocks"} == {"phases"}


def test_what_was_reported_is_not_reported_again(tmp_path: Path) -> None:
    shims, rings = world(tmp_path, 2, capacity=1024), RingSet(tmp_path, Progress())
    sync(shims, 0, [MS, MS], [0, 0], site=1)
    assert [len(take(rings, "phases", final=True)) for _ in range(2)] == [1, 0]
    rings.close()


def test_a_sidecar_that_continues_after_another_reports_nothing(tmp_path: Path) -> None:
    shims, progress = world(tmp_path, 2, capacity=1024), Progress()
    end = 0
    for _ in range(300):
        end = sync(shims, end, [10 * MS, 10 * MS], [0, 0], site=1)
    rings = RingSet(tmp_path, progress)
    take(rings, "phases", final=False)
    rings.close()
    for _ in range(100):
        end = sync(shims, end, [10 * MS, 10 * MS], [0, 0], site=1)
    after = RingSet(tmp_path, progress)
    assert not take(after, "phases", final=True)
    after.close()


def test_ranks_that_arrive_before_the_first_block_are_of_the_whole_run(tmp_path: Path) -> None:
    shims, rings = world(tmp_path, 3, capacity=1024), RingSet(tmp_path, Progress())
    hidden = shims[2].path.rename(tmp_path / "later")
    take(rings, "phases", final=False)
    hidden.rename(shims[2].path)
    end = 0
    for _ in range(30):
        end = sync(shims, end, [MS, MS, MS], [0, 0, 0], site=1)
    assert {row["ranks"] for row in take(rings, "phases", final=True)} == {3}
    rings.close()


def test_classes_are_bounded(tmp_path: Path) -> None:
    shims, end = world(tmp_path, 2, capacity=1024, sites=200), 0
    sites = [{shim.site(16 * number) for shim in shims}.pop() for number in range(3 * MAX_CLASSES)]
    for site in sites:
        end = sync(shims, end, [MS, MS], [0, 0], site)
    rings = RingSet(tmp_path, Progress())
    found = take(rings, "phases", final=True)
    rings.close()
    assert len({row["class_id"] for row in found}) == len(found) == MAX_ROWS
