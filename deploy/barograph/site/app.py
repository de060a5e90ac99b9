"""The pages by address: what each is made of, and what is shown where it cannot be made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from barograph.charts.figure import key
from barograph.site.guard import AccessGuard, Headers
from barograph.site.pages import alarms, application, health, job, prediction, running
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.log import LogView
from barograph.views.modeler import ModelerClient
from barograph.views.refusal import NothingKnown
from barograph.views.states import LEGEND
from barograph.views.templates import environment
from barograph_collector.auth.http_access import COOKIE, Access, Viewer
from barograph_collector.client.log_reader import LogUnavailable, ReadRefused

LOOPBACK: Final = ["localhost", "127.0.0.1", "[::1]", "::1"]
TOKEN_BYTES: Final = 1000
NO_TOKEN: Final = "Give the token that your operator has made for you."
STRANGER: Final = Viewer("", operator=False)
"""A viewer without a token, who sees no job."""
_log = logging.getLogger(__name__)

Values: TypeAlias = Mapping[str, Any]
"""What a template renders."""


class BadAddress(ValueError):
    """Something in the address is wrong. The text names it, its value and what was expected."""


FAILURES: Final[dict[type[Exception], tuple[HTTPStatus, str]]] = {
    LogUnavailable: (HTTPStatus.SERVICE_UNAVAILABLE, "The log gives no answer"),
    ReadRefused: (HTTPStatus.SERVICE_UNAVAILABLE, "The log gives no answer"),
    NothingKnown: (HTTPStatus.NOT_FOUND, "Not there"),
    BadAddress: (HTTPStatus.BAD_REQUEST, "That address says nothing"),
}
"""What may be raised while a page is made: its status and its heading. The text is the error's own."""


class SitePages:
    """Makes the pages. metrics: by name of a daemon, the address of its metrics."""

    def __init__(self, log: LogView, modeler: ModelerClient, guard: AccessGuard, metrics: Mapping[str, str]) -> None:
        self._log, self._modeler, self._guard = log, modeler, guard
        self._metrics = dict(metrics)
        self._templates = environment("barograph.site")
        self._templates.globals |= {"key": key, "legend": LEGEND, "link": link}
        # All of them now: an upgrade of the package while this runs must not mix new pages with old code.
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def routes(self) -> list[Route | Mount]:
        """Which address shows what."""
        views: dict[str, tuple[str, Callable[[ViewContext, Request], Values]]] = {
            "/": ("jobs", _jobs),
            "/job/{name:path}": ("job", _job),
            "/alarms": ("alarms", lambda context, _: alarms.view(context)),
            "/applications": ("applications", _applications),
            "/application": ("application", _application),
            "/predict": ("predict", lambda context, request: prediction.view(context, request.query_params)),
            "/pipeline": ("pipeline", lambda context, _: health.view(context, self._metrics)),
        }
        return [
            *(Route(path, self._endpoint(template, make)) for path, (template, make) in views.items()),
            Route("/enter", self.enter, methods=["GET", "POST"]),
            Mount("/static", StaticFiles(packages=[("barograph.site", "static"), ("barograph.charts", "static")])),
        ]

    def failed(self, request: Request, status: int, title: str, text: str) -> Response:
        """A page that says why there is none."""
        context = ViewContext(self._log, self._modeler, self._guard.viewer(request) or STRANGER)
        return self._render(request, context, "failed", {"title": title, "text": text}, status)

    async def enter(self, request: Request) -> Response:
        """The one form that is posted: a token, which becomes a cookie that no script can read."""
        if request.method != "POST":
            return self._token_form(request)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > TOKEN_BYTES:
                return self._token_form(request, "That is no token.")
        token = parse_qs(body.decode("latin-1")).get("token", [""])[0].strip()
        if not self._guard.knows(token):
            return self._token_form(request, "Nobody has that token.")
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, max_age=30 * 86400, httponly=True, secure=secure, samesite="strict")
        return response

    def _token_form(self, request: Request, text: str = NO_TOKEN) -> Response:
        context = ViewContext(self._log, self._modeler, STRANGER)
        return self._render(request, context, "enter", {"text": text}, HTTPStatus.UNAUTHORIZED)

    def _endpoint(self, template: str, make: Callable[[ViewContext, Request], Values]) -> Callable[[Request], Response]:
        # Not a coroutine, so that Starlette runs it in a thread: it waits for the log.
        def endpoint(request: Request) -> Response:
            viewer = self._guard.viewer(request)
            if viewer is None:
                return self._token_form(request)
            proof = {name: request.headers[name] for name in ("authorization", "cookie") if name in request.headers}
            context = ViewContext(self._log, self._modeler, viewer, proof)
            try:
                return self._render(request, context, template, {"view": make(context, request)})
            except tuple(FAILURES) as error:
                status, title = FAILURES[type(error)]
                return self._render(request, context, "failed", {"title": title, "text": str(error)}, status)

        return endpoint

    def _render(
        self, request: Request, context: ViewContext, template: str, values: Values, status: int = HTTPStatus.OK
    ) -> Response:
        guarded = self._guard.access is not None
        page = self._templates.get_template(f"{template}.html")
        text = page.render(values, here=request.url.path, now=context.now, context=context, guarded=guarded)
        return HTMLResponse(text, status)


def _jobs(context: ViewContext, request: Request) -> Values:
    query = request.query_params
    sort = query.get("sort", "score")
    if sort not in running.SORTS:
        raise BadAddress(f"sort is {sort[:80]!r}, expected one of {', '.join(running.SORTS)}")
    return running.listing(context, query.get("filter", "")[:200], sort, _whole("page", query.get("page", "1")))


def _job(context: ViewContext, request: Request) -> Values:
    given = request.query_params.get("class")
    return job.view(context, request.path_params["name"], None if given is None else _whole("class", given))


def _applications(context: ViewContext, _: Request) -> Values:
    return {"applications": context.rows(queries.applications(context.user), fresh=application.FRESH_SECONDS)}


def _application(context: ViewContext, request: Request) -> Values:
    query = request.query_params
    return application.view(context, query.get("cluster", ""), query.get("app", ""), query.get("problem"))


def create(log: LogView, modeler: ModelerClient, metrics: Mapping[str, str], access: Access | None = None) -> Starlette:
    """The whole site. access: whose tokens are accepted; None for a loopback address, where everybody sees all."""
    pages = SitePages(log, modeler, AccessGuard(access), metrics)
    # On loopback no token is asked for: then no other site's name may lead here (DNS rebinding).
    hosts = ["*"] if access is not None else LOOPBACK

    async def refused(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
        phrase = HTTPStatus(status).phrase
        return await run_in_threadpool(pages.failed, request, status, phrase, f"{request.url.path[:200]}: {phrase}.")

    async def broken(request: Request, error: Exception) -> Response:
        _log.error("%s could not be made", request.url.path, exc_info=error)
        text = "This page could not be made. The log of `barograph page` says why."
        return await run_in_threadpool(pages.failed, request, HTTPStatus.INTERNAL_SERVER_ERROR, "Broken", text)

    return Starlette(
        routes=pages.routes(),
        middleware=[
            Middleware(Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts),
            Middleware(GZipMiddleware),
        ],
        exception_handlers={HTTPException: refused, Exception: broken},
    )


def link(path: str, **query: object) -> str:
    """An address with a query, without the fields that are None or empty."""
    given = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= 20):
        raise BadAddress(f"{name} is {value[:80]!r}, expected a whole number")
    return int(value)
