"""Damaged rings and messages are rejected, without other errors, endless loops or unbounded memory.

`make bench` does a million of each.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from helpers import fuzz

COUNT = 2000
MEGABYTES = 100

# An integer overflow would be a warning.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def peak() -> int:
    """Peak resident memory of this process, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def test_a_mutated_ring_is_read_or_rejected(tmp_path: Path) -> None:
    fuzz.rings(tmp_path, 10, seed=0)
    before = peak()
    found = fuzz.rings(tmp_path, COUNT, seed=3)
    assert found["refused"] + found["read"] == COUNT
    assert min(found["refused"], found["read"]) > COUNT // 20
    assert peak() - before < MEGABYTES


def test_a_mutated_message_is_accepted_or_refused() -> None:
    fuzz.messages(10, seed=0)
    before = peak()
    found = fuzz.messages(COUNT, seed=4)
    assert found["undecodable"] + found["refused"] + found["accepted"] == found["heard"] == COUNT
    assert min(found["undecodable"], found["refused"], found["accepted"]) > COUNT // 100
    assert peak() - before < MEGABYTES
