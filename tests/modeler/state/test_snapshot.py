"""A modeler that goes on from its snapshot knows what one that never stopped knows; any other snapshot is ignored."""

from __future__ import annotations

import json
import logging
import math
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import Round
from barograph_collector.daemon.runner import Runner
from barograph_modeler.learning.learner import Learner
from barograph_modeler.state import snapshot as module
from barograph_modeler.state.gate import Gate
from barograph_modeler.state.snapshot import (
    SNAPSHOT_SECONDS,
    Offsets,
    SnapshotKeeper,
    UnusableSnapshot,
    read_snapshot,
    write_snapshot,
)
from helpers.jobs import Simulation, part, verdict

TABLES = ["jobs", "blocks", "runs", "scores"]
SETTINGS = "window of 1 s"


class Page:
    def __init__(self, columns: dict[str, Any], after: int) -> None:
        self.columns = columns
        self.rows = len(columns["log_offset"])
        self.next_offset = int(columns["log_offset"][-1]) if self.rows else after


class FakeLog:
    """A log in memory: pieces of tables in the order they were committed, of which `visible` rows can be read."""

    def __init__(self, pieces: list[tuple[str, dict[str, Any]]]) -> None:
        self.head = 0
        self.tables: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
        for table, columns in pieces:
            rows = len(columns["job"])
            offsets = np.arange(self.head + 1, self.head + 1 + rows)
            self.tables[table].append({**columns, "log_offset": offsets})
            self.head += rows
        self.visible = self.head

    def read(self, table: str, after: int, limit: int = 10_000, job: str = "") -> Page:
        for columns in self.tables[table]:
            last = min(int(columns["log_offset"][-1]), self.visible)
            if last > after and columns["log_offset"][0] <= self.visible:
                start = int(np.searchsorted(columns["log_offset"], after, side="right"))
                stop = int(np.searchsorted(columns["log_offset"], last, side="right"))
                return Page(part(columns, start, min(stop, start + limit)), after)
        return Page({"log_offset": np.empty(0, dtype=np.int64)}, after)

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round:
        pages = {table: self.read(table, after, limit).columns for table, after in offsets.items()}
        ends = [int(columns["log_offset"][-1]) for columns in pages.values() if len(columns["log_offset"])]
        upto = min(ends, default=self.visible)
        cut = {t: part(c, 0, int(np.searchsorted(c["log_offset"], upto, side="right"))) for t, c in pages.items()}
        return upto, {table: columns for table, columns in cut.items() if len(columns["log_offset"])}


class Sink:
    idle = True

    def put(self, *output: Any) -> None: ...

    def pump(self) -> None: ...


def history(factors: list[float | None]) -> list[tuple[str, dict[str, Any]]]:
    """Runs as the log holds them; None is a healthy one, a number a run that alarmed and was so many times slower."""
    simulation, pieces = Simulation(intervals=2000), []
    for number, factor in enumerate(factors):
        drift = 1.0 if number < 3 else 1.2
        job = simulation.job(slow_from=0, factor=factor or drift)
        pieces.append(("jobs", job["jobs"]))
        pieces += [("blocks", part(job["blocks"], at, at + 250)) for at in range(0, 2000, 250)]
        pieces += [("runs", job["runs"]), ("scores", verdict(job, 2.0 if factor else 0.0))]
    return pieces


class FollowedPart(NamedTuple):
    """A log with its name, as `LogSource` has it."""

    name: str
    reader: FakeLog
    follower: Follower


class Life:
    """One life of a modeler over a log."""

    def __init__(self, log: FakeLog, directory: Path, clock: Any = lambda: 0.0) -> None:
        self.learner = Learner(accept=2, refit_seconds=math.inf)
        self.follower = Follower(log, TABLES, page=300)
        self.keeper = SnapshotKeeper(directory, self.learner, SETTINGS, clock)
        self.keeper.restore(FollowedPart("a", log, self.follower))
        self.station = Runner(self.learner, self.follower, Sink(), clock=lambda: 1e6)  # type: ignore[arg-type]


def known(learner: Learner) -> dict[str, Any]:
    """Everything a learner has come to."""
    workload = learner.workloads["lab/app@2x1"]
    assert workload.pace is not None
    return {
        "bands": {c: (i.bands, i.trusted, i.history.band()) for c, i in workload.intervals.items()},
        "moments": {c: i.moments for c, i in workload.intervals.items()},
        "regimes": {c: i.regimes for c, i in workload.intervals.items()},
        "coverage": (workload.interval_coverage, workload.runtime_coverage),
        "runtime": workload.runtime,
        "pace": workload.pace.columns(),
        "counts": (learner.learned_intervals, learner.withheld_intervals, learner.learned_runs, learner.held_jobs),
        "closed": dict(learner.closed_regimes),
    }


