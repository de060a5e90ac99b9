"""Which of several collectors the rows of a job go to.

Rendezvous hashing over cluster and job: every node computes the same collector from the same list, in any order. Where
a collector is added or removed, one of N new jobs has another one than before, and all others keep theirs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def shard_of(job: str, collectors: Sequence[str]) -> str:
    """The collector of a job, of at least one. job: cluster/id.restart.step; all steps of an id have the same one.

    >>> collectors = ["tcp://a:7450", "tcp://b:7450", "tcp://c:7450"]
    >>> [shard_of(f"lab/{number}.0.0", collectors)[6] for number in range(8)]
    ['c', 'a', 'b', 'a', 'a', 'a', 'b', 'a']
    >>> [shard_of(f"lab/{number}.0.0", collectors[:2])[6] for number in range(8)]
    ['a', 'a', 'b', 'a', 'a', 'a', 'b', 'a']
    """
    if len(collectors) == 1:
        return collectors[0]
    cluster, slash, rest = job.partition("/")
    name = f"{cluster}{slash}{rest.partition('.')[0]}"
    return max(collectors, key=lambda collector: (_weight(name, collector), collector))


def shard_of_spool(began_with: str, collectors: Sequence[str]) -> str:
    """The collector that gets the rest of a run. began_with: that of the run when it began.

    With several collectors it is the same, also if that is on the list no more: another one does not have the numbers
    of the messages that are stored already. A single collector may have moved to another address.
    """
    return collectors[0] if len(collectors) == 1 else began_with


def _weight(name: str, collector: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{collector}".encode(), digest_size=8).digest()
