"""What kernels know of a slowdown, in words."""

from __future__ import annotations

from barograph_alerts.attribution.cause import Beside, Cause

NAME_LIMIT = 32
_OWNERS = {"same": "of the same user", "other": "of another user"}


def known(cause: Cause) -> str:
    """A clause about a cause that a kernel knows; empty for other causes."""
    share = cause.numbers.get("waited", 0.0)
    times = 1 / (1 - min(share, 0.99))
    words = {
        "core": f"waited {share:.0%} of its time for a core{_before(cause)}{_taker(cause.beside)}",
        "stopped": f"was stopped by a signal for {share:.0%} of its time",
        "disk": f"waited {share:.0%} of its time for a disk or a file system{_before(cause)}",
        "memory": f"waited {share:.0%} of its time for memory{_before(cause)}{_paging(cause)}",
        "steal": f"had {share:.0%} of its cores taken by the hypervisor",
        "compute": f"did fixed work in {times:.2f} times the time: its cores are slower",
        "bandwidth": f"read memory in {times:.2f} times the time",
    }
    return f"{_who(cause)} {words[cause.kind]}" if cause.kind in words else ""


def beside(cause: Cause) -> str:
    """A clause about what kernels show besides the cause, or that they show no reason; empty without either."""
    if (share := cause.numbers.get("core_waited", 0.0)) > 0:
        nodes = int(cause.numbers["core_nodes"])
        where = {0: "", 1: " on 1 node"}.get(nodes, f" on {nodes} nodes")
        before = _more_than(cause.numbers["core_waited_before"])
        return f"ranks{where} waited up to {share:.0%} of their time for a core{before}{_taker(cause.beside)}"
    match cause.silent:
        case ():
            return ""
        case (host,):
            return f"the kernel of {host} shows no reason"
    return f"the kernels of {len(cause.silent)} nodes show no reason"


def _who(cause: Cause) -> str:
    """The worst rank or node, and how many more."""
    rank = cause.numbers.get("rank")
    on = "" if cause.members and cause.members[0].startswith("rank ") else f" on {cause.host}"
    name = cause.host if rank is None else f"rank {rank:.0f}{on}"
    more = int(cause.numbers.get("members", 1)) - 1
    return f"{name} (and {more} more)" if more > 0 else name


def _before(cause: Cause) -> str:
    """What was usual, unless it was next to nothing."""
    return _more_than(cause.numbers.get("waited_before", 0.0))


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


def _paging(cause: Cause) -> str:
    faults, swapped = cause.numbers.get("faults", 0.0), cause.numbers.get("swapped", 0.0)
    found = []
    if faults >= 1:
        found.append(f"{faults:.0f} pages a second read from a disk")
    if swapped >= 1:
        found.append(f"{swapped:.0f} swapped")
    return f" ({', '.join(found)})" if found else ""
