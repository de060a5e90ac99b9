"""What probes cost: processor time and instructions of a program with probes over those of the same without.

Processor time is that of pairs of runs, one after the other, which differ where other work is on the machine. So each
pair is measured twice, in both orders, and two runs without probes show how far a ratio is from 1 without any cost.
Instructions are those of one rank, as valgrind's callgrind counts them.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

COLLECTED: Final = re.compile(r"Collected\s*:\s*(\d+)")
MAX_OUTPUT: Final = 400
"""Characters of what a failed program printed last."""


class ProbeCost:
    """Measures two commands. plain, probed: as in a shell, without its operators. features: whether the program with
    probes has a folder for its features, without which probes count and write nothing."""

    def __init__(self, plain: str, probed: str, *, features: bool) -> None:
        self._commands = {"without": shlex.split(plain), "with": shlex.split(probed)}
        for name, words in self._commands.items():
            if not words or shutil.which(words[0]) is None:
                raise ValueError(f"the program {name} probes is {words[:1]}, expected a command that can be run")
        self._features = features

    def seconds(self, pairs: int) -> tuple[list[float], list[float]]:
        """Ratios of processor time: with probes over without, and of two runs without, which is 1 but for noise."""
        ratios, noise = [], []
        for number in range(pairs):
            order = ("without", "with", "without") if number % 2 else ("without", "without", "with")
            times = [self._seconds(name) for name in order]
            with_probes = times[order.index("with")]
            first, second = (one for one, name in zip(times, order, strict=True) if name == "without")
            ratios.append(2 * with_probes / (first + second))
            noise.append(second / first)
        return ratios, noise

    def instructions(self) -> float | None:
        """The ratio of instructions; None without valgrind."""
        if shutil.which("valgrind") is None:
            return None
        counted = {}
        for name, words in self._commands.items():
            with tempfile.TemporaryDirectory() as folder:
                callgrind = [
                    "valgrind",
                    "--tool=callgrind",
                    "--trace-children=no",
                    f"--callgrind-out-file={os.devnull}",
                ]
                printed = _run([*callgrind, *words], self._environment(name, folder))
            if (found := COLLECTED.search(printed)) is None:
                raise ValueError(f"valgrind printed no count for {shlex.join(words)}: {printed[-MAX_OUTPUT:]}")
            counted[name] = int(found[1])
        return counted["with"] / counted["without"]

    def _seconds(self, name: str) -> float:
        """Processor time of one run and all its processes."""
        with tempfile.TemporaryDirectory() as folder:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            _run(self._commands[name], self._environment(name, folder))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    def _environment(self, name: str, folder: str) -> Mapping[str, str]:
        own = {key: value for key, value in os.environ.items() if key != "BAROGRAPH_FEATURES"}
        return own | {"BAROGRAPH_FEATURES": str(Path(folder))} if name == "with" and self._features else own


def median_text(ratios: Sequence[float]) -> str:
    """The median and the range.

    >>> median_text([1.0, 1.2, 1.1])
    '1.1 (1 to 1.2 of 3)'
    """
    return f"{statistics.median(ratios):.4g} ({min(ratios):.4g} to {max(ratios):.4g} of {len(ratios)})"


def _run(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """What a program prints. Raises ValueError if it fails."""
    done = subprocess.run(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise ValueError(f"{shlex.join(words)} ended with status {done.returncode}: {done.stdout[-MAX_OUTPUT:]}")
    return done.stdout
