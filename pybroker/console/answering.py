"""How a page comes about: one reading of databases as the role that logged in, or why that can't be had."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import psycopg
from starlette.responses import PlainTextResponse

from pybroker.console.rendering import page
from pybroker.errors import BrokerError
from pybroker.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import BoundedSemaphore

    from starlette.requests import Request
    from starlette.responses import Response

    from pybroker.console.accounts import Account, Overview, Target
    from pybroker.console.sessions import Session
    from pybroker.diagnosis.findings import Finding

# What console.js says of itself.
_REFRESH = "x-console-refresh"
_LONGEST_FILTER = 500


@dataclass(frozen=True)
class Shown:
    """A template and what it shows: without anything of one session, as open pages share it.

    Attributes:
        text: is sent as a file of SQL instead.
    """

    template: str
    values: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    text: str | None = None

    def beside(self, **more: Any) -> Shown:
        """Return the same with more to show."""
        return replace(self, values={**more, **self.values})


class Page:
    """One request for a page: who asks, of which database, with which filters."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.session: Session = request.state.session
        self.account: Account = self.session.account
        self.targets: tuple[Target, ...] = request.app.state.targets

    @property
    def target(self) -> Target | None:
        """The database that the address names; None for one that the console does not show."""
        number = self.request.path_params.get("number")
        return next((target for target in self.targets if target.number == number), None)

    def given(self, name: str, longest: int = _LONGEST_FILTER) -> str:
        """What the address says of this name, up to a length; PostgreSQL has no text with a zero byte."""
        return self.request.query_params.get(name, "")[:longest].replace("\0", "")

    def filter(self, name: str) -> str | None:
        """A filter of the address; None if it is not given, or empty."""
        return self.given(name) or None

    def findings(self, *numbers: int) -> list[Finding]:
        """What diagnose found of the database within the last two seconds, of these numbers."""
        target = self.target
        seen = None if target is None else overview_of(self.account, target)[0]
        return [] if seen is None else [one for one in seen.findings if one.number in numbers]

    def ask(self, question: Callable[[psycopg.Connection[Any]], Shown]) -> Shown:
        """Ask the database of the address."""
        target = self.target
        if target is None:
            return missing("The console shows no database of this number.")
        found = self.account.ask(target.number, question)
        return found.beside(target=target)

    def answer(self, read: Callable[[], Shown]) -> Response:
        """Answer with what is read now, or was read for another open page a little while ago."""
        readings = self.account.readings
        is_refresh = _REFRESH in self.request.headers

        def looked() -> Shown:
            try:
                found: Shown = readings.of(str(self.request.url), read, is_refresh=is_refresh)
            except (psycopg.Error, BrokerError) as error:
                return Shown("trouble.html", {"title": "No answer", "why": reason(error)}, 503)
            return found

        why = "Too many pages of this role are being read. Please try again."
        shown = if_room(self.account.room, looked, why)
        if shown.text is not None:
            headers = {"Content-Disposition": 'attachment; filename="definitions.sql"'}
            return PlainTextResponse(shown.text, headers=headers)
        return page(
            shown.template,
            shown.status,
            session=self.session,
            path=self.request.url.path,
            wait=readings.wait(),
            may_write=self.request.app.state.may_write,
            trace_url=self.request.app.state.trace_url,
            **shown.values,
        )


def if_room(room: BoundedSemaphore, work: Callable[[], Shown], why: str) -> Shown:
    """Do some work, or say why it is not begun while as much as has room is being done."""
    if not room.acquire(blocking=False):
        return Shown("trouble.html", {"title": "Too many", "why": why}, 429)
    try:
        return work()
    finally:
        room.release()


def missing(why: str) -> Shown:
    """Say that there is nothing at this address."""
    return Shown("trouble.html", {"title": "Not found", "why": why}, 404)


def overview_of(account: Account, target: Target) -> tuple[Overview | None, str]:
    """Return the overview of a database, or why there is none."""
    try:
        return account.overview(target.number), ""
    except (psycopg.Error, BrokerError, LookupError) as error:
        return None, reason(error)


def reason(error: Exception) -> str:
    """Say in a line why a database did not answer; a connection's own words may name its address."""
    if isinstance(error, psycopg.errors.QueryCanceled):
        return "The database took longer than five seconds, so the question was given up."
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return "Somebody else holds it locked. Please try again."
    if isinstance(error, psycopg.OperationalError):
        return "The database can't be reached, does not let this role in, or was too slow."
    return one_line(error)
