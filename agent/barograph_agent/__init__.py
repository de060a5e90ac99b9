"""The agent: what runs beside one job on a compute node.

ring -> harvest -> spool -> link: read what the shim wrote, turn it into rows, make them durable, deliver them once.
`launch` starts a command under the shim, `sidecar` does the rest in a process of its own.
"""

from barograph_agent.api.features import features
from barograph_agent.api.intervals import interval, mark

__all__ = ["features", "interval", "mark"]
