"""How long data is in flight: on counters of tests, on answers as the kernel lays them out, and once on a socket."""

from __future__ import annotations

import math
import os
import socket
import struct

import pytest

from barograph_agent.kernel.transfers import MIN_BYTES, Transfers
from barograph_agent.system import sockets
from barograph_agent.system.sockets import SocketInfo, established, parsed

USER = 1000


class Counted:
    """Connections whose counters a test sets: of a name, its peer, seconds in flight and megabytes."""

    def __init__(self) -> None:
        self.now: dict[str, tuple[str, float, float]] = {}
        self.transfers = Transfers(self.shown)

    def shown(self) -> list[SocketInfo]:
        return [SocketInfo(name.encode(), peer.encode(), s, int(1e6 * mb)) for name, (peer, s, mb) in self.now.items()]

    def take(self, **now: tuple[str, float, float]) -> float:
        self.now = now
        return self.transfers.take()


def test_the_peer_with_the_least_counts_over_all_connections_to_it():
    counted = Counted()
    assert math.isnan(counted.take(a=("n1", 5.0, 100.0), b=("n2", 1.0, 10.0)))  # nothing to compare with
    # 10 ms and 30 ms a megabyte to n1 together: 20 ms; 50 ms to n2.
    assert counted.take(
        a=("n1", 5.1, 110.0), b=("n2", 1.5, 20.0), c=("n1", 9.0, 0.0)
    ) == pytest.approx(0.01)  # fmt: skip
    assert counted.take(
        a=("n1", 5.2, 120.0), b=("n2", 2.0, 30.0), c=("n1", 9.3, 10.0)
    ) == pytest.approx(0.02)  # fmt: skip


def test_too_little_data_tells_nothing():
    counted = Counted()
    counted.take(a=("n1", 0.0, 0.0))
    assert math.isnan(counted.take(a=("n1", 1.0, 0.9e-6 * MIN_BYTES)))
    assert counted.take(a=("n1", 2.0, 2.0)) == pytest.approx(1.0 / (2.0 - 0.9e-6 * MIN_BYTES))
    assert math.isnan(counted.take())


def diagnosis(peer: str, acked: int, busy: int, limited: int, user: int = USER, info_bytes: int = 232) -> bytes:
    """A message about one connection, as sock_diag(7) and struct inet_diag_msg of linux/inet_diag.h have it."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    address = socket.inet_pton(family, peer).ljust(16, b"\0")
    body = struct.pack("=BBBB", family, 1, 0, 0) + struct.pack(">HH", 40000, 5000) + bytes(16) + address
    body += struct.pack("=I8sIIIII", 0, b"cookie!!", 0, 0, 0, user, 77)
    info = bytearray(232)
    struct.pack_into("=Q", info, 120, acked)
    struct.pack_into("=QQ", info, 168, busy, limited)
    other = struct.pack("=HHI", 8, 8, 0)  # INET_DIAG_SHUTDOWN and the like come before
    body += other + struct.pack("=HH", 4 + info_bytes, 2) + bytes(info[:info_bytes])
    return struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body


def test_an_answer_of_the_kernel_is_read():
    done = struct.pack("=IHHII", 20, 3, 2, 1, 0) + bytes(4)
    data = diagnosis("10.0.0.7", 5_000_000, 2_500_000, 500_000) + diagnosis("fd00::7", 1, 2, 3) + done
    assert list(parsed(data, USER)) == [
        SocketInfo(b"cookie!!", socket.inet_aton("10.0.0.7"), pytest.approx(2.0), 5_000_000),
        SocketInfo(b"cookie!!", socket.inet_pton(socket.AF_INET6, "fd00::7"), 0.0, 1),
    ]


@pytest.mark.parametrize(
    "message",
    [
        diagnosis("127.0.0.1", 1, 1, 0),
        diagnosis("::1", 1, 1, 0),
        diagnosis("::ffff:127.0.0.1", 1, 1, 0),
        diagnosis("10.0.0.7", 1, 1, 0, user=1001),
        diagnosis("10.0.0.7", 1, 1, 0, info_bytes=168),
        diagnosis("10.0.0.7", 1, 1, 0)[:40],
        struct.pack("=IHHII", 36, 2, 0, 1, 0) + struct.pack("=i", -2) + bytes(16),
        b"\0" * 64,
        b"",
    ],
    ids=[
        "loopback",
        "loopback 6",
        "loopback mapped",
        "another user's",
        "older kernel",
        "cut",
        "error",
        "zeros",
        "nothing",
    ],
)
def test_others_and_what_cannot_be_read_are_left_out(message):
    assert list(parsed(message, USER)) == []


def test_the_kernel_of_this_machine_is_asked(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        there, _ = server.accept()
        with there:
            client.sendall(b"x" * 100_000)
            left = 100_000
            while left:
                left -= len(there.recv(left))
            monkeypatch.setattr(sockets, "_LOOPBACK", ())
            found = [one for one in established(os.getuid()) if one.acked_bytes in (100_000, 100_001)]
    assert [one.peer for one in found] == [socket.inet_aton("127.0.0.1")]


def test_where_the_kernel_does_not_tell_there_are_none(monkeypatch):
    def refused(*args: int) -> socket.socket:
        raise PermissionError

    monkeypatch.setattr(sockets.socket, "socket", refused)
    assert established(os.getuid()) == []
