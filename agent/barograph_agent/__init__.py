"""The agent: the part of Barograph that runs on compute nodes.

ring -> reduce -> spool -> link: reads the records of the shim, reduces them to rows, makes these durable and delivers
each once. `launch` starts a command under the shim; `sidecar` does the rest in a separate process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barograph_agent.api.features import features
    from barograph_agent.api.intervals import interval, mark

__all__ = ["features", "interval", "mark"]


def __getattr__(name: str) -> Any:
    """What programs use, imported when they do: a launcher and a sidecar do not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from barograph_agent.api import features, intervals

    return getattr(features if name == "features" else intervals, name)
