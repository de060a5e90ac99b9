"""Intervals timed by a program: blocks, decorators, marks, threads, forks; and nothing in unwatched processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barograph_agent import shim
from barograph_agent.reduce.intervals import Cursor, IntervalReader, class_id
from barograph_agent.ring.reader import Ring
from helpers.service import Node, Service


def ring_of(folder: Path) -> Ring:
    (path,) = folder.glob("*.ring")
    return Ring(path)


def program(text: str, rings: Path | None, **environment: str) -> subprocess.CompletedProcess[str]:
    watched = {"BAROGRAPH_RING_DIR": str(rings), "LD_PRELOAD": str(shim.library())} if rings else {}
    variables = {**os.environ, **watched, **environment}
    return subprocess.run([sys.executable, "-c", text], env=variables, capture_output=True, text=True, check=False)


def sites_of(ring: Ring) -> list[str]:
    return [ring.site(int(record["site"])) for record in ring.records(0, ring.head)]


def test_an_interval_has_its_own_start_and_its_name_as_class(tmp_path: Path) -> None:
    text = """
import ctypes
from barograph_agent import interval
with interval("halo"):
    pass
shim = ctypes.PyDLL(None)
solve, halo = (shim.barograph_intervals_site(name) for name in (b"solve", b"halo"))
for enter, end, site in [(1000, 3000, solve), (2000, 2500, halo), (9000, 9100, solve)]:
    shim.barograph_intervals_put(ctypes.c_uint64(10**15 + enter), ctypes.c_uint64(10**15 + end), site)
"""
    assert program(text, tmp_path).returncode == 0
    with ring_of(tmp_path) as ring:
        intervals, sites = IntervalReader(ring, Cursor(world=0)).read()
        assert ring.finalized
    assert intervals is not None
    assert intervals.seconds.tolist()[1:] == pytest.approx([2e-6, 5e-7, 1e-7])
    assert intervals.class_ids.tolist() == [class_id(name, name) for name in ("halo", "solve", "halo", "solve")]
    assert (sites["to_site"], sites["operation"]) == (["halo", "solve"], ["Interval"] * 2)


def test_intervals_of_threads_are_all_recorded_and_drops_counted(tmp_path: Path) -> None:
    text = """
import threading
from barograph_agent import interval
def work(number):
    for _ in range(5000):
        with interval(f"thread-{number}"):
            pass
threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
    assert program(text, tmp_path).returncode == 0
    with ring_of(tmp_path) as ring:
        records = ring.records(0, ring.head)
        assert (ring.head, ring.head + ring.dropped) == (16384, 25000)
        assert len(set(records["index"].tolist())) == ring.head
        assert (records["exit_ns"] >= records["enter_ns"]).all()
        assert set(sites_of(ring)) <= {f"thread-{number}" for number in range(5)}


def test_names_beyond_the_table_share_one_and_long_ones_are_truncated(tmp_path: Path) -> None:
    text = """
from barograph_agent import interval
for name in ["x" * 999, *map(str, range(70))]:
    with interval(name):
        pass
"""
    assert program(text, tmp_path).returncode == 0
    with ring_of(tmp_path) as ring:
        assert sites_of(ring) == ["x" * 255, *map(str, range(61)), *["other"] * 9]


USES = """
import asyncio, os
from barograph_agent import interval, mark
with interval("block"):
    pass
try:
    with interval("fails"):
        raise ValueError
except ValueError:
    pass
@interval("call")
def call(x):
    "doc"
    return x + 1
@interval("await")
async def wait(x):
    return x + 1
assert (call(1), call.__name__, call.__doc__, asyncio.run(wait(2))) == (2, "call", "doc", 3)
for _ in range(4):
    mark("loop")
with interval("forking"):
    child = os.fork()
    if child == 0:
        call(1)
if child == 0:
    with interval("block"):
        pass
    os._exit(0)
os.waitpid(child, 0)
"""


def test_blocks_calls_coroutines_and_marks_are_timed_and_a_child_has_its_own_ring(tmp_path: Path) -> None:
    done = program(USES, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = []
    for path in sorted(tmp_path.glob("*.ring"), key=lambda path: path.stat().st_ino):
        with Ring(path) as ring:
            found.append(sites_of(ring))
    assert found == [
        ["block", "call", "await", "loop", "loop", "loop", "forking"],
        ["call", "forking", "block"],
    ]


@pytest.mark.parametrize(
    "environment",
    [{"BAROGRAPH_DISABLE": "1"}, {"RANK": "1", "WORLD_SIZE": "2"}, {"PMI_RANK": "3", "PMI_SIZE": "4"}],
)
def test_a_disabled_process_and_ranks_above_0_write_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    done = program(USES, tmp_path, **environment)
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])


def test_without_a_run_nothing_is_written_and_numpy_not_imported(tmp_path: Path) -> None:
    text = "import sys" + USES + "assert 'numpy' not in sys.modules\nassert interval('a') is interval('b')\n"
    for rings in (None, tmp_path / "gone"):
        done = program(text if rings is None else USES, rings, BAROGRAPH_RING_DIR="")
        assert (done.returncode, done.stderr) == (0, "")


REFUSES = """
import contextlib, sys
from barograph_agent import interval

def steps():
    yield
async def arrivals():
    yield
for wrong in (steps, arrivals, contextlib.contextmanager(steps), contextlib.asynccontextmanager(arrivals), dict):
    try:
        interval("step")(wrong)
    except TypeError as error:
        assert "with interval(NAME)" in str(error)
    else:
        sys.exit(f"{wrong} was taken")
"""


@pytest.mark.parametrize("is_watched", [True, False])
def test_what_does_no_work_when_it_is_called_is_refused_as_a_function(tmp_path: Path, is_watched: bool) -> None:
    done = program(REFUSES, tmp_path if is_watched else None)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
def test_under_barograph_run_named_intervals_are_stored_by_class(tmp_path: Path, service: Service) -> None:
    node = Node(tmp_path, service.endpoint)
    script = tmp_path / "train.py"
    script.write_text(
        "from barograph_agent import interval\nfor i in range(300):\n    with interval('train step'):\n        pass\n"
    )
    done = node.barograph("run", "--drain", "60", "--", sys.executable, script)
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == "barograph: intervals 300 seen on 1 rank, 300 stored"
    assert service.indices("train") == list(range(300))
    (site,) = service.rows("sites")
    assert (site["to_site"], site["operation"]) == ("train step", "Interval")
