"""Iterations of a rank: calls are asked for while it is quiet, an anchor is named, earlier iterations are recalled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph_agent.loops.loop import Loop
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.ring.reader import Ring, Want
from helpers.rings import FakeShim

SEND, RECV, WAITALL = 34, 38, 45
STEP = 0.2
"""Seconds between two looks of the sidecar."""
UNIX = 1.7e9
"""When a rank starts."""


class Rank:
    """A rank, and the sidecar that looks at it. An iteration has a Send, a Recv and a Waitall at its end."""

    def __init__(self, folder: Path) -> None:
        self.shim = FakeShim(folder / "rank-0.1.ring", 1024, calls=4096)
        self.sites = [self.shim.site(offset) for offset in (0x10, 0x20, 0x30, 0x40)]
        self.now_ns = 0
        self.looked_at = 0.0
        self.folder, self.progress = folder, Progress()
        self.rings = RingSet(folder, self.progress)
        self.intervals: list[tuple[int, float, float]] = []
        """Number, seconds and end of each."""
        self.reported: list[int] = []
        """Intervals in each report of what is communicated."""
        self.sent: list[int] = []
        """Messages in each."""

    def restart(self) -> None:
        """The sidecar is killed and starts again, from what it has committed."""
        self.rings.close()
        self.rings = RingSet(self.folder, self.progress)

    def look(self, *, final: bool = False) -> None:
        self.rings.find()
        for rows in self.rings.read(final=final, now=self.now_ns * 1e-9):
            if rows.table == "blocks":
                values = rows.values
                columns = (values["first_index"], values["sum_seconds"], values["ended_at"])
                self.intervals += zip(*(column.tolist() for column in columns), strict=True)
            elif rows.table == "signatures":
                whole = [look == 0 for look in rows.values["look"]]
                self.reported.append(sum(itertools.compress(rows.values["intervals"], whole)))
                self.sent.append(sum(itertools.compress(rows.values["messages"], whole)))
        self.rings.release()

    def pass_time(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)
        while self.looked_at + STEP <= self.now_ns * 1e-9:
            self.looked_at += STEP
            self.look()

    def collective(self, seconds: float = 0.01) -> None:
        self.pass_time(seconds)
        self.shim.put(self.now_ns, self.sites[3])

    def iteration(self, seconds: float = 0.01) -> None:
        for site, op in zip(self.sites, (SEND, RECV, WAITALL), strict=False):
            self.pass_time(seconds / 3)
            self.shim.call(self.now_ns, site, op)

    @property
    def wanted(self) -> Want:
        return Want.of(self.shim.get("wanted"))


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    rank = Rank(tmp_path)
    yield rank
    rank.rings.close()


def repeat(number: int, act: Callable[[], None]) -> None:
    for _ in range(number):
        act()


def test_every_iteration_is_an_interval_also_those_before_the_anchor_was_named(rank: Rank) -> None:
    repeat(5, rank.collective)
    repeat(1000, rank.iteration)
    rank.collective()
    rank.look(final=True)
    assert rank.wanted == Want(op=WAITALL, site=rank.sites[2], generation=1)
    assert [number for number, *_ in rank.intervals] == list(range(1006))
    seconds = np.array([seconds for _, seconds, _ in rank.intervals])
    assert seconds[5:1005] == pytest.approx(0.01, rel=1e-6)
    assert seconds.sum() == pytest.approx(rank.now_ns * 1e-9)
    assert rank.rings.counted() == (1006, 0)
    # Of what was communicated, that of the collectives is known, and of the iterations whose messages were counted.
    assert 5 + 350 < rank.reported[-1] < 5 + 450
    # A message in each iteration; those of iterations before the anchor was named are not counted either.
    assert rank.sent[-1] == rank.reported[-1] - 6
    assert rank.rings.rows == 1006


@pytest.mark.parametrize("steps", [8, 30], ids=["of a run of some seconds", "of one that goes on"])
def test_a_step_of_two_sweeps_is_an_iteration(rank: Rank, steps: int) -> None:
    def sweep(site: int, op: int) -> None:
        for _ in range(40):
            rank.pass_time(0.01)
            rank.shim.call(rank.now_ns, rank.sites[site], op)

    def step() -> None:
        sweep(0, SEND)
        sweep(1, RECV)
        rank.pass_time(0.3)
        rank.shim.call(rank.now_ns, rank.sites[2], WAITALL)

    repeat(steps, step)
    rank.look(final=True)
    assert len(rank.intervals) == steps
    assert [seconds for _, seconds, _ in rank.intervals] == pytest.approx([1.1] * steps, rel=1e-6)
    assert rank.rings.counted() == (steps, 0)


def test_a_rank_with_collectives_in_its_loop_has_no_anchor(rank: Rank) -> None:
    for _ in range(500):
        repeat(3, rank.iteration)
        rank.collective()
    rank.look(final=True)
    assert rank.wanted.op == 0
    assert len(rank.intervals) == 500


def test_collectives_that_are_late_on_one_day_are_its_intervals_too(rank: Rank) -> None:
    for _ in range(20):
        repeat(5, rank.collective)
    for _ in range(10):
        repeat(6, lambda: rank.iteration(0.5))
        rank.collective()
    assert rank.wanted.op == 0
    rank.look(final=True)
    assert len(rank.intervals) == 110
    assert rank.rings.counted() == (110, 0)
    assert [number for number, *_ in rank.intervals] == list(range(110))
    assert [seconds for _, seconds, _ in rank.intervals[-10:]] == pytest.approx([3.01] * 10)


def test_rare_collectives_are_among_iterations_and_frequent_ones_end_them(rank: Rank) -> None:
    for _ in range(3):
        repeat(4000, rank.iteration)
        rank.collective()
    assert rank.wanted.op == WAITALL
    rank.look(final=True)
    # Collectives between two iterations end none.
    assert len(rank.intervals) == 12001
    for _ in range(40):
        repeat(5, lambda: rank.iteration(0.1))
        rank.collective()
    assert rank.wanted.op == 0
    # Each of these is as long as the half second between two of them.
    rank.look(final=True)
    assert [seconds for _, seconds, _ in rank.intervals[-20:]] == pytest.approx([0.51] * 20)


@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.1, 0.4])
@pytest.mark.parametrize("rounds", [5, 40])
def test_many_iterations_between_collectives_are_the_intervals(rank: Rank, seconds: float, rounds: int) -> None:
    """Some are made when the program starts, two after each ten iterations, and some at the end."""
    repeat(7, rank.collective)
    for _ in range(3):
        rank.iteration(0.01)
        rank.collective(0.001)
    for _ in range(rounds):
        repeat(10, lambda: rank.iteration(seconds))
        repeat(2, lambda: rank.collective(0.0001))
    repeat(5, rank.collective)
    rank.look(final=True)
    rank.look(final=True)
    assert [number for number, *_ in rank.intervals] == list(range(len(rank.intervals)))
    assert rank.rings.counted() == (len(rank.intervals), 0)
    # What is told first is not told again.
    assert len(rank.intervals) == pytest.approx(7 + 3 + 10 * rounds + 2 + 5, abs=4)
    assert sum(seconds for _, seconds, _ in rank.intervals) == pytest.approx(rank.now_ns * 1e-9)


def test_iterations_between_many_collectives_are_told_after_a_few_seconds(rank: Rank) -> None:
    """A program that prints twice a second: eight times are enough to decide."""
    for _ in range(10):
        repeat(10, lambda: rank.iteration(0.05))
        rank.collective(0.0001)
    assert rank.now_ns < 6e9
    assert len(rank.intervals) >= 90
    repeat(200, lambda: rank.iteration(0.05))
    rank.look(final=True)
    assert len(rank.intervals) == pytest.approx(300, abs=3)


def test_a_collective_after_the_first_iterations_is_read_with_these(rank: Rank) -> None:
    """A program begins to take the time after some iterations."""
    repeat(10, rank.iteration)
    rank.collective()
    repeat(1000, rank.iteration)
    rank.look(final=True)
    assert rank.rings.unreadable == {}
    assert len(rank.intervals) == 1010
    assert sum(seconds for _, seconds, _ in rank.intervals) == pytest.approx(rank.now_ns * 1e-9)


def test_planes_of_sweeps_between_collectives_are_no_intervals(rank: Rank) -> None:
    """Each plane has a message, of a sweep there to one rank, and back to another."""
    for _ in range(40):
        for number in range(40):
            rank.pass_time(0.01)
            rank.shim.call(rank.now_ns, rank.sites[0], SEND, detail=7 + number // 20 + number % 10)
            rank.shim.call(rank.now_ns, rank.sites[1], WAITALL, detail=0)
        rank.collective()
    rank.look(final=True)
    assert len(rank.intervals) == 40


def test_passes_through_coarser_and_coarser_grids_between_collectives_are_no_intervals(rank: Rank) -> None:
    for _ in range(50):
        for level in range(12):
            rank.iteration(0.1 / 2**level)
        rank.collective()
    rank.look(final=True)
    assert len(rank.intervals) == 50


def test_another_loop_has_another_anchor(rank: Rank) -> None:
    repeat(700, rank.iteration)
    first = rank.wanted
    rank.sites = [rank.shim.site(offset) for offset in (0x50, 0x60, 0x70)]
    repeat(1000, rank.iteration)
    assert (first.op, rank.wanted) == (WAITALL, Want(op=WAITALL, site=rank.sites[2], generation=2))
    rank.look(final=True)
    assert 1700 - 45 <= len(rank.intervals) <= 1700
    assert [number for number, *_ in rank.intervals] == list(range(len(rank.intervals)))
    assert sum(seconds for _, seconds, _ in rank.intervals) == pytest.approx(rank.now_ns * 1e-9)


def test_iterations_of_another_loop_are_not_lost_after_a_long_one(rank: Rank) -> None:
    repeat(500, rank.iteration)
    rank.iteration(6.0)  # Four times as long passes before another anchor is sought.
    repeat(50, rank.iteration)
    rank.sites = [rank.shim.site(offset) for offset in (0x50, 0x60, 0x70)]
    repeat(4000, rank.iteration)
    rank.look(final=True)
    assert rank.wanted == Want(op=WAITALL, site=rank.sites[2], generation=2)
    assert 4551 - 55 <= len(rank.intervals) <= 4551


def test_who_makes_calls_is_not_silent_whatever_loop_they_are_of(rank: Rank) -> None:
    """A master hands out many short tasks, then few long ones, which are no loop before the end."""
    repeat(150, rank.iteration)
    rank.sites = [rank.shim.site(offset) for offset in (0x50, 0x60, 0x70)]
    for task in range(24):
        rank.iteration(6.0 - task / 6)
        _, silent_since = rank.rings.silence or (0, 0.0)
        assert UNIX + rank.now_ns * 1e-9 - silent_since <= STEP + 6.0 / 3
    rank.look(final=True)
    assert rank.wanted.site in rank.sites
    assert 24 - 4 <= len(rank.intervals) <= 150 + 24
    seconds = np.array([seconds for _, seconds, _ in rank.intervals])
    assert rank.now_ns * 1e-9 - 6 <= seconds.sum() <= rank.now_ns * 1e-9 + 1e-6
    assert np.diff([end for *_, end in rank.intervals]).min() > 0


def test_the_last_loop_of_a_run_has_its_iterations_though_nobody_looked_for_it(rank: Rank) -> None:
    repeat(700, rank.iteration)
    rank.sites = [rank.shim.site(offset) for offset in (0x50, 0x60, 0x70)]
    repeat(190, rank.iteration)
    repeat(3, lambda: rank.look(final=True))
    assert 890 - 50 <= len(rank.intervals) <= 890


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("looks", [0, 1, 9])
def test_a_run_of_a_second_or_two_has_its_iterations(rank: Rank, looks: int, after: int) -> None:
    """Also where the sidecar has looked once, at the end; a program may synchronize before it ends."""
    rank.looked_at = 1.8 - STEP * looks
    repeat(3, rank.collective)
    repeat(180, rank.iteration)
    repeat(after, rank.collective)
    rank.look(final=True)
    assert len(rank.intervals) == 183 + after


def test_a_loop_that_ends_a_short_run_of_collectives_is_not_told(rank: Rank) -> None:
    rank.looked_at = 10.0
    for _ in range(40):
        rank.collective()
        repeat(3, rank.iteration)
    repeat(70, rank.iteration)
    rank.look(final=True)
    assert len(rank.intervals) == 40


def test_a_loop_whose_calls_were_overwritten_is_not_recalled(rank: Rank) -> None:
    repeat(100, rank.iteration)
    rank.pass_time(6.0)
    assert rank.wanted.op == WAITALL
    rank.looked_at += 3.0  # the sidecar sleeps
    for _ in range(5000):
        rank.pass_time(0.0001)
        rank.shim.call(rank.now_ns, rank.sites[3], SEND)
    rank.pass_time(20.0)
    rank.look(final=True)
    assert len(rank.intervals) == rank.rings.counted()[0]


def test_what_is_done_at_the_start_is_no_loop(rank: Rank) -> None:
    repeat(20, rank.iteration)
    rank.sites = [rank.shim.site(offset) for offset in (0x50, 0x60, 0x70)]
    repeat(500, rank.iteration)
    rank.look(final=True)
    assert 500 <= len(rank.intervals) <= 501


@pytest.mark.parametrize("killed_at", [10, 150, 190, 195, 200, 205, 210, 215, 220, 230, 400])
def test_a_sidecar_that_is_killed_counts_nothing_twice(rank: Rank, killed_at: int) -> None:
    for number in range(600):
        if number == killed_at:
            rank.restart()
        rank.iteration()
    rank.look(final=True)
    numbers = [number for number, *_ in rank.intervals]
    assert numbers == list(range(len(numbers)))
    # What only the calls could tell of is lost with the one that has read them: one interval is as long as all that.
    assert 600 - killed_at - 250 <= len(numbers) <= 600
    assert sum(seconds for _, seconds, _ in rank.intervals) == pytest.approx(rank.now_ns * 1e-9)
    ends = [end for *_, end in rank.intervals]
    assert all(a < b for a, b in itertools.pairwise(ends))


def test_of_short_iterations_a_record_is_several(rank: Rank) -> None:
    rank.collective()
    for _ in range(80_000):
        rank.iteration(0.00004)
    assert rank.wanted.every == 2
    rank.look(final=True)
    assert rank.rings.counted()[1] == 0


def test_a_table_of_iterations_that_was_full_is_a_loss_that_is_told(rank: Rank) -> None:
    repeat(1500, rank.iteration)
    rank.looked_at += 1e6  # the sidecar sleeps
    repeat(5000, rank.iteration)
    rank.look()
    rank.look()
    repeat(2, rank.iteration)
    rank.look(final=True)
    seen, lost = rank.rings.counted()
    assert seen == 6501
    assert rank.wanted.every == 2
    # Those that found no room, and the one after them, whose start is not known.
    assert lost == rank.shim.get("iterations_dropped") + 1 > 900
    assert rank.rings.rows == seen - lost


def test_a_call_that_comes_too_often_is_no_anchor(tmp_path: Path) -> None:
    shim = FakeShim(tmp_path / "rank-0.1.ring", calls=64)
    shim.set(wanted=Want(op=WAITALL, site=1).word())
    rings = RingSet(tmp_path, Progress())
    for step in range(20):
        rings.find()
        list(rings.read(final=False, now=step * STEP))
        # Compared with the anchor, as it has the same innermost caller.
        shim.set(compared=step * 60_000)
    assert rings.too_fast == [0]
    assert Want.of(shim.get("wanted")).op == 0
    rings.close()


@pytest.mark.parametrize("garbage", [2**64 - 1, 2**63 + 7, 0xDEAD_BEEF_0000_0001])
def test_a_wish_that_nobody_made_is_replaced(tmp_path: Path, garbage: int) -> None:
    shim = FakeShim(tmp_path / "rank-0.1.ring", calls=64)
    shim.set(wanted=garbage)
    with Ring(shim.path) as ring:
        loop = Loop(ring)
        for step in range(100):
            loop.step(step * STEP, 0)
        assert ring.wanted.calls
        assert loop.readable == 0


def test_a_ring_whose_tables_contradict_each_other_is_unreadable(tmp_path: Path) -> None:
    shims = [FakeShim(tmp_path / f"rank-{rank}.{rank}.ring", calls=64) for rank in range(2)]
    shims[1].set(rank=1, iteration_head=1000, iteration_tail=500)
    rings = RingSet(tmp_path, Progress())
    rings.find()
    list(rings.read(final=False, now=1.0))
    list(rings.read(final=True, now=2.0))
    assert list(rings.unreadable) == [shims[1].path.name]
    rings.close()


class Ranks:
    """Ranks of one node that exchange messages in each iteration: the fast ones wait for the slowest one.

    own: seconds of own work in an iteration, by rank. other: iterations that the last rank makes meanwhile; apart: from
    another site.
    """

    def __init__(self, folder: Path, own: list[float], other: int = 1, *, apart: bool = True) -> None:
        self.own, self.other, self.apart, self.now = own, other, apart, 0.0
        self.shims = [FakeShim(folder / f"rank-{rank}.{rank}.ring", 1024, calls=8192) for rank in range(len(own))]
        for rank, shim in enumerate(self.shims):
            shim.set(rank=rank, size=len(own))
            for offset in (0x10, 0x20):
                shim.site(offset)
        self.rings = RingSet(folder, Progress())
        self.rows: list[dict[str, Any]] = []

    def run(self, seconds: float) -> None:
        looked, until, period = self.now, self.now + seconds, max(self.own) + 0.001
        while self.now < until:
            self.now += period
            for own, shim in zip(self.own, self.shims, strict=True):
                times = self.other if shim is self.shims[-1] else 1
                for part in range(times):
                    end = round((self.now - period * (times - 1 - part) / times) * 1e9)
                    wait = round((period / times - own) * 1e9) if times == 1 else 1000
                    shim.call(end, 2 if times > 1 and self.apart else 1, WAITALL, wait_ns=wait)
            if self.now - looked >= STEP:
                looked = self.now
                self.look()

    def look(self, *, final: bool = False) -> None:
        self.rings.find()
        for rows in self.rings.read(final=final, now=self.now):
            if rows.table == "node_blocks":
                names = list(rows.values)
                columns = (rows.values[name].tolist() for name in names)
                self.rows += [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        self.rings.release()


def test_the_rank_that_works_longest_and_waits_least_is_told(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, [0.004, 0.009, 0.004, 0.005])
    ranks.run(30.0)
    ranks.look(final=True)
    # The first ranges begin while the loops of some ranks are not known yet.
    whole = ranks.rows[2:-1]
    assert len(whole) >= 10
    for row in whole:
        assert (row["world"], row["ranks"]) == (1 << 20, 4)
        assert (row["own_rank"], row["last_rank"]) == (1, 1)
        assert row["count"] == pytest.approx(row["length"] * 16e-6 / 0.01, abs=1)
        assert row["own_rank_seconds"] / row["count"] == pytest.approx(0.009, rel=1e-3)
        assert row["own_seconds"] / row["count"] == pytest.approx(0.022, rel=1e-3)
        assert row["wait_seconds"] / row["count"] == pytest.approx(0.018, rel=1e-3)
        assert row["least_wait_seconds"] / row["count"] == pytest.approx(0.001, rel=1e-2)
    # Ranges follow each other, and nest.
    assert all(a["first_index"] + a["length"] == b["first_index"] for a, b in itertools.pairwise(whole))
    assert all(row["first_index"] % row["length"] == 0 for row in ranks.rows)


def test_a_rank_with_a_loop_of_its_own_is_not_compared(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, [0.004, 0.009, 0.004, 0.0], other=3)
    ranks.run(15.0)
    ranks.look(final=True)
    assert {row["ranks"] for row in ranks.rows[1:-1]} == {3}
    assert {row["own_rank"] for row in ranks.rows[1:-1]} == {1}


def test_workers_that_are_given_tasks_are_compared_by_what_they_do_in_one(tmp_path: Path) -> None:
    # Three of them do twice as many as each of the others, in half the time.
    ranks = Ranks(tmp_path, [0.009, 0.009, 0.0045], other=2, apart=False)
    ranks.run(15.0)
    ranks.look(final=True)
    for row in ranks.rows[1:-1]:
        assert row["ranks"] == 3
        assert row["own_rank"] in (0, 1)
        assert row["own_rank_seconds"] / row["count"] == pytest.approx(0.009, rel=1e-3)


def test_iterations_of_a_second_have_shorter_ranges_where_they_fill_the_table(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, [0.0004, 0.0006])
    ranks.run(14.0)
    ranks.look(final=True)
    counts = [row["count"] for row in ranks.rows[2:-1]]
    assert max(counts) <= 8192 / 4
    assert sum(counts) * 0.0016 > 4.0
    assert all(shim.get("iterations_dropped") == 0 for shim in ranks.shims)
