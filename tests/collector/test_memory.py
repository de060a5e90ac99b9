"""The C library's pools of freed memory."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

THREADS = """
import ctypes, sys, threading
from barograph_collector.memory import keep_few_arenas
if sys.argv[1] == "few":
    assert keep_few_arenas()
begin = threading.Barrier(12)
def work():
    begin.wait()
    held = [ctypes.create_string_buffer(100_000) for _ in range(50)]
    begin.wait()
threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.stdout.flush()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_threads_share_a_few_pools() -> None:
    def arenas(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", THREADS, how], capture_output=True, text=True, check=True)
        return done.stderr.count("Arena ")

    assert arenas("few") <= 3 < arenas("many")
