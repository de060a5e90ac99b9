"""Authentication of viewers, and the headers of every response that tell a browser what to refuse."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from barograph_collector.auth.http_access import ANYBODY, Access, Viewer

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Nothing from anywhere else, nothing inline: what the log holds cannot become a program in somebody's browser."""


class Headers:
    """Puts HEADERS on every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                # A page shows what is there now, to one viewer; only what comes with the package may be kept.
                headers.setdefault("Cache-Control", "no-cache" if scope["path"].startswith("/static/") else "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class AccessGuard:
    """Authenticates requests. access: whose tokens are accepted; None on loopback, where none is asked for."""

    def __init__(self, access: Access | None) -> None:
        self.access = access

    def viewer(self, request: Request) -> Viewer | None:
        """Who sent the request; None for nobody who may look."""
        if self.access is None:
            return ANYBODY
        self.access.poll()
        return self.access.authenticate(request.headers.get("authorization", ""), request.headers.get("cookie", ""))

    def knows(self, token: str) -> bool:
        """Whether the token is somebody's."""
        if self.access is None:
            return False
        self.access.poll()
        return self.access.owner(token) is not None
