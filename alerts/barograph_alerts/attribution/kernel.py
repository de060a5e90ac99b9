"""What the kernels of a job's nodes know of the time lost since an onset, from rows of `pressures`."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from barograph_alerts.attribution.cause import SHARE, Beside, Cause, Kind, OwnGrowth

NODE: Final = -1
"""The rank of rows about a whole node."""
RECENT: Final = 1024
"""Newest rows kept one by one, since an onset is detected some time later."""
RANKS: Final = 4096
"""Ranks and nodes whose sums are kept."""
MIN_SHARE: Final = 0.05
"""Least share of its time that a rank has lost to what is named as the cause."""
EXPLAINS: Final = 0.5
"""Least share of the lost time that the ranks have lost to it, together."""
EXPLAINS_STOPPED: Final = 0.3
"""The same of stops by signals, which nothing about a program brings about."""
BEGINNING: Final = 15.0
"""Seconds from the first row on in which it is seen whether a job's ranks are stopped as a rule."""
ALIKE: Final = 0.5
"""Ranks are named that have this share of what the worst has lost, or more."""
MIN_OVERLAP: Final = 0.5
"""Seconds of a span within a disturbance from which on it counts, as far as it is within."""
MOST_AFTER: Final = 0.1
"""Share of a span after the onset up to which it is one before: a quiet one ends soon after, as the first."""
COVERED: Final = 4.0
"""Seconds after the onset that must be known before a kernel is said to show nothing."""
COMPUTED: Final = 2.0
"""The same before it is said that own work grew by computing, and seconds before the onset."""
ASLEEP: Final = 0.5
"""Own work grew by computing if ranks sleep longer by less than this share of its growth, else by sleeping."""
FAULTS: Final = 20.0
SWAPPED: Final = 100.0
"""Major faults and swapped pages per second from which on a rank that is blocked waits for memory, not for files."""
FAULT_SECONDS: Final = 1e-4
"""Time to read a page from a fast disk."""
MIN_SHARES: Final[Mapping[Kind, float]] = {"compute": 0.1, "bandwidth": 0.2}
"""The same of a node that does fixed work more slowly, computing or reading memory: what is less differs between looks
at a node where nothing changes."""
IN_WORK: Final = frozenset({"core", "steal", "compute", "bandwidth"})
"""Kinds that delay the other nodes only where they make own work longer."""
CORE_NUMBERS: Final = ("core_waited", "core_waited_before", "core_nodes")
"""Numbers of a cause that is none of a kernel's, though ranks waited for cores: the largest share of its time that a
rank did, what it was before, and the nodes on which ranks did about as much."""
TRANSFER: Final = 3.0
"""Data of a node with a slow link is in flight so many times as long as before, at least."""
FIGURES: Final = ("run", "delay", "stopped", "blocked", "faults", "memory", "swapped", "steal", "compute", "reading",
                  "measured", "transfer", "transferred")  # fmt: skip
"""What is summed up over rows."""


class Pressure(NamedTuple):
    """One row: what a rank or a node has lost, in seconds, NaN if unknown. steal: mean over the node's cores.

    compute, reading: what fixed work took on the node, times the length of the span. measured: that length where it is
    known, else 0. transfer, transferred: the same of the time in which a megabyte is in flight.
    """

    host: str
    rank: int
    began_at: float
    ended_at: float
    run: float
    delay: float
    stopped: float
    blocked: float
    faults: float
    memory: float
    swapped: float
    steal: float
    compute: float
    reading: float
    measured: float
    transfer: float
    transferred: float
    beside: Beside | None
    beside_seconds: float


