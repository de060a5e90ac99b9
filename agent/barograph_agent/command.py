"""Starting a command as a shell does, with the standard library alone: also where Barograph cannot be imported."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
FIRST_FREE: Final = 3
T = TypeVar("T")


class NotRunnable(Exception):
    """A command cannot be started. The text states the reason; `status`: the exit status that a shell has then."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def of_arguments(arguments: Sequence[str]) -> list[str]:
    """The command in the arguments of `barograph run`, whose options all have a value.

    >>> of_arguments(["--app", "cfd", "--drain=0", "--", "mpiexec", "-n", "2", "app"])
    ['mpiexec', '-n', '2', 'app']
    """
    left = list(arguments)
    while left and left[0].startswith("-") and left[0] != "--":
        del left[: 1 if "=" in left[0] else 2]
    return left[left[:1] == ["--"] :]


def complete_streams() -> None:
    """Open descriptors 0, 1 and 2 where they are closed, so that no file of ours gets one; commands have none."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < FIRST_FREE:
        pass
    os.close(descriptor)
    # Python has no stream for a descriptor that was closed when it began.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115


def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command with the descriptors that this process has inherited. Raises NotRunnable."""
    # Python's own descriptors are closed by exec; others above 2 that were inherited are the command's.
    return _as_shell(
        command, environment, lambda words: subprocess.Popen(words, env=dict(environment), close_fds=False)
    )


def replace(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replace this process by a command. Raises NotRunnable."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    _as_shell(command, environment, lambda words: os.execvpe(words[0], words, dict(environment)))


def _as_shell(command: Sequence[str], environment: Mapping[str, str], begin: Callable[[list[str]], T]) -> T:
    """What `begin` gives of the command, or of a shell where its program is a script without `#!`."""
    try:
        return begin(list(command))
    except OSError as error:
        path = shutil.which(command[0], path=environment.get("PATH"))
        if error.errno == errno.ENOEXEC and path and _is_script(path):
            return begin(["/bin/sh", path, *command[1:]])
        status = NOT_EXECUTABLE if path or os.access(command[0], os.F_OK) else NOT_FOUND
        raise NotRunnable(
            status, f"command {command[0]!r}: {error.strerror}, expected an executable program"
        ) from error


def _is_script(path: str) -> bool:
    """Whether a file is text, as shells decide it by its beginning."""
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        beginning = file.read(512)
        return b"\0" not in beginning and not beginning.startswith(b"\x7fELF")
    return False
