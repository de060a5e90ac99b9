"""Builds the shim, `libbarograph.so`, and beside it the sidecar's reader and the command: python build.py OUTPUT."""

from __future__ import annotations

import importlib.util
import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
FLAGS = ["-std=gnu11", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"]
READER = "libbarograph-reader.so"
COMMAND = "barograph"
LIBRARIES = ["-ldl", "-lm"]  # before glibc 2.34 dlsym is not in libc

PROBE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
void *probe(void) { return dlsym(RTLD_NEXT, "probe"); }
"""


class CompilerError(RuntimeError):
    """There is no C compiler, or it cannot build the shim."""


def find_compiler() -> list[str]:
    """The command of a C compiler: $CC unchecked, else the first of cc, gcc, clang that works, else ziglang's.

    Raises CompilerError, which names the candidates.
    """
    tried: list[str] = []
    command = system_compiler(tried)
    if command is not None:
        return command
    if importlib.util.find_spec("ziglang") is not None:
        # For an old glibc, so that the result also runs on older nodes.
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"{platform.machine()}-linux-gnu.2.17"]
    tried.append(f"{sys.executable} has no module ziglang")
    raise CompilerError(f"no C compiler for the shim: {'; '.join(tried)}. Install one, or `pip install ziglang`")


def system_compiler(tried: list[str]) -> list[str] | None:
    """find_compiler() without ziglang. Appends to `tried` the reason why each candidate was rejected."""
    if os.environ.get("CC", "").strip():
        return shlex.split(os.environ["CC"])
    tried.append("CC is not set")
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found is None:
            tried.append(f"{name} is not on PATH")
        elif not _works([found]):
            tried.append(f"{found} cannot build a shared library (are the C library's headers there?)")
        else:
            return [found]
    return None


def build(output: Path, compiler: list[str] | None = None) -> None:
    """Compile the shim to `output`, and the reader and the command beside it.

    They are replaced atomically: running programs may have the old file mapped. Raises CompilerError with the
    compiler's messages.
    """
    command = find_compiler() if compiler is None else compiler
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".build-") as scratch:
        wrappers = Path(scratch) / "wrappers.c"
        wrappers.write_text(runpy.run_path(str(SOURCES / "wrappers.py"))["generate"]())
        _link(command, Path(scratch), output, [*sorted(SOURCES.glob("*.c")), wrappers])
        _link(command, Path(scratch), output.with_name(READER), sorted((SOURCES / "reader").glob("*.c")))
        _link(command, Path(scratch), output.with_name(COMMAND), [SOURCES / "python/barograph.c"])


def _link(command: list[str], scratch: Path, output: Path, sources: list[Path]) -> None:
    result = scratch / output.name
    flags = FLAGS if output.suffix else [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
    rest = [*flags, "-o", str(result), f"-I{SOURCES}", *map(str, sources), *LIBRARIES]
    try:
        _compile([*command, "-flto", *rest])
    except CompilerError:
        _compile([*command, *rest])  # a linker without the compiler's plugin: half as fast, otherwise the same
    result.replace(output)


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompilerError(f"C compiler {command[0]!r} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise CompilerError(f"building the shim failed: {shlex.join(command)}\n{done.stderr.strip()}")


def _works(compiler: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "probe.c"
        source.write_text(PROBE)
        try:
            _compile([*compiler, "-fPIC", "-shared", "-o", str(source.with_suffix(".so")), str(source), *LIBRARIES])
        except CompilerError:
            return False
        return True


def main() -> int:
    """Build the shim; returns the exit status."""
    if len(sys.argv) != 2:
        print(f"usage: {sys.argv[0]} OUTPUT", file=sys.stderr)
        return 2
    try:
        build(Path(sys.argv[1]).absolute())
    except CompilerError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
