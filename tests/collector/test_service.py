"""Signals of a daemon."""

from __future__ import annotations

import os
import signal

import pytest

from barograph_collector.daemon.service import Shutdown


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
