"""How the C library keeps memory that was freed."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8  # malloc.h


def keep_few_arenas() -> bool:
    """Let all threads share ARENAS pools of freed memory; to be called before they begin. Says whether that worked.

    glibc gives each thread one of its own, up to eight for a core. What a connection takes is freed by another thread
    than took it, in another pool, so with 10,000 connections the pools grow to several times of what is in use.
    """
    with contextlib.suppress(OSError, AttributeError):  # a C library without it
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS))
    return False
