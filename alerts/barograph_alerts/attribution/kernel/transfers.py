"""Slow links, by how long data is in flight, and by what their counters show."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import Final

from barograph_alerts.attribution.cause import BadLink, Cause, SlowTransfers, in_network
from barograph_alerts.attribution.kernel.account import Account
from barograph_alerts.attribution.kernel.losses import beside_peers
from barograph_alerts.attribution.kernel.pressure import NODE

TRANSFER: Final = 3.0
"""Data of a node with a slow link is in flight so many times as long as before, at least."""
BUSY_TRANSFER: Final = 30.0
"""The same where ranks have waited more for cores: who is on no core reads no messages."""
MIN_ERRORS: Final = 1.0
ERRORS: Final = 10.0
"""A link is bad that has MIN_ERRORS a second more than before, and ERRORS times as many as that of the median peer."""
LOWER_RATE: Final = 0.9
"""The same of one whose rate is lower by this factor than before, or else than that of the median peer."""
COVERED: Final = 4.0
"""Seconds after the onset that must be known before a kernel is said to show nothing."""


def by_transfers(cause: Cause, before: Account, during: Account, nodes: int, least: float) -> Cause:
    """The cause where waiting has grown, by the nodes whose data is in flight `least` times as long as before.

    Nodes count that have the square root of the largest factor. Where they are more than half of the nodes, it is the
    network. Of these, those count whose data is in flight for more than a TRANSFERth of the longest time, and are named
    if the time of messages suggests them, or if it is only one: what a busy peer acknowledges late is in flight for
    longer too. Else it is the network. Nodes of three or more without a row are as before, since they would have
    written one by the time that the slowest has COVERED. Where that is not known of all that have rows, or nothing has
    grown, the cause remains.
    """
    if cause.kind not in ("network", "link") or nodes < 2:
        return cause
    found = {}
    for host in during.seconds:
        now, was = (account.node(host) for account in (during, before))
        if min(now["transfer_seconds"], was["transfer_seconds"]) > 0:
            found[host] = now.mean("transfer_seconds"), was.mean("transfer_seconds")
    factors = {host: since / usual for host, (since, usual) in found.items()}
    worst = max(factors.values(), default=0.0)
    if len(found) < len(during.seconds) or worst < least:
        return cause
    slowest = max(factors, key=lambda host: factors[host])
    if len(found) < nodes and (nodes < 3 or during.node(slowest)["known transfer_seconds"] < COVERED):
        return cause
    slow = [host for host, factor in factors.items() if factor >= math.sqrt(worst)]
    longest = max(found[host][0] for host in slow)
    longer = [host for host in slow if TRANSFER * found[host][0] > longest]
    named = tuple(name for name in cause.members if name in longer) or tuple(longer[:1])
    if len(slow) > nodes / 2 or (len(longer) > 1 and named[0] not in cause.members):
        return in_network(cause)
    since, usual = found[named[0]]
    return replace(cause, reason=SlowTransfers(since, usual), members=named)


def by_links(cause: Cause, before: Account, during: Account, nodes: int) -> Cause | None:
    """The cause where waiting has grown, and counters show that the links of one node are bad; None else."""
    if cause.kind not in ("network", "link") or nodes < 2:
        return None
    errors = {host: during.share(host, NODE, lambda one: one["link_errors"]) for host in during.seconds}
    found = []
    for host, now in errors.items():
        peers = [errors[name] for name in errors if name != host]
        usual = median(peers) if peers else 0.0
        rate, was, others = beside_peers("link_rate", host, before, during)
        expected = was if was > 0 else others
        more = now - before.share(host, NODE, lambda one: one["link_errors"])
        if (more >= MIN_ERRORS and now >= ERRORS * usual) or rate < LOWER_RATE * expected:
            found.append((host, BadLink(now, usual, rate, expected)))
    return replace(cause, reason=found[0][1], members=(found[0][0],)) if len(found) == 1 else None
