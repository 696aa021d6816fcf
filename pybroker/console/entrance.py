"""Logging in and out, and the door that every other page is behind."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread
from starlette.responses import RedirectResponse

from pybroker.console.forms import fields_of
from pybroker.console.rendering import page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pybroker.console.attempts import Attempts
    from pybroker.console.sessions import Sessions

COOKIE, FORM_COOKIE = "pybroker_console", "pybroker_login"
_ROLE_BYTES = 63
_AT_ONCE = CapacityLimiter(4)


async def show_login(request: Request) -> Response:
    """Show the form."""
    return _form(request)


async def login(request: Request) -> Response:
    """Let a role in that a database lets in."""
    sessions: Sessions = request.app.state.sessions
    attempts: Attempts = request.app.state.attempts
    sent = await fields_of(request)
    role, password = sent.get("role", ""), sent.get("password", "")
    if not sessions.is_login_form(sent.get("token", ""), request.cookies.get(FORM_COOKIE)):
        return _form(request, 403, "The form was too old, or not from here. Please try again.")
    if not attempts.is_allowed(request.client.host if request.client else ""):
        return _form(request, 429, "Too many attempts from this address. Please wait a minute.")
    is_possible = role and password and len(role.encode()) <= _ROLE_BYTES and "\0" not in role + password
    cookie = (
        await to_thread.run_sync(sessions.login, role, password, limiter=_AT_ONCE) if is_possible else None
    )
    if cookie is None:
        return _form(
            request, 401, "No database lets this role in with this password, or none can be reached."
        )
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        COOKIE, cookie, httponly=True, samesite="lax", secure=request.app.state.is_secure, path="/"
    )
    answer.delete_cookie(FORM_COOKIE)
    return answer


async def logout(request: Request) -> Response:
    """End the session, if the form is one of its own."""
    sessions: Sessions = request.app.state.sessions
    sent = await fields_of(request)
    session = request.state.session
    if not hmac.compare_digest(sent.get("token", "").encode(), session.form_token.encode()):
        return page(
            "trouble.html", 403, session=session, title="Refused", why="The form is not one of this session."
        )
    await to_thread.run_sync(sessions.logout, request.cookies.get(COOKIE))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


def _form(request: Request, status: int = 200, problem: str = "") -> Response:
    sessions: Sessions = request.app.state.sessions
    # A second tab, or the browser's look for an icon, must not make the first form too old.
    cookie = request.cookies.get(FORM_COOKIE, "")
    token = cookie if sessions.is_login_form(cookie, cookie) else sessions.login_form()
    answer = page("login.html", status, session=None, token=token, problem=problem)
    answer.set_cookie(
        FORM_COOKIE, token, httponly=True, samesite="strict", secure=request.app.state.is_secure, path="/"
    )
    return answer
