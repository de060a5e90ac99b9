"""All of it together, as most modules take it."""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from barograph_agent.system.clock import CLOCK, Clock
from barograph_agent.system.disk import DISK, Disk
from barograph_agent.system.network import Network
from barograph_agent.system.processes import PROCESSES, Processes
from barograph_agent.system.threads import THREADS, Threads


class System(NamedTuple):
    """The real one unless simulated."""

    clock: Clock = CLOCK
    disk: Disk = DISK
    network: Network = Network()
    threads: Threads = THREADS
    processes: Processes = PROCESSES
    random: Random = Random()
    """For what must differ from node to node, such as the wait before another attempt."""


SYSTEM: Final = System()
"""For entry points, and as the default of a parameter."""
