"""Rings, spool and link of one run in this process, with full disks, damaged rings and late ranks."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from barograph.cli import CommandError
from barograph.operate.spool import SpoolDelivery
from barograph.operate.spool import main as spool_command
from barograph_agent import shim
from barograph_agent.deliver import link
from barograph_agent.deliver.spool import DATABASE, Spool, SpoolError
from barograph_agent.job.identity import Job
from barograph_agent.kernel.pressures import Pressures
from barograph_agent.kernel.readings import process_stat
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.ring.reader import EXITED, FINALIZED, RECORD
from barograph_agent.settings import places
from barograph_agent.sidecar import main as main_module
from barograph_agent.sidecar.main import BUSY_STEP_SECONDS, Orphans, Sidecar, adopt, orphans
from barograph_agent.sidecar.plan import END as END_FILE
from barograph_agent.sidecar.plan import (
    PLAN,
    RUN,
    CommandEnd,
    RunPlan,
    leave,
    load_end,
    load_plan,
    load_report,
    myself,
    save,
    save_begun,
)
from barograph_agent.sidecar.run import STRAGGLERS_SECONDS, WatchedRun
from barograph_agent.sidecar.silence import FIRST_SECONDS, Silence, Silences
from barograph_agent.system.clock import STEP_SECONDS, STEP_SPREAD, Clock, until_step
from barograph_agent.system.disk import DISK, Disk
from barograph_agent.system.network import Network, Source
from barograph_agent.system.processes import PROCESSES, UNCERTAIN, Processes
from barograph_agent.system.system import SYSTEM
from barograph_collector.client.log_reader import LogReader
from barograph_collector.server import Collector
from helpers.clocks import calendar_at
from helpers.full_disk import FullDisk
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.mpi import REPOSITORY
from helpers.rings import FakeShim

NOWHERE = "tcp://127.0.0.1:1"
NOW = 1_700_000_100.0


class Run:
    """The files of a watched run, without launcher, sidecar and application."""

    def __init__(self, root: Path, name: str = "run", endpoint: str = NOWHERE, **changes: Any) -> None:
        self.directory = root / "spools" / name
        self.rings = root / "rings" / name
        self.directory.mkdir(parents=True)
        self.rings.mkdir(parents=True)
        self.job = Job("lab", name, 0, "0", "ada", "n1", "app", {"x": "4"})
        launcher, born = myself()
        fields = {
            "job": self.job,
            "stream": f"{self.job.key}/1",
            "endpoint": endpoint,
            "ring_directory": str(self.rings),
            "started_at": NOW - 100,
            "launcher": launcher,
            "launcher_born": born,
            "drain_seconds": 0.0,
            "spool_bytes": 2**20,
            **changes,
        }
        self.plan = RunPlan(**fields)
        save_begun(self.directory, self.plan)

    def ring(self, name: str = "0.ring", **options: Any) -> FakeShim:
        shim = FakeShim(self.rings / name, **options)
        shim.site(0x10)
        return shim

    def end(self, status: int = 0) -> None:
        save(self.directory, END_FILE, CommandEnd(NOW - 50, 50.0, status))

    def watch(self, endpoint: str = "", disk: Disk = DISK) -> WatchedRun:
        plan = msgspec.structs.replace(self.plan, endpoint=endpoint or self.plan.endpoint)
        return WatchedRun(self.directory, plan, system=calendar_at(lambda: NOW)._replace(disk=disk))


class Passing(Clock):
    """Real clocks, which a test moves on."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.now = lambda: NOW + self.passed  # type: ignore[method-assign]
        self.monotonic = lambda: Clock.monotonic() + self.passed  # type: ignore[method-assign]


def put(shim: FakeShim, count: int) -> int:
    """Write that many collectives; returns the number that the ring had room for."""
    return sum(shim.put(1000 * (shim.seen + 1)) for _ in range(count))


def deliver(watch: WatchedRun) -> None:
    def step() -> bool:
        watch.step()
        watch.link.pump(0.01)
        return watch.delivered

    wait_until(step, "the run is delivered")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def rows(collector: Collector, table: str) -> list[dict[str, Any]]:
    with LogReader(collector.endpoint, DEADLINE_SECONDS) as reader:
        found = []
        for batch in reader.read_all(table):
            found += [dict(zip(batch.columns, row, strict=True)) for row in zip(*batch.columns.values(), strict=True)]
    return found


def indices(collector: Collector, world: int = 0) -> list[int]:
    return [row["first_index"] for row in rows(collector, "blocks") if row["world"] == world]


