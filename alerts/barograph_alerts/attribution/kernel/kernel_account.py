"""What the kernels of a job's nodes know of the time lost since an onset, from rows of `pressures`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from barograph_alerts.attribution.cause import (
    AllSlow,
    BadLink,
    Cause,
    CoreWaits,
    KernelKind,
    KernelLoss,
    SlowTransfers,
    in_network,
)
from barograph_alerts.attribution.kernel.account import MIN_OVERLAP, Account, middle, within
from barograph_alerts.attribution.kernel.computing import (
    doing_more,
    has_computed,
    has_slept,
    have_computed,
    without_members,
)
from barograph_alerts.attribution.kernel.losses import (
    CLOCKS,
    MIN_SHARE,
    MIN_SHARES,
    Growth,
    by_kind,
    is_everywhere,
    is_of_few,
    loss_cause,
    slower_nodes,
    total_share,
)
from barograph_alerts.attribution.kernel.pressure import NODE, Pressure
from barograph_alerts.attribution.kernel.transfers import BUSY_TRANSFER, COVERED, TRANSFER, by_links, by_transfers

RECENT: Final = 1024
"""Newest rows kept one by one, since an onset is detected some time later."""
EXPLAINS: Final = 0.5
"""Least share of the lost time that the ranks have lost to it, together."""
EXPLAINS_STOPPED: Final = 0.3
"""The same of stops by signals, which nothing about a program brings about."""
BEGINNING: Final = 15.0
"""Seconds from the first row on in which it is seen whether a job's ranks are stopped as a rule."""
IN_WORK: Final = frozenset({"core", "steal", "throttled", "accelerator"})
"""Kinds that delay the other nodes only where they make own work longer."""


