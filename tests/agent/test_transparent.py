"""A command under `barograph run` does what it does without: generated programs, wrappers, launchers, environments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from barograph_agent import shim
from helpers import mpi as mpis
from helpers.service import Node

pytestmark = pytest.mark.process
BAROGRAPH = Path(sys.executable).with_name("barograph")
SEES = r"""
{ printf '%s|' "$@"; pwd; echo; for number in 0 1 2 3 4 5 6 7 8 9; do
    [ -e /proc/$$/fd/$number ] && echo "descriptor $number"; done; env -0; } > "$SEEN/$$" 2>/dev/null
echo hello; echo loud >&2; echo extra >&3
"""
WRAPPERS = [
    [],
    ["env", "ADDED=1"],
    ["nice", "-n", "1"],
    ["sh", "-c", 'exec "$@"', "sh"],
    ["timeout", "50"],
    ["setsid", "-w"],
]
STREAMS = ["", "<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-", "</dev/null", ">/dev/full"]
FOLDERS = ["", "mkdir gone; cd gone; rmdir ../gone; ", "mkdir -p 'a b'; cd 'a b'; ", "mkdir -p d\xe9; cd d\xe9; "]
ENDS = ["exit 0", "exit 3", "exit 255", "kill -TERM $$", "kill -KILL $$", "kill -SEGV $$", "no-such-command"]
VARIABLES = {
    "PYTHONPATH": "modules", "PYTHONHOME": "/nonexistent", "PYTHONSTARTUP": "/nonexistent", "PYTHONWARNINGS": "error",
    "PYTHONIOENCODING": "utf-16", "PYTHONOPTIMIZE": "2", "LD_PRELOAD": "", "LC_ALL": "de_DE.ISO-8859-1",
    "HOME": "/nonexistent", "ODD": "d\udce9 =\n;", "ASAN_OPTIONS": "detect_leaks=0", "TMPDIR": "/nonexistent",
    "BAROGRAPH_DISABLE": "1", "BAROGRAPH_RINGS": "/dev/null/no", "BAROGRAPH_SPOOL": "/dev/null/no",
    "BAROGRAPH_CONFIG": "/nonexistent", "BAROGRAPH_RULES": "/nonexistent", "BAROGRAPH_BUDGET": "many",
}  # fmt: skip


class Done(NamedTuple):
    """What can be seen of a command from outside and inside. A launcher's processes come in any order."""

    status: int
    out: list[bytes]
    err: list[bytes]
    extra: bytes
    seen: list[list[bytes]]


def seen(text: bytes) -> list[bytes]:
    """What a process saw, without what watching adds."""
    ours = re.compile(
        rb"(BAROGRAPH_|SEEN=|OMPI_MCA_mca_base_env_list=|(PMI|PMIX|HYDI|OMPI|OPAL|ORTE|PRTE|MPIR)\w*=|_=|SHLVL=).*",
        re.DOTALL,
    )
    text = text.replace(os.fsencode(shim.library()) + b" ", b"").replace(os.fsencode(shim.library()), b"")
    text = re.sub(os.fsencode(re.escape(str(shim.HOOK))) + rb":?", b"", text).replace(b":verify_asan_link_order=0", b"")
    empty = {b"LD_PRELOAD=", b"PYTHONPATH=", b"ASAN_OPTIONS=verify_asan_link_order=0"}
    return sorted(one for one in text.split(b"\0") if not ours.fullmatch(one) and one not in empty)


