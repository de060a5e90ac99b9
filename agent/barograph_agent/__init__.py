"""The agent: the part of Barograph that runs on compute nodes.

ring -> reduce -> spool -> link: reads the records of the shim, reduces them to rows, makes these durable and delivers
each once. `launch` starts a command under the shim; `sidecar` does the rest in a separate process.
"""

from barograph_agent.api.features import features
from barograph_agent.api.intervals import interval, mark

__all__ = ["features", "interval", "mark"]
