"""The journal: appended messages survive any crash, unchanged."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_agent.system.disk import Disk
from barograph_agent.system.system import SYSTEM
from barograph_collector.storage.journal import Journal

FRAMES = st.lists(st.binary(max_size=300), min_size=1, max_size=5)


def contents(directory: Path, after: int = 0, last: int = 2**62) -> list[tuple[int, bytes]]:
    return list(Journal(directory).replay(after, last))


@settings(max_examples=60, deadline=None)
@given(groups=st.lists(FRAMES, max_size=12), cut=st.floats(0, 1), flip=st.booleans(), truncated=st.floats(0, 1))
def test_a_truncated_or_damaged_journal_yields_its_complete_groups_from_the_beginning(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[bytes]], cut: float, flip: bool, truncated: float
) -> None:
    directory = tmp_path_factory.mktemp("journal") / "j"
    journal = Journal(directory, segment_bytes=1000)
    ends = [journal.append(group) for group in groups]
    assert ends == [sum(map(len, groups[: count + 1])) for count in range(len(groups))]
    everything = list(enumerate((frame for group in groups for frame in group), 1))
    assert contents(directory) == everything
    middle = int(truncated * len(everything))
    assert contents(directory, after=middle // 2, last=middle) == everything[middle // 2 : middle]

    journal.truncate(middle)
    journal.close()
    kept = contents(directory)
    assert kept == everything[len(everything) - len(kept) :]
    assert not middle or len(kept) >= len(everything) - middle
    if not kept:
        return
    last = max(directory.iterdir())
    data = bytearray(last.read_bytes())
    place = int(cut * (len(data) - 1))
    if flip:
        data[place] ^= 1
    last.write_bytes(data if flip else data[:place])
    left = contents(directory)
    assert left == kept[: len(left)]
    assert len(left) in {0, len(kept), *(end - kept[0][0] + 1 for end in ends)}


def test_what_a_process_has_not_synced_is_synced_before_another_one_reads_it(tmp_path: Path) -> None:
    """Its rows will be acknowledged, and the journal may be the only one to have them when the host is lost."""

    class Unsynced(Disk):
        calls = 0

        def sync_data(self, descriptor: int) -> None:
            self.calls += 1
            raise OSError(5, "Input/output error")

    journal = Journal(tmp_path / "j")
    journal.append([b"first"])
    disk = Unsynced()
    with pytest.raises(OSError, match="Input/output error"):
        Journal(tmp_path / "j", system=SYSTEM._replace(disk=disk))
    assert disk.calls == 1


def test_numbers_continue_after_a_restart_and_across_segments(tmp_path: Path) -> None:
    for first in (1, 4, 7):
        journal = Journal(tmp_path / "j", segment_bytes=200)
        numbers = list(range(first, first + 3))
        assert [journal.append([b"%d" % number * 40]) for number in numbers] == numbers
        journal.close()
    assert [number for number, _ in contents(tmp_path / "j")] == list(range(1, 10))


def test_a_failed_append_is_not_part_of_the_journal_and_can_be_repeated(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", segment_bytes=1000)
    journal.append([b"first"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            journal.append([b"x" * 800])
        with pytest.raises(OSError, match="File too large"):
            journal.append([b"y" * 800])
        assert journal.last == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert journal.append([b"x" * 800, b"z"]) == 3
    journal.close()
    assert contents(tmp_path / "j") == [(1, b"first"), (2, b"x" * 800), (3, b"z")]