def pressure(row: Mapping[str, Any], *, names_others: bool, ahead: float = 0.0) -> Pressure:
    """From a row of the log. names_others: whether to name processes of other users. ahead: of the node's clock, in
    seconds, which is subtracted from its times.
    """
    cores, span = max(int(row["cores"]), 1), float(row["ended_at"]) - float(row["began_at"])
    owner = str(row["process_of"])
    name = "" if owner == "other" and not names_others else str(row["process"])
    core, on = int(row["core"]), int(row["process_core"])
    return Pressure(
        host=str(row["host"]),
        rank=int(row["rank"]),
        began_at=float(row["began_at"]) - ahead,
        ended_at=float(row["ended_at"]) - ahead,
        run=float(row["run_seconds"]),
        delay=float(row["delay_seconds"]),
        stopped=float(row["stopped_seconds"]),
        blocked=float(row["blocked_seconds"]),
        faults=float(max(row["major_faults"], 0)),
        memory=float(row["memory_pressure"]) * span,
        swapped=float(max(row["swapped_pages"], 0)),
        steal=float(row["steal_seconds"]) / cores,
        compute=float(row["compute_seconds"]) * span,
        reading=float(row["memory_seconds"]) * span,
        measured=span if math.isfinite(row["compute_seconds"]) else 0.0,
        transfer=float(row["transfer_seconds"]) * span,
        transferred=span if math.isfinite(row["transfer_seconds"]) else 0.0,
        beside=Beside("" if name == "none" else name, owner, on, on == core) if owner != "none" else None,
        beside_seconds=float(row["process_seconds"]),
    )


class Sum:
    """Sums over the rows of one rank or node."""

    __slots__ = ("beside", *FIGURES, "unknown")

    def __init__(self) -> None:
        self.run = self.delay = self.stopped = self.blocked = 0.0
        self.faults = self.memory = self.swapped = self.steal = 0.0
        self.compute = self.reading = self.measured = self.transfer = self.transferred = 0.0
        self.unknown = False
        """Whether the kernel does not count delays."""
        self.beside: Counter[Beside] = Counter()
        """Processor time of the busiest processes beside it."""

    def add(self, row: Pressure) -> None:
        """Add a row."""
        self.unknown = self.unknown or math.isnan(row.delay)
        for name in FIGURES:
            value = getattr(row, name)
            if math.isfinite(value):
                setattr(self, name, getattr(self, name) + value)
        if row.beside is not None and math.isfinite(row.beside_seconds):
            self.beside[row.beside] += row.beside_seconds  # type: ignore[assignment]


_NOTHING: Final = Sum()