def test_what_was_asked_of_a_run_that_was_not_seen_is_told_by_its_command(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, data, result = tmp_path / "solve", tmp_path / "mesh.txt", tmp_path / "result.txt"
    for file, text in ((program, "#!/bin/sh\n"), (data, "a mesh"), (result, "a result")):
        file.write_text(text)
    program.chmod(0o755)
    os.utime(data, (NOW - 200, NOW - 200))
    os.utime(result, (NOW - 60, NOW - 60))  # while it ran
    monkeypatch.chdir(tmp_path)

    def asked(name: str, *command: str, **changes: Any) -> list[dict[str, Any]]:
        run = Run(tmp_path, name, collector.endpoint, command=command, has_companions=True, **changes)
        run.end()
        watch = run.watch()
        deliver(watch)
        watch.close()
        job = next(row for row in rows(collector, "jobs") if row["job"] == run.job.key)
        found = [row for row in rows(collector, "works") if row["job"] == run.job.key]
        assert all(row["ranks"] == job["ranks"] for row in found)
        return found

    first, again, other, more, alone = (
        asked(str(number), *command)[0]
        for number, command in enumerate(
            [
                ["mpiexec", "-n", "4", "./solve", "mesh.txt", "result.txt"],
                ["mpiexec", "-n", "4", "./solve", "mesh.txt", "result.txt"],
                ["mpiexec", "-n", "4", "./solve", "mesh.txt", "--fine"],
                ["mpiexec", "-n", "8", "./solve", "mesh.txt", "result.txt"],
                ["./solve", "mesh.txt"],
            ]
        )
    )
    assert [row["ranks"] for row in (first, other, more, alone)] == [4, 4, 8, 0]
    same = ("program", "script", "words", "inputs")
    assert [first[name] for name in same] == [again[name] for name in same] == [more[name] for name in same]
    assert (first["words"] != other["words"], first["inputs"]) == (True, other["inputs"])
    assert len(msgspec.json.decode(first["inputs"])) == 1, "what it writes is no input"
    assert asked("orphan", "./solve", "mesh.txt", launcher=2**22 + 1) == []
    monkeypatch.setenv("BAROGRAPH_WORK", "none")
    assert asked("private", "./solve", "mesh.txt") == []


def test_a_run_is_delivered_as_job_sites_blocks_and_end(run: Run, collector: Collector) -> None:
    shim = run.ring()
    watch = run.watch(collector.endpoint)
    watch.step()  # before the first collective: delivers the row of jobs
    for _ in range(3):
        put(shim, 40)
        watch.step()
    run.end(3)
    deliver(watch)
    report = watch.report()
    watch.close()
    assert (report.ranks, report.seen, report.stored, report.spooled, report.dropped) == (2, 120, 120, 0, 0)
    assert (report.reached, report.delivered, report.notes, report.verdict) == (True, True, [], "")
    (job,) = rows(collector, "jobs")
    assert (job["job"], job["ranks"], job["user"], job["params"]) == ("lab/run.0.0", 2, "ada", '{"x":"4"}')
    assert job["workload"] == run.job.workload(2, 1)
    assert indices(collector) == list(range(120))
    assert len(rows(collector, "sites")) == 2
    (end,) = rows(collector, "runs")
    assert (end["exit_status"], end["runtime_seconds"], end["intervals"], end["dropped"]) == (3, 50.0, 120, 0)
    (cost,) = rows(collector, "sidecars")
    assert cost["cpu_seconds"] > 0
    assert 0 < cost["clock_error_seconds"] <= 16
    sources = {one["source"]: (one["rows"] > 120, one["failures"]) for one in msgspec.json.decode(cost["sources"])}
    quiet = dict.fromkeys(("work", "nodes", "features", "kernel", "silence"), (False, 0))
    assert sources == quiet | {"rings": (True, 0)}
    assert 2**20 < cost["resident_bytes"] < 2**40
    done = rows(collector, "node_blocks")
    assert sum(row["count"] for row in done) == 120
    assert {row["host"] for row in done} == {"n1"}
    (work,) = rows(collector, "works")
    assert (work["ranks"], work["nodes"], work["ranks_per_node"]) == (2, 1, 2)
    traffic = rows(collector, "signatures")
    looks = sorted({row["look"] for row in traffic})
    assert [sum(row["intervals"] for row in traffic if row["look"] == look) for look in looks] == [120, 24]
    assert {row["class_id"] for row in traffic} == {row["class_id"] for row in rows(collector, "sites")}
    phases = rows(collector, "phases")
    assert sum(row["count"] for row in phases) == 120
    assert {row["class_id"] for row in phases} == {row["class_id"] for row in traffic}
    (node,) = rows(collector, "nodes")
    assert (node["world"], node["ranks"], node["first"], node["intervals"], node["ended"]) == (2, 1, 1, 120, 1)
    between = 2 + 120 + len(traffic) + len(done) + len(phases)
    assert {work["log_offset"], job["log_offset"]} == {1, 2}
    assert end["log_offset"] == 2 + between + 2
    assert not run.rings.exists()  # rings occupy memory and are no longer needed


def test_a_run_without_mpi_is_a_job_with_0_ranks(run: Run, collector: Collector) -> None:
    run.end()
    watch = run.watch(collector.endpoint)
    deliver(watch)
    assert (watch.report().ranks, watch.report().seen) == (0, 0)
    watch.delete()
    assert rows(collector, "jobs")[0]["ranks"] == 0
    assert rows(collector, "runs")[0]["intervals"] == 0
    assert not run.directory.exists()


def test_mpi_worlds_are_numbered_in_the_order_of_their_start(run: Run, collector: Collector) -> None:
    for name, started_ns, count in [("a.ring", 3 * 10**9, 5), ("b.ring", 2 * 10**9, 7)]:
        put(run.ring(name, started_ns=started_ns), count)
    watch = run.watch(collector.endpoint)
    watch.step()
    put(run.ring("0.ring", started_ns=10**9), 9)  # found later: assigned numbers do not change
    run.end()
    deliver(watch)
    watch.close()
    assert [indices(collector, world) for world in (0, 1, 2)] == [list(range(n)) for n in (7, 5, 9)]


def test_drops_of_a_full_ring_are_counted_in_report_and_log(run: Run, collector: Collector) -> None:
    shim = run.ring()
    watch = run.watch(collector.endpoint)
    put(shim, 100)  # capacity 64
    watch.step()
    put(shim, 10)
    run.end()
    deliver(watch)
    report = watch.report()
    watch.close()
    # 36 dropped, and the start of the next one is unknown.
    assert (report.seen, report.stored, report.dropped) == (110, 73, 37)
    assert indices(collector) == [*range(64), *range(101, 110)]
    assert (rows(collector, "runs")[0]["intervals"], rows(collector, "runs")[0]["dropped"]) == (110, 37)


def test_on_a_full_disk_intervals_stay_in_the_ring(run: Run, collector: Collector) -> None:
    shim, disk = run.ring(), FullDisk()
    watch = run.watch(collector.endpoint, disk)
    put(shim, 20)
    watch.step()
    disk.is_full = True
    put(shim, 30)
    (run.rings / "full.ring").write_text("no ring")
    watch.step()
    watch.step()
    assert shim.get("tail") == 15  # 16 of 20 are a block of the node, whose last record is still needed
    disk.is_full = False
    assert watch.notes[0].startswith(f"ring {run.rings}/full.ring: 7 bytes, expected")
    assert f"spool {run.directory}: database or disk is full; holding intervals in memory rings" in watch.notes
    run.end()
    deliver(watch)
    report = watch.report()
    watch.close()
    assert (report.seen, report.stored, report.dropped) == (50, 50, 0)
    assert indices(collector) == list(range(50))


def test_a_new_watch_continues_where_the_last_one_stopped(run: Run, collector: Collector) -> None:
    shim = run.ring()
    for _ in range(6):
        put(shim, 10)
        watch = run.watch(collector.endpoint)
        watch.step()
        watch.link.pump(0.05)
        watch.close()  # equivalent to a kill: nothing is written
    run.end()
    watch = run.watch(collector.endpoint)
    watch.step()
    watch.close()
    watch = run.watch(collector.endpoint)
    assert watch.ended
    deliver(watch)
    report = watch.report()
    watch.close()
    assert (report.ranks, report.seen, report.stored, report.spooled, report.dropped) == (2, 60, 60, 0, 0)
    assert indices(collector) == list(range(60))
    assert (len(rows(collector, "jobs")), len(rows(collector, "runs"))) == (1, 1)


def test_unreadable_rings_are_reported_and_do_not_affect_others(run: Run, collector: Collector) -> None:
    good, broken = run.ring("good.ring", started_ns=4 * 10**9), run.ring("later.ring")
    (run.rings / "garbage.ring").write_bytes(b"x" * 9000)
    (run.rings / "empty.ring").touch()
    watch = run.watch(collector.endpoint)
    put(good, 10)
    put(broken, 10)
    watch.step()
    broken.set(head=10**6)
    put(good, 10)
    watch.step()
    run.end()
    deliver(watch)
    report = watch.report()
    watch.close()
    words = [
        f"ring {run.rings}/empty.ring: 0 bytes, expected at least a header of 4096",
        f"ring {run.rings}/garbage.ring: magic is b'xxxxxxxx', expected b'BAROGRPH'",
        f"ring {run.rings}/later.ring: head is 1000000, expected 0 to 64",
    ]
    assert report.notes == words
    events = rows(collector, "events")
    assert [(row["source"], row["kind"], row["detail"]) for row in events] == [
        ("lab/run.0.0", "ring-unreadable", word) for word in words
    ]
    assert (report.seen, report.stored, report.dropped) == (30, 30, 0)
    assert [indices(collector, world) for world in (0, 1)] == [list(range(20)), list(range(10))]


def test_intervals_dropped_beyond_the_cap_are_counted(tmp_path: Path, collector: Collector) -> None:
    run = Run(tmp_path, spool_bytes=20_000)
    shim = run.ring()
    watch = run.watch()
    for _ in range(20):
        put(shim, 30)
        watch.step()
    run.end()
    watch.step()
    report = watch.report()
    watch.close()
    assert not report.reached
    assert report.stored == 0
    assert report.spooled + report.dropped == report.seen == 600
    assert 0 < report.spooled < 200
    watch = run.watch(collector.endpoint)
    deliver(watch)
    late = watch.report()
    watch.close()
    stored = indices(collector)
    assert stored == list(range(600 - len(stored), 600))
    assert len(stored) == report.spooled == late.stored
    assert (late.seen, late.spooled, late.dropped) == (600, 0, report.dropped)
    (event,) = rows(collector, "events")
    assert (event["kind"], event["detail"], event["rows"]) == ("dropped", "spool-cap", report.dropped)


def test_a_slow_collector_causes_no_drops_while_rings_have_room(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "SILENCE_SECONDS", DEADLINE_SECONDS)  # no timeout, even on a loaded machine
    run = Run(tmp_path, endpoint=collector.endpoint, spool_bytes=100_000)
    shim = run.ring(capacity=4096)
    watch = run.watch()
    wait_until(lambda: watch.link.pump(0.01) or watch.link.connected, "the collector has welcomed the run")
    for _ in range(18):  # without delivery
        put(shim, 100)
        watch.step()
    run.end()
    deliver(watch)
    report = watch.report()
    watch.close()
    assert (report.seen, report.stored, report.dropped, shim.get("dropped")) == (1800, 1800, 0, 0)
    assert indices(collector) == list(range(1800))


def test_drops_during_an_hour_without_a_collector_are_reported_later(tmp_path: Path, collector: Collector) -> None:
    cap, second = 2 * 2**20, 10**9
    run = Run(tmp_path, spool_bytes=cap)
    shim = run.ring(capacity=2048)
    watch = run.watch()
    largest = 0
    for _ in range(360):  # ten seconds each, 100 intervals per second
        for _ in range(1000):
            shim.put(shim.seen * second // 100)
        watch.step()
        watch.link.pump()
        largest = max(largest, sum(path.stat().st_size for path in run.directory.glob("spool.sqlite")))
    run.end()
    watch.step()
    report = watch.report()
    watch.close()
    assert 0.7 * cap < largest <= 1.1 * cap
    assert (report.seen, report.stored, report.spooled + report.dropped) == (360_000, 0, 360_000)
    assert 15_000 < report.spooled < cap // 72
    watch = run.watch(collector.endpoint)
    deliver(watch)
    late = watch.report()
    watch.close()
    assert (late.stored, late.dropped) == (report.spooled, report.dropped)
    assert indices(collector) == list(range(360_000 - late.stored, 360_000))
    (event,) = rows(collector, "events")
    assert (event["kind"], event["detail"], event["rows"]) == ("dropped", "spool-cap", report.dropped)


def test_refused_rows_are_noted_and_counted(tmp_path: Path, collector: Collector) -> None:
    run = Run(tmp_path, name="bad name", stream="lab/s/1")  # not an identifier, which `from_environment` would prevent
    put(run.ring(), 12)
    run.end()
    watch = run.watch(collector.endpoint)
    deliver(watch)
    report = watch.report()
    watch.close()
    assert (report.seen, report.stored, report.dropped) == (12, 0, 12)
    assert len(report.notes) == 1  # the same text for jobs, blocks, node_blocks, runs and sidecars
    assert all(note.startswith("refused by the collector: column 'job' is 'lab/bad name.0.0'") for note in report.notes)


def test_a_silence_of_living_ranks_is_reported_at_growing_distances(run: Run, collector: Collector) -> None:
    seconds = 0.0
    clock = Clock()
    clock.monotonic = lambda: seconds  # type: ignore[method-assign]
    system = SYSTEM._replace(clock=clock)

    def watched(until: float) -> None:
        """One more sidecar, which is killed then."""
        nonlocal seconds
        watch = WatchedRun(run.directory, run.plan, system=system)
        while seconds < until:
            watch.step()
            seconds += 0.5
        watch.close()

    shim = run.ring()
    put(shim, 10)
    watched(4.0)
    put(shim, 10)
    watched(40.0)
    seconds += 1000.0
    watched(1060.0)
    shim.set(state=FINALIZED)
    watched(1200.0)
    run.end()
    watch = run.watch(collector.endpoint)
    deliver(watch)
    watch.close()
    found = rows(collector, "silences")
    (last,) = {row["since"] for row in found}
    assert last == max(row["ended_at"] for row in rows(collector, "blocks"))
    # The time without a sidecar does not count. The second one continues from the last report.
    assert [row["time"] - last for row in found] == pytest.approx([5, 10, 15, 20, 25, 31.5, 39.5, 49.5])
    assert {row["ranks"] for row in found} == {1}


def test_ranks_that_have_died_are_not_silent(run: Run, collector: Collector) -> None:
    silences = Silences(Silence(), 0.0)
    with started_with(run) as process:
        shim = run.ring(pid=process.pid)
        process.communicate()
    put(shim, 10)
    watch = run.watch(collector.endpoint)
    watch._sources["silence"].silences = silences  # type: ignore[attr-defined]
    silences.step = lambda *_: True  # type: ignore[method-assign]
    watch.step()
    run.end()
    deliver(watch)
    watch.close()
    assert rows(collector, "silences") == []


def test_intervals_that_are_dropped_end_a_silence_too() -> None:
    silences = Silences(Silence(), 0.0)
    said = [silences.step(10 + (second >= 8), NOW, float(second)) for second in range(14)]
    assert [second for second, one in enumerate(said) if one] == [5, 13]


def test_a_sidecar_that_was_stopped_has_seen_little_of_the_silence() -> None:
    silences = Silences(Silence(), 0.0)
    silences.step(10, NOW, 0.0)
    assert silences.step(10, NOW, 3600.0)
    assert silences.current.at == NOW + FIRST_SECONDS


def started_with(run: Run) -> subprocess.Popen[bytes]:
    """A process with the run's variable in its environment, which lives until its input is closed."""
    environment = {**os.environ, "BAROGRAPH_RING_DIR": str(run.rings)}
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_the_end_waits_briefly_for_ranks_that_outlive_the_command(run: Run) -> None:
    shim = run.ring()
    now = NOW
    watch = WatchedRun(run.directory, run.plan, system=calendar_at(lambda: now))
    with started_with(run) as rank:
        save(run.directory, END_FILE, CommandEnd(NOW, 50.0, 137))
        put(shim, 5)
        watch.step()
        assert not watch.ended
        put(shim, 5)
        rank.communicate()
    watch.step()
    assert watch.ended
    assert watch.report().seen == 10
    watch.close()


def test_the_end_does_not_wait_for_daemons_started_by_the_command(run: Run) -> None:
    now = NOW
    watch = WatchedRun(run.directory, run.plan, system=calendar_at(lambda: now))
    with started_with(run) as left:
        save(run.directory, END_FILE, CommandEnd(NOW, 50.0, 0))
        watch.step()
        assert not watch.ended
        now += STRAGGLERS_SECONDS
        watch.step()
        assert watch.ended
        left.communicate()
    watch.close()


def test_a_run_without_its_launcher_ends_with_its_last_process(run: Run, collector: Collector) -> None:
    run.plan = msgspec.structs.replace(run.plan, launcher_born=0)  # the id now belongs to another process
    watch = run.watch(collector.endpoint)
    with started_with(run) as rank:
        watch.step()
        assert not watch.ended  # it may still call MPI_Init
        shim = run.ring()
        put(shim, 10)
        rank.communicate()
    deliver(watch)
    watch.close()
    assert indices(collector) == list(range(10))
    (end,) = rows(collector, "runs")
    assert (end["exit_status"], end["runtime_seconds"] != end["runtime_seconds"], end["ended_at"]) == (-1, True, NOW)


def test_a_process_is_identified_by_its_start_time_and_a_zombie_has_ended(tmp_path: Path) -> None:
    assert PROCESSES.born(os.getpid()) == PROCESSES.born(os.getpid()) > 0
    assert PROCESSES.born(2**22 + 1) == -1  # beyond the limit of Linux
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/cat")
    with subprocess.Popen([program], stdin=subprocess.PIPE) as process:
        assert PROCESSES.born(process.pid) >= PROCESSES.born(os.getpid())
        assert process.stdin is not None
        process.stdin.close()
        wait_until(lambda: PROCESSES.born(process.pid) == -1, "it has ended; nobody has collected it yet")


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.EIO])
def test_a_process_that_cannot_be_looked_at_for_want_of_descriptors_is_not_taken_for_gone(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def fails(*arguments: object, **named: object) -> bytes:
        raise OSError(error, os.strerror(error))

    processes = Processes()
    monkeypatch.setattr(os, "open", fails)
    monkeypatch.setattr(Path, "read_bytes", fails)
    assert processes.born(os.getpid()) == UNCERTAIN
    assert run.plan.launcher_lives(processes)
    assert run.plan.command_lives(processes)


def test_orphans_are_delivered_a_few_at_a_time_within_the_descriptors_of_a_user(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "MAX_ADOPTED", 3)
    for number in range(8):
        gone = Run(tmp_path, f"run{number}")
        save(gone.directory, PLAN, msgspec.structs.replace(gone.plan, launcher_born=0))
        gone.end()
    orphaned = Orphans(tmp_path / "spools", collector.endpoint)
    assert (len(orphaned.runs), orphaned.left) == (3, 5)
    for watch in orphaned.runs.values():
        watch.close()
    delivery = SpoolDelivery(tmp_path / "spools", collector.endpoint, DEADLINE_SECONDS)
    delivery.run()
    assert delivery.left == 0
    assert len(rows(collector, "runs")) == 8


def test_a_spool_without_a_socket_to_deliver_it_by_waits_for_the_next_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> object:
        raise zmq.ZMQError(errno.EMFILE)

    save(run.directory, PLAN, msgspec.structs.replace(run.plan, launcher_born=0))
    monkeypatch.setattr(zmq.Context, "socket", fails)
    orphaned = Orphans(run.directory.parent, NOWHERE)
    assert (orphaned.runs, orphaned.left) == ({}, 0)
    assert load_plan(run.directory)


def test_a_ring_whose_counters_are_damaged_ends_its_run_and_no_delivery(run: Run, collector: Collector) -> None:
    ring = run.ring()
    put(ring, 3)
    watch = run.watch(collector.endpoint)
    watch.step()
    ring.set(head=2**40)
    run.end()
    deliver(watch)
    assert [row["kind"] for row in rows(collector, "events")] == ["ring-unreadable"]
    assert len(rows(collector, "runs")) == 1
    watch.close()


def test_only_runs_without_launcher_and_watch_are_adopted(tmp_path: Path) -> None:
    running, own = Run(tmp_path, "running"), Run(tmp_path, "own")
    gone, watched = (Run(tmp_path, name, launcher_born=0) for name in ("gone", "watched"))
    root = running.directory.parent
    (root / "no plan").mkdir()
    (root / "half").mkdir()
    (root / "half" / PLAN).write_text("{")
    (root / "file").touch()
    save(own.directory, PLAN, msgspec.structs.replace(own.plan, launcher_born=0))
    assert list(orphans(root)) == [gone.directory, own.directory, watched.directory]
    holders = own.watch(), watched.watch()  # own: a sidecar does not adopt runs that it watches
    ((directory, adopted),) = Orphans(root, "tcp://127.0.0.1:2").runs.items()
    assert directory == gone.directory
    assert adopted.plan == msgspec.structs.replace(load_plan(gone.directory), endpoint="tcp://127.0.0.1:2")
    for watch in (adopted, *holders):
        watch.close()


def test_the_run_of_a_living_sidecar_is_not_adopted_and_keeps_its_plan(run: Run) -> None:
    watch = run.watch()
    with pytest.raises(SpoolError):
        adopt(run.directory, run.plan, SYSTEM, endpoint="tcp://127.0.0.1:2")
    assert load_plan(run.directory) == run.plan
    watch.close()


def test_only_what_is_left_of_a_deleted_spool_is_deleted(tmp_path: Path) -> None:
    root = tmp_path / "spools"
    for name, files in {
        "rest": ["lock", "spool.sqlite", "spool.sqlite-wal", "end.json", "report.json.part", "sidecar.log"],
        "thesis": ["lock", "chapter-1.tex"],
        "begun": ["plan.json.part"],
        "empty": [],
        "folder": ["lock"],
        "locked": ["lock"],
    }.items():
        (root / name).mkdir(parents=True)
        for file in files:
            (root / name / file).write_text("")
    (root / "folder" / "within").mkdir()
    (root / "node.log").write_text("")
    assert Orphans(root, NOWHERE).runs == {}
    assert sorted(path.name for path in root.iterdir()) == ["begun", "empty", "folder", "locked", "node.log", "thesis"]
    assert sorted(path.name for path in (root / "thesis").iterdir()) == ["chapter-1.tex", "lock"]


@contextlib.contextmanager
def descriptors_limited(more: int) -> Iterator[None]:
    """This process can open so many more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def launched(run: Run, launch: int, ranks: int, intervals: int) -> None:
    """A program that has run and ended."""
    for rank in range(ranks):
        shim = run.ring(f"rank-{rank}.{launch * ranks + rank}.ring", pid=1, started_ns=(5 + launch) * 10**9)
        shim.set(rank=rank, size=ranks, launch=launch + 1)
        for number in range(intervals):
            shim.put(launch * 10**9 + 1000 * (number + 1))
        shim.set(state=FINALIZED, exit=EXITED, dropped=launch % 2)


def test_rings_of_ended_launches_are_given_back_and_all_they_had_is_counted(tmp_path: Path) -> None:
    launches, ranks, intervals = 200, 16, 5
    run = Run(tmp_path, spool_bytes=2**26)
    watch = run.watch()
    lost = 0
    for launch in range(launches):
        launched(run, launch, ranks, intervals)
        gc.collect()
        with descriptors_limited(40):
            for _ in range(2):
                watch.step()
        assert len(list(run.rings.glob("*.ring"))) <= 2 * ranks
        lost += launch % 2
        if launch == 7:  # another sidecar goes on
            watch.close()
            watch = run.watch()
    assert watch.report().seen == launches * intervals + lost
    run.end()
    watch.step()
    report = watch.report()
    assert (report.seen, report.spooled, report.dropped) == (launches * intervals + lost, launches * intervals, lost)
    assert (report.ranks, watch.notes) == (ranks, [])
    watch.close()


def test_rings_of_ended_programs_with_intervals_of_their_own_are_given_back(run: Run) -> None:
    watch, programs = run.watch(), 6
    text = "from barograph_agent import interval\nfor _ in range(5):\n    with interval('solve'):\n        pass"
    launched(run, 0, 2, 7)
    for _ in range(programs):
        watched = {"BAROGRAPH_RING_DIR": str(run.rings), "LD_PRELOAD": str(shim.library())}
        environment = {**os.environ, **watched}
        subprocess.run([sys.executable, "-c", text], env=environment, check=True)
        for _ in range(2):
            watch.step()
        assert not list(run.rings.glob("app-*.ring"))
    assert watch.report().seen == 7 + 5 * programs
    run.end()
    watch.step()
    report = watch.report()
    assert (report.seen, report.spooled, report.ranks, watch.notes) == (7 + 5 * programs, 7 + 5 * programs, 2, [])
    watch.close()


class FullFolder(Disk):
    """Without room below a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def replace(self, path: Path, content: bytes) -> None:
        if self._directory in path.parents:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace(path, content)


def test_launcher_and_sidecar_hear_of_each_other_on_a_full_disk_without_waiting_for_room(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Spool, "commit", full)
    disk, parent = FullFolder(run.directory), os.getppid()
    put(run.ring(), 3)
    leave(run.directory, END_FILE, CommandEnd(NOW, 50.0, 7), run.plan, disk)
    assert load_end(run.directory, run.plan) == CommandEnd(NOW, 50.0, 7)
    own = {"launcher": parent, "launcher_born": PROCESSES.born(parent)}
    plan = msgspec.structs.replace(run.plan, has_companions=True, **own)
    system = SYSTEM._replace(disk=disk)
    watch = WatchedRun(run.directory, plan, system=system)
    Sidecar(run.directory.parent, plan.endpoint, 0.0, {run.directory: watch}, system).run()
    report = load_report(run.directory, plan)
    assert report is not None
    assert (report.seen, report.delivered) == (3, False)


def test_a_source_that_fails_is_reported_once_and_ends_nothing_else(
    run: Run, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pressures, "read", lambda *_, **__: int("n/a"))
    put(run.ring(), 10)
    run.end()
    watch = run.watch(collector.endpoint)
    deliver(watch)
    assert watch.report().notes == ["kernel: ValueError(\"invalid literal for int() with base 10: 'n/a'\")"]
    watch.close()
    assert [row["kind"] for row in rows(collector, "events")] == ["source-failed"]
    (cost,) = rows(collector, "sidecars")
    failures = {one["source"]: one["failures"] for one in msgspec.json.decode(cost["sources"])}
    assert (failures["kernel"], failures["rings"]) == (1, 0)
    assert indices(collector) == list(range(10))


def test_what_cannot_be_opened_for_want_of_descriptors_is_opened_later(tmp_path: Path) -> None:
    for rank in range(600):
        FakeShim(tmp_path / f"rank-{rank}.{rank}.ring").set(rank=rank, size=600)
    gc.collect()
    rings = RingSet(tmp_path, Progress())
    try:
        with descriptors_limited(100):
            rings.find()
        assert (rings.unreadable, rings.is_complete) == ({}, False)
        with descriptors_limited(600):
            rings.find()
        assert (rings.unreadable, rings.is_complete, len(rings.ranks_here)) == ({}, True, 600)
    finally:
        rings.close()


@pytest.mark.parametrize("field", ["dropped", "head", "tail", "iterations_dropped", "index", "exit_ns", "bytes"])
@pytest.mark.parametrize("value", [2**63, 2**64 - 1])
def test_no_number_in_a_ring_ends_the_delivery_of_this_run_or_of_others(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch, field: str, value: int
) -> None:
    for name in ("a", "b", "c"):
        run = Run(tmp_path, name, launcher_born=0, endpoint=collector.endpoint)
        put(shim := run.ring(calls=64), 3)
        if name != "b":
            continue
        if field in RECORD.names:
            shim.records[1][field] = value
        else:
            shim.set(**{field: value})
    monkeypatch.setenv("BAROGRAPH_SPOOL", str(tmp_path / "spools"))
    assert spool_command(["--send", "--collector", collector.endpoint, "--seconds", "60"]) == 0
    assert [path.name for path in (tmp_path / "spools").iterdir()] == []


def test_a_spool_that_cannot_be_read_holds_up_no_other(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        put(Run(tmp_path, name, launcher_born=0, endpoint=collector.endpoint).ring(), 3)
    read = RingSet.read

    def failing(rings: RingSet, now: float, **options: Any) -> Any:
        if rings._directory.name == "b":
            raise OverflowError("a defect")
        return read(rings, now, **options)

    monkeypatch.setattr(RingSet, "read", failing)
    monkeypatch.setenv("BAROGRAPH_SPOOL", str(tmp_path / "spools"))
    with pytest.raises(CommandError, match="1 runs not delivered"):
        spool_command(["--send", "--collector", collector.endpoint, "--seconds", "60"])
    out, err = capsys.readouterr()
    assert sorted(out.splitlines()) == ["delivered  lab/a.0.0", "delivered  lab/c.0.0"]
    assert err == "barograph: lab/b.0.0 is given up: OverflowError('a defect')\n"


def test_a_spool_that_cannot_be_opened_is_named_with_its_job_and_why(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [Run(tmp_path, name, launcher_born=0, endpoint=collector.endpoint) for name in ("a", "b")]
    for run in runs:
        put(run.ring(), 3)
    (runs[1].directory / DATABASE).write_bytes(b"no database" * 100)
    monkeypatch.setenv("BAROGRAPH_SPOOL", str(tmp_path / "spools"))
    with pytest.raises(CommandError, match="1 runs not delivered"):
        spool_command(["--send", "--collector", collector.endpoint, "--seconds", "60"])
    damaged = f"spool {runs[1].directory}: {DATABASE}: file is not a database, expected a database of this program"
    assert capsys.readouterr().out.splitlines() == ["delivered  lab/a.0.0", f"waiting    lab/b.0.0: {damaged}"]


needs_root = pytest.mark.skipif(
    os.getuid() != 0 and not os.environ.get("CI"), reason="needs root, who makes another user's files"
)


def of_a_stranger(path: Path) -> None:
    """Give a file or a folder with its content to another user."""
    for one in (path, *path.rglob("*")):
        os.chown(one, 65534, 65534, follow_symlinks=False)


def send(root: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("BAROGRAPH_SPOOL", str(root))
    return spool_command(["--send", "--collector", NOWHERE, "--seconds", "0"])


@needs_root
@pytest.mark.parametrize("by", ["directory", "link"])
def test_no_spool_is_sent_from_a_directory_that_another_user_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    (victim := tmp_path / "thesis").mkdir()
    (victim / "chapter-1.tex").touch()
    theirs = Run(tmp_path / "theirs", ring_directory=str(victim), launcher_born=0)
    root = theirs.directory.parent
    if by == "link":  # with spools of this user, which are not the ones meant
        root = tmp_path / "link"
        root.symlink_to(theirs.directory.parent)
        of_a_stranger(root)
        complaint = f"spool directory {root} is not a directory, expected one of this user's"
    else:
        of_a_stranger(root)
        complaint = f"spool directory {root} belongs to uid 65534, expected 0"
    with pytest.raises(CommandError) as raised:
        send(root, monkeypatch)
    assert str(raised.value) == complaint
    assert Orphans(root, NOWHERE).runs == {}
    assert (victim / "chapter-1.tex").exists()


@needs_root
@pytest.mark.parametrize("what", ["spool", "plan", "linked plan"])
def test_a_plan_that_another_user_has_put_into_ones_spools_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    run = Run(tmp_path, launcher_born=0)
    plan = run.directory / PLAN
    if what == "linked plan":
        (own := tmp_path / "own").write_bytes(plan.read_bytes())
        plan.unlink()
        plan.symlink_to(own)
    else:
        of_a_stranger(plan if what == "plan" else run.directory)
    assert send(run.directory.parent, monkeypatch) == 0
    assert capsys.readouterr().out == "nothing is waiting\n"
    assert run.rings.is_dir()
    assert run.directory.is_dir()


@pytest.mark.parametrize("mark", [None, "lab/another/1"])
def test_only_the_directory_of_rings_that_is_marked_as_the_runs_is_deleted(
    tmp_path: Path, collector: Collector, mark: str | None
) -> None:
    run = Run(tmp_path, launcher_born=0)
    put(run.ring(), 3)
    (run.rings / RUN).unlink()
    if mark is not None:
        (run.rings / RUN).write_text(mark)
    watch = run.watch(collector.endpoint)
    deliver(watch)
    watch.delete()
    assert (run.rings / "0.ring").exists()
    assert not run.directory.exists()


def test_a_directory_of_another_user_or_a_link_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = places.private_directory(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700
    assert places.private_directory(made) == made
    (tmp_path / "link").symlink_to(made)
    (tmp_path / "file").touch()
    uid = os.getuid()
    cases = {
        tmp_path / "link": "is not a directory, expected one of this user's",
        tmp_path / "file": "File exists, expected a directory that this user can write",
        tmp_path / "file" / "x": "Not a directory, expected a directory that this user can write",
    }
    for path, words in cases.items():
        with pytest.raises(PermissionError) as raised:
            places.private_directory(path)
        assert str(raised.value).removeprefix(str(path)).lstrip(": ") == words
    monkeypatch.setattr(places.os, "getuid", lambda: uid + 1)
    with pytest.raises(PermissionError) as raised:
        places.private_directory(made)
    assert str(raised.value) == f"{made} belongs to uid {uid}, expected {uid + 1}"


def test_what_the_kernel_knows_of_the_runs_own_processes_is_delivered(run: Run, collector: Collector) -> None:
    def sleeper(rings: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "600"], env={"BAROGRAPH_RING_DIR": str(rings)})

    rank, stranger = sleeper(run.rings), sleeper(run.rings.parent)
    try:
        for number, process in enumerate((rank, stranger)):
            run.ring(f"{number}.ring", pid=process.pid).set(rank=number)
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda pid=process.pid: state(pid) == "T", "the process is stopped")
        clock = Passing()
        plan = msgspec.structs.replace(run.plan, endpoint=collector.endpoint)
        watch = WatchedRun(run.directory, plan, system=SYSTEM._replace(clock=clock))
        for _ in range(12):
            watch.step()
            clock.passed += 1.0
        run.end()
        deliver(watch)
        watch.close()
    finally:
        for process in (rank, stranger):
            process.kill()
            process.wait()
    found = rows(collector, "pressures")
    assert {(row["host"], row["rank"]) for row in found} == {("n1", -1), ("n1", 0)}
    assert sum(row["stopped_seconds"] for row in found if row["rank"] == 0) >= 8.0


def state(pid: int) -> str:
    stat = process_stat(PROCESSES, pid)
    return stat.state if stat is not None else ""


def test_a_collector_with_a_full_disk_is_named_its_rows_are_kept_and_the_run_does_not_wait(
    run: Run, collector: Collector
) -> None:
    collector.space.reserve = 2**62
    put(run.ring(), 3)
    run.end()
    plan = msgspec.structs.replace(run.plan, endpoint=collector.endpoint, drain_seconds=1e9)
    watch = WatchedRun(run.directory, plan, system=calendar_at(lambda: NOW))
    reports = []
    monitored = Sidecar(run.directory.parent, collector.endpoint, 1e9, {run.directory: watch})
    monitored.release = lambda one: (reports.append(one.report()), one.close())  # type: ignore[assignment,method-assign]
    monitored.run()
    (report,) = reports
    assert report.trouble.startswith("the disk of the log is full: ")
    assert (report.spooled, report.dropped, report.notes) == (3, 0, [])
    collector.space.reserve = 0
    again = run.watch(collector.endpoint)
    deliver(again)
    assert again.report().trouble == ""
    again.close()
    assert indices(collector) == [0, 1, 2]


@pytest.mark.parametrize("seconds", [STEP_SECONDS, BUSY_STEP_SECONDS])
@pytest.mark.parametrize("period", [0.1, 0.05, 0.04])
def test_steps_are_at_the_same_instants_on_all_nodes_and_in_all_phases_of_what_has_a_period(
    seconds: float, period: float
) -> None:
    """A process that is stopped for 40 % of each tenth of a second, which steps at multiples of it would not see."""

    def steps(begin: float) -> list[float]:
        times = [begin]
        while len(times) <= 61:
            times.append(times[-1] + until_step(times[-1], seconds))
        return times[1:]

    first = steps(1.8e9)
    assert all(0.7 * seconds < later - step < 1.3 * seconds for step, later in pairwise(first))
    for begin in (0.3, 0.7):
        times = {round(step, 3) for step in steps(1.8e9 + begin * seconds)[:40]}
        assert times <= {round(step, 3) for step in first}
    assert 0.25 < sum(step % period < 0.4 * period for step in first) / len(first) < 0.55


def test_between_two_steps_a_sidecar_waits_for_nothing_but_the_end_of_the_command(run: Run) -> None:
    waits: list[tuple[int, float]] = []
    reading, writing = os.pipe()

    class CountingNetwork(Network):
        def wait(self, sources: Collection[Source], seconds: float) -> None:
            waits.append((len(sources), seconds))
            if len(waits) == 4:
                run.end()
                os.close(writing)
                super().wait(sources, 1e6)

    put(run.ring(), 10)
    system = SYSTEM._replace(network=CountingNetwork())
    watch = WatchedRun(run.directory, run.plan, system=system)
    Sidecar(run.directory.parent, NOWHERE, 0.0, {run.directory: watch}, system, reading).run()
    os.close(reading)
    assert watch.ended
    assert [sources for sources, _ in waits] == [1] * 4
    assert all(seconds <= (1 + STEP_SPREAD) * STEP_SECONDS for _, seconds in waits)


STEPS = """
import barograph_agent.sidecar.main, pathlib, sys
from helpers.stepping import SteppedWatch
watch, before = SteppedWatch(pathlib.Path(sys.argv[1]), 2, 1000), set(sys.modules)
for _ in range(60):
    watch.step()
print(*set(sys.modules) - before)
watch.close()
"""


def test_nothing_is_imported_in_a_step(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(REPOSITORY / "tests"), "PATH": os.defpath}
    assert subprocess.check_output([sys.executable, "-P", "-c", STEPS, tmp_path], env=environment) == b"\n"
