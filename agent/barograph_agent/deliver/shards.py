"""Which of several services a run belongs to. A shard is a collector with a modeler and alerts of its own.

Rendezvous hashing over cluster and user: every node computes the same shard from the same list, in any order, before
anything else of a run is certain, and the runs of like work are in one log. Where a shard is added or removed, one of N
users has another shard than before, whose history is learned anew there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def shard_of(cluster: str, user: str, collectors: Sequence[str]) -> str:
    """The collector of the runs of a user on a cluster, of at least one.

    >>> collectors = ["tcp://a:7450", "tcp://b:7450", "tcp://c:7450"]
    >>> [shard_of("lab", f"user{number}", collectors)[6] for number in range(8)]
    ['b', 'c', 'b', 'b', 'b', 'c', 'b', 'c']
    >>> [shard_of("lab", f"user{number}", collectors[:2])[6] for number in range(8)]
    ['b', 'a', 'b', 'b', 'b', 'b', 'b', 'a']
    """
    name = f"{cluster}/{user}"
    return max(collectors, key=lambda collector: (_weight(name, collector), collector))


def shard_of_spool(began_with: str, collectors: Sequence[str]) -> str:
    """The collector that gets the rest of a run. began_with: that of the run when it began.

    With several collectors it is the same, also if that is on the list no more: another one does not have the numbers
    of the messages that are stored already. A single collector may have moved to another address.
    """
    return collectors[0] if len(collectors) == 1 else began_with


def _weight(name: str, collector: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{collector}".encode(), digest_size=8).digest()
