"""What the kernel shows of ranks and their node, as rows of `pressures`: on files of tests, and once on a real core."""

from __future__ import annotations

import itertools
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
from barograph_agent.kernel.speed import READS, Speed, SpeedProbe
from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import IDENTIFIER, TABLES
from barograph_agent.system.processes import Processes
from barograph_agent.system.sockets import SocketInfo
from barograph_agent.system.system import SYSTEM
from helpers.clocks import SetClock
from helpers.log import wait_until
from helpers.proc import FakeProc

RANK, HOG = 100, 900
HERE = min(os.sched_getaffinity(0))


class Node:
    """A node with one rank, whose counters grow by given amounts in each second."""

    def __init__(self, **options: Any) -> None:
        self.now = 1000.0
        self.proc = FakeProc()
        self.pids = {RANK: 3}
        self.counters: dict[str, Any] = {}
        self.totals: dict[str, Any] = {}
        self.speed = Speed(15e-6, 200e-6)
        self.probed: list[int] = []
        self.pressures = Pressures(SetClock(lambda: self.now), self.proc, probe=self, **options)
        self.live(0)

    def measure(self, core: int) -> None:
        """As `SpeedProbe`."""
        self.probed.append(core)

    def take(self) -> Speed:
        """What the test has set."""
        return self.speed

    def live(self, seconds: int, state: str = "R", node: dict[str, float] | None = None, **rates: float) -> list[dict]:
        """Rows of so many seconds in which the counters grow at these rates."""
        found = []
        for second in range(seconds + 1):
            if second:
                self.now += 1.0
                for names, added in ((self.counters, rates), (self.totals, node or {})):
                    for name, rate in added.items():
                        names[name] = names.get(name, 0) + rate
            self.proc.process(RANK, state=state, core=1, **self.counters)
            self.proc.node(**self.totals)
            if second:
                found += self.read()
        return found

    def read(self, *, final: bool = False) -> list[dict[str, Any]]:
        """The rows of one look."""
        columns = self.pressures.read(self.pids, final=final)
        if not columns:
            return []
        message = wire.append("s/1", 1, "pressures", len(columns["rank"]), {"job": "j", "host": "n1", **columns})
        kinds = TABLES["pressures"].columns
        whole = wire.unpack(message.columns, kinds, message.rows)  # what the collector accepts
        return [dict(zip(whole, row, strict=True)) for row in zip(*whole.values(), strict=True)]


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
            node.proc.sockets = [SocketInfo(b"a", b"n2", counted[0], int(counted[1]))]
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


def test_the_busiest_process_on_the_ranks_core_is_named_with_whose_it_is(node):
    node.proc.users[HOG] = 2000
    node.live(6, ran=1.0)
    rows = []
    for second in range(12):
        node.proc.process(HOG, "python3", cpu=0.9 * second, core=1)
        node.proc.process(HOG + 1, "make", cpu=1.0 * second, core=0)
        node.proc.process(HOG + 2, "helper", cpu=1.0 * second, core=1, parent=RANK)
        rows += node.live(1, ran=0.5, delay=0.5)
    last = [row for row in rows if row["rank"] == 3][-1]
    assert (last["process"], last["process_of"], last["process_core"]) == ("python3", "other", 1)
    assert last["process_seconds"] == pytest.approx(0.9 * (last["ended_at"] - last["began_at"]))


@pytest.mark.parametrize(("user", "found"), [(2000, ("none", "other")), (1000, ("python3", "same"))])
def test_names_of_processes_of_other_users_are_left_out_where_the_site_says_so(user, found):
    node = Node(hides_others=True)
    node.proc.users[HOG] = user
    rows = []
    for second in range(16):
        node.proc.process(HOG, "python3", cpu=0.9 * second, core=1)
        rows += node.live(1, ran=0.5, delay=0.5)
    assert (rows[-1]["process"], rows[-1]["process_of"]) == found


def test_processes_of_one_name_count_together(node):
    rows = []
    for second in range(16):
        for i in range(3):
            node.proc.process(HOG + i, "stress", cpu=0.3 * second, core=1)
        node.proc.process(HOG + 3, "make", cpu=0.5 * second, core=1)
        rows += node.live(1, ran=0.5, delay=0.5)
    assert rows[-1]["process"] == "stress"
    assert rows[-1]["process_seconds"] == pytest.approx(0.9 * (rows[-1]["ended_at"] - rows[-1]["began_at"]))


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
    assert 2 <= len(looks) <= 2 * (60 / busy.AGAIN_SECONDS + 1)


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


def test_how_long_a_rank_slept_is_counted_and_only_where_is_from_looks(node):
    node.live(5, ran=1.0)
    rows = []
    for state in "RRRDRRRSRRDR":
        rows += node.live(1, state, ran=0.5)
    ranks = [row for row in rows if row["rank"] == 3]
    # Of the first four seconds two were asleep, all of them in the only state of sleep that was seen.
    assert ranks[0]["blocked_seconds"] == pytest.approx(2.0, abs=0.6)
    assert sum(row["blocked_seconds"] for row in ranks) == pytest.approx(4.0, abs=1.1)


