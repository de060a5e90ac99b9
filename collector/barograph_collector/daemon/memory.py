"""A limit on the memory pools of the C library."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8  # malloc.h


def keep_few_arenas() -> bool:
    """Let all threads share ARENAS memory pools; to be called before threads start. Says whether that worked.

    glibc has a pool per thread, up to eight per core. Memory of a connection is allocated by one thread and freed by
    another, so with 10,000 connections the pools grow to several times of what is in use.
    """
    with contextlib.suppress(OSError, AttributeError):  # a C library without mallopt
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS))
    return False
