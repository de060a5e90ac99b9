"""Why a job is slow, in words."""

from __future__ import annotations

import math
from typing import Final, assert_never

from barograph_alerts.attribution import cause as reasons
from barograph_alerts.attribution.cause import ALL, Beside, Cause, KernelLoss

MEMBERS: Final = 3  # names listed in a sentence; further ones are counted
LONGER: Final = 1.1  # updates of a worker that are told
NAME_LIMIT: Final = 32
_OWNERS: Final = {"same": "of the same user", "other": "of another user"}


def clause(cause: Cause, phase: str = "", unit: str = "sync point") -> str:
    """A clause about a cause, with the colon before it, and what kernels show beside it; empty without either.

    phase: name of the slow class, if one is. unit: what ends an interval.
    """
    why = reason(cause, phase, unit)
    shown = "" if isinstance(cause.reason, KernelLoss) else beside(cause)
    words = ", ".join(filter(None, (why, shown)))
    return f": {words}" if words else ""


def reason(cause: Cause, phase: str, unit: str) -> str:  # noqa: PLR0911 (each reason has its words)
    """The reason in words; empty where there is none. phase, unit: as in `clause`."""
    names = _names(cause)
    match cause.reason:
        case reasons.LongerWork(own, reference, worker, update):
            if worker is not None:
                names = f"worker {worker}" + ("" if names.startswith("rank ") else f" on {names}")
            than = ", the others waited" if reference == "before" else f" than {reference}"
            updates = f", and updated {update:.2f}x as long" if update >= LONGER else ""
            return f"{names} worked {_longer(own, unit)}{than}{updates}"
        case reasons.MoreWork(own):
            who = "all ranks" if cause.members == ALL else names
            return f"{who} computed {_longer(own, unit)}, at the same speed as far as counters show"
        case reasons.LongerWaits(wait):
            return f"waiting grew by {1e3 * wait:.3g} ms per {unit}, nobody's own work did"
        case reasons.SlowMessages(p2p=p2p):
            return f"{_link(cause)}: messages took {_longer(p2p, unit)}, nobody's own work did"
        case reasons.SlowTransfers(now, usual):
            return f"{_link(cause)}: a megabyte was in flight for {1e3 * now:.3g} ms, {1e3 * usual:.3g} ms before"
        case reasons.BadLink(errors, errors_peers, rate, usual):
            rates = f"at {1e-9 * rate:.3g} Gbit/s, usually {1e-9 * usual:.3g}" if rate < usual else ""
            counts = f"{errors:.3g} errors a second, {errors_peers:.3g} on other nodes" if errors > errors_peers else ""
            return f"{_link(cause)}: {', '.join(filter(None, (rates, counts)))}"
        case reasons.SlowPhase(share=share):
            words = f"{share:.0%} of the lost time in {phase or 'one phase'}"
            return ", ".join(filter(None, (words, _uncompared(cause))))
        case reasons.AllSlow(own, as_before):
            return "all ranks together" if as_before or math.isfinite(own) else _uncompared(cause)
        case reasons.KernelLoss():
            return _loss(cause, cause.reason)
        case reasons.Unknown() | reasons.NoProgress():
            return _uncompared(cause)
        case never:
            assert_never(never)


def _loss(cause: Cause, loss: KernelLoss) -> str:
    share, before = loss.waited, _more_than(loss.waited_before)
    words = {
        "core": f"waited {share:.0%} of its time for a core{before}{_taker(cause.beside)}",
        "stopped": f"was stopped by a signal for {share:.0%} of its time",
        "disk": f"waited {share:.0%} of its time for a disk or a file system{before}",
        "memory": f"waited {share:.0%} of its time for memory{before}{_paging(loss)}",
        "steal": f"had {share:.0%} of its cores taken by the hypervisor",
        "throttled": f"ran at {_clocks(loss, 'throttled {:.0f} times')}",
        "accelerator": f"had an accelerator at {_clocks(loss, '{:.0f} errors')}",
    }
    on = "" if cause.members and cause.members[0].startswith("rank ") else f" on {loss.host}"
    name = loss.host if loss.rank is None else f"rank {loss.rank}{on}"
    more = f" (and {loss.members - 1} more)" if loss.members > 1 else ""
    return f"{name}{more} {words[loss.kind]}"


def beside(cause: Cause) -> str:
    """A clause about what kernels show besides the cause, or that they show no reason; empty without either."""
    if cause.cores is not None and cause.cores.core_waited > 0:
        share, was, nodes = cause.cores
        where = {0: "", 1: " on 1 node"}.get(nodes, f" on {nodes} nodes")
        before = _more_than(was)
        return f"ranks{where} waited up to {share:.0%} of their time for a core{before}{_taker(cause.beside)}"
    if cause.memory_errors:
        return f"beside {cause.memory_errors:.0f} errors of memory"
    match cause.silent:
        case ():
            return ""
        case (host,):
            return f"the kernel of {host} shows no reason"
    return f"the kernels of {len(cause.silent)} nodes show no reason"


def _longer(seconds: float, unit: str) -> str:
    return f"{1e3 * seconds:.3g} ms longer per {unit}" if seconds > 0 else "longer"


def _names(cause: Cause) -> str:
    more = f" and {len(cause.members) - MEMBERS} more" if len(cause.members) > MEMBERS else ""
    return ", ".join(cause.members[:MEMBERS]) + more


def _link(cause: Cause) -> str:
    return f"the link of {_names(cause)}" if len(cause.members) == 1 else f"a link of {_names(cause)}"


def _uncompared(cause: Cause) -> str:
    """A clause about nodes without which the cause is not known; empty if there are none."""
    if cause.uncompared is None:
        return ""
    nodes, compared = cause.uncompared
    lacking = f"{nodes - compared} of {nodes}" if compared else f"{nodes}"
    return f"nodes could not be compared: no common sync points of {lacking} before and since then"


def _more_than(before: float) -> str:
    return f", {before:.0%} before" if before >= 0.01 else ""


def _taker(beside: Beside | None) -> str:
    if beside is None:
        return ""
    if beside.owner == "rank":
        return f": rank {beside.name[:NAME_LIMIT]} runs on core {beside.core} too"
    owner = _OWNERS.get(beside.owner, "")
    if not beside.name:
        return f": a process {owner} runs on core {beside.core}"
    return f": `{beside.name[:NAME_LIMIT]}` {owner} runs on core {beside.core}"


def _clocks(loss: KernelLoss, events: str) -> str:
    before = f", {1e-9 * loss.clock_before_hz:.2f} GHz before" if loss.clock_before_hz > 0 else ""
    peers = f", other nodes at {1e-9 * loss.clock_peers_hz:.2f} GHz" if loss.clock_peers_hz > 0 else ""
    heat = f", {loss.celsius:.0f} degrees" if loss.celsius > 0 else ""
    counted = f", {events.format(loss.events)}" if loss.events > 0 else ""
    return f"{1e-9 * loss.clock_hz:.2f} GHz{before}{peers}{heat}{counted}"


def _paging(loss: KernelLoss) -> str:
    found = [f"{loss.faults:.0f} pages a second read from a disk"] if loss.faults >= 1 else []
    found += [f"{loss.swapped:.0f} swapped"] if loss.swapped >= 1 else []
    return f" ({', '.join(found)})" if found else ""
