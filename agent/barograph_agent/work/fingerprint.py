"""The fingerprint of a job: what it was asked for, from what the kernel shows of the process of rank 0."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from barograph_agent.protocol.tables import TEXT_LIMIT
from barograph_agent.system.processes import seconds
from barograph_agent.system.system import System
from barograph_agent.system.threads import ThreadTask
from barograph_agent.work import numbers
from barograph_agent.work.command import CommandLine, ScriptKind, keyed, parse
from barograph_agent.work.contents import Content, Contents, OutOfTime
from barograph_agent.work.folder import FolderTooBig, small_files
from barograph_agent.work.platform import platform
from barograph_agent.work.salt import Salt

SECONDS: Final = 2.0
"""Time after which the row is written with what is known."""
FIRST_SECONDS: Final = 0.05
"""Time for which the first step waits for the end: most fingerprints take less."""
MAX_REASONS: Final = 20
MAX_WORDS: Final = 1024
MAX_COMMAND_BYTES: Final = 2**22
"""Bytes that are read of a command line: Linux allows less."""
MAX_INPUTS: Final = 256
MAX_NAME: Final = 4096
"""Longest word that may be a path."""
STDIN: Final = -1
START_SECONDS: Final = 0.05
"""A file that was changed in this time after the start may have been written just before: clocks are coarse."""
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Input(msgspec.Struct, frozen=True):
    """A file that a word names, by the word's index; -1: standard input. digest: empty if unknown."""

    word: int
    digest: str
    bytes: int


class NumbersOfText(msgspec.Struct, frozen=True):
    """The numbers of a word, by its index, or of the file that it names; -1: of standard input.

    values: with spaces between. form: the digest of the text with a mark for each number. file: 1 for a file.
    """

    word: int
    file: int
    form: str
    values: str


class WorkEvidence(msgspec.Struct):
    """A row of `works` without the job's own columns."""

    executable: str = ""
    program: str = ""
    script: str = ""
    words: list[str] = []
    inputs: list[Input] = []
    folder: dict[str, str] = {}
    """Digests of small files in the working folder, by digests of their names."""
    numbers: list[NumbersOfText] = []
    platform: dict[str, str] = {}
    """MPI library, kernel, firmware and node, in words."""
    threads: int = -1
    plain: list[str] | None = None
    """None: the site does not keep plain words."""
    reasons: list[str] = []
    """Why something is missing."""

    def columns(self) -> dict[str, Any]:
        """Columns of the row."""
        plain, reasons = "", list(self.reasons)
        if self.plain is not None and len(plain := _json(self.plain)) > TEXT_LIMIT:
            reasons.append(f"plain words: {len(plain)} characters, expected at most {TEXT_LIMIT}")
            plain = ""
        more = len(reasons) - MAX_REASONS
        return {
            "executable": self.executable,
            "program": self.program,
            "script": self.script,
            "words": _json(self.words),
            "inputs": _json(self.inputs),
            "numbers": _json(self.numbers) if self.numbers else "",
            "folder": _json(self.folder) if self.folder else "",
            "platform": _json(self.platform) if self.platform else "",
            "threads": self.threads,
            "plain": plain,
            "reason": "; ".join([*reasons[:MAX_REASONS], *([f"and {more} more"] if more > 0 else [])]),
        }


class TargetProcess(NamedTuple):
    """The process whose work is identified. program: path of its executable, as the process itself knows it.

    belongs: whether a process is of this job: ids in rings may be of another container. command: as in a ring.
    """

    pid: int
    program: str
    belongs: Callable[[int], bool] = lambda pid: True
    command: bytes = b""


class WorkRules(NamedTuple):
    """Rules of the site. salt: the file of its secret; without one `cluster` is the secret.

    numbers, plain: whether numbers in words and small input files, and all words, are kept as they are.
    """

    cluster: str
    salt: Path | None
    plain: bool = False
    numbers: bool = False


