"""The console's addresses, and what holds for each answer."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import RedirectResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pybroker.console import (
    actions,
    catalogue,
    conversations,
    entrance,
    leaks,
    pages,
    quarantine,
    topology,
    transmission,
)
from pybroker.console.attempts import Attempts
from pybroker.console.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.middleware.base import RequestResponseEndpoint
    from starlette.requests import Request
    from starlette.responses import Response

    from pybroker.console.accounts import Target

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC = Path(__file__).with_name("static")
_DATABASE = "/database/{number:int}"
# In a minute: logins of an address, actions of a role.
_LOGINS, _ACTIONS = 5, 30
_OPEN = ("/login", "/static/")


def application(
    targets: tuple[Target, ...], *, is_secure: bool, may_write: bool = False, trace_url: str | None = None
) -> Starlette:
    """Return the console of these databases.

    Args:
        targets: the databases, in the order of the command line.
        is_secure: whether browsers come by HTTPS, so that cookies may be for HTTPS only.
        may_write: whether actions are allowed.
        trace_url: where a tracing system shows a trace, as `trace_links.checked` returns it.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await to_thread.run_sync(made.state.sessions.close)

    made = Starlette(
        routes=[
            Route("/", pages.overview),
            Route("/login", entrance.show_login, methods=["GET"]),
            Route("/login", entrance.login, methods=["POST"]),
            Route("/logout", entrance.logout, methods=["POST"]),
            Route(f"{_DATABASE}/message/{{priority:int}}/{{order:int}}/{{name:path}}", pages.message),
            Route(f"{_DATABASE}/queue/{{name:path}}", pages.queue),
            Route("/topology", topology.topology),
            Route(f"{_DATABASE}/conversation/{{handle:uuid}}", conversations.conversation),
            Route(f"{_DATABASE}/transmission", transmission.transmission),
            Route(f"{_DATABASE}/quarantine", quarantine.quarantine),
            Route(f"{_DATABASE}/leaks", leaks.leaks),
            Route(f"{_DATABASE}/definitions", catalogue.definitions),
            Route(f"{_DATABASE}/definitions.sql", catalogue.export),
            Route(f"{_DATABASE}/actions", actions.noted),
            Route(f"{_DATABASE}/import", actions.plan_import, methods=["POST"]),
            Route(f"{_DATABASE}/act", actions.ask, methods=["GET"]),
            Route(f"{_DATABASE}/act", actions.act, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_guard)],
        lifespan=lifespan,
    )
    made.state.targets = targets
    made.state.sessions = Sessions(targets)
    made.state.attempts = Attempts(_LOGINS)
    made.state.actions = Attempts(_ACTIONS)
    made.state.may_write = may_write
    made.state.is_secure = is_secure
    made.state.trace_url = trace_url
    return made


async def _guard(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Show nothing to whoever is not logged in, and give each answer its headers."""
    sessions: Sessions = request.app.state.sessions
    request.state.session = await to_thread.run_sync(sessions.find, request.cookies.get(entrance.COOKIE))
    is_open = request.url.path.startswith(_OPEN)
    if request.state.session is None and not is_open:
        answer: Response = RedirectResponse("/login", 303)
    else:
        answer = await call_next(request)
    for name, value in HEADERS.items():
        answer.headers[name] = value
    return answer
