"""What was asked for, as rows of `works`: on a tree of /proc that a test writes, and of real processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES, TEXT_LIMIT
from barograph_agent.reduce.elf import build_id
from barograph_agent.system import processes
from barograph_agent.system.clock import Clock
from barograph_agent.system.disk import Disk, NotRegular
from barograph_agent.system.processes import PROCESSES, Processes
from barograph_agent.system.system import SYSTEM, System
from barograph_agent.work import contents, folder
from barograph_agent.work.command import ScriptKind, keyed, parse, script_of
from barograph_agent.work.contents import TOTAL_BYTES, WHOLE_BYTES, Contents
from barograph_agent.work.fingerprint import (
    MAX_WORDS,
    SECONDS,
    FingerprintTask,
    TargetProcess,
    WorkEvidence,
    WorkRules,
    fingerprint,
)
from barograph_agent.work.folder import FILE_BYTES
from barograph_agent.work.salt import Salt
from helpers.clocks import SetClock

PID = 100
FOREVER = float("inf")
OLD = 1_000_000_000
SECRET_WORDS = [b"--password=hunter2", b"run-4711", b"/home/ada/thesis.in", b"steps=4000", b"--fast"]


class CountingDisk(Disk):
    """Counts what is read, and says which files were opened."""

    def __init__(self) -> None:
        self.bytes = 0
        self.opened: list[Path] = []
        self.after_read = lambda: None
        self.pread = self._count  # type: ignore[method-assign]

    def _count(self, descriptor: int, size: int, at: int) -> bytes:
        data = os.pread(descriptor, size, at)
        self.bytes += len(data)
        self.after_read()
        return data

    def open_regular(self, path: Path) -> int:
        self.opened.append(path)
        return super().open_regular(path)


class Tree:
    """A /proc with the process of a rank 0, whose files are real."""

    def __init__(self, root: Path) -> None:
        self.root, self.work = root, root / "work"
        self.work.mkdir()
        self.processes = Processes()
        self.processes.root = str(root)
        self.disk = CountingDisk()
        self.system = SYSTEM._replace(processes=self.processes, disk=self.disk)
        self.program = self.file("bin/solver", b"\x7fELF but no more")
        self.plain, self.numbers, self.salt = False, False, None
        self.cluster = "lab"
        self.belongs, self.command = True, b""

    def file(self, name: str, data: bytes = b"", at: float = OLD) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (at, at))
        return path

    def process(self, *words: bytes, pid: int = PID, stdin: Path | str = "/dev/null", parent: int = 1,
                name: str = "solver", environment: bytes = b"") -> None:  # fmt: skip
        """Write what the kernel shows of a process."""
        folder = self.root / f"proc/{pid}"
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        fields = ["0"] * 50
        fields[0], fields[1] = "S", str(parent)
        fields[19] = str(round(SYSTEM.clock.since_boot() * os.sysconf("SC_CLK_TCK")))
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
        (folder / "cmdline").write_bytes(b"".join(word + b"\0" for word in (b"solver", *words)))
        (folder / "environ").write_bytes(environment)
        for link, target in (("exe", self.program), ("cwd", self.work), ("root", "/"), ("fd/0", stdin)):
            (folder / link).unlink(missing_ok=True)
            (folder / link).symlink_to(target)

    def evidence(self, deadline: float = FOREVER) -> WorkEvidence:
        target = TargetProcess(PID, str(self.program), lambda pid: self.belongs, self.command)
        rules = WorkRules(self.cluster, self.salt, self.plain, self.numbers)
        evidence = WorkEvidence()
        fingerprint(evidence, deadline, target, rules, self.system)
        return evidence

    def row(self, *words: bytes, **options: Any) -> dict[str, Any]:
        """The row of `works` of a process, as the collector accepts it, with its JSON decoded."""
        self.process(*words, **options)
        return accepted(self.evidence().columns())


def accepted(columns: dict[str, Any]) -> dict[str, Any]:
    """The row as the collector has it, with its JSON decoded."""
    own = {"job": "lab/1.0.0", "ranks": 4, "nodes": 1, "ranks_per_node": 4}
    message = wire.append("s/1", 1, "works", 1, own | columns)
    whole = wire.unpack(msgspec.msgpack.decode(wire.encode(message), type=wire.Append).columns,
                        TABLES["works"].columns, 1)  # fmt: skip
    row = {name: values[0] for name, values in whole.items()}
    return row | {name: json.loads(row[name] or "{}") for name in ("words", "inputs", "folder", "platform")}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def digests(row: dict[str, Any]) -> dict[int, str]:
    return {one["word"]: one["digest"] for one in row["inputs"]}


def test_words_are_digests_by_which_runs_can_be_compared(tree: Tree) -> None:
    one = tree.row(b"1500", b"--steps=4000", b"-s=7", b"out=a", b"--fast")
    other = tree.row(b"1500", b"--steps=8000", b"-s=7", b"out=b", b"--fast")
    same = [a == b for a, b in zip(one["words"], other["words"], strict=True)]
    assert same == [True, False, True, False, True]
    keys = [word.partition("=")[0] for word in one["words"]]
    assert keys == [word.partition("=")[0] for word in other["words"]]
    assert ["=" in word for word in one["words"]] == [False, True, True, True, False]
    assert all(len(part) == 12 for word in one["words"] for part in word.split("="))
    # A value is known wherever it is given.
    assert tree.row(b"4000")["words"] == [one["words"][1].partition("=")[2]]
    assert one["reason"] == ""
    assert one["plain"] == ""
    assert [len(one[name]) for name in ("executable", "program")] == [16, 16]


def test_no_plain_word_leaves_the_node_or_is_written_down(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.file("work/run-4711", b"mesh fine")
    tree.process(*SECRET_WORDS, b"run-4711/x", b"\xff\xfe", environment=b"TOKEN=s3cr3t\0OMP_NUM_THREADS=4\0")
    written = json.dumps(accepted(tree.evidence().columns()), default=str)
    parts = [part for word in SECRET_WORDS for part in word.decode().replace("/", "=").split("=") if len(part) > 3]
    assert [part for part in [*parts, "s3cr3t", "mesh", "solver"] if part in written] == []
    assert capsys.readouterr() == ("", "")


def test_plain_words_only_where_the_site_says_so(tree: Tree) -> None:
    tree.plain = True
    row = tree.row(b"1500", b"--steps=4000", b"\xff\n")
    assert json.loads(row["plain"]) == ["1500", "--steps=4000", "\\xff\n"]
    row = tree.row(*[b"w" * 100] * 900)
    assert row["plain"] == ""
    assert row["reason"] == f"plain words: {900 * 103 + 1} characters, expected at most {TEXT_LIMIT}"


def test_digests_depend_on_the_secret_or_else_on_the_cluster(tree: Tree, tmp_path: Path) -> None:
    tree.file("work/in", b"x")
    rows = []
    for cluster, secret in [("lab", b""), ("other", b""), ("lab", b"s1"), ("other", b"s1\n"), ("lab", b"s2")]:
        tree.cluster, tree.salt = cluster, tree.file("salt", secret) if secret else None
        rows.append(tree.row(b"in", b"--a=b"))
    assert rows[2] == rows[3]  # one secret, on all clusters that have it
    names = ("executable", "program", "words", "inputs")
    assert all(len({json.dumps(row[name]) for row in rows}) == 4 for name in names)


@pytest.mark.parametrize("bad", ["missing", "empty"])
def test_without_its_secret_nothing_is_digested(tree: Tree, bad: str) -> None:
    tree.salt = tree.root / "salt"
    if bad == "empty":
        tree.file("salt", b"\n")
    row = tree.row(b"in")
    assert (row["program"], row["words"], row["inputs"]) == ("", [], [])
    assert row["reason"].startswith("salt: ")


def test_inputs_are_known_by_their_content(tree: Tree) -> None:
    tree.file("work/mesh", b"fine")
    tree.file("elsewhere/mesh2", b"fine")
    tree.file("work/params", b"dt 1")
    words = b"mesh", b"1500", b"--in=params", str(tree.root / "elsewhere/mesh2").encode(), b"absent", b"-mesh", b""
    row = tree.row(*words, stdin=tree.file("stdin", b"dt 1"))
    assert [one["word"] for one in row["inputs"]] == [-1, 0, 2, 3]
    assert [one["bytes"] for one in row["inputs"]] == [4, 4, 4, 4]
    found = digests(row)
    assert found[0] == found[3] != found[-1] == found[2]
    tree.file("work/params", b"dt 2")
    changed = digests(tree.row(*words, stdin=tree.root / "stdin"))
    assert {index for index in found if found[index] != changed[index]} == {2}
    assert row["reason"] == ""


def test_without_an_input_the_small_files_of_the_working_folder_are_known(tree: Tree) -> None:
    for name in ("INCAR", "system/controlDict", ".hidden", "system/deep/er"):
        tree.file(f"work/{name}", b"1")
    tree.file("work/WAVECAR", bytes(FILE_BYTES + 1))
    tree.file("work/log", b"1", at=time.time() + 100)
    row = tree.row(b"-parallel")
    assert (len(row["folder"]), row["inputs"], row["reason"]) == (2, [], "")
    tree.file("work/INCAR", b"2")
    changed = tree.row(b"-parallel")["folder"]
    assert sum(changed[name] == row["folder"][name] for name in changed) == 1
    assert not set(changed) & {"INCAR", "system/controlDict"}
    named = tree.row(b"INCAR")
    assert (len(named["inputs"]), named["folder"]) == (1, {})


def test_what_a_process_of_the_user_prints_to_is_no_input(tree: Tree) -> None:
    for name in ("INCAR", "slurm-7.out", "slurm-7.err", "slurm-6.out"):
        tree.file(f"work/{name}", b"1")
    tree.process(b"", pid=7)
    for number, name in ((1, "slurm-7.out"), (2, "slurm-7.err")):
        (tree.root / f"proc/7/fd/{number}").symlink_to(tree.work / name)
    assert len(tree.row(b"-parallel")["folder"]) == 2
    assert len(tree.row(b"slurm-7.out")["folder"]) == 2


def test_what_a_process_writes_and_does_not_read_is_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon's log, as by `daemon | tee log`. Fortran opens its inputs for both."""
    for limit in ("MAX_DESCRIPTORS", "MAX_ALL_DESCRIPTORS"):
        monkeypatch.setattr(processes, limit, 10**6)
    modes = {"log": "a", "new": "w", "input": "r", "fortran": "r+"}
    for name in modes:
        (tmp_path / name).write_bytes(b"1")
    with contextlib.ExitStack() as stack:
        for name, mode in modes.items():
            stack.enter_context((tmp_path / name).open(mode))
        found = PROCESSES.outputs(os.getuid())
    status = {name: (tmp_path / name).stat() for name in modes}
    assert {name for name, one in status.items() if (one.st_dev, one.st_ino) in found} == {"log", "new"}


