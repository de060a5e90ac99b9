"""Features of a running program: reading, stability, and lost values."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph_agent.feature_files import stable as module
from barograph_agent.feature_files.side_file import HEADER, MAGIC, SLOT, read_side_file
from barograph_agent.feature_files.stable import StableFeatures


class Program:
    """Side files of a program with that many processes, on a simulated clock."""

    def __init__(self, folder: Path, processes: int = 1, began: float = 100.0) -> None:
        self.folder, self.processes, self.began = folder, processes, began
        self.now = began

    def note(self, *, known_at: float = 0.0, refused: int = 0, **values: Any) -> None:
        """Set the features of every process; a value may be a list with one entry per process."""
        for process in range(self.processes):
            header, slots = np.zeros(1, HEADER), np.zeros(len(values), SLOT)
            names = "".join(f"{name}\n" for name in values).encode()
            header[["magic", "version", "probes"]] = (MAGIC, 1, len(values))
            header["started_ns"], header["names_bytes"] = int(self.began * 1e9), len(names)
            header["refused"] = refused
            for slot, value in zip(slots, values.values(), strict=True):
                last = int((self.began + known_at) * 1e9) if known_at else 0
                slot["value"] = value[process] if isinstance(value, list) else value
                slot["count"], slot["last_ns"] = 1, last
            (self.folder / f"{process}.features").write_bytes(header.tobytes() + slots.tobytes() + names)

    def watch(self) -> StableFeatures:
        return StableFeatures(self.folder, self.began - 1)


def told(watch: StableFeatures, now: float, *, final: bool = False) -> dict[str, tuple[float, float]]:
    """Value and seconds until known of the features reported now."""
    return {
        name: (float(value), float(known))
        for rows in watch.read(now, final=final)
        if rows.table == "features"
        for name, value, known in zip(
            rows.values["name"], rows.values["value"], rows.values["known_seconds"], strict=True
        )
    }


def test_a_value_is_reported_once_stable_and_a_counter_only_at_the_end(tmp_path):
    program = Program(tmp_path)
    watch = program.watch()
    heard: list[tuple[float, dict[str, tuple[float, float]]]] = []
    for tick in range(1, 321):
        program.now = program.began + tick / 20
        program.note(n=8.0 if tick >= 10 else float("nan"), steps=float(tick))
        if rows := told(watch, program.now):
            heard.append((tick / 20, rows))
    assert [set(rows) for _, rows in heard] == [{"n"}]
    ((at, rows),) = heard
    value, known = rows["n"]
    assert value == 8.0
    assert 0.5 <= known <= 1.0  # reported after half a second, read when the age had doubled
    assert at == pytest.approx(2 * known, abs=0.11)
    assert told(watch, program.now, final=True) == {"steps": (320.0, 16.0)}


def test_a_stable_value_that_changes_is_reported_again(tmp_path):
    program = Program(tmp_path)
    watch = program.watch()
    program.note(n=8.0)
    for program.now in (100.2, 100.4):
        first = told(watch, program.now)
    assert first == {"n": (8.0, pytest.approx(0.2))}
    program.note(n=9.0)
    program.now = 105.0
    assert told(watch, program.now, final=True) == {"n": (9.0, pytest.approx(5.0))}


def test_the_largest_value_over_processes_is_reported_with_the_programs_time(tmp_path):
    program = Program(tmp_path, processes=3)
    program.note(known_at=0.25, n=[4.0, 7.0, 5.0], odd=[float("nan"), float("nan"), float("nan")])
    program.now = 103.0
    (rows,) = program.watch().read(program.now, final=True)
    assert rows.values["name"] == ["n"]
    assert (rows.values["value"].tolist(), rows.values["known_seconds"].tolist()) == ([7.0], [0.25])
    assert (rows.values["processes"].tolist(), rows.values["reduction"]) == ([3], "max")


def test_files_of_earlier_runs_are_ignored_and_lost_values_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_FEATURES", 3)
    program = Program(tmp_path)
    program.note(refused=2, **{f"f{number}": 1.0 for number in range(5)})
    (tmp_path / "broken.features").write_bytes(b"BAROFEAT")
    program.now = 101.0
    assert told(StableFeatures(tmp_path, 100.5), 101.0, final=True) == {}
    watch = program.watch()
    assert set(told(watch, program.now, final=True)) == {"f0", "f1", "f2"}
    assert watch.lost == {"beyond": 2, "files": 1, "refused": 2}


PROGRAM = """
import os, sys, threading
from barograph_agent import features
assert "numpy" not in sys.modules
features(n=3, order=True)
features(n=4.5, **{"bad name": 1}, text="x", infinite=float("inf"), strange=object())
workers = [threading.Thread(target=lambda: [features(shared=i) for i in range(100)]) for _ in range(4)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
if os.fork() == 0:
    features(n=100)
    os._exit(0)
os.wait()
features(**{f"f{i}": i for i in range(300)})
"""


def test_features_are_written_to_a_side_file_per_process(tmp_path):
    subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, "BAROGRAPH_FEATURES": str(tmp_path)}, check=True)
    files = sorted((read_side_file(path) for path in tmp_path.glob("*.features")), key=lambda file: len(file.features))
    child, parent = files
    assert {name: one.value for name, one in child.features.items()} == {"n": 100.0}
    values = {name: one.value for name, one in parent.features.items()}
    assert (values["n"], values["order"], values["shared"]) == (4.5, 1.0, 99.0)
    assert len(values) == 256
    assert parent.refused == 4 + (3 + 300 - 256)
    assert parent.ended_at is not None
    assert child.ended_at is None
    assert 0 < parent.features["n"].known_at < parent.features["f0"].known_at
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize("folder", ["", "/nowhere/at/all", "/proc"])
def test_without_a_folder_features_are_ignored(folder):
    code = "import sys; from barograph_agent import features; [features(n=i, m=2) for i in range(9)]; sys.exit(3)"
    environment = {**os.environ, "BAROGRAPH_FEATURES": folder}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")


def test_features_is_thread_safe_while_the_file_is_read(tmp_path):
    from barograph_agent.feature_files.writer import SideFileWriter

    writer, over = SideFileWriter(tmp_path), threading.Event()

    def write() -> None:
        for number in range(2000):
            writer.put({f"f{number % 200}": float(number), "n": 1.0}, number)
        over.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not over.is_set():
        for path in tmp_path.glob("*.features"):
            assert read_side_file(path).features["n"].value == 1.0
    thread.join()


def test_what_a_user_puts_in_place_of_a_side_file_is_not_read(tmp_path):
    Program(tmp_path, began=100.0).note(cells=3.0)
    (tmp_path / "endless.features").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo.features")
    (tmp_path / "folder.features").mkdir()
    with (tmp_path / "huge.features").open("wb") as file:
        file.truncate(2**40)
    watch = StableFeatures(tmp_path, 99.0)
    assert set(told(watch, 200.0, final=True)) == {"cells"}
    assert watch.lost["files"] == 4


def test_many_large_side_files_are_read_up_to_a_limit_in_all(tmp_path, monkeypatch):
    program = Program(tmp_path, processes=5)
    program.note(cells=3.0)
    size = (tmp_path / "0.features").stat().st_size
    monkeypatch.setattr(module, "MAX_BYTES", 3 * size)
    watch = program.watch()
    assert told(watch, program.now, final=True)
    assert watch.lost["files"] == 2
