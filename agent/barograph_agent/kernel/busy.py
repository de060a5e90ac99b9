"""Who takes the cores of ranks: the processes of the node that were busiest while ranks had to wait for a core."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from barograph_agent.kernel.readings import ProcessStat, clean, process_stat
from barograph_agent.system.processes import Processes, seconds

MIN_SAMPLE_SECONDS: Final = 0.7
"""Least time between two samples whose difference tells who was busy."""
MIN_PAUSE_SECONDS: Final = 8.0
MAX_PER_SECOND: Final = 64
"""Least time between two pairs of samples, and most processes sampled per second of it."""
MAX_AGE_SECONDS: Final = 90.0
"""Age up to which a result counts."""
MAX_PROCESSES: Final = 4096
"""Processes in a sample: those started last. Those of the kernel itself are the oldest."""
MAX_BUSY: Final = 16
"""Busy processes that are kept."""
MIN_SHARE: Final = 0.1
"""Share of a core of a busy process."""
MIN_TAKEN: Final = 0.3
"""Share of a core above which a process displaces a rank."""


class BusyProcess(NamedTuple):
    """A busy process. owner: `rank` of the same job, `same` user, or `other` user; of a rank, `name` is its number."""

    pid: int
    name: str
    owner: str
    core: int
    share: float
    """Of a core."""
    born: int


NOBODY: Final = BusyProcess(-1, "none", "none", -1, math.nan, -1)


class BusyProcesses:
    """Samples of all processes of the node, twice each time that ranks wait, and not often.

    hides_others: whether the names of processes of other users are left out.
    """

    def __init__(self, processes: Processes, *, hides_others: bool = False) -> None:
        self._processes = processes
        self._hides_others = hides_others
        self._before: dict[int, ProcessStat] = {}
        self._count = 0
        self._sampled_at = -math.inf
        self._found_at = -math.inf
        self._found: list[BusyProcess] = []

    def sample(self, now: float) -> None:
        """Take the first sample, unless it is too early. now: monotonic seconds."""
        if not self._before and now - self._found_at >= max(MIN_PAUSE_SECONDS, self._count / MAX_PER_SECOND):
            self._before, self._sampled_at = self._all(), now
            self._count = len(self._before)

    def compare(self, now: float, ranks: Mapping[int, int]) -> None:
        """Take the second sample if it is due. ranks: their numbers by process."""
        passed = now - self._sampled_at
        if not self._before or passed < MIN_SAMPLE_SECONDS:
            return
        before, self._before = self._before, {}
        self._found_at = now
        after = self._all()
        user = next((self._processes.user(pid) for pid in ranks), -1)
        shares = {
            pid: seconds(stat.cpu_ticks - was.cpu_ticks) / passed
            for pid, stat in after.items()
            if (was := before.get(pid)) is not None and was.born == stat.born
        }
        self._found = []
        for pid in sorted(shares, key=lambda pid: -shares[pid]):
            if shares[pid] < MIN_SHARE or len(self._found) == MAX_BUSY:
                break
            stat = after[pid]
            if pid in ranks:
                self._found.append(BusyProcess(pid, str(ranks[pid]), "rank", stat.core, shares[pid], stat.born))
            elif not _descends(pid, after, ranks):
                owner = "same" if self._processes.user(pid) == user else "other"
                name = "none" if owner == "other" and self._hides_others else clean(stat.name)
                self._found.append(BusyProcess(pid, name, owner, stat.core, shares[pid], stat.born))

    def competitor(self, pid: int, core: int, homes: Collection[int], now: float) -> BusyProcess:
        """The process that takes a rank's core; NOBODY if there is none.

        homes: cores on which ranks of the job have run. A busy process there that is no rank comes first, since ranks
        that it has driven away are beside each other; then what is on the rank's core; then the busiest that is no
        rank. Processes of one name and owner on one core count together: a program may have started many.
        """
        if now - self._found_at > MAX_AGE_SECONDS:
            return NOBODY
        self._found = [one for one in self._found if self._processes.born(one.pid) == one.born]
        others = [one for one in self._found if one.pid != pid and (one.core == core or one.owner != "rank")]
        together: Counter[tuple[str, str, int]] = Counter()
        for one in others:
            together[one.name, one.owner, one.core] += one.share  # type: ignore[assignment]
        grouped = [one._replace(share=together[one.name, one.owner, one.core]) for one in others]

        def order(one: BusyProcess) -> tuple[bool, bool, bool, float]:
            foreign = one.owner != "rank"
            takes_a_home = foreign and one.core in homes and one.share >= MIN_TAKEN
            return takes_a_home, one.core == core, foreign, one.share

        return max(grouped, key=order, default=NOBODY)

    def _all(self) -> dict[int, ProcessStat]:
        found = {pid: process_stat(self._processes, pid) for pid in self._processes.ids()[-MAX_PROCESSES:]}
        return {pid: stat for pid, stat in found.items() if stat is not None}


def _descends(pid: int, stats: Mapping[int, ProcessStat], ranks: Mapping[int, int]) -> bool:
    """Whether a process was started by a rank."""
    for _ in range(64):
        stat = stats.get(pid)
        if stat is None:
            return False
        pid = stat.parent
        if pid in ranks:
            return True
    return False