class FingerprintTask:
    """A fingerprint that a thread takes: a file system may not answer, and rings must be read meanwhile."""

    def __init__(self, system: System, take: Callable[[WorkEvidence, float], object]) -> None:
        """take: fills in the evidence until a deadline in monotonic seconds."""
        self._system, self._take = system, take
        self._evidence = WorkEvidence()
        self._task: ThreadTask | None = None
        self._deadline = 0.0
        self._columns: dict[str, Any] = {}

    def columns(self, *, final: bool = False) -> dict[str, Any]:
        """Columns of the row; empty until the thread or its time has ended. final: wait for that."""
        monotonic, wait = self._system.clock.monotonic, 0.0
        if self._task is None:
            self._deadline, wait = monotonic() + SECONDS, FIRST_SECONDS
            self._task = ThreadTask(self._system.threads, "work", self._run)
        if not self._columns:
            has_ended = self._task.wait(self._deadline - monotonic() if final else wait)
            if not has_ended and not final and monotonic() < self._deadline:
                return {}
            if not has_ended:
                self._evidence.reasons.append(f"time: not everything was read in {SECONDS:g} s")
            self._columns = self._evidence.columns()
        return self._columns

    def _run(self) -> None:
        try:
            self._take(self._evidence, self._deadline)
        except Exception as error:
            # Without its text, which may have words of the command line.
            self._evidence.reasons.append(f"failed: {type(error).__name__}")


def fingerprint(
    evidence: WorkEvidence, deadline: float, target: TargetProcess, rules: WorkRules, system: System
) -> None:
    """Fill in the evidence of a process. deadline: monotonic seconds. Does not raise OSError."""
    try:
        secret = system.disk.read(rules.salt).strip() if rules.salt else b"cluster " + rules.cluster.encode()
    except OSError as error:
        evidence.reasons.append(f"salt: unreadable: {error.strerror}")
        return
    if not secret:
        evidence.reasons.append("salt: empty, expected a secret")
        return
    salt = Salt(secret)
    contents = Contents(system, salt, deadline)
    try:
        _Fingerprint(evidence, target, system, salt, contents, rules).take()
    except OutOfTime:
        evidence.reasons.append("time: not everything was read in time")


