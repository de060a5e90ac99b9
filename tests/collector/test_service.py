"""Signals of a daemon."""

from __future__ import annotations

import os
import signal

import pytest

from barograph_collector.daemon.service import Shutdown


def test_sighup_wakes_the_loop_once_and_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_at_a_terminal_sighup_means_what_it_ever_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    before = signal.getsignal(signal.SIGHUP)
    with Shutdown():
        assert signal.getsignal(signal.SIGHUP) is before
