"""Parts of every daemon: exit statuses, errors at the start, signals, the metrics endpoint."""

from __future__ import annotations

import argparse
import contextlib
import enum
import importlib.metadata
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from types import FrameType
from typing import Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

MAX_REQUESTS: Final = 64
"""Requests over HTTP that are answered at once."""
REQUEST_SECONDS: Final = 10.0
"""How long a connection may be silent."""
WHOLE_SECONDS: Final = 60.0
"""How long a request may take in all."""
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
    """A daemon cannot start. The text is for standard error, `status` is the exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class CannotListen(CannotStart):
    """A daemon cannot listen on an address. The text names the address, the reason and a remedy."""

    def __init__(self, address: str, error: Exception | str) -> None:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        text = f"cannot listen on {address}: {reason}; stop what listens there or choose another address"
        super().__init__(text, Exit.UNAVAILABLE)


class Shutdown:
    """Flags set by signals, and a wait that ends when a signal arrives. For the main thread.

    SIGTERM and SIGINT request the shutdown, SIGHUP a reload. Where standard error is a terminal, SIGHUP keeps its
    default action and ends the process: the terminal was closed.

    Handlers only set a flag and write to a descriptor, on which `wait` selects: a threading.Event would deadlock where
    a handler runs while this thread holds its lock.
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

    def __exit__(self, *error: object) -> None:
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
        # Cleared before the caller acts: a later signal is reported by the next call.
        self._hung_up = False
        return True

    def fileno(self) -> int:
        """A descriptor that is readable once a signal has arrived, until `wait` returns."""
        return self._event

    def wait(self, seconds: float | None) -> bool:
        """Wait for a signal, at most `seconds` (None: no limit); says whether the shutdown is requested."""
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
    """A registry with build information and heartbeat of this daemon, and the function that updates the heartbeat."""
    registry = CollectorRegistry()
    try:
        version = importlib.metadata.version("barograph")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    labels = ("daemon", "version")
    Gauge("barograph_build_info", "Version of this daemon.", labels, registry=registry).labels(daemon, version).set(1)
    help_text = "Time of the last cycle of the main loop of this daemon, as Unix time in seconds."
    heartbeat = Gauge(HEARTBEAT, help_text, ("daemon",), registry=registry).labels(daemon)
    heartbeat.set_to_current_time()
    return registry, heartbeat.set_to_current_time


@dataclass(eq=False)
class Frozen(Collector):
    """What an exporter exposes, rendered while the state that it reads is still.

    still: held by whoever changes that state, from one consistent state to the next. So a scrape waits for the end of a
    step, and nothing is copied or rendered when nobody scrapes.
    """

    exporter: Collector
    still: threading.Lock

    def collect(self) -> Iterable[Metric]:
        """All families, with samples of one state."""
        with self.still:
            return list(self.exporter.collect())


def host_and_port(text: str) -> tuple[str, int]:
    """Split `HOST:PORT`. Raises argparse.ArgumentTypeError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no address, expected HOST:PORT with a port from 0 to 65535")
    return host.strip("[]"), int(port)


class _Handler(WSGIRequestHandler):
    """Logs nothing, and waits for a request no longer than `timeout` seconds."""

    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class MetricsServer(ThreadingMixIn, WSGIServer):
    """The HTTP server of /metrics: a thread for each request, of MAX_REQUESTS at most; others are closed."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._free = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: D102
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: D102
        # In all: each byte may come within the time limit of the one before it.
        timer = threading.Timer(WHOLE_SECONDS, _cut, [request])
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that sends nothing, or goes away, is no error of this daemon."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port that are listened on."""
        host, port = self.server_address[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """The address to scrape."""
        host, port = self.address
        return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"

    def start(self) -> None:
        """Serve in a thread."""
        self._thread = threading.Thread(target=self.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the server and free the port."""
        self.shutdown()
        self.server_close()
        self._thread.join()


def serve_metrics(
    registry: CollectorRegistry, host: str, port: int, pages: Mapping[str, WSGIApplication] | None = None
) -> MetricsServer:
    """Serve the registry over HTTP; port 0 picks a free one. Raises CannotListen.

    pages: applications by path, such as /predict; they are called from several threads at once.
    """
    metrics: WSGIApplication = make_wsgi_app(registry)
    others = pages or {}

    def route(request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return others.get(request["PATH_INFO"], metrics)(request, start_response)

    try:
        server = make_server(host, port, route, MetricsServer, _Handler)
    except (OSError, OverflowError) as error:
        raise CannotListen(f"http://{host}:{port}", error) from None
    server.start()
    return server
