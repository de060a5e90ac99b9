"""Conversion of ring records to intervals: durations, classes, and exact counts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_agent.reduce import intervals as module
from barograph_agent.reduce.intervals import Cursor, IntervalReader, class_id
from barograph_agent.reduce.traffic import FIRST_REPORT, MAX_CLASSES, MAX_REPORTED, Traffic, add, report_of, rows
from barograph_agent.ring.reader import RECORD, Ring, RingError
from helpers.rings import STARTED_NS, STARTED_UNIX_NS, FakeShim


@pytest.fixture
def shim(tmp_path: Path) -> FakeShim:
    return shim_of(tmp_path)


def shim_of(folder: Path, capacity: int = 64) -> FakeShim:
    shim = FakeShim(folder / "0.ring", capacity)
    shim.site(0x10)
    shim.site(0x20)
    return shim


def test_an_interval_extends_from_the_end_of_one_collective_to_the_end_of_the_next(shim: FakeShim) -> None:
    for exit_ns, site in [(1_000_000, 1), (1_500_000, 2), (4_000_000, 1), (4_000_000, 2)]:
        shim.put(exit_ns, site, op=7 + site)
    with Ring(shim.path) as ring:
        harvest = IntervalReader(ring, Cursor(world=3))
        intervals, sites = harvest.read()
        assert harvest.read() == (None, {})
    assert intervals is not None
    assert intervals.indices.tolist() == [0, 1, 2, 3]
    assert intervals.seconds == pytest.approx([0.001, 0.0005, 0.0025, 0.0])
    ends = np.array([1e-3, 1.5e-3, 4e-3, 4e-3]) + STARTED_UNIX_NS * 1e-9
    assert np.abs(intervals.ended_at - ends).max() < 1e-6
    pairs = [("start", "lmp+0x10"), ("lmp+0x10", "lmp+0x20"), ("lmp+0x20", "lmp+0x10"), ("lmp+0x10", "lmp+0x20")]
    assert intervals.class_ids.tolist() == [class_id(*pair) for pair in pairs]
    named = dict(
        zip(sites["class_id"], zip(sites["from_site"], sites["to_site"], sites["operation"], strict=True), strict=True)
    )
    assert named == {
        class_id("start", "lmp+0x10"): ("start", "lmp+0x10", "Barrier"),
        class_id("lmp+0x10", "lmp+0x20"): ("lmp+0x10", "lmp+0x20", "Allreduce"),
        class_id("lmp+0x20", "lmp+0x10"): ("lmp+0x20", "lmp+0x10", "Barrier"),
    }


def test_a_class_id_does_not_depend_on_the_order_of_sites(shim: FakeShim, tmp_path: Path) -> None:
    other = FakeShim(tmp_path / "1.ring")
    other.module(b"/somewhere/else/lmp")
    for offset in (0x99, 0x20, 0x10):
        other.site(offset, module=1)
    ids = []
    for ring_file, sites in ((shim, (1, 2)), (other, (3, 2))):
        for exit_ns, site in enumerate(sites):
            ring_file.put(exit_ns, site)
        with Ring(ring_file.path) as ring:
            intervals, _ = IntervalReader(ring, Cursor(world=0)).read()
            assert intervals is not None
            ids.append(intervals.class_ids.tolist())
    assert ids[0] == ids[1]
    # Stored bands refer to this number, so it must never change: printf 'start\0lmp+0x10' | b2sum -l 64
    assert class_id("start", "lmp+0x10").to_bytes(8, "little").hex() == "e5d7cf0a7036d3e7"
    assert class_id("a", "bc") != class_id("ab", "c")


def test_intervals_around_the_end_of_the_ring_are_read_in_order(shim: FakeShim) -> None:
    with Ring(shim.path) as ring:
        reader, found = IntervalReader(ring, Cursor(0)), []
        for count in (60, 64, 3):
            assert all(shim.put(10 * (shim.seen + 1)) for _ in range(count))
            intervals, _ = reader.read()
            found += zip(intervals.indices.tolist(), np.rint(1e9 * intervals.seconds).tolist(), strict=True)
            ring.release(reader.cursor.position)
    assert found == [(number, 10) for number in range(127)]


def test_a_head_below_the_cursor_is_an_error(shim: FakeShim) -> None:
    shim.put(1)
    with Ring(shim.path) as ring:
        harvest = IntervalReader(ring, Cursor(world=0))
        harvest.read()
        shim.set(head=0)
        with pytest.raises(RingError) as raised:
            harvest.read()
    assert str(raised.value) == f"ring {shim.path}: head is 0, expected at least 1"


def test_records_released_beyond_the_cursor_are_counted_as_lost(shim: FakeShim) -> None:
    for i in range(20):
        shim.put(i)
    with Ring(shim.path) as ring:
        ring.release(12)
        cursor = Cursor(world=0)
        intervals, _ = IntervalReader(ring, cursor).read()
    assert intervals is not None
    assert intervals.indices.tolist() == list(range(13, 20))  # the start of 12 is unknown
    assert (cursor.rows, cursor.lost, cursor.position) == (7, 13, 20)


ACTIONS = st.lists(
    st.one_of(st.integers(1, 100), st.sampled_from(["take", "commit", "commit", "restart"])), min_size=1, max_size=40
)


@settings(max_examples=150, deadline=None)
@given(actions=ACTIONS, batch=st.integers(1, 70), seed=st.integers(0, 2**32))
def test_every_collective_is_stored_lost_or_dropped_despite_full_rings_and_restarts(
    actions: list[int | str], batch: int, seed: int
) -> None:
    """Integers: that many collectives. take: into memory. commit: rows, cursor and release. restart: memory is lost."""
    rng = np.random.default_rng(seed)
    times: list[int] = []
    sites: list[int] = []
    recorded: list[bool] = []
    stored: list[tuple[Any, ...]] = []
    waiting: list[tuple[Any, ...]] = []
    saved = msgspec.json.encode(Cursor(world=0))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH", batch)
        shim = FakeShim(Path(folder) / "0.ring")
        shim.site(0x10)
        shim.site(0x20)
        with Ring(shim.path) as ring:
            harvest = IntervalReader(ring, msgspec.json.decode(saved, type=Cursor))

            def take() -> bool:
                intervals, _ = harvest.read()
                if intervals is None:
                    return False
                assert len(intervals.indices) <= batch
                columns = (intervals.indices, intervals.class_ids, intervals.seconds)
                waiting.extend(zip(*(column.tolist() for column in columns), strict=True))
                return True

            def commit() -> None:
                nonlocal saved
                stored.extend(waiting)
                waiting.clear()
                saved = msgspec.json.encode(harvest.cursor)
                ring.release(harvest.cursor.position)

            for action in actions:
                if isinstance(action, int):
                    for _ in range(action):
                        times.append((times[-1] if times else 0) + int(rng.integers(0, 10**6)))
                        sites.append(int(rng.integers(1, 3)))
                        recorded.append(shim.put(times[-1], sites[-1]))
                elif action == "restart":
                    waiting.clear()
                    harvest = IntervalReader(ring, msgspec.json.decode(saved, type=Cursor))
                else:
                    take()
                    if action == "commit":
                        commit()
            while take():
                pass
            commit()
            cursor = harvest.cursor
            assert cursor.rows + cursor.lost + ring.dropped == harvest.seen == len(times)
    names = ["start", "lmp+0x10", "lmp+0x20"]
    expected = [
        (i, class_id(names[sites[i - 1] if i else 0], names[sites[i]]), times[i] - (times[i - 1] if i else 0))
        for i in range(len(times))
        if recorded[i] and (i == 0 or recorded[i - 1])
    ]
    assert [(i, kind, round(seconds * 1e9)) for i, kind, seconds in stored] == expected
    assert cursor.rows == len(expected)


def put_traffic(shim: FakeShim, count: int, seconds: float) -> None:
    """Pairs of collectives up to so many seconds: the first of 8 bytes after 3 messages, the second unknown."""
    ends = np.linspace(shim.seen and shim.records[shim.seen - 1]["exit_ns"] - STARTED_NS, seconds * 1e9, 2 * count + 1)
    for number, end in enumerate(ends[1:].astype(int).tolist()):
        if number % 2:
            shim.put(end, 2)
        else:
            shim.put(end, 1, bytes_=8, sent=(3, 3000))


FIRST, PING, PONG = class_id("start", "lmp+0x10"), class_id("lmp+0x20", "lmp+0x10"), class_id("lmp+0x10", "lmp+0x20")


def totals(found: dict[str, Any]) -> dict[int, tuple[int, ...]]:
    return dict(zip(found["class_id"], zip(*(found[name] for name in TOTALS), strict=True), strict=True))


def test_what_a_run_has_communicated_after_so_many_intervals_is_reported_from_3_to_30_s_also_after_a_restart(
    tmp_path: Path,
) -> None:
    shim = shim_of(tmp_path, 512)
    with Ring(shim.path) as ring:
        reader = IntervalReader(ring, Cursor(world=0))
        put_traffic(shim, 16, 2.9)
        reader.read()
        assert reader.traffic(final=False) is None
        # What a spool's mark keeps.
        reader = IntervalReader(ring, msgspec.json.decode(msgspec.json.encode(reader.cursor), type=Cursor))
        put_traffic(shim, 1, 3.5)
        reader.read()
        found = reader.traffic(final=False)
        assert found is not None
        assert reader.traffic(final=False) is None
        assert found["look"] == [24] * 3
        assert found["elapsed_seconds"] == pytest.approx([2.9 * 24 / 32] * 3)
        assert found["time"] == pytest.approx([STARTED_UNIX_NS * 1e-9 + 2.9 * 24 / 32] * 3)
        assert totals(found) == {PONG: (12, 0, 0, 0), PING: (11, 88, 33, 33_000), FIRST: (1, 8, 3, 3000)}
        put_traffic(shim, 90, 29.0)
        reader.read()
        later = reader.traffic(final=False)
        assert later is not None
        assert (set(later["look"]), sum(later["intervals"])) == ({192}, 192)
        assert reader.cursor.traffic
        put_traffic(shim, 1, 31.0)
        reader.read()
        assert reader.traffic(final=False) is None
        assert reader.cursor.traffic == {}
        put_traffic(shim, 20, 32.0)
        reader.read()
        assert reader.traffic(final=True) is None
        assert (reader.cursor.traffic, reader.cursor.due) == ({}, [])


@pytest.mark.parametrize("batch", [1, 7, 64])
@pytest.mark.parametrize("slower", [1.0, 2.9])
def test_a_slow_run_reports_what_a_fast_one_does_however_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, slower: float
) -> None:
    """What it sends changes on the way: a quarter as long from the 61st message on."""
    monkeypatch.setattr(module, "BATCH", batch)
    shim = shim_of(tmp_path, 512)
    reports: list[dict[str, Any]] = []
    with Ring(shim.path) as ring:
        reader = IntervalReader(ring, Cursor(world=0))
        for number in range(400):
            shim.put(round((number + 1) * slower * 0.05e9), 1, bytes_=8, sent=(1, 1000 if number < 60 else 250))
            while number % 40 == 39 and reader.read()[0] is not None:
                reports += [found] if (found := reader.traffic(final=False)) is not None else []
    sent = [
        (look, size) for one in reports for look, size in zip(one["look"], one["message_bytes"], strict=True) if size
    ]
    assert [look for look, _ in sent] == [24, 24, 192, 192]
    assert [sum(size for one, size in sent if one == look) for look in (24, 192)] == [24_000, 60_000 + 132 * 250]


def test_the_traffic_of_long_intervals_is_reported_when_enough_of_them_are_known(shim: FakeShim) -> None:
    with Ring(shim.path) as ring:
        reader = IntervalReader(ring, Cursor(world=0))
        reports = []
        for number in range(1, 16):
            put_traffic(shim, 1, 20.0 * number)
            reader.read()
            if (found := reader.traffic(final=False)) is not None:
                reports.append((round(found["elapsed_seconds"][0]), sum(found["intervals"])))
        assert reports == [(20 * FIRST_REPORT // 2, FIRST_REPORT)]
        assert reader.traffic(final=True) is None


TOTALS = ("intervals", "bytes", "messages", "message_bytes")


def test_the_traffic_of_a_shorter_run_is_reported_once_all_of_it_was_read(
    shim: FakeShim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 6)
    put_traffic(shim, 5, 1.0)
    with Ring(shim.path) as ring:
        reader = IntervalReader(ring, Cursor(world=0))
        reader.read()
        assert reader.traffic(final=True) is None
        reader.read()
        found = reader.traffic(final=True)
        assert found is not None
        assert (set(found["look"]), sum(found["intervals"])) == ({0}, 10)
        assert reader.traffic(final=True) is None


def test_a_program_of_many_classes_reports_those_with_most_intervals(shim: FakeShim) -> None:
    traffic: dict[int, Traffic] = {}
    records = np.zeros(3 * MAX_CLASSES, RECORD)
    classes = np.concatenate(
        [np.repeat(np.arange(MAX_CLASSES), 2), np.arange(2 * MAX_CLASSES, 3 * MAX_CLASSES)]
    ).astype(np.uint64)
    add(traffic, classes, records)
    add(traffic, np.full(5, 7, np.uint64), records[:5])
    assert (len(traffic), traffic[7].intervals) == (MAX_CLASSES, 7)
    found = rows([report_of(traffic, 0, 3.0, 0.0)])
    assert found["class_id"] == [7, *[one for one in range(MAX_REPORTED) if one != 7]][:MAX_REPORTED]
