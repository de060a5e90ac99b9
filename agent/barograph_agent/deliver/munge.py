"""MUNGE through its C library: credentials that authenticate a uid within a cluster whose nodes share a secret."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

EXPIRED: Final = 15
REWOUND: Final = 16
REPLAYED: Final = 17
_OPT_SOCKET: Final = 8
"""This and the three above are from munge.h."""


class MungeError(Exception):
    """MUNGE failed. `status`: the library's error number, -1 if the library is not installed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"MUNGE: {text}")
        self.status = status


def encode(payload: bytes, socket: str = "") -> str:
    """A credential with this payload, from the munged at `socket` or the default one. Raises MungeError.

    Returns at once if no munged runs; may take seconds if munged is overloaded.
    """
    library = _library()
    credential = ctypes.c_void_p()
    context = _context(library, socket)
    try:
        _check(library, library.munge_encode(ctypes.byref(credential), context, payload, len(payload)))
        return ctypes.string_at(credential).decode()
    finally:
        library.munge_ctx_destroy(context)
        _free(credential)


def decode(credential: str, socket: str = "") -> tuple[bytes, int]:
    """Payload and uid of a valid credential that was not decoded on this host before. Raises MungeError."""
    library = _library()
    payload, length, uid, gid = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint32(), ctypes.c_uint32()
    results = [ctypes.byref(result) for result in (payload, length, uid, gid)]
    context = _context(library, socket)
    try:
        _check(library, library.munge_decode(credential.encode(), context, *results))
        return ctypes.string_at(payload, length.value) if payload else b"", uid.value
    finally:
        library.munge_ctx_destroy(context)
        _free(payload)


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libmunge.so.2")
    except OSError:
        raise MungeError(-1, "libmunge.so.2 is not installed") from None
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_strerror.restype = ctypes.c_char_p
    return library


def _context(library: Any, socket: str) -> ctypes.c_void_p:
    context = ctypes.c_void_p(library.munge_ctx_create())
    if socket:
        library.munge_ctx_set(context, _OPT_SOCKET, ctypes.c_char_p(socket.encode()))
    return context


def _check(library: Any, status: int) -> None:
    if status:
        raise MungeError(status, library.munge_strerror(status).decode())


def _free(pointer: ctypes.c_void_p) -> None:
    if pointer:
        ctypes.CDLL(None).free(pointer)