def run(
    words: list[str], prefix: list[str], node: Node, folder: Path, redirect: str, variables: dict[str, str]
) -> Done:
    launched = any("mpiexec" in word for word in words)
    typed = b"" if launched else b"given\n"  # MPICH's launcher fails now and then where nobody reads it
    (told := folder / "seen").mkdir(parents=True)
    environment = {**node.environment, **variables, "SEEN": str(told)}
    command = ["sh", "-c", f'cd "$0"; {redirect}', str(folder), *prefix, *words]
    done = subprocess.run(
        command, env=environment, capture_output=True, input=typed, timeout=120, check=False, cwd=folder
    )
    lines = done.stderr.replace(os.fsencode(folder), b"FOLDER").splitlines()
    said = [line for line in lines if (line == b"loud" if launched else not line.startswith(b"barograph: "))]
    outputs = [seen(path.read_bytes().replace(os.fsencode(folder), b"FOLDER")) for path in told.iterdir()]
    extra = b"".join(path.read_bytes() for path in folder.glob("extra"))
    # As a shell reports it.
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return Done(status, sorted(done.stdout.splitlines()), sorted(said), extra, sorted(outputs))


@given(
    has_interpreter=st.booleans(),
    arguments=st.lists(st.sampled_from(["a b", "", "--", "--app", "-x", "d\udce9", "*", "'", "\n"]), max_size=3),
    wrappers=st.lists(st.sampled_from(WRAPPERS), max_size=2),
    launcher=st.sampled_from([[], ["mpich", 1], ["mpich", 2], ["openmpi", 2]]),
    streams=st.sampled_from(STREAMS),
    folder=st.sampled_from(FOLDERS),
    end=st.sampled_from(ENDS),
    names=st.sets(st.sampled_from(sorted(VARIABLES)), max_size=4),
)
@settings(max_examples=40, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_a_command_does_what_it_does_without(
    has_interpreter, arguments, wrappers, launcher, streams, folder, end, names
) -> None:
    # MPICH's launcher never ends without a folder or an input, and launchers word failures differently each time.
    folder, streams, end = ("", "", "exit 0") if launcher else (folder, streams, end)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (broken := root / "modules").mkdir()
        for module in ("numpy", "zmq", "msgspec", "argparse", "barograph"):
            (broken / f"{module}.py").write_text("raise ImportError('for another Python')")
        program = root / "program"
        program.write_text(
            ("#!/bin/sh" if has_interpreter else ": not a script of an interpreter")
            + SEES
            + ("" if launcher else "cat\n")
            + end
            + "\n"
        )
        program.chmod(0o755)
        words = [word for wrapper in wrappers for word in wrapper] + [str(program), *arguments]
        if launcher:
            mpi = mpis.find(launcher[0])
            words = list(map(str, mpi.command(launcher[1], words)))
        variables = {one: str(broken) if one == "PYTHONPATH" else VARIABLES[one] for one in names}
        redirect = f'{folder}exec "$@" 3>>"$0/extra" {streams}'
        node = Node(root / "node")
        barograph = [str(BAROGRAPH), "run", "--drain=0", "--"]
        # On a busy machine MPICH's launcher may lose its proxy and end by SIGPIPE, watched or not: it has two trials.
        for trial in ("first", "second")[: 2 if launcher else 1]:
            without = run(words, [], node, root / f"without-{trial}", redirect, variables)
            watched = run(words, barograph, node, root / f"watched-{trial}", redirect, variables)
            if watched == without:
                break
        assert watched == without


@pytest.mark.skipif(os.getuid() != 0, reason="a small /dev/shm of its own needs root")
@pytest.mark.parametrize(
    ("rings", "line"), [("64m", "intervals 100 seen on 4 ranks"), ("700k", "none seen: there was no ")]
)
def test_a_small_shm_is_left_to_the_program(tmp_path: Path, rings: str, line: str) -> None:
    mpi, node = mpis.find("mpich"), Node(tmp_path)
    node.environment["BAROGRAPH_RINGS"] = "/dev/shm/rings" if rings == "64m" else "/run/rings"
    mounts = f"mount -t tmpfs -o size=64m tmpfs /dev/shm && mount -t tmpfs -o size={rings} tmpfs /run"
    program = Path(__file__).with_name("programs") / "window.py"
    launch = map(str, mpi.command(4, [sys.executable, program, str(10 * 2**20)]))
    words = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    words += [str(BAROGRAPH), "run", "--drain=0", "--", *launch]
    done = subprocess.run(words, env=node.environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.count("filled")) == (0, 4), done.stderr
    assert line in done.stderr
