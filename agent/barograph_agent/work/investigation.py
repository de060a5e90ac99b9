"""Finds out what was asked for, from what the kernel shows of the process of rank 0."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from barograph_agent.kernel.readings import process_stat
from barograph_agent.system.processes import seconds
from barograph_agent.system.system import System
from barograph_agent.work import numbers
from barograph_agent.work.command import CommandLine, ScriptKind, keyed, parse
from barograph_agent.work.contents import Content, Contents, OutOfTime
from barograph_agent.work.evidence import Input, NumbersOfText, WorkEvidence
from barograph_agent.work.folder import FolderTooBig, small_files
from barograph_agent.work.platform import platform
from barograph_agent.work.salt import Salt

MOST_WORDS: Final = 1024
COMMAND_BYTES: Final = 2**22
"""What is read of a command line: Linux allows less."""
MOST_INPUTS: Final = 256
MOST_NAME: Final = 4096
"""Longest word that may be a path."""
STDIN: Final = -1
START_SECONDS: Final = 0.05
"""A file that was changed in this time after the start may have been written just before: clocks are coarse."""
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_LAUNCHER: Final = re.compile(r"(mpiexec|mpirun|orterun|prterun|prted|orted|hydra|srun).*")
_MOST_LAUNCHERS: Final = 4


class Subject(NamedTuple):
    """What is asked about. program: path of the executable of process `pid`, as the process itself knows it.

    belongs: whether a process is one of this job; ids in rings may be those of another container.
    """

    pid: int
    program: str
    belongs: Callable[[int], bool] = lambda pid: True


class WorkRules(NamedTuple):
    """What the site wants. salt: the file of its secret; without one `cluster` is the secret.

    memory: the file in which digests are remembered, None to remember none. numbers, plain: whether numbers in words
    and small input files, and all words, are kept as they are.
    """

    cluster: str
    salt: Path | None
    memory: Path | None
    plain: bool = False
    numbers: bool = False


def investigate(subject: Subject, rules: WorkRules, system: System, deadline: float) -> Iterator[WorkEvidence]:
    """What is known, more each time. deadline: monotonic seconds. Does not raise OSError."""
    evidence = WorkEvidence()
    try:
        secret = system.disk.read(rules.salt).strip() if rules.salt else b"cluster " + rules.cluster.encode()
    except OSError as error:
        yield evidence.but(f"salt: unreadable: {error.strerror}")
        return
    if not secret:
        yield evidence.but("salt: empty, expected a secret")
        return
    salt = Salt(secret)
    contents = Contents(system, salt, rules.memory, deadline)
    try:
        for evidence in _Investigation(subject, system, salt, contents, rules).steps():
            yield evidence
    except OutOfTime:
        yield evidence.but("time: not everything was read in time")
    contents.remember()


class _Investigation:
    def __init__(self, subject: Subject, system: System, salt: Salt, contents: Contents, rules: WorkRules) -> None:
        self._pid, self._program = subject.pid, subject.program
        self._subject = subject
        self._system = system
        self._processes = system.processes
        self._salt = salt
        self._contents = contents
        self._plain, self._numbers = rules.plain, rules.numbers

    def steps(self) -> Iterator[WorkEvidence]:
        processes, pid = self._processes, self._pid
        name = self._program.rpartition("/")[2]
        evidence = WorkEvidence(program=self._salt.program(name.encode()) if name else "")
        born = processes.born(pid)
        line = processes.show(f"/proc/{pid}/cmdline", COMMAND_BYTES)
        if born < 0 or not line or not self._subject.belongs(pid):
            yield evidence.but("process: it has ended, or is not visible from here")
            return
        arguments = line.removesuffix(b"\0").split(b"\0")[1:]
        command = parse(arguments, name)
        if command.kind in (ScriptKind.FILE, ScriptKind.MODULE):
            evidence = evidence.but(program=self._salt.program(command.script.rpartition(b"/")[2]))
        words = list(command.words[:MOST_WORDS])
        cut = ""
        if len(command.words) > MOST_WORDS:
            cut = f"command line cut at {MOST_WORDS} of {len(command.words)} words: the last digest is of the rest"
            words[-1] = b"\0".join(command.words[MOST_WORDS - 1 :])
        evidence = evidence.but(
            cut,
            words=[self._word(word) for word in words],
            threads=_threads(processes.environment(pid)),
            plain=[word.decode(errors="backslashreplace") for word in words] if self._plain else None,
            numbers=self._numbers_of(words[: MOST_WORDS - 1] if cut else words),
        )
        yield evidence
        executable = self._contents.of_executable(processes.place(pid, "exe"))
        evidence = evidence.but(_reason("executable", executable), executable=executable.digest)
        yield evidence
        evidence = evidence.but(platform=platform(pid, processes, self._contents))
        yield evidence
        evidence = self._with_script(evidence, command)
        yield evidence
        changed_before = self._started_at(born) + START_SECONDS
        # A batch script may have printed to its output before, and a daemon to its log, which may lie in the working
        # folder.
        self._contents.outputs = processes.outputs(processes.user(pid))
        for evidence in self._with_inputs(evidence, words[: MOST_WORDS - 1] if cut else words, changed_before):  # noqa: B020
            yield evidence
        if not evidence.inputs:
            yield self._with_folder(evidence, changed_before)

    def _started_at(self, born: int) -> float:
        """When the process was started, Unix seconds."""
        clock = self._system.clock
        return clock.now() - clock.since_boot() + seconds(born)

    def _word(self, word: bytes) -> str:
        key, value = keyed(word)
        return f"{self._salt.word(key)}={self._salt.word(value)}" if key else self._salt.word(value)

    def _numbers_of(self, words: list[bytes]) -> list[NumbersOfText]:
        found = ((index, numbers.of_word(word)) for index, word in enumerate(words)) if self._numbers else ()
        return [self._in_log(one, index, file=0) for index, one in found if one is not None]

    def _in_log(self, found: numbers.Numbers, word: int, file: int) -> NumbersOfText:
        return NumbersOfText(word, file, self._salt.word(found.form), " ".join(found.values))

    def _path(self, name: bytes) -> Path:
        """A file as the process sees it: it may have other mounts than this one."""
        text = name.decode(errors="surrogateescape")
        if text.startswith("/"):
            return self._processes.place(self._pid, "root") / text.lstrip("/")
        return self._processes.place(self._pid, "cwd") / text

    def _with_script(self, evidence: WorkEvidence, command: CommandLine) -> WorkEvidence:
        match command.kind:
            case ScriptKind.NONE:
                return evidence
            case ScriptKind.CODE:
                return evidence.but(script=self._contents.of_bytes(command.script))
            case ScriptKind.FILE:
                found = self._contents.of_file(self._path(command.script))
                return evidence.but(
                    _reason("script", found or Content("", -1, "not found")), script=found.digest if found else ""
                )
        module = command.script.replace(b".", b"/")
        for name in (module + b".py", module + b"/__main__.py"):
            if found := self._contents.of_file(self._path(name)):
                return evidence.but(_reason("script", found), script=found.digest)
        # An installed module: its version is not asked for.
        return evidence.but(script=self._contents.of_bytes(command.script))

    def _with_inputs(self, evidence: WorkEvidence, words: list[bytes], changed_before: float) -> Iterator[WorkEvidence]:
        places = [(index, self._path(value)) for index, word in enumerate(words) if (value := _file_name(word))]
        if stdin := self._standard_input():
            places.insert(0, (STDIN, stdin))
        for index, path in places:
            if len(evidence.inputs) == MOST_INPUTS:
                yield evidence.but(f"inputs: more than {MOST_INPUTS}")
                return
            found = self._contents.of_file(path, changed_before)
            if found is None:
                continue
            reason = _reason("standard input" if index == STDIN else f"input {index}", found)
            # A file that the program writes has a size that says nothing.
            is_written = found.size < 0 or found.trouble.startswith(("written", "changed"))
            inputs = evidence.inputs if is_written else [*evidence.inputs, Input(index, found.digest, found.size)]
            evidence = evidence.but(reason, inputs=inputs)
            if self._numbers and not is_written and (text := numbers.of_text(self._contents.small_text(path))):
                evidence = evidence.but(numbers=[*evidence.numbers, self._in_log(text, index, file=1)])
            yield evidence

    def _with_folder(self, evidence: WorkEvidence, changed_before: float) -> WorkEvidence:
        """Where no input is named, it may be any file that lies there, as of codes that read INCAR or HPL.dat."""
        place = self._processes.place(self._pid, "cwd")
        folder: dict[str, str] = {}
        reason = ""
        try:
            for name, digest in small_files(place, self._system.disk, self._contents, changed_before):
                folder[self._salt.word(name)] = digest
        except FolderTooBig as error:
            reason = f"working folder: {error}"
        return evidence.but(reason, folder=folder)

    def _standard_input(self) -> Path | None:
        """The file that the process reads as its standard input, or that a launcher reads and forwards by a pipe."""
        path = self._processes.place(self._pid, "fd/0")
        kind = self._contents.kind(path)
        if kind not in (stat.S_IFIFO, stat.S_IFSOCK):
            return path
        child = process_stat(self._processes, self._pid)
        for _ in range(_MOST_LAUNCHERS):
            parent = process_stat(self._processes, child.parent) if child else None
            if child is None or parent is None or not _LAUNCHER.fullmatch(parent.name):
                return None
            path = self._processes.place(child.parent, "fd/0")
            if self._contents.kind(path) == stat.S_IFREG:
                return path
            child = parent
        return None


def _file_name(word: bytes) -> bytes:
    """What of a word may name a file; empty if nothing."""
    key, value = keyed(word)
    return b"" if len(value) > MOST_NAME or (not key and value.startswith(b"-")) else value


def _reason(what: str, content: Content) -> str:
    return f"{what}: {content.trouble}" if content.trouble else ""


def _threads(environment: Mapping[str, str]) -> int:
    for name in _THREADS:
        first = environment.get(name, "").partition(",")[0].strip()
        if first.isdecimal() and first.isascii() and 0 < len(first) < 7 and int(first) > 0:
            return int(first)
    return -1