FACTORS = [None, None, None, None, None, 3.0, None, 3.0, 3.0]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    life = Life(FakeLog(history(FACTORS)), tmp_path_factory.mktemp("state"))
    life.station.step()
    found = known(life.learner)
    assert found["closed"] == {"drift": 2, "accepted": 1}  # the history has something of everything
    return found


@pytest.mark.parametrize("stop", [0, 1, 700, 2003, 4100, 8020, 10_600, 13_999, 16_900, 18_020])
@pytest.mark.parametrize("lost", [0, 1300])
def test_killed_anywhere_and_restored_it_comes_to_the_same(tmp_path, uninterrupted, stop, lost):
    """It is killed `lost` rows after its last snapshot, which was taken when `stop` rows could be read."""
    log = FakeLog(history(FACTORS))
    first = Life(log, tmp_path)
    log.visible = stop
    first.station.step()
    first.keeper.keep("a", first.follower.delivered, True)
    log.visible = stop + lost
    first.station.step()
    log.visible = log.head
    second = Life(log, tmp_path)
    assert second.follower.offsets == dict.fromkeys(TABLES, 0) | {
        table: max((o for o in offsets if o <= stop), default=0)
        for table, offsets in ((t, [o for c in log.tables[t] for o in c["log_offset"]]) for t in TABLES)
    }
    second.station.step()
    found = known(second.learner)
    # Sums are the same up to rounding: they were cut into other batches.
    assert repr_rounded(found) == repr_rounded(uninterrupted)


