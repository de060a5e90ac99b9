"""What one client does costs that client: an honest producer beside it delivers, exactly once, and is answered."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import zmq

from barograph_agent import wire
from barograph_collector import door
from barograph_collector.client import LogReader
from barograph_collector.server import Collector
from helpers.attackers import ATTACKS, half_open, under
from helpers.log import Producer, blocks, collector_on, wait_until

COUNTED = {
    "mutated messages": {"undecodable", "multipart", "unknown-stream", "invalid"},
    "acks never read": {"credit"},
    "refused appends": {"invalid"},
    "oversized frames": {"oversized"},
    "half-open connections": {"handshake"},
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_honest_producer_delivers_exactly_once_beside(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_MS", 200)
    with collector_on(tmp_path / "log.duckdb") as collector:
        attack = partial(half_open, connections=300) if ATTACKS[name] is half_open else ATTACKS[name]
        with under(attack, collector.endpoint), Producer(collector.endpoint, "honest") as producer:
            producer.hello()
            for seq in range(1, 51):
                producer.append(seq, "blocks", 10, blocks(10, first=10 * seq, job="honest/1.0.0"))
                producer.receive_ack(seq)
            wait_until(lambda: refused(collector) >= COUNTED[name], f"{COUNTED[name]} are counted")
        with LogReader(collector.endpoint, 30) as reader:
            pages = reader.read_all("blocks", job="honest/1.0.0")
            assert [index for page in pages for index in page.columns["first_index"]] == list(range(10, 510))


def refused(collector: Collector) -> set[str]:
    return {reason for reason, count in collector.counters.refused.items() if count}


def test_a_connection_that_says_nothing_is_closed_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_MS", 200)
    with collector_on(tmp_path / "log.duckdb") as collector:
        address = urlsplit(collector.endpoint)
        silent = [socket.create_connection((address.hostname, address.port), 30) for _ in range(50)]
        for connection in silent:
            while connection.recv(64):  # the collector's own greeting, and then its end
                pass
            connection.close()
        wait_until(lambda: collector.counters.refused["handshake"] == len(silent), "all are counted")


def test_an_oversized_append_is_used_up_and_an_oversized_frame_ends_its_connection(tmp_path: Path) -> None:
    sites = {"class_id": 1, "before": ["x" * 65536] * 140, "at": "", "operation": "o"}
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as producer:
        producer.hello()
        producer.append(1, "sites", 140, sites)
        refusal = producer.receive(wire.Refuse)
        assert (refusal.seq, refusal.reason) == (1, "oversized")
        assert refusal.detail.endswith(f"bytes, expected at most {wire.MAX_APPEND_BYTES}")
        producer.receive_ack(1)
        monitor = producer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        producer.socket.send(bytes(wire.MAX_BYTES + 1))
        assert monitor.poll(30_000)
        producer.socket.disable_monitor()
        monitor.close()
        wait_until(lambda: bool(producer.socket.poll(0, zmq.POLLOUT)), "the client has connected again")
        producer.append(2, "blocks", 1, blocks(1))
        assert producer.receive(wire.Refuse).reason == "unknown-stream"
        assert producer.hello().acked == 1