class Account:
    """Sums over rows of a time."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        """Known time of each node."""
        self.sums: dict[tuple[str, int], Sum] = {}

    def add(self, rows: Iterable[Pressure]) -> Account:
        """Add rows."""
        for row in rows:
            key = row.host, row.rank
            if not row.ended_at > row.began_at or (key not in self.sums and len(self.sums) >= RANKS):
                continue
            if row.rank == NODE:
                self.seconds[row.host] += row.ended_at - row.began_at  # type: ignore[assignment]
            self.sums.setdefault(key, Sum()).add(row)
        return self

    def joined(self, rows: Iterable[Pressure]) -> Account:
        """This and further rows."""
        both = Account()
        both.seconds = self.seconds.copy()
        for key, old in self.sums.items():
            both.sums[key] = copy = Sum()
            for name in Sum.__slots__:
                setattr(copy, name, getattr(old, name))
        return both.add(rows)

    def share(self, host: str, rank: int, figure: Callable[[Sum], float]) -> float:
        """A figure per second; 0 if the node was not known."""
        seconds = self.seconds[host]
        return figure(self.sums.get((host, rank), _NOTHING)) / seconds if seconds > 0 else 0.0


class Growth(NamedTuple):
    """The share of its time that a rank or node loses, now and before."""

    host: str
    rank: int
    now: float
    before: float

    @property
    def share(self) -> float:
        """How much it has grown."""
        return self.now - self.before

    @property
    def of_rest(self) -> float:
        """The same as a share of the time that was not lost before."""
        return self.share / (1 - self.before) if self.before < 1 else 0.0


class KernelAccount:
    """The rows of one job. usual_compute: what the fixed computation usually takes on a node, NaN if unknown."""

    def __init__(self, usual_compute: Callable[[str], float] = lambda host: math.nan) -> None:
        self.usual_compute = usual_compute
        self.count = 0
        """Rows so far."""
        self._before, self._first = Account(), Account()
        self._first_until = -math.inf
        self._recent: deque[Pressure] = deque()

    def add(self, row: Pressure, onset_at: float = math.inf) -> None:
        """Add the next row. onset_at: of an open alarm; later rows are not counted as normal."""
        self._first_until = row.began_at + BEGINNING if self.count == 0 else self._first_until
        self.count += 1
        self._recent.append(row)
        if row.ended_at <= self._first_until:
            self._first.add((row,))
        if len(self._recent) > RECENT:
            oldest = self._recent.popleft()
            if oldest.ended_at <= onset_at:
                self._before.add((oldest,))

    def explain(
        self,
        cause: Cause,
        onset_at: float,
        until: float,
        lost: float,
        earlier: Collection[tuple[float, float]] = (),
        nodes: int = 1,
    ) -> Cause:
        """A cause that kernels know for the time lost since `onset_at`, else `cause` with the nodes that show none.

        until: end of the disturbance. lost: share of its time that the job has lost. earlier: begin and end of earlier
        disturbances, which are not what was before. nodes: of the job. With g_r the growth of the share of its time
        that rank r loses to one kind of thing since the onset, that kind explains the loss if the largest g_r is
        MIN_SHARE or more, and their sum EXPLAINS of the loss: the job waits now for this rank, now for that one. The
        kind with the largest g_r is the cause. Where the others wait for nodes, only these count, and each of them must
        have lost MIN_SHARE: a kind that one of them does not show is not what they have in common. Of stops by signals,
        which may cost a job nothing until later, g_r is what has grown since the job's first rows, and EXPLAINS_STOPPED
        suffices. Where nobody on several nodes worked longer, or that is not known yet, no kind of IN_WORK is the
        cause, since ranks lose that time while they wait for others; nor where it is not known, and more than half of
        the nodes show it. That they waited for cores is then a number of the cause, with who took them; how much more,
        is taken of the time in which they did not wait before. A node that does fixed work in the time t, before in t0,
        loses the share 1 - t0 / t of all time, which is no reason that ranks sleep longer. Stragglers whose own work
        grew by computing, as `_computed` has it, are not named beside others.
        """
        quiet = (row for row in self._recent if not any(a <= _middle(row) <= b for a, b in earlier))
        before = self._before.joined(row for row in quiet if _is_before(row, onset_at))
        parts = (_within(row, onset_at, until, before) for row in self._recent if not _is_before(row, onset_at))
        during = Account().add(part for part in parts if part is not None)
        # Of a straggler that reports nothing yet, the others tell nothing.
        is_node = any(host in cause.members for host in [*before.seconds, *during.seconds])
        hosts = [host for host in during.seconds if host in cause.members or not is_node]
        kinds = {kind: list(found) for kind, found in _growths(before, during, hosts)}
        kinds["stopped"] = [
            one._replace(before=min(one.before, self._first.share(one.host, one.rank, lambda sums: sums.stopped)))
            for one in kinds["stopped"]
        ]
        kinds["compute"] = _slower(before, during, hosts, lambda one: one.compute, self.usual_compute)
        kinds["bandwidth"] = _slower(before, during, hosts, lambda one: one.reading)
        slower = {one.host for kind, least in MIN_SHARES.items() for one in kinds[kind] if one.share >= least}
        slept = {name: _slept(name, one, before, during) for name, one in cause.growths.items()}
        computed = {name: _computed(name, one, before, during, slower) for name, one in slept.items()}
        cause = _without(cause, [name for name in cause.members if computed.get(name)])
        worst = {kind: max(found, key=lambda one: one.share) for kind, found in kinds.items() if found}
        worst = {kind: one for kind, one in worst.items() if one.share >= MIN_SHARES.get(kind, MIN_SHARE)}
        doing = _doing(cause)
        if doing and all(slept[name] for name in doing):
            worst = {kind: one for kind, one in worst.items() if kind not in MIN_SHARES}
        counted = [kind for kind in kinds if kind not in MIN_SHARES]
        shown = {*worst, *(kind for kind in counted if any(one.of_rest >= MIN_SHARE for one in kinds[kind]))}
        nodes = max(nodes, len(during.seconds))
        several = nodes > 1
        nobody = cause.kind in ("network", "link") or not {"nodes_compared", "as_before"}.isdisjoint(cause.numbers)
        if several and nobody:
            worst = {kind: one for kind, one in worst.items() if kind not in IN_WORK}
        if several and cause.kind == "unknown":
            # Where all ranks wait for cores, as those do that spin while they wait for others, no node is to blame.
            worst = {kind: one for kind, one in worst.items() if kind not in IN_WORK or _is_of_few(kinds[kind], nodes)}
        if several and cause.kind == "straggler":
            worst = {kind: one for kind, one in worst.items() if _is_everywhere(kinds[kind], cause.members)}
        # What is counted comes before what fixed work tells: who takes a core or swaps uses caches and memory as well.
        for kind in sorted(worst, key=lambda kind: (kind in MIN_SHARES, -worst[kind].share)):
            total = _total(kinds[kind])
            # Work that is slower by itself is lost on each node alike, and not in turn.
            least = EXPLAINS_STOPPED if kind == "stopped" else EXPLAINS
            if (worst[kind].share if kind in MIN_SHARES else total) >= least * lost:
                found = _cause(kind, kinds[kind], during, nodes)
                return replace(found, members=cause.members) if several and cause.kind == "straggler" else found
        cause = _by_transfers(cause, before, during, nodes)
        numbers, beside = cause.numbers, None
        more = math.fsum(max(one.of_rest, 0.0) for one in kinds["core"])
        if "core" in shown and "core" not in worst and more >= EXPLAINS * lost:
            found = _cause("core", kinds["core"], during, nodes)
            waited = found.numbers["waited"], found.numbers["waited_before"], float(len(found.members))
            numbers = {**numbers, **dict(zip(CORE_NUMBERS, waited, strict=True))}
            beside = found.beside if found.beside is not None and found.beside.owner != "rank" else None
        silent = [host for host in hosts if during.seconds[host] >= COVERED and not during.sums[host, NODE].unknown]
        return replace(
            cause,
            numbers=numbers,
            beside=beside,
            silent=() if shown or "transfer" in numbers else tuple(sorted(silent)),
            computed=_have_computed(cause, computed),
        )


def _by_transfers(cause: Cause, before: Account, during: Account, nodes: int) -> Cause:
    """The cause where waiting has grown, by the nodes whose data is in flight TRANSFER times as long as before.

    Nodes count that have the square root of the largest factor. Of these, those are named that the time of messages
    suggests, else the only one: what a busy peer acknowledges late is in flight for longer too. Where there is no such
    one, or they are more than half of the nodes, it is the network. Nodes of three or more without a row are as before,
    since they would have written one by the time that the slowest has COVERED. Where that is not known of all that have
    rows, or nothing has grown, the cause remains.
    """
    if cause.kind not in ("network", "link") or nodes < 2:
        return cause
    found = {}
    for host in during.seconds:
        now, was = (account.sums.get((host, NODE), _NOTHING) for account in (during, before))
        if min(now.transfer, was.transfer) > 0:
            found[host] = now.transfer / now.transferred, was.transfer / was.transferred
    factors = {host: since / usual for host, (since, usual) in found.items()}
    worst = max(factors.values(), default=0.0)
    if len(found) < len(during.seconds) or worst < TRANSFER:
        return cause
    slowest = max(factors, key=lambda host: factors[host])
    if len(found) < nodes and (nodes < 3 or during.sums[slowest, NODE].transferred < COVERED):
        return cause
    slow = [host for host, factor in factors.items() if factor >= math.sqrt(worst)]
    named = tuple(name for name in cause.members if name in slow) or tuple(slow[:1])
    if len(slow) > nodes / 2 or (len(slow) > 1 and named[0] not in cause.members):
        return replace(cause, kind="network", members=("all",))
    since, usual = found[named[0]]
    return replace(cause, kind="link", members=named, numbers={**cause.numbers, "transfer": since, "usual": usual})


def _computed(name: str, slept: bool | None, before: Account, during: Account, slower: Collection[str]) -> bool | None:
    """Whether the own work of a node's ranks grew by computing: they sleep no longer, and fixed work takes no longer.

    None where that is not known. name: of the node, empty for the only one. slept: of it, as `_slept` has it. slower:
    nodes that do fixed work slower.
    """
    host = name or next(iter(during.seconds), "")
    if min(before.seconds[host], during.seconds[host]) < COMPUTED:
        return None
    sums = [account.sums.get((host, NODE), _NOTHING) for account in (before, during)]
    if host in slower or min(one.measured for one in sums) <= 0:
        return False
    return slept is False


def _slept(name: str, growth: OwnGrowth, before: Account, during: Account) -> bool | None:
    """Whether the own work of a node's ranks grew by sleeping; None where it is not known how long they are awake."""
    host = name or next(iter(during.seconds), "")
    known = before.seconds[host], during.seconds[host]
    sums = [account.sums.get((host, NODE), _NOTHING) for account in (before, during)]
    if min(known) < COMPUTED or min(one.run for one in sums) <= 0:
        return None
    awake = [(one.run + one.delay) / seconds for one, seconds in zip(sums, known, strict=True)]
    was, now = (max(growth.ranks - ranks, 0.0) for ranks in awake)
    return now * growth.now - was * growth.before >= ASLEEP * growth.seconds


