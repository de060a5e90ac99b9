"""The agent: what runs beside one job on a compute node.

ring -> harvest -> spool -> link: read what the shim wrote, turn it into rows, make them durable, deliver them once.
`launch` starts a command under the shim, `sidecar` does the rest in a process of its own.
"""

from barograph_agent.note import features
from barograph_agent.stopwatch import interval, mark

__all__ = ["features", "interval", "mark"]
