"""The pages behind the login: overview, a queue, and one of its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from pybroker.console import bodies, queue_readings
from pybroker.console.rendering import page
from pybroker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from pybroker.console.accounts import Account, Overview, Target
    from pybroker.console.sessions import Session

_LARGEST_NUMBER = 2**63 - 1


def overview(request: Request) -> Response:
    """Show every database: problems first, then its queues."""
    session: Session = request.state.session
    seen = [(target, *_overview(session.account, target)) for target in request.app.state.targets]
    return page("overview.html", session=session, databases=seen)


def queue(request: Request) -> Response:
    """Show a queue: its state, its first messages, what its activation logged."""

    def read(connection: psycopg.Connection[Any], target: Target) -> Response:
        found = queue_readings.queue_of(connection, request.path_params["name"])
        if found is None:
            return missing(request, "No queue has this name, or this role may not receive from it.")
        depth = _depth(connection, found.name)
        log = queue_readings.log_of(connection, found)
        messages = queue_readings.messages_of(connection, found) if _is_small(depth) else None
        return page(
            "queue.html",
            session=request.state.session,
            target=target,
            queue=found,
            depth=depth,
            messages=messages,
            log=log,
            limit=queue_readings.SHOWN,
            peeked=queue_readings.PEEKED_MESSAGES,
        )

    return _answer(request, read)


def message(request: Request) -> Response:
    """Show one message, with the start of its body."""

    def read(connection: psycopg.Connection[Any], target: Target) -> Response:
        order = request.path_params["order"]
        found = queue_readings.queue_of(connection, request.path_params["name"])
        if found is None or order > _LARGEST_NUMBER or not _is_small(_depth(connection, found.name)):
            return missing(request, "No such queue, or it has too many messages to look into.")
        one = queue_readings.message_of(connection, found, order)
        if one is None:
            return missing(request, "The message is no longer in this queue.")
        form, text = bodies.shown(one.start or b"", request.query_params.get("as"))
        return page(
            "message.html",
            session=request.state.session,
            target=target,
            queue=found,
            message=one,
            form=form,
            text=text,
            forms=bodies.FORMS,
            limit=queue_readings.BODY_BYTES,
        )

    return _answer(request, read)


def missing(request: Request, why: str) -> Response:
    """Say that there is nothing at this address."""
    return page("trouble.html", 404, session=request.state.session, title="Not found", why=why)


def _answer(request: Request, read: Callable[[psycopg.Connection[Any], Target], Response]) -> Response:
    """Read one database for a page, or say why that can't be done now."""
    session: Session = request.state.session
    number = request.path_params["number"]
    targets: dict[int, Target] = {target.number: target for target in request.app.state.targets}
    if number not in targets:
        return missing(request, "The console shows no database of this number.")
    try:
        return session.account.ask(number, lambda connection: read(connection, targets[number]))
    except (psycopg.Error, BrokerError) as error:
        return page("trouble.html", 503, session=session, title="No answer", why=_reason(error))


def _overview(account: Account, target: Target) -> tuple[Overview | None, str]:
    try:
        return account.overview(target.number), ""
    except (psycopg.Error, BrokerError, LookupError) as error:
        return None, _reason(error)


def _reason(error: Exception) -> str:
    if isinstance(error, psycopg.OperationalError):
        return "The database can't be reached, does not let this role in, or was too slow."
    return " ".join(str(error).split())


def _depth(connection: psycopg.Connection[Any], name: str) -> tuple[int, int, int, bool]:
    found = connection.execute(
        "select ready, retained, incomplete, is_estimate from broker.queue_depths where queue_name = %s",
        (name,),
    ).fetchone()
    return (0, 0, 0, False) if found is None else (found[0], found[1], found[2], found[3])


def _is_small(depth: tuple[int, int, int, bool]) -> bool:
    return not depth[3] and sum(depth[:3]) <= queue_readings.PEEKED_MESSAGES
