"""Backups of a log that is written to, and their way back."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from barograph_collector.backup import archive
from barograph_collector.backup.archive import BackupError, make, read
from barograph_collector.backup.restore import JUMP, restore
from barograph_collector.ingest import writer
from barograph_collector.storage.connection import StoreHeld
from barograph_collector.storage.database import Database
from barograph_collector.storage.store import JOURNAL_FOLDER, LOG, Store
from helpers.log import Producer, blocks, collector_on


def firsts(state: Path) -> list[int]:
    """`first_index` of all blocks in a log, in order."""
    found: list[int] = []
    with Store(state / LOG) as store:
        after = 0
        while (page := store.read("blocks", after, 100_000)).rows:
            found += page.columns["first_index"].tolist()
            after = page.next_offset
    return found


class Load:
    """A producer that appends 100 blocks at a time as fast as they are acknowledged."""

    def __init__(self, endpoint: str) -> None:
        self.acknowledged = 0
        self._stopping = threading.Event()
        self._endpoint = endpoint
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with Producer(self._endpoint) as producer:
            producer.hello()
            seq = 0
            while not self._stopping.is_set():
                producer.append(seq + 1, "blocks", 100, blocks(100, 100 * seq))
                producer.receive_ack(seq + 1)
                seq += 1
                self.acknowledged = 100 * seq

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory whose log has 300 blocks, a part of them in the journal only."""
    with collector_on(tmp_path / "state" / LOG) as collector, Producer(collector.endpoint) as producer:
        producer.hello()
        for seq in (1, 2, 3):
            producer.append(seq, "blocks", 100, blocks(100, 100 * (seq - 1)))
            producer.receive_ack(seq)
    return tmp_path / "state"


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "state").mkdir()
    yield tmp_path
    assert not list(tmp_path.glob("*.part"))


def test_backups_under_load_have_all_that_was_acknowledged_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Checkpoints all the time, of which many meet a backup.
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 20_000)
    monkeypatch.setattr(writer, "SMALL_BATCH_SECONDS", 0.01)
    with collector_on(tmp_path / "state" / LOG) as collector:
        load = Load(collector.endpoint)
        for number in range(8):
            before = load.acknowledged
            made = make(tmp_path / "state", tmp_path / f"backup-{number}")
            after = load.acknowledged
            found = firsts(tmp_path / f"backup-{number}")
            assert found == list(range(len(found)))
            assert before <= len(found) <= after + 100
            assert made.rows["blocks"] == len(found)
        load.stop()
        total = load.acknowledged
    assert total
    assert firsts(tmp_path / "state") == list(range(total))


def test_a_checkpoint_waits_for_a_backup(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = []
    with Store(state / LOG) as store:
        original = archive._copy

        def copy(source, target, *others):
            with pytest.raises(BlockingIOError, match="locked by another process"):
                store.checkpoint()
            copied.append(source.name)
            return original(source, target, *others)

        monkeypatch.setattr(archive, "_copy", copy)
        make(state, tmp_path / "backup")
        store.checkpoint()
    assert copied[0] == LOG
    assert firsts(tmp_path / "backup") == list(range(300))


def test_what_a_killed_backup_has_left_is_in_nobodys_way(tmp_path: Path, state: Path) -> None:
    (tmp_path / "backup.part" / JOURNAL_FOLDER).mkdir(parents=True)
    (tmp_path / "backup.part" / LOG).write_text("half")
    make(state, tmp_path / "backup")
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == [archive.MANIFEST, LOG, JOURNAL_FOLDER]


@pytest.mark.parametrize("when", ["_copy", "checkpoint"])
def test_a_full_disk_leaves_no_backup(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    def full(*words: object) -> int:
        raise OSError(28, os.strerror(28)) if when == "_copy" else duckdb.IOException("No space left on device")

    monkeypatch.setattr(archive if when == "_copy" else Database, when, full)
    with pytest.raises(BackupError, match="No space left on device"):
        make(state, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_restored_log_goes_on_where_its_readers_miss_nothing(tmp_path: Path, state: Path) -> None:
    make(state, tmp_path / "backup")
    with collector_on(state / LOG) as collector, Producer(collector.endpoint) as producer:
        # Acknowledged after the backup, and lost.
        assert producer.hello().acked == 3
        producer.append(4, "blocks", 100, blocks(100, 300))
        producer.receive_ack(4)
    found, aside, *_ = restore(tmp_path / "backup", state, replace=True)
    assert (found, aside is not None) == (read(tmp_path / "backup"), True)
    assert firsts(state) == list(range(300))
    assert aside is not None
    assert firsts(aside) == list(range(400))
    with collector_on(state / LOG) as collector, Producer(collector.endpoint) as producer:
        assert producer.hello().acked == 3
        producer.append(4, "blocks", 1, blocks(1, 7))
        producer.receive_ack(4)
        assert collector.endpoint
    with Store(state / LOG) as store:
        assert store.read("blocks", 400, 10).columns["first_index"].tolist() == [7]
        assert store.head == found.head + JUMP + 1


def test_a_log_is_replaced_only_where_that_is_asked_for_and_no_collector_has_it_open(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(state, tmp_path / "backup")
    with pytest.raises(BackupError, match="expected no log; --replace"):
        restore(tmp_path / "backup", state)
    damaged = shutil.copytree(state, tmp_path / "damaged")
    (damaged / LOG).write_bytes(b"not a database")
    aside = restore(tmp_path / "backup", damaged, replace=True).aside
    assert aside is not None
    assert (aside / LOG).read_bytes() == b"not a database"
    assert firsts(damaged) == list(range(300))

    def held(log: Path) -> None:
        raise StoreHeld(f"cannot open the log {log}")

    before = sorted(damaged.rglob("*"))
    monkeypatch.setattr("barograph_collector.backup.restore.connect", held)
    with pytest.raises(BackupError, match="cannot open the log"):
        restore(tmp_path / "backup", damaged, replace=True)
    assert sorted(damaged.rglob("*")) == before


@pytest.mark.parametrize("text", [None, "", "{}", '{"made_at": "x"}'])
def test_a_directory_that_is_no_backup_is_refused(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "backup").mkdir()
    if text is not None:
        (tmp_path / "backup" / archive.MANIFEST).write_text(text)
    with pytest.raises(BackupError, match="expected a backup made by barograph backup"):
        restore(tmp_path / "backup", tmp_path / "new")


def test_what_is_no_log_and_where_something_is_are_refused(tmp_path: Path, state: Path) -> None:
    with pytest.raises(BackupError, match="not found, expected the log of a collector"):
        make(tmp_path, tmp_path / "backup")
    with pytest.raises(BackupError, match="exists, expected a new directory"):
        make(state, tmp_path)
