"""Hooks whose time limits are lifted, so that a busy machine may keep them waiting, or noted."""

from __future__ import annotations

import re
from pathlib import Path

TIMEOUT = "/usr/bin/timeout"
_LIMIT = re.compile(rf"{TIMEOUT} -s KILL ([0-9.]+) ")


def unhurried(*scripts: Path) -> None:
    """Let what these copies of hooks limit take a minute."""
    for script in scripts:
        text = script.read_text()
        assert _LIMIT.search(text), f"{script} limits nothing"
        script.write_text(_LIMIT.sub(f"{TIMEOUT} -s KILL 60 ", text))


def limit(bounded: Path) -> float:
    """Seconds that `bounded` gives a hook."""
    (seconds,) = _LIMIT.findall(bounded.read_text())
    return float(seconds)


def noted(bounded: Path, note: Path) -> None:
    """Let this copy of `bounded` append a line to `note` per hook: with which options it is limited, and its status."""
    wrapper = bounded.with_name("noted")
    wrapper.write_text(f'#!/bin/sh\n{TIMEOUT} "$@"\nstatus=$?\necho "$1 $2 $3 $status" >> {note}\nexit $status\n')
    wrapper.chmod(0o755)
    text = bounded.read_text()
    assert text.count(TIMEOUT) == 1
    bounded.write_text(text.replace(TIMEOUT, str(wrapper)))
