"""Authentication of viewers, and the security headers of every response."""

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
"""Only the page's own files and no inline code: content of the log is never executed by a browser."""


class SecurityHeaders:
    """Middleware that adds HEADERS to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                # A page is current and for one viewer. Only static files may be cached.
                headers.setdefault("Cache-Control", "no-cache" if scope["path"].startswith("/static/") else "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class AccessGuard:
    """Authenticates requests. access: accepted tokens; None on loopback, where none is needed."""

    def __init__(self, access: Access | None) -> None:
        self.access = access

    def viewer(self, request: Request) -> Viewer | None:
        """The sender of the request, None where it is not authenticated."""
        if self.access is None:
            return ANYBODY
        self.access.poll()
        return self.access.authenticate(request.headers.get("authorization", ""), request.headers.get("cookie", ""))

    def knows(self, token: str) -> bool:
        """Whether the token is valid."""
        if self.access is None:
            return False
        self.access.poll()
        return self.access.owner(token) is not None