def repr_rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, dict):
        return {key: repr_rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [repr_rounded(one) for one in value]
    if hasattr(value, "__slots__") or hasattr(value, "__dict__"):
        names = getattr(type(value), "__slots__", None) or sorted(vars(value))
        return {name: repr_rounded(getattr(value, name)) for name in names if name != "cubes"}
    return value


def test_a_snapshot_between_rounds_is_of_the_rows_handed_over(tmp_path):
    log = FakeLog(history([None, None]))
    follower = Follower(log, TABLES, page=300)
    rounds = follower.poll()
    handed = dict.fromkeys(TABLES, 0)
    for _ in range(5):
        for table, columns in next(rounds):
            handed[table] = int(columns["log_offset"][-1])
    assert follower.delivered == handed
    assert 0 < max(handed.values()) < log.head


def saved(tmp_path: Path) -> tuple[FakeLog, Life]:
    log = FakeLog(history([None, None, None]))
    life = Life(log, tmp_path)
    life.station.step()
    life.keeper.keep("a", life.follower.delivered, True)
    return log, life


def rewritten(life: Life, **changes: Any) -> bytes:
    line, _, body = life.keeper.path.read_bytes().partition(b"\n")
    return json.dumps(json.loads(line) | changes).encode() + b"\n" + body


def evil(life: Life) -> bytes:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("touch harmed",)

    write_snapshot(life.keeper.path, Offsets("a", life.follower.delivered), SETTINGS, {"workloads": Evil()})
    return life.keeper.path.read_bytes()


SPOILED = {
    "empty": (lambda life: b"", "its first line is no header"),
    "noise": (lambda life: bytes(range(256)) * 9, "its first line is no header"),
    "cut": (lambda life: life.keeper.path.read_bytes()[:-7], "its digest is not that of its content"),
    "another format": (lambda life: rewritten(life, format=99), "its format is 99, expected "),
    "another version": (lambda life: rewritten(life, versions={"numpy": "9"}), "its versions are "),
    "another window": (lambda life: rewritten(life, settings="window of 2 s"), "its settings are 'window of 2 s'"),
    "other tables": (lambda life: rewritten(life, offsets={"jobs": 1}), "it is of tables ['jobs'], expected"),
    "ahead of the log": (
        lambda life: rewritten(life, offsets=dict.fromkeys(TABLES, 10**9)),
        "table 'jobs' of the log has no row at its offset 1000000000: it is of another log",
    ),
    "of another log": (
        lambda life: rewritten(life, offsets=life.follower.delivered | {"runs": 5}),
        "table 'runs' of the log has no row at its offset 5: it is of another log",
    ),
    "of a log of another name": (lambda life: rewritten(life, log="b"), "it is of log b, expected a"),
    "evil": (evil, "its content is not readable: it asks for posix.system"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_snapshot_that_is_not_ours_or_not_of_this_log_is_ignored_with_one_line(tmp_path, monkeypatch, caplog, name):
    monkeypatch.chdir(tmp_path)
    spoil, reason = SPOILED[name]
    log, life = saved(tmp_path)
    life.keeper.path.write_bytes(spoil(life))
    with caplog.at_level(logging.INFO):
        fresh = Life(log, tmp_path)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(
        f"snapshot {life.keeper.path} is ignored, the log is read from its beginning: {reason}"
    )
    assert fresh.follower.offsets == dict.fromkeys(TABLES, 0)
    assert not fresh.learner.workloads
    assert not (tmp_path / "harmed").exists()


def test_only_own_classes_and_plain_containers_come_out_of_a_snapshot(tmp_path):
    path = tmp_path / "file"
    for thing, asked in ((print, "builtins.print"), (os.getcwd, "posix.getcwd"), (pickle.loads, "_pickle.loads")):
        write_snapshot(path, Offsets("a", {}), SETTINGS, [thing])
        with pytest.raises(UnusableSnapshot, match=f"it asks for {asked}"):
            read_snapshot(path, SETTINGS)


def test_snapshots_are_written_when_due_and_at_the_end_and_a_full_disk_stops_nothing(tmp_path, caplog):
    now = [0.0]
    life = Life(FakeLog(history([None])), tmp_path, clock=lambda: now[0])
    life.station.step()
    life.keeper.keep("a", life.follower.delivered, False)
    assert not life.keeper.path.exists()
    now[0] = SNAPSHOT_SECONDS
    life.keeper.keep("a", life.follower.delivered, False)
    life.keeper.poll(wait=True)
    life.keeper.path.unlink()
    life.keeper.keep("a", life.follower.delivered, False)
    assert not life.keeper.path.exists()
    life.keeper.keep("a", life.follower.delivered, True)
    assert life.keeper.path.exists()
    life.keeper.path.unlink()
    life.keeper.path.with_name("modeler.snapshot.part").mkdir()
    life.keeper.keep("a", life.follower.delivered, True)
    assert caplog.messages == [f"snapshot {life.keeper.path} is not written: Is a directory"]


def test_a_snapshot_written_aside_is_of_the_instant_it_was_ordered_at(tmp_path):
    """The learner goes on, and changes everything, while the other process has not begun to write."""
    now = [0.0]
    log = FakeLog(history([None, None, None]))
    life = Life(log, tmp_path, clock=lambda: now[0])
    life.station.step()
    expected = repr_rounded(known(life.learner))
    now[0] = SNAPSHOT_SECONDS
    life.keeper.keep("a", life.follower.delivered, False)
    life.learner.workloads.clear()
    life.keeper.poll(wait=True)
    assert repr_rounded(known(Life(log, tmp_path).learner)) == expected


def test_no_snapshot_is_begun_while_another_thread_reckons(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GATE_SECONDS", 0.0)
    now, gate = [0.0], Gate()
    life = Life(FakeLog(history([None])), tmp_path, clock=lambda: now[0])
    keeper = SnapshotKeeper(tmp_path, life.learner, SETTINGS, lambda: now[0], gate)
    now[0] = SNAPSHOT_SECONDS
    with gate.passing():
        keeper.keep("a", life.follower.delivered, False)
    assert not keeper.path.exists()
    keeper.keep("a", life.follower.delivered, False)
    keeper.poll(wait=True)
    assert keeper.path.exists()


def test_a_snapshot_aside_that_meets_a_full_disk_or_dies_costs_the_snapshot_and_no_more(tmp_path, caplog):
    now = [0.0]
    life = Life(FakeLog(history([None])), tmp_path, clock=lambda: now[0])
    life.keeper.path.with_name("modeler.snapshot.part").mkdir()
    now[0] = SNAPSHOT_SECONDS
    life.keeper.keep("a", life.follower.delivered, False)
    life.keeper.poll(wait=True)
    assert caplog.messages == [f"snapshot {life.keeper.path} is not written: Is a directory"]
    now[0] = 2 * SNAPSHOT_SECONDS
    life.keeper.keep("a", life.follower.delivered, False)
    life.keeper.keep("a", life.follower.delivered, True)  # the last chance comes while the other one is under way
    assert caplog.messages[1:] == [f"snapshot {life.keeper.path} is not written: Is a directory"]
