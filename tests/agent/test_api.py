"""Intervals timed by a program: blocks, decorators, marks, threads, forks; and nothing in unwatched processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barograph_agent.reduce.intervals import Cursor, IntervalReader, class_id
from barograph_agent.ring import writer as ring_writer
from barograph_agent.ring.reader import Ring
from barograph_agent.ring.writer import CAPACITY, NAMES, RingWriter
from helpers.service import Node, Oracle, Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # Without a verdict the run would wait for it.
    with Service(tmp_path_factory.mktemp("service")) as service, Oracle(service.endpoint):
        yield service


def ring_of(folder: Path) -> Ring:
    (path,) = folder.glob("*.ring")
    return Ring(path)


def program(text: str, rings: Path | None, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment, **({"BAROGRAPH_RING_DIR": str(rings)} if rings else {})}
    return subprocess.run([sys.executable, "-c", text], env=variables, capture_output=True, text=True, check=False)


def test_an_interval_has_its_own_start_and_its_name_as_class(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path, 0, 1)
    solve, halo = writer.site("solve"), writer.site("halo")
    with ring_of(tmp_path) as ring:
        start = ring.started_ns
        for enter, end, site in [(1000, 3000, solve), (2000, 2500, halo), (9000, 9100, solve)]:
            writer.put(start + enter, start + end, site)
        harvest = IntervalReader(ring, Cursor(world=0))
        intervals, sites = harvest.read()
        assert not ring.finalized
        writer.finish()
        assert ring.finalized
    assert intervals is not None
    assert intervals.seconds.tolist() == pytest.approx([2e-6, 5e-7, 1e-7])
    assert intervals.class_ids.tolist() == [class_id(name, name) for name in ("solve", "halo", "solve")]
    assert (sites["at"], sites["operation"]) == (["solve", "halo"], ["Interval"] * 2)


def test_intervals_of_threads_are_all_recorded_and_drops_counted(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path, 0, 1)
    each, threads = 5000, 5

    def work(number: int) -> None:
        site = writer.site(f"thread-{number}")
        for i in range(each):
            writer.put(10**9 * number + i, 10**9 * number + 2 * i, site)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with ring_of(tmp_path) as ring:
        assert (ring.head, ring.head + ring.dropped) == (CAPACITY, each * threads)
        records = ring.records(0, ring.head)
        assert len(set(records["index"].tolist())) == CAPACITY
        for record in records:
            number, i = divmod(int(record["enter_ns"]), 10**9)
            assert int(record["exit_ns"]) - 10**9 * number == 2 * i
            assert ring.site(int(record["site"])) == f"thread-{number}"


def test_names_beyond_the_table_share_one_and_long_ones_are_truncated(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path, 0, 1)
    numbers = [writer.site(f"name-{i}") for i in range(NAMES + 5)]
    assert len(set(numbers)) == NAMES + 1
    with ring_of(tmp_path) as ring:
        assert ring.site(numbers[NAMES - 1]) == f"name-{NAMES - 1}"
        assert {ring.site(number) for number in numbers[NAMES:]} == {"other"}
    (tmp_path / "b").mkdir()
    long = RingWriter(tmp_path / "b", 0, 1)
    site = long.site("x" * 999)
    with ring_of(tmp_path / "b") as ring:
        assert ring.site(site) == "x" * 255


def test_a_full_file_system_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ring_writer.os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        RingWriter(tmp_path, 0, 1)
    assert list(tmp_path.iterdir()) == []


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
    for path in sorted(tmp_path.glob("*.ring"), key=lambda path: int(path.name.split(".")[2])):
        with Ring(path) as ring:
            found.append([ring.site(int(record["site"])) for record in ring.records(0, ring.head)])
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
    assert (site["at"], site["operation"]) == ("train step", "Interval")
