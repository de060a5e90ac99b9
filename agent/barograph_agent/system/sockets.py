"""The TCP connections of this node's network namespace, as the kernel shows them to anybody (sock_diag(7))."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_BYTES: Final = 2**22
"""Most that is read of what the kernel tells: some 10,000 connections."""
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
_MESSAGE: Final = struct.Struct("=BBBBHH16s16sI8sIIIII")
"""struct inet_diag_msg: family, ..., destination at 7, cookie at 9, user at 13."""
_ATTRIBUTE: Final = struct.Struct("=HH")
_ACKED, _BUSY = 120, 168
"""Places in struct tcp_info of tcpi_bytes_acked, and of tcpi_busy_time and tcpi_rwnd_limited."""


class SocketInfo(NamedTuple):
    """One connection. peer: its address. flight_seconds: for how long data was sent and not acknowledged, though the
    peer could take it. acked_bytes: what was acknowledged. Both since its begin.
    """

    cookie: bytes
    peer: str
    flight_seconds: float
    acked_bytes: int


def established(user: int) -> list[SocketInfo]:
    """Those of a user to other machines. Empty where the kernel does not tell."""
    found = []
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as link:
                link.settimeout(SECONDS)
                body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ESTABLISHED)
                link.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _DUMP, 1, 0) + body)
                found += [one for data in _parts(link) for one in parsed(data, user)]
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
    fields = _MESSAGE.unpack_from(message)
    family, destination, cookie, owner = fields[0], fields[7], fields[9], fields[13]
    address = ipaddress.ip_address(destination[:4] if family == socket.AF_INET else destination)
    if owner != user or address.is_loopback:
        return None
    at = _MESSAGE.size
    while at + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, at)
        info = message[at + _ATTRIBUTE.size : at + size]
        if kind == _INFO and len(info) >= _BUSY + 16:
            (acked,) = struct.unpack_from("=Q", info, _ACKED)
            busy, limited = struct.unpack_from("=QQ", info, _BUSY)
            return SocketInfo(cookie, str(address), 1e-6 * max(busy - limited, 0), acked)
        at += _aligned(max(size, _ATTRIBUTE.size))
    return None  # an older kernel


def _aligned(size: int) -> int:
    return (size + 3) & ~3
