"""Numbers of the MPI worlds of a run: the same on all nodes, without a word between them.

A command may launch several programs, on the same nodes or on others. The shim numbers launches where the launcher runs
(`agent/shim/launch.c`) and notes that number in each ring. The first world of launch L has the number L, further ones,
as of spawned processes, L + LAUNCHES and so on. Where the launch is not known, worlds are counted as they are found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from barograph_agent.reduce.intervals import Cursor
from barograph_agent.ring.reader import LAUNCHES, Ring

JOIN_NS: Final = 30 * 10**9
"""Limit on the time between the returns of MPI_Init in ranks of one world."""
MAX_REPORTED: Final = 1_000
"""Worlds of a run on a node that have a row of `nodes`; the others are counted with the first."""

_CLAIM: Final = "launch-"
"""Prefix of a file by which a number is taken."""


class World(NamedTuple):
    """A world on this node. size: its ranks on all nodes; ranks: those of them here; lowest: the lowest of these.

    seen, lost: intervals counted by the shim of rank 0, if that is here, and those of them that are in no row.
    """

    size: int
    ranks: int
    lowest: int
    seen: int
    lost: int


def join(ring: Ring, cursors: Mapping[str, Cursor]) -> int | None:
    """The newest world of the ring's launch and size, of about its start time, without a ring of its rank; or None."""
    if is_of_application(ring.path.name):
        return None
    worlds: dict[int, list[Cursor]] = {}
    for name, cursor in cursors.items():
        if not is_of_application(name):
            worlds.setdefault(cursor.world, []).append(cursor)
    for number, members in reversed(worlds.items()):
        first = members[0]
        is_near = abs(ring.started_ns - first.started_ns) <= JOIN_NS
        is_alike = (first.size, first.launch) == (max(ring.size, 1), ring.launch)
        if is_near and is_alike and max(ring.rank, 0) not in {member.rank for member in members}:
            return number
    return None


def new_number(ring: Ring, used: set[int], claim: Callable[[int], bool]) -> int:
    """A number for the world of a ring. used: numbers of other worlds of the run on this node.

    claim: takes a number that is not one of a launch; whether it was free.
    """
    if ring.launch >= 0:
        number = ring.launch + LAUNCHES * is_of_application(ring.path.name)
        while number in used:
            number += LAUNCHES
        return number
    number = 1 + max((one for one in used if one < LAUNCHES), default=-1)
    while number < LAUNCHES and not claim(number):
        number += 1
    return number if number < LAUNCHES else 1 + max(used, default=LAUNCHES - 1)


def claim_in(directory: Path, number: int) -> bool:
    """Take a number as a launcher does, on the node where launchers run. True also where no file can be written."""
    try:
        os.close(os.open(directory / f"{_CLAIM}{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError:
        pass
    return True


def claimed_in(directory: Path) -> set[int]:
    """The numbers that are taken there."""
    names = os.listdir(directory) if directory.is_dir() else []  # noqa: PTH208
    numbers = (name.removeprefix(_CLAIM) for name in names if name.startswith(_CLAIM))
    return {int(number) for number in numbers if number.isdecimal()}


def is_of_application(name: str) -> bool:
    """Whether a ring of this name has a program's own intervals, which are no sync points of a world."""
    return name.startswith("app-")


def on_this_node(cursors: Mapping[str, Cursor], counted: Callable[[str, Cursor], tuple[int, int]]) -> dict[int, World]:
    """The worlds of these rings, by number. counted: intervals of a ring, and those of them that are lost.

    Intervals of the application itself count with the first world.
    """
    of_mpi = {name: cursor for name, cursor in cursors.items() if not is_of_application(name)} or cursors
    numbers = sorted({cursor.world for cursor in of_mpi.values()})[:MAX_REPORTED]
    members: dict[int, list[Cursor]] = {number: [] for number in numbers}
    seen, lost = dict.fromkeys(numbers, 0), dict.fromkeys(numbers, 0)
    for name, cursor in cursors.items():
        is_reported = name in of_mpi and cursor.world in members
        if is_reported:
            members[cursor.world].append(cursor)
        number = cursor.world if is_reported else numbers[0]
        one_seen, one_lost = counted(name, cursor)
        seen[number] += one_seen
        lost[number] += one_lost
    return {
        number: World(
            max(cursor.size for cursor in found), len(found), min(cursor.rank for cursor in found),
            seen[number], lost[number],
        )
        for number, found in members.items()
    }  # fmt: skip
