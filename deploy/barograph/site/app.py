"""The pages by address: what each is made of, and what is said where it cannot be made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
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

from barograph.site import alarms, application, health, job, prediction, queries, running, words
from barograph.site.desk import ModelerClient, NotThere, RequestContext
from barograph.site.guard import AccessGuard, Headers
from barograph.site.log import CachedLog, LogUnreachable
from barograph.site.states import LEGEND
from barograph_collector.auth.http_access import COOKIE, Access, Viewer

HERE: Final = Path(__file__).parent
LOOPBACK: Final = ["localhost", "127.0.0.1", "[::1]", "::1"]
TOKEN_BYTES: Final = 1000
NOBODY: Final = "Give the token that your operator has made for you."
STRANGER: Final = Viewer("", operator=False)
"""Whoever is not let in: sees no job."""
_log = logging.getLogger(__name__)

Values: TypeAlias = Mapping[str, Any]


class BadAddress(ValueError):
    """Something in the address is wrong. The text names it, its value and what was expected."""


class SitePages:
    """Makes the pages. metrics: by name of a daemon, the address of its metrics."""

    def __init__(self, log: CachedLog, modeler: ModelerClient, guard: AccessGuard, metrics: Mapping[str, str]) -> None:
        self._log, self._modeler, self._guard = log, modeler, guard
        self._metrics = dict(metrics)
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        for name in ("seconds", "times", "percent", "number", "clock", "iso", "age", "params", "known", "said"):
            self._templates.filters[name] = getattr(words, name)
        self._templates.globals["legend"] = LEGEND
        self._templates.globals["link"] = link
        # All of them now: an upgrade of the package while this runs must not mix new pages with old code.
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def routes(self) -> list[Route | Mount]:
        """Which address shows what."""
        return [
            Route("/", self._endpoint("jobs", self._jobs)),
            Route("/job/{name:path}", self._endpoint("job", self._job)),
            Route("/alarms", self._endpoint("alarms", self._alarms)),
            Route("/applications", self._endpoint("applications", self._applications)),
            Route("/application", self._endpoint("application", self._application)),
            Route("/predict", self._endpoint("predict", self._predict)),
            Route("/pipeline", self._endpoint("pipeline", self._pipeline)),
            Route("/enter", self.enter, methods=["GET", "POST"]),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ]

    def failed(self, request: Request, status: int, title: str, text: str) -> Response:
        """A page that says why there is none."""
        desk = RequestContext(self._log, self._modeler, self._guard.viewer(request) or STRANGER)
        return self._failed(request, desk, status, title, text)

    def _failed(self, request: Request, desk: RequestContext, status: int, title: str, text: str) -> Response:
        return self._render(request, desk, "failed", {"title": title, "text": text}, status)

    async def enter(self, request: Request) -> Response:
        """The one form that is posted: a token, which becomes a cookie that no script can read."""
        if request.method != "POST":
            return self._door(request, "")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > TOKEN_BYTES:
                return self._door(request, "That is no token.")
        token = parse_qs(body.decode("latin-1")).get("token", [""])[0].strip()
        if not self._guard.knows(token):
            return self._door(request, "Nobody has that token.")
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, max_age=30 * 86400, httponly=True, secure=secure, samesite="strict")
        return response

    def _door(self, request: Request, text: str) -> Response:
        desk = RequestContext(self._log, self._modeler, STRANGER)
        return self._render(request, desk, "enter", {"text": text or NOBODY}, HTTPStatus.UNAUTHORIZED)

    def _endpoint(
        self, template: str, make: Callable[[RequestContext, Request], Values]
    ) -> Callable[[Request], Response]:
        # Not a coroutine, so that Starlette runs it in a thread: the log is waited for.
        def endpoint(request: Request) -> Response:
            viewer = self._guard.viewer(request)
            if viewer is None:
                return self._door(request, "")
            proof = {name: request.headers[name] for name in ("authorization", "cookie") if name in request.headers}
            desk = RequestContext(self._log, self._modeler, viewer, proof)
            try:
                return self._render(request, desk, template, make(desk, request))
            except LogUnreachable as error:
                return self._failed(
                    request, desk, HTTPStatus.SERVICE_UNAVAILABLE, "The log gives no answer", str(error)
                )
            except NotThere as error:
                return self._failed(request, desk, HTTPStatus.NOT_FOUND, "Not there", str(error))
            except BadAddress as error:
                return self._failed(request, desk, HTTPStatus.BAD_REQUEST, "That address says nothing", str(error))

        return endpoint

    def _jobs(self, desk: RequestContext, request: Request) -> Values:
        query = request.query_params
        sort = query.get("sort", "score")
        if sort not in running.SORTS:
            raise BadAddress(f"sort is {sort[:80]!r}, expected one of {', '.join(running.SORTS)}")
        page = _whole("page", query.get("page", "1"))
        return {"listing": running.listing(desk, query.get("filter", "")[:200], sort, page)}

    def _job(self, desk: RequestContext, request: Request) -> Values:
        given = request.query_params.get("class")
        class_id = None if given is None else _whole("class", given)
        return {"view": job.view(desk, request.path_params["name"], class_id)}

    def _alarms(self, desk: RequestContext, request: Request) -> Values:
        return {"view": alarms.view(desk)}

    def _applications(self, desk: RequestContext, request: Request) -> Values:
        return {"applications": desk.ask(queries.applications(desk.user), fresh=10.0)}

    def _application(self, desk: RequestContext, request: Request) -> Values:
        query = request.query_params
        return {"view": application.view(desk, query.get("cluster", ""), query.get("app", ""), query.get("problem"))}

    def _predict(self, desk: RequestContext, request: Request) -> Values:
        return {"view": prediction.view(desk, request.query_params)}

    def _pipeline(self, desk: RequestContext, request: Request) -> Values:
        return {"view": health.view(desk, self._metrics)}

    def _render(
        self, request: Request, desk: RequestContext, template: str, values: Values, status: int = HTTPStatus.OK
    ) -> Response:
        text = self._templates.get_template(f"{template}.html").render(
            values,
            here=request.url.path,
            now=desk.now,
            desk=desk,
            guarded=self._guard.access is not None,
        )
        return HTMLResponse(text, status)


def create(
    log: CachedLog, modeler: ModelerClient, metrics: Mapping[str, str], access: Access | None = None
) -> Starlette:
    """The whole site. access: whose tokens are taken; None for a loopback address, where everybody sees everything."""
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
