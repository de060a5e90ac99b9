"""Function names of addresses in real and in damaged objects."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_agent.reduce import symbols
from barograph_agent.reduce.intervals import Cursor, IntervalReader, class_id
from barograph_agent.reduce.symbols import SymbolTable, SymbolTables, demangle, read_table, symbol
from barograph_agent.ring.reader import Ring
from helpers import mpi as mpis
from helpers.log import wait_until
from helpers.rings import FakeShim

SOURCE = """
#include <stdio.h>
__attribute__((noinline)) int inner(int x) { return printf("%d", x) + 1; }
int outer(int x) { return inner(x) + 2; }
int main(void) { return outer(1); }
"""


def compile_source(folder: Path, *flags: str) -> Path:
    source, output = folder / "program.c", folder / "program"
    source.write_text(SOURCE)
    return mpis.find("mpich").compile(source, output, *flags)


def addresses(program: Path) -> dict[str, tuple[int, int]]:
    """Addresses and sizes of functions, from nm."""
    done = subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {row[3]: (int(row[0], 16), int(row[1], 16)) for row in rows if len(row) == 4 and row[2] == "T"}


@pytest.mark.parametrize(
    ("flags", "base"), [(["-pie", "-fPIE"], 0), (["-no-pie"], 0x400000), (["-shared", "-fPIC"], 0)]
)
def test_function_addresses_agree_with_nm(tmp_path: Path, flags: list[str], base: int) -> None:
    program = compile_source(tmp_path, *flags)
    for name, (start, size) in addresses(program).items():
        assert symbol(str(program), start - base + 1) == f"{name}+0x1"
        # A call at the end of a function returns to the byte after it.
        assert symbol(str(program), start - base + size) == f"{name}+{size:#x}"
    assert symbol(str(program), 2**40) == ""


def test_stripped_programs_scripts_and_truncated_paths_have_no_names(tmp_path: Path) -> None:
    program = compile_source(tmp_path, "-s")
    script, empty = tmp_path / "script", tmp_path / "empty"
    script.write_text("#!/bin/sh\n")
    empty.touch()
    for path in (program, script, empty, tmp_path, tmp_path / "gone", "program", "..cut/off/program", ""):
        assert symbol(str(path), 0x1140) == ""


def test_a_mangled_name_is_demangled() -> None:
    assert demangle(b"MPI_Init") == "MPI_Init"
    if symbols._cxx() is None:
        pytest.skip("no libstdc++ here")
    assert demangle(b"_ZN9LAMMPS_NS6Verlet3runEi") == "LAMMPS_NS::Verlet::run(int)"
    assert demangle(b"_Zzz") == "_Zzz"
    assert demangle(b"__pyx_pw_6mpi4py_3MPI_4Comm_143Allreduce") == "mpi4py.MPI.Comm.Allreduce"


def test_sites_have_function_names_and_class_ids_derive_from_offsets(tmp_path: Path) -> None:
    program = compile_source(tmp_path)
    (outer, _), (main, _) = (addresses(program)[name] for name in ("outer", "main"))
    shim = FakeShim(tmp_path / "0.ring")
    module = shim.module(str(program).encode())
    known, unknown = shim.site(outer + 9, main + 4, module=module), shim.site(2**40, module=module)
    shim.put(1, known)
    shim.put(2, unknown)
    with Ring(shim.path) as ring:
        _, sites = IntervalReader(ring, Cursor(world=0)).read()
    path = f"program+{outer + 9:#x} < program+{main + 4:#x}"
    assert sites["class_id"] == [class_id("start", path), class_id(path, "program+0x10000000000")]
    assert sites["to_site"] == ["outer+0x9 < main+0x4", "program+0x10000000000"]
    assert sites["from_site"] == ["start", "outer+0x9 < main+0x4"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compile_source(tmp_path_factory.mktemp("object")).read_bytes()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**14), st.binary(min_size=1, max_size=8)), min_size=1, max_size=20), st.data()
)
def test_a_damaged_object_never_raises(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    broken = bytearray(whole)
    for place, patch in damage:
        at = place if data.draw(st.booleans()) else place % 64
        broken[at : at + len(patch)] = patch
    path = tmp_path_factory.mktemp("broken") / "object"
    path.write_bytes(broken[: data.draw(st.integers(1, len(broken)))])
    table = read_table(str(path))
    for offset in (0, 1, 0x1140, 0x1180, 2**63):
        assert table is None or isinstance(table.find(offset)[0], str)


def test_a_file_system_that_does_not_answer_is_waited_for_once_and_read_later() -> None:
    answers = threading.Event()
    asked = []

    def read(module: str) -> SymbolTable | None:
        asked.append(module)
        answers.wait()
        return table

    table = SymbolTable(*(np.zeros(1, kind) for kind in (np.uint64, np.uint64, np.uint32)), b"f\0")
    tables = SymbolTables(read, seconds=0.01)
    assert [tables.find(module) for module in ("/a", "/b", "/a")] == [None, None, None]
    wait_until(lambda: asked == ["/a"], "the first is read")
    answers.set()
    wait_until(lambda: tables.find("/b") is table and tables.find("/a") is table, "both are read")
    assert asked == ["/a", "/b"]


def test_a_module_that_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert symbol(str(tmp_path / "pipe"), 1) == symbol(str(tmp_path / "zero"), 1) == ""
