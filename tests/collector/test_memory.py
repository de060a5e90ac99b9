"""Memory of the collector: arenas and queued messages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

THREADS = """
import ctypes, sys, threading
from barograph_collector.main import limit_arenas
if sys.argv[1] == "few":
    limit_arenas()
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

MESSAGES = """
import zmq
from barograph_collector.net.router_socket import RouterSocket
from barograph.lab.bench.measured_collector import Usage
with zmq.Context() as context, context.socket(zmq.DEALER) as client:
    router = RouterSocket("tcp://127.0.0.1:0", None)
    client.connect(router.endpoint)
    before = Usage.of_this_process().resident_bytes
    waiting = []
    for _ in range(5000):
        client.send(bytes(400))
        waiting.append(router.raw.recv_multipart(copy=False))
    print(Usage.of_this_process().resident_bytes - before)
    del waiting
    router.close()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_threads_share_a_few_arenas() -> None:
    def arenas(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", THREADS, how], capture_output=True, text=True, check=True)
        return done.stderr.count("Arena ")

    assert arenas("few") <= 3 < arenas("many")


def test_a_queued_message_takes_little_more_memory_than_its_size() -> None:
    done = subprocess.run([sys.executable, "-c", MESSAGES], capture_output=True, text=True, check=True)
    assert 400 < int(done.stdout) / 5000 < 2000
