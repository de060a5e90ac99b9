"""Whether own work grew by computing or by sleeping, as far as kernels show it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from barograph_alerts.attribution.cause import SHARE, Cause, LongerWork, OwnGrowth
from barograph_alerts.attribution.kernel.account import Account

COMPUTED: Final = 2.0
"""The same before it is said that own work grew by computing, and seconds before the onset."""
ASLEEP: Final = 0.5
"""Own work grew by computing if ranks sleep longer by less than this share of its growth, else by sleeping."""


def has_computed(
    name: str, slept: bool | None, before: Account, during: Account, slower: Collection[str]
) -> bool | None:
    """Whether own work of a node's ranks grew by computing: they sleep no longer, and no slower core is known of.

    None where they are not known for long enough. name: of the node, empty for the only one. slept: as of `has_slept`.
    slower: nodes whose cores or accelerators are slower.
    """
    host = name or next(iter(during.seconds), "")
    if min(before.seconds[host], during.seconds[host]) < COMPUTED:
        return None
    return host not in slower and slept is False


def has_slept(name: str, growth: OwnGrowth, before: Account, during: Account) -> bool | None:
    """Whether the own work of a node's ranks grew by sleeping; None where it is not known how long they are awake."""
    host = name or next(iter(during.seconds), "")
    known = before.seconds[host], during.seconds[host]
    sums = [account.node(host) for account in (before, during)]
    if min(known) < COMPUTED or min(one["run"] for one in sums) <= 0:
        return None
    awake = [(one["run"] + one["delay"]) / seconds for one, seconds in zip(sums, known, strict=True)]
    was, now = (max(growth.ranks - ranks, 0.0) for ranks in awake)
    return now * growth.now - was * growth.before >= ASLEEP * growth.seconds


def doing_more(cause: Cause) -> list[str]:
    """The nodes that do more: those named, or all that have SHARE of the largest growth."""
    limit = SHARE * max((one.seconds for one in cause.growths.values()), default=0.0)
    named = [name for name in cause.members if name in cause.growths]
    return named or [name for name, one in cause.growths.items() if one.seconds >= limit > 0]


def have_computed(cause: Cause, computed: Mapping[str, bool | None]) -> bool | None:
    """The same of all nodes that do more."""
    found = [computed[name] for name in doing_more(cause)]
    if False in found or not found:
        return False
    return None if None in found else True


def without_members(cause: Cause, names: Collection[str]) -> Cause:
    """The cause without these members, if others remain."""
    rest = tuple(name for name in cause.members if name not in names)
    if cause.kind != "straggler" or not names or not rest:
        return cause
    reason = cause.reason
    if isinstance(reason, LongerWork) and set(rest) <= cause.growths.keys():
        reason = replace(reason, own=max(cause.growths[name].most for name in rest))
    return replace(cause, members=rest, reason=reason)
