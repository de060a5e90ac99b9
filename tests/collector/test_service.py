"""Signals of a daemon, and its metrics over HTTP."""

from __future__ import annotations

import os
import signal
import socket
import threading
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from barograph_collector.daemon import service
from barograph_collector.daemon.service import Shutdown
from helpers.log import DEADLINE_SECONDS, wait_until


def test_sighup_ends_a_wait_once_and_not_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: False)
    before = signal.getsignal(signal.SIGHUP)
    with Shutdown() as shutdown:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not shutdown.wait(None)
        assert shutdown.hung_up()
        assert not shutdown.hung_up()
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        assert shutdown.wait(None)
        assert shutdown.hung_up()
    assert signal.getsignal(signal.SIGHUP) is before


def test_sighup_keeps_its_default_action_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    before = signal.getsignal(signal.SIGHUP)
    with Shutdown():
        assert signal.getsignal(signal.SIGHUP) is before


def test_a_request_that_comes_byte_by_byte_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "WHOLE_SECONDS", 0.3)
    served = service.serve_metrics(CollectorRegistry(), "127.0.0.1", 0)
    try:
        with socket.create_connection(served.address, DEADLINE_SECONDS) as slow:
            slow.setblocking(False)

            def is_ended() -> bool:
                try:
                    slow.send(b"x")
                    return not slow.recv(1)
                except BlockingIOError:
                    return False
                except OSError:
                    return True

            wait_until(is_ended, "the connection is closed", every=0.05)
    finally:
        served.stop()


def test_silent_connections_and_many_at_once_do_not_end_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_REQUESTS", 4)
    monkeypatch.setattr(service._Handler, "timeout", 0.2)
    served = service.serve_metrics(CollectorRegistry(), "127.0.0.1", 0)
    threads = threading.active_count()
    try:
        silent = [socket.create_connection(served.address, DEADLINE_SECONDS) for _ in range(40)]
        # Beyond those that are answered, connections are closed at once, the others when they have been silent.
        for one in silent:
            assert one.recv(1) == b""
            one.close()
        assert threading.active_count() <= threads + 4

        def answered() -> bool:
            try:
                with urllib.request.urlopen(served.url, timeout=10.0) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        wait_until(answered, "metrics are served")
    finally:
        served.stop()
