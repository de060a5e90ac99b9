"""A limit on the memory arenas of the C library."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8  # malloc.h


def limit_arenas() -> bool:
    """Let all threads share ARENAS arenas; False where the C library cannot. Call it before threads start.

    glibc has up to eight arenas per core. Memory of a connection is allocated by one thread and freed by another, so
    with 10,000 connections the arenas grow to several times the memory in use.
    """
    with contextlib.suppress(OSError, AttributeError):  # a C library without mallopt
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS))
    return False
