"""The arguments with which clang parses a source as the user's compiler does."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SUFFIXES: Final = {".c": "c", ".cc": "c++", ".cpp": "c++", ".cxx": "c++", ".c++": "c++", ".C": "c++"}
KEPT: Final = re.compile(r"-(?:[IDU].*|std=.*|include|isystem|iquote|f(?:no-)?openmp|pthread)")
WITH_VALUE: Final = ("-I", "-D", "-U", "-include", "-isystem", "-iquote")


class NotInstrumentable(Exception):
    """A source cannot be instrumented. The text names the problem and what was expected."""


def arguments(source: Path, compiler: str, given: Sequence[str], database: Path | None) -> list[str]:
    """Clang's arguments for a source: from the compilation database if there is one, else `given`; then the compiler's
    search path of headers. Raises NotInstrumentable, also for Fortran, which is out of scope.
    """
    if source.suffix not in SUFFIXES:
        raise NotInstrumentable(f"{source}: ending {source.suffix!r}, expected C or C++: {' '.join(SUFFIXES)}")
    language = ["-x", SUFFIXES[source.suffix]]
    words = list(given) if database is None else _from_database(source, database)
    command = [*shlex.split(compiler), "-E", "-v", *language, "/dev/null"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstrumentable(f"--cc {compiler!r}: {error}, expected a C compiler such as cc or mpicc") from None
    listed = re.search(r"#include <\.\.\.> search starts here:\n(.*?)\nEnd of search list", output, re.DOTALL)
    folders = listed[1].splitlines() if listed else []
    return [*language, *words, *(f"-isystem{folder.strip()}" for folder in folders)]


def _from_database(source: Path, folder: Path) -> list[str]:
    path = folder / "compile_commands.json"
    try:
        entries = json.loads(path.read_text())
        for entry in entries:
            place = Path(entry["directory"])
            if (place / entry["file"]).resolve() == source.resolve():
                return _kept(entry.get("arguments") or shlex.split(entry["command"]), place)
    except OSError as error:
        raise NotInstrumentable(f"{path}: {error.strerror}, expected a compilation database") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotInstrumentable(f"{path}: {type(error).__name__} {error}, expected a compilation database") from None
    raise NotInstrumentable(f"{source} is not in {path}, expected an entry for each source")


def _kept(words: Sequence[str], place: Path) -> list[str]:
    """The options that change how the source is parsed, with absolute folders."""
    kept: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if not KEPT.fullmatch(word):
            continue
        option, value = (word, next(rest, "")) if word in WITH_VALUE else (word, "")
        if option.startswith("-I") or option in ("-isystem", "-iquote", "-include"):
            name = value or option[2:]
            kept += [option if value else "-I", str(place / name)]
        else:
            kept += [option, value] if value else [option]
    return kept
