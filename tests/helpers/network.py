"""The network between producers and a collector: hands on what is said until it is cut, and again when it is mended."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_PIECE = 65536


class Network:
    """Stands before one TCP endpoint, at an `endpoint` of its own. While it is cut, both sides hear nothing."""

    def __init__(self, endpoint: str) -> None:
        there = urlsplit(endpoint)
        self._there = (there.hostname or "", there.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ways: dict[socket.socket, socket.socket] = {}
        self._whole = threading.Event()
        self._whole.set()
        self._resetting = False
        self._over = False
        self._thread = threading.Thread(target=self._run)

    def cut(self) -> None:
        """Hand nothing on from now on. Connections stay, as both sides see it."""
        self._whole.clear()

    def mend(self, *, reset: bool) -> None:
        """Hand on again what was held back; or, with `reset`, drop it and every connection there was."""
        self._resetting = reset
        self._whole.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over = True
        self._whole.set()
        self._thread.join()

    def _run(self) -> None:
        with self._listener, selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._over:
                for key, _ in ready.select(0.05):
                    if not self._whole.is_set():
                        break
                    if key.fileobj is self._listener:
                        self._connect(ready)
                    elif key.fileobj in self._ways:
                        self._hand_on(key.fileobj, ready)
                self._whole.wait()
                if self._resetting:
                    self._resetting = False
                    self._drop(list(self._ways), ready)
            self._drop(list(self._ways), ready)

    def _connect(self, ready: selectors.BaseSelector) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._there)
        except OSError:  # the collector has died: what connects to a dead host is not answered either
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._ways[one] = other
            ready.register(one, selectors.EVENT_READ)

    def _hand_on(self, one: socket.socket, ready: selectors.BaseSelector) -> None:
        data = b""
        with contextlib.suppress(OSError):
            if data := one.recv(_PIECE):
                self._ways[one].sendall(data)
                return
        self._drop([one, self._ways[one]], ready)

    def _drop(self, ends: list[socket.socket], ready: selectors.BaseSelector) -> None:
        for end in ends:
            ready.unregister(end)
            del self._ways[end]
            end.close()
