"""`barograph replay` and `barograph record` on generated traces."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph.cli import main
from barograph_agent.reduce.intervals import Cursor, IntervalReader
from barograph_lab.replay.members import stretches
from barograph_lab.replay.record import Recorder
from barograph_lab.replay.ring import TraceRing
from barograph_lab.replay.trace import read_trace
from helpers.rings import STARTED_NS, STARTED_UNIX_NS, FakeShim

START = 1_700_000_000
STEP = 0.02
"""Seconds of work before each collective of a generated trace."""


@dataclass
class Program:
    """A program of two ranks, three call paths in turn, one MPI_Bcast in each round; 2 % of noise. Seeded."""

    seconds: float = 80.0
    seed: int = 0
    slow: dict[int, list[tuple[float, float, float]]] = field(default_factory=dict)
    """Rank -> (from second, to second, factor of its work)."""
    p2p: bool = True
    contexts: tuple[int, int, int] = (7, 3, 5)

    def save(self, file: Path) -> Path:
        rng = np.random.default_rng(self.seed)
        rounds = int(self.seconds / STEP)
        clock, rows = 0.0, []
        for i in range(rounds):
            work = []
            for rank in (0, 1):
                factor = math.prod(f for a, b, f in self.slow.get(rank, []) if a <= clock < b)
                work.append(STEP * (1 + i % 3) / 2 * factor * rng.lognormal(0, 0.02))
            rows.append((i, work, max(work)))
            clock += max(work) + 2e-4
        arrays: dict[str, Any] = {"sites": np.array(["app+0x10", "app+0x20", "app+0x30"])}
        count = 2 * rounds + 1
        for rank in (0, 1):
            gap, duration, p2p = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)
            for i, work, longest in rows:
                # Half of the wait is for a neighbour's message, inside the gap; the rest is in the collective.
                late = longest - work[rank]
                message = late / 2 if self.p2p else 0.0
                gap[2 * i + 1], p2p[2 * i + 1] = int(1e9 * (work[rank] + message)), int(1e9 * message)
                duration[2 * i + 1] = int(1e9 * (late - message + 1e-4))
                duration[2 * i + 2] = 100_000
            arrays[f"gap_ns_{rank}"], arrays[f"dur_ns_{rank}"] = gap, duration
            arrays[f"op_{rank}"] = np.array([1] + [9, 64] * rounds)
            arrays[f"t_first_ns_{rank}"] = np.array([0])
            if self.p2p:
                arrays[f"p2p_ns_{rank}"] = p2p
        arrays["site"] = np.array([0] + [s for i in range(rounds) for s in (1, 2)])
        arrays["ctx"] = np.array([0] + [c for i in range(rounds) for c in (self.contexts[i % 3], 0)])
        meta = {"size": 2, "exe": "/opt/bin/app", "t0_mono_ns": 0, "t0_real_ns": START * 10**9}
        np.savez(file, allow_pickle=False, **arrays, meta=np.array(json.dumps(meta)))
        return file


def said(capsys: pytest.CaptureFixture[str], *arguments: Path | str) -> dict[str, Any]:
    assert main(["replay", *map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Program(seed=1).save(tmp_path_factory.mktemp("traces") / "clean.npz")


def test_a_healthy_run_of_a_known_workload_raises_no_alarm(tmp_path, clean, capsys):
    # A different numbering of the same call paths, as files may differ in it.
    found = said(capsys, Program(seed=2, contexts=(1, 2, 3)).save(tmp_path / "again.npz"), "--history", clean)
    assert found["alarms"] == []
    [job] = found["jobs"]
    assert (job["state"], job["basis"]) == ("healthy", "history")
    assert job["score"] < 1
    assert job["sentence"].startswith("healthy: within the spread of its history (score ")


def test_a_disturbance_is_found_with_onset_delay_slowdown_and_end(tmp_path, clean, capsys):
    program = Program(seed=3, slow={0: [(30, 50, 1.4)], 1: [(30, 50, 1.4)]})
    found = said(capsys, program.save(tmp_path / "slow.npz"), "--history", clean)
    [alarm] = found["alarms"]
    assert alarm["onset_seconds"] == pytest.approx(30, abs=1.5)
    assert alarm["onset"] == pytest.approx(START + alarm["onset_seconds"])
    assert alarm["detected_seconds"] - alarm["onset_seconds"] <= 15
    assert alarm["slowdown"] == pytest.approx(1.4, rel=0.03)
    assert alarm["recovered_at"] == pytest.approx(START + 50, abs=2)
    assert (alarm["cause"], alarm["nodes"], alarm["basis"]) == ("all-slow", ["all"], "history")
    assert found["jobs"][0]["score"] > 1


def test_each_phase_of_a_disturbance_that_comes_and_goes_is_an_alarm(tmp_path, clean, capsys):
    phases = [(20, 35, 1.5), (50, 75, 1.5)]
    found = said(capsys, Program(seed=4, slow={0: phases, 1: phases}).save(tmp_path / "on-off.npz"), "--history", clean)
    assert [alarm["onset_seconds"] for alarm in found["alarms"]] == pytest.approx([20, 50], abs=1.5)


def test_without_the_times_of_messages_nobody_is_named(tmp_path, capsys):
    history = Program(seed=1, p2p=False).save(tmp_path / "clean.npz")
    disturbed = Program(seed=5, p2p=False, slow={1: [(30, 80, 1.5)]}).save(tmp_path / "one.npz")
    [alarm] = said(capsys, disturbed, "--history", history)["alarms"]
    assert (alarm["cause"], alarm["nodes"]) == ("unknown", [])


def training(file: Path, slow: dict[int, tuple[float, float, float]], seconds: float = 60.0) -> Path:
    """Steps of four workers. slow: worker -> factors of its own work, its processor time and its updates."""
    rng, workers, steps = np.random.default_rng(7), 4, int(seconds / 0.1)
    own = np.array([[0.08 * slow.get(k, (1, 1, 1))[0]] * steps for k in range(workers)])
    own *= rng.lognormal(0, 0.02, own.shape)
    ends = own.max(axis=0) + 0.02
    arrays: dict[str, Any] = {"sites": np.array(["step SGD"]), "site": np.zeros(steps, np.int64)}
    for k in range(workers):
        _, used, updated = slow.get(k, (1, 1, 1))
        arrays[f"gap_ns_{k}"] = (own[k] * 1e9).astype(np.int64)
        arrays[f"dur_ns_{k}"] = ((ends - own[k]) * 1e9).astype(np.int64)
        arrays[f"op_{k}"] = np.full(steps, 19)
        arrays[f"cpu_ns_{k}"] = (0.07 * used * rng.lognormal(0, 0.02, steps) * 1e9).astype(np.int64)
        arrays[f"update_ns_{k}"] = (0.002 * updated * rng.lognormal(0, 0.02, steps) * 1e9).astype(np.int64)
        arrays[f"bytes_{k}"] = np.full(steps, 4096)
    meta = {"size": workers, "exe": "/usr/bin/python3", "t0_mono_ns": 0, "t0_real_ns": START * 10**9}
    np.savez(file, allow_pickle=False, **arrays, meta=np.array(json.dumps(meta)))
    return file


@pytest.mark.parametrize(
    ("slow", "named"),
    [({2: (1.3, 1.3, 1.3)}, True), ({2: (1.3, 1.0, 1.0)}, True), ({2: (1.3, 1.3, 1.0)}, False), ({}, False)],
    ids=["computes slowly", "waits", "has more data", "healthy"],
)
def test_the_slow_worker_of_a_training_is_named_without_a_history(tmp_path, capsys, slow, named):
    found = said(capsys, training(tmp_path / "train.npz", slow))
    assert [alarm["nodes"] for alarm in found["alarms"]] == ([["rank 2"]] if named else [])
    if named:
        assert ": worker 2 worked 2" in found["alarms"][0]["sentence"]
        assert found["alarms"][0]["detected_seconds"] < 30


def test_without_a_history_a_run_is_judged_by_its_own_first_windows(tmp_path, clean, capsys):
    healthy = said(capsys, clean)
    assert (healthy["alarms"], healthy["jobs"][0]["basis"]) == ([], "own")
    disturbed = Program(seed=6, slow={0: [(30, 80, 1.4)]}).save(tmp_path / "slow.npz")
    [alarm] = said(capsys, disturbed)["alarms"]
    assert alarm["basis"] == "own"
    assert alarm["onset_seconds"] == pytest.approx(30, abs=1.5)
    assert "its own first windows since" in alarm["sentence"]


def test_a_hang_is_reported_while_it_lasts(tmp_path, clean, capsys):
    file = Program(seed=7, seconds=40).save(tmp_path / "hang.npz")
    arrays = dict(np.load(file))
    for rank in (0, 1):
        arrays[f"gap_ns_{rank}"][1501] += 60 * 10**9
    np.savez(file, allow_pickle=False, **arrays)
    [alarm] = said(capsys, file, "--history", clean)["alarms"]
    assert (alarm["state"], alarm["cause"], alarm["slowdown"]) == ("stalled", "stall", None)
    # As a delay at first, and as a stall from 30 s on.
    assert 5 <= alarm["detected_seconds"] - alarm["onset_seconds"] <= 15


def test_intervals_and_classes_are_those_of_the_traces_layout(clean):
    trace = read_trace(clean)
    ring = TraceRing(trace)
    ring.advance(ring.last_seconds)
    intervals, sites = IntervalReader(ring, Cursor(world=0)).read()  # type: ignore[arg-type]
    ends = trace.ranks[0].exit[trace.ranks[0].synchronizing]
    assert intervals.seconds == pytest.approx(np.diff(ends, prepend=trace.ranks[0].exit[0]) * 1e-9)
    assert intervals.ended_at == pytest.approx(START + ends * 1e-9)
    # From the start, and from each of three paths to the next.
    assert len(sites["class_id"]) == 4
    assert sites["to_site"][0] == "app+0x20 < path 0"


def test_stretches_hold_all_the_work(tmp_path):
    trace = read_trace(Program(seed=8, seconds=10, p2p=True, slow={1: [(0, 99, 2.0)]}).save(tmp_path / "one.npz"))
    works = [work for stretch in stretches(trace) for work in stretch.members]
    one, other = ([w for w in works if w.name == f"rank {rank}"] for rank in (1, 0))
    assert sum(w.own_seconds for w in one) == pytest.approx(2 * sum(w.own_seconds for w in other), rel=0.02)
    assert sum(w.syncs for w in one) == trace.ranks[0].synchronizing.sum() - 1


def test_a_recorded_live_ring_is_replayed_unchanged(tmp_path, capsys):
    rings = tmp_path / "rings"
    rings.mkdir()
    shim = FakeShim(rings / "0.ring", capacity=1024)
    site = shim.site(0x10)
    recorder = Recorder(rings)
    # More than the capacity of the ring: the sidecar releases, the shim overwrites.
    for i in range(3000):
        assert shim.put((i + 1) * 20_000_000, site=site)
        if i % 500 == 499:
            recorder.step()
            shim.set(tail=shim.get("head"))
    recorder.save(tmp_path / "live.npz")
    recorder.close()
    trace = read_trace(tmp_path / "live.npz")
    assert recorder.lost == 0
    assert np.diff(trace.ranks[0].exit).tolist() == [20_000_000] * 2999
    assert trace.started_unix_ns == STARTED_UNIX_NS
    assert trace.names == ("lmp+0x10",)
    assert STARTED_NS > 0
    [job] = said(capsys, tmp_path / "live.npz")["jobs"]
    assert (job["state"], job["started_at"]) == ("healthy", STARTED_UNIX_NS * 1e-9)


def test_overwritten_records_are_counted_as_lost(tmp_path):
    shim = FakeShim(tmp_path / "0.ring", capacity=64)
    recorder = Recorder(tmp_path)
    for i in range(100):
        shim.set(tail=shim.get("head"))
        shim.put((i + 1) * 1000)
    recorder.step()
    recorder.close()
    assert (recorder.lost, recorder.collectives) == (36, 64)


def test_a_trace_that_cannot_be_used_is_refused_in_one_line(tmp_path, clean, capsys):
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK\x03\x04 not really")
    empty, lopsided = tmp_path / "empty.npz", tmp_path / "lopsided.npz"
    np.savez(empty, meta=np.array("{}"))
    np.savez(lopsided, gap_ns_0=np.arange(5), dur_ns_0=np.arange(4), op_0=np.full(5, 8))
    cases = {
        tmp_path / "no.npz": "No such file or directory",
        broken: "expected an .npz file",
        empty: "no array 'gap_ns_0', expected what rank 0 recorded",
        lopsided: "'dur_ns_0' has 4 values, expected 5",
    }
    for file, text in cases.items():
        assert main(["replay", str(clean), "--history", str(file)]) == 65
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith("barograph replay: ")
        assert str(file) in line
        assert text in line


def test_an_empty_recording_is_refused(tmp_path, capsys):
    assert main(["record", str(tmp_path / "out.npz"), "--rings", str(tmp_path), "--seconds", "0"]) == 65
    assert "no collective of rank 0" in capsys.readouterr().err
    assert not (tmp_path / "out.npz").exists()
