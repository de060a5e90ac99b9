"""`barograph up` with real daemons: start, restarts, stop, and errors at the start."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barograph_collector.storage.days.data_path import DATA
from helpers.lakes import opened
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.up import Up, free_ports

pytestmark = pytest.mark.process

DAEMONS = ("collector", "modeler", "alerts", "page")


def up(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barograph", "up", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_killed_daemon_is_restarted_and_ctrl_c_stops_all_in_order(tmp_path):
    with Up(tmp_path) as service:
        before = {name: service.pid(name) for name in DAEMONS}
        for name, pid in before.items():
            os.kill(pid, signal.SIGKILL)
            service.wait_for(f"{name} was killed by SIGKILL, starting it again")
        service.wait_for(" collector listening on ", times=2)
        service.wait_for(" alerts following the log", times=2)
        service.wait_for(" page showing the log", times=2)
        after = {name: service.pid(name) for name in DAEMONS}
        assert not set(before.values()) & set(after.values())
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(DEADLINE_SECONDS) == 0
        assert [name for name, pid in after.items() if Path(f"/proc/{pid}").exists()] == []
    # None was killed for having run longer than STOP_SECONDS.
    assert "is killed" not in service.log.read_text()


def short_periods(directory: Path) -> Path:
    """A configuration with which a period is over while a test waits."""
    file = directory / "config.toml"
    file.write_text("[collector]\nlake_period = 2\n")
    return file


def test_up_brings_rows_into_a_lake(tmp_path):
    lake = tmp_path / "lake"
    with Up(tmp_path, f"--lake={lake}", f"--config={short_periods(tmp_path)}") as service:
        service.wait_for(f"the lake {lake} has rows up to 0 of log ")
        command = [sys.executable, "-m", "barograph", "run", "--", "true"]
        subprocess.run(command, env=service.environment, check=True, timeout=120)
        wait_until(lambda: list(lake.rglob("main/runs/**/*.parquet")), "the row of the run is in the lake")


def scores(lake: Path) -> int:
    """Rows of `scores` in files of a lake that are whole."""
    found = 0
    for path in (lake / DATA / "main/scores").rglob("*.parquet"):
        with contextlib.suppress(OSError, pa.ArrowException):
            found += pq.read_metadata(path).num_rows
    return found


def test_two_shards_share_the_users_and_one_lake(tmp_path):
    """One of them is killed, and what was acknowledged is in the lake once all the same."""
    lake = tmp_path / "lake"
    options = (f"--lake={lake}", f"--config={short_periods(tmp_path)}", "--shards=2")
    with Up(tmp_path, *options, ports=15) as service:
        service.wait_for(" INFO collector2 listening on ")
        other = f"tcp://127.0.0.1:{service.port + 10}"
        environment = {**service.environment, "BAROGRAPH_COLLECTOR": f"{service.endpoint},{other}"}
        file = tmp_path / "runs.csv"
        rows = (f"fft,{2 ** (row % 4)},{row + 1},u{row}\n" for row in range(60))
        file.write_text("app,ranks,seconds,user\n" + "".join(rows))
        command = [sys.executable, "-m", "barograph", "import", str(file), "--cluster=lab"]
        subprocess.run(command, env=environment, check=True, timeout=120)
        os.kill(service.pid(f"--state={service.state / 'shard2'}"), signal.SIGKILL)
        service.wait_for("collector2 was killed by SIGKILL, starting it again")
        done = subprocess.run(command, env=environment, check=True, timeout=120, capture_output=True, text=True)
        assert done.stdout.startswith("0 runs added, 60 known already")

        counts: list[int] = []

        def published() -> int:
            # Who reads the catalog keeps the collectors from it, and they him.
            with contextlib.suppress(duckdb.Error), opened(lake) as connection:
                query = "SELECT count(*) FROM lake.runs JOIN lake.jobs USING (collector, job) GROUP BY collector"
                counts[:] = [count for (count,) in connection.execute(query).fetchall()]
            return sum(counts)

        with urllib.request.urlopen(
            f"http://127.0.0.1:{service.port + 4}/applications", timeout=DEADLINE_SECONDS
        ) as page:
            assert '<td class="n">60</td>' in page.read().decode(), "one page has the runs of both"
        wait_until(lambda: published() >= 60, "all runs are in the lake with their jobs", every=1.0)
        assert (sum(counts), len(counts)) == (60, 2)


def test_daemons_end_when_their_supervisor_is_killed(tmp_path):
    with Up(tmp_path) as service:
        pids = [service.pid(name) for name in DAEMONS]
        service.process.kill()
        service.process.wait()
        wait_until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], f"{pids} are gone")


def test_a_taken_port_is_one_clear_line_and_status_69(tmp_path):
    port = free_ports(5)
    with socket.create_server(("127.0.0.1", port)):
        done = up(f"--state={tmp_path}", f"--port={port}")
    assert done.returncode == 69
    assert f"barograph collector: cannot listen on tcp://127.0.0.1:{port}: " in done.stderr
    assert "barograph up: collector did not start (status 69), see its line above" in done.stderr


def test_a_taken_metrics_port_of_a_later_daemon_stops_the_earlier_ones(tmp_path):
    port = free_ports(5)
    with socket.create_server(("127.0.0.1", port + 3)):
        done = up(f"--state={tmp_path}", f"--port={port}")
    assert done.returncode == 69
    assert f"barograph alerts: cannot listen on http://127.0.0.1:{port + 3}: " in done.stderr
    with socket.create_server(("127.0.0.1", port)):
        pass  # the collector has let go of it


def test_ports_of_another_service_count_as_taken(tmp_path):
    with Up(tmp_path) as service:
        done = up(f"--state={tmp_path / 'other'}", f"--port={service.port}")
    assert done.returncode == 69
    assert "barograph up: collector did not start (status 69), see its line above" in done.stderr


def test_an_unusable_state_directory_is_status_73(tmp_path):
    (tmp_path / "file").write_text("")
    done = up(f"--state={tmp_path / 'file'}")
    assert done.returncode == 73
    assert done.stderr == (
        f"barograph up: state directory {tmp_path / 'file'}: File exists, expected a writable directory\n"
    )


def test_a_state_directory_has_one_owner(tmp_path):
    with Up(tmp_path) as service:
        done = up(f"--state={service.state}", f"--port={free_ports(5)}")
        assert done.returncode == 73
        assert done.stderr == (
            f"barograph up: state directory {service.state}: in use by another `barograph up`, expected one\n"
        )


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--port=80", "argument --port: 80, expected 1024 to 65531"),
        ("--alpha=2", "argument --alpha: '2', expected a number between 0 and 1"),
        ("--window=0", "argument --window: window length is 0.0 seconds, expected a finite number above 0"),
    ],
)
def test_a_wrong_option_is_a_usage_error(tmp_path, option, line):
    done = up(f"--state={tmp_path}", f"--port={free_ports(5)}", option)
    assert done.returncode == 2
    assert line in done.stderr


def test_status_without_a_collector_says_so_and_ends(tmp_path):
    port = free_ports(1)
    command = [sys.executable, "-m", "barograph", "status", "--collector", f"tcp://127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 69
    assert done.stderr == (
        f"barograph: waiting for the collector at tcp://127.0.0.1:{port}, where nothing listens; "
        "`barograph up` starts one\n"
        f"barograph status: no answer from the collector at tcp://127.0.0.1:{port} within 5 s; "
        "check that `barograph up` or `barograph collector` runs there\n"
    )
