"""The collector as a process: killed, stopped, starved, scraped."""

from __future__ import annotations

import logging
import random
import resource
import signal
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from barograph_agent.protocol import wire
from barograph_collector import main
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.service import Exit
from helpers.log import DEADLINE_SECONDS, Daemon, Producer, blocks, wait_until

KILLS = 6
UNLIMITED = ("--rate", "1e9")
"""Producers here send as fast as possible, above the rate limit of a job."""


@pytest.fixture
def _logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Stream:
    """The state of a producer, sent and acknowledged messages, which outlives collectors."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sizes: list[int] = []
        self.acked = 0

    def pump(self, endpoint: str, until: threading.Event, total: int = 10**9) -> None:
        """Produce and resend within the credit until the event is set, or all of `total` messages are acknowledged."""
        with Producer(endpoint, "stream") as producer:
            producer.send(wire.Hello("stream"))
            sent = None
            while not until.is_set() and self.acked < total:
                while sent is not None and sent < total and sent - self.acked < 64:
                    sent += 1
                    if sent > len(self.sizes):
                        self.sizes.append(self.rng.randint(1, 2000))
                    first = sum(self.sizes[: sent - 1])
                    producer.append(sent, "blocks", self.sizes[sent - 1], blocks(self.sizes[sent - 1], first))
                if not producer.socket.poll(20):
                    continue
                message = wire.decode_from_collector(producer.socket.recv())
                if isinstance(message, wire.Welcome):
                    assert message.acked >= self.acked, "acknowledged rows are missing after the restart"
                    self.acked = sent = message.acked
                else:
                    assert isinstance(message, wire.Ack), message
                    self.acked = message.seq


def indices(endpoint: str) -> list[int]:
    with LogReader(endpoint, timeout=DEADLINE_SECONDS) as reader:
        return [index for batch in reader.read_all("blocks") for index in batch.columns["first_index"].tolist()]


class Unhurried(Daemon):
    """A collector without a short time limit of its shutdown, for loaded machines."""

    program = (
        "-c",
        "from barograph_collector import main as daemon; daemon.LEAVE_SECONDS = 60.0; raise SystemExit(daemon.main())",
    )


class Stuck(Daemon):
    """A collector whose database cannot be closed, as on a disk that hangs."""

    program = (
        "-c",
        "import threading; from barograph_collector import main as daemon;"
        " from barograph_collector.storage import store; store.Store.close = lambda self: threading.Event().wait();"
        " raise SystemExit(daemon.main())",
    )


class Failing(Daemon):
    """A collector whose writer fails at its first rows, and whose database cannot be closed then."""

    program = (
        "-c",
        "import threading; from barograph_collector import main as daemon;"
        " from barograph_collector.ingest.writer import DatabaseWriter;"
        " from barograph_collector.storage import store; store.Store.close = lambda self: threading.Event().wait();"
        " DatabaseWriter._tell = DatabaseWriter._write = lambda self, *groups: 1 / 0;"
        " raise SystemExit(daemon.main())",
    )


def test_a_collector_of_which_a_thread_has_failed_does_not_end_as_if_it_was_asked_to(tmp_path: Path) -> None:
    with Failing(tmp_path) as collector, Producer(collector.endpoint) as producer:
        producer.hello()
        producer.append(1, "blocks", 10, blocks(10))
        # Who reads meanwhile waits for rows that do not come.
        producer.send(wire.Read(1, "blocks", 0))
        assert collector.process.wait(DEADLINE_SECONDS) == Exit.FAILED


@pytest.mark.process
def test_sigterm_ends_the_process_while_the_database_hangs_and_nothing_is_lost(tmp_path: Path) -> None:
    with Stuck(tmp_path) as collector, Producer(collector.endpoint) as producer:
        producer.hello()
        producer.append(1, "blocks", 1000, blocks(1000))
        producer.receive_ack(1)
        assert collector.end(signal.SIGTERM) == Exit.OK
        assert "the next start commits the rest of the journal to the database" in collector.log[-1]
    with Daemon(tmp_path) as collector:
        assert indices(collector.endpoint) == list(range(1000))


@pytest.mark.process
def test_sigkill_at_any_time_neither_loses_nor_duplicates_a_row(tmp_path: Path) -> None:
    stream = Stream(seed=20)
    for _ in range(KILLS):
        with Daemon(tmp_path, *UNLIMITED) as collector:
            killed = threading.Event()

            def kill(victim: Daemon = collector, killed: threading.Event = killed) -> None:
                wait_until(lambda: stream.acked, "something is acknowledged")
                victim.process.kill()
                killed.set()

            timer = threading.Timer(stream.rng.uniform(0.02, 0.5), kill)
            timer.start()
            stream.pump(collector.endpoint, killed)
            timer.join()
    with Daemon(tmp_path, *UNLIMITED) as collector:
        stream.pump(collector.endpoint, threading.Event(), total=len(stream.sizes))
        assert indices(collector.endpoint) == list(range(sum(stream.sizes)))


@pytest.mark.process
def test_a_full_disk_stops_acknowledgements_but_not_reads_until_there_is_space(
    tmp_path: Path,
) -> None:
    stream = Stream(seed=30)
    with Daemon(tmp_path, *UNLIMITED) as collector:
        stream.pump(collector.endpoint, threading.Event(), total=1)
        pid, rows = collector.process.pid, stream.sizes[0]
        # A segment is preallocated; without one no append becomes durable.
        wait_until(lambda: not any((tmp_path / "log.duckdb.journal").iterdir()), "the journal has no segment")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
        full = threading.Event()
        pump = threading.Thread(target=stream.pump, args=(collector.endpoint, full), daemon=True)
        pump.start()
        wait_until(lambda: "cannot write the journal: File too large" in "".join(collector.log), "the disk is full")
        assert indices(collector.endpoint) == list(range(rows))
        assert stream.acked == 1
        full.set()
        pump.join()
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        stream.pump(collector.endpoint, threading.Event(), total=len(stream.sizes))
        assert indices(collector.endpoint) == list(range(sum(stream.sizes)))
        assert collector.end(signal.SIGTERM) == Exit.OK


def test_sigterm_commits_what_was_accepted_and_exits_0(tmp_path: Path) -> None:
    state = tmp_path / "not" / "there"
    with Unhurried(state) as collector:
        assert collector.first_line.endswith("; no keys: any client on this host may connect\n")
        assert state.stat().st_mode & 0o777 == 0o700
        with Producer(collector.endpoint) as producer:
            producer.hello()
            producer.append(1, "blocks", 5, blocks(5))
            producer.receive_ack(1)
            assert collector.end(signal.SIGTERM) == Exit.OK
    assert collector.log == []
    assert sorted(path.name for path in state.rglob("*")) == ["log.duckdb", "log.duckdb.journal"]


def test_the_exposition_contains_the_counters(tmp_path: Path) -> None:
    with Daemon(tmp_path) as collector, Producer(collector.endpoint) as producer:
        producer.hello()
        producer.append(1, "blocks", 5, blocks(5))
        producer.receive_ack(1)
        producer.append(1, "blocks", 5, blocks(5))
        producer.receive_ack(1)
        producer.append(3, "blocks", 5, blocks(5))
        producer.receive(wire.Refuse)
        producer.send(wire.Skip(producer.stream, 4, 7, "spool-cap"))
        producer.receive_ack(4)
        ended = {"job": "test/1.0.0", "ended_at": 1.0, "runtime_seconds": 1.0, "exit_status": 0, "intervals": 13}
        producer.append(5, "runs", 1, {**ended, "dropped": 1, "imported": 0})
        producer.receive_ack(5)
        assert len(indices(collector.endpoint)) == 5  # a read waits until all of it is in the database
        with urllib.request.urlopen(collector.metrics_url) as answer:
            text = answer.read().decode()
    lines = text.splitlines()
    for expected in (
        'barograph_collector_rows_total{table="blocks"} 5.0',
        'barograph_collector_appends_total{result="accepted"} 2.0',
        'barograph_collector_appends_total{result="duplicate"} 1.0',
        'barograph_collector_appends_total{result="refused"} 1.0',
        'barograph_collector_rejected_total{reason="gap"} 1.0',
        "barograph_collector_queue_rows 0.0",
        "barograph_collector_streams 1.0",
        "barograph_collector_last_offset 7.0",
        "barograph_agent_intervals_counted_total 13.0",
        "barograph_agent_intervals_stored_total 5.0",
        'barograph_agent_rows_dropped_total{reason="spool-cap"} 7.0',
        'barograph_agent_rows_dropped_total{reason="ring-full"} 1.0',
    ):
        assert expected in lines
    assert any(line.startswith('barograph_heartbeat_timestamp_seconds{daemon="collector"} ') for line in lines)


@pytest.mark.usefixtures("_logging_restored")
def test_a_failed_start_is_one_line_with_its_own_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        cases = {
            ("--state", str(tmp_path / "file")): (
                Exit.STATE,
                f"cannot create the state directory {tmp_path}/file: File exists",
            ),
            ("--state", str(tmp_path), "--listen", f"tcp://{address}"): (
                Exit.UNAVAILABLE,
                f"cannot listen on tcp://{address}: Address already in use (addr='tcp://{address}');"
                " stop what listens there or choose another address",
            ),
            ("--state", str(tmp_path), "--listen", "tcp://127.0.0.1:0", "--metrics", address): (
                Exit.UNAVAILABLE,
                f"cannot listen on http://{address}: Address already in use;"
                " stop what listens there or choose another address",
            ),
        }
        for argv, (status, words) in cases.items():
            assert main.main(argv) == status
            assert capsys.readouterr().err == f"barograph collector: {words}\n"


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        (
            "--listen",
            "tcp://0.0.0.0:7450",
            "'tcp://0.0.0.0:7450' is not a loopback address, expected tcp://127.0.0.1:PORT",
        ),
        ("--listen", "tcp://*:7450", "'tcp://*:7450' is no endpoint, expected tcp://127.0.0.1:PORT"),
        ("--listen", "127.0.0.1:7450", "'127.0.0.1:7450' is no endpoint, expected tcp://127.0.0.1:PORT"),
        ("--metrics", "7451", "'7451' is no address, expected HOST:PORT with a port from 0 to 65535"),
        (
            "--metrics",
            "localhost:70000",
            "'localhost:70000' is no address, expected HOST:PORT with a port from 0 to 65535",
        ),
    ],
)
def test_an_invalid_or_public_address_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, words: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["--state", str(tmp_path), option, value])
    assert ended.value.code == Exit.USAGE
    assert words in capsys.readouterr().err.splitlines()[-1]