def _doing(cause: Cause) -> list[str]:
    """The nodes that do more: those named, or all that have SHARE of the largest growth."""
    limit = SHARE * max((one.seconds for one in cause.growths.values()), default=0.0)
    named = [name for name in cause.members if name in cause.growths]
    return named or [name for name, one in cause.growths.items() if one.seconds >= limit > 0]


def _have_computed(cause: Cause, computed: Mapping[str, bool | None]) -> bool | None:
    """The same of all nodes that do more."""
    found = [computed[name] for name in _doing(cause)]
    if False in found or not found:
        return False
    return None if None in found else True


def _without(cause: Cause, names: Collection[str]) -> Cause:
    """The cause without these members, if others remain."""
    rest = tuple(name for name in cause.members if name not in names)
    if cause.kind != "straggler" or not names or not rest:
        return cause
    more = {"own": max(cause.growths[name].most for name in rest)} if set(rest) <= cause.growths.keys() else {}
    return replace(cause, members=rest, numbers={**cause.numbers, **more})


def _total(growths: Iterable[Growth]) -> float:
    return math.fsum(one.share for one in growths if one.share > 0)


def _is_everywhere(growths: Iterable[Growth], hosts: Collection[str]) -> bool:
    """Whether each of these nodes, or a rank on it, has lost MIN_SHARE more of its time."""
    return set(hosts) <= {one.host for one in growths if one.share >= MIN_SHARE}


