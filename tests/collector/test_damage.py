"""A database that cannot be opened: a cut checkpoint is undone, lake and journal make a damaged log again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from barograph_agent.protocol import wire
from barograph_collector.backup.archive import make
from barograph_collector.backup.restore import restore, restore_from_lake
from barograph_collector.daemon.service import Exit
from barograph_collector.lake.place import Lake
from barograph_collector.storage.connection import StoreDamaged, StoreError
from barograph_collector.storage.store import LOG, Store
from barograph_collector.storage.undo import BLOCKS_AT, Undo
from helpers.lakes import entry, seal_all
from helpers.log import Daemon, Producer, blocks

BLOCK_BYTES = 262_144


def firsts(store: Store) -> list[int]:
    with store.cursor() as log:
        return [first for (first,) in log.execute("SELECT first_index FROM blocks ORDER BY log_offset").fetchall()]


def metadata(store: Store) -> list[int]:
    with store.cursor() as log:
        return [number for (number,) in log.execute("SELECT block_id FROM pragma_metadata_info()").fetchall()]


@pytest.fixture
def torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of 60 blocks, the last 10 in its write-ahead log only, whose checkpoint was cut off within a block."""
    (tmp_path / "whole").mkdir()
    with Store(tmp_path / "whole" / LOG) as store:
        for number in range(5):
            store.commit([entry("blocks", 10, blocks(10, 10 * number))], {"s": number})
            store.checkpoint()
        store.commit([entry("blocks", 10, blocks(10, 50))], {"s": 5})
        monkeypatch.setattr(Undo, "forget", lambda self: None)
        at = [BLOCKS_AT + number * BLOCK_BYTES for number in metadata(store)]
        shutil.copytree(tmp_path / "whole", tmp_path / "state")
        store.checkpoint()
        monkeypatch.undo()
        shutil.copy(tmp_path / "whole" / f"{LOG}.undo", tmp_path / "state")
        after = store.path.read_bytes()
    before = bytearray((tmp_path / "state" / LOG).read_bytes())
    overwritten = [a for a in at if a < len(before) and before[a : a + BLOCK_BYTES] != after[a : a + BLOCK_BYTES]]
    assert overwritten, "DuckDB overwrites no block of metadata any more: storage/undo.py is not needed"
    for a in overwritten:
        before[a : a + 4096] = after[a : a + 4096]
    (tmp_path / "state" / LOG).write_bytes(before)
    return tmp_path / "state"


def test_a_checkpoint_that_is_cut_off_within_a_block_is_undone(torn: Path) -> None:
    for _ in range(2):
        with Store(torn / LOG) as store:
            assert firsts(store) == list(range(60))
        assert not (torn / f"{LOG}.undo").exists()


def test_what_is_half_written_and_was_not_saved_is_refused(torn: Path) -> None:
    (torn / f"{LOG}.undo").unlink()
    with pytest.raises(StoreDamaged, match=f"{LOG}: .*; to restore it: barograph restore --replace BACKUP"):
        Store(torn / LOG)


@pytest.mark.parametrize("size", [0, 8_198, 100_000])
def test_saved_blocks_that_are_damaged_are_not_written_back(tmp_path: Path, size: int) -> None:
    saved = tmp_path / f"{LOG}.undo"
    with Store(tmp_path / LOG) as store:
        store.commit([entry("blocks", 10, blocks(10))], {"s": 1})
        store.checkpoint()
        store.database._undo.save(metadata(store), BLOCK_BYTES)
        content = saved.read_bytes()
    saved.write_bytes(content[:size])
    with Store(tmp_path / LOG) as store:
        assert firsts(store) == list(range(10))
    assert Path(f"{saved}.unreadable").stat().st_size == size


def test_blocks_that_cannot_be_saved_leave_no_file(tmp_path: Path) -> None:
    with Store(tmp_path / LOG) as store, pytest.raises(FileNotFoundError):
        store.database._undo.save((path.stat().st_size for path in [tmp_path / "nowhere"]), BLOCK_BYTES)
    assert not list(tmp_path.glob("*.undo*"))


def test_a_log_that_was_killed_may_get_a_lake(tmp_path: Path) -> None:
    with Store(tmp_path / LOG) as store:
        store.journal.append([wire.encode(wire.append("s", 1, "blocks", 10, blocks(10)))])
        shutil.copytree(tmp_path, tmp_path / "killed")
    with Store(tmp_path / "killed" / LOG, lake=Lake.at(tmp_path / "lake").data) as store:
        assert firsts(store) == list(range(10))


def test_the_journal_of_a_log_whose_database_is_gone_says_how_it_is_made_again(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    with Store(tmp_path / LOG, lake=lake.data) as store:
        name = store.database.name
    (tmp_path / LOG).unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match=f"barograph restore --replace --log {name} --journal {tmp_path / LOG}"):
            Store(tmp_path / LOG, lake=lake.data)


