"""The TCP connections of this node's network namespace, as the kernel shows them to anybody (sock_diag(7))."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

MAX_BYTES: Final = 2**21
"""Most that is read of what the kernel tells of one family: some 5,000 connections, 1 us each."""
MAX_CONNECTIONS: Final = 1000
"""Most connections of the user in one family: 3 us each."""
SECONDS: Final = 0.2
"""Longest wait for a part of it."""
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_DONE: Final = 3
_ERROR: Final = 2
_DUMP: Final = 0x301
_ESTABLISHED: Final = 1 << 1
_INFO: Final = 2
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI48x")
_MESSAGE: Final = struct.Struct("=B23x16s4x8s12xI4x")
"""struct inet_diag_msg: family, destination, cookie and user."""
_ATTRIBUTE: Final = struct.Struct("=HH")
_COUNTED: Final = struct.Struct("=Q40xQQ")
_COUNTED_AT: Final = 120
"""Of struct tcp_info, from there on: tcpi_bytes_acked, tcpi_busy_time, tcpi_rwnd_limited."""
_MAPPED: Final = bytes(10) + b"\xff\xff"
_LOOPBACK: Final = (b"\x7f", bytes(15) + b"\x01", _MAPPED + b"\x7f")


class SocketInfo(NamedTuple):
    """One connection. peer: its address, 4 or 16 bytes. flight_seconds: for how long data was sent and not
    acknowledged, though the peer could take it. acked_bytes: what was acknowledged. Both since its begin.
    """

    cookie: bytes
    peer: bytes
    flight_seconds: float
    acked_bytes: int


def established(user: int) -> list[SocketInfo]:
    """Those of a user to other machines. Empty where the kernel does not tell."""
    found: list[SocketInfo] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as link:
                link.settimeout(SECONDS)
                body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ESTABLISHED)
                link.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _DUMP, 1, 0) + body)
                found += islice((one for data in _parts(link) for one in parsed(data, user)), MAX_CONNECTIONS)
        except OSError:
            continue
    return found


def parsed(data: bytes, user: int) -> Iterator[SocketInfo]:
    """The connections of a user in one part of an answer."""
    at = 0
    while at + _HEADER.size <= len(data):
        size, kind, *_ = _HEADER.unpack_from(data, at)
        if size < _HEADER.size:
            return
        message = data[at + _HEADER.size : at + size]
        if kind == _BY_FAMILY and len(message) >= _MESSAGE.size and (one := _connection(message, user)):
            yield one
        at += _aligned(size)


def _parts(link: socket.socket) -> Iterator[bytes]:
    total = 0
    while total < MAX_BYTES:
        data = link.recv(2**16)
        total += len(data)
        yield data
        if _HEADER.size > len(data) or _last_kind(data) in (_DONE, _ERROR):
            return


def _last_kind(data: bytes) -> int:
    at = kind = 0
    while at + _HEADER.size <= len(data):
        size, kind, *_ = _HEADER.unpack_from(data, at)
        at += max(_aligned(size), _HEADER.size)
    return kind


def _connection(message: bytes, user: int) -> SocketInfo | None:
    family, destination, cookie, owner = _MESSAGE.unpack_from(message)
    address = destination[:4] if family == socket.AF_INET else destination
    if owner != user or address.startswith(_LOOPBACK):
        return None
    at = _MESSAGE.size
    while at + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, at)
        info = at + _ATTRIBUTE.size + _COUNTED_AT
        if kind == _INFO and min(at + size, len(message)) >= info + _COUNTED.size:
            acked, busy, limited = _COUNTED.unpack_from(message, info)
            return SocketInfo(cookie, address, 1e-6 * max(busy - limited, 0), acked)
        at += _aligned(max(size, _ATTRIBUTE.size))
    return None  # an older kernel


def _aligned(size: int) -> int:
    return (size + 3) & ~3