@pytest.mark.parametrize("limit", ["MAX_DESCRIPTORS", "MAX_ALL_DESCRIPTORS"])
def test_of_many_descriptors_some_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(processes, limit, 3)
    with (tmp_path / "log").open("w") as log:
        status = os.fstat(log.fileno())
        assert (status.st_dev, status.st_ino) not in PROCESSES.outputs(os.getuid())


def test_programs_and_what_they_are_built_from_are_no_inputs(tree: Tree) -> None:
    for name in ("INCAR", "sub/solver.in", "mesh.dat"):
        tree.file(f"work/{name}", b"1")
    before = tree.row(b"-parallel")["folder"]
    assert len(before) == 3
    built = (
        "solver.c",
        "solver.F90",
        "sub/grid.o",
        "sub/grid.mod",
        "Makefile",
        "makefile.inc",
        "CMakeLists.txt",
        "a.so",
    )
    for name in built:
        tree.file(f"work/{name}", b"2")
    tree.file("work/solver", b"\x7fELF and more")
    assert tree.row(b"-parallel")["folder"] == before
    for name in ("c", "f90.dat", "Makefiles", "mod"):
        tree.file(f"work/{name}", b"3")
    assert len(tree.row(b"-parallel")["folder"]) == 7


def test_of_a_big_folder_little_is_known_and_it_is_said(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MAX_FILES", 3)
    for number in range(5):
        tree.file(f"work/{number}", b"1")
    row = tree.row(b"-parallel")
    assert (len(row["folder"]), row["reason"]) == (3, "working folder: more than 3 files or 2 MB")
    monkeypatch.setattr(folder, "MAX_NAMES", 4)
    row = tree.row(b"-parallel")
    assert (row["folder"], row["reason"]) == ({}, "working folder: more than 4 names in one")


def test_nothing_but_regular_files_is_opened(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tree.work / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(tree.work)
    listener.bind("socket")
    (tree.work / "folder").mkdir()
    (tree.work / "loop").symlink_to("loop")
    flags: dict[str, int] = {}
    real = os.open

    def spy(path: Any, given: int, *more: Any, **named: Any) -> int:
        flags[Path(path).name] = given
        return real(path, given, *more, **named)

    monkeypatch.setattr(os, "open", spy)
    row = tree.row(b"fifo", b"socket", b"folder", b"/dev/null", b"/dev/tty", b"loop", b"x" * 5000, b"y" * 300, b"a\nb")
    listener.close()
    assert row["inputs"] == []
    assert row["reason"] == "input 0: no regular file; input 1: no regular file"
    assert [name for name in ("fifo", "socket", "folder", "null", "tty") if not flags[name] & os.O_PATH] == []


def test_an_unreadable_file_is_a_reason(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.file("work/secret", b"x")

    def refuse(path: Path) -> int:
        if path.name == "secret":
            raise PermissionError(13, "Permission denied", str(path))
        return Disk.open_regular(tree.disk, path)

    monkeypatch.setattr(tree.disk, "open_regular", refuse)
    row = tree.row(b"a", b"secret")
    assert row["inputs"] == []
    assert row["reason"] == "input 1: unreadable: Permission denied"


def test_a_file_system_that_fails_is_a_reason(tree: Tree) -> None:
    tree.file("work/in", b"x")

    def fail() -> None:
        raise OSError(5, "Input/output error", "work/in")

    tree.disk.after_read = fail
    assert tree.row(b"in")["reason"] == (
        "executable: unreadable: Input/output error; input 0: unreadable: Input/output error"
    )


def test_what_the_program_writes_is_no_input(tree: Tree) -> None:
    path = tree.file("work/log", b"x")
    tree.process(b"log")
    os.utime(path, (SYSTEM.clock.now() + 60,) * 2)
    row = accepted(tree.evidence().columns())
    assert (row["inputs"], row["reason"]) == ([], "input 0: written since the program started")
    # Just before the start, as by a batch script.
    os.utime(path, (SYSTEM.clock.now() - 1,) * 2)
    assert digests(accepted(tree.evidence().columns())).keys() == {0}


def test_a_file_that_changes_while_it_is_read_has_no_digest(tree: Tree) -> None:
    path = tree.file("work/in", b"x" * 1000)
    tree.disk.after_read = lambda: path.exists() and os.truncate(path, path.stat().st_size - 1)
    row = tree.row(b"in")
    assert (row["inputs"], row["reason"]) == ([], "input 0: changed while it was read")


def test_a_file_of_10_gigabytes_is_sampled(tree: Tree) -> None:
    size = 10 * 10**9
    path = tree.file("work/big")
    os.truncate(path, size)
    os.utime(path, (OLD, OLD))
    before = digests(tree.row(b"big"))
    # All of it, and the file that stands for the executable.
    assert tree.disk.bytes <= WHOLE_BYTES + 4096
    found = {}
    for at in (0, size - 1):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"x")
        found[at] = digests(tree.row(b"big"))[0]
    assert len({*found.values(), before[0]}) == 3
    os.truncate(path, size - 1)
    assert digests(tree.row(b"big"))[0] not in found.values()


def test_files_beyond_the_limit_of_a_job_are_known_by_size(tree: Tree) -> None:
    words = []
    for number in range(4):
        words.append(f"in{number}".encode())
        os.truncate(tree.file(f"work/in{number}"), WHOLE_BYTES - 100)
        os.utime(tree.work / f"in{number}", (OLD, OLD))
    rows = []
    for _ in range(2):
        tree.disk.bytes = 0
        rows.append(tree.row(*words))
        tree.program = tree.file("bin/solver", b"\x7fELF but no more")
    assert rows[0] == rows[1]
    assert [bool(one["digest"]) for one in rows[0]["inputs"]] == [True, True, False, False]
    assert [one["bytes"] for one in rows[0]["inputs"]] == [WHOLE_BYTES - 100] * 4
    assert rows[0]["reason"] == (
        f"input 2: not read: more than {TOTAL_BYTES // 2**20} MB in all files; "
        f"input 3: not read: more than {TOTAL_BYTES // 2**20} MB in all files"
    )


def test_a_command_line_of_a_megabyte_is_cut(tree: Tree) -> None:
    words = [b"some-word-%d" % number for number in range(100_000)]
    assert sum(map(len, words)) > 10**6
    row = tree.row(*words)
    assert len(row["words"]) == MAX_WORDS
    assert row["reason"] == f"command line cut at {MAX_WORDS} of 100000 words: the last digest is of the rest"
    assert tree.row(*words)["words"] == row["words"]
    other = tree.row(*words[:-1], b"other")["words"]
    assert [a == b for a, b in zip(other, row["words"], strict=True)] == [True] * (MAX_WORDS - 1) + [False]
    assert len(tree.row(b"w" * 2**20)["words"]) == 1


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_binary_junk_in_words_is_digested(tmp_path_factory: pytest.TempPathFactory, words: list[bytes]) -> None:
    tree = Tree(tmp_path_factory.mktemp("junk"))
    cleaned = [word.replace(b"\0", b"") for word in words]
    assert len(tree.row(*cleaned)["words"]) == len(cleaned)


def test_a_process_that_has_ended_or_is_not_of_this_job_is_a_reason(tree: Tree) -> None:
    said = "process: it has ended, or is not visible from here"
    row = accepted(tree.evidence().columns())
    assert (row["reason"], row["words"], row["executable"]) == (said, [], "")
    assert len(row["program"]) == 16  # its ring knows that
    tree.belongs = False
    row = tree.row(b"word")
    assert (row["reason"], row["words"]) == (said, [])


@pytest.mark.parametrize(
    ("environment", "threads"),
    [(b"", -1), (b"OMP_NUM_THREADS=4,2\0", 4), (b"MKL_NUM_THREADS=3\0OMP_NUM_THREADS=x\0", 3),
     (b"OPENBLAS_NUM_THREADS=2", 2), (b"OMP_NUM_THREADS=0\0", -1), (b"OMP_NUM_THREADS=" + b"9" * 5000, -1)],
)  # fmt: skip
def test_threads_are_those_of_the_environment(tree: Tree, environment: bytes, threads: int) -> None:
    assert tree.row(environment=environment)["threads"] == threads


# Command lines


@pytest.mark.parametrize(
    ("program", "line", "kind", "script", "words"),
    [
        ("solver", "-c a b", ScriptKind.NONE, "", "-c a b"),
        ("python3.11", "run.py -n 4", ScriptKind.FILE, "run.py", "-n 4"),
        ("pythonMPI", "run.py -n 4", ScriptKind.FILE, "run.py", "-n 4"),
        ("python3-config", "--libs", ScriptKind.NONE, "", "--libs"),
        ("python3", "-uB -W ignore -Xdev run.py 4", ScriptKind.FILE, "run.py", "4"),
        ("python3", "--check-hash-based-pycs always run.py 4", ScriptKind.FILE, "run.py", "4"),
        ("python3", "-uc code 4", ScriptKind.CODE, "code", "4"),
        ("python3", "-ccode 4", ScriptKind.CODE, "code", "4"),
        ("python3", "-m pkg.tool 4", ScriptKind.MODULE, "pkg.tool", "4"),
        ("python3", "-m mpi4py run.py 4", ScriptKind.FILE, "run.py", "4"),
        ("python3", "-m mpi4py -rc threads=0 -m tool 4", ScriptKind.MODULE, "tool", "4"),
        ("sh", "-o pipefail -- job.sh a", ScriptKind.FILE, "job.sh", "a"),
    ],
)
def test_words_are_those_after_the_script(program: str, line: str, kind: ScriptKind, script: str, words: str) -> None:
    found = parse(line.encode().split(), program)
    assert (found.kind, found.script, list(found.words)) == (kind, script.encode(), words.encode().split())


@pytest.mark.parametrize(
    ("program", "line", "script"),
    [
        ("/usr/bin/python3.11", "python3 -u work/train.py --lr 1", "work/train.py"),
        ("/usr/bin/python3.11", "python3 -m mpi4py.bench ring", "mpi4py.bench"),
        ("/usr/bin/python3.11", "python3 -c pass", ""),
    ],
)
def test_an_interpreter_is_named_by_its_script(program: str, line: str, script: str) -> None:
    assert script_of(program, line.split()) == script


@given(st.lists(st.binary(max_size=6), max_size=8), st.sampled_from(["python3", "bash", "solver"]))
def test_any_command_line_can_be_parsed(words: list[bytes], program: str) -> None:
    found = parse(words, program)
    assert list(found.words) == words[len(words) - len(found.words) :]


@given(st.binary(max_size=30))
def test_key_and_value_are_the_word(word: bytes) -> None:
    key, value = keyed(word)
    assert (key + b"=" + value if key else value) == word


def test_a_script_is_known_by_name_and_by_content(tree: Tree) -> None:
    tree.program = tree.file("bin/python3.11", b"interpreter")
    tree.file("work/run.py", b"print(1)")
    first = tree.row(b"-u", b"run.py", b"run.py", b"4")
    assert len(first["words"]) == 2
    assert first["script"] == digests(first)[0]  # named again as an input
    tree.file("work/run.py", b"print(2)")
    edited = tree.row(b"-u", b"run.py", b"run.py", b"4")
    assert first["script"] != edited["script"]
    same = ("program", "words", "executable")
    assert [first[name] for name in same] == [edited[name] for name in same]
    assert tree.row(b"other.py")["reason"] == "script: not found"
    assert len({tree.row(b"-c", code)["script"] for code in (b"a", b"b", b"a")}) == 2
    module = tree.file("work/tool/__main__.py", b"print(1)")
    found = tree.row(b"-m", b"tool", b"4")
    assert found["script"] == first["script"]
    module.unlink()
    assert tree.row(b"-m", b"tool", b"4")["script"] != found["script"]


# Executables


def test_a_build_is_known_by_its_id(tree: Tree, tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    found = []
    for text, name, flag in [("0", "a", "sha1"), ("0", "b", "sha1"), ("1", "a", "sha1"), ("0", "c", "none")]:
        source.write_text(f"int main(void) {{ return {text}; }}")
        tree.program = tmp_path / name
        subprocess.run(["cc", "-o", str(tree.program), str(source), f"-Wl,--build-id={flag}"], check=True)
        tree.disk.bytes = 0
        found.append((tree.row()["executable"], tree.disk.bytes))
        size = tree.program.stat().st_size
        assert (tree.disk.bytes < 2048) == (flag == "sha1"), size
    builds = [digest for digest, _ in found]
    assert builds[0] == builds[1]
    assert len({*builds}) == 3
    data = (tmp_path / "a").read_bytes()
    note = subprocess.run(["readelf", "-n", str(tmp_path / "a")], capture_output=True, text=True, check=True).stdout
    assert build_id(lambda size, at: data[at : at + size]).hex() == note.split("Build ID: ")[1].split()[0]


@given(st.data())
def test_a_damaged_executable_has_no_build_id_or_another(data: st.DataObject) -> None:
    original = bytearray(Path(sys.executable).read_bytes()[:4096])
    for _ in range(data.draw(st.integers(1, 8))):
        original[data.draw(st.integers(0, 200))] = data.draw(st.integers(0, 255))
    whole = bytes(original[: data.draw(st.integers(0, 4096))])

    def read(size: int, at: int) -> bytes:
        if at >= 2**63:
            raise OverflowError
        return whole[at : at + size]

    assert len(build_id(read)) <= 65536


# The thread


CORE = b"processor\t: 0\nmodel name\t: AMD  EPYC 7763\nmicrocode\t: 0xa0011d1\n\nprocessor\t: 1\nmodel name\t: other\n"
ARM = b"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"


def test_what_a_job_runs_on_is_told_in_words(tree: Tree) -> None:
    library = tree.file("lib/libmpi.so.40.30.4", b"a library")
    tree.file("proc/cpuinfo", CORE)
    tree.file("proc/sys/kernel/osrelease", b"6.1.0-13-amd64\n")
    tree.file("sys/class/dmi/id/bios_version", b"2.10.2\n")
    tree.file("sys/devices/system/cpu/present", b"0-63,128-191\n")
    maps = f"7f00-7f01 r-xp 0 08:01 12   {library.parent}/libmpi_mpifh.so.40\n7f02-7f03 r-xp 0 08:01 13   {library}\n"
    tree.file(f"proc/{PID}/maps", maps.encode())
    found = tree.row()["platform"]
    mpi = found.pop("mpi")
    assert found == {
        "kernel": "6.1.0-13-amd64",
        "firmware": "bios 2.10.2, microcode 0xa0011d1",
        "node": "AMD EPYC 7763, 128 cores",
    }
    name, digest = mpi.split()
    assert (name, len(digest)) == ("libmpi.so.40.30.4", 6)
    # Built anew, it has the same name.
    tree.file("lib/libmpi.so.40.30.4", b"A library", at=OLD + 1)
    assert tree.row()["platform"]["mpi"].split()[0] == name
    assert tree.row()["platform"]["mpi"] != mpi


@pytest.mark.parametrize(
    ("files", "expected"),
    [({}, {}),
     ({"cpuinfo": ARM}, {"node": "CPU implementer 0x41, part 0xd0c"}),
     ({"cpuinfo": b"\xff" * 9000 + b"\n:::\n"}, {}),
     ({"cpuinfo": b"model name: " + b"x" * 900}, {"node": "x" * 100}),
     ({f"{PID}/maps": b"1-2 r-xp 0 08:01 1   /opt/none/libmpich.so.12.2.1\n"}, {"mpi": "libmpich.so.12.2.1"}),
     ({f"{PID}/maps": b"1-2 r-xp 0 08:01 1   /opt/none/libmpi_ibm.so.3 (deleted)\n"}, {"mpi": "libmpi_ibm.so.3"}),
     ({f"{PID}/maps": b"1-2 r-xp 0 08:01 1   /opt/none/libmpicxx.so.12\n"}, {})],
    ids=["nothing", "arm", "junk", "long", "mpich", "deleted", "c++ only"],
)  # fmt: skip
def test_of_a_platform_what_is_known_is_told(tree: Tree, files: dict[str, bytes], expected: dict[str, str]) -> None:
    for name, data in files.items():
        tree.file(f"proc/{name}", data)
    assert tree.row()["platform"] == expected


def test_the_row_is_written_in_time_with_what_is_known() -> None:
    now, known, answered = 100.0, threading.Event(), threading.Event()
    system: System = SYSTEM._replace(clock=SetClock(lambda: now))

    def hangs(evidence: WorkEvidence, deadline: float) -> None:
        evidence.program = "p"
        known.set()
        answered.wait(120)
        evidence.program = "q"

    task = FingerprintTask(system, hangs)
    assert task.columns() == {}
    assert known.wait(120)
    now += SECONDS / 2
    assert task.columns() == {}
    now += SECONDS / 2
    columns = task.columns()
    answered.set()
    assert (columns["program"], columns["reason"]) == ("p", "time: not everything was read in 2 s")
    assert task.columns() == columns  # once it is written, later answers do not change it


def test_an_error_is_a_reason_without_its_text() -> None:
    def fails(evidence: WorkEvidence, deadline: float) -> None:
        evidence.program = "p"
        raise RuntimeError("hunter2")

    columns = FingerprintTask(SYSTEM, fails).columns(final=True)
    assert (columns["program"], columns["reason"]) == ("p", "failed: RuntimeError")


def test_reading_ends_at_the_deadline(tree: Tree) -> None:
    now = 100.0
    clock = Clock()
    clock.monotonic = lambda: now  # type: ignore[method-assign]
    tree.system = tree.system._replace(clock=clock)
    path = tree.file("work/big")
    os.truncate(path, WHOLE_BYTES)
    os.utime(path, (OLD, OLD))

    def tick() -> None:
        nonlocal now
        now += 0.1

    tree.disk.after_read = tick
    tree.process(b"big")
    last = tree.evidence(deadline=now + 2.0)
    assert last.reasons[-1] == "time: not everything was read in time"
    assert len(last.words) == 1
    assert tree.disk.bytes < 21 * contents.STEP_BYTES


def test_many_reasons_are_counted() -> None:
    columns = WorkEvidence(reasons=[f"input {number}: no regular file" for number in range(500)]).columns()
    assert columns["reason"].endswith("; and 480 more")
    assert len(columns["reason"]) < TEXT_LIMIT


# Real processes


def test_a_real_process_shows_what_it_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("fine")
    script = tmp_path / "run.py"
    script.write_text("import sys; print('', flush=True); sys.stdin.read()")
    command = [sys.executable, "-u", "run.py", "in", "--steps=4"]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        rules = WorkRules("lab", None)
        program = str(PROCESSES.place(process.pid, "exe").resolve())
        target = TargetProcess(process.pid, program, lambda pid: pid == process.pid)
        take = partial(fingerprint, target=target, rules=rules, system=SYSTEM)
        row = accepted(FingerprintTask(SYSTEM, take).columns(final=True))
        process.kill()
    salt = Salt(b"cluster lab")
    expected = [salt.word(b"in"), f"{salt.word(b'--steps')}={salt.word(b'4')}"]
    assert (row["words"], row["threads"], row["reason"]) == (expected, 2, "")
    content = Contents(SYSTEM, salt, FOREVER)
    assert row["script"] == content.of_bytes(script.read_bytes())
    assert row["inputs"] == [{"word": 0, "digest": content.of_bytes(b"fine"), "bytes": 4}]
    assert row["program"] == salt.program(b"run.py")
    assert len(row["executable"]) == 16


def test_a_title_hides_no_word_of_a_command_that_the_shim_has_seen(tree: Tree) -> None:
    expected = tree.row(b"fine", b"4")["words"]
    tree.command = b"solver\0fine\x004\0"
    assert tree.row(b"", b"", b"")["words"] == expected


def test_only_regular_files_are_opened_to_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(NotRegular):
        SYSTEM.disk.open_regular(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(b"x")
    file = SYSTEM.disk.open_regular(tmp_path / "file")
    assert hashlib.sha256(os.pread(file, 10, 0)).digest() == hashlib.sha256(b"x").digest()
    os.close(file)


# Numbers


def test_numbers_of_words_and_small_inputs_are_kept_where_the_site_says_so(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file("work/case.in", b"mesh 64 64 32  # run 4711b of ada\nsteps=100\n")
    words = [b"case.in", b"--steps=4000", b"-s20", b"8x4", b"hunter2", b"10.1.2.3.4", b"-n", b"16"]
    assert tree.row(*words)["numbers"] == ""
    tree.numbers = True
    found = json.loads(tree.row(*words)["numbers"])
    assert [(one["word"], one["file"], one["values"]) for one in found] == [
        (1, 0, "4000"),
        (2, 0, "20"),
        (3, 0, "8 4"),
        (7, 0, "16"),
        (0, 1, "64 64 32 100"),
    ]
    other = json.loads(tree.row(b"case.in", b"--steps=8000", *words[2:])["numbers"])
    assert [one["form"] for one in other] == [one["form"] for one in found]


@pytest.mark.parametrize("data", [b"1 " * 65, b"1\0 2", b"x" * 20_000 + b" 1 ", b"no number"])
def test_data_and_big_files_have_no_numbers(tmp_path: Path, data: bytes) -> None:
    tree = Tree(tmp_path)
    tree.numbers = True
    tree.file("work/data", data)
    assert tree.row(b"data")["numbers"] == ""
