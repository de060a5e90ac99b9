"""The web application: pages by address, and error pages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from barograph.charts.figure import key
from barograph.site.guard import AccessGuard, SecurityHeaders
from barograph.site.pages import alarms, application, health, job, prediction, running, search
from barograph.views import queries
from barograph.views.collectors.log_views import LogViews
from barograph.views.context import ViewContext
from barograph.views.modeler import ModelerClient
from barograph.views.refusal import NothingKnown
from barograph.views.states import ALARMS, LEGEND
from barograph.views.templates import environment
from barograph_collector.auth.http_access import COOKIE, Access, Viewer
from barograph_collector.client.log_reader import LogUnavailable, ReadRefused

LOOPBACK: Final = ["localhost", "127.0.0.1", "[::1]", "::1"]
TOKEN_BYTES: Final = 1000
NO_TOKEN: Final = "Give the token from your operator."
ANONYMOUS: Final = Viewer("", operator=False)
"""A viewer without a token. Sees no job."""
_log = logging.getLogger(__name__)

Values: TypeAlias = Mapping[str, Any]
"""Variables of a template."""


class BadAddress(ValueError):
    """A query field is invalid. The text names it, its value and what was expected."""


FAILURES: Final[dict[type[Exception], tuple[HTTPStatus, str]]] = {
    LogUnavailable: (HTTPStatus.SERVICE_UNAVAILABLE, "The log does not answer"),
    ReadRefused: (HTTPStatus.SERVICE_UNAVAILABLE, "The log has no answer to this"),
    NothingKnown: (HTTPStatus.NOT_FOUND, "Not found"),
    BadAddress: (HTTPStatus.BAD_REQUEST, "Invalid address"),
}
"""Status and heading of the page for an error, whose text the page shows."""


class SitePages:
    """Renders the pages. metrics: the address of the metrics by daemon."""

    def __init__(self, log: LogViews, modeler: ModelerClient, guard: AccessGuard, metrics: Mapping[str, str]) -> None:
        self._log, self._modeler, self._guard = log, modeler, guard
        self._metrics = health.DaemonMetrics(metrics, log.clock)
        self._templates = environment("barograph.site")
        self._templates.globals |= {"alarms": ALARMS, "key": key, "legend": LEGEND, "link": link}
        # Load all templates now: an upgrade of the package must not mix new templates with running code.
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def routes(self) -> list[Route | Mount]:
        """The pages by address."""
        views: dict[str, tuple[str, Callable[[ViewContext, Request], Values]]] = {
            "/": ("jobs", _jobs),
            "/job/{name:path}": ("job", _job),
            "/search": ("search", _search),
            "/alarms": ("alarms", lambda context, _: alarms.view(context)),
            "/applications": ("applications", _applications),
            "/application": ("application", _application),
            "/predict": ("predict", lambda context, request: prediction.view(context, request.query_params)),
            "/slow": ("slow", lambda *_: {}),
            "/pipeline": ("pipeline", lambda context, _: health.view(context, self._metrics)),
        }
        return [
            *(Route(path, self._endpoint(template, make)) for path, (template, make) in views.items()),
            Route("/enter", self.enter, methods=["GET", "POST"]),
            Mount("/static", StaticFiles(packages=[("barograph.site", "static"), ("barograph.charts", "static")])),
        ]

    def failed(self, request: Request, error: Exception) -> Response:
        """The page for an error."""
        if type(error) in FAILURES:
            status, title = FAILURES[type(error)]
            text = f"{str(error)[:1].upper()}{str(error)[1:].rstrip('.')}."
        elif isinstance(error, HTTPException):
            status = HTTPStatus(error.status_code)
            title, text = status.phrase, f"{request.url.path[:200]}: {status.phrase}."
        else:
            _log.error("%s could not be made", request.url.path, exc_info=error)
            status, title = HTTPStatus.INTERNAL_SERVER_ERROR, "Broken"
            text = "This page could not be made. The log of `barograph page` says why."
        context = ViewContext(self._log, self._modeler, self._guard.viewer(request) or ANONYMOUS)
        values = {"title": title, "text": text, "again": status >= HTTPStatus.INTERNAL_SERVER_ERROR}
        return self._render(request, context, "failed", values, status)

    async def enter(self, request: Request) -> Response:
        """The form for a token, which is stored in a cookie that scripts cannot read."""
        if request.method != "POST":
            return self._token_form(request)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > TOKEN_BYTES:
                return self._token_form(request, "Invalid token.")
        token = parse_qs(body.decode("latin-1")).get("token", [""])[0].strip()
        if not self._guard.knows(token):
            return self._token_form(request, "Unknown token.")
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, max_age=30 * 86400, httponly=True, secure=secure, samesite="strict")
        return response

    def _token_form(self, request: Request, text: str = NO_TOKEN) -> Response:
        context = ViewContext(self._log, self._modeler, ANONYMOUS)
        return self._render(request, context, "enter", {"text": text}, HTTPStatus.UNAUTHORIZED)

    def _endpoint(self, template: str, make: Callable[[ViewContext, Request], Values]) -> Callable[[Request], Response]:
        # Blocks on the log. Starlette runs it in a thread because it is not a coroutine.
        def endpoint(request: Request) -> Response:
            viewer = self._guard.viewer(request)
            if viewer is None:
                return self._token_form(request)
            headers = {name: request.headers[name] for name in ("authorization", "cookie") if name in request.headers}
            context = ViewContext(self._log, self._modeler, viewer, headers)
            view = make(context, request)
            if view.get("go"):
                return RedirectResponse(view["go"], HTTPStatus.SEE_OTHER)
            return self._render(request, context, template, {"view": view})

        return endpoint

    def _render(
        self, request: Request, context: ViewContext, template: str, values: Values, status: int = HTTPStatus.OK
    ) -> Response:
        guarded = self._guard.access is not None
        page = self._templates.get_template(f"{template}.html")
        text = page.render(values, here=request.url.path, now=context.now, context=context, guarded=guarded)
        # JSON in texts of the log can bring surrogates.
        return HTMLResponse(text.encode("utf-8", "replace"), status)


def _jobs(context: ViewContext, request: Request) -> Values:
    query = request.query_params
    sort = query.get("sort", "score")
    if sort not in running.SORTS:
        raise BadAddress(f"sort is {sort[:80]!r}, expected one of {', '.join(running.SORTS)}")
    given = {name: query.get(name, "")[:200] for name in ("filter", "user", "app", "state", "since")}
    for name, expected in (("state", ["", *(state.name for state in LEGEND)]), ("since", list(running.PERIODS))):
        if given[name] not in expected:
            raise BadAddress(f"{name} is {given[name][:80]!r}, expected one of {', '.join(filter(None, expected))}")
    return running.listing(context, given, sort, _integer("page", query.get("page", "1")))


def _search(context: ViewContext, request: Request) -> Values:
    return search.view(context, request.query_params.get("q", "")[:200])


def _job(context: ViewContext, request: Request) -> Values:
    given = request.query_params.get("class")
    return job.view(context, request.path_params["name"], None if given is None else _integer("class", given))


def _applications(context: ViewContext, _: Request) -> Values:
    return {"applications": context.rows(queries.applications(context.user), max_age=application.MAX_AGE)}


def _application(context: ViewContext, request: Request) -> Values:
    query = request.query_params
    return application.view(context, query.get("cluster", ""), query.get("app", ""), query.get("problem"))


def create(
    log: LogViews, modeler: ModelerClient, metrics: Mapping[str, str], access: Access | None = None
) -> Starlette:
    """The site. access: accepted tokens; None on a loopback address, where every viewer sees everything."""
    pages = SitePages(log, modeler, AccessGuard(access), metrics)
    # Without tokens the Host header must be a loopback name, against DNS rebinding.
    hosts = ["*"] if access is not None else LOOPBACK
    return Starlette(
        routes=pages.routes(),
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts),
            Middleware(GZipMiddleware),
        ],
        exception_handlers=dict.fromkeys([*FAILURES, HTTPException, Exception], pages.failed),
    )


def link(path: str, **query: object) -> str:
    """A path with the query fields that are neither None nor empty. A trailing `_` of a name is dropped."""
    given = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _integer(name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= 20):
        raise BadAddress(f"{name} is {value[:80]!r}, expected a whole number")
    return int(value)