def _is_of_few(growths: Collection[Growth], nodes: int) -> bool:
    """Whether at most half of the nodes have lost ALIKE of what the worst has lost."""
    limit = ALIKE * max(one.share for one in growths)
    return len({one.host for one in growths if one.share >= limit}) <= nodes / 2


def _middle(row: Pressure) -> float:
    return 0.5 * (row.began_at + row.ended_at)


def _is_before(row: Pressure, onset_at: float) -> bool:
    """Whether a row is one of the time before the disturbance."""
    return row.ended_at - onset_at < max(MIN_OVERLAP, MOST_AFTER * (row.ended_at - row.began_at))


def _within(row: Pressure, onset_at: float, until: float, before: Account) -> Pressure | None:
    """What a row has lost within a disturbance; None if they overlap by less than MIN_OVERLAP.

    A span may begin before the disturbance and end after it. Outside of it the usual is lost, and the rest within.
    """
    began_at, ended_at = max(row.began_at, onset_at), min(row.ended_at, until)
    inside = ended_at - began_at
    if inside < MIN_OVERLAP:
        return None
    span = row.ended_at - row.began_at
    if inside >= span:
        return row

    def rest(value: float, figure: Callable[[Sum], float]) -> float:
        return max(value - before.share(row.host, row.rank, figure) * (span - inside), 0.0)

    return row._replace(
        began_at=began_at,
        ended_at=ended_at,
        run=rest(row.run, lambda one: one.run),
        delay=min(rest(row.delay, lambda one: one.delay), inside),
        stopped=min(rest(row.stopped, lambda one: one.stopped), inside),
        blocked=min(rest(row.blocked, lambda one: one.blocked), inside),
        memory=min(rest(row.memory, lambda one: one.memory), inside),
        steal=min(rest(row.steal, lambda one: one.steal), inside),
        faults=rest(row.faults, lambda one: one.faults),
        swapped=rest(row.swapped, lambda one: one.swapped),
        compute=row.compute * inside / span,
        reading=row.reading * inside / span,
        measured=row.measured * inside / span,
        transfer=row.transfer * inside / span,
        transferred=row.transferred * inside / span,
        beside_seconds=min(row.beside_seconds, inside),
    )


