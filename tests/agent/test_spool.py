"""The spool: whole commits after kills and on full disks, and counts of drops."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barograph_agent.deliver.outbox import Dropped
from barograph_agent.deliver.spool import DATABASE, MAX_FREE_PAGES, Spool, SpoolError
from helpers.full_disk import FullDisk


def held(spool: Spool) -> list[tuple[int, bytes]]:
    """The messages in the spool, by number."""
    return [(seq, spool.get(seq)) for seq in range(spool.first_seq, spool.last_seq + 1)]


def commit(spool: Spool, mark: bytes, *messages: bytes) -> None:
    for message in messages:
        spool.put(len(message), message)
    spool.commit(mark)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Spool]]:
    """Opens a spool, after closing the one open before."""
    current: list[Spool] = []

    def open_(directory: Path = tmp_path / "spool", **options: int) -> Spool:
        while current:
            current.pop().close()
        current.append(Spool(directory, **options))
        return current[0]

    yield open_
    while current:
        current.pop().close()


def test_after_a_kill_within_a_write_there_are_whole_commits(tmp_path: Path) -> None:
    """Of a database without its end, as SIGKILL leaves it within a write: any of its states, each whole."""
    spool = Spool(tmp_path / "whole")
    states = {(b"", 0)}
    for i in range(1, 9):
        commit(spool, b"mark %d" % i, *[b"%d" % i * 900] * (i % 3))
        states.add((spool.mark, spool.last_seq))
    copies = {path.name: path.read_bytes() for path in spool.directory.iterdir()}
    spool.close()
    log, found = copies[f"{DATABASE}-wal"], set()
    for cut in [*range(0, len(log), 97), len(log)]:
        directory = tmp_path / f"cut-{cut}"
        directory.mkdir()
        for name, content in copies.items():
            (directory / name).write_bytes(content[:cut] if name.endswith("-wal") else content)
        spool = Spool(directory)
        found.add((spool.mark, spool.last_seq))
        assert [seq for seq, _ in held(spool)] == list(range(1, spool.last_seq + 1))
        commit(spool, b"on", b"next")
        spool.close()
        spool = Spool(directory)
        assert (spool.mark, held(spool)[-1]) == (b"on", (spool.last_seq, b"next"))
        spool.close()
        shutil.rmtree(directory)
    assert found == states


def test_a_killed_owner_leaves_the_last_commit_whole(tmp_path: Path) -> None:
    for attempt in range(8):
        directory = tmp_path / str(attempt)
        if (pid := os.fork()) == 0:
            spool = Spool(directory)
            while True:
                commit(spool, b"%d" % (spool.next_seq + 1), b"x" * 3000, b"y" * 3000)
                spool.ack(spool.last_seq - 20)
        while not (directory / f"{DATABASE}-wal").exists():
            time.sleep(0.001)
        time.sleep(0.01 * attempt)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        spool = Spool(directory)
        assert spool.mark == (b"%d" % spool.last_seq if spool.last_seq else b"")
        assert [content[:1] for _, content in held(spool)] == [b"x", b"y"] * (len(held(spool)) // 2)
        spool.close()


def test_what_is_acknowledged_is_deleted_but_mark_and_numbers_kept(opened: Callable[..., Spool]) -> None:
    spool = opened()
    for i in range(1, 501):
        commit(spool, b"mark %d" % i, b"x" * 2000, b"y" * 2000)
    assert spool.ack(500).stored == 500 * 2000
    assert spool.ack(500).stored == 0
    assert spool.first_seq == 501
    spool = opened()
    assert spool.first_seq == 1  # since then nothing was committed: the collector acknowledges it again
    assert spool.ack(1000).stored == 1000 * 2000
    full = (spool.directory / DATABASE).stat().st_size
    spool.commit(b"last")
    spool = opened()
    assert (spool.directory / DATABASE).stat().st_size < full / 10
    assert (spool.mark, spool.first_seq, spool.last_seq, spool.next_seq) == (b"last", 1001, 1000, 1001)
    assert (spool.dropped, spool.rows, spool.size) == (None, 0, 0)


def test_drops_beyond_the_cap_are_remembered_after_a_restart(opened: Callable[..., Spool]) -> None:
    spool = opened(cap_bytes=4000)
    for i in range(1, 101):
        commit(spool, b"%d" % i, b"%03d" % i * 33)
        assert spool.size <= 4000
    assert (first := spool.first_seq) == 61
    assert spool.dropped == Dropped(60, 99 * 60, "spool-cap")
    assert held(spool) == [(i, b"%03d" % i * 33) for i in range(first, 101)]
    spool = opened(cap_bytes=4000)
    assert spool.dropped == Dropped(60, 99 * 60, "spool-cap")
    assert (spool.first_seq, spool.mark) == (first, b"100")
    spool.ack(59)
    assert spool.dropped is not None
    spool.ack(60)
    assert spool.dropped is None
    spool.commit(b"on")
    assert opened(cap_bytes=4000).dropped is None


def test_the_newest_message_is_kept_however_large(opened: Callable[..., Spool]) -> None:
    spool = opened(cap_bytes=10)
    commit(spool, b"m", b"a" * 8, b"b" * 80)
    assert held(spool) == [(2, b"b" * 80)]


def test_a_commit_stays_where_the_disk_has_no_room_to_give_pages_back(tmp_path: Path) -> None:
    (disk := FullDisk()).is_tight = True
    spool = Spool(tmp_path / "s", disk=disk)
    commit(spool, b"m", *[b"x" * 4000] * (MAX_FREE_PAGES + 50))
    spool.ack(spool.last_seq)
    for mark in (b"n", b"o"):
        commit(spool, mark, mark)
    assert (spool.mark, [message for _, message in held(spool)]) == (b"o", [b"n", b"o"])
    full = (tmp_path / "s" / DATABASE).stat().st_size
    disk.is_tight = False
    spool.commit(b"p")
    spool.close()
    assert (tmp_path / "s" / DATABASE).stat().st_size < full / 10


def test_a_damaged_database_is_an_error_that_names_it(tmp_path: Path) -> None:
    Spool(tmp_path / "s").close()
    (tmp_path / "s" / DATABASE).write_bytes(b"no database" * 1000)
    with pytest.raises(SpoolError, match=r"/s: spool\.sqlite: file is not a database, expected a database of"):
        Spool(tmp_path / "s")
    (tmp_path / "s" / DATABASE).unlink()
    Spool(tmp_path / "s").close()  # the lock was released


def test_a_spool_has_one_owner_until_it_is_closed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    with pytest.raises(SpoolError) as raised:
        Spool(tmp_path / "s")
    assert str(raised.value) == f"spool {tmp_path}/s: in use by another process, expected one owner"
    spool.close()
    Spool(tmp_path / "s").close()


def test_remove_keeps_the_lock_until_everything_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "s")
    commit(spool, b"", b"one")
    (tmp_path / "s" / "plan.json").write_text("{}")
    unlink = Path.unlink
    refused = []

    def unlink_and_knock(path: Path, missing_ok: bool = False) -> None:
        if path.name != "lock":
            with pytest.raises(SpoolError):
                Spool(tmp_path / "s")
            refused.append(path.name)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink_and_knock)
    spool.remove()
    assert sorted(refused) == ["plan.json", "spool.sqlite"]
    assert not (tmp_path / "s").exists()


class Model(RuleBasedStateMachine):
    """A spool compared with a list: kills, full disks, acknowledgements, marks without messages."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.committed: list[bytes] = []
        self.waiting: list[bytes] = []
        self.mark = b""
        self.acked = 0

        self.disk = FullDisk()
        self.spool = Spool(Path(self.folder.name) / "s", disk=self.disk)

    @rule(message=st.binary(max_size=120))
    def put(self, message: bytes) -> None:
        assert self.spool.next_seq == len(self.committed) + len(self.waiting) + 1
        self.spool.put(1, message)
        self.waiting.append(message)

    @rule(mark=st.binary(max_size=60))
    def commit(self, mark: bytes) -> None:
        self.spool.commit(mark)
        self.mark = mark
        self.committed += self.waiting
        self.waiting = []

    @rule()
    def full(self) -> None:
        self.disk.is_full = True
        with pytest.raises(OSError, match="database or disk is full"):
            self.spool.commit(b"is not stored")
        self.disk.is_full = False

    @rule()
    def rollback(self) -> None:
        self.spool.rollback()
        self.waiting = []

    @rule()
    def killed(self) -> None:
        self.spool.close()
        self.spool = Spool(self.spool.directory, disk=self.disk)
        self.waiting = []
        # What was acknowledged since the last commit is there again; the collector acknowledges it again.
        assert self.spool.first_seq <= self.acked + 1
        self.spool.ack(self.acked)

    @precondition(lambda self: self.acked < len(self.committed))
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(self.acked + 1, len(self.committed)))
        assert self.spool.ack(seq).stored == seq - self.acked
        self.acked = seq

    @invariant()
    def same(self) -> None:
        assert self.spool.mark == self.mark
        assert held(self.spool) == list(enumerate(self.committed, 1))[self.acked :]
        assert self.spool.dropped is None
        assert self.spool.rows == len(self.committed) - self.acked

    def teardown(self) -> None:
        self.spool.close()
        self.folder.cleanup()


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
