"""Whether something listens at an address, without ZeroMQ."""

from __future__ import annotations

import socket
from typing import Final

PROBE_SECONDS: Final = 0.5
"""Time limit of a connection that only finds out whether something listens."""


def is_listening(endpoint: str) -> bool:
    """Whether something listens at an address of ZeroMQ, so that a wait for it can be announced."""
    scheme, _, rest = endpoint.partition("://")
    host, _, port = rest.rpartition(":")
    try:
        if scheme == "ipc":
            with socket.socket(socket.AF_UNIX) as local:
                local.settimeout(PROBE_SECONDS)
                local.connect(rest)
        else:
            socket.create_connection((host.strip("[]"), int(port)), PROBE_SECONDS).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True
