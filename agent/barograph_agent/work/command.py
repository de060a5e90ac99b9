"""The words of a command line that say what the program should do: without those of its interpreter."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

_KEYED: Final = re.compile(rb"(-{0,2}[A-Za-z_][A-Za-z0-9_.:-]*)=(.*)", re.DOTALL)
_PYTHON: Final = re.compile(r"(python|pypy|pvpython|pvbatch|gpaw-python)[0-9.]*t?(-?(MPI|mpi|dbg|intel64))?")
"""Also those that programs bring: escript's `pythonMPI`, ParaView's `pvbatch`."""
_MPI4PY: Final = (b"mpi4py", b"mpi4py.run", b"mpi4py.futures")


class ScriptKind(Enum):
    """What an interpreter was given. NONE: the program is no interpreter, or reads its standard input."""

    NONE = auto()
    FILE = auto()
    CODE = auto()
    MODULE = auto()


class CommandLine(NamedTuple):
    """A command line. words: those after the program, or after the script of an interpreter."""

    kind: ScriptKind
    script: bytes
    """The script's path, its code, or the name of its module."""
    words: Sequence[bytes]


class _Language(NamedTuple):
    """Options of an interpreter, a letter each: those with a value, with code, and with the name of a module."""

    programs: re.Pattern[str]
    takes: bytes
    code: bytes = b""
    module: bytes = b""
    long_takes: tuple[bytes, ...] = ()


_LANGUAGES: Final = (
    _Language(_PYTHON, b"WX", b"c", b"m", (b"--check-hash-based-pycs",)),
    _Language(re.compile(r"(ba|da|k|z)?sh"), b"oO", b"c", b"", (b"--rcfile", b"--init-file")),
)


def parse(arguments: Sequence[bytes], program: str) -> CommandLine:
    """The command line of a process. arguments: without the program's name. program: the executable's file name."""
    language = next((one for one in _LANGUAGES if one.programs.fullmatch(program)), None)
    if language is None:
        return CommandLine(ScriptKind.NONE, b"", arguments)
    return _parse(arguments, language)


def script_of(program: str, arguments: Sequence[str]) -> str:
    """The path of the script, or the name of the module, that an interpreter was given; empty for others.

    program: the path of the executable. arguments: with the program's name.
    """
    command = parse([os.fsencode(word) for word in arguments[1:]], program.rpartition("/")[2])
    return os.fsdecode(command.script) if command.kind in (ScriptKind.FILE, ScriptKind.MODULE) else ""


def keyed(word: bytes) -> tuple[bytes, bytes]:
    """Key and value of a word of the form --key=value, -k=value or key=value; an empty key for others.

    >>> keyed(b"--steps=4000")
    (b'--steps', b'4000')
    >>> keyed(b"/data/a=b")
    (b'', b'/data/a=b')
    """
    found = _KEYED.fullmatch(word)
    return (found[1], found[2]) if found else (b"", word)


def _parse(arguments: Sequence[bytes], language: _Language) -> CommandLine:
    at = 0
    while at < len(arguments):
        word = arguments[at]
        at += 1
        if word == b"--" and at < len(arguments):
            return CommandLine(ScriptKind.FILE, arguments[at], arguments[at + 1 :])
        if word == b"-":
            break
        if not word.startswith(b"-"):
            return CommandLine(ScriptKind.FILE, word, arguments[at:])
        if word.startswith(b"--"):
            at += word in language.long_takes
            continue
        kind, value, at = _short(word, arguments, at, language)
        if kind is ScriptKind.MODULE and value in _MPI4PY:
            # A launcher within Python: options of its own, then a script as Python takes one.
            while at < len(arguments) and arguments[at].lstrip(b"-") in (b"rc", b"profile"):
                at += 2
        elif kind is not ScriptKind.NONE:
            return CommandLine(kind, value, arguments[at:])
    return CommandLine(ScriptKind.NONE, b"", arguments[at:])


def _short(word: bytes, arguments: Sequence[bytes], at: int, language: _Language) -> tuple[ScriptKind, bytes, int]:
    """What a word of one-letter options gives the interpreter, and the position after its value."""
    for index in range(1, len(word)):
        letter = word[index : index + 1]
        if letter not in language.takes + language.code + language.module:
            continue
        value = word[index + 1 :]
        if not value:
            value = arguments[at] if at < len(arguments) else b""
            at += 1
        if letter in language.takes:
            return ScriptKind.NONE, b"", at
        return (ScriptKind.CODE if letter in language.code else ScriptKind.MODULE), value, at
    return ScriptKind.NONE, b"", at
