"""What the kernel shows of ranks and their node, as rows of `pressures`: on files of tests, and once on a real core."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph_agent.kernel import busy, pressures
from barograph_agent.kernel.pressures import MAX_RANKS, MAX_THREADS, QUIET_SECONDS, Pressures
from barograph_agent.kernel.readings import NAME_LIMIT, clean, node_stat, process_stat, schedule
from barograph_agent.protocol.tables import IDENTIFIER
from barograph_agent.system.processes import Processes
from barograph_agent.system.system import SYSTEM
from helpers.clocks import SetClock
from helpers.log import wait_until
from helpers.node import RANK, Node
from helpers.proc import FakeProc

HOG = 900


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_quiet_node_has_a_row_now_and_then_and_ranks_have_none(node):
    rows = node.live(100, ran=1.0, delay=0.01)
    assert [row["rank"] for row in rows] == [-1] * len(rows)
    assert 2 <= len(rows) <= 100 / QUIET_SECONDS
    assert all(row["ended_at"] - row["began_at"] >= QUIET_SECONDS for row in rows)
    assert rows[0]["delay_seconds"] == pytest.approx(0.01 * (rows[0]["ended_at"] - rows[0]["began_at"]))
    assert (rows[0]["cores"], rows[0]["available_bytes"]) == (2, 3000 * 1024)


def steps(seconds: float, count: int = 100) -> dict[str, Any]:
    """Own work per sync point."""
    return {"own_rank_seconds": [seconds * count], "count": [count]}


def test_where_own_work_changes_a_quiet_node_has_a_row_at_once_after_that_of_the_time_before(node):
    for _ in range(3):
        node.pressures.add_work(steps(0.01))
        assert node.live(4, ran=1.0) == []
    node.pressures.add_work(steps(0.012))
    before, since = node.live(4, ran=1.0)
    assert (before["rank"], since["rank"]) == (-1, -1)
    assert before["ended_at"] == pytest.approx(since["began_at"])
    assert since["run_seconds"] == pytest.approx(since["ended_at"] - since["began_at"])
    # That is the usual work now. Slow growth counts from where it began; less work is a change as well.
    rows = []
    for seconds in (0.012, 0.0125, 0.013, 0.0135, 0.0135, 0.01):
        node.pressures.add_work(steps(seconds))
        rows.append(len(node.live(4, ran=1.0)))
    assert rows == [0, 0, 0, 2, 0, 2]


@pytest.mark.parametrize("columns", [steps(0.0), steps(-1.0), steps(1.0, 0), {"own_rank_seconds": [], "count": []}])
def test_a_span_without_own_work_has_not_changed(node, columns):
    node.live(1)
    for one in (steps(0.01), columns, steps(0.01)):
        node.pressures.add_work(one)
        assert node.live(4, ran=1.0) == []


def test_where_data_is_in_flight_for_long_a_quiet_node_has_a_row_at_once(node):
    counted = [0.0, 0.0]

    def live(seconds: int, flight: float) -> list[dict[str, Any]]:
        found = []
        for _ in range(seconds):
            counted[:] = counted[0] + flight, counted[1] + 1e6
            node.proc.sockets = [(1, b"n2", counted[0], int(counted[1]))]
            found += node.live(1)
        return found

    assert live(13, 0.02) == []
    before, first = live(4, 0.2)
    assert (before["rank"], first["rank"]) == (pressures.NODE, pressures.NODE)
    assert before["transfer_seconds"] == pytest.approx(0.02)
    assert 0.1 < first["transfer_seconds"] <= 0.2001


def test_a_rank_that_waits_for_a_core_has_a_row_after_that_of_the_quiet_time_before(node):
    assert node.live(10, ran=1.0) == []
    quiet, whole, rank = node.live(4, ran=0.5, delay=0.5)[:3]
    assert (quiet["rank"], quiet["delay_seconds"]) == (-1, 0.0)
    assert (whole["rank"], rank["rank"], rank["core"]) == (-1, 3, 1)
    assert quiet["ended_at"] == pytest.approx(whole["began_at"])
    assert rank["delay_seconds"] > 0.3 * (rank["ended_at"] - rank["began_at"])
    assert whole["delay_seconds"] == rank["delay_seconds"]


def beside(node: Node, *others: tuple[str, float, dict[str, int]]) -> dict[str, Any]:
    """The last row of the rank, which waits half of the time. others: name, share of a core, and more of each."""
    rows = []
    for second in range(16):
        for number, (name, share, more) in enumerate(others):
            node.proc.process(HOG + number, name, cpu=share * second, **more)
        rows += node.live(1, ran=0.5, delay=0.5)
    last = [row for row in rows if row["rank"] == 3][-1]
    return last | {"process_share": last["process_seconds"] / (last["ended_at"] - last["began_at"])}


@pytest.mark.parametrize(
    ("user", "hides", "found"),
    [(2000, False, ("python3", "other")), (2000, True, ("none", "other")), (1000, True, ("python3", "same"))],
)
def test_the_busiest_process_on_the_ranks_core_is_named_with_whose_it_is_as_the_site_says(user, hides, found):
    node = Node(hides_others=hides)
    node.proc.users[HOG] = user
    hog, helper = ("python3", 0.9, {"core": 1}), ("helper", 1.0, {"core": 1, "parent": RANK})
    last = beside(node, hog, ("make", 1.0, {"core": 0}), helper)
    assert (last["process"], last["process_of"], last["process_core"]) == (*found, 1)
    assert last["process_share"] == pytest.approx(0.9)


def test_processes_of_one_name_count_together(node):
    last = beside(node, *[("stress", 0.3, {"core": 1})] * 3, ("make", 0.5, {"core": 1}))
    assert (last["process"], last["process_share"]) == ("stress", pytest.approx(0.9))


def test_a_process_that_has_ended_is_not_named_any_more(node):
    node.proc.process(HOG, "python3", core=1)
    for second in range(8):
        node.proc.process(HOG, "python3", cpu=0.9 * second, core=1)
        node.live(1, ran=0.5, delay=0.5)
    node.proc.process(HOG, "reader", born=77777, core=1)
    assert node.live(4, ran=0.5, delay=0.5)[-1]["process"] == "none"


def test_a_rank_on_the_same_core_is_named_by_its_number(node):
    node.pids = {RANK: 3, 200: 7}
    rows = []
    for second in range(16):
        node.proc.process(200, cpu=0.5 * second, ran=0.5 * second, delay=0.5 * second, core=1)
        rows += node.live(1, ran=0.5, delay=0.5, cpu=0.5)
    beside = {row["rank"]: (row["process"], row["process_of"]) for row in rows[-3:]}
    assert beside[3] == ("7", "rank")
    assert beside[7] == ("3", "rank")


def test_a_process_that_has_driven_a_rank_from_its_core_is_named_and_not_the_rank_beside(node):
    node.pids = {RANK: 3, 200: 7}
    for second in range(6):
        node.proc.process(200, cpu=0.5 * second, ran=0.5 * second, core=0)
        node.live(1, ran=0.5, cpu=0.5)
    rows = []
    for second in range(16):
        # Rank 7 has left core 0 for core 1.
        node.proc.process(200, cpu=3.0 + 0.5 * second, ran=3.0 + 0.5 * second, delay=0.5 * second, core=1)
        node.proc.process(HOG, "python3", cpu=1.0 * second, core=0)
        node.proc.process(HOG + 1, "make", cpu=1.0 * second, core=5)
        rows += node.live(1, ran=0.5, delay=0.5, cpu=0.5)
    taken = {row["rank"]: (row["process"], row["process_core"], row["core"]) for row in rows[-3:]}
    assert (taken[3], taken[7]) == (("python3", 0, 1), ("python3", 0, 1))


def test_processes_are_looked_at_only_while_ranks_wait_and_then_not_often(node, monkeypatch):
    looks = []
    monkeypatch.setattr(node.proc, "ids", lambda: looks.append(node.now) or [])
    node.live(60, ran=1.0)
    assert looks == []
    monkeypatch.setattr(node.proc, "ids", lambda: looks.append(node.now) or [RANK])
    node.live(60, ran=0.5, delay=0.5)
    assert 2 <= len(looks) <= 2 * (60 / busy.MIN_PAUSE_SECONDS + 1)


@pytest.mark.parametrize(
    ("state", "rates", "column", "least"),
    [
        ("T", {}, "stopped_seconds", 3.0),
        ("D", {}, "blocked_seconds", 3.0),
        ("S", {"io": 0.5}, "blocked_seconds", 1.5),
        ("S", {"faults": 100}, "major_faults", 300),
    ],
)
def test_a_rank_that_is_stopped_or_waits_for_a_disk_or_for_memory_has_a_row(node, state, rates, column, least):
    node.live(5, ran=0.9)
    rows = [row for row in node.live(8, state, ran=0.1, **rates) if row["rank"] == 3]
    assert rows
    assert rows[-1][column] >= least


def test_how_long_a_rank_was_blocked_is_the_share_of_samples(node):
    node.live(5, ran=1.0)
    rows = []
    for state in "RRRDRRRSRRDR":
        rows += node.live(1, state, ran=0.5)
    assert sum(row["blocked_seconds"] for row in rows if row["rank"] == 3) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("rates", "column"),
    [
        ({"steal": 0.3, "busy": 1.0}, "steal_seconds"),
        ({"swapped": 1000}, "swapped_pages"),
        ({"memory": 0.4}, "memory_pressure"),
    ],
)
def test_what_the_node_takes_from_all_has_a_row_of_the_node(node, rates, column):
    rows = node.live(5, node=rates, ran=1.0)
    assert [row["rank"] for row in rows] == [-1]
    assert rows[0][column] > 0


def test_an_unending_disturbance_has_fewer_rows_after_two_minutes(node):
    node.live(130, ran=0.5, delay=0.5)
    rows = node.live(120, ran=0.5, delay=0.5)
    assert len(rows) <= 2 * (120 / QUIET_SECONDS + 1)


def test_of_many_ranks_the_worst_have_rows_and_many_threads_are_read_in_part(node):
    node.pids = {1000 + i: i for i in range(64)}
    rows = []
    for second in range(6):
        node.now += 1.0
        for pid, number in node.pids.items():
            node.proc.process(pid, delay=0.01 * number * second, ran=second, threads=50)
        node.proc.node()
        before = node.proc.shown
        rows += node.read()
        assert node.proc.shown - before <= 2 * len(node.pids) + 2 * MAX_THREADS
    assert [row["rank"] for row in rows] == [-1, 63, 62, 61, 60]
    assert len(rows) == 1 + MAX_RANKS


def test_the_thread_that_waited_most_counts(node):
    node.proc.process(RANK, threads=2)
    for second in range(7):
        node.now += 1.0
        node.proc.process(RANK, ran=second, threads=2)
        node.proc.thread(RANK, RANK + 1, ran=0.5 * second, delay=0.5 * second)
        rows = node.read() or []
        if rows:
            break
    assert rows[1]["delay_seconds"] == pytest.approx(0.5 * (rows[1]["ended_at"] - rows[1]["began_at"]))


def test_an_id_that_is_used_again_is_another_process(node):
    node.live(5, ran=1.0)
    node.proc.process(RANK, delay=1000.0, born=999)
    node.now += 1.0
    node.read()
    node.now += 10.0
    assert [row["rank"] for row in node.read(final=True)] in ([], [-1])
    assert all(row["rank"] == -1 for row in node.live(10, delay=5.0))


def test_a_process_that_is_not_of_this_job_is_not_read():
    node = Node(belongs=lambda pid: False)
    assert node.live(60, ran=0.5, delay=0.5) == []
    assert node.read(final=True) == []


def test_a_node_that_shows_nothing_is_no_reason_to_fail():
    proc, now = FakeProc(), [0.0]
    clock = SetClock(lambda: now[0])
    pids = {5: 0}
    blind = Pressures(clock, proc, ranks=lambda: pids)
    for _ in range(40):
        now[0] += 1.0
        assert list(blind.read(now[0], final=False)) == []
    pids = {6: 1}
    proc.process(6)
    proc.write("/proc/6/task/6/schedstat", "")
    found = {}
    for _ in range(40):
        now[0] += 1.0
        found = found or next((rows.values for rows in blind.read(now[0], final=False)), {})
    assert math.isnan(found["delay_seconds"][0])
    assert math.isnan(found["memory_pressure"][0])
    assert found["swapped_pages"][0] == -1
    assert math.isnan(found["throttles"][0])


@given(st.binary(max_size=600))
def test_strange_files_are_unknown(data):
    proc = FakeProc()
    for file in ("/proc/1/stat", "/proc/1/task/1/schedstat", "/proc/stat", "/proc/vmstat", "/proc/meminfo",
                 "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"):  # fmt: skip
        proc.write(file, data)
    process_stat(proc, 1)
    schedule(proc, 1, 1)
    assert node_stat(proc).cores >= 0


def test_the_files_of_this_node_are_read(tmp_path):
    here, own = Processes(), os.getpid()
    stat = process_stat(here, own)
    assert stat is not None
    assert (stat.parent, stat.born, stat.state) == (os.getppid(), here.born(own), "R")
    assert own in here.ids()
    assert own in here.threads(own)
    assert here.user(own) == os.getuid()
    assert schedule(here, own, own) is not None
    assert node_stat(here).cores == os.cpu_count()
    (tmp_path / "proc/7").mkdir(parents=True)
    elsewhere = Processes()
    elsewhere.root = str(tmp_path)
    assert (elsewhere.ids(), elsewhere.threads(7), elsewhere.user(8)) == ([7], [], -1)
    assert (elsewhere.show("/proc/7"), elsewhere.show("/proc/7/stat")) == (b"", b"")


@pytest.mark.parametrize("before", [0, 2**16 - 20, 300_000, None])
def test_a_mapping_is_looked_for_in_small_pieces_and_only_as_far_as_it_is(tmp_path, monkeypatch, before):
    lines, entry = 500_000, b"7f00-7f01 rw-s 0 0:24 12   /dev/shm/rings/rank-0.7.ring\n"
    maps = b"x" * lines if before is None else b"x" * before + entry + b"x" * (lines - before)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/maps").write_bytes(maps)
    here, read, taken = Processes(), os.read, []
    here.root = str(tmp_path)
    monkeypatch.setattr(os, "read", lambda *words: taken.append(read(*words)) or taken[-1])
    assert here.maps(7, "/dev/shm/rings") is (before is not None)
    assert not here.maps(8, "/dev/shm/rings")
    assert max(map(len, taken)) <= 2**16
    assert before is None or sum(map(len, taken)) <= before + len(entry) + 2**16


@pytest.mark.parametrize("cut", [0, 1, 20, 60, 80])
def test_a_line_that_is_cut_off_is_unknown(cut):
    proc = FakeProc()
    proc.process(1)
    whole = proc.show("/proc/1/stat")
    proc.write("/proc/1/stat", whole[:cut])
    assert process_stat(proc, 1) is None


@pytest.mark.parametrize("name", [b"a) R 1 (b", b"x\ny z", "ψ{}".encode(), b"\xff\xfe", b"", b"a" * 4000, b"'; DROP--"])
def test_a_process_may_call_itself_anything(name):
    proc = FakeProc()
    proc.process(1, name, cpu=3.0, core=1)
    stat = process_stat(proc, 1)
    assert stat is not None
    assert (stat.core, stat.parent) == (1, 1)
    assert IDENTIFIER.fullmatch(clean(stat.name))
    assert len(clean(stat.name)) <= NAME_LIMIT


def test_of_thousands_of_processes_the_newest_are_looked_at(monkeypatch):
    proc = FakeProc()
    monkeypatch.setattr(proc, "ids", lambda: list(range(1, 50_000)))
    for pid in range(50_000 - busy.MAX_PROCESSES, 50_000):
        proc.process(pid)
    looks = busy.BusyProcesses(proc)
    looks.sample(100.0)
    assert proc.shown == busy.MAX_PROCESSES
    looks.compare(101.0, {})
    looks.sample(110.0)
    assert proc.shown == 2 * busy.MAX_PROCESSES  # too early for so many


BUSY = "while True: pass"


@pytest.mark.process
def test_a_busy_loop_on_a_ranks_core_is_what_the_rank_waits_for():
    core = max(os.sched_getaffinity(0))
    started = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{core}])\n{BUSY}"], start_new_session=True
        )
        started.append(process)
        return process

    try:
        rank, _ = start(), start()
        reader = Pressures(SYSTEM.clock, Processes(), ranks=lambda: {rank.pid: 4})
        found: list[dict[str, Any]] = []

        def named() -> bool:
            for rows in reader.read(SYSTEM.clock.monotonic(), final=False):
                each = zip(*rows.values.values(), strict=True)
                found.extend(dict(zip(rows.values, row, strict=True)) for row in each if row[0] == 4)
            return bool(found) and found[-1]["process"] != "none"

        wait_until(named, "the kernel shows who runs on the core")
    finally:
        for process in started:
            process.kill()
            process.wait()
    waited = found[-1]
    # Two loops share the core, whoever else does: neither gets more than two thirds of what both could have.
    assert waited["delay_seconds"] > 0.5 * waited["run_seconds"]
    assert (waited["core"], waited["process_core"]) == (core, core)
    assert waited["process_of"] in ("same", "other")
