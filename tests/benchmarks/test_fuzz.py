"""A million mutated inputs for the ring reader and a million for the wire decoders (`helpers.fuzz`)."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from helpers import fuzz

COUNT = 1_000_000
MEGABYTES = 100

# Integer overflow is a warning.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def peak() -> int:
    """The peak memory of this process, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@pytest.mark.timeout(4 * 3600)
def test_a_million_mutated_rings(tmp_path: Path) -> None:
    fuzz.rings(tmp_path, 1000, seed=0)
    before = peak()
    found = fuzz.rings(tmp_path, COUNT, seed=5)
    print(f"\n{found['read']:,} read, {found['refused']:,} refused; memory grew by {peak() - before} MB")
    assert found["refused"] + found["read"] == COUNT
    assert peak() - before < MEGABYTES


@pytest.mark.timeout(3600)
def test_a_million_mutated_messages() -> None:
    fuzz.messages(1000, seed=0)
    before = peak()
    found = fuzz.messages(COUNT, seed=6)
    print(f"\n{dict(found)}; memory grew by {peak() - before} MB")
    assert found["undecodable"] + found["refused"] + found["accepted"] == found["heard"] == COUNT
    assert peak() - before < MEGABYTES