class KernelAccount:
    """The rows of one job."""

    def __init__(self) -> None:
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
        is taken of the time in which they did not wait before. A node whose cores run at the clock f, before at f0,
        loses the share 1 - f / f0 of all time, which is no reason that ranks sleep longer. Stragglers whose own work
        grew by computing, as `has_computed` has it, are not named beside others.
        """
        before, during = self._around(onset_at, until, earlier)
        nodes = max(nodes, len(during.seconds))
        # Of a straggler that reports nothing yet, the others tell nothing. A link is only suspected: who waits for a
        # stopped rank waits in messages.
        is_node = cause.kind == "straggler" and any(
            host in cause.members for host in [*before.seconds, *during.seconds]
        )
        hosts = [host for host in during.seconds if host in cause.members or not is_node]
        kinds = self._kinds(before, during, hosts)
        slower = {one.host for kind, least in MIN_SHARES.items() for one in kinds[kind] if one.share >= least}
        slept = {name: has_slept(name, one, before, during) for name, one in cause.growths.items()}
        computed = {name: has_computed(name, one, before, during, slower) for name, one in slept.items()}
        cause = without_members(cause, [name for name in cause.members if computed.get(name)])
        worst = {kind: max(one.share for one in found) for kind, found in kinds.items() if found}
        likely = [kind for kind, share in worst.items() if share >= MIN_SHARES.get(kind, MIN_SHARE)]
        doing = doing_more(cause)
        if doing and all(slept[name] for name in doing):
            likely = [kind for kind in likely if kind != "throttled"]  # a rank may sleep until its accelerator is done
        counted = [kind for kind in kinds if kind not in MIN_SHARES]
        shown = {*likely, *(kind for kind in counted if any(one.of_rest >= MIN_SHARE for one in kinds[kind]))}
        if nodes > 1:
            likely = [kind for kind in likely if _may_be(kind, kinds[kind], cause, nodes)]
        # What is counted comes before clocks: these fall with what a program does as well.
        for kind in sorted(likely, key=lambda kind: (kind in MIN_SHARES, -worst[kind])):
            # What slower cores lose is lost on each node alike, and not in turn.
            explained = worst[kind] if kind in MIN_SHARES else total_share(kinds[kind])
            if explained >= (EXPLAINS_STOPPED if kind == "stopped" else EXPLAINS) * lost:
                found = loss_cause(kind, kinds[kind], before, during, nodes)
                return replace(found, members=cause.members) if nodes > 1 and cause.kind == "straggler" else found
        more = math.fsum(max(one.of_rest, 0.0) for one in kinds["core"])
        waited = "core" in shown and "core" not in likely and more >= EXPLAINS * lost
        by_flight = by_transfers(cause, before, during, nodes, BUSY_TRANSFER if waited else TRANSFER)
        cause = by_links(cause, before, during, nodes) or by_flight
        if waited:
            cause = _with_cores(cause, loss_cause("core", kinds["core"], before, during, nodes), nodes)
        silent = [host for host in hosts if during.seconds[host] >= COVERED and not during.sums[host, NODE].unknown]
        errors = math.fsum(during.node(host)["memory_errors"] for host in hosts)
        return replace(
            cause,
            memory_errors=errors,
            silent=()
            if shown or errors or isinstance(cause.reason, SlowTransfers | BadLink)
            else tuple(sorted(silent)),
            computed=have_computed(cause, computed),
        )

    def _around(
        self, onset_at: float, until: float, earlier: Collection[tuple[float, float]]
    ) -> tuple[Account, Account]:
        """What was before a disturbance, and what since.

        Of a node whose first row is a long one of a quiet time, what it has for the most part counts as before.
        """
        quiet = [row for row in self._recent if not any(a <= middle(row) <= b for a, b in earlier)]
        ended = [row for row in quiet if row.ended_at - onset_at < MIN_OVERLAP]
        known = {*self._before.seconds, *(row.host for row in ended)}
        first = [row for row in quiet if row.host not in known and middle(row) < onset_at]
        before = self._before.joined([*ended, *first])
        parts = (within(row, onset_at, until, before) for row in self._recent if row not in first)
        return before, Account().add(part for part in parts if part is not None)

    def _kinds(self, before: Account, during: Account, hosts: Collection[str]) -> dict[KernelKind, list[Growth]]:
        """What each kind of loss has grown by, on ranks or nodes."""
        kinds = {kind: list(found) for kind, found in by_kind(before, during, hosts)}
        kinds["stopped"] = [
            one._replace(before=min(one.before, self._first.share(one.host, one.rank, lambda sums: sums["stopped"])))
            for one in kinds["stopped"]
        ]
        # Where nothing is known of before and nobody is seen to take the cores, that ranks wait for them may be usual.
        kinds["core"] = [
            one for one in kinds["core"] if before.seconds[one.host] > 0 or during.sums[one.host, one.rank].beside
        ]
        kinds |= {kind: slower_nodes(gauge, before, during, hosts) for kind, gauge in CLOCKS.items()}
        return kinds


def _may_be(kind: KernelKind, growths: Collection[Growth], cause: Cause, nodes: int) -> bool:
    """Whether a kind of loss may be why a job on several nodes is slow."""
    if kind in IN_WORK:
        as_before = isinstance(cause.reason, AllSlow) and cause.reason.as_before
        nobody = cause.kind in ("network", "link") or cause.uncompared is not None or as_before
        # Where all ranks wait for cores, as those do that spin while they wait for others, no node is to blame.
        if nobody or (cause.kind == "unknown" and not is_of_few(growths, nodes)):
            return False
    return cause.kind != "straggler" or is_everywhere(growths, cause.members)


def _with_cores(cause: Cause, cores: Cause, nodes: int) -> Cause:
    """A cause beside which ranks waited for cores; without flights no link, for who is on no core reads no messages."""
    assert isinstance(cores.reason, KernelLoss)
    waits = CoreWaits(cores.reason.waited, cores.reason.waited_before, len(cores.members) if nodes > 1 else 0)
    beside = cores.beside if cores.beside is not None and cores.beside.owner != "rank" else None
    return replace(in_network(cause), cores=waits, beside=beside)
