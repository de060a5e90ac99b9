"""Backups of a log that is written to, and their way back."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barograph_agent.system.system import SYSTEM
from barograph_collector.backup import archive
from barograph_collector.backup.archive import BackupError, make, read
from barograph_collector.backup.restore import JUMP, restore
from barograph_collector.ingest import writer
from barograph_collector.lake import compaction, pins
from barograph_collector.lake.lease import CATALOG_FILE
from barograph_collector.lake.place import CATALOG_FOLDER, Lake
from barograph_collector.lake.publisher import Publisher
from barograph_collector.storage.connection import StoreHeld
from barograph_collector.storage.store import JOURNAL_FOLDER, LOG, Store
from helpers.lakes import entry, loaded
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


def test_a_copy_during_which_the_file_has_changed_is_made_again(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(state / LOG) as store:
        original, changes = archive._copy, [3]

        def copy(source, target, *others):
            done = original(source, target, *others)
            if source.name == LOG and changes[0]:
                changes[0] -= 1
                # As a collector that stops: DuckDB checkpoints when it is closed.
                store.commit([], {"s": 10 - changes[0]})
                store.database.checkpoint()
            return done

        monkeypatch.setattr(archive, "_copy", copy)
        make(state, tmp_path / "backup")
        assert changes == [0]
        assert firsts(tmp_path / "backup") == list(range(300))
        changes[0] = archive.MAX_ATTEMPTS
        with pytest.raises(BackupError, match="checkpointed 5 times while it was copied"):
            make(state, tmp_path / "other")


def test_what_a_killed_backup_has_left_is_in_nobodys_way(tmp_path: Path, state: Path) -> None:
    (tmp_path / "backup.part" / JOURNAL_FOLDER).mkdir(parents=True)
    (tmp_path / "backup.part" / LOG).write_text("half")
    make(state, tmp_path / "backup")
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == [archive.MANIFEST, LOG, JOURNAL_FOLDER]


def test_a_backup_has_the_catalog_of_a_lake_in_an_object_store(tmp_path: Path, state: Path) -> None:
    lake = Lake.at(state / CATALOG_FOLDER)
    with Store(state / LOG, lake=lake.data) as store:
        publisher = Publisher(store, lake)
        publisher.publish()
        publisher.close()
    make(state, tmp_path / "backup")
    shutil.rmtree(state)
    restore(tmp_path / "backup", state)
    with loaded("ducklake") as connection:
        connection.execute(f"ATTACH 'ducklake:{state / CATALOG_FOLDER / CATALOG_FILE}' AS lake (READ_ONLY)")
        (rows,) = connection.execute("SELECT sum(record_count) FROM __ducklake_metadata_lake.ducklake_data_file AS f"
                                     " JOIN __ducklake_metadata_lake.ducklake_table AS t USING (table_id)"
                                     " WHERE table_name = 'blocks'").fetchone() or ()  # fmt: skip
    assert rows == 300


def listed(catalog: Path) -> tuple[list[Path], list[int]]:
    """The files of `blocks` that a catalog lists, and the rows that are read through it."""
    with loaded("ducklake") as connection:
        connection.execute(f"ATTACH 'ducklake:{catalog}' AS lake (READ_ONLY)")
        files = connection.execute("SELECT data_file FROM ducklake_list_files('lake', 'blocks')").fetchall()
        rows = connection.execute("SELECT first_index FROM lake.blocks ORDER BY 1").fetchall()
    return [Path(file) for (file,) in files], [index for (index,) in rows]


def test_files_that_the_newest_backup_lists_stay_though_they_were_merged(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MIN_FILES", 2)
    lake = Lake.at(state / CATALOG_FOLDER)
    found: dict[int, tuple[list[Path], list[int]]] = {}

    def publish(publisher: Publisher, store: Store, first: int) -> None:
        store.commit([entry("blocks", 10, blocks(10, first))], {"t": first})
        assert not publisher.publish()

    def merge_and_expire(publisher: Publisher) -> None:
        assert publisher.compact()
        assert publisher._catalog is not None
        publisher._catalog.expire(time.time() + 3600.0)

    with Store(state / LOG, lake=lake.data) as store:
        publisher = Publisher(store, lake)
        publisher.publish()
        for number in (1, 2):
            publish(publisher, store, 1000 * number)
            make(state, tmp_path / f"{number}")
            found[number] = listed(tmp_path / f"{number}" / CATALOG_FOLDER / CATALOG_FILE)
            publish(publisher, store, 1000 * number + 500)
            merge_and_expire(publisher)
            assert all(path.exists() for path in found[number][0]), "merged, and in the newest backup"
            assert listed(tmp_path / f"{number}" / CATALOG_FOLDER / CATALOG_FILE) == found[number]
        assert not any(path.exists() for path in found[1][0]), "in an older backup"
        with pytest.raises(BackupError, match="exists, expected a new directory"):
            make(state, tmp_path / "2")
        publisher._catalog.forget(time.time() + 3600.0)  # type: ignore[union-attr]
        assert not any(path.exists() for path in found[2][0]), "an erasure keeps nothing for a backup"
        publisher.close()


def test_a_backup_that_fails_takes_the_files_of_none_before_it(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.at(state / CATALOG_FOLDER)
    with Store(state / LOG, lake=lake.data) as store:
        publisher = Publisher(store, lake)
        publisher.publish()
        make(state, tmp_path / "1")
        before = pins.read(state / CATALOG_FOLDER, SYSTEM.disk)
        store.commit([entry("blocks", 10, blocks(10, 1000))], {"t": 1})
        publisher.publish()
        publisher.close()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda path, target: (_ for _ in ()).throw(OSError(28, os.strerror(28))))
        with pytest.raises(BackupError, match="No space left on device"):
            make(state, tmp_path / "2")
    (first, second) = pins.read(state / CATALOG_FOLDER, SYSTEM.disk)
    assert [first] == before
    make(state, tmp_path / "2")
    assert pins.read(state / CATALOG_FOLDER, SYSTEM.disk) == [second]
    shutil.rmtree(state)
    restore(tmp_path / "2", state)
    assert pins.read(state / CATALOG_FOLDER, SYSTEM.disk) == [second], "it may be restored once more"


@pytest.mark.parametrize("text", ["", "{}", '["1"]'])
def test_pins_that_cannot_be_read_are_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / pins.PINS_FILE).write_text(text)
    with pytest.raises(OSError, match="expected a list of the commits that backups have"):
        pins.read(tmp_path, SYSTEM.disk)


def test_a_full_disk_leaves_no_backup(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*words: object) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(archive, "_copy", full)
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
    found, aside = restore(tmp_path / "backup", state, replace=True)
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
    _, aside = restore(tmp_path / "backup", damaged, replace=True)
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
