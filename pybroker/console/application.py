"""The console's addresses, and what holds for each answer."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import PlainTextResponse, RedirectResponse
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
_DATABASE = "/database/{number:number}"
# In a minute: logins of an address, actions of a role.
_LOGINS, _ACTIONS = 5, 30
_OPEN = ("/login", "/static/")
_LOCAL = ("127.0.0.1", "localhost", "[::1]")


class _Number(IntegerConvertor):
    """A number as long as PostgreSQL has them: Python refuses to read one of thousands of digits."""

    regex = "[0-9]{1,19}"


register_url_convertor("number", _Number())


def application(
    targets: tuple[Target, ...],
    *,
    is_secure: bool,
    is_local: bool = False,
    may_write: bool = False,
    trace_url: str | None = None,
) -> Starlette:
    """Return the console of these databases.

    Args:
        targets: the databases, in the order of the command line.
        is_secure: whether browsers come by HTTPS, so that cookies may be for HTTPS only.
        is_local: whether browsers know it only by this machine's own names.
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
            Route(f"{_DATABASE}/message/{{priority:number}}/{{order:number}}/{{name:path}}", pages.message),
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
    made.state.is_local = is_local
    made.state.trace_url = trace_url
    return made


def _is_own(host: str) -> bool:
    """Tell whether a browser's Host header names this machine as it names itself."""
    return re.sub(r":[0-9]{1,5}$", "", host).lower() in _LOCAL


async def _guard(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Show nothing to whoever is not logged in, and give each answer its headers."""
    sessions: Sessions = request.app.state.sessions
    request.state.session = await to_thread.run_sync(sessions.find, request.cookies.get(entrance.COOKIE))
    path: str = request.scope["path"]
    if request.app.state.is_local and not _is_own(request.headers.get("host", "")):
        # A site whose name comes to mean this machine could guess passwords from a browser here.
        answer: Response = PlainTextResponse("The console does not go by this name.", 400)
    elif request.state.session is None and not path.startswith(_OPEN):
        answer = RedirectResponse("/login", 303)
    else:
        answer = await call_next(request)
    for name, value in HEADERS.items():
        answer.headers[name] = value
    return answer
