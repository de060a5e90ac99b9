"""What every daemon shares: exit statuses, signals, the metrics endpoint."""

from __future__ import annotations

import argparse
import enum
import importlib.metadata
import os
import select
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, TracebackType
from typing import Any, Final, Self
from wsgiref.simple_server import WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, Gauge, start_http_server

HEARTBEAT: Final = "barograph_heartbeat_timestamp_seconds"


class Exit(enum.IntEnum):
    """What a daemon's exit status says. Numbers from 64 on follow sysexits.h.

    FAILED: something broke while at work; a supervisor restarts it.
    USAGE: the command line or the configuration is wrong; a restart will not help.
    DATA: input data cannot be read.
    UNAVAILABLE: an address is taken, or the collector cannot be reached.
    STATE: the state directory or the database in it cannot be used.
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    DATA = 65
    UNAVAILABLE = 69
    STATE = 73


class CannotListen(Exception):
    """An address to listen on cannot be had. The text names it, the reason, and what to do."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot listen on {address}: {reason}; stop what listens there or choose another address")
        self.address = address


class Shutdown:
    """Flags that signals set, and a wait that ends as soon as one is. For the main thread.

    SIGTERM and SIGINT ask for the end, SIGHUP for the configuration to be read again; but where standard error is a
    terminal, SIGHUP says that it is gone, and ends the process as ever.

    A handler runs between any two bytecodes, also inside a lock that an Event would want: so it only sets a flag and
    writes to a descriptor, which `wait` has in its select.
    """

    def __init__(self) -> None:
        self.requested = False
        self._hangups = self._hangups_taken = 0
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, *(() if os.isatty(2) else (signal.SIGHUP,))):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._event)

    def request(self) -> None:
        """Ask for the shutdown, from any thread."""
        self.requested = True
        os.eventfd_write(self._event, 1)

    def hung_up(self) -> bool:
        """Whether SIGHUP has come since this was asked last."""
        before, self._hangups_taken = self._hangups_taken, self._hangups
        return before != self._hangups_taken

    def wait(self, seconds: float | None) -> bool:
        """Wait at most `seconds` (None: for ever) for a signal; says whether it is a request to stop."""
        if not self.requested and select.select([self._event], [], [], seconds)[0]:
            os.eventfd_read(self._event)
        return self.requested

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._hangups += 1
            os.eventfd_write(self._event, 1)
        else:
            self.request()


def daemon_registry(daemon: str) -> tuple[CollectorRegistry, Callable[[], None]]:
    """A registry with build information and heartbeat of this daemon, and the function that beats."""
    registry = CollectorRegistry()
    try:
        version = importlib.metadata.version("barograph")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    labels = ("daemon", "version")
    Gauge("barograph_build_info", "Version of this daemon.", labels, registry=registry).labels(daemon, version).set(1)
    help_text = "When this daemon last went through its main loop, as Unix time in seconds."
    heartbeat = Gauge(HEARTBEAT, help_text, ("daemon",), registry=registry).labels(daemon)
    heartbeat.set_to_current_time()
    return registry, heartbeat.set_to_current_time


def host_and_port(text: str) -> tuple[str, int]:
    """Split `HOST:PORT`. Raises argparse.ArgumentTypeError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no address, expected HOST:PORT with a port from 0 to 65535")
    return host.strip("[]"), int(port)


class MetricsServer:
    """A running metrics endpoint."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """Where to point a scraper."""
        host, port = self.address
        return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"

    def stop(self) -> None:
        """End it and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(
    registry: CollectorRegistry, host: str, port: int, pages: Mapping[str, WSGIApplication] | None = None
) -> MetricsServer:
    """Serve the registry over HTTP from a thread of its own; port 0 picks one. Raises CannotListen.

    pages: further paths, such as /predict, and what answers there; called from several threads at once.
    """
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CannotListen(f"http://{host}:{port}", reason) from None
    if pages and (metrics := server.get_app()) is not None:
        server.set_app(_routed(metrics, pages))
    return MetricsServer(server, thread)


def _routed(otherwise: WSGIApplication, pages: Mapping[str, WSGIApplication]) -> WSGIApplication:
    def route(request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return pages.get(request["PATH_INFO"], otherwise)(request, start_response)

    return route
