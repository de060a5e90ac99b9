"""What every daemon shares: exit statuses, errors at the start, signals, the metrics endpoint."""

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
    """Exit statuses of daemons and commands. Numbers from 64 on follow sysexits.h.

    FAILED: an error during operation; a supervisor restarts the daemon.
    USAGE: the command line or the configuration is wrong; a restart does not help.
    DATA: input data cannot be read.
    UNAVAILABLE: an address is in use, or the collector cannot be reached.
    STATE: the state directory or the database in it cannot be used.
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    DATA = 65
    UNAVAILABLE = 69
    STATE = 73


class CannotStart(Exception):
    """A daemon cannot begin its work. The text is what standard error says, `status` the exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class CannotListen(CannotStart):
    """A daemon cannot listen on an address. The text names it, the reason, and what to do."""

    def __init__(self, address: str, error: Exception | str) -> None:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        text = f"cannot listen on {address}: {reason}; stop what listens there or choose another address"
        super().__init__(text, Exit.UNAVAILABLE)


class Shutdown:
    """Flags that signals set, and a wait that ends when a signal arrives. For the main thread.

    SIGTERM and SIGINT request the end, SIGHUP that the configuration is read again. Where standard error is a terminal,
    SIGHUP keeps its default and ends the process: the terminal is gone.

    A signal handler can run while this thread holds the lock of a threading.Event. So it only sets a flag and writes to
    a descriptor, on which `wait` selects.
    """

    def __init__(self) -> None:
        self.requested = False
        self._hung_up = False
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
        """Request the shutdown, from any thread."""
        self.requested = True
        os.eventfd_write(self._event, 1)

    def hung_up(self) -> bool:
        """Whether SIGHUP has arrived since the last call."""
        if not self._hung_up:
            return False
        # Cleared before the caller acts: a signal from here on is reported by the next call.
        self._hung_up = False
        return True

    def fileno(self) -> int:
        """A descriptor that is readable once a signal has arrived, until `wait` returns."""
        return self._event

    def wait(self, seconds: float | None) -> bool:
        """Wait at most `seconds` (None: without limit) for a signal; whether the shutdown is requested."""
        if not self.requested and select.select([self._event], [], [], seconds)[0]:
            os.eventfd_read(self._event)
        return self.requested

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._hung_up = True
            os.eventfd_write(self._event, 1)
        else:
            self.request()


def daemon_registry(daemon: str) -> tuple[CollectorRegistry, Callable[[], None]]:
    """A registry with build information and heartbeat of this daemon, and the function that sets the heartbeat."""
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
    """The HTTP server behind /metrics, in a thread of its own."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port on which it listens."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """The address to scrape."""
        host, port = self.address
        return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"

    def stop(self) -> None:
        """Stop the server and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(
    registry: CollectorRegistry, host: str, port: int, pages: Mapping[str, WSGIApplication] | None = None
) -> MetricsServer:
    """Serve the registry over HTTP; port 0 picks a free one. Raises CannotListen.

    pages: applications by path, such as /predict; they are called from several threads at once.
    """
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise CannotListen(f"http://{host}:{port}", error) from None
    if pages and (metrics := server.get_app()) is not None:

        def route(request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            return pages.get(request["PATH_INFO"], metrics)(request, start_response)

        server.set_app(route)
    return MetricsServer(server, thread)