@pytest.mark.parametrize(("states", "blocked"), [("RRD", 4.0), ("RSS", 0.0), ("R", 0.0)])
def test_a_rank_that_slept_and_was_never_seen_asleep_is_looked_at_again(node, monkeypatch, states, blocked):
    following = itertools.cycle(states)

    def sleep(seconds: float) -> None:
        assert seconds == pressures.LOOK_SECONDS
        node.proc.process(RANK, state=next(following), core=1, **node.counters)

    monkeypatch.setattr(node.pressures._clock, "sleep", sleep)
    node.live(5, ran=1.0)
    rows = [row for row in node.live(8, ran=0.5) if row["rank"] == 3]
    assert sum(row["blocked_seconds"] for row in rows) == pytest.approx(blocked, abs=0.6)
    assert bool(rows) == bool(blocked)


@pytest.mark.parametrize(
    ("rates", "column"),
    [
        ({"steal": 0.3, "busy": 1.0}, "steal_seconds"),
        ({"swapped": 1000}, "swapped_pages"),
        ({"memory": 0.4}, "memory_pressure"),
        ({"throttled": 1}, "throttles"),
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
    blind = Pressures(clock, proc)
    for _ in range(40):
        now[0] += 1.0
        assert blind.read({5: 0}) == {}
    proc.process(6)
    proc.write("/proc/6/task/6/schedstat", "")
    found = {}
    for _ in range(40):
        now[0] += 1.0
        found = found or blind.read({6: 1})
    assert math.isnan(found["delay_seconds"][0])
    assert math.isnan(found["memory_pressure"][0])
    assert (found["swapped_pages"][0], found["throttles"][0]) == (-1, -1)


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
    for pid in range(50_000 - busy.MOST, 50_000):
        proc.process(pid)
    looks = busy.BusyProcesses(proc)
    looks.look(100.0)
    assert proc.shown == busy.MOST
    looks.compare(101.0, {})
    looks.look(110.0)
    assert proc.shown == 2 * busy.MOST  # too early for so many
    looks = busy.BusyProcesses(proc)
    looks.look(200.0)
    for pid in range(49_000, 49_900):
        proc.process(pid, cpu=5.0)
    looks.compare(210.0, {})
    assert len(looks._found) == busy.BUSIEST


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
        reader = Pressures(SYSTEM.clock, Processes())
        found: list[dict[str, Any]] = []

        def named() -> bool:
            columns = reader.read({rank.pid: 4})
            found.extend(
                dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True) if row[0] == 4
            )
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


@pytest.mark.parametrize("slower", [Speed(18e-6, 200e-6), Speed(15e-6, 260e-6)])
def test_a_node_that_does_fixed_work_more_slowly_has_rows_after_that_of_the_quiet_time_before(node, slower):
    assert node.live(10, ran=1.0) == []
    usual, node.speed = node.speed, slower
    quiet, *slow = node.live(9, ran=1.0)
    assert (quiet["compute_seconds"], quiet["memory_seconds"]) == pytest.approx(usual)
    assert len(slow) == 2
    for row in slow:
        assert (row["rank"], row["compute_seconds"], row["memory_seconds"]) == (-1, *slower)
    node.speed = usual
    assert node.live(20, ran=1.0) == []


def test_a_little_more_time_for_fixed_work_is_nothing_and_counts_as_the_mean(node):
    node.live(16, ran=1.0)
    node.speed = Speed(16e-6, 240e-6)
    [row] = node.live(20, ran=1.0)
    assert 15.3e-6 < row["compute_seconds"] < 15.7e-6


def test_the_probe_takes_processor_time_of_its_own_thread_the_fastest_and_the_median():
    ticks = iter(range(10**6))
    clock = SetClock(lambda: 0.0)
    clock.thread_seconds = lambda: float(next(ticks))
    probe = SpeedProbe(clock, Processes())
    assert all(map(math.isnan, probe.take()))
    probe.measure(HERE)
    assert probe.take() == (1.0, 1.0)
    took = iter([9, 9, 9, 9, 9, 30, 5, 9, 9, 9, 9, 10, 9, 9, 9, 9, 9, 20])
    times = (float(at) for seconds in took for at in (0, seconds))
    clock.thread_seconds = lambda: next(times)
    for _ in range(3):
        probe.measure(HERE)
    assert probe.take() == (5.0, 20.0)


def test_work_is_done_on_a_core_of_a_rank_that_runs_and_not_where_that_is_not_allowed(node):
    node.live(3, ran=1.0)
    node.live(3, "S")
    assert node.probed == [1, 1, 1]
    usual = os.sched_getaffinity(0)
    probe = SpeedProbe(SYSTEM.clock, Processes())
    probe.measure(10**4)
    assert math.isnan(probe.take().compute_seconds)
    probe.measure(HERE)
    assert probe.take().compute_seconds > 0
    assert os.sched_getaffinity(0) == usual


def test_reads_of_memory_go_through_all_addresses():
    probe = SpeedProbe(SYSTEM.clock, Processes())
    probe.measure(HERE)
    first, chain = probe._at, probe._chain
    assert chain is not None
    probe.measure(HERE)
    seen, at = {first}, first
    for _ in range(50 * READS):
        at = chain[at]
        seen.add(at)
    assert len(seen) == 50 * READS + 1