def _growths(before: Account, during: Account, hosts: Collection[str]) -> Iterator[tuple[Kind, Iterator[Growth]]]:
    """Each kind of cause with the growth of its figure, by rank or node."""
    ranks = [key for key in during.sums if key[0] in hosts and key[1] != NODE]
    nodes = [key for key in during.sums if key[0] in hosts and key[1] == NODE]
    short = {
        key
        for key in [*ranks, *nodes]
        if during.share(*key, lambda one: one.faults) >= FAULTS
        or (key[1] == NODE and during.share(*key, lambda one: one.swapped) >= SWAPPED)
    }

    def growths(keys: Iterable[tuple[str, int]], figure: Callable[[Sum], float]) -> Iterator[Growth]:
        return (Growth(*key, during.share(*key, figure), before.share(*key, figure)) for key in keys)

    yield "stopped", growths(ranks, lambda one: one.stopped)
    yield "core", growths(ranks, lambda one: one.delay)
    # Who reads pages from a disk is blocked meanwhile.
    yield (
        "memory",
        growths(
            [*(key for key in ranks if key in short), *(key for key in nodes if key in short)],
            lambda one: max(one.blocked, one.faults * FAULT_SECONDS, one.memory),
        ),
    )
    yield "disk", growths((key for key in ranks if key not in short), lambda one: one.blocked)
    yield "steal", growths(nodes, lambda one: one.steal)


def _slower(
    before: Account,
    during: Account,
    hosts: Collection[str],
    figure: Callable[[Sum], float],
    usual: Callable[[str], float] = lambda host: math.nan,
) -> list[Growth]:
    """The share of its time that each node loses because fixed work takes longer there than before, or than usual."""
    found = []
    for host in hosts:
        sums = (account.sums.get((host, NODE), _NOTHING) for account in (during, before))
        now, was = (figure(one) / one.measured if one.measured > 0 else 0.0 for one in sums)
        was = was or usual(host)
        if now > 0 and was > 0:
            found.append(Growth(host, NODE, 1 - was / now, 0.0))
    return found


def _taker(beside: Mapping[Beside, float]) -> Beside:
    """Who takes the cores, by processor time: ranks that were driven away by another process are beside each other."""
    foreign = [one for one in beside if one.owner != "rank"]
    most = max((beside[one] for one in foreign), default=0.0)
    among = foreign if most >= ALIKE * max(beside.values()) > 0 else beside
    return max(among, key=lambda one: (one.shares_core, beside[one], one.name))


def _cause(kind: Kind, growths: list[Growth], during: Account, nodes: int) -> Cause:
    """The cause in the form of other causes: members are ranks on one node, else nodes."""
    ordered = sorted(growths, key=lambda one: -one.share)
    worst = ordered[0]
    alike = [one for one in ordered if one.share >= ALIKE * worst.share]
    if any(one.rank != NODE for one in alike):
        alike = [one for one in alike if one.rank != NODE]
    names = [one.host if nodes > 1 or one.rank == NODE else f"rank {one.rank}" for one in alike]
    worst = alike[0]
    sums = during.sums[worst.host, worst.rank]
    seconds = during.seconds[worst.host]
    numbers = {"waited": worst.now, "waited_before": worst.before, "members": float(len(alike))}
    if worst.rank != NODE:
        numbers["rank"] = float(worst.rank)
    if kind == "memory":
        numbers |= {"faults": sums.faults / seconds}
        numbers |= {"swapped": during.sums[worst.host, NODE].swapped / seconds}
    beside = None
    if kind == "core" and sums.beside:
        beside = _taker(sums.beside)
    return Cause(kind, tuple(dict.fromkeys(names)), numbers, None, beside, (), worst.host)