class _Fingerprint(NamedTuple):
    evidence: WorkEvidence
    target: TargetProcess
    system: System
    salt: Salt
    contents: Contents
    rules: WorkRules

    def take(self) -> None:
        evidence, processes, pid = self.evidence, self.system.processes, self.target.pid
        name = self.target.program.rpartition("/")[2]
        evidence.program = self.salt.program(name.encode()) if name else ""
        born = processes.born(pid)
        line = self.target.command or processes.show(f"/proc/{pid}/cmdline", MAX_COMMAND_BYTES)
        if born < 0 or not line or not self.target.belongs(pid):
            evidence.reasons.append("process: it has ended, or is not visible from here")
            return
        command = parse(line.removesuffix(b"\0").split(b"\0")[1:], name)
        if command.kind in (ScriptKind.FILE, ScriptKind.MODULE):
            evidence.program = self.salt.program(command.script.rpartition(b"/")[2])
        names = self._add_words(command.words)
        evidence.threads = _threads(processes.environment(pid))
        executable = self.contents.of_executable(processes.place(pid, "exe"))
        evidence.executable = self._digest("executable", executable)
        evidence.platform = platform(pid, processes, self.contents)
        self._add_script(command)
        clock = self.system.clock
        changed_before = clock.now() - clock.since_boot() + seconds(born) + START_SECONDS
        # A batch script may have printed to its output before, and a daemon to its log, which may lie in the working
        # folder.
        self.contents.outputs = processes.outputs(processes.user(pid))
        self._add_inputs(names, changed_before)
        if not evidence.inputs:
            self._add_folder(changed_before)

    def _digest(self, what: str, content: Content) -> str:
        if content.trouble:
            self.evidence.reasons.append(f"{what}: {content.trouble}")
        return content.digest

    def _add_words(self, words: Sequence[bytes]) -> list[bytes]:
        """Returns words that may name files."""
        evidence = self.evidence
        named = kept = list(words[:MAX_WORDS])
        if len(words) > MAX_WORDS:
            evidence.reasons.append(
                f"command line cut at {MAX_WORDS} of {len(words)} words: the last digest is of the rest"
            )
            named, kept = kept[:-1], [*kept[:-1], b"\0".join(words[MAX_WORDS - 1 :])]
        evidence.words = [self._word(word) for word in kept]
        if self.rules.plain:
            evidence.plain = [word.decode(errors="backslashreplace") for word in kept]
        if self.rules.numbers:
            texts = ((index, numbers.of_word(word)) for index, word in enumerate(named))
            evidence.numbers += [self._in_log(text, index, file=0) for index, text in texts if text is not None]
        return named

    def _word(self, word: bytes) -> str:
        key, value = keyed(word)
        return f"{self.salt.word(key)}={self.salt.word(value)}" if key else self.salt.word(value)

    def _in_log(self, text: numbers.Numbers, word: int, file: int) -> NumbersOfText:
        return NumbersOfText(word, file, self.salt.word(text.form), " ".join(text.values))

    def _path(self, name: bytes) -> Path:
        """A file as the process sees it: it may have other mounts than this one."""
        text = name.decode(errors="surrogateescape")
        root = self.system.processes.place(self.target.pid, "root" if text.startswith("/") else "cwd")
        return root / text.lstrip("/")

    def _add_script(self, command: CommandLine) -> None:
        script = command.script
        match command.kind:
            case ScriptKind.CODE:
                self.evidence.script = self.contents.of_bytes(script)
            case ScriptKind.FILE:
                content = self.contents.of_file(self._path(script)) or Content("", -1, "not found")
                self.evidence.script = self._digest("script", content)
            case ScriptKind.MODULE:
                module = script.replace(b".", b"/")
                files = (self.contents.of_file(self._path(module + end)) for end in (b".py", b"/__main__.py"))
                # Of an installed module the version is not read.
                content = next(filter(None, files), Content(self.contents.of_bytes(script), -1))
                self.evidence.script = self._digest("script", content)

    def _add_inputs(self, words: list[bytes], changed_before: float) -> None:
        evidence = self.evidence
        places = [(index, self._path(value)) for index, word in enumerate(words) if (value := _file_name(word))]
        stdin = self.system.processes.place(self.target.pid, "fd/0")
        if self.contents.kind(stdin) not in (stat.S_IFIFO, stat.S_IFSOCK):
            places.insert(0, (STDIN, stdin))
        for index, path in places:
            if len(evidence.inputs) == MAX_INPUTS:
                evidence.reasons.append(f"inputs: more than {MAX_INPUTS}")
                return
            content = self.contents.of_file(path, changed_before)
            if content is None:
                continue
            digest = self._digest("standard input" if index == STDIN else f"input {index}", content)
            # A file that the program writes has a size that says nothing.
            if content.size < 0 or content.trouble.startswith(("written", "changed")):
                continue
            evidence.inputs.append(Input(index, digest, content.size))
            if self.rules.numbers and (
                text := numbers.of_text(self.contents.beginning(path, numbers.MAX_TEXT_BYTES + 1))
            ):
                evidence.numbers.append(self._in_log(text, index, file=1))

    def _add_folder(self, changed_before: float) -> None:
        """Where no input is named, it may be any file that lies there, as of codes that read INCAR or HPL.dat."""
        place = self.system.processes.place(self.target.pid, "cwd")
        try:
            for name, digest in small_files(place, self.system.disk, self.contents, changed_before):
                self.evidence.folder[self.salt.word(name)] = digest
        except FolderTooBig as error:
            self.evidence.reasons.append(f"working folder: {error}")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _file_name(word: bytes) -> bytes:
    """What of a word may name a file; empty if nothing."""
    key, value = keyed(word)
    return b"" if len(value) > MAX_NAME or (not key and value.startswith(b"-")) else value


def _threads(environment: Mapping[str, str]) -> int:
    for name in _THREADS:
        first = environment.get(name, "").partition(",")[0].strip()
        if first.isdecimal() and first.isascii() and 0 < len(first) < 7 and int(first) > 0:
            return int(first)
    return -1