def test_a_backup_after_a_checkpoint_was_cut_off_is_whole(torn: Path, tmp_path: Path) -> None:
    make(torn, tmp_path / "backup")
    with Store(tmp_path / "backup" / LOG) as store:
        assert firsts(store) == list(range(50)), "the journal of this log has nothing, and a backup no write-ahead log"


def test_what_a_checkpoint_that_has_ended_overwrote_is_not_written_back(tmp_path: Path) -> None:
    with Store(tmp_path / LOG) as store:
        for number in range(5):
            store.commit([entry("blocks", 10, blocks(10, 10 * number))], {"s": number})
            store.checkpoint()
            if number == 3:
                store.database._undo.save(metadata(store), BLOCK_BYTES)
                shutil.copy(tmp_path / f"{LOG}.undo", tmp_path / "undo")
    shutil.copy(tmp_path / "undo", tmp_path / f"{LOG}.undo")
    with Store(tmp_path / LOG) as store:
        assert firsts(store) == list(range(50))


def damage(state: Path, lake: Lake | None = None) -> None:
    with Store(state / LOG, lake=lake and lake.data) as store:
        numbers = metadata(store)
    with (state / LOG).open("r+b") as file:
        for number in numbers:
            file.seek(BLOCKS_AT + number * BLOCK_BYTES + 5000)
            file.write(os.urandom(64))


def test_a_damaged_log_is_made_again_of_the_lake_and_the_journal_and_loses_nothing(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    options = ("--lake", str(tmp_path / "lake"))
    with Daemon(tmp_path, *options) as collector, Producer(collector.endpoint, "lab/1.0.0/n1") as producer:
        producer.hello()
        for seq in range(1, 4):
            producer.append(seq, "blocks", 10, blocks(10, 10 * seq))
            producer.receive_ack(seq)
        assert collector.end(signal.SIGTERM) == Exit.OK
    with Store(tmp_path / LOG, lake=lake.data) as store:
        name = store.database.name
        seal_all(store, lake)
    with Daemon(tmp_path, *options) as collector, Producer(collector.endpoint, "lab/1.0.0/n1") as producer:
        assert producer.hello().acked == 3
        producer.append(4, "blocks", 10, blocks(10, 40))
        producer.receive_ack(4)
        assert collector.end(signal.SIGTERM) == Exit.OK
    damage(tmp_path, lake)
    with Daemon(tmp_path, *options) as collector, Producer(collector.endpoint, "lab/1.0.0/n1") as producer:
        assert producer.hello().acked == 4
        producer.append(5, "blocks", 10, blocks(10, 50))
        producer.receive_ack(5)
        assert collector.end(signal.SIGTERM) == Exit.OK
    with Store(tmp_path / LOG, lake=lake.data) as store:
        assert (store.database.name, firsts(store)) == (name, list(range(10, 60)))
        seal_all(store, lake)
    (aside,) = tmp_path.glob("replaced-*")
    assert (aside / LOG).exists()


def test_rows_that_cannot_be_read_are_named_with_the_command_that_restores_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.at(tmp_path / "lake")
    with Store(tmp_path / LOG, lake=lake.data) as store:
        for number in range(4):
            store.journal.append([wire.encode(wire.append("s", number + 1, "blocks", 10, blocks(10, 10 * number)))])
            store.reopen(number + 1)
            seal_all(store, lake) if number == 2 else store.checkpoint()
        name = store.database.name
        store.note_error(duckdb.IOException("IO Error: Corrupt database file: computed checksum 1 in block"))
    command = f"--replace --log {name} --journal {tmp_path / LOG}.journal --state {tmp_path}"
    assert caplog.messages[-1].endswith(f"in block; to restore it: barograph restore {command}")
    monkeypatch.chdir(tmp_path)
    restore_from_lake(name, lake, tmp_path, journal=Path(f"{LOG}.journal"), replace=True)
    with Store(tmp_path / LOG, lake=lake.data) as store:
        assert firsts(store) == list(range(40))


def test_the_file_stays_locked_after_its_blocks_were_saved(tmp_path: Path) -> None:
    """To close a descriptor of the file would end DuckDB's lock."""
    connect = [sys.executable, "-c", f"import duckdb; duckdb.connect({str(tmp_path / LOG)!r})"]
    with Store(tmp_path / LOG) as store:
        store.checkpoint()
        assert b"Could not set lock" in subprocess.run(connect, capture_output=True, check=False).stderr
    assert subprocess.run(connect, check=False).returncode == 0


def test_a_damaged_log_without_a_lake_is_refused_with_the_command_that_repairs_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with Store(state / LOG) as store:
        store.commit([entry("blocks", 10, blocks(10))], {"s": 1})
        store.checkpoint()
        make(state, tmp_path / "backup")
    damage(state)
    command = [sys.executable, *Daemon.program, "--state", str(state)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == Exit.STATE
    assert f"cannot open the log {state / LOG}: Corrupt database file" in refused.stderr
    assert f"to restore it: barograph restore --replace BACKUP --state {state}\n" in refused.stderr
    assert restore(tmp_path / "backup", state, replace=True).aside is not None
    with Store(state / LOG) as store:
        assert firsts(store) == list(range(10))
