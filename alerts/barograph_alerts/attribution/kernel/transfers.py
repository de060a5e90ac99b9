"""Slow links, by how long data is in flight."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from barograph_alerts.attribution.cause import Cause
from barograph_alerts.attribution.kernel.account import Account

TRANSFER: Final = 3.0
"""Data of a node with a slow link is in flight so many times as long as before, at least."""
BUSY_TRANSFER: Final = 30.0
"""The same where ranks have waited more for cores: who is on no core reads no messages."""
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
        if min(now.transfer, was.transfer) > 0:
            found[host] = now.transfer / now.transferred, was.transfer / was.transferred
    factors = {host: since / usual for host, (since, usual) in found.items()}
    worst = max(factors.values(), default=0.0)
    if len(found) < len(during.seconds) or worst < least:
        return cause
    slowest = max(factors, key=lambda host: factors[host])
    if len(found) < nodes and (nodes < 3 or during.node(slowest).transferred < COVERED):
        return cause
    slow = [host for host, factor in factors.items() if factor >= math.sqrt(worst)]
    longest = max(found[host][0] for host in slow)
    longer = [host for host in slow if TRANSFER * found[host][0] > longest]
    named = tuple(name for name in cause.members if name in longer) or tuple(longer[:1])
    if len(slow) > nodes / 2 or (len(longer) > 1 and named[0] not in cause.members):
        return replace(cause, kind="network", members=("all",))
    since, usual = found[named[0]]
    return replace(cause, kind="link", members=named, numbers={**cause.numbers, "transfer": since, "usual": usual})
