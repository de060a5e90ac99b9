"""Serves a site on one port until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from barograph_collector.daemon.notify import Notifier
from barograph_collector.daemon.service import REQUEST_SECONDS, CannotListen, Shutdown

TICK_SECONDS: Final = 1.0
"""Between two signs of life."""
STOP_SECONDS: Final = 3
"""Time for open requests after the signal."""
CONNECTIONS: Final = 256
"""Connections beyond this number are answered with 503, which bounds memory."""
_log = logging.getLogger(__name__)


class _Protocol(H11Protocol):
    """Closes a connection that has sent no whole request for REQUEST_SECONDS, which uvicorn does after the first only.

    Otherwise silent connections, up to CONNECTIONS, would keep all others out.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        before = self.cycle

        def close() -> None:
            if self.cycle is before and not self.transport.is_closing():
                self.transport.close()

        self.loop.call_later(REQUEST_SECONDS, close)


class _Server(uvicorn.Server):
    """Reports its state to a supervisor."""

    def __init__(self, config: uvicorn.Config, notifier: Notifier, shutdown: Shutdown) -> None:
        super().__init__(config)
        self._notifier = notifier
        self._shutdown = shutdown

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own raises the signal again at the end, which would make the exit status that of a killed process.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._notifier.ready()

    async def main_loop(self) -> None:
        # uvicorn's own wakes up ten times a second. This one is woken up by signals.
        signalled = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._shutdown.fileno(), signalled.set)
        while not await self.on_tick(0):
            signalled.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(signalled.wait(), TICK_SECONDS)

    async def on_tick(self, counter: int) -> bool:
        self._notifier.alive()
        return await super().on_tick(counter) or self._shutdown.wait(0.0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._notifier.stopping()
        await super().shutdown(sockets)


def serve(site: Starlette, host: str, port: int, log: str) -> None:
    """Serve until SIGTERM or SIGINT; port 0 picks one. log: address for the first message. Raises CannotListen."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with Shutdown() as shutdown, _listening(host, port) as listener:
        at, port = listener.getsockname()[:2]
        _log.info("showing the log at %s, listening on http://%s:%d", log, f"[{at}]" if ":" in at else at, port)
        config = uvicorn.Config(
            site,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
            limit_concurrency=CONNECTIONS,
            http=_Protocol,
            lifespan="off",
            ws="none",
        )
        _Server(config, Notifier(os.environ), shutdown).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise CannotListen(f"http://{host}:{port}", error) from None
