"""The reader of rings: fields, records, and invalid files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from barograph_agent.ring.reader import Ring, RingError
from helpers.rings import STARTED_NS, STARTED_UNIX_NS, FakeShim


@pytest.fixture
def shim(tmp_path: Path) -> FakeShim:
    shim = FakeShim(tmp_path / "rank-0.1.ring")
    shim.site(0x10)
    return shim


def refusal(path: Path, act: Callable[[Ring], object] = lambda ring: None) -> str:
    with pytest.raises(RingError) as raised, Ring(path) as ring:
        act(ring)
    words = str(raised.value)
    assert words.startswith(f"ring {path}: ")
    return words.removeprefix(f"ring {path}: ")


def test_the_fields_of_the_header_are_read(shim: FakeShim) -> None:
    shim.set(rank=3, size=128, pid=4711, dropped=17, state=2, tail=5, head=9, program=b"/usr/bin/x\0behind")
    with Ring(shim.path) as ring:
        assert (ring.rank, ring.size, ring.pid, ring.dropped, ring.finalized) == (3, 128, 4711, 17, True)
        assert (ring.tail, ring.head, ring.capacity) == (5, 9, 64)
        assert (ring.started_ns, ring.started_unix_ns) == (STARTED_NS, STARTED_UNIX_NS)
        assert ring.program == "/usr/bin/x"
        shim.set(state=1)
        assert not ring.finalized


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"magic": b""}, "magic is b'', expected b'BAROGRPH'"),
        ({"magic": b"BAROGRAF"}, "magic is b'BAROGRAF', expected b'BAROGRPH'"),
        ({"version": 1}, "version is 1, expected 6"),
        ({"header_bytes": 8192}, "header_bytes is 8192, expected 4096"),
        ({"record_bytes": 32}, "record_bytes is 32, expected 64"),
        ({"capacity": 0}, "capacity is 0, expected a power of two"),
        ({"capacity": 48}, "capacity is 48, expected a power of two"),
        ({"call_capacity": 2**30}, f"call_capacity is {2**30}, expected at most {2**20}"),
        ({"clock": 0}, "clock is 0, expected one of [1, 2]"),
        ({"clock": 3}, "clock is 3, expected one of [1, 2]"),
        ({"capacity": 128}, "9536 bytes, expected 13632 for 128 records"),
        ({"site_capacity": 9}, "9536 bytes, expected 9576 for 64 records"),
        (
            {"module_capacity": 2**32 - 1},
            f"9536 bytes, expected {4096 + 256 * (2**32 - 1) + 320 + 4096} for 64 records",
        ),
    ],
)
def test_an_invalid_header_is_rejected(shim: FakeShim, fields: dict[str, int], words: str) -> None:
    assert shim.size == 9536
    shim.set(**fields)
    assert refusal(shim.path) == words


def test_a_short_file_or_a_directory_is_rejected(shim: FakeShim, tmp_path: Path) -> None:
    wanted = "expected a readable and writable file"
    assert refusal(tmp_path / "none") == f"No such file or directory, {wanted}"
    assert refusal(tmp_path) == f"Is a directory, {wanted}"
    (tmp_path / "link").symlink_to(shim.path)
    assert refusal(tmp_path / "link") == f"Too many levels of symbolic links, {wanted}"
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == "0 bytes, expected at least a header of 4096"
    for size, words in {
        0: "0 bytes, expected at least a header of 4096",
        4095: "4095 bytes, expected at least a header of 4096",
        4096: "4096 bytes, expected 9536 for 64 records",
        9535: "9535 bytes, expected 9536 for 64 records",
    }.items():
        cut = tmp_path / "cut"
        cut.write_bytes(shim.path.read_bytes()[:size])
        assert refusal(cut) == words


@pytest.mark.parametrize(
    ("tail", "head", "words"),
    [
        (0, 65, "head is 65, expected 0 to 64"),
        (10, 75, "head is 75, expected 10 to 74"),
        (10, 9, "head is 9, expected 10 to 74"),
    ],
)
def test_inconsistent_head_and_tail_are_an_error(shim: FakeShim, tail: int, head: int, words: str) -> None:
    shim.set(tail=tail, head=head)
    assert refusal(shim.path, lambda ring: ring.head) == words


def test_the_tail_is_stored_where_the_shim_reads_it(shim: FakeShim) -> None:
    with Ring(shim.path) as ring:
        ring.release(2**40 + 7)
        assert shim.get("tail") == ring.tail == 2**40 + 7


def test_truncation_of_an_open_ring_is_an_error_without_a_signal(shim: FakeShim) -> None:
    def cut_and_read(ring: Ring) -> None:
        os.truncate(shim.path, shim.size - 64)
        assert len(ring.records(0, 63)) == 63
        ring.records(60, 64)

    assert refusal(shim.path, cut_and_read) == "192 bytes at 9280, expected 256"


def test_a_site_is_named_by_its_module_and_offset(shim: FakeShim) -> None:
    library = shim.module("/usr/lib/libm\N{LATIN SMALL LETTER O WITH DIAERESIS}d.so.6".encode() + b"\0/garbage")
    latin = shim.module(b"/x/caf\xe9")
    shim.site(2**40, module=library)
    shim.site(0xFF, 0x20, 0x3, module=latin)
    with Ring(shim.path) as ring:
        names = [ring.site(index) for index in range(4)]
    assert names == [
        "start",
        "lmp+0x10",
        "libm\u00f6d.so.6+0x10000000000",
        "caf\ufffd+0xff < caf\ufffd+0x20 < caf\ufffd+0x3",
    ]


def test_sites_and_modules_beyond_their_tables_are_errors(shim: FakeShim) -> None:
    shim.site(0x20, module=1)
    assert refusal(shim.path, lambda ring: ring.site(3)) == "site is 3, expected less than 3"
    assert refusal(shim.path, lambda ring: ring.site(2)) == "module is 1, expected less than 1"
    for frames in (0, 4, 2**32 - 1):
        shim.sites["frames"] = frames
        assert refusal(shim.path, lambda ring: ring.site(1)) == f"site 1 has {frames} frames, expected 1 to 3"
    shim.sites["frames"] = 3
    shim.set(sites=1000, modules=1000)
    shim.sites["module"] = 4
    assert refusal(shim.path, lambda ring: ring.site(8)) == "site is 8, expected less than 8"
    assert refusal(shim.path, lambda ring: ring.site(7)) == "module is 4, expected less than 4"
