"""How long data is in flight: on counters of tests, on answers as the kernel lays them out, and once on a socket."""

from __future__ import annotations

import ctypes
import math
import os
import socket
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph_agent.system.sockets import CONNECTION, MAX_CONNECTIONS, MIN_BYTES, Transfers, established, load

USER = 1000


class Counted:
    """Connections whose counters a test sets: of a name, its peer, seconds in flight and megabytes."""

    def __init__(self) -> None:
        self.now: dict[str, tuple[str, float, float]] = {}
        self.transfers = Transfers(self.shown)

    def shown(self) -> np.ndarray[Any, Any]:
        rows = [(ord(name), peer.encode(), s, int(1e6 * mb)) for name, (peer, s, mb) in sorted(self.now.items())]
        return np.array(rows, CONNECTION)

    def take(self, **now: tuple[str, float, float]) -> float:
        self.now = now
        return self.transfers.take()


def test_the_peer_with_the_least_counts_over_all_connections_to_it():
    counted = Counted()
    assert math.isnan(counted.take(a=("n1", 5.0, 100.0), b=("n2", 1.0, 10.0)))  # nothing to compare with
    # 10 ms and 30 ms a megabyte to n1 together: 20 ms; 50 ms to n2.
    found = counted.take(a=("n1", 5.1, 110.0), b=("n2", 1.5, 20.0), c=("n1", 9.0, 0.0))
    assert found == pytest.approx(0.01)
    found = counted.take(a=("n1", 5.2, 120.0), b=("n2", 2.0, 30.0), c=("n1", 9.3, 10.0))
    assert found == pytest.approx(0.02)


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
    return struct.pack("=IHHII", 16 + len(body), 18, 2, 1, 0) + body


def parsed(data: bytes) -> tuple[np.ndarray[Any, Any], bool]:
    """The connections of one part of an answer, which is allocated to its end, and whether none follows."""
    found, is_last = np.empty(MAX_CONNECTIONS, CONNECTION), ctypes.c_int()
    place, most = ctypes.c_void_p(found.ctypes.data), ctypes.c_uint64(len(found))
    size, last = ctypes.c_uint64(len(data)), ctypes.byref(is_last)
    count = load().connections_parse(data, size, ctypes.c_uint32(USER), 0, place, most, last)
    return found[:count], bool(is_last)


def test_an_answer_of_the_kernel_is_read():
    done = struct.pack("=IHHII", 20, 3, 2, 1, 0) + bytes(4)
    data = diagnosis("10.0.0.7", 5_000_000, 2_500_000, 500_000) + diagnosis("fd00::7", 1, 2, 3) + done
    found, is_last = parsed(data)
    assert is_last
    assert found["cookie"].tobytes() == b"cookie!!" * 2
    assert found["peer"].tobytes() == socket.inet_aton("10.0.0.7").ljust(16, b"\0") + socket.inet_pton(10, "fd00::7")
    assert (found["flight_seconds"].tolist(), found["acked_bytes"].tolist()) == ([2.0, 0.0], [5_000_000, 1])


@pytest.mark.parametrize(
    "message",
    [
        *(diagnosis(loopback, 1, 1, 0) for loopback in ("127.0.0.1", "::1", "::ffff:127.0.0.1")),
        diagnosis("10.0.0.7", 1, 1, 0, user=1001),
        diagnosis("10.0.0.7", 1, 1, 0, info_bytes=168),
        diagnosis("10.0.0.7", 1, 1, 0)[:40],
        struct.pack("=IHHII", 36, 2, 0, 1, 0) + struct.pack("=i", -2) + bytes(16),
        b"\0" * 64,
        b"",
    ],
)
def test_others_and_what_cannot_be_read_are_left_out(message):
    assert not len(parsed(message)[0])


@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_answer_is_read_to_its_end_and_no_further(noise, at):
    whole = diagnosis("10.0.0.7", 1, 1, 0)
    assert len(parsed(whole[:at] + noise + whole[at + len(noise) :])[0]) <= 2


def test_the_kernel_of_this_machine_is_asked():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        there, _ = server.accept()
        with there:
            client.sendall(b"x" * 100_000)
            left = 100_000
            while left:
                left -= len(there.recv(left))
            all_of = established(os.getuid(), keeps_loopback=True)
    found = all_of[np.isin(all_of["acked_bytes"], (100_000, 100_001))]
    assert found["peer"].tobytes() == socket.inet_aton("127.0.0.1").ljust(16, b"\0")
    assert all_of["cookie"].tolist() == sorted(all_of["cookie"].tolist())
    assert not np.isin(found["cookie"], established(os.getuid())["cookie"]).any()
