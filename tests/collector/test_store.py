"""The log on disk: what was committed is read back in order, in pages that fit a message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

from barograph_agent import wire
from barograph_agent.tables import TABLES, TEXT_LIMIT
from barograph_collector.database import StoreError
from barograph_collector.pages import READ_BYTES
from barograph_collector.rows import Entry
from barograph_collector.store import Store
from helpers.log import blocks


def entry(table: str, rows: int, values: dict[str, object]) -> Entry:
    kinds = TABLES[table].columns
    return Entry(table, rows, wire.unpack(wire.pack(values, kinds), kinds, rows))  # type: ignore[arg-type]


def sites(count: int, text: str) -> Entry:
    return entry("sites", count, {"class_id": np.arange(count), "before": text, "at": [text] * count, "operation": "o"})


def test_every_value_of_every_kind_comes_back_as_it_was_and_offsets_are_one_sequence(tmp_path: Path) -> None:
    odd = "quote ' \" \\ newline \n nul \0 snow ☃"
    values = {"source": ["a", "b"], "kind": "k", "rows": np.array([-(2**63), 2**63 - 1]), "detail": odd, "at": np.nan}
    with Store(tmp_path / "log.duckdb") as store:
        assert store.commit([entry("events", 2, values), entry("blocks", 3, blocks(3))], {"s": 1}) == 5
        assert store.commit([entry("events", 1, {**values, "source": "c", "rows": 0})], {"s": 2, "t": 9}) == 6
        page = store.read("events", 0, 10)
        assert page.columns["offset"].tolist() == [1, 2, 6]
        assert page.columns["source"] == ["a", "b", "c"]
        assert page.columns["rows"].tolist() == [-(2**63), 2**63 - 1, 0]
        assert page.columns["detail"] == [odd] * 3
        assert np.isnan(page.columns["at"]).all()
        assert page.next_offset == 6
        stored = store.read("blocks", 0, 10).columns
        sent = wire.unpack(wire.pack(blocks(3), TABLES["blocks"].columns), TABLES["blocks"].columns, 3)
        assert {name: list(stored[name]) for name in sent} == {name: list(sent[name]) for name in sent}


def test_a_restart_knows_offsets_and_streams(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        assert store.high_water() == {}
        store.commit([entry("blocks", 4, blocks(4))], {"s": 1, "t": 5})
        store.commit([entry("blocks", 1, blocks(1, first=4))], {"s": 2})
    with Store(tmp_path / "log.duckdb") as store:
        assert store.high_water() == {"s": 2, "t": 5}
        assert store.commit([entry("blocks", 1, blocks(1, first=5))], {"s": 3}) == 6
        assert store.read("blocks", 0, 10).columns["first_index"].tolist() == [0, 1, 2, 3, 4, 5]


def test_pages_cover_a_table_once_and_the_last_rows_are_counted_from_its_end(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        assert store.read("blocks", 0, 10).next_offset == 0
        assert store.read("blocks", -5, 10).next_offset == 0
        for part in range(30):
            mine, other = blocks(300, part * 300, "test/1"), blocks(50, part * 50, "test/2")
            store.commit([entry("blocks", 300, mine), sites(1, "x"), entry("blocks", 50, other)], {"s": part + 1})
        after, seen = 0, []
        while (page := store.read("blocks", after, 777)).rows:
            assert page.rows <= 777
            assert page.columns["offset"][0] > after
            seen += page.columns["offset"].tolist()
            after = page.next_offset
        assert len(seen) == len(set(seen)) == 30 * 350
        assert seen == sorted(seen)
        assert page.next_offset == after == seen[-1]

        of_job = store.read("blocks", 0, 65536, "test/2")
        assert set(of_job.columns["job"]) == {"test/2"}
        assert of_job.columns["first_index"].tolist() == list(range(1500))
        assert store.read("blocks", -3, 10).columns["offset"].tolist() == seen[-3:]
        assert store.read("blocks", -60, 10).columns["offset"].tolist() == seen[-60:-50]
        assert store.read("blocks", -60, 100, "test/1").columns["first_index"].tolist() == list(range(8940, 9000))
        assert store.read("blocks", -(10**6), 5).columns["offset"].tolist() == seen[:5]
        nobody = store.read("blocks", -3, 10, "test/3")
        assert (nobody.rows, nobody.next_offset) == (0, seen[-1])


def test_a_page_of_long_texts_is_cut_to_what_fits_a_message_and_nothing_is_lost(tmp_path: Path) -> None:
    with Store(tmp_path / "log.duckdb") as store:
        for seq in range(1, 5):
            store.commit([sites(25, "\N{SNOWMAN}" * TEXT_LIMIT)], {"s": seq})
        after, seen = 0, []
        while (page := store.read("sites", after, 65536)).rows:
            size = sum(len(text.encode()) for name in ("before", "at") for text in page.columns[name])
            assert size <= READ_BYTES
            assert size + 2 * 3 * TEXT_LIMIT > READ_BYTES - 1000 or page.next_offset == store.head
            seen += page.columns["class_id"].tolist()
            after = page.next_offset
        assert seen == list(range(25)) * 4


def test_a_commit_that_fails_leaves_nothing_of_it(tmp_path: Path) -> None:
    good = entry("blocks", 2, blocks(2))
    words = np.array(["x"])
    bad = Entry("events", 1, {"source": "s", "kind": "k", "rows": words, "detail": "d", "at": np.zeros(1)})
    with Store(tmp_path / "log.duckdb") as store:
        store.commit([good], {"s": 1})
        with pytest.raises(duckdb.ConversionException):
            store.commit([good, bad], {"s": 2})
    with Store(tmp_path / "log.duckdb") as store:
        assert (store.head, store.high_water()) == (2, {"s": 1})


def test_a_file_that_cannot_be_the_log_is_refused_in_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import duckdb; c = duckdb.connect({str(path)!r}); print('held', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StoreError) as refusal:
        Store(path)
    assert str(refusal.value) == (
        f"cannot open the log {path}: another process has it open (PID {holder.pid});"
        " stop that one, or choose another state directory"
    )
    holder.communicate("\n")

    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError) as refusal:
        Store(garbage)
    assert str(refusal.value) == (
        f'cannot open the log {garbage}: The file "{garbage}" exists, but it is not a valid DuckDB database file!'
    )
    with pytest.raises(StoreError, match=f"^cannot open the log {tmp_path}: .*Is a directory$"):
        Store(tmp_path)

    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute('CREATE TABLE sites ("offset" BIGINT, class_id VARCHAR)')
    with pytest.raises(StoreError) as refusal:
        Store(other)
    assert str(refusal.value) == (
        f"cannot use the log {other}: it has a table 'sites' with columns offset BIGINT, class_id VARCHAR, expected"
        " offset BIGINT, class_id UBIGINT, before VARCHAR, at VARCHAR, operation VARCHAR: it was written by another"
        " program, or by a newer Barograph"
    )
